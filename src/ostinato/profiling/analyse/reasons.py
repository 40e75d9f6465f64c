"""Why a kernel is slow, in words, and what it reached: of all its dispatches on a device."""

from __future__ import annotations

import numpy as np

from . import formatting
from .attainable import LAUNCH_NS, LEAST_REFERENCE, MOST_REFERENCE, REFERENCE_ALONE
from .columns import Columns, Device, Floats, Ints
from .roofline import Rates

_NEARLY_ALL, _SOME = 0.9, 0.25
"""Of a kernel's time: what holds for so much of it is said of all, and for so much of it with the part."""


def reasons(columns: Columns, device: Device, reached: Rates, rows: Ints, p50_ns: float) -> list[str]:
    """Why a kernel is slow, as far as the recording tells: of all its dispatches."""
    found = []
    spent = reached.total_ns[rows]
    shape = _few_groups(columns, device, rows, spent)
    if shape:
        found.append(shape)
    if p50_ns < LAUNCH_NS:
        found.append(f"launch-bound: {formatting.time(p50_ns)} a dispatch")
    found.append(_speed(columns, reached, rows, p50_ns))
    return found


def _few_groups(columns: Columns, device: Device, rows: Ints, spent: Floats) -> str:
    """That too few threadgroups were dispatched to fill the device, and in how much of the kernel's time."""
    commands = columns.commands
    groups = commands.groups[rows]
    few = (commands.kind[rows] == "dispatch") & (groups < (device.workers or 2))
    part = float(spent[few].sum() / spent.sum()) if spent.sum() > 0 else 0.0
    if part < _SOME:
        return ""
    threads = np.minimum(commands.group[rows].prod(axis=1), commands.threads[rows].prod(axis=1))
    shapes = {(int(g), int(t)) for g, t in zip(groups[few].tolist(), threads[few].tolist(), strict=True)}
    if len(shapes) == 1:
        ((count, size),) = shapes
        told = f"{formatting.count(count, 'threadgroup')} of {formatting.count(size, 'thread')}"
    else:
        told = f"{formatting.count(int(groups[few].min()), 'threadgroup')} or a few more"
    where = f" on a device with {formatting.count(device.workers, 'worker')}" if device.workers else ""
    return f"{told}{where}" + ("" if part >= _NEARLY_ALL else f" in {formatting.percent(part)} of its time")


def _speed(columns: Columns, reached: Rates, rows: Ints, p50_ns: float) -> str:
    """How fast all its dispatches together moved bytes or computed."""
    commands, spent = columns.commands, reached.total_ns
    whole = float(spent[rows].sum())
    moving, computing = rows[~np.isnan(reached.bytes_moved[rows])], rows[~np.isnan(reached.flops[rows])]
    if float(spent[np.union1d(moving, computing)].sum()) < 0.5 * whole:
        refuted = rows[reached.refuted[rows]]
        if refuted.size == 0:
            return "efficiency not known: its bytes are neither declared nor bound"
        row = refuted[spent[refuted].argmax()]
        amount = formatting.size(float(commands.bytes_read[row] + commands.bytes_written[row]))
        took = formatting.time(p50_ns)
        return f"efficiency not known: bound to {amount}, more than it is likely to move in {took}; declare its bytes"
    bandwidth = _together(reached.bandwidth_efficiency, reached, moving)
    flops = _together(reached.flop_efficiency, reached, computing)
    rate = rate_of(reached.bytes_moved, reached, rows)
    at_most = "at most " if reached.bound[moving].any() else ""
    if flops is not None and not (bandwidth is not None and flops < bandwidth):
        return f"computes at {formatting.percent(flops)} of the peak flop rate"
    if bandwidth == 0 or rate == 0:
        return "moves no bytes that were declared"
    if bandwidth is not None:
        return f"moves {at_most}{formatting.percent(bandwidth, at_most != '')} of copy bandwidth"
    if rate is None:
        return "efficiency not known: there is no ceiling to hold it against"
    return f"moves {at_most}{formatting.byte_rate(rate)}"


def _together(efficiency: Floats, reached: Rates, rows: Ints) -> float | None:
    """The efficiency of several commands by their time; None where none is known."""
    known = rows[~np.isnan(efficiency[rows])]
    total = float(reached.total_ns[known].sum())
    return float((efficiency[known] * reached.total_ns[known]).sum()) / total if total > 0 else None


def measure(device: Device, calibrated: bool, bounds: bool, began_ns: int | None) -> str:
    if not calibrated:
        return (
            "no ceilings were measured on this device (`ostinato calibrate` does): "
            "kernels are held against the bandwidth of the others"
        )
    parts = []
    if device.copy_bytes_per_s:
        known = _how_known(device.copy_spread, device.copy_measured_ns, began_ns)
        parts.append(f"a copy at {formatting.byte_rate(device.copy_bytes_per_s)}{known}")
    if device.flops_per_s:
        known = _how_known(device.flops_spread, device.flops_measured_ns, began_ns)
        parts.append(f"{formatting.flop_rate(device.flops_per_s)}{known}")
    low, high, alone = (formatting.whole_percent(one) for one in (LEAST_REFERENCE, MOST_REFERENCE, REFERENCE_ALONE))
    return (
        f"of the ceilings measured on this device: {' and '.join(parts)}; held against the median of the other kernels,"
        f" between {low} and {high} ({alone} for a kernel that takes nearly all of the time)"
        + ("; ≤: the bytes are those bound, not declared, so it may be lower" if bounds else "")
        + (
            "; the machine was busy when the ceilings were measured: they may be too low"
            if device.ceilings_busy
            else ""
        )
        + "".join(f"; {told}" for told in device.raised)
    )


def _how_known(spread: float | None, measured_ns: int | None, began_ns: int | None) -> str:
    """By how much a ceiling varied when it was measured, and how long before the recording that was."""
    parts = [] if spread is None else [f"±{formatting.percent(spread)}"]
    age = formatting.age(measured_ns, began_ns)
    parts += [age] if age else []
    return f" ({', '.join(parts)})" if parts else ""


def efficiency_of(reached: Rates, rows: Ints) -> tuple[float | None, bool]:
    """The efficiency of a kernel over its commands and whether it is an upper bound; None if mostly not known."""
    known = rows[~np.isnan(reached.least_ns[rows])]
    total = float(reached.total_ns[known].sum())
    if total <= 0 or total < 0.5 * float(reached.total_ns[rows].sum()):
        return None, False
    least = float((reached.least_ns[known] * reached.runs[known]).sum())
    return min(least / total, 1.0), bool(reached.bound[known].any())


def rate_of(per_dispatch: Floats, reached: Rates, rows: Ints) -> float | None:
    known = rows[~np.isnan(per_dispatch[rows])]
    total = float(reached.total_ns[known].sum())
    return float((per_dispatch[known] * reached.runs[known]).sum()) / total * 1e9 if total > 0 else None
