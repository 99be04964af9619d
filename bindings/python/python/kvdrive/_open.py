"""Powers drives on, or connects to them."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, overload

from ._drive import Drive
from ._drives import Drives
from ._settings import arguments, profiles


@overload
def open(profile: str | None = None, *, pace: str | None = None, **settings: Any) -> Drive: ...
@overload
def open(profile: Sequence[str], *, pace: str | None = None, **settings: Any) -> Drives: ...
def open(
    profile: str | Sequence[str] | None = None, *, pace: str | None = None, **settings: Any
) -> Drive | Drives:
    """Powers a drive on; or connects to one on a network, ``tcp://HOST:PORT``, or behind a device of Linux,
    ``/dev/ngXnY``; or to several that share the keys (:class:`Drives`).

    ``profile`` is one of ``kvdrive list profiles``; without one the drive is that of its engine, ``cosmos-plus`` for
    engine ``lsm``. With ``pace="model"`` calls take as long as on the modelled drive; otherwise they are as fast as this
    machine. With ``media="file", path="d.img"`` the drive is stored in a file, and can be opened again.

    ``capacity="8GiB"`` is its size, rounded to whole blocks of each die. A drive in memory without it takes at most a
    quarter of the memory that this program may use, and logger ``kvdrive`` says so.

    >>> import kvdrive as kv
    >>> with kv.open(media="ram", packing="backfill", **{"flash.channels": 4}) as drive:
    ...     drive.store_many([b"a", b"b"], [b"1", b"2"])
    ...     drive.retrieve_many([b"b", b"none"])
    [b'2', None]

    Raises :class:`ConfigurationError` for an invalid setting, and :class:`DriveError` for a drive that does not
    come up: its image is another drive's, is damaged, or is in use.
    """
    if isinstance(profile, (list, tuple)):
        is_elsewhere = all(one.startswith(("tcp://", "/dev/")) for one in profile)
        with contextlib.ExitStack() as opened:
            drives = [opened.enter_context(open(one, pace=pace, **settings)) for one in profile]
            made = Drives(drives, profile if is_elsewhere else None)
            # From here on `made` closes them.
            opened.pop_all()
            return made
    drive = Drive(profiles(profile), arguments(settings), pace)
    if drive.capacity_note:
        logging.getLogger("kvdrive").warning("%s", drive.capacity_note)
    return drive
