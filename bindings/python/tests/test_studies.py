"""Published claims and figures are those of the command."""

import json
import os
import re
import signal
import subprocess
import sys
import types

import kvdrive as kv
import pytest


def documents(path):
    """What a file of the command has, without the version of its form."""
    read = json.loads(path.read_text())
    assert all(document.pop("format") == 1 for document in read)
    return read


def test_claims_are_those_of_the_command(command, tmp_path):
    ours = kv.claims("bandslim", only=["traffic-32", "commands-128"], extent="quick")
    options = ["--only", "traffic-32", "--only", "commands-128", "--quick", "--no-cache", "--json", tmp_path / "c.json"]
    table = subprocess.run([command, "claims", "bandslim", *options], capture_output=True, text=True, check=True).stdout
    assert list(ours) == documents(tmp_path / "c.json")
    assert str(ours) == table
    assert len(ours) == 2 and {claim["verdict"] for claim in ours} <= {"reproduced", "holds"}


def test_a_frame_of_claims_says_first_what_is_read_first():
    pytest.importorskip("pandas")
    frame = kv.claims("bandslim", only="traffic-32", extent="quick").to_frame()
    assert list(frame.columns[:6]) == ["id", "title", "source", "published", "ours", "verdict"]
    assert frame.iloc[0]["published_value"] == 0.979


def test_a_figure_is_that_of_the_command(command, tmp_path):
    ours = kv.figure("bandslim-8", extent="quick")
    files = [tmp_path / "f.svg", tmp_path / "f.json"]
    options = ["--quick", "--no-cache", "--svg", files[0], "--json", files[1]]
    subprocess.run([command, "figure", "bandslim-8", *options], capture_output=True, check=True)
    ours.save(tmp_path / "ours.svg")
    assert (tmp_path / "ours.svg").read_bytes() == files[0].read_bytes()
    assert ours.charts == documents(files[1])
    assert ours._repr_svg_().startswith("<svg") and "Baseline" in str(ours)
    with pytest.raises(ValueError, match="saved as .svg"):
        ours.save(tmp_path / "f.png")
    with pytest.raises(AttributeError):
        ours.none


def test_a_frame_of_a_figure_has_theirs_beside_ours():
    pandas = pytest.importorskip("pandas")
    figure = kv.figure("bandslim-8", extent="quick")
    frame = figure.to_frame()
    marks = sum(len(chart["marks"]) for chart in figure.charts)
    assert isinstance(frame, pandas.DataFrame) and frame["published"].notna().sum() == marks > 0
    assert set(frame["kind"]) <= {"counted", "modelled", "modelled-fit", "modelled-set", "modelled-check"}


def test_what_cannot_be_is_refused_in_one_line():
    for call, line in [
        (lambda: kv.claims("none"), "none"),
        (lambda: kv.claims("saker", only="none"), "only: no claim has an id"),
        (lambda: kv.figure("bandslim-88"), "no such figure"),
        (lambda: kv.figure("bandslim-8", extent="slow"), "there are quick, usual, full"),
        (lambda: kv.figure("bandslim-8", scale="1/64"), "none of these runs can be shrunk"),
        (lambda: kv.figure("bandslim-8", tranfer="prp"), "tranfer: no such option"),
    ]:
        with pytest.raises(kv.ConfigurationError, match=line) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="there is no /proc here")
def test_claims_tell_how_long_they_take_and_ctrl_c_ends_their_runs():
    program = """
import os, signal, time
import kvdrive as kv
from kvdrive import _progress

signal.signal(signal.SIGINT, signal.default_int_handler)
_progress._is_notebook = lambda: True
before = len(os.listdir("/proc/self/task"))
try:
    kv.claims("bandslim", extent="full", remember=False)
except KeyboardInterrupt:
    print("interrupted", flush=True)
while len(os.listdir("/proc/self/task")) > before:
    time.sleep(0.01)
print("ended")
"""
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child = subprocess.Popen([sys.executable, "-c", program], **pipes)
    try:
        line = child.stderr.readline()
        beside = r"( on idle cores, about \d+ min beside what else runs now)?"
        assert re.fullmatch(rf"claims bandslim: \d+ runs: about \d+ min{beside}\n", line), line
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\nended\n", 0)


def test_a_bar_is_shown_where_a_person_looks_and_by_tqdm_alone(monkeypatch, capsys):
    from kvdrive import _progress

    with _progress.Telling("claims", None) as tell:
        assert tell is None, "pytest has no terminal"
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match="progress needs tqdm: pip install tqdm"):
        kv.claims("bandslim", only="traffic-32", extent="quick", progress=True)
    monkeypatch.setattr(_progress, "_is_notebook", lambda: True)
    with _progress.Telling("claims bandslim", None) as tell:
        tell("3 runs: about 2 min", 0, 3)
        tell("3 runs: about 2 min", 2, 3)
    assert capsys.readouterr().err == "claims bandslim: 3 runs: about 2 min\n"

    class Bar:
        def __init__(self, total, initial, unit):
            self.n, self.total, self.is_closed, self.updates = initial, total, False, 0
            bars.append(self)

        def update(self, ended):
            self.n += ended
            self.updates += 1

        def __exit__(self, *_):
            self.is_closed = True

    bars = []
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    with _progress.Telling("claims bandslim", True) as tell:
        for ended in [0, 0, 0, 2, 2, 2]:
            tell("3 runs: about 2 min", ended, 3)
    assert [(bar.n, bar.total, bar.is_closed, bar.updates) for bar in bars] == [(2, 3, True, 1)]


def test_a_notebook_keeps_one_line_of_progress(monkeypatch):
    from kvdrive import _progress

    outputs = []

    class Output:
        def __init__(self, line):
            self.line = line

        def update(self, line, raw):
            assert raw
            self.line = line

    def display(line, raw, display_id):
        assert raw and display_id
        outputs.append(Output(line))
        return outputs[-1]

    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    with _progress.Telling("sweep", None) as tell:
        for ended in range(4):
            tell("3 runs: about 2 min", ended, 3)
    assert [output.line for output in outputs] == [{"text/plain": "3 of 3 runs, 0 s"}]
