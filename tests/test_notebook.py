"""The example notebook runs from top to bottom, and each of its objects shows itself as HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "examples" / "notebook.ipynb"

SHOWN = {
    "dev": "Device ",
    "kernels": "Library of 3 kernels",
    'kernels["transpose"]': "Kernel transpose on",
    "submission": "time on the device",
    "out": "(512, 512)",
    "ost.bench": "transpose on ",
    "ost.compare": "after / before",
    "graph": "<svg ",
    "ost.passes.verify": "same: ",
    "graph.audit": "(In[8]:7)",  # the cell and the line of a finding
    "prof": "<iframe ",
}
"""How the last line of a cell begins, and what its output has to say."""


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))


def test_the_notebook_runs_and_shows_html(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OSTINATO_DEVICE", "cpu")
    for folder in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(folder, str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # an error in a cell is raised
    cells = {cell.source.splitlines()[-1].partition("(")[0]: cell for cell in code_cells(notebook)}
    assert cells.keys() == SHOWN.keys()
    for begin, text in SHOWN.items():
        (data,) = [output.data for output in cells[begin].outputs if output.output_type == "execute_result"]
        assert data["text/plain"]
        assert text in data["text/html"], begin
