"""Why a kernel is slow, as sentences, and the rates that it reached, over all its dispatches on a device."""

from __future__ import annotations

import numpy as np

from . import formatting
from .attainable import LAUNCH_NS, LEAST_REFERENCE, MOST_REFERENCE, REFERENCE_ALONE
from .columns import Columns, Device, Floats, Ints
from .roofline import Rates

_NEARLY_ALL, _SOME = 0.9, 0.25
"""What holds for the first part of a kernel's time is reported without a percentage; below the second, not at all."""
_NOT_ABOUT_SPEED, _NO_CLANG = "results may differ", "vectors need"
"""How parts of the explanation of a way begin (msl/cpu_target.py, backends/cpu/kernels.py)."""


def reasons(columns: Columns, device: Device, reached: Rates, rows: Ints, p50_ns: float) -> list[str]:
    """Why a kernel is slow, as far as the recording tells, most telling first."""
    spent = reached.total_ns[rows]
    way = _slow_way(columns, rows, spent)
    shape = _few_groups(columns, device, rows, spent)
    launch = f"launch-bound: {formatting.time(p50_ns)} per dispatch" if p50_ns < LAUNCH_NS else ""
    return list(filter(None, (way, shape, launch, _speed(columns, device, reached, rows, p50_ns))))


def _slow_way(columns: Columns, rows: Ints, spent: Floats) -> str:
    """That it ran as fibers, or split for want of a clang, and why."""
    spent_by: dict[str, float] = {}
    for execution, took in zip(columns.commands.execution[rows].tolist(), spent.tolist(), strict=True):
        spent_by[execution] = spent_by.get(execution, 0.0) + took
    way, _, why = max(spent_by, key=lambda execution: spent_by[execution]).partition(": ")
    causes = [cause for cause in why.split("; ") if cause and not cause.startswith(_NOT_ABOUT_SPEED)]
    if way == "split":
        return next((f"runs split at its barriers: {cause}" for cause in causes if cause.startswith(_NO_CLANG)), "")
    if way != "fibers":
        return ""
    return f"runs as fibers, the slowest way ({'; '.join(causes)})" if causes else "runs as fibers, the slowest way"


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
        launched = f"{formatting.count(count, 'threadgroup')} of {formatting.count(size, 'thread')}"
    else:
        launched = f"{formatting.count(int(groups[few].min()), 'threadgroup')} or a few more"
    where = f" on a device with {formatting.count(device.workers, 'worker')}" if device.workers else ""
    return f"{launched}{where}" + ("" if part >= _NEARLY_ALL else f" in {formatting.percent(part)} of its time")


def _speed(columns: Columns, device: Device, reached: Rates, rows: Ints, p50_ns: float) -> str:
    """How fast all its dispatches together moved bytes or computed."""
    commands, spent = columns.commands, reached.total_ns
    whole = float(spent[rows].sum())
    moving, computing = rows[~np.isnan(reached.bytes_moved[rows])], rows[~np.isnan(reached.flops[rows])]
    if float(spent[np.union1d(moving, computing)].sum()) < 0.5 * whole:
        refuted = rows[reached.refuted[rows]]
        if refuted.size == 0:
            return "efficiency not known: it declares no bytes, and no buffers are bound"
        row = refuted[spent[refuted].argmax()]
        amount = formatting.size(float(commands.bytes_read[row] + commands.bytes_written[row]))
        took = formatting.time(p50_ns)
        return f"efficiency not known: bound to {amount}, more than it can have moved in {took}; declare its bytes"
    rate, flop_rate = rate_of(reached.bytes_moved, reached, rows), rate_of(reached.flops, reached, rows)
    bandwidth = None if rate is None or not device.copy_bytes_per_s else rate / device.copy_bytes_per_s
    flops = None if flop_rate is None or not device.flops_per_s else flop_rate / device.flops_per_s
    at_most = "at most " if reached.bound[moving].any() else ""
    if flops is not None and not (bandwidth is not None and flops < bandwidth):
        return f"computes at {formatting.percent(flops)} of the peak flop rate"
    if rate == 0:
        return "declares that it moves no bytes"
    if bandwidth is not None:
        return f"moves {at_most}{formatting.percent(bandwidth, at_most != '')} of copy bandwidth"
    if rate is None:
        return "efficiency not known: no ceiling was measured"
    return f"moves {at_most}{formatting.byte_rate(rate)}"


def measure(device: Device, calibrated: bool, bounds: bool, began_ns: int | None) -> str:
    """What efficiencies and savings are relative to, as a sentence."""
    if not calibrated:
        return (
            "no ceilings were measured on this device (`ostinato calibrate` measures them):"
            " each kernel is compared with the bandwidth of the others"
        )
    parts = []
    if device.copy_bytes_per_s:
        known = _how_known(device.copy_spread, device.copy_measured_ns, began_ns)
        parts.append(f"a copy at {formatting.byte_rate(device.copy_bytes_per_s)}{known}")
    if device.flops_per_s:
        known = _how_known(device.flops_spread, device.flops_measured_ns, began_ns)
        parts.append(f"{formatting.flop_rate(device.flops_per_s)}{known}")
    low, high, alone = (formatting.whole_percent(part) for part in (LEAST_REFERENCE, MOST_REFERENCE, REFERENCE_ALONE))
    return (
        f"relative to the ceilings measured on this device, {' and '.join(parts)}; the target of a kernel is the median"
        f" efficiency of the others, at least {low} and at most {high} ({alone} if it takes nearly all of the time)"
        + ("; ≤: computed from bound, not declared bytes, so it may be lower" if bounds else "")
        + (
            "; the machine was busy when the ceilings were measured, so they may be too low"
            if device.ceilings_busy
            else ""
        )
        + "".join(f"; {sentence}" for sentence in device.raised)
    )


def _how_known(spread: float | None, measured_ns: int | None, began_ns: int | None) -> str:
    """The spread of a ceiling, and how long before the recording it was measured."""
    parts = [] if spread is None else [f"±{formatting.percent(spread)}"]
    age = formatting.age(measured_ns, began_ns)
    parts += [age] if age else []
    return f" ({', '.join(parts)})" if parts else ""


def efficiency_of(reached: Rates, rows: Ints) -> tuple[float | None, bool]:
    """The efficiency of a kernel over its commands, and whether it is an upper bound; None if mostly not known."""
    known = rows[~np.isnan(reached.least_ns[rows])]
    total = float(reached.total_ns[known].sum())
    if total <= 0 or total < 0.5 * float(reached.total_ns[rows].sum()):
        return None, False
    least = float((reached.least_ns[known] * reached.runs[known]).sum())
    return min(least / total, 1.0), bool(reached.bound[known].any())


def rate_of(per_dispatch: Floats, reached: Rates, rows: Ints) -> float | None:
    """The sum of an amount per second over several commands; None where it is not known."""
    known = rows[~np.isnan(per_dispatch[rows])]
    total = float(reached.total_ns[known].sum())
    return float((per_dispatch[known] * reached.runs[known]).sum()) / total * 1e9 if total > 0 else None
