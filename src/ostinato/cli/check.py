"""`ostinato check`: run a program and audit what it submits."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console

from .. import settings
from ..audit import check as checking
from ..audit import table as audit_table
from ..audit.checked import Requested
from ..audit.families import FAMILIES
from ..audit.known import read_table
from ..audit.sarif import sarif
from ..base.files import write_whole
from ..device import check_settings
from ..errors import ArgumentError
from ..program import parse as parse_program
from ..program import run as run_program
from .group import busy_after, main, printing_to_stderr
from .output import refuse_page


@main.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-m", "as_module", is_flag=True, help="PROGRAM is a module; run it as python -m does.")
@click.option("--structure-only", is_flag=True, help="Check barriers and limits only; do not run lists on copies.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Concurrent runs of each list.")
@click.option(
    "--max-lists", type=click.IntRange(1), default=64, show_default=True, help="Check at most this many lists."
)
@click.option(
    "--max-values",
    type=click.IntRange(0),
    default=256,
    show_default=True,
    help="Check at most this many sets of values per list.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="Time limit for one command, in seconds; the program is stopped before it runs a slower one.",
)
@click.option(
    "--as",
    "limits",
    metavar="FAMILY",
    type=click.Choice(list(FAMILIES)),
    help="Also check the limits of a GPU family of Apple: " + ", ".join(FAMILIES) + ".",
)
@click.option(
    "--ignore",
    "table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A table of known findings to ignore, in TOML.",
)
@click.option("--strict", is_flag=True, help="Notes count as errors for the exit status.")
@click.option("--all", "everything", is_flag=True, help="Print the findings that are ignored, too.")
@click.option("--nan", is_flag=True, help="Find the operation that made an output NaN or infinite (x86-64).")
@click.option("--overflow", is_flag=True, help="Find overflow of signed integers.")
@click.option("--unwritten", is_flag=True, help="Note elements of outputs that no thread wrote.")
@click.option("--why", is_flag=True, help="Print the reason for each inferred barrier.")
@click.option(
    "--coverage",
    type=click.Path(dir_okay=False),
    help="Write which lines of the kernels ran to this file, for lcov and what reads it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the program's output goes to standard error.")
@click.option(
    "--sarif",
    "sarif_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the findings to a file, as SARIF for code scanning.",
)
def check_command(
    program: str,
    arguments: tuple[str, ...],
    as_module: bool,
    structure_only: bool,
    repeats: int,
    max_lists: int,
    max_values: int,
    limit_s: float,
    limits: str | None,
    table: Path | None,
    strict: bool,
    everything: bool,
    nan: bool,
    overflow: bool,
    unwritten: bool,
    why: bool,
    coverage: str | None,
    as_json: bool,
    sarif_path: Path | None,
) -> None:
    """Run a program and check every command list that it submits.

    PROGRAM is a Python script or module:function; with -m, a module. The check finds missing and redundant barriers,
    undeclared and out-of-bounds accesses, races, and wrong numbers. Each list runs on the CPU, on a copy of its memory,
    before the program runs it. When a list comes again with other values passed to its kernels, these kernels are
    checked again; with the same values it is not.

    The exit status is 1 if there are errors (with --strict, if there are notes), otherwise the program's own. A comment
    `// ostinato: benign KIND: reason` at the line of a finding, or a table, makes it a known one, which is ignored.

    \b
    Examples:
      ostinato check train.py --steps 3
      ostinato check -m package.tool --steps 3
      ostinato check --structure-only package.module:main
      ostinato check --as apple7 --strict --sarif findings.sarif train.py
    """
    check_settings()
    folder = Path.cwd()  # the program may change it
    if sarif_path is not None:
        refuse_page(sarif_path)
    options = checking.Options(
        run=not structure_only,
        repeats=repeats,
        max_lists=max_lists,
        max_values=max_values,
        limit_s=limit_s,
        limits=limits,
        ignore=() if table is None else read_table(table),
        requested=Requested(nan=nan, overflow=overflow, unwritten=unwritten),
    )
    watcher = checking.Watcher(options, busy_after)
    try:
        parsed = parse_program(program, arguments, as_module)
    except ArgumentError as error:
        raise click.BadParameter(str(error), param_hint="PROGRAM") from None
    if coverage is not None and structure_only:
        raise click.UsageError("--coverage needs kernels that run: leave out --structure-only")
    counting = nullcontext() if coverage is None else settings.override(coverage=coverage)
    with printing_to_stderr() if as_json else nullcontext(), counting, watcher.installed():
        status = run_program(parsed)
    if coverage is not None:
        from ..backends.cpu import line_counts

        ran, lines = line_counts.write(coverage)
        click.echo(f"{coverage}: {ran} of {lines} lines of the kernels ran", err=True)
    if watcher.crash is not None:
        raise watcher.crash
    result = watcher.result(status)
    if sarif_path is not None:
        log = sarif(result.findings, result.ignored, folder, result.coverage)
        write_whole(folder / sarif_path, json.dumps(log, indent=2).encode())
    if as_json:
        click.echo(json.dumps(audit_table.plain(result), indent=2))
    else:
        Console().print(audit_table.checked(result, why, everything))
    failed = not result.ok or (strict and result.findings)
    sys.exit(1 if failed else result.status)
