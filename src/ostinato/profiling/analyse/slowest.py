"""The slowest instances of each host region, each with what was different from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import ABSENT, Columns, Ints
from .groups import kernel_codes
from .instances import Instances, instances, kernel_excess
from .machine import Disturbance
from .regions import RegionGroup, instances_of

MOST_NAMES = 16
"""Region names, those with most instances first, whose slowest instances are determined."""
_SLOWEST = 10


@dataclass(frozen=True, slots=True)
class SlowInstance:
    """One instance of a region, compared with all others of its name. What is not known is None."""

    number: int
    """From 0, in the order in which they began."""
    begin_ns: int
    wall_ns: int
    over_ns: float
    """How much longer it took than the median."""
    over_share: float | None
    """The same as a part of the median."""
    device_ns: int | None
    """The sum of the times of its dispatches."""
    idle_ns: int | None
    """Time in which none of its command buffers ran."""
    idle_share: float | None
    """The same as a part of its wall time."""
    running_over_ns: float | None
    """How much longer than the median its command buffers ran."""
    idle_over_ns: float | None
    """How much longer than the median none of them ran."""
    submissions: int
    """Command buffers that were committed in it."""
    usual_submissions: float
    """The median of that."""
    disturbed: int | None
    """Command buffers of which other programs took a part of the workers' time, or whose workers came late."""
    kernel: str | None
    """The kernel that exceeded its mean over all instances most; None if none did, too."""
    detail: str | None
    kernel_over_ns: float | None
    """By how much."""
    process: int
    """A row of `Columns.origins`."""


def slowest(
    columns: Columns, groups: Sequence[RegionGroup], sum_ns: Ints, runs: Disturbance
) -> dict[str, tuple[SlowInstance, ...]]:
    """The slowest instances by name, the slowest first; none for a name with a single instance.

    `sum_ns` has the dispatch time of each submission (`timeline.SubmissionTimes`).
    """
    code, names = kernel_codes(columns)
    return {
        group.name: _of_name(columns, group, instances(columns, group.name, sum_ns), runs, code, names)
        for group in groups[:MOST_NAMES]
        if group.instances > 1
    }


def _of_name(
    columns: Columns, group: RegionGroup, each: Instances, runs: Disturbance, code: Ints, names: list[tuple[str, str]]
) -> tuple[SlowInstance, ...]:
    chosen = np.argsort(-each.wall_ns, kind="stable")[:_SLOWEST]
    excess = kernel_excess(columns, each, group.name, code, chosen, len(names))
    within = instances_of(columns, group.name)
    known = (each.running_ns != ABSENT) & bool(each.submissions.any())
    idle_ns = each.wall_ns - each.running_ns
    running, idle = (float(np.median(ns[known])) if known.any() else 0.0 for ns in (each.running_ns, idle_ns))
    listed = []
    for number, more in zip(chosen.tolist(), excess, strict=True):
        inside = within == each.row[number]
        wall, timed = int(each.wall_ns[number]), bool(known[number])
        most = int(more.argmax()) if (more > 0).any() else None
        over = wall - group.wall.p50_ns
        listed.append(
            SlowInstance(
                number=number,
                begin_ns=int(each.begin_ns[number]),
                wall_ns=wall,
                over_ns=over,
                over_share=over / group.wall.p50_ns if group.wall.p50_ns else None,
                device_ns=None if each.dispatch_ns[number] == ABSENT else int(each.dispatch_ns[number]),
                idle_ns=int(idle_ns[number]) if timed else None,
                idle_share=int(idle_ns[number]) / wall if timed and wall else None,
                running_over_ns=int(each.running_ns[number]) - running if timed else None,
                idle_over_ns=int(idle_ns[number]) - idle if timed else None,
                submissions=int(each.submissions[number]),
                usual_submissions=float(np.median(each.submissions)),
                disturbed=int((inside & (runs.preempted | runs.short_handed)).sum())
                if (inside & runs.known).any()
                else None,
                kernel=None if most is None else names[most][0],
                detail=None if most is None else names[most][1],
                kernel_over_ns=None if most is None else float(more[most]),
                process=int(columns.regions.process[each.row[number]]),
            )
        )
    return tuple(listed)
