"""The view "Regions": how long each instance of a host region took, how that is distributed, and the slowest ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...analyse import formatting
from ...analyse.columns import ABSENT
from ...analyse.distributions import histograms
from ...analyse.groups import RegionGroup, Times
from ...analyse.instances import Instances, instances, kernel_excess, outline
from ...analyse.kernels import named
from ...analyse.timeline import submission_times
from .. import tables
from ..text import LONGEST_SENTENCE, visible
from ..tracks import first_moment
from .material import Material
from .packing import packed

_MOST_NAMES = 16
_MOST_DRAWN = 2000
_SLOWEST = 10
_WORTH_NAMING = 0.1
"""A kernel is named if it explains this part of what an instance took longer."""


def regions(material: Material) -> dict[str, Any] | None:
    """What the view shows; None without regions that ended."""
    summary = material.summary
    if not summary.regions:
        return None
    sum_ns, base = submission_times(material.columns).sum_ns, first_moment(material.columns)
    hidden = len(summary.regions) - _MOST_NAMES
    return {
        "regions": [_region(material, group, sum_ns, base) for group in summary.regions[:_MOST_NAMES]],
        "notes": [
            *tables.regions(summary).notes,
            *([f"{formatting.count(hidden, 'more name')} of regions in the JSON report"] if hidden > 0 else []),
        ],
    }


def _region(material: Material, group: RegionGroup, sum_ns: Any, base: int) -> dict[str, Any]:
    each = instances(material.columns, group.name, sum_ns)
    slowest = np.argsort(-each.wall_ns, kind="stable")[:_SLOWEST]
    shown = outline(each.wall_ns, _MOST_DRAWN, slowest)
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
        "slowest": _slow(material, group, each, slowest, base) if len(each) > 1 else [],
        "note": "instances of several processes together" if several else "",
    }


def _times(times: Times) -> dict[str, Any]:
    return {name: getattr(times, name) for name in Times.__slots__}


def _slow(material: Material, group: RegionGroup, each: Instances, slowest: Any, base: int) -> list[dict[str, Any]]:
    """The slowest instances, each with what was different."""
    columns, kernels = material.columns, material.summary.kernels
    excess = kernel_excess(columns, each, group.name, material.kernel, slowest, len(kernels))
    known = (each.running_ns != ABSENT) & bool(each.submissions.any())
    running = float(np.median(each.running_ns[known])) if known.any() else None
    outside = float(np.median((each.wall_ns - each.running_ns)[known])) if known.any() else None
    buffers = float(np.median(each.submissions))
    listed = []
    for position, number in enumerate(slowest.tolist()):
        over = float(each.wall_ns[number]) - group.wall.p50_ns
        parts = ["the first one"] if number == 0 else []
        if running is not None and outside is not None and known[number]:
            inside_more = float(each.running_ns[number]) - running
            outside_more = float(each.wall_ns[number] - each.running_ns[number]) - outside
            parts.append(
                f"{_more(inside_more)} in command buffers{_longer(material, excess[position], over)},"
                f" {_more(outside_more)} outside of them"
            )
        if each.submissions[number] != buffers:
            parts.append(f"{formatting.count(int(each.submissions[number]), 'command buffer')}, usually {buffers:g}")
        process = int(columns.regions.process[each.row[number]])
        if len(columns.origins) > 1:
            parts.append(columns.origins[process].name)
        begin = int(each.begin_ns[number]) - base
        listed.append(
            {
                "number": number,
                "begin_ns": begin,
                "end_ns": begin + int(each.wall_ns[number]),
                "wall_ns": int(each.wall_ns[number]),
                "over_ns": over,
                "over_share": over / group.wall.p50_ns if group.wall.p50_ns else None,
                "what": visible("; ".join(parts), LONGEST_SENTENCE),
            }
        )
    return listed


def _longer(material: Material, excess: Any, over: float) -> str:
    """The kernel that took most longer than usual, if that explains some of what the instance took longer."""
    if not excess.size or np.isnan(excess).all():
        return ""
    most = int(excess.argmax())
    if over <= 0 or excess[most] < _WORTH_NAMING * over:
        return ""
    group = material.summary.kernels[most]
    return f" ({named(group.name, group.detail)} {_more(float(excess[most]))})"


def _more(ns: float) -> str:
    return f"{'−' if ns < 0 else '+'}{formatting.time(abs(ns))}"
