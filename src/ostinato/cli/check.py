"""`ostinato check`: run a program and audit what it submits."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import click
from rich.console import Console

from ..audit import check as checking
from ..audit import table as audit_table
from ..device import check_settings
from ..errors import ArgumentError
from ..program import parse as parse_program
from ..program import run as run_program
from .group import busy_after, main, printing_to_stderr


@main.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module; run it as python -m does.")
@click.option("--structure-only", is_flag=True, help="Look at barriers only; run nothing but the program.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Concurrent runs of each list.")
@click.option("--max-lists", type=click.IntRange(1), default=64, show_default=True, help="Look at so many lists.")
@click.option(
    "--max-values", type=click.IntRange(0), default=256, show_default=True, help="Look at so many values of each list."
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that one command may take; a program with a longer one is stopped.",
)
@click.option("--why", is_flag=True, help="Say of each inferred barrier why it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; what the program prints goes to standard error.")
def check_command(
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    structure_only: bool,
    repeats: int,
    max_lists: int,
    max_values: int,
    limit_s: float,
    why: bool,
    as_json: bool,
) -> None:
    """Run a program and check every list of commands that it submits.

    PROGRAM is a Python script or module:function; with -m, a module. Looked for are missing and redundant barriers,
    accesses that are not declared or out of bounds, and races; each list is run on a copy of its memory, on the CPU,
    before the program's own run of it. A list that comes again with other values passed to its kernels is checked for
    accesses out of bounds.
    Status 1 when something is wrong; otherwise the program's own.

    \b
    Examples:
      ostinato check train.py --steps 3
      ostinato check -m package.tool --steps 3
      ostinato check --structure-only package.module:main
    """
    check_settings()
    options = checking.Options(not structure_only, repeats, max_lists, max_values=max_values, limit_s=limit_s)
    watcher = checking.Watcher(options, busy_after)
    try:
        found = parse_program(program, arguments, as_module)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    with printing_to_stderr() if as_json else nullcontext(), watcher.installed():
        status = run_program(found)
    if watcher.crash is not None:
        raise watcher.crash
    result = watcher.result(status)
    if as_json:
        click.echo(json.dumps(audit_table.plain(result), indent=2))
    else:
        Console().print(audit_table.checked(result, why))
    sys.exit(result.status if result.ok else 1)
