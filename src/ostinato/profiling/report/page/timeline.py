"""The timeline: rows of spans that do not overlap, of devices and of host threads.

A device has rows of command buffers, of idle time by its cause, of labels, and of dispatches; a thread those of what it
did. Times are nanoseconds since `base`. What spans share (commands, command buffers, names) stands in tables. A
recording with too many spans is shown in part, and `notes` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...analyse import formatting
from ...analyse.columns import ABSENT, BOUNDED, Columns, Flags, Floats, Ints, Samples
from ...analyse.costs import amounts_of, varying
from ...analyse.roofline import rates
from ...analyse.timeline import CAUSES, Gaps, device_gaps
from ..device_tracks import label_runs
from ..text import LONGEST_SENTENCE, visible
from ..tracks import first_moment, host_slices, lanes, nested, process_name, thread_name
from .choice import chosen_dispatches
from .material import Material
from .packing import numbered, packed

MOST_DISPATCHES = 150_000
MOST_BUFFERS = 100_000
MOST_GAPS = 200_000
MOST_HOST_SPANS = 100_000
_MOST_EDGES = 300_000
_MOST_NODES = 200_000
_MOST_ROWS = 64
"""Of one kind on a device, and of one thread; and threads."""
_MOST_CHARACTERS = 1_000_000
_OTHER_NAME = "(name left out)"


class _Shared:
    """What all rows share: the moment that times count from, names by number (-1 for none), and what is left out."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.notes: list[str] = []
        self._numbers: dict[str, int] = {}
        self._characters = 0

    def number(self, text: str) -> int:
        known = self._numbers.get(text)
        if known is not None or not text:
            return -1 if known is None else known
        if self._characters > _MOST_CHARACTERS:
            text = _OTHER_NAME
        self._characters += len(text)
        return self._numbers.setdefault(text, len(self._numbers))

    def numbers(self, texts: Iterable[Any]) -> Ints:
        return np.array([self.number(str(text)) for text in texts], np.int64)

    def names(self) -> list[str]:
        return [visible(text) for text in self._numbers]


def timeline(given: Material) -> dict[str, Any] | None:
    """What the tab shows; None for a recording in which nothing has a time."""
    columns = given.columns
    shared = _Shared(first_moment(columns))
    timed, kernel = given.timed()
    shown = chosen_dispatches(columns, timed, kernel, MOST_DISPATCHES)
    gaps = device_gaps(columns)
    devices = [
        _device(given, number, timed, shown, gaps[number], shared)
        for number in range(len(columns.devices))
        if number in gaps
    ]
    threads, kinds = _threads(columns, shared)
    if not devices and not threads:
        return None
    ends = [timed.end_ns, columns.submissions.end_ns, columns.submissions.commit_end_ns]
    ends += [columns.regions.end_ns, columns.host_spans.end_ns]
    idle = dict.fromkeys(CAUSES, 0)
    for device in given.summary.device_times:
        for cause in device.causes:
            idle[cause.what] += cause.total_ns
    return {
        "base": shared.base,
        "span_ns": max(int(column.max()) for column in ends if column.size) - shared.base,
        "devices": devices,
        "threads": threads,
        "kinds": kinds,
        "names": shared.names(),
        "causes": [{"name": cause, "total_ns": total_ns} for cause, total_ns in idle.items()],
        "notes": [visible(note, LONGEST_SENTENCE) for note in shared.notes],
    }


def _row(kind: str, start_ns: Ints, end_ns: Ints, shared: _Shared, **of_each: Ints | Floats) -> dict[str, Any]:
    return {
        "kind": kind,
        "begin": packed(start_ns - shared.base, rising=True),
        "duration": packed(np.maximum(end_ns - start_ns, 0)),
        **{name: packed(column) for name, column in of_each.items()},
    }


def _rows(kind: str, start_ns: Ints, end_ns: Ints, shared: _Shared, **of_each: Ints | Floats) -> list[dict[str, Any]]:
    """Spans that may overlap, on as many rows as it takes."""
    order = np.argsort(start_ns, kind="stable")
    lane_of, used = lanes(start_ns[order], end_ns[order])
    rows = []
    for lane in range(min(used, _MOST_ROWS)):
        mine = order[lane_of == lane]
        rows.append(
            _row(kind, start_ns[mine], end_ns[mine], shared, **{k: column[mine] for k, column in of_each.items()})
        )
    left_out = int((lane_of >= _MOST_ROWS).sum())
    if left_out:
        shared.notes.append(
            f"Up to {used:,} {kind} ran at the same time; "
            f"{left_out:,} {kind} that did not fit on {_MOST_ROWS} rows are left out."
        )
    return rows


