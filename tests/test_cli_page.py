"""`--html`: a page that cannot be written is refused before any work, and source texts stay out where that is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ostinato.cli import main
from recordings import write


@pytest.mark.parametrize("command", ["report", "demo"])
def test_a_page_in_a_folder_that_is_not_there_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["report", str(write(tmp_path / "run.ostinato")), "--tables"] if command == "report" else ["demo"]
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    done = CliRunner().invoke(main, [*given, "--html", "missing/page.html"])
    assert done.exit_code == 1
    assert "missing/page.html cannot be written: the folder" in done.stderr
    assert "does not exist" in done.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_without_source_is_about_a_page(tmp_path: Path) -> None:
    run, page = write(tmp_path / "run.ostinato"), tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(run), "--without-source"])
    assert done.exit_code == 2
    assert "--html" in done.stderr
    assert CliRunner().invoke(main, ["report", str(run), "--without-source", "--html", str(page)]).exit_code == 0
    assert "made without the source texts" in page.read_text()
