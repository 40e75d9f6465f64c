"""`ostinato report`, `merge` and `upgrade`: recordings as tables, JSON and traces, and written anew."""

from __future__ import annotations

from pathlib import Path

import click

from ..base.printable import printable
from ..errors import ArgumentError
from ..profiling.analyse import columns_of, formatting, summarise
from ..profiling.recording import expand, merge, open_recording, upgrade
from ..profiling.report import DEFAULT_GROUPINGS, GROUPINGS, console, print_summary, write_trace
from ..profiling.report import as_json as summary_json
from ..profiling.report.page import save_page
from ..profiling.report.terminal import NARROWEST
from .group import busy_after, main
from .output import FORCE_HELP, refuse_existing, refuse_page, refuse_recording

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@main.command("report")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--html", type=_NEW_FILE, help="Also write a page for a browser: timeline, kernels, roofline, graph.")
@click.option("--without-source", is_flag=True, help="Leave the source texts of kernels out of the page.")
@click.option("--trace", type=_NEW_FILE, help="Also write a timeline for Perfetto or Chrome.")
@click.option("--tables", is_flag=True, help="Also expand the samples into plain SQL tables, for other tools.")
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(list(GROUPINGS)),
    default=DEFAULT_GROUPINGS,
    show_default=True,
    help="Group dispatches by this; may be repeated.",
)
@click.option(
    "--width",
    type=click.IntRange(NARROWEST),
    help="Width of tables in characters. [default: the terminal's width]",
)
@click.option("--per", metavar="REGION", help="Show figures per instance of this region. [default: the most frequent]")
def report_command(
    file: Path,
    as_json: bool,
    html: Path | None,
    without_source: bool,
    trace: Path | None,
    tables: bool,
    by: tuple[str, ...],
    per: str | None,
    width: int | None,
) -> None:
    """Show where the time of a recording went.

    \b
    Examples:
      ostinato report run.ostinato
      ostinato report run.ostinato --by shape --by op
      ostinato report run.ostinato --width 160 | less -S
      ostinato report merged.ostinato --by rank        (or host, or process; see ostinato merge)
      ostinato report run.ostinato --per layer         (with ostinato.region("layer") in the program)
      ostinato report run.ostinato --json | jq .suspects
      ostinato report run.ostinato --html run.html     (one file; needs no network)
      ostinato report run.ostinato --trace run.json    (open it at ui.perfetto.dev)
    """
    if without_source and html is None:
        raise click.UsageError("--without-source is about the page that --html writes")
    if html is not None:
        refuse_page(html)
    if trace is not None:
        refuse_recording(trace)
    with busy_after("reading") as progress:
        if tables:
            progress("plain tables")
            expand(file)
        with open_recording(file) as recording:
            columns = columns_of(recording)
        if trace is not None:
            progress("timeline")
            events = write_trace(columns, trace)
        progress("summary")
        try:
            summary = summarise(columns, per)
        except ArgumentError as error:
            raise click.BadParameter(printable(str(error)), param_hint="--per") from None
        if html is not None:
            progress("page")
            size = save_page(columns, html, summary, with_source=not without_source)
    if as_json:
        click.echo(summary_json(summary))
        return
    print_summary(summary, console(width=width), by)
    if trace is not None:
        click.echo(f"{events:,} events in {trace}", err=True)
    if html is not None:
        click.echo(f"{formatting.size(size)} in {html}; open it in a browser", err=True)


@main.command("merge")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("-o", "--output", required=True, type=_NEW_FILE, help="File for the merged recording.")
@click.option("--force", is_flag=True, help=FORCE_HELP)
@click.option(
    "--wall-clock-error-ns",
    type=click.IntRange(0),
    metavar="NS",
    help="Largest difference between the wall clocks of the machines.",
)
def merge_command(files: tuple[Path, ...], output: Path, force: bool, wall_clock_error_ns: int | None) -> None:
    """Merge the recordings of several processes into one, on one clock.

    Recordings from different machines, or from before and after a reboot, have only the wall clock in common. They are
    merged only with --wall-clock-error-ns, which states how far apart the wall clocks may be.

    \b
    Examples:
      ostinato merge worker-*.ostinato -o all.ostinato
      ostinato merge node*.ostinato -o all.ostinato --wall-clock-error-ns 50000
      ostinato report all.ostinato --by rank
    """
    refuse_existing(output, force)
    with busy_after("merging"):
        merge(files, output, wall_clock_error_ns=wall_clock_error_ns)
    click.echo(f"{len(files)} recordings merged into {output}; to see it: ostinato report {output}")


@main.command("upgrade")
@click.argument("file", type=_FILE)
@click.option("-o", "--output", type=_NEW_FILE, help="The recording to make. [default: FILE itself]")
@click.option("--force", is_flag=True, help=FORCE_HELP)
def upgrade_command(file: Path, output: Path | None, force: bool) -> None:
    """Rewrite a recording of an older version as one of this version.

    Older recordings are read as they are; other tools may want the tables of this version. What the older version did
    not record stays unrecorded. FILE is replaced in one step when the new one is complete, and kept if anything fails.

    \b
    Examples:
      ostinato upgrade run.ostinato
      ostinato upgrade run.ostinato -o run-new.ostinato
    """
    if output is not None:
        refuse_existing(output, force)
    with busy_after("upgrading") as progress:
        before, after = upgrade(file, output, progress=progress)
    if before == after:
        click.echo(f"{file} is of version {after} already; nothing was written")
    else:
        click.echo(f"{output or file} is of version {after} now; it was of version {before}")
