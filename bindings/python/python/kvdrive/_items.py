"""Keys and values of bulk calls: lists, NumPy arrays, or a buffer with offsets."""

import array
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from ._frame import needed
from ._native import Buffer

if TYPE_CHECKING:
    import numpy

#: The items of bulk calls: a list of ``bytes`` and other objects with a C-contiguous buffer (``memoryview``, NumPy arrays of
#: any type; a tensor of torch as ``tensor.view(torch.uint8).numpy()``), which must not change until the call ends; a NumPy array, of ``uint8`` with a row for each item, or of ``bytes`` (``S``) that all fill their width;
#: or ``(buffer, offsets)``, where item ``i`` is from offset ``i`` to offset ``i + 1``.
Items = Any


def native(items: Items) -> Any:
    """The items as the native module takes them."""
    if hasattr(items, "__array_interface__"):
        return _of_array(items)
    if isinstance(items, tuple) and len(items) == 2 and not isinstance(items[1], (bytes, bytearray)):
        buffer, offsets = items
        return buffer, _int64(offsets)
    return items if isinstance(items, list) else list(items)


def count(items: Any) -> int:
    """Number of items that :func:`native` returned."""
    if isinstance(items, list):
        return len(items)
    buffer, ends = items
    return memoryview(buffer).nbytes // ends if isinstance(ends, int) else len(ends) - 1


def each(errors: str) -> bool:
    """Are all calls of a list carried out, and errors returned in their places?"""
    if errors not in ("raise", "return"):
        raise ValueError(f"errors: {errors!r}; allowed: 'raise', 'return'")
    return errors == "return"


def with_errors(results: list[Any], failed: Iterable[tuple[int, Any]]) -> list[Any]:
    """The results, with the error of each call that failed in its place."""
    for place, error in failed:
        results[place] = error
    return results


def is_array(items: Items) -> bool:
    """Are the items in one buffer, so that values are wanted in one, too?"""
    return hasattr(items, "__array_interface__") or isinstance(native(items), tuple)


def _int64(offsets: Iterable[int]) -> Any:
    if hasattr(offsets, "__array_interface__"):
        return needed("numpy", "offsets").ascontiguousarray(offsets, dtype="int64")
    made = array.array("q", offsets)
    if not made:
        raise ValueError("offsets: expected one more than items")
    return made


def _of_array(items: "numpy.ndarray[Any, Any]") -> Any:
    if items.ndim == 1 and items.dtype.kind == "S":
        return _of_texts(items)
    if items.ndim == 2 and items.dtype == "uint8":
        if items.shape[0] == 0:
            return []
        return needed("numpy", "arrays").ascontiguousarray(items).reshape(-1), items.shape[1]
    raise TypeError(f"an array of bytes (S) or of uint8 in rows, not of {items.dtype} in {items.ndim} dimensions")


def _of_texts(items: "numpy.ndarray[Any, Any]") -> Any:
    """NumPy drops the zero bytes at the end of an item of this kind, so only items that fill their width are known."""
    width, texts = items.dtype.itemsize, items.tolist()
    short = next((place for place, text in enumerate(texts) if len(text) < width), None)
    if short is not None:
        raise ValueError(
            f"item {short} has {len(texts[short])} bytes in an array of S{width}, which loses zero bytes at the end: pass a "
            f"list of bytes, or array.view('uint8').reshape(-1, {width}) for items of {width} bytes"
        )
    return texts


class Values(Sequence[bytes | None]):
    """Values that were retrieved, in one buffer: value ``i`` is ``data[offsets[i]:offsets[i + 1]]`` if ``found[i]``.

    ``values[i]`` is a copy as ``bytes``, None where there is no pair; ``data``, ``offsets`` and :meth:`to_numpy` copy nothing.
    """

    __slots__ = ("data", "found", "offsets")

    def __init__(self, data: Buffer | bytes, offsets: bytes, found: bytes) -> None:
        #: All values without gaps, read-only.
        self.data = memoryview(data)
        #: ``int64``, one more than values.
        self.offsets = memoryview(offsets).cast("q")
        #: One for each key: is there a pair?
        self.found = memoryview(found).cast("?")

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Self:
        """These values, copied into one buffer."""
        offsets = array.array("q", [0])
        offsets.extend(itertools.accumulate(len(value or b"") for value in values))
        found = bytes(value is not None for value in values)
        return cls(b"".join(value for value in values if value is not None), offsets.tobytes(), found)

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        return bytes(self.data[self.offsets[place] : self.offsets[place + 1]]) if self.found[place] else None

    def __iter__(self) -> Iterator[bytes | None]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Values) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Values: {sum(self.found)} of {len(self)} found, {len(self.data)} bytes>"

    def to_numpy(self) -> "numpy.ndarray[Any, Any]":
        """The values as ``uint8`` in rows, over the same buffer; ValueError if one is missing or their sizes differ. It
        needs NumPy.
        """
        numpy = needed("numpy", "to_numpy")
        sizes = {self.offsets[place + 1] - self.offsets[place] for place in range(len(self))}
        if not all(self.found) or len(sizes) > 1:
            raise ValueError(f"{self!r}: values of one size, none missing, are rows of an array; data and offsets have others")
        return numpy.frombuffer(self.data, numpy.uint8).reshape(len(self), -1)
