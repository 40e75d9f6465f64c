"""What the documentation prints is true: its Python runs as printed, and its links lead somewhere."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

import ostinato as ost
from ostinato import ops
from scripting import Script

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMPLETE = ("coming-from-mlx-native", "graphs", "kernels", "ops", "settings")
"""Pages whose Python, taken together, is a program. The others show fragments."""


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, "" for those without one."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(text) for name, text in found if name == language]


def test_the_readme_runs_as_printed(script: Script) -> None:
    """All of it in one session; its last example is an error."""
    page = ROOT / "README.md"
    printed, error = (block for block in blocks(page, "") if block.startswith(("<Kernel", "ostinato.errors")))
    done = script("\n".join(blocks(page, "python")), OSTINATO_DEVICE="cpu")
    assert done.returncode == 1
    assert done.stderr.endswith(error), done.stderr
    assert done.stdout.startswith(printed), done.stdout
    assert "Look first at append: " in done.stdout


@pytest.mark.parametrize("name", COMPLETE)
def test_a_page_that_is_a_program_runs_as_printed(
    name: str, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = script("\n".join(blocks(ROOT / "docs" / f"{name}.md", "python")), OSTINATO_DEVICE="cpu")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_fragment_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page of docs/."""
    lines = (ROOT / "docs" / f"{page}.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def test_every_setting_is_listed_with_its_aliases() -> None:
    listed = {row[0].strip("` "): set(re.findall(r"`(\w+)`", row[1])) for row in rows("settings")}
    assert listed == {gate.variable: {name for name, _ in gate.aliases} for gate in ost.settings.GATES.values()}


def test_every_op_is_listed() -> None:
    assert {name for row in rows("ops") for name in re.findall(r"`(\w+)`", row[0])} == set(ops.__all__)


def test_every_page_can_be_found_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert all(f"docs/{page.name}" in text for page in (ROOT / "docs").glob("*.md"))


def test_no_name_of_mlx_native_is_without_an_answer() -> None:
    answers = {row[-1] for row in rows("coming-from-mlx-native")}
    assert answers <= {"here", "different", "only here"}
