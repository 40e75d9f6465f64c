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

_OTHERWISE = "set OSTINATO_PROFILE=1 in its environment, which records every Python process that it starts"


@main.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module; run it as python -m does.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the recording to this file. [default: PROGRAM.ostinato, or PROGRAM-2.ostinato … if it exists]",
)
@click.option("--force", is_flag=True, help=FORCE_HELP)
@click.option(
    "--level",
    type=click.Choice(["dispatches", "command_buffers"]),
    default="dispatches",
    show_default=True,
    help="What to time.",
)
@click.option("--with-source", is_flag=True, help="Record the source texts of the kernels, for reports to show.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the program's output goes to standard error.")
def profile_command(
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    output: Path | None,
    force: bool,
    level: str,
    with_source: bool,
    as_json: bool,
) -> None:
    """Run a program, record what it submits, and show where the time goes.

    PROGRAM is a Python script or module:function; with -m, a module. "python script.py" and "python -m module" work
    too, and run in ostinato's own interpreter. Profiling keeps commits asynchronous and concurrent work concurrent. The
    recording is written while the program runs, so it survives a program that is killed. The exit status is the
    program's own.

    Options come before PROGRAM; what follows are the program's arguments.

    \b
    Examples:
      ostinato profile decode.py --tokens 100
      ostinato profile -o before.ostinato -m package.tool --steps 3
      ostinato profile package.module:main
    """
    check_settings()
    try:
        parsed = parse_program(program, arguments, as_module, otherwise=_OTHERWISE)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    path = recording_to_make(output, parsed.name, force)
    output_of_program = printing_to_stderr() if as_json else nullcontext()
    with output_of_program, as_main(parsed), profile(level=level, path=path, with_source=with_source):
        status = run_program(parsed)
    with open_recording(path) as recording:
        summary = summarise(recording)
    if as_json:
        click.echo(summary_json(summary))
    else:
        click.echo(f"\nrecorded in {path}; timeline: ostinato report {path} --trace trace.json\n")
        print_summary(summary)
    sys.exit(status)
