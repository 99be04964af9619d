"""For tests of software that stores on a drive: pytest's fixture ``kvdrive_drive``, a drive that fails on command.

pytest finds it where this package is installed::

    def test_a_lost_block_is_computed_again(kvdrive_drive):
        cache = MyCache(kvdrive_drive.spec)          # {"drive": "shared:..."}: for kvdrive's plugins
        cache.put("block", data)
        kvdrive_drive.read_errors()
        assert cache.get("block") is None

A program in another process is tested with ``kvdrive serve`` and ``kvdrive ctl inject``.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ._drive import Drive
from ._errors import DriveError
from ._objects import share
from ._open import open as open_drive

#: A lost command is never answered while a test runs.
NEVER_NS = 3_600_000_000_000

_numbers = itertools.count()


class FailingDrive:
    """A drive in memory at the pace of its profile, and the ways in which it can fail. Several may be on at once;
    :meth:`recover` ends all of them.

    ``rule`` are keys of a fault rule: ``times=2``, ``nth=3``, ``every=7``, ``key=kvdrive.key_of(name)``.
    """

    def __init__(self, **settings: Any) -> None:
        self.drive: Drive = open_drive(**{"profile": "nvmevirt-970pro", "pace": "model", "transfer": "prp", **settings})
        self._name = f"kvdrive_drive {next(_numbers)}"
        share(self._name, self.drive)

    @property
    def spec(self) -> dict[str, Any]:
        """Parameters by which a plugin of kvdrive in this process uses this drive."""
        return {"drive": f"shared:{self._name}"}

    def read_errors(self, **rule: Any) -> None:
        """Values cannot be read: 88h, unrecovered error."""
        self.drive.inject("status", opcode="retrieve", status="88h", **rule)

    def full(self, **rule: Any) -> None:
        """Stores are refused: 81h, capacity exceeded."""
        self.drive.inject("status", opcode="store", status="81h", **rule)

    def read_only(self) -> None:
        """Stores and deletes are refused: 20h, namespace is write protected."""
        self.drive.inject("write-protect")

    def slow(self, seconds: float, **rule: Any) -> None:
        """Every command takes so much longer."""
        self.drive.inject("delay", delay_ns=int(seconds * 1e9), **rule)

    def wedged(self, **rule: Any) -> None:
        """Commands are never answered, until the power is cut."""
        self.drive.inject("lose", timeout_ns=NEVER_NS, **rule)

    def cut_power_in_store(self, nth: int = 1, *, at: str = "command") -> None:
        """The power is cut when the drive takes the ``nth`` store from now on, or, with ``at="program"``, while it programs
        the ``nth`` flash page, which may be left torn. That call and later ones fail until :meth:`recover`.
        """
        self.drive.inject("power-cut", at=at, nth=nth, **({"opcode": "store"} if at == "command" else {}))

    def recover(self) -> None:
        """Cuts the power, which also ends wedged commands, and powers the drive on without faults. Acknowledged values are
        there.
        """
        if self.drive.has_power:
            self.drive.power_cut(torn=True)
        self.drive.power_on()
        self.drive.clear_faults()

    def close(self) -> None:
        """Ends the drive."""
        share(self._name, None)
        # Wedged commands would keep it from ending.
        with contextlib.suppress(DriveError):
            self.drive.power_cut()
        self.drive.close()


@pytest.fixture
def kvdrive_drive() -> Iterator[FailingDrive]:
    """A drive of its own for each test: :class:`FailingDrive`."""
    drive = FailingDrive()
    yield drive
    drive.close()
