"""Sweeps: every combination of some settings, computed by any executor, each line written when its run has ended."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import sys
import tomllib
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._frame import frame
from ._progress import bar
from ._settings import arguments, plain

if TYPE_CHECKING:
    import pandas


#: The workload of a sweep over sizes of values that names none: that of the profiles, W(M), has sizes of its own.
OF_ONE_SIZE = "fillrandom"


class Sweep(Sequence[dict[str, Any]]):
    """The rows of a sweep, in the order of its combinations: the settings of the grid, then every number of the report
    under its dotted name, as in the file.
    """

    def __init__(self, rows: Iterable[dict[str, Any]], settings: Iterable[str]) -> None:
        self._rows, self._settings = tuple(rows), tuple(settings)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sweep) and (self._rows, self._settings) == (other._rows, other._settings)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Sweep of {', '.join(self._settings)}: {len(self)} rows>"

    def to_frame(self) -> "pandas.DataFrame":
        """A data frame with a row for each combination; ``attrs`` has the kind and unit of each column. It needs
        pandas.
        """
        return frame(self._rows, self._settings)


def run_point(point: dict[str, Any], remember: bool = True) -> str:
    """Runs one point of a sweep, and returns its line. Workers call this."""
    return _native.run_point(json.dumps(point), remember)


def sweep(
    grid: Mapping[str, Iterable[Any]] | str | os.PathLike[str],
    profile: str | None = None,
    *,
    executor: concurrent.futures.Executor | None = None,
    out: str | os.PathLike[str] | None = None,
    remember: bool = True,
    progress: bool | None = None,
    **settings: Any,
) -> Sweep:
    """Runs every combination of the settings of ``grid``, the last one changing fastest.

    >>> rows = sweep({"workload.value_size": [32, 4096], "transfer": ["prp", "piggyback"]}, workload="w-a", ops=200)
    >>> [(row["workload.value_size"], row["host.transfer"]) for row in rows]
    [(32, 'prp'), (32, 'piggyback'), (4096, 'prp'), (4096, 'piggyback')]

    ``settings`` apply to all runs; a sweep over ``value_size`` that names no workload is of ``fillrandom``. ``grid`` may
    be a file of ``kvdrive sweep`` instead, whose lines are beside it, as with the command. With ``out`` each line is
    written to that file when its run has ended, in the format of the command; after an interruption the same call
    continues from there.

    ``executor`` is any :class:`concurrent.futures.Executor`; its workers need this package of the same revision. The
    default is threads of this process, one for each core. Frames have the same numbers with every executor, except in
    column ``time.wall_s``. Progress is shown if tqdm is installed: on a terminal, in a notebook, or with
    ``progress=True``.
    """
    name, text, out = _described(grid, profile, settings, out)
    planned = _native.Sweep(name, text)
    points = [json.loads(point) for point in planned.points()]
    lines: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        file = None
        if out is not None:
            file = planned.open(out)
            stack.callback(file.close)
            for remark in file.remarks():
                print(remark, file=sys.stderr)
            for line in pathlib.Path(out).read_text(encoding="utf-8").splitlines():
                lines[json.loads(line)["config_hash"]] = line
        left = [point for point in points if point["config_hash"] not in lines]
        shown = stack.enter_context(bar(len(points), len(lines), progress))
        try:
            for line in stack.enter_context(contextlib.closing(_computed(left, executor, remember))):
                if file is not None:
                    file.add(line)
                lines[json.loads(line)["config_hash"]] = line
                shown.update()
        except BaseException as error:
            if out is not None:
                # An interrupt may come between a line and its entry in `lines`.
                kept = pathlib.Path(out).read_bytes().count(b"\n")
                error.add_note(f"{kept} of {len(points)} rows are in {out}; the same call goes on from there")
            raise
    rows = (json.loads(lines[point["config_hash"]]) for point in points)
    return Sweep(rows, list(points[0]["grid"]))


def _described(
    grid: Mapping[str, Iterable[Any]] | str | os.PathLike[str],
    profile: str | None,
    settings: dict[str, Any],
    out: str | os.PathLike[str] | None,
) -> tuple[str, str, str | os.PathLike[str] | None]:
    """Name and text of a sweep, as in a file of one, and the file of its lines."""
    if not isinstance(grid, Mapping):
        path = pathlib.Path(grid)
        if profile is not None or settings:
            raise TypeError(f"{path} says profile and settings of the sweep; leave them out, or pass a dictionary")
        return str(path), path.read_text(encoding="utf-8"), path.with_suffix(".jsonl") if out is None else out
    keys = {_native.key(key) for key in grid}
    if "workload.value_size" in keys and not {"workload", "workload.name"} & (keys | settings.keys()):
        settings = {"workload": OF_ONE_SIZE, **settings}
    lines = [] if profile is None else [f"profile = {_toml(profile)}"]
    lines += [f"set = {_toml(_native.assignments(arguments(settings)))}", "[grid]"]
    for key, values in grid.items():
        if isinstance(values, (str, bytes)):
            raise TypeError(f"{key}: a list of values, and not {values!r}")
        lines.append(f"{_toml(_native.key(key))} = {_toml([plain(value) for value in values])}")
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    return "sweep", text, out


def _toml(value: Any) -> str:
    # Texts, numbers, flags and lists are written alike in JSON and TOML.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _computed(
    points: list[dict[str, Any]], executor: concurrent.futures.Executor | None, remember: bool
) -> Generator[str]:
    """The lines of ``points`` as they end. After a failure no further point begins, and lines of points that have ended are
    still yielded."""
    stop = _native.Stop()
    with contextlib.ExitStack() as stack:
        if executor is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            executor = stack.enter_context(concurrent.futures.ThreadPoolExecutor(cores, "kvdrive sweep"))
            work = [(_native.run_point, json.dumps(point), remember, stop) for point in points]
        else:
            work = [(run_point, point, remember) for point in points]
        left: set[concurrent.futures.Future[str]] = set()
        try:
            left.update(executor.submit(*one) for one in work)
            for future in concurrent.futures.as_completed(list(left)):
                line = future.result()
                left.discard(future)
                yield line
        except Exception:
            for future in left:
                future.cancel()
            for future in [*left]:
                if future.done() and not future.cancelled() and future.exception() is None:
                    yield future.result()
            raise
        finally:
            # Runs that have not ended are not waited for any more.
            stop.stop()
            for future in left:
                future.cancel()
