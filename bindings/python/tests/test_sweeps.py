"""Sweeps: the same frame with any executor, and an interrupted sweep is continued."""

import concurrent.futures as futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import kvdrive as kv
import pytest

GRID = {"workload.value_size": [32, 4096], "transfer": ["prp", "piggyback", "adaptive"]}
SETTINGS = dict(workload="w-a", ops=3000)
FILE = """
set = ["workload.name=w-a", "workload.ops=3000"]
[grid]
workload.value_size = [32, 4096]
"host.transfer" = ["prp", "piggyback", "adaptive"]
"""


def rows(swept):
    """The rows of a sweep without the one number that is measured by this machine's clock."""
    return [{name: value for name, value in row.items() if name != "time.wall_s"} for row in swept]


@pytest.fixture(scope="module")
def expected():
    return rows(kv.sweep(GRID, remember=False, **SETTINGS))


def when(path, lines, act):
    """Calls `act` in a thread when the file has this many lines."""

    def wait():
        while not path.exists() or path.read_bytes().count(b"\n") < lines:
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_rows_are_those_of_single_runs_in_the_order_of_the_grid(expected):
    settings = [(row["workload.value_size"], row["host.transfer"]) for row in expected]
    assert settings == [(size, way) for size in GRID["workload.value_size"] for way in GRID["transfer"]]
    alone = kv.run(value_size=4096, transfer="adaptive", **SETTINGS).to_record()
    last = expected[-1]
    assert {name: alone[name] for name in last if name in alone} == {name: last[name] for name in last if name in alone}
    assert len(set(last) & set(alone)) > 60


def test_a_sweep_over_sizes_that_names_no_workload_has_one_that_looks_at_them():
    swept = kv.sweep({"workload.value_size": [32, 128], "host.transfer": ["prp", "piggyback"]}, ops=100)
    assert {row["ops.store"] for row in swept} == {100} and len(swept) == 4
    alone = kv.run(workload="fillrandom", ops=100, value_size=32, transfer="prp").to_record()
    assert swept[0]["latency_ns.store.mean"] == alone["latency_ns.store.mean"]
    named = kv.sweep({"transfer": ["prp"]}, ops=100)
    assert named[0]["latency_ns.store.mean"] == kv.run(ops=100, transfer="prp").latency.store.mean


def test_processes_threads_and_shards_give_the_same_frame(command, expected, tmp_path):
    pandas = pytest.importorskip("pandas")
    with futures.ProcessPoolExecutor(2) as pool:
        assert rows(kv.sweep(GRID, executor=pool, remember=False, **SETTINGS)) == expected
    with futures.ThreadPoolExecutor(2) as pool:
        swept = kv.sweep(GRID, executor=pool, remember=False, **SETTINGS)
    sweep = tmp_path / "grid.toml"
    sweep.write_text(FILE)
    for of in (1, 4):
        for number in range(1, of + 1):
            subprocess.run([command, "sweep", sweep, "--shard", f"{number}/{of}", "--no-cache"], check=True)
        merged = tmp_path / f"merged-{of}.jsonl"
        shards = [tmp_path / f"grid.{number}-of-{of}.jsonl" for number in range(of, 0, -1)]
        subprocess.run([command, "sweep", sweep, "--out", merged, "--merge", *shards], check=True)
    assert (tmp_path / "merged-1.jsonl").read_bytes() == (tmp_path / "merged-4.jsonl").read_bytes()
    # All rows are in the file, so none is run.
    from_shards = kv.sweep(sweep, out=merged)
    assert rows(from_shards) == expected
    frame = swept.to_frame().drop(columns="time.wall_s")
    pandas.testing.assert_frame_equal(from_shards.to_frame(), frame)
    assert list(frame.columns[:3]) == ["workload.value_size", "host.transfer", "throughput_ops_per_s"]
    assert swept.to_frame().attrs["kinds"]["host.transfer"] == "setting"


def test_lines_are_written_as_runs_end_and_are_not_computed_again(expected, tmp_path):
    out = tmp_path / "out.jsonl"
    swept = kv.sweep(GRID, out=out, **SETTINGS)
    assert rows(swept) == expected
    whole = out.read_text().splitlines(keepends=True)
    assert sorted(json.loads(line)["config_hash"] for line in whole) == sorted(row["config_hash"] for row in expected)
    marked = {**json.loads(whole[1]), "throughput_ops_per_s": -1.0}
    out.write_text(whole[0] + json.dumps(marked) + "\n" + whole[2][:100])
    again = kv.sweep(GRID, out=out, **SETTINGS)
    assert [row["throughput_ops_per_s"] for row in again].count(-1.0) == 1
    assert len(out.read_text().splitlines()) == 6
    with pytest.raises(kv.DriveError, match="no row of this sweep"):
        kv.sweep({"depth": [1]}, out=out, **SETTINGS)


