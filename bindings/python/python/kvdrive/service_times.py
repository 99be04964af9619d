"""Tables of service times for simulators: latencies and bandwidth of a drive by value size, depth, mix and fill.

``python -m kvdrive.service_times pm983 --json pm983.json --csv pm983.csv`` makes one; ``--compare`` prints it beside a
latency and a bandwidth. The cells are those of ``service_times.toml`` in this package, or of ``--grid FILE``. Everything is
computed in model time: the same call gives the same file. ``service_times.schema.json`` describes it.
"""

import argparse
import csv
import itertools
import json
import pathlib
import random
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._errors import DriveError
from ._native import Image
from ._native import REVISION as revision
from ._stepped import Stepped, stepped

#: Columns of a row, and the kind of each number.
KINDS = {
    "size_bytes": "given",
    "depth": "given",
    "read_share": "given",
    "fill": "given",
    "direction": "given",
    "count": "counted",
    "errors": "counted",
    "bytes": "counted",
    "span_ns": "modelled",
    "bandwidth_bytes_per_s": "modelled",
    "mean_ns": "modelled",
    "p50_ns": "modelled",
    "p99_ns": "modelled",
    "p999_ns": "modelled",
}

#: How numbers are computed, for people who read the file.
HOW = (
    "closed loop: `depth` commands are under way, and the next one is submitted when one ends; keys are uniform over the pairs",
    "latency: from submission to the application's answer, host and link included; from commands that succeeded",
    "percentiles: nearest rank over all of these commands; null where fewer than one command would lie above",
    "bandwidth: bytes of values of the direction, divided by the span from the first submission to the last answer",
    "fill: this share of the pairs of this size that fit was loaded in no time; before stores, pairs at random again",
)

_CAPACITY_EXCEEDED = 0x81
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: int | str) -> int:
    """A size in bytes: a number, or a text with KiB, MiB or GiB."""
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", str(text))
    if not found or found[2] not in _UNITS:
        raise ValueError(f"{text!r}: expected bytes, or a number with KiB, MiB or GiB")
    return int(found[1]) * _UNITS[found[2]]


def grid(path: str | pathlib.Path | None = None) -> dict[str, Any]:
    """The cells of a file, by default of ``service_times.toml`` in this package."""
    path = pathlib.Path(path) if path else pathlib.Path(__file__).with_suffix(".toml")
    described = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {"capacity", "overwritten", "bytes", "commands", "grid"}
    lists = {"sizes", "depths", "read_shares", "fills"}
    for name in described.keys() ^ known:
        raise ValueError(f"{path}: {name}: " + ("missing" if name in known else f"unknown; there are {', '.join(sorted(known))}"))
    for number, block in enumerate(described["grid"], 1):
        for name in block.keys() ^ lists:
            problem = "missing" if name in lists else f"unknown; there are {', '.join(sorted(lists))}"
            raise ValueError(f"{path}: grid {number}: {name}: {problem}")
    return described


def cells(described: dict[str, Any]) -> list[tuple[int, float, float, int]]:
    """Size, fill, share of reads and depth of every cell; those of one load follow each other."""
    of_block = (
        itertools.product(map(size, block["sizes"]), block["fills"], block["read_shares"], block["depths"])
        for block in described["grid"]
    )
    # Those with stores come after the others, on the same drive.
    return sorted(set(itertools.chain.from_iterable(of_block)), key=lambda cell: (*cell[:2], cell[2] < 1, *cell[2:]))


