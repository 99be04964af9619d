"""Published claims and figures, computed again."""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _native
from ._frame import needed
from ._progress import Telling
from ._settings import arguments, text
from ._table import Table

if TYPE_CHECKING:
    import pandas


class Claims(Table[dict[str, Any]]):
    """The claims of a suite, each with the published value, ours, and the verdict. ``print`` shows the table of
    command ``kvdrive claims``.
    """

    def to_frame(self) -> "pandas.DataFrame":
        """A data frame with a row for each claim: its statement, both numbers as texts, the kind of ours (``kind``), the
        verdict, and whether it is evidence (``standing``). It needs pandas.
        """
        pandas = needed("pandas", "to_frame", "; the claims are dictionaries")
        first = ["id", "title", "source", "published", "ours", "verdict", "kind", "standing"]
        made = pandas.DataFrame(list(self))
        return made[first + [name for name in made.columns if name not in first]]


class Figure:
    """A figure, computed here, with the published values as marks of their own.

    ``charts`` has a dictionary for each panel: its points, its series, ``marks`` with the published values, and ``kind``,
    the kind of the numbers. A notebook shows the figure; ``print`` shows it as text.
    """

    def __init__(self, json_text: str, svg: str, text: str) -> None:
        self._values: dict[str, Any] = json.loads(json_text)
        self.svg, self._text = svg, text

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("_values", {})
        if name not in values:
            raise AttributeError(name)
        return values[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Figure {self.id}: {self.title}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return json.loads(json.dumps(self._values))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Draws all panels into an SVG file."""
        path = pathlib.Path(path)
        if path.suffix != ".svg":
            raise ValueError(f"{path}: a figure is saved as .svg")
        path.write_text(self.svg, encoding="utf-8")

    def to_frame(self) -> "pandas.DataFrame":
        """A data frame with a row for each point of each series: ``value`` is this program's, ``published``
        the source's if it states one. It needs pandas.
        """
        pandas = needed("pandas", "to_frame", "; charts has the same")
        rows = []
        for chart in self.charts:
            marks = {(mark["series"], mark["point"]): mark["value"] for mark in chart["marks"]}
            for number, line in enumerate(chart["series"]):
                for place, value in enumerate(line["values"]):
                    rows.append({
                        "panel": chart["letter"],
                        "quantity": chart["title"],
                        "series": line["name"],
                        "point": chart["points"][place],
                        "value": value,
                        "published": marks.get((number, place)),
                        "unit": chart["unit"],
                        "kind": chart["kind"],
                    })
        return pandas.DataFrame(rows)


def claims(
    suite: str,
    *,
    only: str | Iterable[str] = (),
    extent: str = "usual",
    scale: str | None = None,
    seed: int | Iterable[int] = (),
    remember: bool = True,
    progress: bool | None = None,
    **settings: Any,
) -> Claims:
    """Judges the claims of a suite: ``bandslim``, ``plus``, ``plus2``, ``saker``, ``kvcache`` or ``pm983``.

    ``only``: the first characters of the ids of claims. ``extent`` is ``quick`` (about a minute, and leaves some claims open), ``usual``
    or ``full`` (as published, many times as long). Settings override those of every run.

    After a second it prints how long it takes (the first time: runs are remembered), and shows progress if tqdm is
    installed: on a terminal, in a notebook, or with ``progress=True``. Ctrl-C ends it, and the same call continues from
    there.

    >>> [claim["verdict"] for claim in claims("bandslim", only="traffic-32", extent="quick")]
    ['reproduced']
    """
    only = [only] if isinstance(only, str) else list(only)
    departure = _departure(extent, scale, seed, settings)
    with Telling(f"claims {suite}", progress) as tell:
        outcomes, table = _native.claims_of(suite, only, departure, remember, tell)
    return Claims(json.loads(outcomes), table)


def figure(
    name: str | os.PathLike[str],
    *,
    extent: str = "usual",
    scale: str | None = None,
    seed: int | Iterable[int] = (),
    remember: bool = True,
    progress: bool | None = None,
    **settings: Any,
) -> Figure:
    """Computes a figure: one of :func:`figures`, or a TOML file that describes one. Arguments are those of
    :func:`claims`; several seeds give their mean and spread.
    """
    departure = _departure(extent, scale, seed, settings)
    with Telling(f"figure {name}", progress) as tell:
        return Figure(*_native.figure_of(os.fspath(name), departure, remember, tell))


def figures() -> dict[str, str]:
    """The published figures: names and titles.

    >>> figures()["bandslim-8"]
    "ICPP'24, Figure 8: Piggybacked values: traffic and response time by value size"
    """
    return {name: f"{source}: {title}" for name, source, title in _native.figures()}


def _departure(
    extent: str, scale: Any, seed: int | Iterable[int], settings: dict[str, Any]
) -> tuple[str, str | None, list[int], list[str]]:
    seeds = [seed] if isinstance(seed, int) else [int(one) for one in seed]
    return extent, None if scale is None else text(scale), seeds, _native.assignments(arguments(settings))
