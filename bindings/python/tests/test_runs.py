"""Reports of runs: those of the command, to the last digit."""

import copy
import importlib.util
import json
import os
import pathlib
import pickle
import subprocess
import sys

import kvdrive as kv
import pytest

ROOT = pathlib.Path(__file__).parents[3]
RUNS = [
    {"workload": "w-m", "ops": 2000, "transfer": "adaptive", "packing": "backfill", "seed": 1},
    {"workload": "fillrandom", "ops": 1000, "value_size": "4KiB", "seed": 7},
    {"engine": "plus2", "workload": "mixed", "ops": 500, "num": 500, "value_size": 100},
    {"profile": "nvmevirt-970pro", "workload": "ycsb-a", "ops": 500, "num": 300, "depth": 8},
]


def without_measured(report):
    """A report without the one number that is measured by this machine's clock."""
    report = copy.deepcopy(report)
    assert report["time"].pop("wall_s") > 0
    return report


@pytest.mark.parametrize("settings", RUNS, ids=lambda settings: settings["workload"])
def test_a_run_is_that_of_the_command_to_the_last_digit(command, settings):
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    out = subprocess.run([command, "run", *options, "--json", "-"], capture_output=True, text=True, check=True)
    expected = json.loads(out.stdout)
    report = kv.run(**settings).to_dict()
    assert without_measured(report) == without_measured(expected)
    assert list(report) == list(expected)


def test_the_same_seed_is_the_same_report_and_another_one_is_not():
    settings = dict(workload="w-m", ops=1000)
    first, again, other = (without_measured(kv.run(**settings, seed=seed).to_dict()) for seed in (1, 1, 2))
    assert first == again != other


def test_a_report_is_remembered_if_the_source_is_as_committed(caches):
    settings = dict(workload="w-m", ops=1000)
    first, second = kv.run(**settings), kv.run(**settings)
    computed = kv.run(**settings, remember=False)
    first, second, computed = (report.to_dict() for report in (first, second, computed))
    is_committed = "dirty" not in kv.revision and kv.revision != "unknown"
    assert len(list(caches.glob("kvdrive/results/*.results"))) == is_committed
    assert not is_committed or first == second
    assert without_measured(first) == without_measured(second) == without_measured(computed)


def test_names_of_a_report_are_attributes():
    report = kv.run(workload="w-m", ops=1000, transfer="adaptive", seed=1)
    data = report.to_dict()
    assert report.latency.store.p99 == report.latency_ns.store.p99 == data["latency_ns"]["store"]["p99"]
    assert report.throughput == data["throughput_ops_per_s"] > 0
    assert report["traffic"].to_dict() == data["traffic"]
    assert "latency_ns" in dir(report)
    assert "w-m" in str(report) and "modelled" in str(report)
    with pytest.raises(AttributeError, match="no 'latencies' here; there are format, profile, "):
        report.latencies
    data.clear()
    assert report.seed == 1


def test_reports_can_be_pickled_and_copied():
    report = kv.run(workload="fillseq", ops=100)
    for other in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert other == report and str(other) == str(report) and other.to_record() == report.to_record()
    runs = kv.compare(workload="fillseq", ops=100, seed=[1, 2])
    assert pickle.loads(pickle.dumps(runs)) == runs and str(pickle.loads(pickle.dumps(runs))) == str(runs)


def test_a_comparison_has_each_combination_as_it_is_alone():
    runs = kv.compare(workload="w-m", ops=500, transfer=["prp", "adaptive"], packing=["all", "backfill"], seed=3)
    assert len(runs) == 4
    for run in runs:
        host, packing = run.config.host.transfer, run.config.packing.policy
        alone = kv.run(workload="w-m", ops=500, transfer=host, packing=packing, seed=3)
        assert without_measured(run.to_dict()) == without_measured(alone.to_dict())
    assert "adaptive" in str(runs)


def test_options_that_stand_for_more_than_a_key_are_those_of_the_command():
    run = kv.run(store="btree", side="host", workload="ycsb-a", ops=100, num=100, value_size=100)
    assert (run.config.engine.name, run.config.host.store) == ("block", "btree")
    runs = kv.compare(["cosmos-plus", "nvmevirt-970pro"], workload="w-a", ops=100, **{"packing.policy": ["all", "block"]})
    assert [(run.profile, run.config.packing.policy) for run in runs] == [
        ("cosmos-plus", "all"), ("nvmevirt-970pro", "all"), ("cosmos-plus", "block"), ("nvmevirt-970pro", "block"),
    ]


