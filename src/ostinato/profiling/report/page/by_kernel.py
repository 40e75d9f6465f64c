"""The view "Kernels": a table of all kernels, and of each of them everything that is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...analyse import reasons
from ...analyse.columns import Device, Ints
from ...analyse.distributions import BINS, MOST_POINTS, histograms, series
from ...analyse.groups import Group, Times, folded
from ...analyse.kernels import named
from ...analyse.roofline import Rates
from ...analyse.summary import PlanPath
from ...analyse.validity import Status
from .. import tables
from ..text import visible
from ..tracks import first_moment
from .material import Material, kernel_rows
from .packing import packed
from .sentences import sentence
from .source_texts import SourceTexts
from .what_if import parts_of

_MOST_ROWS = 1000
_MOST_CHARTS = 200
"""Kernels whose distribution and series are in the page."""
_MOST_LISTED = 12
"""Grids, labels and places of one kernel."""


def by_kernel(material: Material) -> dict[str, Any]:
    """What the view shows."""
    summary = material.summary
    shown = summary.kernels[:_MOST_ROWS]
    drawn = min(len(shown), _MOST_CHARTS)
    rows = [_figures(group) for group in shown]
    notes = list(tables.kernels(summary, _MOST_ROWS).notes) if shown else []
    if drawn < len(shown):
        notes.append(f"distributions: of the {drawn} kernels with the most time")
    if 0 < len(summary.what_ifs) < len(shown):
        notes.append("2× faster saves: computed for the kernels with the most time; – also where it is not known")
    several = len({each.measure for each in summary.suspects}) > 1
    notes += dict.fromkeys(
        f"efficiency{f' on {each.device}' if several else ''}: {each.measure}" for each in summary.suspects
    )
    _add_lists(material, rows)
    _add_rates(material, rows)
    _add_savings(material, rows)
    texts = SourceTexts(material.columns, material.with_source)
    for row, mine in zip(rows, _commands_of(material, len(rows)), strict=True):
        row["code"] = texts.of(mine)
    return {
        "notice": sentence(_notice(material)),
        "notes": [sentence(note) for note in notes],
        "per": None if summary.repeated is None else visible(summary.repeated),
        "rows": rows,
        "texts": texts.made,
        **_charts(material, rows[:drawn]),
    }


def _notice(material: Material) -> str:
    """Why there are no times, and what to do about it; "" where there are."""
    summary = material.summary
    if not summary.kernels:
        return (
            "No dispatch was recorded: run the program under `ostinato profile`, or commit work inside `ost.profile()`."
        )
    if summary.timed:
        return ""
    why = "" if summary.measured.status is Status.FINE else f" ({summary.measured.sentence})"
    return (
        f"Dispatches were not timed{why}, so only their numbers are known. Record with `--level dispatches`, or"
        ' `ost.profile(level="dispatches")`, on a device that can time them.'
    )


def _figures(group: Group) -> dict[str, Any]:
    times = group.times
    return {
        "dispatched": group.dispatched,
        "count": group.count,
        "bounded": group.bounded,
        "per_instance_ns": group.per_instance_ns,
        **{name: None if times is None else getattr(times, name) for name in Times.__slots__ if name != "total_ns"},
    }


# --- distributions -------------------------------------------------------------------------------------------


def _charts(material: Material, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Histograms and series of the first kernels, one after another in packed columns; the slowest dispatch of each."""
    samples, kernel = material.timed()
    drawn = (kernel >= 0) & (kernel < len(rows))
    if not drawn.all():
        samples, kernel = samples.where(drawn), kernel[drawn]
    base = first_moment(material.columns)
    start, duration = samples.start_ns - base, samples.end_ns - samples.start_ns
    bins = histograms(kernel, duration, len(rows))
    over, slowest = series(kernel, start, duration, material.summary.aside[samples.submission], len(rows))
    for number, row in enumerate(rows):
        at = int(slowest[number])
        if at >= 0:
            row["slowest_ns"] = [int(start[at]), int(start[at] + duration[at])]
            row["bins_ns"] = [float(bins.low_ns[number]), float(bins.high_ns[number])]
    return {
        "bins": BINS,
        "most_points": MOST_POINTS,
        "counts": packed(bins.counts),
        "series": {
            "first": packed(over.first, rising=True),
            "at_us": packed(over.at_ns // 1000, rising=True),
            "median_ns": packed(over.median_ns),
            # Mostly zero, and then nearly free.
            "below_ns": packed(over.median_ns - over.low_ns),
            "above_ns": packed(over.high_ns - over.median_ns),
            "aside": packed(over.aside),
        },
    }


# --- what a kernel ran as ------------------------------------------------------------------------------------


def _add_lists(material: Material, rows: list[dict[str, Any]]) -> None:
    """Grids, labels, places, op kinds and constants of each kernel."""
    columns, commands = material.columns, material.columns.commands
    spent = material.spent_ns
    runs = np.bincount(columns.plans.command, minlength=len(commands))
    grids: dict[str, list[Group]] = {}
    for shape in material.summary.shapes:
        grids.setdefault(shape.name, []).append(shape)
    for number, mine in enumerate(_commands_of(material, len(rows))):
        group, row = material.summary.kernels[number], rows[number]
        weight = spent[mine] if spent[mine].any() else runs[mine].astype(np.float64)
        labels = commands.label[mine].tolist()
        alike = labels if len(set(labels)) <= _MOST_LISTED else map(folded, labels)
        row["labels"] = _by_weight(alike, weight)
        row["places"] = _by_weight(commands.place[mine].tolist(), weight)
        # "Other" is what a program gets that sets none.
        row["op_kinds"] = _by_weight((kind if kind != "Other" else "" for kind in commands.op_kind[mine]), weight)
        row["constants"] = _by_weight(commands.specialisation[mine].tolist(), weight)
        shapes = grids.get(named(group.name, group.detail), [])
        row["grids"] = {
            "rows": [
                {
                    "grid": visible(shape.detail),
                    "count": shape.count or shape.dispatched,
                    "p50_ns": None if shape.times is None else shape.times.p50_ns,
                    "total_ns": None if shape.times is None else shape.times.total_ns,
                }
                for shape in shapes[:_MOST_LISTED]
                if shape.detail
            ],
            "more": max(len(shapes) - _MOST_LISTED, 0),
        }


def _commands_of(material: Material, size: int) -> list[Ints]:
    """The commands of each of the first kernels."""
    order = np.argsort(material.kernel, kind="stable")
    ends = np.searchsorted(material.kernel[order], np.arange(size + 1))
    return [order[ends[number] : ends[number + 1]] for number in range(size)]


def _by_weight(texts: Iterable[str], weight: Any) -> dict[str, Any]:
    """The texts that most of the time goes to, each with its part; empty ones do not count."""
    spent: dict[str, float] = {}
    for text, part in zip(texts, weight.tolist(), strict=True):
        spent[text] = spent.get(text, 0.0) + part
    whole = sum(spent.values())
    spent.pop("", None)
    ordered = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return {
        "rows": [
            {"text": visible(text), "part": part / whole if whole else None} for text, part in ordered[:_MOST_LISTED]
        ],
        "more": max(len(ordered) - _MOST_LISTED, 0),
    }


# --- how fast, and what it would save ------------------------------------------------------------------------


def _add_rates(material: Material, rows: list[dict[str, Any]]) -> None:
    """How close each kernel came to the ceilings of each device that it ran on; first, where most of its time is."""
    mine = _commands_of(material, len(rows))
    for row in rows:
        row["rates"] = []
    for device, reached in zip(material.summary.devices, material.summary.rates, strict=True):
        for row, commands in zip(rows, mine, strict=True):
            here = commands[reached.count[commands] > 0]
            if here.size:
                row["rates"].append({"device": visible(device.name), **_rate(device, reached, here)})
    for row in rows:
        row["rates"].sort(key=lambda rate: -rate["total_ns"])


def _rate(device: Device, reached: Rates, commands: Ints) -> dict[str, Any]:
    efficiency, bound = reasons.efficiency_of(reached, commands)
    moved, computed = (reasons.rate_of(amount, reached, commands) for amount in (reached.bytes_moved, reached.flops))
    of_copy = None if moved is None or not device.copy_bytes_per_s else moved / device.copy_bytes_per_s
    of_peak = None if computed is None or not device.flops_per_s else computed / device.flops_per_s
    return {
        "total_ns": float(reached.total_ns[commands].sum()),
        "efficiency": efficiency,
        "is_bound": bound,
        "bytes": _mean(reached.bytes_moved, reached, commands),
        "bytes_are_bound": bool(reached.bound[commands].any()),
        "flops": _mean(reached.flops, reached, commands),
        "bytes_per_s": moved,
        "flops_per_s": computed,
        "copy_bytes_per_s": device.copy_bytes_per_s,
        "peak_flops_per_s": device.flops_per_s,
        "nearer": None
        if of_copy is None and of_peak is None
        else "copy bandwidth"
        if (of_copy or 0.0) >= (of_peak or 0.0)
        else "peak flop rate",
    }


def _mean(amount: Any, reached: Rates, commands: Ints) -> float | None:
    """Per dispatch, over the commands that have the amount."""
    known = commands[~np.isnan(amount[commands])]
    runs = float(reached.runs[known].sum())
    return float((amount[known] * reached.runs[known]).sum()) / runs if runs else None


def _add_savings(material: Material, rows: list[dict[str, Any]]) -> None:
    """What-ifs, reasons and critical paths of each kernel."""
    summary = material.summary
    numbers = {kernel: number for kernel, number in kernel_rows(summary).items() if number < len(rows)}
    titles = {named(*kernel): number for kernel, number in numbers.items()}
    for row in rows:
        row.update(what_ifs=[], suspects=[], paths=[])
    for what_if in summary.what_ifs:
        if (at := numbers.get((what_if.kernel, what_if.detail))) is not None:
            rows[at]["what_ifs"].append(
                {
                    "device": visible(what_if.device),
                    "on_path_ns": what_if.on_path_ns,
                    "saved_ns": what_if.saved_ns,
                    "saved_share": what_if.saved_share,
                    "parts_of": parts_of(summary, what_if.device_row),
                    "low": what_if.saved_low,
                    "high": what_if.saved_high,
                }
            )
    for suspect in (suspect for device in summary.suspects for suspect in device.ranked):
        if (at := numbers.get((suspect.kernel, suspect.detail))) is not None:
            rows[at]["suspects"].append(
                {
                    "device": visible(suspect.device),
                    "saving_ns": suspect.saving_ns,
                    "saving_share": suspect.saving_share,
                    "parts_of": parts_of(summary, suspect.device_row),
                    "is_bound": suspect.saving_is_bound,
                    "reasons": [sentence(reason) for reason in suspect.reasons],
                }
            )
    for path in summary.critical_paths:
        for at, facts in _on_path(path, titles, len(rows)).items():
            rows[at]["paths"].append(facts)


def _on_path(listed: PlanPath, titles: dict[str, int], size: int) -> dict[int, dict[str, Any]]:
    """For each kernel of a command list: its nodes, those on the critical path, and the least slack of the others."""
    kernel = np.array([titles.get(title, -1) for title in listed.kernel], np.int64)
    on_path = np.zeros(kernel.size, bool)
    on_path[list(listed.path.nodes)] = True
    known, path = kernel >= 0, (kernel >= 0) & on_path
    duration, slack = listed.schedule.duration_ns, listed.path.slack_ns
    nodes, nodes_on_path = (np.bincount(kernel[chosen], minlength=size) for chosen in (known, path))
    total, on_path_ns = (np.bincount(kernel[c], weights=duration[c], minlength=size) for c in (known, path))
    rest = known & ~on_path & ~np.isnan(slack)
    least = np.full(size, np.inf)
    np.minimum.at(least, kernel[rest], slack[rest])
    return {
        number: {
            "device": visible(listed.device),
            "label": visible(listed.label),
            "wall_ns": listed.schedule.wall_ns,
            "nodes": int(nodes[number]),
            "nodes_on_path": int(nodes_on_path[number]),
            "on_path_ns": float(on_path_ns[number]),
            "total_ns": float(total[number]),
            "slack_ns": float(least[number]) if np.isfinite(least[number]) else None,
        }
        for number in np.flatnonzero(nodes).tolist()
    }
