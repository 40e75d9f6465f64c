"""`ostinato profile`: run a program and record it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from ..analyse import summarise
from ..device import check_settings
from ..errors import ArgumentError
from ..profile_session import profile
from ..program import check as check_program
from ..program import run as run_program
from ..recording import SUFFIX, open_recording
from ..report import as_json as summary_json
from ..report import print_summary
from .group import main, printing_to_stderr


@main.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record into this file. [default: PROGRAM.ostinato]",
)
@click.option(
    "--level",
    type=click.Choice(["dispatches", "command_buffers"]),
    default="dispatches",
    show_default=True,
    help="What to time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; what the program prints goes to standard error.")
def profile_command(program: str, arguments: tuple[str, ...], output: Path | None, level: str, as_json: bool) -> None:
    """Run a program, record what it submits, and say where the time goes.

    PROGRAM is a script or module:function. It runs as it would by itself: a commit stays asynchronous, and what runs at
    the same time still does. The recording is written while it runs, so it is there even if the program is killed.
    The exit status is the program's own.

    \b
    Examples:
      ostinato profile decode.py --tokens 100
      ostinato profile -o before.ostinato package.module:main
    """
    check_settings()
    try:
        check_program(program)  # before an earlier recording is replaced
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    path = output or Path(Path(program.partition(":")[0]).stem + SUFFIX)
    with printing_to_stderr() if as_json else nullcontext(), profile(level=level, path=path):
        status = run_program(program, arguments)
    with open_recording(path) as recording:
        summary = summarise(recording)
    if as_json:
        click.echo(summary_json(summary))
    else:
        click.echo(f"\nrecorded in {path}; timeline: ostinato report {path} --trace trace.json\n")
        print_summary(summary)
    sys.exit(status)