# --- devices -------------------------------------------------------------------------------------------------


def _device(
    given: Material,
    device: int,
    timed: Samples,
    shown: Flags,
    gaps: Gaps,
    shared: _Shared,
) -> dict[str, Any]:
    columns = given.columns
    subs = columns.submissions
    here = subs.device[timed.submission] == device
    drawn = timed.where(here & shown)
    of_submission = len(subs)
    counts = np.bincount(timed.submission[here], minlength=of_submission)
    shown_counts = np.bincount(drawn.submission, minlength=of_submission)
    facts = columns.devices[device]
    buffers, bar_of, buffer_rows = _buffers(columns, device, counts, shown_counts, shared)
    commands, nodes, edges, node_of = _command_lists(given, device, drawn, shared)
    if len(drawn) < here.sum():
        ran = int((counts > 0).sum())
        shared.notes.append(
            f"{facts.name}: {len(drawn):,} of {here.sum():,} timed dispatches are shown, those of "
            f"{int((shown_counts > 0).sum()):,} of {formatting.count(ran, 'command buffer')}: the first, "
            "the slowest of each command list, label and kernel, those of the longest regions, others evenly spaced. "
            "Hatched command buffers ran, but their dispatches are left out."
        )
    of_each: dict[str, Ints | Floats] = {"node": node_of, "buffer": bar_of[drawn.submission]}
    bounded = drawn.status == BOUNDED
    if bounded.any():
        of_each["bounded"] = bounded.astype(np.int64)
    varies = varying(columns)[columns.plans.command[drawn.node]]
    if varies.any():
        amounts = amounts_of(columns, columns.plans.command[drawn.node], drawn.submission)
        for name in ("bytes_read", "bytes_written", "flops"):
            of_each[name] = np.where(varies, getattr(amounts, name), np.nan)
    return {
        "name": visible(facts.name),
        "copy_bytes_per_s": facts.copy_bytes_per_s,
        "flops_per_s": facts.flops_per_s,
        "buffers": buffers,
        "commands": commands,
        "nodes": nodes,
        "edges": edges,
        "rows": [
            *buffer_rows,
            *_idle(gaps, shown_counts > 0, shared),
            *_labels(columns, drawn, shared),
            *_rows("dispatches", drawn.start_ns, drawn.end_ns, shared, **of_each),
        ],
    }


