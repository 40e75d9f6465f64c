"""The rooms of the package import each other as the table in CONTRIBUTING.md says, and the top stays small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "ostinato"
FOR_ALL = {"errors", "settings", "version"}


@dataclass(frozen=True)
class Room:
    loads: frozenset[str]
    """Rooms that its modules import when they are loaded."""
    calls: frozenset[str]
    """Rooms that its functions import when they are called."""


def table() -> dict[str, Room]:
    """The rooms, from top to bottom, as CONTRIBUTING.md lists them."""
    rooms = {}
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for line in text.partition("| room |")[2].partition("\n\n")[0].splitlines()[2:]:
        name, _, imports = (cell.strip() for cell in line.strip("|").split("|"))
        loads, _, calls = imports.partition("(")
        names = [frozenset(re.findall(r"`([\w.]+)`", part)) for part in (loads, calls)]
        rooms[name.strip("`")] = Room(*names)
    return rooms


ROOMS = table()


def room_of(module: str) -> str:
    """The room of a dotted name below `ostinato`: the most specific that the table has."""
    while module not in ROOMS and "." in module:
        module = module.rpartition(".")[0]
    return module


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(module: str) -> Iterator[tuple[str, bool]]:
    """The modules that one imports, and whether only when a function is called; not those for type checkers."""

    def visit(node: ast.AST, called: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.level:
            package = module.split(".") if MODULES[module].name == "__init__.py" else module.split(".")[:-1]
            package = package[: len(package) - node.level + 1]
            for alias in node.names:
                target = ".".join((*package, *filter(None, (node.module, alias.name))))
                yield target if target in MODULES else target.rpartition(".")[0], called
        for child in ast.iter_child_nodes(node):
            yield from visit(child, called or isinstance(node, ast.FunctionDef))

    yield from visit(ast.parse(MODULES[module].read_text()), False)


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_what_the_table_says(name: str) -> None:
    loads: set[str] = set()
    calls: set[str] = set()
    for module in MODULES:
        if room_of(module) == name:
            for target, called in imported(module):
                (calls if called else loads).add(room_of(target))
    apart = FOR_ALL | {name}
    assert loads - apart == ROOMS[name].loads
    assert calls - loads - apart == ROOMS[name].calls


def test_a_room_imports_from_the_rooms_above_it() -> None:
    above: set[str] = set()
    for name, room in ROOMS.items():
        assert room.loads <= above, name
        above.add(name)


def test_every_module_is_in_a_room() -> None:
    outside = {module for module in MODULES if room_of(module) not in ROOMS}
    assert outside == FOR_ALL | {"", "__main__"}


def test_what_everything_imports_imports_nothing_else() -> None:
    for module in FOR_ALL:
        assert {target for target, _ in imported(module)} <= FOR_ALL


def test_at_most_a_dozen_files_lie_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 12
