"""`ostinato debug`: run a program under gdb, which steps through its kernels."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from ..device import check_settings
from ..errors import ArgumentError
from ..program import parse as parse_program
from .group import main

_EXTENSION = Path(__file__).parents[1] / "backends" / "cpu" / "ostinato-gdb.py"


@main.command("debug", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module; run it as python -m does.")
@click.option(
    "-b", "--break", "places", multiple=True, help="Break at FILE:LINE or a kernel; more than once if needed."
)
@click.option("--print", "only_print", is_flag=True, help="Print the command line of gdb instead of running it.")
def debug_command(
    program: str, arguments: tuple[str, ...], as_module: bool, places: tuple[str, ...], only_print: bool
) -> None:
    """Run a program under gdb, which steps through its kernels.

    PROGRAM is a Python script; with -m, a module. OSTINATO_DEBUG=1 is set for it: its CPU devices build kernels for a
    debugger, and run their threads one at a time. Programs that ask for another device need OSTINATO_DEVICE=cpu.

    \b
    Examples:
      ostinato debug --break kernels.metal:16 train.py --steps 1
      ostinato debug --break 'kernels.metal:16 if i == 3' train.py
      ostinato debug -m package.tool
    """
    check_settings()
    try:
        parsed = parse_program(program, arguments, as_module)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    if not parsed.as_module and not parsed.is_script:
        raise click.BadParameter("gdb runs a script, or a module with -m", param_hint="PROGRAM")
    python = [sys.executable, *(("-m",) if parsed.as_module else ()), parsed.target, *parsed.arguments]
    breaks = [word for place in places for word in ("-ex", f"break {place}")]
    command = ["gdb", "-q", "-x", str(_EXTENSION), *breaks, "--args", *python]
    if only_print:
        click.echo(f"OSTINATO_DEBUG=1 {shlex.join(command)}")
        return
    gdb = shutil.which("gdb")
    if gdb is None:
        raise click.ClickException("there is no gdb on the path; install it (Debian, Ubuntu: apt install gdb)")
    sys.stdout.flush()
    os.execve(gdb, command, {**os.environ, "OSTINATO_DEBUG": "1"})
