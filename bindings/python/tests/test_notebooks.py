"""The notebooks run from top to bottom."""

import pathlib

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
for module in ("ipykernel", "pandas", "matplotlib"):
    pytest.importorskip(module)

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tour.ipynb", "published.ipynb"])
def test_a_notebook_runs(name, monkeypatch):
    # The other figures take minutes in a build of tests.
    monkeypatch.setenv("KVDRIVE_FIGURES", "bandslim-8 bandslim-cxl-2")
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/svg+xml" in output.get("data", {}) for output in shown)
