"""Times of Python's calls beside those of Rust's pipeline, in one run, measured by this machine's clock.

Build the package as released (``pip install ./bindings/python``), then ``python examples/speed.py``, on a machine with two
free cores. Each number is the least of some rounds, which take turns.
"""

import collections
import time

import kvdrive as kv
from kvdrive._native import RustCalls

COUNT, ROUNDS = 20_000, 7


def least(works):
    """The least time of each work, s; a round has all of them."""
    times = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - begin)
    return {name: min(each) for name, each in times.items()}


def measure(size):
    keys = [number.to_bytes(4, "big") for number in range(COUNT)]
    values = [b"\x07" * size] * COUNT
    in_buffer = (b"".join(keys), list(range(0, 4 * COUNT + 1, 4)))
    rust = RustCalls()
    with kv.open(media="ram") as drive:
        times = least({
            "store_many, Rust": lambda: rust.store_many(COUNT, size),
            "store_many, list": lambda: drive.store_many(keys, values),
            "retrieve_many, Rust": lambda: rust.retrieve_many(COUNT),
            "retrieve_many, list": lambda: drive.retrieve_many(keys),
            "retrieve_many, buffer": lambda: drive.retrieve_many(in_buffer),
            "get, Rust": lambda: rust.retrieve_each(COUNT // 4),
            # Each value is dropped, as Rust drops its own.
            "get, Python": lambda: collections.deque(map(drive.__getitem__, keys[: COUNT // 4]), maxlen=0),
        })
    for name, seconds in times.items():
        calls = COUNT // 4 if name.startswith("get") else COUNT
        base = times[name.partition(",")[0] + ", Rust"]
        print(f"{size:5} B  {name:22} {1e6 * seconds / calls:7.3f} us a call  {seconds / base:5.2f} times Rust's")


for size in (100, 4096):
    measure(size)
