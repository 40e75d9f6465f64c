"""Host regions ("token"): which submissions belong to which instance, and what an instance takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...errors import ArgumentError
from .columns import ABSENT, Columns, Ints
from .groups import Times, nodes_of_submissions, sampled_whole, times_of
from .lists import WARM_UP
from .statistics import Interval, median_interval

_MAX_NAMES = 64
"""Only the most frequent names are evaluated: a name that is always new does not repeat."""
_MAX_NESTING = 64
_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RegionGroup:
    """All instances of one region, "token" for example."""

    name: str
    instances: int
    wall: Times
    """On the host, begin to end."""
    median_ns: Interval | None
    submissions: float
    """Command buffers per instance."""
    dispatches: float
    """Dispatches, copies and fills per instance, timed or not."""
    device_sum: Times | None
    """Dispatch time per instance, of those in which all was sampled."""


def instances_of(columns: Columns, name: str) -> Ints:
    """For every submission the row of the region of that name it was committed in, however deep; -1 for none."""
    regions, at = columns.regions, columns.submissions.region.copy()
    is_wanted = np.append(regions.name == name, False)
    parent = np.append(regions.parent, -1)
    for _ in range(_MAX_NESTING):
        away = (at >= 0) & ~is_wanted[at]
        if not away.any():
            break
        at[away] = parent[at[away]]
    return np.where((at >= 0) & is_wanted[at], at, -1)


def by_region(columns: Columns, sum_ns: Ints) -> list[RegionGroup]:
    """Every region name, most instances first."""
    regions = columns.regions
    made = []
    each = nodes_of_submissions(columns, columns.commands.kind[columns.plans.command] != "barrier")
    for name in _frequent_names(columns):
        rows = np.flatnonzero((regions.name == name) & (regions.end_ns != ABSENT))
        wall = regions.end_ns[rows] - regions.begin_ns[rows]
        times = times_of(wall)
        if times is None:
            continue
        within = instances_of(columns, name)
        inside = np.flatnonzero(within >= 0)
        dispatches = np.bincount(within[inside], weights=each[inside], minlength=len(regions))
        spent = np.bincount(within[inside], weights=np.maximum(sum_ns[inside], 0), minlength=len(regions))
        whole = np.intersect1d(rows, sampled_whole(columns, within))
        made.append(
            RegionGroup(
                name,
                rows.size,
                times,
                median_interval(wall),
                float(np.isin(within[inside], rows).sum()) / rows.size,
                float(dispatches[rows].sum()) / rows.size,
                times_of(spent[whole].astype(np.int64)),
            )
        )
    return sorted(made, key=lambda g: (-g.instances, -g.wall.total_ns, g.name))


def repeated_region(columns: Columns) -> str | None:
    """The region to count by: the name with the most instances (two at least) that hold submissions, no warm-up."""
    best: tuple[int, int, str] | None = None
    regions = columns.regions
    for name in _frequent_names(columns):
        held = instances_of(columns, name)
        count = int(np.unique(held[held >= 0]).size)
        if count < 2 or name == WARM_UP:
            continue
        mine = (regions.name == name) & (regions.end_ns != ABSENT)
        wall = int((regions.end_ns - regions.begin_ns)[mine].sum())
        if best is None or (count, wall) > best[:2]:
            best = (count, wall, name)
    return best[2] if best else None


def region_named(columns: Columns, name: str) -> str:
    """The same name, if there is such a region; raises `ArgumentError` with those that there are."""
    if not (columns.regions.name == name).any():
        known = ", ".join(map(repr, _frequent_names(columns)[:_NAMES_SHOWN])) or "none"
        raise ArgumentError(f"there is no region named {name!r} in this recording; there are: {known}")
    return name


@dataclass(frozen=True, slots=True)
class Outside:
    """Command buffers that belong to no instance of a region."""

    submissions: int
    while_open: int
    """Those of them that were committed while an instance was open: by a thread or task that was not in it."""


def outside(columns: Columns, name: str, instance: Ints) -> Outside:
    """What was committed outside of every instance of a region, given each submission's (-1: none)."""
    regions, subs = columns.regions, columns.submissions
    left_out = np.flatnonzero(instance < 0)
    beside = 0
    for process in np.unique(subs.process[left_out]).tolist():
        mine = (regions.name == name) & (regions.process == process)
        begin = regions.begin_ns[mine]
        end = np.where(regions.end_ns[mine] == ABSENT, np.iinfo(np.int64).max, regions.end_ns[mine])
        order = np.argsort(begin, kind="stable")
        reached = np.maximum.accumulate(end[order])
        at = subs.commit_begin_ns[left_out][subs.process[left_out] == process]
        before = np.searchsorted(begin[order], at, side="right") - 1
        known = (at != ABSENT) & (before >= 0)
        beside += int((reached[before[known]] > at[known]).sum())
    return Outside(left_out.size, beside)


def _frequent_names(columns: Columns) -> list[str]:
    return [name for name, _ in Counter(columns.regions.name.tolist()).most_common(_MAX_NAMES)]
