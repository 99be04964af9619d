"""Published claims and figures are those of the command."""

import json
import subprocess

import kvdrive as kv
import pytest


def test_claims_are_those_of_the_command(command, tmp_path):
    ours = kv.claims("bandslim", only=["traffic-32", "commands-128"], extent="quick")
    options = ["--only", "traffic-32", "--only", "commands-128", "--quick", "--no-cache", "--json", tmp_path / "c.json"]
    table = subprocess.run([command, "claims", "bandslim", *options], capture_output=True, text=True, check=True).stdout
    assert list(ours) == json.loads((tmp_path / "c.json").read_text())
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
    assert ours.charts == json.loads(files[1].read_text())
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