@pytest.mark.slow
def test_a_killed_worker_breaks_the_pool_and_the_next_call_goes_on(tmp_path):
    out = tmp_path / "out.jsonl"
    pool = futures.ProcessPoolExecutor(1)
    killing = when(out, 2, lambda: [os.kill(pid, signal.SIGKILL) for pid in list(pool._processes)])
    with pytest.raises(futures.BrokenExecutor) as error:
        kv.sweep(GRID, executor=pool, out=out, remember=False, **{**SETTINGS, "ops": 20_000})
    killing.join()
    pool.shutdown()
    there = out.read_bytes().count(b"\n")
    assert 2 <= there < 6
    assert error.value.__notes__ == [f"{there} of 6 rows are in {out}; the same call goes on from there"]
    begun = out.read_bytes()
    with futures.ProcessPoolExecutor(2) as pool:
        swept = kv.sweep(GRID, executor=pool, out=out, remember=False, **{**SETTINGS, "ops": 20_000})
    assert out.read_bytes().startswith(begun) and out.read_bytes().count(b"\n") == 6
    assert rows(swept) == rows(kv.sweep(GRID, remember=False, **{**SETTINGS, "ops": 20_000}))


@pytest.mark.slow
def test_dask_gives_the_same_rows_though_a_worker_is_killed(tmp_path):
    distributed = pytest.importorskip("distributed")
    out = tmp_path / "out.jsonl"
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=tmp_path
    )
    with cluster, distributed.Client(cluster) as client:
        killed = cluster.workers[0].pid
        killing = when(out, 1, lambda: os.kill(killed, signal.SIGKILL))
        with client.get_executor(pure=False) as pool:
            swept = kv.sweep(GRID, executor=pool, out=out, remember=False, **{**SETTINGS, "ops": 20_000})
        killing.join()
        assert killed not in [worker.pid for worker in cluster.workers.values()]
    assert rows(swept) == rows(kv.sweep(GRID, remember=False, **{**SETTINGS, "ops": 20_000}))
    assert out.read_bytes().count(b"\n") == 6


@pytest.mark.slow
def test_ray_gives_the_same_rows(tmp_path):
    pytest.importorskip("ray")
    example = pathlib.Path(__file__).parents[1] / "examples" / "ray_sweep.py"
    out = tmp_path / "out.jsonl"
    subprocess.run([sys.executable, example, out], check=True, timeout=120, capture_output=True)
    grid = {"value_size": [32, 4096], "transfer": ["prp", "piggyback"]}
    swept = kv.sweep(grid, out=out, workload="w-a", ops=2000)
    assert out.read_bytes().count(b"\n") == 4
    assert rows(swept) == rows(kv.sweep(grid, workload="w-a", ops=2000, remember=False))


def test_a_run_that_fails_is_told_and_what_has_ended_is_kept(tmp_path):
    class Failing(futures.Executor):
        def __init__(self):
            self.calls = 0

        def submit(self, work, *arguments):
            self.calls += 1
            future = futures.Future()
            if self.calls == 3:
                future.set_exception(RuntimeError("the third one"))
            else:
                future.set_result(work(*arguments))
            return future

    out = tmp_path / "out.jsonl"
    with pytest.raises(RuntimeError, match="the third one"):
        kv.sweep(GRID, executor=Failing(), out=out, **SETTINGS)
    assert out.read_bytes().count(b"\n") == 5
    assert len(kv.sweep(GRID, out=out, **SETTINGS)) == 6


def test_a_sweep_that_cannot_be_is_refused_before_anything_is_run(tmp_path):
    out = tmp_path / "out.jsonl"
    for grid, settings, line in [
        ({}, {}, "missing or empty"),
        ({"transfer": []}, {}, "at least one value"),
        ({"tranfer": ["prp"]}, {}, "tranfer: no such option"),
        ({"transfer": ["prp", "sgl", "none"]}, {}, "host.transfer"),
        ({"depth": [1, 1]}, {}, "two combinations are the same run"),
        ({"depth": [1, 2]}, {"seed": [1, 2]}, "lists are for the grid"),
        ({"depth": [1, 2]}, {"scale": "1/64"}, "scale: a sweep has profile and keys"),
    ]:
        with pytest.raises(kv.ConfigurationError, match=line):
            kv.sweep(grid, out=out, **settings)
    with pytest.raises(TypeError, match="a list of values"):
        kv.sweep({"transfer": "prp"})
    assert not out.exists()


def test_a_point_of_another_program_is_refused():
    point = {"profile": "cosmos-plus", "set": [], "grid": {"host.depth": 2}, "config_hash": "0" * 16}
    with pytest.raises(kv.ConfigurationError, match="is the program the same"):
        kv.run_point(point)


def test_ctrl_c_ends_a_sweep_and_what_has_ended_is_kept(tmp_path):
    # A shell's background job ignores Ctrl-C, and so do its children unless they ask for it.
    program = f"""
import signal
import kvdrive as kv
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    kv.sweep({{"workload.ops": [1000, 10**9, 10**9 + 1, 10**9 + 2]}}, workload="w-a", out={str(tmp_path / "o.jsonl")!r})
except KeyboardInterrupt as error:
    print(*error.__notes__, flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    interrupting = when(tmp_path / "o.jsonl", 1, lambda: child.send_signal(signal.SIGINT))
    try:
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    interrupting.join()
    assert out.startswith("1 of 4 rows are in ") and child.returncode == 0
