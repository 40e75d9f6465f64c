"""How close every kernel came to the ceilings of the device.

A dispatch cannot take less time than moving its bytes at the bandwidth of a copy, or computing its flops at the peak
rate. *Efficiency* is that least time divided by the time it took: the larger of the bandwidth and the flop efficiency,
at most 1.

Declared bytes are trusted. Without a declaration the bytes of the bound buffers are an upper bound, and so are the
bandwidth and the efficiency that follow. The bound may also be refuted: no kernel moves several times as much as a
copy does, one threadgroup does not reach the bandwidth of all workers, a few threads do not touch megabytes. A
kernel that seems to is bound to more than it touches (a row of a table, a window of a cache), and its efficiency is not
known. It must not look efficient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from . import formatting
from .columns import Columns, Device, Flags, Floats, Ints, Texts
from .costs import Amounts, declared_amounts, mean_amounts, varying
from .lists import runs_per_command, samples_on, warm_ups
from .statistics import median, split_by

_CACHE_BYTES = 64 << 20
"""Larger amounts cannot come from a cache."""
_CACHE_GAIN = 8.0
"""How much faster than a copy through memory a kernel may be when its data fits in a cache."""
_SLACK = 1.25
"""How far above the ceiling a true rate may lie: ceilings are measured too."""
_MOST_RAISED = 4.0
"""How much too low a ceiling of a busy machine may be. A kernel that seems faster than that declares too much."""
_BYTES_A_THREAD = 64 << 10
"""Threads that touch more than this each cannot be fast; a good rate then comes from bytes that were never touched."""
_SUSPICIOUSLY_GOOD = 0.25


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of each command on one device, one row per command; NaN where not known."""

    count: Ints
    """Dispatches with a time."""
    runs: Floats
    """Dispatches that ran, timed or not."""
    total_ns: Floats
    """Of all that ran, each with the typical time."""
    typical_ns: Floats
    """The median time; the mean where amounts vary, because those are means too."""
    bytes_moved: Floats
    """Per dispatch; NaN when nothing is known or the bound is refuted."""
    flops: Floats
    """Per dispatch."""
    bound: Flags
    """Whether the bytes are an upper bound."""
    refuted: Flags
    """Whether the bytes cannot have moved in that time."""
    bandwidth: Floats
    """Bytes per second."""
    flop_rate: Floats
    least_ns: Floats
    """The least time a dispatch could take by the ceilings; NaN without them."""

    def of(self, rows: Ints) -> Rates:
        """The rates of some commands."""
        return Rates(*(getattr(self, name)[rows] for name in self.__slots__))


def rates(columns: Columns, device: int, aside: Flags | None = None) -> Rates:
    """The rates of every command on a device, by its median time.

    Submissions in `aside` (by default first runs, which also warm up caches) are excluded where there are others. Where
    bytes and flops depend on values of each replay, rates are their sum over the sum of the times of those dispatches.
    """
    subs, size = columns.submissions, len(columns.commands)
    samples = samples_on(columns, device)
    command = columns.plans.command[samples.node]
    duration = samples.end_ns - samples.start_ns
    warm = ~(warm_ups(columns) if aside is None else aside)[samples.submission]
    count = np.bincount(command, minlength=size)
    typical = _medians(command[warm], duration[warm], size)
    missing = np.isnan(typical) & (count > 0)
    if missing.any():
        first_only = missing[command]
        typical = np.where(missing, _medians(command[first_only], duration[first_only], size), typical)
    amounts = declared_amounts(columns)
    varies = varying(columns)
    if varies.any():
        used = varies[command] & (warm | missing[command])
        amounts = mean_amounts(columns, command[used], samples.submission[used])
        times = np.bincount(command[used], weights=duration[used], minlength=size)
        with np.errstate(invalid="ignore"):
            means = times / np.bincount(command[used], minlength=size)
        typical = np.where(varies, means, typical)
    runs = np.maximum(runs_per_command(columns, (subs.device == device) & subs.done), count)
    return _rates(columns, columns.devices[device], count, runs, typical, amounts)


