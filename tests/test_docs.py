"""What the documentation prints is true: its Python runs, its commands and options exist, its links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import ostinato as ost
from ostinato import ops
from ostinato.cli import main

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]


class NotRun(NamedTuple):
    """A block of Python that is parsed only: the page, a line of the block, and why."""

    page: str
    line: str
    reason: str


NOT_RUN = (
    NotRun("cuda", 'dev = ost.open_device("cuda:0")', "needs an NVIDIA GPU"),
    NotRun("cuda", "library = dev.library(metal_source, cuda=", "needs an NVIDIA GPU"),
    NotRun("tuning", 'tuned="h200.json"', "needs an NVIDIA GPU"),
    NotRun("models", 'weights = models.load_weights("Qwen3-0.6B")', "needs a checkpoint"),
    NotRun("debugging", 'Path("total.metal")', "test_debugger.py runs it under gdb"),
    NotRun("examples", "--8<--", "includes a program that test_examples.py runs"),
)

PRINTED: dict[str, tuple[str, ...]] = {
    "README": ("<Kernel",),
    "errors": ("kernel '",),
    "graphs": ("graph '", "fuse:", "verify:"),
    "testing": ("kernel '",),
}
"""Pages that show what their program prints, but for numbers, on every machine: how such a block begins."""


NEEDED = {"interop": ("mlx.core", "torch")}
"""Packages that the Python of a page needs beside the base install."""


class Block(NamedTuple):
    """A fenced block: its language ("" without one) and its text."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    fences = re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(language, textwrap.dedent(text)) for _, language, text in fences]


def python(page: Path) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "python"]


def why_not_run(page: Path, text: str) -> str:
    """The reason why a block is not run; "" if it is."""
    reasons = (entry.reason for entry in NOT_RUN if entry.page == page.stem and entry.line in text)
    return next(reasons, "")


def without_numbers(line: str) -> str:
    """A printed line up to where a page cuts it off, with a sign for each number: times differ."""
    return re.sub(r"\d[\d.,]*", "#", line.partition("…")[0])


def program(page: Path) -> str:
    """The Python of a page, taken together."""
    return "\n".join(text for text in python(page) if not why_not_run(page, text))


@pytest.mark.parametrize("page", [page for page in PAGES if program(page)], ids=lambda page: page.stem)
def test_the_python_of_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    """As one program, in the order of the page, with nothing at hand."""
    for name in NEEDED.get(page.stem, ()):
        pytest.importorskip(name, reason=f"{name} is not installed; `pip install '.[oracle]'`")
    (tmp_path / f"{page.stem}.py").write_text(program(page))
    done = subprocess.run(
        [sys.executable, f"{page.stem}.py"],
        cwd=tmp_path,
        env=os.environ | {"OSTINATO_DEVICE": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for block in blocks(page):
        if block.text.startswith(PRINTED.get(page.stem, ())):
            printed = [without_numbers(line) for line in done.stdout.splitlines()]
            for line in block.text.splitlines():
                assert any(out.startswith(without_numbers(line)) for out in printed), line
    if page.stem == "README":
        assert "Look first at inc_one" in done.stdout


def test_every_reason_not_to_run_a_block_is_about_a_block() -> None:
    for entry in NOT_RUN:
        (page,) = (page for page in PAGES if page.stem == entry.page)
        assert any(entry.line in text for text in python(page)), entry


@pytest.mark.parametrize("page", [page for page in PAGES if python(page)], ids=lambda page: page.stem)
def test_all_python_can_be_parsed(page: Path) -> None:
    for text in python(page):
        ast.parse(text)


# --- the shell ------------------------------------------------------------------------------------------------------


def shell_commands(page: Path) -> Iterator[list[str]]:
    """The commands of the shell blocks of a page, by words, without leading assignments and without pipes."""
    for block in blocks(page):
        if block.language not in ("sh", "console"):
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if block.language == "console" and not line.startswith("$ "):
                continue
            words = shlex.split(line.removeprefix("$ ").partition(" | ")[0], comments=True)
            while words and re.fullmatch(r"\w+=.*", words[0]):
                words = words[1:]
            if words:
                yield words


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The `ostinato …` commands inside of sentences; one with "…" in it is no command line."""
    for line in re.findall(r"`(ostinato [a-z][^`…]*)`", page.read_text()):
        yield shlex.split(line.replace("\n", " "))


def check_command_line(words: list[str]) -> None:
    """The command is there, and so are its options."""
    group = click.Context(main)
    command = main.get_command(group, words[0]) if words[0][0] != "-" else main
    assert command is not None, words
    context = click.Context(command, group, **command.context_settings)
    if isinstance(command, click.Group) and command is not main and words[1:]:
        inner = command.get_command(context, words[1])
        assert inner is not None, words
        command, words = inner, words[1:]
        context = click.Context(command, context, **command.context_settings)
    with suppress(click.BadOptionUsage):  # a sentence may name an option without a value
        command.make_parser(context).parse_args(words[words[0][0] != "-" :])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_commands_and_their_options_exist(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in (*shell_commands(page), *inline_commands(page)):
        if words[0] == "ostinato":
            check_command_line(words[1:])
        elif words[0] == "make":
            assert words[1] in targets, words
        elif words[:2] == ["pip", "install"] and "[" in words[-1]:
            assert words[-1][2:-1] in extras, words
        elif Path(words[0]).name == "python":
            files = [word for word in words[1:] if "/" in word]
            assert all((ROOT / file).exists() for file in files), words


# --- links, lists and names ------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site make them, and of the names of an API page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    names = re.findall(r"^::: (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings} | set(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), target
            assert page not in DOCS or linked.resolve().is_relative_to(ROOT / "docs"), f"{target} is not on the site"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in DOCS)


def test_every_public_name_is_in_the_api_reference() -> None:
    pages = (ROOT / "docs" / "api").glob("*.md")
    described = [
        name for page in pages for name in re.findall(r"^::: ostinato\.(\w+)$", page.read_text(), re.MULTILINE)
    ]
    assert sorted(described) == sorted(set(ost.__all__) - {"__version__"})


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page of docs/."""
    lines = (ROOT / "docs" / f"{page}.md").read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]


def test_every_setting_is_listed_with_its_aliases() -> None:
    listed = {row[0].strip("` "): set(re.findall(r"`(\w+)`", row[1])) for row in rows("settings")}
    assert listed == {gate.variable: {name for name, _ in gate.aliases} for gate in ost.settings.GATES.values()}


def test_every_op_is_listed() -> None:
    assert {name for row in rows("ops") for name in re.findall(r"`(\w+)`", row[0])} == set(ops.__all__)


def test_no_name_of_mlx_native_is_without_an_answer() -> None:
    answers = {row[-1] for row in rows("coming-from-mlx-native")}
    assert answers <= {"here", "different", "only here"}
