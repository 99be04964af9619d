"""Drives in this process."""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from . import _native
from ._errors import DriveError
from ._items import Items, Values, is_array, native
from ._settings import arguments, plain, profiles

if TYPE_CHECKING:
    from ._drives import Drives


class Drive(_native.Drive):
    """A drive with power, on threads of this process. :func:`open` makes one.

    It is a mapping of ``bytes`` (keys of 1 to 16 bytes) to ``bytes``; threads may share it, and every call lets go of
    the interpreter's lock. It has no ``len``, since the drive does not count its pairs: :meth:`count` goes through them.
    """

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __bool__(self) -> bool:
        return True

    def update(self, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Stores all pairs, many commands at once.

        >>> with open() as drive:
        ...     drive.update({b"a": b"1", b"b": b"2"})
        ...     list(drive.items())
        [(b'a', b'1'), (b'b', b'2')]
        """
        pairs = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
        self.store_many([key for key, _ in pairs], [value for _, value in pairs])

    def store_many(self, keys: Items, values: Items) -> None:
        """Stores value ``i`` under key ``i``, many commands at once. Keys and values are lists of ``bytes``, NumPy arrays
        (``uint8`` with a row for each, or ``S``), or ``(buffer, offsets)``.

        Of a key that occurs twice the last value is stored. Raises for the first failed call, with its place in
        ``error.index``; each other one has happened wholly or not at all.
        """
        self.store_items(native(keys), native(values))

    @overload
    def retrieve_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    @overload
    def retrieve_many(self, keys: Items) -> "list[bytes | None] | Values": ...
    def retrieve_many(self, keys: Items) -> "list[bytes | None] | Values":
        """The values of ``keys``, many commands at once: a list with None where there is no pair; for keys in an array or
        a buffer :class:`Values` over one buffer.

        >>> with open() as drive:
        ...     drive.store_many([b"a", b"b"], [b"1", b"22"])
        ...     values = drive.retrieve_many((b"abc", [0, 1, 2, 3]))
        ...     values.data, list(values.offsets), list(values)
        (b'122', [0, 1, 3, 3], [b'1', b'22', None])
        """
        return Values(*self.retrieve_buffer(native(keys))) if is_array(keys) else self.retrieve_list(native(keys))

    def inject(self, fault: str, **rule: Any) -> list[str]:
        """Adds a fault rule (``kvdrive list faults``), and returns its name; or all rules of a TOML text.

        >>> with open() as drive:
        ...     drive[b"user42"] = b"value"
        ...     names = drive.inject("read-error", key=b"user42")
        ...     try:
        ...         drive[b"user42"]
        ...     except DriveError as error:
        ...         print(error.name)
        unrecovered error

        A rule of a flash operation (``purpose``, ``die``, ``block``) does not know keys: a read error of a key is its
        retrieve answered so.
        """
        if "[" in fault:
            if rule:
                raise TypeError(f"{', '.join(rule)}: a text has all of its rules")
            return self.inject_rules(fault)
        if fault == "read-error" and rule.keys() & {"key", "keys"}:
            fault, rule = "status", {"opcode": "retrieve", "status": "88h", **rule}
        lines = [f"{name} = {_toml(value)}" for name, value in {"fault": fault, **rule}.items()]
        return self.inject_rules("\n".join(["[[rule]]", *lines, ""]))

    def count(self, prefix: bytes = b"") -> int:
        """Goes through all pairs whose keys begin with ``prefix``, and counts them."""
        return sum(1 for _ in self.keys(prefix))

    def numbers(self) -> dict[str, Any]:
        """What the drive has done since power-on: its counters by section, under the names of docs/counters.md.

        Times of the modelled drive end in ``_ns``; ``seconds`` is by this machine's clock.

        >>> with open() as drive:
        ...     drive[b"key"] = b"value"
        ...     drive.numbers()["engine"]["value_pages_opened"]["total"]
        1
        """
        return json.loads(self.numbers_json())

    def close(self) -> dict[str, Any] | None:
        """Ends the drive, and says how it ended; None if it had no power.

        ``lasting`` says what acknowledged stores outlast: ``nothing`` (a drive in memory), ``program`` or ``machine``
        (a drive on a file), ``elsewhere`` (a drive on a network, which goes on). ``report`` is everything that the drive counted and modelled.
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


@overload
def open(profile: str | None = None, *, pace: str | None = None, **settings: Any) -> Drive: ...
@overload
def open(profile: Sequence[str], *, pace: str | None = None, **settings: Any) -> "Drives": ...
def open(
    profile: str | Sequence[str] | None = None, *, pace: str | None = None, **settings: Any
) -> "Drive | Drives":
    """Powers a drive on; or connects to one on a network, ``tcp://HOST:PORT``; or to several, of which each has its part
    of the keys (:class:`Drives`).

    ``profile`` is one of ``kvdrive list profiles``; without one the drive is that of its engine, ``cosmos-plus`` for
    engine ``lsm``. ``pace="model"`` has calls take as long as on the modelled drive; otherwise they are as fast as this
    machine. With ``media="file", path="d.img"`` the drive is on a file, and there again when it is opened again.

    >>> with open(media="ram", packing="backfill", **{"flash.channels": 4}) as drive:
    ...     drive.store_many([b"a", b"b"], [b"1", b"2"])
    ...     drive.retrieve_many([b"b", b"none"])
    [b'2', None]

    Raises :class:`ConfigurationError` for a setting that cannot be, and :class:`DriveError` for a drive that does not
    come up: its image is another drive's, is damaged, or is in use.
    """
    if isinstance(profile, (list, tuple)):
        from ._drives import Drives

        return Drives([open(one, pace=pace, **settings) for one in profile])
    return Drive(profiles(profile), arguments(settings), pace)
