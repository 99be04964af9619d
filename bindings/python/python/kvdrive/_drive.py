"""Drives in this process."""

import json
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from . import _native
from ._settings import arguments, profiles


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
        (a drive on a file). ``report`` is everything that the drive counted and modelled.
        """
        closed = self.close_json()
        return None if closed is None else json.loads(closed)


def open(profile: str | None = None, *, pace: str | None = None, **settings: Any) -> Drive:
    """Powers a drive on.

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
    return Drive(profiles(profile), arguments(settings), pace)
