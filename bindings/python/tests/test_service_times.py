"""Tables of service times for simulators."""

import csv
import importlib.resources
import io
import json

import pytest
from kvdrive import service_times as tables

SMALL = {
    "capacity": "1GiB",
    "overwritten": 0.02,
    "bytes": "8MiB",
    "commands": [20, 1200],
    "grid": [
        {"sizes": ["4KiB", "256KiB"], "depths": [1, 16], "read_shares": [1.0], "fills": [0.1]},
        {"sizes": [4096], "depths": [16], "read_shares": [0.5, 1.0], "fills": [0.1, 0.3]},
    ],
}


@pytest.fixture(scope="module")
def table():
    return tables.service_times("pm983", SMALL)


def test_a_table_has_each_cell_and_direction_once(table):
    cells = tables.cells(SMALL)
    assert len(cells) == 7, "a cell of two grids is one"
    given = [(row["size_bytes"], row["fill"], row["read_share"], row["depth"], row["direction"]) for row in table["rows"]]
    expected = {(*cell, "read") for cell in cells} | {(*cell, "store") for cell in cells if cell[2] < 1}
    assert set(given) == expected and len(given) == len(expected)
    for row in table["rows"]:
        assert row["errors"] == 0 and row["bytes"] == row["count"] * row["size_bytes"]
        assert row["bandwidth_bytes_per_s"] == pytest.approx(row["bytes"] / row["span_ns"] * 1e9)
        assert (row["p999_ns"] is None) == (row["count"] < 1000) and (row["p99_ns"] is None) == (row["count"] < 100)
        assert row["p50_ns"] <= (row["p99_ns"] or row["p50_ns"]) <= (row["p999_ns"] or row["p99_ns"] or row["p50_ns"])


def test_the_same_call_gives_the_same_table(table):
    assert tables.service_times("pm983", SMALL) == table


def test_a_busy_drive_answers_later_and_a_longer_value_takes_longer(table):
    mean = {(row["size_bytes"], row["depth"]): row["mean_ns"] for row in table["rows"] if row["read_share"] == 1 and row["fill"] == 0.1}
    assert mean[4096, 1] < mean[4096, 16] and mean[4096, 1] < mean[1 << 18, 1]


def test_a_table_is_as_its_schema_says_and_is_read_in_three_lines(table, tmp_path):
    path = tmp_path / "pm983.json"
    path.write_text(json.dumps(table))
    rows = json.load(open(path))["rows"]
    mean_ns = {(r["direction"], r["size_bytes"], r["depth"], r["fill"]): r["mean_ns"] for r in rows if r["read_share"] == 1}
    assert mean_ns["read", 4096, 1, 0.1] > 50_000
    schema = json.loads((importlib.resources.files("kvdrive") / "service_times.schema.json").read_text())
    assert set(schema["$defs"]["row"]["properties"]) == set(schema["$defs"]["row"]["required"]) == set(tables.KINDS)
    assert set(schema["required"]) == set(table)
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(table, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**table, "rows": [{**table["rows"][0], "mean_ns": "3"}]}, schema)
    file = io.StringIO()
    tables.write_csv(table, file)
    read = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert list(read[0]) == list(tables.KINDS) and len(read) == len(table["rows"])
    assert read[0]["p999_ns"] == str(table["rows"][0]["p999_ns"] or "")


def test_an_assumption_is_compared_row_by_row(table):
    for row in tables.comparison(table, 100_000, 10e9):
        assert row["assumed_ns"] == 100_000 + row["size_bytes"] / 10
        assert row["latency_ratio"] == row["mean_ns"] / row["assumed_ns"]


def test_percentiles_are_nearest_ranks():
    summary = tables._summary(list(range(1, 1001)), 0, 10, 1000)
    assert [summary[name] for name in ("p50_ns", "p99_ns", "p999_ns", "mean_ns")] == [500, 990, 999, 500.5]
    assert tables._summary([], 3, 10, 0) == {
        "count": 0, "errors": 3, "bytes": 0, "span_ns": 0, "bandwidth_bytes_per_s": None,
        "mean_ns": None, "p50_ns": None, "p99_ns": None, "p999_ns": None,
    }


def test_a_file_of_cells_says_what_is_wrong_in_it(tmp_path):
    usual = tables.grid()
    assert 50 <= len(tables.cells(usual)) <= 70
    path = tmp_path / "cells.toml"
    for text, problem in (
        ('capacity = "1GiB"\n', "missing"),
        ('capacity = "1GiB"\noverwritten = 0\nbytes = 1\ncommands = [1, 2]\nmore = 3\ngrid = []\n', "more: unknown"),
        ('capacity = "1GiB"\noverwritten = 0\nbytes = 1\ncommands = [1, 2]\n[[grid]]\nsizes = [1]\n', "grid 1: "),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=problem):
            tables.grid(path)
    for wrong in ("4 KB", "x", "-1", "1.5GiB"):
        with pytest.raises(ValueError, match="expected bytes"):
            tables.size(wrong)
