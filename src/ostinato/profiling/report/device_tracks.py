"""What a timeline shows of a device beside its slices: runs of labels, what waited for what, counters, and rates.

Everything is a function over the columns of samples; `trace.py` writes what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..analyse.columns import ABSENT, Columns, Flags, Floats, Ints, Samples, partly_timed
from ..analyse.costs import amounts_of
from ..analyse.lists import samples_on
from ..analyse.roofline import rates

_MAX_DEPTH = 16
"""Label components past this stay together, as in reports."""
_CELLS = 1 << 22
"""Of the table in which the dependencies of many submissions are looked up at once."""


@dataclass(frozen=True, slots=True)
class LabelRuns:
    """Successive dispatches of one submission under one label prefix, outer runs before the inner ones."""

    first: Ints
    """Row of the first dispatch; rising."""
    last: Ints
    depth: Ints
    """How many components its prefix has, less one."""
    prefix: Ints
    """Row of `prefixes`."""
    prefixes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.first)


def label_runs(columns: Columns, samples: Samples, lanes: Ints | None = None) -> LabelRuns:
    """The runs of labels among dispatches in the order given; a run ends where the submission or the lane changes.

    Those of dispatches sorted by lane and start nest in time too, as dispatches of one lane do not overlap.
    """
    command = columns.plans.command[samples.node]
    paths = [str(label).split("/", _MAX_DEPTH - 1) if label else [] for label in columns.commands.label]
    elsewhere = np.diff(samples.submission) != 0
    if lanes is not None:
        elsewhere |= np.diff(lanes) != 0
    numbers: dict[str, int] = {}
    runs = []
    for depth in range(max(map(len, paths), default=0) if len(samples) else 0):
        cut = ["/".join(path[: depth + 1]) if len(path) > depth else None for path in paths]
        code = np.array([-1 if path is None else numbers.setdefault(path, len(numbers)) for path in cut], np.int64)
        mine = code[command]
        edges = np.flatnonzero(np.concatenate([[True], elsewhere | (np.diff(mine) != 0), [True]]))
        first, last = edges[:-1], edges[1:] - 1
        under = mine[first] >= 0
        runs.append(np.stack([first, last, np.full(first.size, depth), mine[first]])[:, under])
    every = np.concatenate(runs, axis=1) if runs else np.zeros((4, 0), np.int64)
    # Runs that begin together stay in order of their depth.
    first, last, depth_of, prefix = every[:, np.argsort(every[0], kind="stable")]
    return LabelRuns(first, last, depth_of, prefix, tuple(numbers))


def waited_for(columns: Columns, samples: Samples) -> Ints:
    """For each dispatch the row of the one whose end it waited for: the last to end of those it depends on; -1 if none.

    Dependencies lead through commands that have no time of their own, such as barriers.
    """
    plans, plan_of = columns.plans, columns.submissions.plan[samples.submission]
    latest = np.full(len(samples), -1, np.int64)
    for plan in np.unique(plan_of[plan_of >= 0]).tolist():
        before, after = plans.edges[plan]
        if not len(before):
            continue
        rows = np.flatnonzero(plan_of == plan)
        owners, owner = np.unique(samples.submission[rows], return_inverse=True)
        first, size = int(plans.first[plan]), plans.nodes(plan).stop - plans.nodes(plan).start
        at_once = max(_CELLS // size, 1)
        for begin in range(0, len(owners), at_once):
            chosen = (owner >= begin) & (owner < begin + at_once)
            own = np.full((min(at_once, len(owners) - begin), size), -1, np.int64)
            own[owner[chosen] - begin, samples.node[rows[chosen]] - first] = rows[chosen]
            waits = _waits(own, samples.end_ns, before, after)
            latest[own[own >= 0]] = waits[own >= 0]
    return latest


def _waits(own: Ints, end_ns: Ints, before: Ints, after: Ints) -> Ints:
    """The same for (submission, node), given the row of each one's sample."""
    last, waits = own.copy(), np.full_like(own, -1)
    last_end = np.where(own >= 0, end_ns[own], ABSENT)
    order = np.argsort(after, kind="stable")
    before, after = before[order], after[order]
    every = np.arange(len(own))
    bounds = np.flatnonzero(np.diff(after, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        node, earlier = after[begin], before[begin:end]
        latest = earlier[np.argmax(last_end[:, earlier], axis=1)]
        waits[:, node] = last[every, latest]
        untimed = own[:, node] < 0
        last[untimed, node] = waits[untimed, node]
        last_end[untimed, node] = last_end[every, latest][untimed]
    return waits


def in_flight(start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """How many intervals are open from each moment on at which that changes: moments, and counts."""
    at, total = _stepwise(start_ns, end_ns, np.ones(len(start_ns)))
    return at, total.astype(np.int64)


def queue_depth(committed_ns: Ints, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints, Ints]:
    """How many command buffers wait and how many run from each moment on at which that changes: moments, and counts."""
    at = np.unique(np.concatenate([committed_ns, start_ns, end_ns]))
    committed, started, ended = (
        np.searchsorted(np.sort(moments), at, side="right") for moments in (committed_ns, start_ns, end_ns)
    )
    return at, committed - started, started - ended


def busy_workers(columns: Columns, device: int) -> tuple[Ints, Ints] | None:
    """How many workers can have been busy from each moment on at which that changes; None for an unknown number.

    A dispatch keeps at most as many busy as it has threadgroups. What has no groups (copies), and command buffers whose
    dispatches were not all timed, may keep all of them busy.
    """
    workers = columns.devices[device].workers
    if workers is None:
        return None
    subs, samples = columns.submissions, samples_on(columns, device)
    timed = np.bincount(samples.submission, minlength=len(subs)) > 0
    untimed = subs.ran & (subs.device == device) & (~timed | partly_timed(columns))
    groups = columns.commands.groups[columns.plans.command[samples.node]]
    most = np.where(groups > 0, np.minimum(groups, workers), workers)
    at, total = _stepwise(
        np.concatenate([samples.start_ns, subs.start_ns[untimed]]),
        np.concatenate([samples.end_ns, subs.end_ns[untimed]]),
        np.concatenate([most, np.full(int(untimed.sum()), workers)]).astype(np.float64),
    )
    return at, np.minimum(total, workers).astype(np.int64)


def bandwidth(start_ns: Ints, end_ns: Ints, bytes_per_s: Floats) -> tuple[Ints, Floats]:
    """What all dispatches that run move together, from each moment on at which that changes."""
    known = np.isfinite(bytes_per_s)
    start_ns, end_ns = start_ns[known], end_ns[known]
    at, total = _stepwise(start_ns, end_ns, bytes_per_s[known])
    # Where nothing runs, a sum of floats may leave a little over.
    return at, np.where(in_flight(start_ns, end_ns)[1] > 0, np.maximum(total, 0.0), 0.0)


def _stepwise(start_ns: Ints, end_ns: Ints, height: Floats) -> tuple[Ints, Floats]:
    moments, position = np.unique(np.concatenate([start_ns, end_ns]), return_inverse=True)
    change = np.bincount(position.reshape(-1), np.concatenate([height, -height]), minlength=len(moments))
    return moments, np.cumsum(change)


@dataclass(frozen=True, slots=True)
class Reached:
    """What each dispatch moved and computed, and how near it came to the ceilings; NaN where that is not known."""

    bytes_read: Floats
    bytes_written: Floats
    flops: Floats
    bytes_per_s: Floats
    flops_per_s: Floats
    efficiency: Floats
    at_most: Flags
    """The bytes are those that are bound, an upper bound; so is what follows from them."""


def reached(columns: Columns, device: int, samples: Samples) -> Reached:
    """What each dispatch reached on its device, by its own time."""
    command = columns.plans.command[samples.node]
    amounts, typical = amounts_of(columns, command, samples.submission), rates(columns, device)
    ceilings = columns.devices[device]
    seconds = (samples.end_ns - samples.start_ns) * 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(seconds > 0, seconds, np.nan)
        moved = amounts.bytes_read + amounts.bytes_written
        # What is bound is no amount where it is nothing, or more than can have been moved.
        unknown = typical.bound[command] & ((moved == 0) | typical.refuted[command])
        bytes_per_s = np.where(unknown, np.nan, moved / seconds)
        flops_per_s = amounts.flops / seconds
        efficiency = np.fmax(
            bytes_per_s / (ceilings.copy_bytes_per_s or np.nan), flops_per_s / (ceilings.flops_per_s or np.nan)
        )
    return Reached(
        amounts.bytes_read,
        amounts.bytes_written,
        amounts.flops,
        bytes_per_s,
        flops_per_s,
        np.minimum(efficiency, 1.0),
        typical.bound[command],
    )