def _rates(columns: Columns, device: Device, count: Ints, runs: Floats, typical_ns: Floats, amounts: Amounts) -> Rates:
    """The rates from the counts, the typical time and the amounts of each command."""
    commands = columns.commands
    copy = device.copy_bytes_per_s or np.nan
    peak = device.flops_per_s or np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(typical_ns > 0, typical_ns, np.nan) * 1e-9
        moved = amounts.bytes_read + amounts.bytes_written
        # A declaration of no bytes is a statement; a binding of none says nothing.
        moved = np.where(commands.bytes_declared | (moved > 0), moved, np.nan)
        bound = ~commands.bytes_declared & ~np.isin(commands.kind, ["copy", "fill"])
        bandwidth = moved / seconds
        threads = np.maximum(commands.threads.astype(np.float64).prod(axis=1), 1.0)
        too_much = (moved / threads > _BYTES_A_THREAD) & (bandwidth > _SUSPICIOUSLY_GOOD * copy)
        refuted = bound & (too_much | (bandwidth > _credible(device, moved, commands.groups)))
        moved = np.where(refuted, np.nan, moved)
        bandwidth = np.where(refuted, np.nan, bandwidth)
        flop_rate = amounts.flops / seconds
        flops = np.where(flop_rate > _MOST_RAISED * peak, np.nan, amounts.flops)
        flop_rate = np.where(np.isnan(flops), np.nan, flop_rate)
        least = np.fmax(moved / copy, flops / peak) * 1e9
    return Rates(
        count,
        runs,
        np.where(count > 0, runs * typical_ns, 0.0),
        typical_ns,
        moved,
        flops,
        bound,
        refuted,
        bandwidth,
        flop_rate,
        least,
    )


def _medians(command: Ints, duration: Ints, size: int) -> Floats:
    return np.array([median(times) for times in split_by(command, duration, size)])


def raised(columns: Columns, device: int, aside: Flags) -> Device:
    """The device, with ceilings raised to what dispatches of the recording reached, where those are higher.

    Only declared amounts count, and only bytes that fit in no cache.
    """
    facts, reached = columns.devices[device], rates(columns, device, aside)
    commands = columns.commands
    moved = np.where(commands.bytes_declared & (reached.bytes_moved > _CACHE_BYTES), reached.bandwidth, np.nan)
    copy, copy_note = _raised(facts.copy_bytes_per_s, moved, commands.kernel, "copy bandwidth", formatting.byte_rate)
    flops, flops_note = _raised(
        facts.flops_per_s, reached.flop_rate, commands.kernel, "peak flop rate", formatting.flop_rate
    )
    return replace(facts, copy_bytes_per_s=copy, flops_per_s=flops, raised=(*copy_note, *flops_note))


def _raised(
    ceiling: float | None, rate: Floats, kernel: Texts, name: str, shown: Callable[[float], str]
) -> tuple[float | None, list[str]]:
    """A ceiling, or the best credible rate and a sentence about it if that is higher."""
    if not ceiling:
        return ceiling, []
    rate = np.where(rate <= _MOST_RAISED * ceiling, rate, np.nan)
    if np.isnan(rate).all() or np.nanmax(rate) <= ceiling:
        return ceiling, []
    row = int(np.nanargmax(rate))
    best = float(rate[row])
    measured = f"the {name} was measured as {shown(ceiling)}, but {kernel[row]} reached {shown(best)}"
    return best, [f"{measured}, which is used instead"]


def _credible(device: Device, moved: Floats, groups: Ints) -> Floats:
    """The bandwidth up to which all bound bytes can have been moved."""
    if not device.copy_bytes_per_s:
        return np.full(moved.shape, np.inf)
    filled = np.minimum(np.maximum(groups, 1) / device.workers, 1.0) if device.workers else 1.0
    gain = np.where(moved > _CACHE_BYTES, _SLACK, _CACHE_GAIN)
    limit: Floats = device.copy_bytes_per_s * gain * filled
    return limit


def weighted_medians(values: Floats, weights: Floats) -> Floats:
    """In each row the value below which half of the weight lies; NaN without values."""
    weights = np.where(np.isnan(values), 0.0, weights)
    order = np.argsort(values, axis=1, kind="stable")  # NaN comes last
    reached = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)
    whole = reached[:, -1:] if reached.shape[1] else np.zeros((len(values), 1))
    place = (reached < whole / 2).sum(axis=1, keepdims=True)
    if not reached.shape[1]:
        return np.full(len(values), np.nan)
    middle = np.take_along_axis(np.take_along_axis(values, order, axis=1), place, axis=1)[:, 0]
    return np.where(whole[:, 0] > 0, middle, np.nan)
