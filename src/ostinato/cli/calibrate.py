"""`ostinato calibrate`: the overheads of a device, and its ceilings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..device import check_settings, open_device
from ..measure.spreads import LEAST_PROCESSES, RowSpread, calibrate_processes
from ..profiling.analyse.formatting import percent
from ..profiling.analyse.statistics import Interval
from ..profiling.calibration import LEAST_R_SQUARED, Calibration, calibrate
from ..profiling.ceilings import Ceilings
from .group import main, still_line

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@main.command("calibrate")
@click.option("--device", "device_name", default="auto", show_default=True, help="Measure this device.")
@click.option("--repetitions", type=click.IntRange(3), default=9, show_default=True, help="Repetitions per median.")
@click.option(
    "--processes",
    type=click.IntRange(LEAST_PROCESSES),
    metavar="N",
    help="Also measure how much N processes of one program differ, for ostinato compare.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def calibrate_command(device_name: str, repetitions: int, processes: int | None, as_json: bool) -> None:
    """Measure the overhead of dispatches, command buffers, barriers and timestamps, and the ceilings of the device.

    Host times are medians of the repetitions with 95 % intervals; the first repetition is a warm-up. The device time
    of a replay is a fit to the medians of graphs of many sizes, with five times as many repetitions each. The ceilings
    (copy bandwidth, arithmetic) are the best rates measured on this device so far. They are stored for reports, and
    another calibration can only raise them. The lowest median seen so far is kept as the cost of a timestamp.

    Takes a second or two on a CPU, longer with more repetitions or on a busy machine.

    With --processes, a fixed workload runs in N processes, about a second each. How much their medians differ is stored
    with those of earlier calibrations (the newest 60 processes count); calibrate at several times of day. It tells
    ostinato compare when single recordings differ by more than processes of the same program do.

    \b
    Examples:
      ostinato calibrate --json > calibration.json
      ostinato calibrate --processes 20
    """
    check_settings()
    with open_device(device_name) as device:
        columns = (TextColumn("calibrating: {task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as steps:
            task = steps.add_task("", total=None)

            def progress(what: str, done: int, total: int) -> None:
                steps.update(task, description=what, completed=done, total=total)

            calibration = calibrate(device, repetitions, progress)
        name = device.name
    spreads: Sequence[RowSpread] = ()
    if processes is not None:
        with still_line() as show:
            spreads = calibrate_processes(name, processes, show)
    if as_json:
        click.echo(json.dumps(as_dict(calibration, spreads), indent=2))
    else:
        _show(calibration)
        _show_spreads(spreads)


def as_dict(calibration: Calibration, spreads: Sequence[RowSpread]) -> dict[str, Any]:
    """What `--json` prints."""
    return {**asdict(calibration), "process_spreads": [asdict(row) for row in spreads]}


def _show(calibration: Calibration) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(f"{calibration.device}: {calibration.description}\n")
    table = _table("One list of dispatches", "dispatches", "encode", "commit and wait", "encode per dispatch")
    for row in calibration.dispatch_table:
        table.add_row(
            f"{row.dispatches:,}",
            interval_text(row.encode_ns),
            interval_text(row.commit_and_wait_ns),
            time_text(row.encode_ns_per_dispatch),
        )
    console.print(table)
    table = _table("Command buffers of one dispatch each", "buffers", "encode only", "async", "sync")
    for line in calibration.buffer_table:
        regimes = (line.encode_only_ns, line.async_ns, line.sync_ns)
        table.add_row(f"{line.buffers:,}", *(interval_text(regime) for regime in regimes))
    console.print(table)
    table = _table("Single costs", "what", "time (95 %)", "how")
    best, model = calibration.ceilings, calibration.model
    for what, cost in (
        ("record a barrier", calibration.barrier_ns),
        ("one more buffer in a dispatch", calibration.binding_ns),
        ("a switch to another kernel", calibration.pipeline_switch_ns),
    ):
        table.add_row(what, interval_text(cost), "host, median")
    table.add_row("the timestamps of a dispatch", _timestamp(best), "device, best median")
    fit = "device, fit" if model.describes else "device, poor fit"
    for what, cost in (
        ("a replay", model.constant_ns),
        ("a dispatch that waits for another", model.waiting_ns),
        ("a dispatch that waits for none", model.free_ns),
    ):
        table.add_row(what, interval_text(cost), fit)
    console.print(table)
    explained = f"{max(model.r_squared, 0.0):.1%} of the variance of the medians of replays"
    if model.describes:
        console.print(f"the fit explains {explained}")
    else:
        console.print("the fit is too poor for predictions:")
        console.print(f"it explains {explained}, less than {LEAST_R_SQUARED:.0%}")
    console.print("ceilings (best rates measured on this device so far):")
    for what, rate, unit, spread, measured in (
        ("a copy", best.copy_bytes_per_s, "GB/s", best.copy_spread, best.copy_measured),
        ("arithmetic", best.flops_per_s, "Gflop/s", best.flops_spread, best.flops_measured),
    ):
        console.print(
            f"  {what}: {digits(rate / 1e9)} {unit} (best three rounds within {spread:.0%}; {measured[:10]} UTC)"
        )


def _show_spreads(spreads: Sequence[RowSpread]) -> None:
    if not spreads:
        return
    table = _table(
        "How much processes of one program differ", "what", "median", "processes", "deviation", "95 % of pairs"
    )
    for row in spreads:
        table.add_row(
            row.name, time_text(row.median_ns), f"{row.processes}", percent(row.deviation), percent(row.two_recordings)
        )
    console = Console(highlight=False, markup=False, emoji=False)
    console.print()
    console.print(table)
    console.print("95 % of pairs of single recordings of one program differ by less than the last column")
    if min(row.calibrations for row in spreads) == 1:
        console.print("one calibration does not show what changes over hours; calibrate again at another time of day")


def _timestamp(best: Ceilings) -> str:
    if best.timestamp_low_ns is None or best.timestamp_high_ns is None:
        return f"{time_text(best.timestamp_ns)} (no interval)"
    return interval_text(Interval(best.timestamp_ns, best.timestamp_low_ns, best.timestamp_high_ns))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in columns:
        table.add_column(heading, justify="left" if heading in ("what", "how") else "right")
    return table


def interval_text(interval: Interval) -> str:
    """A time in ns with its interval as text, in the unit of the largest of the three numbers."""
    scale, unit = _unit(interval.estimate, interval.low, interval.high)
    return (
        f"{digits(interval.estimate / scale)} {unit} ({digits(interval.low / scale)} … {digits(interval.high / scale)})"
    )


def time_text(ns: float) -> str:
    """A time in ns as text, with its unit."""
    scale, unit = _unit(ns)
    return f"{digits(ns / scale)} {unit}"


def _unit(*values: float) -> tuple[float, str]:
    largest = max(abs(value) for value in values)
    return next((unit for unit in _UNITS if largest >= unit[0]), _UNITS[-1])


def digits(value: float) -> str:
    """Three significant digits, with thousands separators and without exponent; 0 below a thousandth."""
    if not math.isfinite(value):
        return "—"
    if abs(value) < 0.001:
        return "0"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(2 - math.floor(math.log10(abs(rounded))), 0)}f}"
