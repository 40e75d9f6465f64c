"""`ostinato profile`: run a program and record it."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from ..device import check_settings
from ..errors import ArgumentError
from ..profiling.analyse import summarise
from ..profiling.recording import open_recording
from ..profiling.report import as_json as summary_json
from ..profiling.report import print_summary
from ..profiling.session import profile
from ..program import as_main
from ..program import parse as parse_program
from ..program import run as run_program
from .group import main, printing_to_stderr
from .output import FORCE_HELP, recording_to_make

_OTHERWISE = "start it with OSTINATO_PROFILE=1 in its environment, which records every Python process that it starts"


@main.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module; run it as python -m does.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Record into this file. [default: PROGRAM.ostinato, with a number if that is there]",
)
@click.option("--force", is_flag=True, help=FORCE_HELP)
@click.option(
    "--level",
    type=click.Choice(["dispatches", "command_buffers"]),
    default="dispatches",
    show_default=True,
    help="What to time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; what the program prints goes to standard error.")
def profile_command(
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    output: Path | None,
    force: bool,
    level: str,
    as_json: bool,
) -> None:
    """Run a program, record what it submits, and say where the time goes.

    PROGRAM is a Python script or module:function; with -m, a module. "python script.py" and "python -m module" work
    too, and are run by the interpreter that ostinato is installed in. The program runs as it would by itself: a commit
    stays asynchronous, and what runs at the same time still does. The recording is written while it runs, so it is
    there even if the program is killed. The exit status is the program's own.

    Options come before PROGRAM; what follows belongs to the program.

    \b
    Examples:
      ostinato profile decode.py --tokens 100
      ostinato profile -o before.ostinato -m package.tool --steps 3
      ostinato profile package.module:main
    """
    check_settings()
    try:
        found = parse_program(program, arguments, as_module, otherwise=_OTHERWISE)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    path = recording_to_make(output, found.name, force)
    output_of_program = printing_to_stderr() if as_json else nullcontext()
    with output_of_program, as_main(found), profile(level=level, path=path):
        status = run_program(found)
    with open_recording(path) as recording:
        summary = summarise(recording)
    if as_json:
        click.echo(summary_json(summary))
    else:
        click.echo(f"\nrecorded in {path}; timeline: ostinato report {path} --trace trace.json\n")
        print_summary(summary)
    sys.exit(status)
