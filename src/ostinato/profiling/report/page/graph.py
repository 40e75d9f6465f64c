"""The command lists that take most time as nested boxes, with what waits for what and the critical path.

Nodes are the commands of a list without its barriers, numbered as encoded; boxes are numbered as in
`analyse/label_tree.py`. Times are medians over the submissions of a list, in ns from its start; -1 is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...analyse.columns import Flags, Floats, Ints
from ...analyse.critical_path import busy_of
from ...analyse.label_tree import label_tree
from ...analyse.layering import Edges, layers, lifted, reduced, without_hidden
from ...analyse.summary import PlanPath
from ..text import visible
from ..tracks import first_moment
from .material import Material
from .packing import numbered, packed

_MOST_LISTS = 3
_MOST_NODES = 10_000
"""Commands of a list that are shown: those encoded first."""


def graph(material: Material) -> dict[str, Any] | None:
    """What the view shows; None where no command list was recorded."""
    columns, subs = material.columns, material.columns.submissions
    submitted = subs.plan >= 0
    counts = np.bincount(subs.plan[submitted], minlength=len(columns.plans))
    sizes = np.diff(columns.plans.first)
    if material.summary.critical_paths:
        lists = [_timed(material, path) for path in material.summary.critical_paths]
    else:
        # Without times nothing is known about which lists matter; those that ran most often probably do.
        often = np.argsort(-counts, kind="stable")[:_MOST_LISTS].tolist()
        lists = [_untimed(material, plan) for plan in often if counts[plan] and sizes[plan]]
    lists = [each for each in lists if each["commands"]]
    return {"lists": lists, "recorded": int(((counts > 0) & (sizes > 0)).sum())} if lists else None


def _timed(material: Material, path: PlanPath) -> dict[str, Any]:
    columns, schedule = material.columns, path.schedule
    subs = columns.submissions
    device = next(row for row, each in enumerate(columns.devices) if each.name == path.device)
    ran = subs.ran & (subs.plan >= 0)
    mine = ran & (subs.plan == schedule.plan) & (subs.device == device)
    spent = (subs.end_ns - subs.start_ns).astype(np.float64)
    everything = float(spent[ran].sum())
    # The timeline has the dispatches of the slowest run that was sampled, whatever it leaves out.
    rows = np.flatnonzero(mine & subs.sampled if (mine & subs.sampled).any() else mine)
    slowest = rows[np.argmax(spent[rows])]
    base = first_moment(columns)
    known = schedule.measured
    times = {
        "start": np.where(known, schedule.start_ns, np.nan),
        "duration": np.where(known, schedule.duration_ns, np.nan),
        "busy": np.where(known, busy_of(schedule), np.nan),
        "gap": np.where(known, schedule.gap_ns, np.nan),
        "slack": np.where(known, np.maximum(path.path.slack_ns, 0.0), np.nan),
    }
    return {
        "label": visible(path.label),
        "device": visible(path.device),
        "submissions": schedule.submissions,
        "share": float(spent[mine].sum()) / everything if everything else None,
        "wall_ns": schedule.wall_ns,
        "runs": path.runs,
        "execution_ns": path.path.execution_ns,
        "gap_ns": path.path.gap_ns,
        "slowest": {"begin_ns": subs.start_ns[slowest] - base, "end_ns": subs.end_ns[slowest] - base},
        **_picture(material, schedule.plan, times, list(path.path.nodes)),
    }


def _untimed(material: Material, plan: int) -> dict[str, Any]:
    subs = material.columns.submissions
    mine = subs.plan == plan
    labels = (label for label in subs.label[mine].tolist() if label)
    devices = sorted({material.columns.devices[device].name for device in subs.device[mine].tolist()})
    return {
        "label": visible(next(labels, "")),
        "device": visible(", ".join(devices)),
        "submissions": int(mine.sum()),
        "share": None,
        "wall_ns": None,
        "runs": 0,
        "execution_ns": None,
        "gap_ns": None,
        "slowest": None,
        **_picture(material, plan, {}, []),
    }


def _picture(material: Material, plan: int, times: dict[str, Floats], path: list[int]) -> dict[str, Any]:
    columns = material.columns
    command = columns.plans.command[columns.plans.nodes(plan)]
    barrier = columns.commands.kind[command] == "barrier"
    real = np.flatnonzero(~barrier)
    end = int(real[_MOST_NODES]) if real.size > _MOST_NODES else command.size
    before, after = columns.plans.edges[plan]
    # Edges lead forward, so nothing that is left out stands between nodes that are shown.
    hidden, edges = without_hidden(barrier[:end], (before[after < end], after[after < end]))
    shown = np.flatnonzero(~hidden)
    number = np.full(command.size, -1, np.int64)
    number[shown] = np.arange(shown.size)
    path = [int(number[node]) for node in path if number[node] >= 0]
    edges = _among(number, edges)
    waits = np.array([path[:-1], path[1:]], np.int64).reshape(2, -1)
    # The critical path also leads to nodes that waited for a worker rather than for what they depend on.
    depends = _contains(edges, waits[0], waits[1], shown.size)
    least = reduced(shown.size, edges)
    command = command[shown]
    kernel = material.kernel[command]
    label = columns.commands.label[command]
    tree = label_tree(label.tolist(), kernel.tolist())
    drawn = layers(tree, least)
    path_edges = lifted(tree, (waits[0], waits[1]))
    labels, label_number = _table(label.tolist())
    places, place_number = _table(columns.commands.place[command].tolist())
    # What never ran is no kernel of the report.
    box_names = list(tree.name)
    for node in np.flatnonzero(kernel < 0).tolist():
        box_names[node] = box_names[node] or columns.commands.title(int(command[node]))
    names, name_number = _table(box_names)
    return {
        "commands": shown.size + int((real >= end).sum()),
        "barriers": int(hidden.sum()),
        "implied": int(edges[0].size - least[0].size),
        "kernel": packed(kernel),
        "label_of": packed(label_number),
        "labels": labels,
        "place_of": packed(place_number),
        "places": places,
        **{name: packed(_rounded(times[name][shown]) if times else np.full(shown.size, -1)) for name in _TIMES},
        "path": packed(np.array(path, np.int64)),
        "path_before": packed(path_edges[0]),
        "path_after": packed(path_edges[1]),
        "path_depends": packed(depends),
        "before": packed(least[0]),
        "after": packed(least[1]),
        "parent": packed(np.array(tree.parent, np.int64)),
        "kind": packed(np.array(tree.kind, np.int64)),
        "name_of": packed(name_number),
        "names": names,
        "level": packed(drawn.level),
        "place": packed(drawn.place),
        "edge_before": packed(drawn.before),
        "edge_after": packed(drawn.after),
        "edge_count": packed(drawn.count),
        "edge_back": packed(drawn.back),
    }


_TIMES = ("start", "duration", "busy", "gap", "slack")


def _rounded(times: Floats) -> Ints:
    """Whole ns; -1 where a time is not known."""
    return np.where(np.isnan(times), -1, np.nan_to_num(times)).round().astype(np.int64)


def _among(number: Ints, edges: Edges) -> Edges:
    """The edges between nodes that have a number, by these."""
    before, after = number[edges[0]], number[edges[1]]
    chosen = (before >= 0) & (after >= 0)
    return before[chosen], after[chosen]


def _contains(edges: Edges, before: Ints, after: Ints, size: int) -> Flags:
    contained: Flags = np.isin(before * size + after, edges[0] * size + edges[1])
    return contained


def _table(texts: Iterable[str]) -> tuple[list[str], Ints]:
    """The different texts, fit to be shown, and the number of each."""
    different, number = numbered(texts)
    return [visible(text) for text in different], number
