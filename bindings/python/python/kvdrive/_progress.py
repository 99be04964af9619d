"""Progress of long calls on standard error: on a terminal and in a notebook, unless it is switched off."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

from ._frame import needed


#: Interval, s, at which a bar is drawn again if no run has ended.
REDRAW_S = 15


def is_shown(progress: bool | None) -> bool:
    """Whether progress is shown: as requested, or by default on a terminal and in a notebook."""
    return (sys.stderr.isatty() or _is_notebook()) if progress is None else progress


def _is_notebook() -> bool:
    """Is this a kernel of Jupyter? It identifies itself."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def bar(runs: int, ended: int, progress: bool | None) -> Any:
    """A bar over runs by tqdm, if it is wanted; in a notebook, a line that is replaced. If tqdm is not installed: no bar, or
    an error if it was requested.
    """
    if not is_shown(progress):
        return _NoBar()
    if _is_notebook() and "IPython" in sys.modules:
        return _NotebookLine(runs, ended)
    try:
        tqdm = needed("tqdm", "progress")
    except ImportError:
        if progress:
            raise
        return _NoBar()
    return tqdm.tqdm(total=runs, initial=ended, unit="run")


class _NotebookLine(contextlib.AbstractContextManager["_NotebookLine"]):
    """One output of a cell, which each update replaces: a bar by tqdm would leave all of its states in the notebook."""

    def __init__(self, runs: int, ended: int) -> None:
        from IPython.display import display

        self.n, self._runs, self._began_s = ended, runs, time.monotonic()
        self._shown = display(self._line(), raw=True, display_id=True)

    def _line(self) -> dict[str, str]:
        return {"text/plain": f"{self.n} of {self._runs} runs, {time.monotonic() - self._began_s:.0f} s"}

    def update(self, ended: int = 1) -> None:
        """Counts runs that have ended."""
        self.n += ended
        self._shown.update(self._line(), raw=True)

    def __exit__(self, *_: object) -> None:
        self._shown.update(self._line(), raw=True)


class _NoBar(contextlib.nullcontext["_NoBar"]):
    n = 0

    def __enter__(self) -> "_NoBar":
        return self

    def update(self, ended: int = 1) -> None:
        """Shows nothing."""


class Telling(contextlib.AbstractContextManager["Callable[[str, int, int], None] | None"]):
    """The messages of a call with many runs: after a second, how long it takes, and then how many runs have ended. Entering
    it returns the function that the native module calls, or None if nothing is shown.
    """

    def __init__(self, what: str, progress: bool | None) -> None:
        self._what, self._progress, self._bar, self._drawn_s = what, progress, None, 0.0
        self._is_shown = is_shown(progress)
        if progress:
            needed("tqdm", "progress")

    def __enter__(self) -> "Callable[[str, int, int], None] | None":
        return self._tell if self._is_shown else None

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)

    def _tell(self, words: str, ended: int, runs: int) -> None:
        if self._bar is None:
            print(f"{self._what}: {words}", file=sys.stderr, flush=True)
            self._bar, self._drawn_s = bar(runs, ended, self._progress), time.monotonic()
        if ended > self._bar.n or time.monotonic() - self._drawn_s > REDRAW_S:
            self._bar.update(ended - self._bar.n)
            self._drawn_s = time.monotonic()