def _buffers(
    columns: Columns, device: int, timed: Ints, shown: Ints, shared: _Shared
) -> tuple[dict[str, Any], Ints, list[dict[str, Any]]]:
    """Command buffers: a table of bars, the bar of each submission, and rows. Neighbours share a bar if need be."""
    subs, plans = columns.submissions, columns.plans
    rows = np.flatnonzero((subs.device == device) & subs.ran)
    rows = rows[np.argsort(subs.start_ns[rows], kind="stable")]
    lane_of, used = lanes(subs.start_ns[rows], subs.end_ns[rows])
    by_lane = np.argsort(lane_of, kind="stable")
    rows, lane_of = rows[by_lane], lane_of[by_lane]
    together = -(-rows.size // MOST_BUFFERS)
    failed = subs.error[rows] != ""
    opened = shown[rows] > 0
    if failed.sum() <= MOST_BUFFERS:
        opened |= failed
    alone = opened | np.concatenate([[True], opened[:-1]])[: rows.size]
    first = alone | (np.diff(lane_of, prepend=-1) != 0) | (np.arange(rows.size) % max(together, 1) == 0)
    heads, bars = np.flatnonzero(first), np.cumsum(first) - 1
    count = np.diff(heads, append=rows.size)
    if together > 1:
        shared.notes.append(
            f"{columns.devices[device].name}: {rows.size:,} command buffers are shown as {heads.size:,} bars; "
            f"a hatched bar stands for up to {together} of them, and those that failed "
            f"{'have bars of their own' if failed.sum() <= MOST_BUFFERS else 'are too many for bars of their own'}."
        )
    bar_of = np.full(len(subs), -1)
    bar_of[rows] = bars
    of = rows[heads]
    real = np.concatenate([[0], np.cumsum(columns.commands.kind[plans.command] != "barrier")])
    recorded = np.diff(real[plans.first])
    delay = subs.start_ns[of] - subs.commit_end_ns[of]
    table = {
        "ordinal": subs.ordinal[of],
        "count": count,
        "label": shared.numbers(subs.label[of]),
        "dispatches": np.where(subs.plan[of] >= 0, recorded[subs.plan[of]], 0) if len(recorded) else 0 * of,
        "timed": timed[of],
        "shown": shown[of],
        "queue_ns": np.where(subs.commit_end_ns[of] == ABSENT, -1, np.maximum(delay, 0)),
        "replay": subs.replay[of],
        "reason": shared.numbers(subs.reason[of]),
        "error": shared.numbers(subs.error[of]),
        "failed": np.add.reduceat(failed.astype(np.int64), heads) if heads.size else 0 * of,
    }
    start, end = subs.start_ns[of], np.maximum.reduceat(subs.end_ns[rows], heads) if heads.size else subs.end_ns[of]
    tracks = [
        _row("buffers", start[mine], end[mine], shared, buffer=np.flatnonzero(mine))
        for mine in (lane_of[heads] == lane for lane in range(min(used, _MOST_ROWS)))
    ]
    if used > _MOST_ROWS:
        shared.notes.append(f"Up to {used:,} command buffers ran at the same time; {_MOST_ROWS} rows are shown.")
    return {name: packed(column) for name, column in table.items()}, bar_of, tracks


def _idle(gaps: Gaps, opened: Flags, shared: _Shared) -> list[dict[str, Any]]:
    """Gaps between command buffers, and inside those whose dispatches are shown."""
    rows = np.flatnonzero((gaps.inside < 0) | opened[gaps.inside])
    if rows.size > MOST_GAPS:
        length = gaps.end_ns[rows] - gaps.begin_ns[rows]
        shared.notes.append(f"Of {rows.size:,} gaps the {MOST_GAPS:,} longest are shown.")
        rows = np.sort(rows[np.argpartition(length, rows.size - MOST_GAPS)[-MOST_GAPS:]])
    return [_row("idle", gaps.begin_ns[rows], gaps.end_ns[rows], shared, cause=gaps.cause[rows])] if rows.size else []


def _labels(columns: Columns, drawn: Samples, shared: _Shared) -> list[dict[str, Any]]:
    """Rows of labels, the outer ones first. A label lasts from the first start to the last end of its dispatches."""
    # In order of time labels of one depth fit on one row; but where dispatches overlap, those of other labels would
    # come in between and cut them to pieces.
    by_start = np.argsort(drawn.start_ns, kind="stable")
    overlap = (drawn.start_ns[by_start][1:] < np.maximum.accumulate(drawn.end_ns[by_start])[:-1]).any()
    ordered = drawn.where(np.lexsort((drawn.node if overlap else drawn.start_ns, drawn.submission)))
    runs = label_runs(columns, ordered)
    number = shared.numbers(runs.prefixes)
    # One more of each, so that a run may end with the last dispatch; every second result is that of no run.
    edges = np.stack([runs.first, runs.last + 1], axis=1).reshape(-1)
    start = np.minimum.reduceat(np.append(ordered.start_ns, 0), edges)[::2] if len(runs) else runs.first
    end = np.maximum.reduceat(np.append(ordered.end_ns, 0), edges)[::2] if len(runs) else runs.first
    rows = []
    for depth in range(int(runs.depth.max()) + 1 if len(runs) else 0):
        mine = runs.depth == depth
        rows += _rows("labels", start[mine], end[mine], shared, name=number[runs.prefix[mine]])
    return rows


def _command_lists(
    given: Material, device: int, drawn: Samples, shared: _Shared
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Ints]:
    """Commands, nodes and dependencies of the command lists that are shown; and the node of each dispatch."""
    columns, plans, subs = given.columns, given.columns.plans, given.columns.submissions
    lists = np.unique(subs.plan[drawn.submission])
    lists = lists[lists >= 0]
    kept = np.zeros(len(plans.command), bool)
    for plan in lists.tolist():
        kept[plans.first[plan] : plans.first[plan + 1]] = True
    if kept.sum() > _MOST_NODES:
        kept &= columns.commands.kind[plans.command] == "barrier"
        kept[drawn.node] = True
    nodes = np.flatnonzero(kept)
    number = np.cumsum(kept) - 1
    commands, command = np.unique(plans.command[nodes], return_inverse=True)
    pairs, total = [np.zeros((2, 0), np.int64)], 0
    for plan in lists.tolist():
        edges = np.stack(plans.edges[plan]) + plans.first[plan]
        total += edges.shape[1]
        if total > _MOST_EDGES:
            shared.notes.append("Dependencies are not shown for all command lists: there are too many.")
            break
        pairs.append(number[edges[:, kept[edges[0]] & kept[edges[1]]]])
    before, after = np.concatenate(pairs, axis=1)
    order = np.lexsort((before, after))
    of = np.searchsorted(plans.first, nodes, side="right") - 1
    return (
        _commands(given, device, commands, shared),
        {"number": packed(nodes - plans.first[of]), "command": packed(command)},
        {"after": packed(after[order], rising=True), "back": packed((after - before)[order])},
        number[drawn.node],
    )


def _commands(given: Material, device: int, rows: Ints, shared: _Shared) -> dict[str, Any]:
    columns, commands = given.columns, given.columns.commands
    typical = rates(columns, device)
    varies = varying(columns)
    read, written, flops = (
        np.where(column == ABSENT, np.nan, column.astype(np.float64))
        for column in (commands.bytes_read, commands.bytes_written, commands.flops)
    )
    # What is bound is no amount where it is nothing, or more than can have been moved.
    unknown = typical.bound & ((read + written == 0) & ~varies | typical.refuted)
    return {
        "kernel": packed(given.kernel[rows]),
        "title": packed(
            shared.numbers("" if given.kernel[row] >= 0 else commands.title(row) for row in rows.tolist()),
        ),
        "barrier": packed(commands.kind[rows] == "barrier"),
        "label": packed(shared.numbers(commands.label[rows])),
        "place": packed(shared.numbers(commands.place[rows])),
        "threads": packed(commands.threads[rows]),
        "group": packed(commands.group[rows]),
        "at_most": packed(typical.bound[rows]),
        "unknown": packed(unknown[rows]),
        **{
            name: packed(np.where(varies, np.nan, column)[rows])
            for name, column in (("bytes_read", read), ("bytes_written", written), ("flops", flops))
        },
    }


# --- host threads --------------------------------------------------------------------------------------------


def _threads(columns: Columns, shared: _Shared) -> tuple[list[dict[str, Any]], list[str]]:
    """What each thread did, and the kinds of things that threads do."""
    slices = host_slices(columns)
    if len(slices) > MOST_HOST_SPANS:
        shared.notes.append(f"Of {len(slices):,} spans of host threads the {MOST_HOST_SPANS:,} longest are shown.")
        longest = np.argpartition(slices.end_ns - slices.begin_ns, len(slices) - MOST_HOST_SPANS)[-MOST_HOST_SPANS:]
        slices = slices.where(np.sort(longest))
    lane_of, depth = nested(slices, _MOST_ROWS)
    kinds, kind = numbered(slices.kind.tolist())
    name = shared.numbers(slices.name)
    of_buffer = slices.submission >= 0
    ordinal = (
        np.where(of_buffer, columns.submissions.ordinal[slices.submission], -1) if of_buffer.any() else -1 + 0 * kind
    )
    who = np.stack([slices.process, slices.thread], axis=1)
    threads, left_out = [], 0
    for process, thread in np.unique(who, axis=0)[:_MOST_ROWS].tolist():
        mine = (slices.process == process) & (slices.thread == thread)
        left_out += int(mine.sum())
        rows = []
        placed = mine & (lane_of >= 0)
        for lane, level in np.unique(np.stack([lane_of, depth], axis=1)[placed], axis=0)[:_MOST_ROWS].tolist():
            here = np.flatnonzero(mine & (lane_of == lane) & (depth == level))
            left_out -= here.size
            rows.append(
                _row(
                    "host",
                    slices.begin_ns[here],
                    slices.end_ns[here],
                    shared,
                    activity=kind[here],
                    name=name[here],
                    ordinal=ordinal[here],
                )
            )
        threads.append(
            {
                "name": visible(thread_name(columns, process, thread)),
                "process": visible(process_name(columns, process)) if len(columns.pids) > 1 else "",
                "rows": rows,
            }
        )
    if len(np.unique(who, axis=0)) > _MOST_ROWS:
        shared.notes.append(f"{_MOST_ROWS} of {len(np.unique(who, axis=0)):,} host threads are shown.")
    if left_out:
        shared.notes.append(
            f"{left_out:,} spans of host threads are left out: "
            f"they did not fit on the {_MOST_ROWS} rows of their thread."
        )
    return threads, [visible(text) for text in kinds]
