"""Runs of workloads in model time, and their reports."""

import copy
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._frame import bars, frame, kind
from ._progress import Telling
from ._settings import arguments, profiles
from ._table import Table, preformatted

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

#: Ends of names of the report that attribute access may leave out: ``latency`` is ``latency_ns``.
UNITS = ("ns", "s", "bytes", "ops_per_s", "per_s")


class Part:
    """A part of a report: its names as attributes. A name may leave its unit out.

    >>> part = Part({"latency_ns": {"store": {"p99": 7}}})
    >>> part.latency.store.p99
    7
    """

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        names = [name, *(f"{name}_{unit}" for unit in UNITS)]
        found = [known for known in names if known in self._values]
        if not found:
            raise AttributeError(f"no {name!r} here; there are {', '.join(self._values)}")
        return _part(self._values[found[0]])

    def __getitem__(self, name: str) -> Any:
        return _part(self._values[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def __getstate__(self) -> Any:
        return self._values

    def __setstate__(self, state: Any) -> None:
        self._values = state

    def to_dict(self) -> dict[str, Any]:
        """The values, as the JSON of the command has them."""
        return copy.deepcopy(self._values)


def _part(value: Any) -> Any:
    return Part(value) if isinstance(value, dict) else value


class Report(Part):
    """The report of a run: everything that command ``kvdrive run --json`` writes.

    >>> report = run(workload="fillseq", ops=1000, transfer="adaptive", seed=1)
    >>> report.latency.store.p99 == report.to_dict()["latency_ns"]["store"]["p99"]
    True

    ``print(report)`` shows the tables of the command, which say of each figure whether it is counted, modelled or
    measured.
    """

    __slots__ = ("_record", "_text")

    def __init__(self, json_text: str, record_text: str, text: str) -> None:
        super().__init__(json.loads(json_text))
        self._record: dict[str, Any] = json.loads(record_text)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        workload = self._values["config"]["workload"]["name"]
        return f"<Report of {workload} on {self._values['profile']}, seed {self._values['seed']}>"

    def _repr_html_(self) -> str:
        """The tables in a notebook."""
        return preformatted(self._text)

    def __getstate__(self) -> Any:
        return (self._values, self._record, self._text)

    def __setstate__(self, state: Any) -> None:
        self._values, self._record, self._text = state

    def to_record(self) -> dict[str, Any]:
        """The report as one flat record, as ``kvdrive compare --records`` writes it."""
        return copy.deepcopy(self._record)

    def to_frame(self) -> "pandas.DataFrame":
        """The flat record as a data frame of one row; ``attrs`` has the kind and unit of each column. It needs pandas."""
        return frame([self._record])

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Latencies of each kind of operation, in the time of the modelled drive. It needs matplotlib."""
        names = ["p50", "p95", "p99", "p999"]
        of_each = self._values["latency_ns"]
        axes = bars(axes, {name: [each[name] for each in of_each.values()] for name in names}, list(of_each), "latency_ns")
        axes.set_title(repr(self)[1:-1])
        return axes


class Comparison(Table[Report]):
    """The reports of several runs, in their order. ``print`` shows them side by side."""

    def to_frame(self) -> "pandas.DataFrame":
        """A data frame with a row for each run; ``attrs`` has the kind and unit of each column. It needs pandas."""
        return frame([report._record for report in self])

    def plot(self, y: str = "latency_ns.store.p99", axes: "Axes | None" = None) -> "Axes":
        """One number of each run, by its name in :meth:`Report.to_record`. It needs matplotlib."""
        records = [report._record for report in self]
        names = dict.fromkeys(name for record in records for name in record if kind(name) == "setting")
        differ = [name for name in names if len({str(record.get(name)) for record in records}) > 1]
        labels = [", ".join(str(record.get(name)) for name in differ) for record in records]
        return bars(axes, {y: [record.get(y, 0) for record in records]}, labels, y)


def run(profile: str | None = None, *, remember: bool = True, **settings: Any) -> Report:
    """Runs one workload on one drive in model time.

    >>> run(workload="w-m", ops=1000, transfer="adaptive", packing="backfill", seed=1).seed
    1

    A report that this revision has computed before is read from the user's cache (``kvdrive cache``), unless ``remember``
    is false; its ``time.wall_s`` is that of the first time. Ctrl-C ends the run. Raises :class:`ConfigurationError` for an
    invalid setting, or one that the run does not read.
    """
    return Report(*_native.run(profiles(profile), arguments(settings), remember))


def compare(
    profile: str | Sequence[str] | None = None,
    *,
    remember: bool = True,
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Runs every combination of the settings that are lists, on all cores.

    The order is that of command ``kvdrive compare``: keys of the configuration change slowest, then workloads; seeds
    fastest.

    >>> runs = compare(workload="fillseq", ops=500, transfer=["prp", "adaptive"], packing=["all", "backfill"])
    >>> [(run.config.host.transfer, run.config.packing.policy) for run in runs]
    [('prp', 'all'), ('adaptive', 'all'), ('prp', 'backfill'), ('adaptive', 'backfill')]

    Reports are remembered as those of :func:`run`; Ctrl-C ends the runs, and those that have ended are remembered. After a
    second it prints how long it takes, and shows progress if tqdm is installed: on a terminal, in a notebook, or with
    ``progress=True``.
    """
    with Telling("compare", progress) as tell:
        texts, table = _native.compare(profiles(profile), arguments(settings), remember, tell)
    return Comparison((Report(*text) for text in texts), table)
