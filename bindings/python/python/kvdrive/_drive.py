"""Drives in this process."""

import json
from collections.abc import Sequence
from typing import Any, overload

from . import _native
from ._closing import Closing
from ._errors import DriveError
from ._items import Items, Values, is_array, native
from ._saker import Saker
from ._settings import arguments, plain


class Drive(Closing, _native.Drive):
    """A drive with power, on threads of this process. :func:`kvdrive.open` makes one.

    It is a mapping of ``bytes`` (keys of 1 to 16 bytes) to ``bytes``; threads may share it, and every call
    releases the interpreter's lock. It has no ``len``, since the drive does not count its pairs: :meth:`count` reads all keys.
    """

    __slots__ = ()

    def store_many(self, keys: Items, values: Items) -> None:
        """Stores value ``i`` under key ``i``, many commands at once. Keys and values are lists of ``bytes``, NumPy arrays
        (``uint8`` with a row for each, or ``S``), or ``(buffer, offsets)``.

        If a key occurs twice, the last value is stored. Raises for the first failed call, with its place in
        ``error.index``; each other call has its whole effect or none.
        """
        self.store_items(native(keys), native(values))

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
    def retrieve_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    @overload
    def retrieve_many(self, keys: Items) -> "list[bytes | None] | Values": ...
    def retrieve_many(self, keys: Items) -> "list[bytes | None] | Values":
        """The values of ``keys``, many commands at once: a list with None where there is no pair; for keys in an array or
        a buffer :class:`Values` over one buffer.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive.store_many([b"a", b"b"], [b"1", b"22"])
        ...     values = drive.retrieve_many((b"abc", [0, 1, 2, 3]))
        ...     bytes(values.data), list(values.offsets), list(values)
        (b'122', [0, 1, 3, 3], [b'1', b'22', None])
        """
        return Values(*self.retrieve_buffer(native(keys))) if is_array(keys) else self.retrieve_list(native(keys))

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
        if "[" in fault:
            if rule:
                raise TypeError(f"{', '.join(rule)}: a text has all of its rules")
            return self.inject_rules(fault)
        if fault == "read-error" and rule.keys() & {"key", "keys"}:
            fault, rule = "status", {"opcode": "retrieve", "status": "88h", **rule}
        lines = [f"{name} = {_toml(value)}" for name, value in {"fault": fault, **rule}.items()]
        return self.inject_rules("\n".join(["[[rule]]", *lines, ""]))

    def namespace(self) -> dict[str, Any]:
        """The namespace, also on a network: ``capacity_bytes`` of values fit, of which ``used_bytes`` are stored as far as
        the drive knows; ``key_max_bytes``, ``value_max_bytes``; ``keys_max``, None if as many as fit; ``is_ordered``: keys come
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


def _toml(value: Any) -> str:
    """A value of a fault rule; the bytes of a key as ``0x...``."""
    match value:
        case bytes() | bytearray():
            return json.dumps(f"0x{value.hex()}")
        case list() | tuple():
            return f"[{', '.join(_toml(one) for one in value)}]"
        case _:
            return json.dumps(plain(value), ensure_ascii=False)