def test_a_run_that_cannot_be_is_refused_by_the_name_of_its_setting():
    for settings, line in [
        ({"workload": "w-mm"}, "no workload \"w-mm\"; did you mean w-m"),
        ({"workload": "w-m", "transfer": "prp", "clock": "wall"}, "run.clock"),
        ({"workload": "w-m", "seed": 1, "run.seed": 2}, 'run.seed="2": seed="1" sets run.seed too'),
        ({"workload": "w-m", "scan_length_max": 4}, 'workload.scan_length_max="4": workload.name=w-m'),
        ({"workload": "w-m", "seed": [1, 2]}, 'seed="1,2": a run takes one value of each setting; compare takes lists'),
        ({"workload": "w-m", "ops": 0}, "allowed: above 0"),
        ({"workload": "w-m", "duration": 10}, "allowed: a time with its unit"),
        ({"workload": "w-m", "ops": -1}, "workload.ops"),
    ]:
        with pytest.raises(kv.ConfigurationError, match=line):
            kv.run(**settings)
    with pytest.raises(kv.ConfigurationError, match="w-mm"):
        kv.compare(workload=["w-m", "w-mm"])


def test_a_frame_has_a_row_for_each_run_or_says_what_is_missing():
    runs = kv.compare(workload="w-m", ops=300, transfer=["prp", "adaptive"])
    if importlib.util.find_spec("pandas") is None:
        with pytest.raises(ImportError, match="pip install pandas"):
            runs.to_frame()
        return
    frame = runs.to_frame()
    assert list(frame.columns[:3]) == ["config.host.transfer", "throughput_ops_per_s", "latency_ns.store.mean"]
    assert set(frame.columns) == set(runs[0].to_record()) | set(runs[1].to_record())
    kinds, units = frame.attrs["kinds"], frame.attrs["units"]
    assert (kinds["latency_ns.store.p99"], units["latency_ns.store.p99"]) == ("modelled", "ns")
    assert (kinds["traffic.wire_bytes.total"], units["traffic.wire_bytes.total"]) == ("counted", "B")
    assert [name for name, kind in kinds.items() if kind == "measured"] == ["time.wall_s"]
    assert set(kinds) == set(frame.columns)
    assert list(frame["config.host.transfer"]) == ["prp", "adaptive"]
    assert list(frame["seed"]) == [1, 1]


def test_the_tour_runs():
    tour = ROOT / "bindings/python/examples/tour.py"
    out = subprocess.run([sys.executable, tour], capture_output=True, text=True, check=True).stdout
    assert "after the power cut: b'some value'" in out and "adaptive" in out


# A thread begins this process' first run; children that are forked meanwhile make runs of their own.
FORKS = """
import os, threading, time
import kvdrive as kv
begun = threading.Event()
def first():
    begun.set()
    kv.run(workload="w-a", ops=50)
threading.Thread(target=first, daemon=True).start()
begun.wait()
children = []
for seed in range(25):
    child = os.fork()
    if child == 0:
        kv.run(workload="w-a", ops=5, seed=seed)
        os._exit(0)
    children.append(child)
    time.sleep(0.001)
end = time.monotonic() + 60
ended = 0
for child in children:
    while time.monotonic() < end and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(0.01)
    ended += time.monotonic() < end
for child in children[ended:]:
    os.kill(child, 9)
print(ended)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_that_are_forked_during_the_first_run_do_not_wait_for_it():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("25\n", "")


def test_a_report_and_a_comparison_have_a_form_for_notebooks():
    report = kv.run(workload="fillseq", ops=100)
    assert report._repr_html_().startswith("<pre ") and "pairs 100, keys 4 B" in report._repr_html_()
    runs = kv.compare(workload="fillseq", ops=100, packing=["all", "block"])
    assert "backfill" not in runs._repr_html_() and "bytes &lt;" not in runs._repr_html_()
    assert runs._repr_html_().count("\n") == str(runs).count("\n")
