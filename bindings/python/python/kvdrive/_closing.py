"""Methods of all objects that hold pairs and are closed at the end."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self


class _Stores(Protocol):
    def store_many(self, keys: list[bytes], values: list[bytes], /) -> None: ...


class _Pairs(Protocol):
    def get(self, key: bytes, /) -> bytes | None: ...
    def discard(self, key: bytes, /) -> None: ...
    def __setitem__(self, key: bytes, value: bytes, /) -> None: ...


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


#: Stands for a default that was not given.
_MISSING: Any = object()


class Updating(Closing):
    """Also has the methods of a mapping that are several calls."""

    __slots__ = ()

    def pop(self: _Pairs, key: bytes, default: Any = _MISSING) -> Any:
        """Removes a pair and returns its value. If there is none, returns ``default``; KeyError without a default.

        It is two commands: another thread may store a value between them, which is removed as well.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive[b"a"] = b"1"
        ...     drive.pop(b"a"), drive.pop(b"a", None)
        (b'1', None)
        """
        value = self.get(key)
        if value is None:
            if default is _MISSING:
                raise KeyError(key)
            return default
        self.discard(key)
        return value

    def setdefault(self: _Pairs, key: bytes, default: bytes) -> bytes:
        """The value of a key; if there is none, ``default``, which is stored. It is two commands, as :meth:`pop`.

        >>> import kvdrive as kv
        >>> with kv.open() as drive:
        ...     drive.setdefault(b"a", b"1"), drive.setdefault(b"a", b"2")
        (b'1', b'1')
        """
        value = self.get(key)
        if value is None:
            self[key] = default
            return bytes(default)
        return value

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