def service_times(
    profile: str,
    described: dict[str, Any] | None = None,
    *,
    seed: int = 1,
    tell: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> dict[str, Any]:
    """The table of a drive: ``rows``, a dictionary for each cell and direction, and what they are.

    ``described`` has the cells (:func:`grid`); settings are those of :func:`kvdrive.stepped`, and override its capacity.
    """
    described = described or grid()
    settings = {"capacity": described["capacity"], **settings}
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    fits: dict[int, int] = {}
    for (value_bytes, fill), of_fill in itertools.groupby(cells(described), lambda cell: cell[:2]):
        loaded = stepped(profile, **{**settings, "depth": 1})
        if value_bytes not in fits:
            fits[value_bytes] = _most(stepped(profile, **{**settings, "depth": 1}), value_bytes)
        pairs = int(fits[value_bytes] * fill)
        loaded.load([_key(number) for number in range(pairs)], value_bytes)
        capacity = loaded.namespace()["capacity_bytes"]
        about = {"capacity_bytes": capacity, "time_sources": loaded.numbers()["sources"]}
        for has_stores, group in itertools.groupby(of_fill, lambda cell: cell[2] < 1):
            if has_stores:
                draw = random.Random(f"{seed} again")
                again = int(capacity * described["overwritten"] / value_bytes)
                loaded.load([_key(draw.randrange(pairs)) for _ in range(again)] if pairs else [], value_bytes)
            image = loaded.image()
            for cell in group:
                rows += _cell(profile, settings, image, cell, pairs, described, seed)
                tell(f"{profile}: {_words(cell)}")
    return {
        "format": "kvdrive service times",
        "version": 1,
        "profile": profile,
        "settings": {name: str(value) for name, value in settings.items()},
        "revision": revision,
        **about,
        "how": list(HOW),
        "kinds": KINDS,
        "rows": rows,
    }


def _most(drive: Stepped, value_bytes: int) -> int:
    """How many pairs of this size fit: an engine has more on flash than values."""
    try:
        return drive.fill(1, value_bytes)
    except DriveError as error:
        if error.status != _CAPACITY_EXCEEDED or error.key is None:
            raise
        return int.from_bytes(error.key, "big")


def _words(cell: tuple[int, float, float, int]) -> str:
    value_bytes, fill, read_share, depth = cell
    return f"{value_bytes} B, fill {fill:.0%}, {read_share:.0%} reads, depth {depth}"


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _cell(
    profile: str,
    settings: dict[str, Any],
    image: Image,
    cell: tuple[int, float, float, int],
    pairs: int,
    described: dict[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    value_bytes, fill, read_share, depth = cell
    if not pairs:
        raise ValueError(f"{_words(cell)}: not one value fits into this share of {settings['capacity']}")
    least, most = described["commands"]
    count = max(least, min(most, size(described["bytes"]) // value_bytes), depth)
    drive = stepped(profile, image=image, **{"queue_entries": 256, **settings, "depth": depth})
    latencies, errors = _closed_loop(drive, cell, pairs, count, seed)
    span = drive.now_ns
    given = {"size_bytes": value_bytes, "depth": depth, "read_share": read_share, "fill": fill}
    directions = [name for name, share in (("read", read_share), ("store", 1 - read_share)) if share > 0]
    return [
        {**given, "direction": name, **_summary(sorted(latencies[name]), errors[name], value_bytes, span)} for name in directions
    ]


def _closed_loop(
    drive: Stepped, cell: tuple[int, float, float, int], pairs: int, count: int, seed: int
) -> tuple[dict[str, list[int]], dict[str, int]]:
    value_bytes, _, read_share, depth = cell
    draw = random.Random(f"{seed} {cell}")
    latencies: dict[str, list[int]] = {"read": [], "store": []}
    errors, begun = {"read": 0, "store": 0}, {}

    def submit() -> None:
        is_read, key = draw.random() < read_share, _key(draw.randrange(pairs))
        number = drive.submit(drive.now_ns, "retrieve", key) if is_read else drive.submit(drive.now_ns, "store", key, value_bytes)
        begun[number] = ("read" if is_read else "store", drive.now_ns)

    for _ in range(depth):
        submit()
    left = count - depth
    while begun:
        for number, ended_at_ns, status in drive.advance_to_next(1 << 62):
            direction, began = begun.pop(number)
            if status:
                errors[direction] += 1
            else:
                latencies[direction].append(ended_at_ns - began)
            if left > 0:
                submit()
                left -= 1
    return latencies, errors


def _summary(latencies: Sequence[int], errors: int, value_bytes: int, span: int) -> dict[str, Any]:
    count = len(latencies)

    def rank(per_mille: int) -> int | None:
        above = count * (1000 - per_mille)
        return latencies[-(-count * per_mille // 1000) - 1] if above >= 1000 or (per_mille == 500 and count) else None

    return {
        "count": count,
        "errors": errors,
        "bytes": count * value_bytes,
        "span_ns": span,
        "bandwidth_bytes_per_s": count * value_bytes * 1e9 / span if span else None,
        "mean_ns": sum(latencies) / count if count else None,
        "p50_ns": rank(500),
        "p99_ns": rank(990),
        "p999_ns": rank(999),
    }


def write_csv(table: dict[str, Any], file: Any) -> None:
    """The rows as CSV, an empty field for null."""
    writer = csv.DictWriter(file, list(KINDS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table["rows"])


def comparison(table: dict[str, Any], latency_ns: float = 100_000, bytes_per_s: float = 10e9) -> Iterable[dict[str, Any]]:
    """For each row its mean latency beside ``latency + bytes / bandwidth``, and their ratio; and the ratio of the
    bandwidths, if as many commands as its depth were under way without a wait.
    """
    for row in table["rows"]:
        assumed = latency_ns + row["size_bytes"] * 1e9 / bytes_per_s
        most = min(bytes_per_s, row["depth"] * row["size_bytes"] * 1e9 / assumed)
        if row["count"]:
            yield {
                **row,
                "assumed_ns": assumed,
                "latency_ratio": row["mean_ns"] / assumed,
                "bandwidth_ratio": row["bandwidth_bytes_per_s"] / most,
            }


def main(given: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kvdrive.service_times", description="Tables of service times, in model time.")
    parser.add_argument("profile", help="one of kvdrive list profiles")
    parser.add_argument("--grid", metavar="FILE", help="cells, as service_times.toml in this package")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of the drive")
    parser.add_argument("--json", metavar="FILE", help="where the table goes; without it and --csv to standard output")
    parser.add_argument("--csv", metavar="FILE", help="where its rows go as CSV")
    parser.add_argument("--compare", metavar="MS+GB/S", nargs="?", const="0.1+10", help="prints it beside a latency and a bandwidth [0.1+10]")
    options = parser.parse_args(given)
    settings = dict(setting.split("=", 1) for setting in options.set)
    table = service_times(options.profile, grid(options.grid), tell=lambda line: print(line, file=sys.stderr), **settings)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            write_csv(table, file)
    if options.compare:
        latency_ms, gb_per_s = map(float, options.compare.split("+"))
        print("direction       size depth reads fill   mean us assumed us ratio      GB/s ratio")
        for row in comparison(table, latency_ms * 1e6, gb_per_s * 1e9):
            print(
                f"{row['direction']:9} {row['size_bytes']:10} {row['depth']:5} {row['read_share']:5.0%} {row['fill']:4.0%}"
                f" {row['mean_ns'] / 1e3:9.1f} {row['assumed_ns'] / 1e3:10.1f} {row['latency_ratio']:5.2f}"
                f" {row['bandwidth_bytes_per_s'] / 1e9:9.3f} {row['bandwidth_ratio']:5.2f}"
            )
    elif not options.json and not options.csv:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
