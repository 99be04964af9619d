"""Methods of all objects that hold pairs and are closed at the end."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self


class _Stores(Protocol):
    def store_many(self, keys: list[bytes], values: list[bytes], /) -> None: ...


class Closing:
    """Closes itself after a ``with``."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __bool__(self) -> bool:
        return True

    def close(self) -> Any:
        """Ends it."""
        raise NotImplementedError


class Updating(Closing):
    """Also takes all pairs of a mapping."""

    __slots__ = ()

    def update(self: _Stores, pairs: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]) -> None:
        """Stores all pairs, many commands at once.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive.update({b"a": b"1", b"b": b"2"})
        ...     list(drive.items())
        [(b'a', b'1'), (b'b', b'2')]
        """
        pairs = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
        self.store_many([key for key, _ in pairs], [value for _, value in pairs])
