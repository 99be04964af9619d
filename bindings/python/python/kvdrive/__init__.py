"""A key-value SSD in software: drives in this process, and studies in model time.

A drive is a mapping of ``bytes`` to ``bytes``:

>>> import kvdrive as kv
>>> with kv.open(profile="cosmos-plus") as drive:
...     drive[b"user42"] = b"some value"
...     drive[b"user42"]
b'some value'

A run is a workload on a drive in model time. The same settings and seed give the same report as command
``kvdrive run``, to the last digit:

>>> report = kv.run(workload="fillseq", ops=1000, seed=1)
>>> report.ops.store
1000

Settings are keyword arguments: options of the command (``transfer="prp"``, ``value_size=128``), and every key of the
configuration (``**{"flash.channels": 8}``). ``kvdrive list`` and ``kvdrive config`` show them.
"""

from ._aio import AsyncDrive, AsyncSaker, open_async
from ._drive import Drive
from ._drives import Drives
from ._errors import ConfigurationError, DriveError, DriveOff, SizeError
from ._items import Values
from ._native import REVISION as revision
from ._native import VERSION as __version__
from ._native import Image
from ._objects import Objects, share
from ._open import open
from ._queue import Finished, Queue
from ._report import Comparison, Part, Report, compare, run
from ._saker import Saker
from ._stepped import Stepped, stepped
from ._study import Claims, Figure, claims, figure, figures
from ._sweep import Sweep, run_point, sweep

__all__ = [
    "AsyncDrive",
    "AsyncSaker",
    "Claims",
    "Comparison",
    "ConfigurationError",
    "Drive",
    "DriveError",
    "DriveOff",
    "Drives",
    "Figure",
    "Finished",
    "Image",
    "Objects",
    "Part",
    "Queue",
    "Report",
    "Saker",
    "SizeError",
    "Stepped",
    "Sweep",
    "Values",
    "claims",
    "compare",
    "figure",
    "figures",
    "open",
    "open_async",
    "revision",
    "run",
    "run_point",
    "share",
    "stepped",
    "sweep",
]
