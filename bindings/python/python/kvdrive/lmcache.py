"""A kvdrive as storage level 2 of LMCache: class :class:`KvdriveConnector` for its adapter type ``native_plugin``.

::

    lmcache server ... --l2-adapter '{"type": "native_plugin", "module_path": "kvdrive.lmcache",
        "class_name": "KvdriveConnector", "adapter_params": {"drive": "tcp://127.0.0.1:4420"}}'

``adapter_params`` are those of :class:`KvdriveConnector`. With ``"max_capacity_gb"`` beside them LMCache evicts objects;
without it a full drive refuses them, and they are misses. Nothing of LMCache is imported here: its adapter calls these
methods, keeps locks, and hands over keys as ``model@rank@group@hash[@salt]`` (LMCache 0.5.6).
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import Any

from ._errors import DriveError
from ._objects import Objects
from ._queue import Queue

logger = logging.getLogger(__name__)


class KvdriveConnector:
    """The six methods, and one for eviction, that LMCache's type ``native_plugin`` calls.

    ``threads`` lists are carried out at once; the further parameters are those of :meth:`kvdrive.Objects.open`. An object that cannot be
    read, or has another size than its buffer, is a miss; a list of stores in which one fails has failed.
    """

    def __init__(self, drive: Any = "cosmos-plus", threads: int = 2, **settings: Any) -> None:
        self._objects = Objects.open(drive, **settings)
        self._queue = Queue(self._objects, threads)
        self._lock = threading.Lock()
        #: By number of the list: what was asked for, and the size of each buffer.
        self._asked: dict[int, tuple[str, list[int]]] = {}

    def event_fd(self) -> int:
        """Readable while :meth:`drain_completions` has something to return."""
        return self._queue.fileno()

    def submit_batch_set(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        """Stores objects; returns a number, and so do the calls below."""
        return self._submit("set", lambda: self._queue.store(_names(keys), list(buffers)))

    def submit_batch_get(self, keys: Sequence[str], buffers: Sequence[memoryview]) -> int:
        """Fills buffers with objects."""
        sizes = [buffer.nbytes for buffer in buffers]
        return self._submit("get", lambda: self._queue.retrieve(_names(keys), list(buffers)), sizes)

    def submit_batch_exists(self, keys: Sequence[str]) -> int:
        """Looks for objects."""
        return self._submit("exists", lambda: self._queue.exist(_names(keys)))

    def submit_batch_delete(self, keys: Sequence[str]) -> int:
        """Removes objects."""
        return self._submit("delete", lambda: self._queue.delete(_names(keys)))

    def _submit(self, kind: str, submit: Any, sizes: list[int] | None = None) -> int:
        # A list may have ended before its submission returns.
        with self._lock:
            task: int = submit()
            self._asked[task] = (kind, sizes or [])
        return task

    def drain_completions(self) -> list[tuple[int, bool, str, list[bool] | None]]:
        """The lists that have ended: number, success of all, the first error in words, and for each object whether it was
        brought, found or removed.
        """
        drained = []
        with self._lock:
            for task, results in self._queue.finished():
                kind, sizes = self._asked.pop(task)
                error = next((str(one) for one in results if isinstance(one, Exception)), "")
                if kind == "set":
                    flags = None
                elif kind == "get":
                    flags = [found == size for found, size in zip(results, sizes, strict=True)]
                else:
                    flags = [one is True for one in results]
                if error:
                    logger.warning("%s of %d objects: %s", kind, len(results), error)
                # Of the other lists each object has an answer of its own.
                drained.append((task, not error or kind != "set", error, flags))
        return drained

    def usage(self) -> tuple[int, int]:
        """Bytes that are stored, as far as the drive knows, and bytes that fit."""
        return self._objects.usage()

    def close(self) -> None:
        """Waits for all lists, and closes the drive unless it is shared."""
        self._queue.close()
        # A drive on a network may be gone.
        with contextlib.suppress(DriveError):
            self._objects.close()


def _names(keys: Sequence[str]) -> list[bytes]:
    return [key.encode() for key in keys]
