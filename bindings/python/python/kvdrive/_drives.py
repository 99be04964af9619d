"""Several drives that share the keys: each pair is on one of them."""

import concurrent.futures
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

from . import _native
from ._closing import Updating
from ._drive import Drive
from ._errors import DriveError
from ._items import Items, Values, each, is_array, native
from ._queue import Queue

S = TypeVar("S")
T = TypeVar("T")


class Drives(Updating):
    """Drives that share the keys by rendezvous hashing of their names: drives of the same names, in any order, find the same
    pairs again, and a further drive takes keys from all others. Drives on a network are named by their addresses, as
    ``kvdrive run --connect`` does, and others by their place among them. Calls on lists go to all drives at once. Pairs come
    drive by drive.

    Nothing is stored twice: calls for keys of a lost drive fail, and calls for keys of the others continue.
    """

    def __init__(self, drives: Sequence[Drive], names: Sequence[str] | None = None) -> None:
        if not drives:
            raise ValueError("no drive")
        #: The drives, in their order.
        self.drives = tuple(drives)
        self.names = tuple(map(str, range(len(drives))) if names is None else names)
        if len(self.names) != len(self.drives):
            raise ValueError(f"{len(self.drives)} drives and {len(self.names)} names")
        self._spread = _native.Spread(list(self.names))
        self._pool = concurrent.futures.ThreadPoolExecutor(len(drives), "kvdrive drives")

    def drive(self, key: bytes) -> Drive:
        """The drive that has this key."""
        return self.drives[self._spread.place(key)]

    def __getitem__(self, key: bytes) -> bytes:
        return self.drive(key)[key]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.drive(key)[key] = value

    def __delitem__(self, key: bytes) -> None:
        del self.drive(key)[key]

    def __contains__(self, key: bytes) -> bool:
        return key in self.drive(key)

    def __iter__(self) -> Iterator[bytes]:
        return self.keys()

    def get(self, key: bytes, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return self.drive(key).get(key, default)

    def discard(self, key: bytes) -> None:
        """Removes a pair with one command; an absent pair is no error."""
        self.drive(key).discard(key)

    def keys(self, prefix: bytes = b"") -> Iterator[bytes]:
        """The keys that begin with ``prefix``."""
        return itertools.chain.from_iterable(drive.keys(prefix) for drive in self.drives)

    def values(self, prefix: bytes = b"") -> Iterator[bytes]:
        """The values of these keys."""
        return itertools.chain.from_iterable(drive.values(prefix) for drive in self.drives)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """These keys with their values."""
        return itertools.chain.from_iterable(drive.items(prefix) for drive in self.drives)

    def count(self, prefix: bytes = b"") -> int:
        """Number of keys that begin with ``prefix``."""
        return sum(self._on_all(lambda drive: drive.count(prefix)))

    def retrieve_part(self, key: bytes, at: int, size: int) -> bytes:
        """As :meth:`Drive.retrieve_part`."""
        return self.drive(key).retrieve_part(key, at, size)

    def size(self, key: bytes) -> int:
        """Size of a value in bytes; KeyError if there is no pair."""
        return self.drive(key).size(key)

    def namespace(self) -> list[dict[str, Any]]:
        """The namespace of each drive."""
        return self._on_all(lambda drive: drive.namespace())

    def store_many(self, keys: Items, values: Items, *, errors: str = "raise") -> list[Any] | None:
        """Stores value ``i`` under key ``i``, as :meth:`Drive.store_many`. ``error.index`` is the place in the whole lists."""
        keys, values = _list(keys), _list(values)
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")

        def store(drive: Drive, part: list[int]) -> Any:
            return drive.store_many([keys[i] for i in part], [values[i] for i in part], errors=errors)

        ended = self._together(keys, store, errors)
        return ended if each(errors) else None

    def retrieve_many_into(self, keys: Items, buffers: Sequence[Any], *, errors: str = "raise") -> list[Any]:
        """Writes value ``i`` to the front of buffer ``i``, as :meth:`Drive.retrieve_many_into`."""
        keys = _list(keys)
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys and {len(buffers)} buffers")

        def retrieve(drive: Drive, part: list[int]) -> list[Any]:
            return drive.retrieve_many_into([keys[i] for i in part], [buffers[i] for i in part], errors=errors)

        return self._together(keys, retrieve, errors)

    def retrieve_into(self, key: bytes, buffer: Any) -> int:
        """As :meth:`Drive.retrieve_into`."""
        return self.drive(key).retrieve_into(key, buffer)

    def exist_many(self, keys: Items, *, errors: str = "raise") -> list[Any]:
        """For each key: is there a pair?"""
        keys = _list(keys)
        return self._together(keys, lambda drive, part: drive.exist_many([keys[i] for i in part], errors=errors), errors)

    def delete_many(self, keys: Items, *, errors: str = "raise") -> list[Any]:
        """Removes pairs; returns for each key whether there was one."""
        keys = _list(keys)
        return self._together(keys, lambda drive, part: drive.delete_many([keys[i] for i in part], errors=errors), errors)

    def queue(self, threads: int = 1) -> Queue:
        """Calls on lists that are submitted now and collected later (:class:`Queue`)."""
        return Queue(self, threads)

    @overload
    def retrieve_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...
    @overload
    def retrieve_many(self, keys: Items) -> list[bytes | None] | Values: ...
    def retrieve_many(self, keys: Items) -> list[bytes | None] | Values:
        """The values of ``keys``, as :meth:`Drive.retrieve_many`: a list, None where there is no pair; for keys in an array or
        a buffer :class:`Values` over one buffer.

        >>> import kvdrive as kv
        >>> with kv.open(["cosmos-plus"] * 2) as drives:
        ...     drives.store_many([b"a", b"b"], [b"1", b"22"])
        ...     drives.retrieve_many([b"b", b"none"]), drives.retrieve_many((b"ab", [0, 1, 2]))
        ([b'22', None], <Values: 2 of 2 found, 3 bytes>)
        """
        of_each = _native.listed(native(keys))
        found: list[bytes | None] = [None] * len(of_each)
        parts = self._in_parts(of_each, lambda drive, part: drive.retrieve_many([of_each[i] for i in part]))
        for part, values in parts:
            for place, value in zip(part, values, strict=True):
                found[place] = value
        return Values.of(found) if is_array(keys) else found

    def _together(self, keys: list[bytes], call: Callable[[Drive, list[int]], Any], errors: str) -> list[Any]:
        """The results of a call on lists in the order of all keys. With ``errors="return"`` those of a drive that is lost
        have its error.
        """
        all_results: list[Any] = [None] * len(keys)

        def carry_out(drive: Drive, part: list[int]) -> Any:
            try:
                return call(drive, part)
            except DriveError as error:
                if each(errors):
                    return [error] * len(part)
                raise

        for part, results in self._in_parts(keys, carry_out):
            for place, result in zip(part, results or [None] * len(part), strict=True):
                all_results[place] = result
        return all_results

    def _in_parts(self, keys: list[bytes], call: Callable[[Drive, list[int]], T]) -> list[tuple[list[int], T]]:
        parts: list[list[int]] = [[] for _ in self.drives]
        for index, place in enumerate(self._spread.places(keys)):
            parts[place].append(index)

        def carry_out(number: int) -> tuple[list[int], T]:
            part = parts[number]
            try:
                return part, call(self.drives[number], part)
            except Exception as error:
                if getattr(error, "index", None) is not None:
                    error.index = part[error.index]  # type: ignore[attr-defined]
                error.add_note(f"drive {self.names[number]}")
                raise

        # A drive that gets no call may be lost.
        return self._each(carry_out, [number for number, part in enumerate(parts) if part])

    def _on_all(self, call: Callable[[Drive], T]) -> list[T]:
        return self._each(call, self.drives)

    def _each(self, call: Callable[[S], T], of: Iterable[S]) -> list[T]:
        """The results of calls that run side by side; if one fails, it raises after all have ended."""
        calls = [self._pool.submit(call, one) for one in of]
        concurrent.futures.wait(calls)
        return [ended.result() for ended in calls]

    def inject(self, fault: str, *, key: bytes, **rule: Any) -> list[str]:
        """Adds a fault rule for a key to the drive that has it, as :meth:`Drive.inject`; rules of other kinds go to one of
        :attr:`drives`.
        """
        return self.drive(key).inject(fault, key=key, **rule)

    def power_cut(self, *, torn: bool = False) -> None:
        """Cuts the power of all drives, one after the other."""
        for drive in self.drives:
            drive.power_cut(torn=torn)

    def power_on(self) -> None:
        """Powers all drives on."""
        self._on_all(lambda drive: drive.power_on())

    def numbers(self) -> list[dict[str, dict[str, Any]]]:
        """The counters of each drive since power-on."""
        return self._on_all(lambda drive: drive.numbers())

    def close(self) -> list[dict[str, Any] | None]:
        """Ends all drives, and returns how each ended. If a drive was lost, it raises when all have ended."""
        ended: list[dict[str, Any] | None] = []
        failures: list[Exception] = []
        for name, drive in zip(self.names, self.drives, strict=True):
            try:
                ended.append(drive.close())
            except Exception as error:
                error.add_note(f"drive {name}")
                failures.append(error)
        self._pool.shutdown()
        if failures:
            raise failures[0]
        return ended


def _list(items: Items) -> list[Any]:
    """Items as a list, in which buffers are not copied."""
    items = native(items)
    return items if isinstance(items, list) else _native.listed(items)
