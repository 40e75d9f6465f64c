"""The view "Regions": how long each instance of a host region took, how that is distributed, and the slowest ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...analyse import formatting
from ...analyse.distributions import histograms
from ...analyse.groups import Times
from ...analyse.instances import instances, outline
from ...analyse.kernels import named
from ...analyse.regions import RegionGroup
from ...analyse.slowest import MOST_NAMES, SlowInstance
from ...analyse.timeline import submission_times
from .. import tables
from ..text import visible
from ..tracks import first_moment
from .material import Material
from .packing import packed
from .sentences import sentence

_MOST_DRAWN = 2000
_WORTH_NAMING = 0.1
"""A kernel is named if it explains this part of what an instance took longer."""


def regions(material: Material) -> dict[str, Any] | None:
    """What the view shows; None without regions that ended."""
    summary = material.summary
    if not summary.regions:
        return None
    sum_ns, base = submission_times(material.columns).sum_ns, first_moment(material.columns)
    hidden = len(summary.regions) - MOST_NAMES
    return {
        "regions": [_region(material, group, sum_ns, base) for group in summary.regions[:MOST_NAMES]],
        "notes": [
            *tables.regions(summary).notes,
            *([f"{formatting.count(hidden, 'more name')} of regions in the JSON report"] if hidden > 0 else []),
        ],
    }


def _region(material: Material, group: RegionGroup, sum_ns: Any, base: int) -> dict[str, Any]:
    each = instances(material.columns, group.name, sum_ns)
    slowest = material.summary.slowest.get(group.name, ())
    shown = outline(each.wall_ns, _MOST_DRAWN, np.array([slow.number for slow in slowest], np.int64))
    bins = histograms(np.zeros(len(each), np.int64), each.wall_ns, 1)
    interval = group.median_ns
    several = len(material.columns.pids) > 1 and np.unique(material.columns.regions.process[each.row]).size > 1
    return {
        "name": visible(group.name),
        "instances": group.instances,
        "wall": _times(group.wall),
        "median_ns": None if interval is None else [interval.estimate, interval.low, interval.high],
        "submissions": group.submissions,
        "dispatches": group.dispatches,
        "device": None if group.device_sum is None else _times(group.device_sum),
        "outliers": int((each.wall_ns > group.wall.p99_ns).sum()),
        "histogram": {"low_ns": bins.low_ns[0], "high_ns": bins.high_ns[0], "counts": bins.counts[0].tolist()},
        "shown": {
            "number": packed(shown, rising=True),
            "begin_ns": packed(each.begin_ns[shown] - base, rising=True),
            "wall_ns": packed(each.wall_ns[shown]),
            "dispatch_ns": packed(each.dispatch_ns[shown]),
        },
        "slowest": [_slow(material, slow, base) for slow in slowest],
        "note": "instances of several processes together" if several else "",
    }


def _times(times: Times) -> dict[str, Any]:
    return {name: getattr(times, name) for name in Times.__slots__}


def _slow(material: Material, slow: SlowInstance, base: int) -> dict[str, Any]:
    """One of the slowest instances, with a sentence about what was different."""
    begin, origins = slow.begin_ns - base, material.columns.origins
    parts = ["the first one"] if slow.number == 0 else []
    if slow.running_over_ns is not None and slow.idle_over_ns is not None:
        inside, outside = _more(slow.running_over_ns), _more(slow.idle_over_ns)
        parts.append(f"{inside} in command buffers{_longer(slow)}, {outside} outside of them")
    if slow.submissions != slow.usual_submissions:
        parts.append(f"{formatting.count(slow.submissions, 'command buffer')}, usually {slow.usual_submissions:g}")
    if slow.disturbed:
        which = f"{slow.disturbed:,} of {slow.submissions:,} command buffers " if slow.submissions > 1 else ""
        parts.append(f"{which}disturbed by other programs")
    if len(origins) > 1:
        parts.append(origins[slow.process].name)
    return {
        "number": slow.number,
        "begin_ns": begin,
        "end_ns": begin + slow.wall_ns,
        "wall_ns": slow.wall_ns,
        "over_ns": slow.over_ns,
        "over_share": slow.over_share,
        "what": sentence("; ".join(parts)),
    }


def _longer(slow: SlowInstance) -> str:
    """The kernel that took most longer than usual, if that explains some of what the instance took longer."""
    if slow.kernel is None or slow.kernel_over_ns is None or slow.over_ns <= 0:
        return ""
    if slow.kernel_over_ns < _WORTH_NAMING * slow.over_ns:
        return ""
    return f" ({named(slow.kernel, slow.detail or '')} {_more(slow.kernel_over_ns)})"


def _more(ns: float) -> str:
    return f"{'−' if ns < 0 else '+'}{formatting.time(abs(ns))}"
