"""Objects of a cache on a drive: names of any bytes, values of any size. The plugins of cache software stand on it."""

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from ._closing import Closing
from ._errors import ConfigurationError, DriveError, SizeError
from ._open import open as open_drive

#: What stands under the name of an object that is larger than the drive's largest value: a mark, the object's size, the
#: size of its parts (the last may be shorter), and the random beginning of their keys.
MANIFEST = struct.Struct("<16sQQ12s4x")
MARK = b"kvdrive parts 1\0"
#: Bytes before a value under a name of more than 16 bytes, besides the name (`kvdrive::key_of`).
FRONT_BYTES = 8
KEY_MAX_BYTES = 16
#: Time between two attempts to reach a drive on a network.
RETRY_SECONDS = 1.0


#: Drives of this process that a plugin can be told to use, by name.
_shared: dict[str, Any] = {}


def share(name: str, drive: Any) -> None:
    """Lets ``shared:NAME`` mean this drive in the configuration of a plugin in this process (:meth:`Objects.open`). Its owner
    closes it; ``None`` instead of a drive ends the sharing.
    """
    if drive is None:
        _shared.pop(name, None)
    else:
        _shared[name] = drive


class Objects(Closing):
    """Objects on a drive, or on several (:class:`kvdrive.Drives`), in lists of C-contiguous buffers.

    An object of up to the drive's largest value is one pair under its name. A larger one is cut into parts, and stored as
    pairs of keys that no other object has; then a *manifest* under its name, so that the object is there whole or not at
    all. Parts of a store that did not end, because the program was killed, stay on the drive.

    Results are in the order of the names. An error of the drive is in the place of the object that met it, and the others
    are not touched by it. A drive on a network that was lost is connected to again, once a second at most.
    """

    __slots__ = ("_again", "_is_lent", "_lock", "_lost_at", "_most", "drive")

    def __init__(self, drive: Any, *, is_lent: bool = False, again: Callable[[], Any] | None = None) -> None:
        #: The drive.
        self.drive = drive
        self._is_lent = is_lent
        self._again = again
        self._lock = threading.Lock()
        #: When it was last seen to be lost, or tried in vain, by the machine's clock in seconds.
        self._lost_at: float | None = None
        self._most: int = min(told["value_max_bytes"] for told in self._namespaces())

    @classmethod
    def open(cls, drive: Any = "cosmos-plus", *, faults: str | None = None, **settings: Any) -> Self:
        """The objects of a plugin's configuration. ``drive`` is a profile, ``tcp://HOST:PORT``, ``/dev/ngXnY``, a list of
        these, or ``shared:NAME`` (:func:`share`); ``faults`` are rules as a TOML text (``kvdrive list faults``); the others are settings
        of :func:`kvdrive.open`: ``pace``, ``media`` and ``path``, ``capacity``, ...
        """
        if isinstance(drive, str) and drive.startswith("shared:"):
            name = drive.removeprefix("shared:")
            if name not in _shared or settings:
                problem = "leave settings out" if name in _shared else "no drive of that name is shared here (kvdrive.share)"
                raise ConfigurationError(f"drive={drive}: {problem}", setting="drive")
            opened = cls(_shared[name], is_lent=True)
        else:
            is_elsewhere = any(form in str(drive) for form in ("tcp://", "/dev/"))
            again = (lambda: open_drive(drive)) if is_elsewhere and faults is None else None
            opened = cls(open_drive(drive, **settings), again=again)
        if faults is not None:
            for one in getattr(opened.drive, "drives", [opened.drive]):
                one.inject(faults)
        return opened

    def store_many(self, names: Sequence[bytes], values: Sequence[Any], *, errors: str = "return") -> list[Any]:
        """Stores objects; for each None, or its error. If an object is there, it is replaced."""
        return self._called(names, lambda: self._store(names, values, errors))

    def _store(self, names: Sequence[bytes], values: Sequence[Any], errors: str) -> list[Any]:
        results: list[Any] = [None] * len(names)
        whole = [place for place, name in enumerate(names) if memoryview(values[place]).nbytes <= self._room(name)]
        ended = self.drive.store_many([names[i] for i in whole], [values[i] for i in whole], errors=errors)
        for place, error in zip(whole, ended, strict=True):
            results[place] = error
        for place in sorted(set(range(len(names))).difference(whole)):
            name, value = names[place], memoryview(values[place]).cast("B")
            results[place] = _or_error(lambda name=name, value=value: self._store_parts(name, value))
        return results

    def retrieve_many_into(self, names: Sequence[bytes], buffers: Sequence[Any], *, errors: str = "return") -> list[Any]:
        """Writes objects to buffers; for each its size, None if there is none, or its error. An object whose size is not that
        of its buffer is another one than the caller thinks.
        """
        return self._called(names, lambda: self._retrieve(names, buffers, errors))

    def _retrieve(self, names: Sequence[bytes], buffers: Sequence[Any], errors: str) -> list[Any]:
        sizes = self.drive.retrieve_many_into(list(names), list(buffers), errors=errors)
        for place, size in enumerate(sizes):
            if size == MANIFEST.size and size != memoryview(buffers[place]).nbytes:
                buffer = memoryview(buffers[place]).cast("B")
                sizes[place] = _or_error(lambda buffer=buffer: self._retrieve_parts(buffer))
        return sizes

    def exist_many(self, names: Sequence[bytes], *, errors: str = "return") -> list[Any]:
        """For each name: is there an object?"""
        return self._called(names, lambda: self.drive.exist_many(list(names), errors=errors))

    def delete_many(self, names: Sequence[bytes], *, errors: str = "return") -> list[Any]:
        """Removes objects; for each name: was there one?"""
        return self._called(names, lambda: self._delete(names, errors))

    def _delete(self, names: Sequence[bytes], errors: str) -> list[Any]:
        parts = [part for name in names for part in self._parts(name)]
        removed = self.drive.delete_many(list(names), errors=errors)
        self._drop(parts)
        return removed

    def usage(self) -> tuple[int, int]:
        """Bytes that are stored as far as the drive knows, and bytes that fit."""
        told = self._namespaces()
        return sum(one["used_bytes"] for one in told), sum(one["capacity_bytes"] for one in told)

    def close(self) -> Any:
        """Ends the drive, unless it is shared."""
        return None if self._is_lent else self.drive.close()

    def _called(self, names: Sequence[bytes], call: Callable[[], list[Any]]) -> list[Any]:
        """The results of a list; the same error for each if the drive cannot be reached."""
        try:
            self._reconnect()
            results = call()
        except DriveError as error:
            results = [error] * len(names)
        # A drive that answers gives a status.
        if any(isinstance(one, DriveError) and not isinstance(one, SizeError) and one.status is None for one in results):
            self._lost_at = self._lost_at or time.monotonic() - RETRY_SECONDS
        return results

    def _reconnect(self) -> None:
        with self._lock:
            if self._again is None or self._lost_at is None or time.monotonic() < self._lost_at + RETRY_SECONDS:
                return
            self._lost_at = time.monotonic()
            lost, self.drive = self.drive, self._again()
            self._lost_at = None
        with contextlib.suppress(DriveError):
            lost.close()

    def _namespaces(self) -> list[dict[str, Any]]:
        told = self.drive.namespace()
        return told if isinstance(told, list) else [told]

    def _room(self, name: bytes) -> int:
        """Bytes of an object that fit in one pair."""
        return self._most - (FRONT_BYTES + len(name) if len(name) > KEY_MAX_BYTES else 0)

    def _store_parts(self, name: bytes, value: memoryview) -> None:
        old, beginning = self._parts(name), os.urandom(12)
        places = range(0, len(value), self._most)
        keys = _keys(beginning, len(places))
        try:
            self.drive.store_many(keys, [value[at : at + self._most] for at in places])
            self.drive[name] = MANIFEST.pack(MARK, len(value), self._most, beginning)
        except DriveError:
            self._drop(keys)
            raise
        self._drop(old)

    def _retrieve_parts(self, buffer: memoryview) -> int | None:
        """Brings the parts of the object whose manifest is at the front of ``buffer``."""
        manifest = _manifest(bytes(buffer[: MANIFEST.size]))
        if manifest is None:
            return MANIFEST.size
        size, part, keys = manifest
        if size != len(buffer):
            return size
        rooms = [buffer[at : at + part] for at in range(0, size, part)]
        # A part that is missing: the object was replaced or removed meanwhile.
        return size if self.drive.retrieve_many_into(keys, rooms) == [len(room) for room in rooms] else None

    def _parts(self, name: bytes) -> list[bytes]:
        """The keys of the parts of an object; none if it is one pair, is not there, or cannot be read."""
        try:
            manifest = _manifest(self.drive.retrieve_part(name, 0, MANIFEST.size))
        except (KeyError, DriveError):
            return []
        return manifest[2] if manifest else []

    def _drop(self, keys: list[bytes]) -> None:
        """Removes parts that belong to no object any more. One that cannot be removed stays."""
        if keys:
            _or_error(lambda: self.drive.delete_many(keys, errors="return"))


def _manifest(value: bytes) -> tuple[int, int, list[bytes]] | None:
    """Size of an object, size of its parts, and their keys."""
    if len(value) != MANIFEST.size:
        return None
    mark, size, part, beginning = MANIFEST.unpack(value)
    return (size, part, _keys(beginning, -(-size // part))) if mark == MARK and part else None


def _keys(beginning: bytes, parts: int) -> list[bytes]:
    return [beginning + number.to_bytes(4, "big") for number in range(parts)]


def _or_error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except DriveError as error:
        return error
