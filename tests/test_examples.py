"""Every program in examples/ runs by itself, agrees with NumPy (it checks that), and is listed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))  # test_notebook.py runs them


def run(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"OSTINATO_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_an_example_runs(program: Path) -> None:
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("program", ["torch_interop.py", "torch_op.py"])
def test_an_example_that_needs_torch_says_so_without_it(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    done = run(FOLDER / program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "skipped: this example needs torch (pip install torch)\n"


def test_every_example_is_listed() -> None:
    text = (FOLDER.parent / "docs" / "examples.md").read_text()
    assert [program.name for program in (*PROGRAMS, *NOTEBOOKS) if f"`{program.name}`" not in text] == []
