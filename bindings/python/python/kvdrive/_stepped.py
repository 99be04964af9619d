"""Drives inside a simulator: the caller moves the time of the model."""

import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import _native
from ._drive import rules_of
from ._errors import DriveError
from ._items import Items, count, native
from ._native import Image
from ._settings import arguments, profiles

C = TypeVar("C", bound=Callable[..., Any])


def _here(call: C) -> C:
    """A call that another thread may not make."""

    @functools.wraps(call)
    def checked(self: "Stepped", *given: Any, **named: Any) -> Any:
        if threading.get_ident() != self._thread:
            raise DriveError(f"{call.__name__}: a stepped drive belongs to the thread that made it", call=call.__name__)
        return call(self, *given, **named)

    return checked  # type: ignore[return-value]


class Stepped(_native.Stepped):
    """A drive whose model time stands still between calls. :func:`kvdrive.stepped` makes one.

    Times are whole ns since the drive was ready. The host is the modelled one of :func:`kvdrive.run`: ``depth`` commands
    are under way at once, further ones wait. The same calls give the same results, to the last ns. It belongs to the thread
    that made it.
    """

    __slots__ = ("_thread",)

    def __init__(self, *_: Any) -> None:
        self._thread = threading.get_ident()

    @_here
    def submit(self, at_ns: int, op: str, key: bytes, value: Any = None, *, keep: bool = False) -> int:
        """A command arrives at ``at_ns``; returns its number: 0, 1, 2, ... ``op`` is ``"store"``, ``"retrieve"``, ``"delete"``
        or ``"exist"``. The value of a store is a size in bytes, which takes no memory, or the bytes. With ``keep`` the value
        of a retrieve can be had from :meth:`take` when it has ended.

        Raises :class:`DriveError` for a time before the present one, :class:`SizeError`; nothing has changed then.
        """
        return self.submit_one(at_ns, op, key, value, keep)

    @_here
    def submit_many(
        self, at_ns: int | Sequence[int], op: str, keys: Items, values: Any = None, *, keep: bool = False
    ) -> range:
        """Commands of one kind arrive; returns their numbers. ``at_ns`` is one time, or one for each key (a list or an array
        of ``int64``); ``values`` of stores is one size, a size for each key, or values as in ``Drive.store_many``.

        Raises for the first command that cannot be submitted, with its place in ``error.index``; those before it are
        submitted.
        """
        keys = native(keys)
        sizes = _are_sizes(values)
        given = values if values is None or sizes else native(values)
        first = self.submit_list(_times(at_ns), op, keys, _times(given) if sizes else given, sizes, keep)
        return range(first, first + count(keys))

    @_here
    def advance(self, until_ns: int) -> list[tuple[int, int, int]]:
        """Moves the time to ``until_ns``; returns ``(number, ended_at_ns, status)`` of each command that has ended, in the
        order of their ends. Status 0 is success, 0x87 an absent key.
        """
        return self.advance_to(until_ns, False)

    @_here
    def advance_to_next(self, until_ns: int) -> list[tuple[int, int, int]]:
        """As :meth:`advance`, but the time stops where the first command ends."""
        return self.advance_to(until_ns, True)

    @property
    def now_ns(self) -> int:
        """The present time."""
        return self.now

    @property
    def next_event_ns(self) -> int | None:
        """When something happens next in the drive: an arrival, or a step of a command. None: nothing will."""
        return self.next_event

    @property
    def under_way(self) -> int:
        """Commands that were submitted and have not ended."""
        return self.not_ended

    @_here
    def load(self, keys: Items, value_bytes: int) -> None:
        """Stores a pair of this size under each key in no time, as if it had been there before."""
        self.load_items(native(keys), value_bytes)

    @_here
    def fill(self, share: float, value_bytes: int) -> int:
        """Loads pairs until ``share`` (0 to 1) of the capacity is in use; returns their number. Their keys have 8 bytes: 0, 1,
        2, ... big-endian.
        """
        return self.fill_to(share, value_bytes)

    @_here
    def image(self) -> Image:
        """The drive as it would be found after a power cut now, for ``kv.stepped(..., image=...)`` of the same settings, any
        number of times; ``save(path)`` and ``Image.read(path)`` keep it.
        """
        return self.make_image()

    @_here
    def inject(self, fault: str, **rule: Any) -> list[str]:
        """Adds a fault rule, as ``Drive.inject``. Rules see commands in model time."""
        return self.inject_rules(rules_of(fault, rule))

    @_here
    def clear_faults(self, name: str | None = None) -> None:
        """Removes the rule of this name, or all."""
        self.clear_rules(name)

    @_here
    def namespace(self) -> dict[str, Any]:
        """Capacity, use and limits, as ``Drive.namespace``; takes no time."""
        return json.loads(self.namespace_json())

    @_here
    def numbers(self) -> dict[str, Any]:
        """The drive's counters since power-on, by section, under the names of docs/counters.md."""
        return json.loads(self.numbers_json())


def stepped(profile: str | None = None, *, image: Image | bytes | str | os.PathLike[str] | None = None, **settings: Any) -> Stepped:
    """A drive inside a simulator: commands arrive at times of the caller's, and its time moves when the caller says so.

    Profile and settings are those of :func:`kvdrive.open`, and keys of the modelled host. ``image`` is one of
    :meth:`Stepped.image`, its bytes, or the path of its file.

    >>> import kvdrive as kv
    >>> drive = kv.stepped("pm983", capacity="1GiB", depth=32)
    >>> pairs = drive.fill(0.5, 4096)
    >>> drive.submit(1000, "retrieve", (7).to_bytes(8, "big"))
    0
    >>> [(number, ended_at_ns, status)] = drive.advance(1_000_000)
    >>> number, status, drive.now_ns, 50_000 < ended_at_ns < 200_000
    (0, 0, 1000000, True)

    Raises :class:`ConfigurationError` for an invalid setting, and :class:`DriveError` for an image of another drive.
    """
    if isinstance(image, (bytes, bytearray, memoryview)):
        image = Image.from_bytes(image)
    elif image is not None and not isinstance(image, Image):
        image = Image.read(image)
    drive = Stepped(profiles(profile), arguments(settings), image)
    if drive.capacity_note:
        logging.getLogger("kvdrive").warning("%s", drive.capacity_note)
    return drive


def _are_sizes(values: Any) -> bool:
    """Are these sizes, and not values?"""
    if hasattr(values, "__array_interface__"):
        return values.ndim == 1 and values.dtype.kind in "iu"
    return isinstance(values, int) or (isinstance(values, (list, range)) and all(isinstance(one, int) for one in values[:1]))


def _times(given: Any) -> Any:
    """One number, or numbers as the native module takes them."""
    if hasattr(given, "__array_interface__"):
        return given.astype("int64") if given.ndim else int(given)
    return given if isinstance(given, int) else list(given)
