"""SAKER: small writes are batched, small reads are answered from memory."""

import json
import threading
from typing import Any

from . import _native
from ._closing import Updating


class Saker(Updating):
    """SAKER in front of a drive, as :meth:`Drive.saker` makes it. A write is volatile until :meth:`sync` of the thread that made
    it; calls of all threads see it at once.

    >>> import kvdrive as kv
    >>> with kv.open() as drive, drive.saker(batch=32, cache_bytes="1MiB") as saker:
    ...     for number in range(64):
    ...         saker[b"%d" % number] = b"small"
    ...     saker.sync()
    ...     drive[b"63"], saker.numbers()["batches"]
    (b'small', 2)
    """

    def __init__(self, saker: _native.Saker) -> None:
        self._saker: _native.Saker | None = saker
        self._of_thread = threading.local()

    def _handle(self) -> _native.SakerHandle:
        handle = getattr(self._of_thread, "handle", None)
        if handle is None:
            handle = self._of_thread.handle = self._open().handle()
        return handle

    def _open(self) -> _native.Saker:
        if self._saker is None:
            raise ValueError("this SAKER was closed")
        return self._saker

    def __getitem__(self, key: bytes) -> bytes:
        return self._handle().get(key)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._handle().store(key, value)

    def __contains__(self, key: bytes) -> bool:
        return self._handle().exist(key)

    def get(self, key: bytes, default: Any = None) -> Any:
        """The value of a key, pending or not; or ``default``."""
        try:
            return self[key]
        except KeyError:
            return default

    def discard(self, key: bytes) -> None:
        """Removes a pair; an absent pair is no error."""
        self._handle().delete(key)

    def store_many(self, keys: list[bytes], values: list[bytes]) -> None:
        """Stores value ``i`` under key ``i``."""
        handle = self._handle()
        for key, value in zip(keys, values, strict=True):
            handle.store(key, value)

    def sync(self) -> None:
        """Waits until all earlier writes of this thread are durable; raises for those that have failed."""
        self._handle().sync()

    def unsynced(self) -> int:
        """Writes of this thread that are not known to be durable."""
        return self._handle().unsynced()

    def numbers(self) -> dict[str, Any]:
        """The work of all threads: counters of section ``saker`` in docs/counters.md, and ``cache_bytes`` and
        ``pending_bytes`` as they are now.
        """
        return json.loads(self._open().counts_json())

    def close(self) -> None:
        """Makes the writes of this thread durable; after that the drive can have another SAKER."""
        if self._saker is not None:
            self.sync()
        self._saker, self._of_thread = None, threading.local()
