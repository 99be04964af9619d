"""Calls on lists that are submitted now and collected later, with a descriptor that tells when."""

import concurrent.futures
import os
import select
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ._closing import Closing
from ._errors import DriveError
from ._items import Items, count, native


class _Lists(Protocol):
    def store_many(self, keys: Items, values: Items, *, errors: str) -> Any: ...
    def retrieve_many_into(self, keys: Items, buffers: Sequence[Any], *, errors: str) -> Any: ...
    def exist_many(self, keys: Items, *, errors: str) -> Any: ...
    def delete_many(self, keys: Items, *, errors: str) -> Any: ...


class Finished(NamedTuple):
    """A list that has ended."""

    #: The number that its submission returned.
    task: int
    #: In the order of its keys: what the call of a list returns with ``errors="return"``. If no call could be made, each
    #: has the same error.
    results: list[Any]


class Queue(Closing):
    """Calls on lists of a drive, carried out on threads of the queue's own. :meth:`Drive.queue` makes one.

    A submission returns at once, with a number. :meth:`fileno` is readable while lists have ended that :meth:`finished`
    has not returned; it can be waited for by ``select``, ``poll`` or an event loop. Buffers must not change, and are not
    to be read, until their list is returned.

    >>> import kvdrive as kv
    >>> with kv.open() as drive, drive.queue() as queue:
    ...     queue.store([b"a", b"b"], [b"1", b"2"]), queue.wait()
    ...     queue.exist([b"b", b"c"]), queue.wait()
    (0, [Finished(task=0, results=[None, None])])
    (1, [Finished(task=1, results=[True, False])])
    """

    __slots__ = ("_drive", "_ended", "_finished", "_lock", "_next", "_pid", "_pool", "_running", "_told", "_under_way")

    def __init__(self, drive: _Lists, threads: int = 1) -> None:
        self._drive = drive
        self._pid = os.getpid()
        self._lock = threading.Condition()
        #: Lists so far, those that were not returned, and those that have not ended.
        self._next, self._under_way, self._running = 0, 0, 0
        self._finished: list[Finished] = []
        # One byte is in the pipe while `_finished` is not empty.
        self._ended, self._told = os.pipe()
        self._pool: concurrent.futures.ThreadPoolExecutor | None = concurrent.futures.ThreadPoolExecutor(threads, "kvdrive queue")

    def store(self, keys: Items, values: Items) -> int:
        """Submits :meth:`Drive.store_many`; returns the number of the list, and so do the calls below."""
        return self._submit(keys, lambda keys: self._drive.store_many(keys, values, errors="return"))

    def retrieve(self, keys: Items, buffers: Sequence[Any]) -> int:
        """Submits :meth:`Drive.retrieve_many_into`."""
        return self._submit(keys, lambda keys: self._drive.retrieve_many_into(keys, buffers, errors="return"))

    def exist(self, keys: Items) -> int:
        """Submits :meth:`Drive.exist_many`."""
        return self._submit(keys, lambda keys: self._drive.exist_many(keys, errors="return"))

    def delete(self, keys: Items) -> int:
        """Submits :meth:`Drive.delete_many`."""
        return self._submit(keys, lambda keys: self._drive.delete_many(keys, errors="return"))

    def _submit(self, keys: Items, call: Callable[[Any], list[Any]]) -> int:
        keys = native(keys)
        with self._lock:
            pool = self._open()
            task = self._next
            self._next, self._under_way, self._running = task + 1, self._under_way + 1, self._running + 1
            # Under the lock, so that lists begin in the order of their numbers.
            pool.submit(self._carry_out, task, keys, call)
        return task

    def _open(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._pid != os.getpid():
            raise DriveError("queue: its threads stayed with the parent of this forked process; make one here")
        if self._pool is None:
            raise DriveError("queue: it is closed")
        return self._pool

    def _carry_out(self, task: int, keys: Any, call: Callable[[Any], list[Any]]) -> None:
        try:
            results = call(keys)
        except Exception as error:
            results = [error] * count(keys)
        with self._lock:
            if not self._finished:
                os.write(self._told, b"\0")
            self._finished.append(Finished(task, results))
            self._running -= 1
            self._lock.notify_all()

    def fileno(self) -> int:
        """The descriptor. It is for waiting only: reading from it is left to :meth:`finished`."""
        return self._ended

    def finished(self) -> list[Finished]:
        """The lists that have ended since the last call, without waiting."""
        with self._lock:
            finished, self._finished = self._finished, []
            if finished:
                os.read(self._ended, 1)
                self._under_way -= len(finished)
        return finished

    def wait(self, timeout: float | None = None) -> list[Finished]:
        """As :meth:`finished`, after waiting until there is one, for ``timeout`` seconds at most; empty if none was
        submitted.
        """
        with self._lock:
            self._open()
            if not self._under_way:
                return []
        select.select([self._ended], [], [], timeout)
        return self.finished()

    def drain(self, timeout: float | None = None) -> bool:
        """Waits until all lists have ended, for ``timeout`` seconds at most; returns whether they have. They are still to be
        returned.
        """
        with self._lock:
            return self._lock.wait_for(lambda: not self._running, timeout)

    def close(self) -> None:
        """Waits for all lists to end. The drive stays open. Another call is of no effect."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is None:
            return
        if self._pid == os.getpid():
            pool.shutdown()
        os.close(self._ended)
        os.close(self._told)
