"""Drives in this process."""

import json
from collections.abc import Sequence
from typing import Any, overload

from . import _native
from ._closing import Updating
from ._errors import DriveError
from ._items import Items, Values, count, each, is_array, native, with_errors
from ._queue import Queue
from ._saker import Saker
from ._settings import arguments, plain


class Drive(Updating, _native.Drive):
    """A drive with power, on threads of this process. :func:`kvdrive.open` makes one.

    It is a mapping of ``bytes`` to ``bytes``. A key has 1 to 16 bytes; one of up to 65 535 bytes is a *name*: its pair is
    stored under the first 16 bytes of its SHA-256, with the name before the value, and the pair of another name is never
    returned, replaced or removed. :meth:`items` has names as they were given, :meth:`keys` has their digests. A value is any
    object with a C-contiguous buffer; it must not change until the call ends. Threads may share it, and every call
    releases the interpreter's lock. It has no ``len``, since the drive does not count its pairs: :meth:`count` reads all keys.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """What it is, and how much is stored; of a drive without power that it is off.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"key"] = bytes(500)
        ...     " with 500 of " in repr(drive)
        True
        """
        try:
            namespace = self.namespace()
        except DriveError as error:
            return f"<{type(self).__name__}: {error}>"
        used, room = namespace["used_bytes"], namespace["capacity_bytes"]
        return f"<{type(self).__name__} with {used} of {room} bytes of values>"

    def store_many(self, keys: Items, values: Items, *, errors: str = "raise") -> list[DriveError | None] | None:
        """Stores value ``i`` under key ``i``, many commands at once. Keys and values are lists of ``bytes`` or other buffers,
        NumPy arrays (``uint8`` with a row for each, or ``S``), or ``(buffer, offsets)``; none of them may change meanwhile.

        If a key occurs twice, the last value is stored. Raises for the first failed call, with its place in
        ``error.index``; each other call has its whole effect or none. With ``errors="return"`` all calls are made, and
        the result has an error or None for each.
        """
        keys = native(keys)
        failed = self.store_items(keys, native(values), each(errors))
        return with_errors([None] * count(keys), failed) if each(errors) else None

    def retrieve_into(self, key: bytes, buffer: Any) -> int:
        """Writes a value to the front of a writable C-contiguous buffer, without an object in between, and returns its size.
        KeyError if there is no pair; :class:`SizeError` if the value is larger than the buffer, which is left as it is.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"key"] = b"value"
        ...     room = bytearray(8)
        ...     drive.retrieve_into(b"key", room), room
        (5, bytearray(b'value\\x00\\x00\\x00'))
        """
        (size,) = self.retrieve_many_into([key], [buffer])
        if size is None:
            raise KeyError(key)
        return size

    def retrieve_many_into(self, keys: Items, buffers: Sequence[Any], *, errors: str = "raise") -> list[Any]:
        """Writes value ``i`` to the front of buffer ``i``, many commands at once; returns the sizes, None where there is no
        pair. Raises :class:`SizeError` for the first value that is larger than its buffer, after all others are written; and
        as :meth:`store_many`. With ``errors="return"`` the errors are in the places of the sizes.

        No buffer is to be read or written until the call ends.
        """
        sizes, failed = self.retrieve_into_items(native(keys), list(buffers), each(errors))
        return with_errors(sizes, failed)

    def exist_many(self, keys: Items, *, errors: str = "raise") -> list[Any]:
        """For each key: is there a pair? Errors as in :meth:`store_many`.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive.update({b"a": b"1", b"a name of more than 16 bytes": b"2"})
        ...     drive.exist_many([b"a", b"b", b"a name of more than 16 bytes"])
        ...     drive.delete_many([b"a", b"b"]), list(drive.items())
        [True, False, True]
        ([True, False], [(b'a name of more than 16 bytes', b'2')])
        """
        return with_errors(*self.exist_items(native(keys), each(errors)))

    def delete_many(self, keys: Items, *, errors: str = "raise") -> list[Any]:
        """Removes pairs; returns for each key whether there was one. Errors as in :meth:`store_many`. Of a drive on a network
        that is no kvdrive it is asked before.
        """
        keys = native(keys)
        there = None if self.delete_says else self.exist_many(keys)
        flags, failed = self.delete_items(keys, each(errors))
        return with_errors(flags if there is None else there, failed)

    def queue(self, threads: int = 1) -> Queue:
        """Calls on lists that are submitted now and collected later (:class:`Queue`)."""
        return Queue(self, threads)

    def retrieve_part(self, key: bytes, at: int, size: int) -> bytes:
        """Bytes ``at`` to ``at + size`` of a value, fewer where it ends, 2 MiB at most; only these cross the link. KeyError
        if there is no pair, :class:`DriveError` if the value ends before ``at``.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"key"] = bytes(range(100)) * 1000
        ...     drive.retrieve_part(b"key", 50_000, 3), drive.size(b"key")
        (b'\\x00\\x01\\x02', 100000)
        """
        return self._part(key, at, size)[0]

    def size(self, key: bytes) -> int:
        """Size of a value in bytes; KeyError if there is no pair."""
        return self._part(key, 0, 0)[1]

    def _part(self, key: bytes, at: int, size: int) -> tuple[bytes, int]:
        part = self.retrieve_part_of(key, at, size)
        if part is None:
            raise KeyError(key)
        return part

    @overload
    def retrieve_many(self, keys: Sequence[bytes], *, errors: str = "raise") -> list[bytes | None]: ...
    @overload
    def retrieve_many(self, keys: Items, *, errors: str = "raise") -> "list[bytes | None] | Values": ...
    def retrieve_many(self, keys: Items, *, errors: str = "raise") -> "list[bytes | None] | Values":
        """The values of ``keys``, many commands at once: a list with None where there is no pair; for keys in an array or
        a buffer :class:`Values` over one buffer. With ``errors="return"`` it is always a list, with errors in their places.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive.store_many([b"a", b"b"], [b"1", b"22"])
        ...     values = drive.retrieve_many((b"abc", [0, 1, 2, 3]))
        ...     bytes(values.data), list(values.offsets), list(values)
        (b'122', [0, 1, 3, 3], [b'1', b'22', None])
        """
        if is_array(keys) and not each(errors):
            return Values(*self.retrieve_buffer(native(keys)))
        return with_errors(*self.retrieve_list(native(keys), each(errors)))

    def inject(self, fault: str, **rule: Any) -> list[str]:
        """Adds a fault rule (``kvdrive list faults``), and returns its name; or all rules of a TOML text.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"user42"] = b"value"
        ...     names = drive.inject("read-error", key=b"user42")
        ...     try:
        ...         drive[b"user42"]
        ...     except DriveError as error:
        ...         print(error.name)
        unrecovered error

        A rule of a flash operation (``purpose``, ``die``, ``block``) cannot name a key: with ``key``, the retrieve of
        that key fails, and not a certain read of flash.
        """
        return self.inject_rules(rules_of(fault, rule))

    def namespace(self) -> dict[str, Any]:
        """The namespace, also on a network: ``capacity_bytes`` of values fit, of which at most ``used_bytes`` are stored:
        engine ``lsm`` learns that a value was replaced when it merges, the others at once; ``key_max_bytes``, ``value_max_bytes``; ``keys_max``, None if as many as fit; ``is_ordered``: keys come
        in order.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"key"] = bytes(500)
        ...     drive.namespace()["used_bytes"], drive.namespace()["value_max_bytes"] >> 20
        (500, 256)
        """
        return json.loads(self.namespace_json())

    def saker(self, **settings: Any) -> Saker:
        """SAKER in front of this drive, one at a time; settings are keys of section ``saker`` of the configuration
        (``kvdrive config``): ``batch``, ``container_bytes``, ``cache_bytes``, ...
        """
        return Saker(self.open_saker(arguments(settings)))

    def numbers(self) -> dict[str, Any]:
        """The drive's counters since power-on, by section, under the names of docs/counters.md.

        Times of the modelled drive end in ``_ns``; ``seconds`` is by this machine's clock.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"key"] = b"value"
        ...     drive.numbers()["engine"]["value_pages_opened"]["total"]
        1
        """
        return json.loads(self.numbers_json())

    def close(self) -> dict[str, Any] | None:
        """Ends the drive; returns how it ended, or None if it had no power.

        ``lasting`` says what acknowledged stores survive: ``nothing`` (a drive in memory), ``program`` or ``machine``
        (a drive on a file), ``elsewhere`` (a drive on a network, which continues). ``report`` has everything that the drive
        counted and modelled.
        """
        closed = self.close_json()
        return None if closed is None else json.loads(closed)


def rules_of(fault: str, rule: dict[str, Any]) -> str:
    """The TOML text of a fault rule; or ``fault``, if it is one."""
    if "[" in fault:
        if rule:
            raise TypeError(f"{', '.join(rule)}: a text has all of its rules")
        return fault
    if fault == "read-error" and rule.keys() & {"key", "keys"}:
        fault, rule = "status", {"opcode": "retrieve", "status": "88h", **rule}
    lines = [f"{name} = {_toml(value)}" for name, value in {"fault": fault, **rule}.items()]
    return "\n".join(["[[rule]]", *lines, ""])


def _toml(value: Any) -> str:
    """A value of a fault rule; the bytes of a key as ``0x...``."""
    match value:
        case bytes() | bytearray():
            return json.dumps(f"0x{value.hex()}")
        case list() | tuple():
            return f"[{', '.join(_toml(one) for one in value)}]"
        case _:
            return json.dumps(plain(value), ensure_ascii=False)
