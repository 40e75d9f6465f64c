"""What importing loads, and which names are found: by modules, never by time."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys

import click
import pytest

import ostinato as ost
from ostinato.cli import main

HEAVY = (
    "rich sqlite3 asyncio ctypes numpy ostinato.profiling.analyse ostinato.profiling.recording"
    " ostinato.profiling.report ostinato.msl ostinato.passes"
    " ostinato.ops ostinato.models ostinato.audit"
).split()

LOADED = f"""
import sys
print(*[name for name in {HEAVY!r} if name in sys.modules])
"""


def printed_by(text: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert printed_by("import ostinato" + LOADED)[-1].split() == []


def test_help_loads_no_more_than_click() -> None:
    lines = printed_by("from ostinato.cli import main\nmain(['--help'], standalone_mode=False)" + LOADED)
    assert lines[-1].split() == []
    assert any("calibrate" in line for line in lines)


def test_running_a_kernel_loads_the_front_end_and_no_analysis() -> None:
    lines = printed_by(
        """
import ostinato as ost
with ost.open_device("cpu") as dev:
    x = dev.zeros(4, "float32")
    import sys
    print("ostinato.msl" in sys.modules)
    enc = dev.command_encoder()
    enc.dispatch(dev.library("kernel void one(device float *x) { x[0] = 1; }")["one"], x, threads=1)
    enc.commit_and_wait()
"""
        + LOADED
    )
    assert lines == ["False", "ctypes numpy ostinato.msl"]


def test_completion_shows_the_public_names_and_nothing_else() -> None:
    importlib.import_module("ostinato.ir.hazards")
    assert sorted(dir(ost)) == sorted(ost.__all__)
    for name in ost.__all__:
        assert getattr(ost, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ost.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse(inspect.getsource(ost))
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level for alias in node.names
    }
    assert imported == set(ost.__all__)


def test_no_module_has_the_name_of_a_public_function() -> None:
    packages = [ost] + [
        importlib.import_module(f"ostinato.{module.name}")
        for module in pkgutil.iter_modules(ost.__path__)
        if module.ispkg and module.name != "backends"
    ]
    for package in packages:
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        shadowed = {name for name in modules if inspect.isroutine(getattr(package, name, None))}
        assert not shadowed, package.__name__


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_of_the_help_is_found(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
