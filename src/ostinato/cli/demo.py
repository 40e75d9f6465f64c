"""`ostinato demo`: a few kernels, checked against NumPy and profiled."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import demo as demonstration
from ..device import open_device
from ..report import print_summary
from .group import busy, main


@main.command("demo")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.ostinato"),
    show_default=True,
    help="Record into this file.",
)
def demo_command(device_name: str, output: Path) -> None:
    """Run a few Metal kernels, check them against NumPy, and say which to look at first."""
    with busy("compiling and running"), open_device(device_name) as device:
        title = escape(repr(device))
        rows, summary = demonstration.run(device, output)
    console = Console()
    console.print(f"{title}\n")
    table = Table(box=None, pad_edge=False)
    for heading in ("kernel", "does", "same as NumPy"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row.kernel, row.purpose, "[green]yes[/green]" if row.correct else "[red]NO[/red]")
    console.print(table)
    click.echo(f"\nrecorded in {output}; again: ostinato report {output}\n")
    print_summary(summary)
    if not all(row.correct for row in rows):
        sys.exit(1)
