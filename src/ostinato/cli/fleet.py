"""`ostinato fleet`: the recordings of many machines in one store, and what they say together."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..base.printable import printable
from ..profiling import fleet
from ..profiling.analyse import formatting
from ..profiling.fleet import shown
from ..profiling.report import console
from ..profiling.report.terminal import NARROWEST
from .group import busy_after, main
from .output import refuse_page

_ENGINE = click.option(
    "--engine",
    "engine_name",
    default="local",
    show_default=True,
    metavar="ENGINE",
    help="Where the work is done: local, local:N (N processes), or dask://HOST:PORT.",
)
_MOST_NAMED = 10


@main.group("fleet")
def fleet_group() -> None:
    """Keep the recordings of many machines in a store, and ask it what the fleet does.

    STORE is a folder, or a URL that fsspec opens, such as s3://bucket/fleet. Credentials come from the environment.

    \b
    Examples:
      ostinato fleet add runs/ --to /data/fleet
      ostinato fleet compact /data/fleet
      ostinato fleet report /data/fleet --since 2026-11-01
    """


@fleet_group.command("add")
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--to", "store", required=True, metavar="STORE", help="The store; made if it is not there.")
@_ENGINE
def add_command(recordings: tuple[Path, ...], store: str, engine_name: str) -> None:
    """Add recordings, or all in a folder, to a store. Each is added once, however often it is given.

    A recording that is damaged, still being written or something else is set aside: the reason is shown and kept in
    the store, and the file stays where it is. Several may add at the same time. After a kill, add again.

    \b
    Examples:
      ostinato fleet add runs/*.ostinato --to /data/fleet
      ostinato fleet add /shared/runs --to s3://bucket/fleet --engine dask://scheduler:8786
    """
    with fleet.engine(engine_name) as engine, busy_after("adding") as progress:
        added = fleet.add(recordings, store, engine, progress)
    what = formatting.count(added.recordings, "recording")
    click.echo(f"{what} added with {formatting.count(added.samples, 'sample')}; {added.known:,} there before")
    if added.aside:
        click.echo(f"{formatting.count(len(added.aside), 'recording')} set aside:", err=True)
        for each in added.aside[:_MOST_NAMED]:
            click.echo(f"  {printable(each.file)}: {printable(each.reason)}", err=True)
        if len(added.aside) > _MOST_NAMED:
            click.echo(f"  … and {len(added.aside) - _MOST_NAMED:,} more", err=True)


@fleet_group.command("compact")
@click.argument("store")
@click.option("--sweep", is_flag=True, help="Also remove files that killed writers left; nobody may be adding.")
@_ENGINE
def compact_command(store: str, sweep: bool, engine_name: str) -> None:
    """Merge the small files of a store: at most one file per 64 MB, table, day and device stays.

    \b
    Examples:
      ostinato fleet compact /data/fleet
      ostinato fleet compact s3://bucket/fleet --engine dask://scheduler:8786
    """
    with fleet.engine(engine_name) as engine, busy_after("merging") as progress:
        done = fleet.compact(store, engine, progress, sweep=sweep)
    sizes = f"{formatting.size(done.bytes_before)} before, {formatting.size(done.bytes_after)} now"
    click.echo(f"{done.before:,} files before, {done.after:,} now; {sizes}")
    if sweep:
        click.echo(f"{formatting.count(done.swept, 'file')} that counted for nothing removed")


@fleet_group.command("report")
@click.argument("store")
@click.option("--since", metavar="DAY", help="Only runs that began since a day (2026-11-01), or some days ago (14d).")
@click.option("--device", metavar="TEXT", help="Only devices with this in their description.")
@click.option("--kernel", metavar="NAME", help="Only this kernel, at all of its versions.")
@click.option("--program", metavar="TEXT", help="Only programs with this in their command line.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page for a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--sql", metavar="QUERY", help="Print the answer to one SELECT over runs, kernels and samples instead.")
@click.option("--width", type=click.IntRange(NARROWEST), help="Width of tables. [default: the terminal's width]")
@_ENGINE
def report_command(
    store: str,
    since: str | None,
    device: str | None,
    kernel: str | None,
    program: str | None,
    html: Path | None,
    as_json: bool,
    sql: str | None,
    width: int | None,
    engine_name: str,
) -> None:
    """Report on a store: changes of kernels with the revision they began at, slow hosts and ranks, what is missing.

    \b
    Examples:
      ostinato fleet report /data/fleet --since 14d --device H200
      ostinato fleet report /data/fleet --kernel matvec_half --html matvec.html
      ostinato fleet report s3://bucket/fleet --json | jq .changes
      ostinato fleet report /data/fleet --sql "SELECT device, revision, median(duration_ns) FROM samples
        JOIN runs USING (run) WHERE kernel = 'matvec_half' GROUP BY ALL"
    """
    if html is not None:
        refuse_page(html)
    if sql is not None:
        if html is not None or any(option is not None for option in (since, device, kernel, program)):
            raise click.UsageError("--sql says by itself what it asks for; of the other options it takes --json")
        answer = fleet.query(fleet.open_store(store), sql)
        if as_json:
            rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
            click.echo(json.dumps(rows, indent=2, default=str))
        else:
            shown.print_answer(answer, console(width=width))
        return
    wanted = fleet.Wanted(None if since is None else fleet.since(since), device, kernel, program)
    with fleet.engine(engine_name) as engine, busy_after("reading"):
        report = fleet.report(store, engine, wanted)
        size = 0 if html is None else shown.save_page(report, html)
    if as_json:
        click.echo(fleet.as_json(report))
    else:
        shown.print_report(report, console(width=width))
    if html is not None:
        click.echo(f"{formatting.size(size)} in {html}; open it in a browser", err=True)
