"""`ostinato demo`: run a small decoder, check it against NumPy and profile it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from .. import demo as demonstration
from ..device import open_device
from ..profiling.analyse import columns_of
from ..profiling.recording import open_recording
from ..profiling.report import print_summary
from ..profiling.report.page import save_page
from .group import busy_after, main
from .output import FORCE_HELP, recording_to_make, refuse_page


@main.command("demo")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
@click.option("--slow-topk", is_flag=True, help="Choose experts with a slow serial kernel, for the profile to find.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the recording to this file. [default: demo.ostinato, or demo-2.ostinato … if it exists]",
)
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write the report as a page for a browser."
)
@click.option("--force", is_flag=True, help=FORCE_HELP)
def demo_command(device_name: str, slow_topk: bool, output: Path | None, html: Path | None, force: bool) -> None:
    """Generate tokens with a small mixture of experts, profile it, and name the kernel to look at first."""
    if html is not None:
        refuse_page(html)
    path = recording_to_make(output, "demo", force)
    with busy_after("demo", seconds=0.5) as say, open_device(device_name) as device:
        title = escape(repr(device))
        result = demonstration.run(device, path, slow_topk, say)
    console = Console()
    console.print(f"{title}\n")
    console.print(
        f"{demonstration.PRESET}, random weights: {len(result.tokens)} tokens at {result.tokens_per_s:,.0f} per second,"
        f" {result.dispatches} dispatches each; same as NumPy: "
        + ("[green]yes[/green]" if result.correct else "[red]NO[/red]"),
        highlight=False,
    )
    click.echo(f"recorded in {path}; to see it again: ostinato report {path} (--trace trace.json for a timeline)\n")
    print_summary(result.summary)
    if html is not None:
        with open_recording(path) as recording:
            save_page(columns_of(recording), html, result.summary)
        click.echo(f"\npage written to {html}; open it in a browser")
    if not result.correct:
        sys.exit(1)
