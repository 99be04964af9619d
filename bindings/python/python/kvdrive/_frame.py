"""Records as data frames and charts. pandas and matplotlib are imported when they are needed."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

#: Ends of a name's parts that are its unit.
UNITS = {"ns": "ns", "bytes": "B", "ops_per_s": "ops/s", "per_s": "1/s", "s": "s", "fraction": "1"}

#: Names that identify the run; so do names with ``config.`` in front.
SETTINGS = ("profile", "seed", "clock", "revision", "time_sources", "notes", "config_hash")

#: Beginnings of names that come first in a frame, in this order; settings that differ come before them.
FIRST = (
    "throughput_ops_per_s",
    "latency_ns.",
    "traffic.payload_bytes.total",
    "traffic.wire_bytes.total",
    "nand.programs.total",
    "nand.reads.total",
    "amplification.",
    "ops.",
)


def needed(module: str, caller: str, otherwise: str = "") -> Any:
    """An optional package; without it, an error that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{caller} needs {package}: pip install {package}{otherwise}") from error


def kind(name: str) -> str:
    """The kind of the number of this name, as its counter declares: ``counted``, ``modelled`` or ``measured``; or
    ``setting``.

    >>> [kind(name) for name in ("ops.store", "latency_ns.store.p99", "time.wall_s", "config.host.depth")]
    ['counted', 'modelled', 'measured', 'setting']
    """
    is_setting = name in SETTINGS or name.startswith("config.")
    return "setting" if is_setting else _native.kind(name)


def unit(name: str) -> str | None:
    """The unit in a name, if it has one.

    >>> [unit(name) for name in ("latency_ns.store.p99", "throughput_ops_per_s", "traffic.wire_bytes.total", "seed")]
    ['ns', 'ops/s', 'B', None]
    """
    for part in reversed(name.split(".")):
        for end, of_end in UNITS.items():
            if part == end or part.endswith("_" + end):
                return of_end
    return None


def frame(records: Sequence[Mapping[str, Any]], settings: Iterable[str] = ()) -> "pandas.DataFrame":
    """A row for each record. The first columns are the settings that differ, then ``FIRST``.

    ``attrs`` has the kind and the unit of each column. ``settings`` names further columns that are settings,
    besides those that are known by their names.
    """
    pandas = needed("pandas", "to_frame", "; to_dict needs nothing")
    made = pandas.DataFrame(list(records))
    settings = [name for name in settings if name in made.columns]
    kinds = {name: "setting" if name in settings else kind(name) for name in made.columns}
    known = [name for name in made.columns if kinds[name] == "setting" and name != "config_hash"]
    differ = [name for name in known if _differs(made[name])]
    chosen = [name for begin in FIRST for name in made.columns if name.startswith(begin)]
    first = list(dict.fromkeys([*settings, *differ, *chosen]))
    rest = [name for name in made.columns if name not in set(first)]
    made = made[first + sorted(rest, key=lambda name: kinds[name] == "setting")]
    units = {name: unit(name) for name in made.columns}
    made.attrs = {
        "kinds": {name: kinds[name] for name in made.columns},
        "units": {name: of for name, of in units.items() if of is not None},
    }
    return made


def _differs(column: "pandas.Series") -> bool:
    return len(set(map(str, column))) > 1


def bars(axes: "Axes | None", groups: Mapping[str, Sequence[float]], labels: Sequence[str], y: str) -> "Axes":
    """Bars beside each other: a group of them for each label."""
    if axes is None:
        axes = needed("matplotlib.pyplot", "plot").subplots()[1]
    width = 0.8 / len(groups)
    for index, (name, values) in enumerate(groups.items()):
        axes.bar([place + index * width for place in range(len(labels))], values, width, label=name)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(labels))], labels)
    axes.set_ylabel(f"{y} [{unit(y)}], {kind(y)}" if unit(y) else f"{y}, {kind(y)}")
    if len(groups) > 1:
        axes.legend()
    return axes
