"""`ostinato calibrate`: what work costs on a device before any kernel does something useful."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..analyse.statistics import Interval
from ..calibrate import Calibration, calibrate
from ..device import check_settings, open_device
from .group import main


@main.command("calibrate")
@click.option("--device", "device_name", default="auto", show_default=True, help="Measure this device.")
@click.option("--repetitions", type=click.IntRange(3), default=9, show_default=True, help="Of every figure.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def calibrate_command(device_name: str, repetitions: int, as_json: bool) -> None:
    """Measure what dispatches, command buffers, barriers and timestamps cost, and the ceilings of the device.

    Figures are medians with 95 % intervals; the first repetition is thrown away. The ceilings are remembered for
    reports.

    \b
    Example:
      ostinato calibrate --json > calibration.json
    """
    check_settings()
    with open_device(device_name) as device:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        steps = Progress(*columns, console=Console(stderr=True), transient=True)
        with steps:
            task = steps.add_task("calibrating")
            found = calibrate(device, repetitions, lambda what: steps.update(task, description=f"calibrating: {what}"))
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        _show(found)


def _show(found: Calibration) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"{found.device}: {found.description}\n")
    table = _table("One list of dispatches", "dispatches", "encode", "commit and wait", "encode a dispatch")
    for row in found.dispatch_table:
        table.add_row(
            f"{row.dispatches:,}",
            _time(row.encode_ns),
            _time(row.commit_and_wait_ns),
            f"{row.encode_ns_per_dispatch / 1000:.2f} µs",
        )
    console.print(table)
    table = _table("Command buffers of one dispatch, each", "buffers", "encode only", "async", "sync")
    for line in found.buffer_table:
        table.add_row(f"{line.buffers:,}", _time(line.encode_only_ns), _time(line.async_ns), _time(line.sync_ns))
    console.print(table)
    table = _table("Single costs", "what", "time (95 %)")
    constant, each, waits = found.model.coefficients
    for what, cost in (
        ("record a barrier", found.barrier_ns),
        ("one more buffer in a dispatch", found.binding_ns),
        ("another kernel than the one before", found.pipeline_switch_ns),
        ("a replay, on the device", constant),
        ("a dispatch in it", each),
        ("that waits for another", waits),
    ):
        table.add_row(what, _time(cost))
    table.add_row("the timestamps of a dispatch", f"{found.ceilings.timestamp_ns:.0f} ns")
    console.print(table)
    best = found.ceilings
    console.print(
        f"ceilings: a copy at {best.copy_bytes_per_s / 1e9:.1f} GB/s (rounds differ by {best.copy_spread:.0%}),"
        f" {best.flops_per_s / 1e9:.1f} Gflop/s ({best.flops_spread:.0%})"
    )
    console.print(f"the linear model of replays explains {found.model.r_squared:.1%} of their variance")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(columns):
        table.add_column(heading, justify="left" if number == 0 and heading == "what" else "right")
    return table


def _time(one: Interval) -> str:
    scale, unit = (1e6, "ms") if one.estimate >= 1e6 else (1e3, "µs") if abs(one.estimate) >= 1e3 else (1.0, "ns")
    return f"{one.estimate / scale:.3g} {unit} ({one.low / scale:.3g} … {one.high / scale:.3g})"
