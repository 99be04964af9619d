"""A drive for ``asyncio``: the same calls, awaited. They wait on threads, without the interpreter's lock."""

import asyncio
import concurrent.futures
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from ._drive import Drive
from ._drives import Drives
from ._items import Items, Values
from ._open import open
from ._saker import Saker

T = TypeVar("T")

#: Pairs that an iterator fetches at a time.
PAIRS_AT_ONCE = 256


class Awaited:
    """Calls that wait on threads of their own, which end with this object."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *arguments)

    async def close(self) -> Any:
        """Ends the work; once more is no error."""
        raise NotImplementedError


class AsyncDrive(Awaited):
    """A drive whose calls are awaited. At most ``depth`` of them are under way at once; others wait.

    >>> async def work():
    ...     async with await open_async() as drive:
    ...         await asyncio.gather(*(drive.store(b"%d" % number, b"value") for number in range(10)))
    ...         return await drive.get(b"7"), [key async for key, _ in drive.items(b"3")]
    >>> asyncio.run(work())
    (b'value', [b'3'])
    """

    def __init__(self, drive: Drive | Drives, depth: int = 32) -> None:
        #: The drive, for calls that do not wait.
        self.drive = drive
        super().__init__(depth, "kvdrive async")

    async def get(self, key: bytes, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return await self._call(self.drive.get, key, default)

    async def store(self, key: bytes, value: bytes) -> None:
        """Stores a value."""
        await self._call(self.drive.__setitem__, key, value)

    async def retrieve_part(self, key: bytes, at: int, size: int) -> bytes:
        """As :meth:`Drive.retrieve_part`."""
        return await self._call(self.drive.retrieve_part, key, at, size)

    async def count(self, prefix: bytes = b"") -> int:
        """Number of keys that begin with ``prefix``."""
        return await self._call(self.drive.count, prefix)

    async def delete(self, key: bytes) -> None:
        """Removes a pair; KeyError if there is none."""
        await self._call(self.drive.__delitem__, key)

    async def discard(self, key: bytes) -> None:
        """Removes a pair if there is one."""
        await self._call(self.drive.discard, key)

    async def exist(self, key: bytes) -> bool:
        """Is there a pair?"""
        return await self._call(self.drive.__contains__, key)

    async def store_many(self, keys: Items, values: Items) -> None:
        """As :meth:`Drive.store_many`."""
        await self._call(self.drive.store_many, keys, values)

    async def retrieve_into(self, key: bytes, buffer: Any) -> int:
        """As :meth:`Drive.retrieve_into`."""
        return await self._call(self.drive.retrieve_into, key, buffer)

    async def retrieve_many_into(self, keys: Items, buffers: Sequence[Any]) -> list[Any]:
        """As :meth:`Drive.retrieve_many_into`."""
        return await self._call(self.drive.retrieve_many_into, keys, buffers)

    async def exist_many(self, keys: Items) -> list[Any]:
        """As :meth:`Drive.exist_many`."""
        return await self._call(self.drive.exist_many, keys)

    async def delete_many(self, keys: Items) -> list[Any]:
        """As :meth:`Drive.delete_many`."""
        return await self._call(self.drive.delete_many, keys)

    async def retrieve_many(self, keys: Items) -> "list[bytes | None] | Values":
        """As :meth:`Drive.retrieve_many`."""
        return await self._call(self.drive.retrieve_many, keys)

    def items(self, prefix: bytes = b"") -> AsyncIterator[tuple[bytes, bytes]]:
        """The pairs whose keys begin with ``prefix``."""
        return self._each(self.drive.items, prefix)

    def keys(self, prefix: bytes = b"") -> AsyncIterator[bytes]:
        """These keys, without their values."""
        return self._each(self.drive.keys, prefix)

    async def _each(self, call: Callable[[bytes], Any], prefix: bytes) -> AsyncIterator[Any]:
        found = await self._call(call, prefix)
        while some := await self._call(_some, found):
            for one in some:
                yield one

    async def saker(self, **settings: Any) -> "AsyncSaker":
        """SAKER in front of the drive, as :meth:`Drive.saker`.

        >>> async def work():
        ...     async with await open_async() as drive, await drive.saker(batch=32) as saker:
        ...         await asyncio.gather(*(saker.store(b"%d" % number, b"small") for number in range(64)))
        ...         await saker.sync()
        ...         return await drive.get(b"63"), saker.numbers()["batches"]
        >>> asyncio.run(work())
        (b'small', 2)
        """
        return AsyncSaker(await self._call(lambda: self.drive.saker(**settings)))

    async def close(self) -> Any:
        """Ends the drive, as :meth:`Drive.close`."""
        return await self._call(self.drive.close)


class AsyncSaker(Awaited):
    """SAKER whose calls are awaited. They are carried out one after the other, in the order in which they were made, so
    :meth:`sync` is for all earlier writes.
    """

    def __init__(self, saker: Saker) -> None:
        #: SAKER itself, for other threads.
        self.saker = saker
        super().__init__(1, "kvdrive async saker")

    async def get(self, key: bytes, default: Any = None) -> Any:
        """The value of a key, pending or not; or ``default``."""
        return await self._call(self.saker.get, key, default)

    async def store(self, key: bytes, value: bytes) -> None:
        """Stores a value; volatile until :meth:`sync`."""
        await self._call(self.saker.__setitem__, key, value)

    async def discard(self, key: bytes) -> None:
        """Removes a pair; an absent pair is no error."""
        await self._call(self.saker.discard, key)

    async def exist(self, key: bytes) -> bool:
        """Is there a pair, pending or not?"""
        return await self._call(self.saker.__contains__, key)

    async def store_many(self, keys: list[bytes], values: list[bytes]) -> None:
        """Stores value ``i`` under key ``i``."""
        await self._call(self.saker.store_many, keys, values)

    async def sync(self) -> None:
        """Waits until all earlier writes are durable; raises for those that have failed."""
        await self._call(self.saker.sync)

    def numbers(self) -> dict[str, Any]:
        """As :meth:`Saker.numbers`."""
        return self.saker.numbers()

    async def close(self) -> None:
        """Makes the writes durable; after that the drive can have another SAKER."""
        await self._call(self.saker.close)


def _some(pairs: Any) -> list[Any]:
    return list(itertools.islice(pairs, PAIRS_AT_ONCE))


async def open_async(profile: Any = None, *, depth: int = 32, **settings: Any) -> AsyncDrive:
    """As :func:`open`, awaited."""
    drive = await asyncio.to_thread(lambda: open(profile, **settings))
    return AsyncDrive(drive, depth)
