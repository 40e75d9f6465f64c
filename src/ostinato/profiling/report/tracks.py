"""Where a timeline starts, on which lanes its slices lie, and what host threads did.

Slices of one lane never cross: they follow each other or, on the lanes of host threads, nest.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analyse.columns import ABSENT, Columns, Ints, Texts, texts, usable


def first_moment(columns: Columns) -> int:
    """The earliest time that anything on a timeline has; 0 where nothing has one."""
    subs = columns.submissions
    times = (
        *(subs.encode_begin_ns, subs.commit_begin_ns, subs.start_ns),
        *(columns.regions.begin_ns, columns.host_spans.begin_ns, usable(columns.samples).start_ns),
    )
    known = [int(column[column != ABSENT].min()) for column in times if (column != ABSENT).any()]
    return min(known, default=0)


def lanes(start_ns: Ints, end_ns: Ints) -> tuple[Ints, int]:
    """A lane for each interval (sorted by start) so that none overlaps another on its lane; and how many lanes."""
    count = start_ns.size
    if not (start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]).any():
        return np.zeros(count, np.int64), min(count, 1)
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    placed: list[int] = []
    used = 0
    for start, end in zip(start_ns.tolist(), end_ns.tolist(), strict=True):
        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, used = used, used + 1
        heapq.heappush(busy, (end, lane))
        placed.append(lane)
    return np.array(placed, np.int64), used


# --- host threads --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HostSlices:
    """What host threads did: regions, encoding, commits, waits, compilations."""

    process: Ints
    thread: Ints
    begin_ns: Ints
    end_ns: Ints
    kind: Texts
    name: Texts
    """Of the region, the span, or the command buffer; "" for none."""
    submission: Ints
    """The command buffer that was encoded, committed or waited for; -1 for none."""

    def __len__(self) -> int:
        return len(self.begin_ns)

    def where(self, rows: Ints) -> HostSlices:
        """Some of them, in the order given."""
        return HostSlices(*(getattr(self, name)[rows] for name in self.__slots__))


def host_slices(columns: Columns) -> HostSlices:
    """What all host threads did, outer slices before those that they contain."""
    regions, spans, subs = columns.regions, columns.host_spans, columns.submissions
    ended = np.flatnonzero(regions.end_ns != ABSENT)
    # Encoding and committing are known from the submissions; their spans would only repeat them.
    repeated = (spans.submission >= 0) & np.isin(spans.kind, ["encode", "commit"])
    kept = np.flatnonzero(~repeated & (spans.kind != "region"))
    parts = [
        _part(regions, ended, regions.begin_ns, regions.end_ns, texts(["region"] * ended.size), regions.name),
        _part(spans, kept, spans.begin_ns, spans.end_ns, spans.kind[kept], spans.name, spans.submission[kept]),
    ]
    for kind, begins, ends in (
        ("encode", subs.encode_begin_ns, subs.encode_end_ns),
        ("commit", subs.commit_begin_ns, subs.commit_end_ns),
    ):
        known = np.flatnonzero((begins != ABSENT) & (ends != ABSENT))
        parts.append(_part(subs, known, begins, ends, texts([kind] * known.size), subs.label, known))
    every = HostSlices(*(np.concatenate([getattr(part, name) for part in parts]) for name in HostSlices.__slots__))
    return every.where(np.lexsort((-every.end_ns, every.begin_ns)))


def _part(
    table: Any, rows: Ints, begins: Ints, ends: Ints, kinds: Texts, names: Texts, submissions: Ints | None = None
) -> HostSlices:
    of = np.full(rows.size, -1) if submissions is None else np.maximum(submissions, -1)
    return HostSlices(table.process[rows], table.thread[rows], begins[rows], ends[rows], kinds, names[rows], of)


def nested(slices: HostSlices) -> tuple[Ints, Ints]:
    """For each slice the first lane of its thread on which it nests with others, and how many are around it there."""
    open_until: dict[tuple[int, int], list[list[int]]] = {}
    lane_of, depth_of = [], []
    for process, thread, begin, end in zip(
        *(column.tolist() for column in (slices.process, slices.thread, slices.begin_ns, slices.end_ns)), strict=True
    ):
        thread_lanes = open_until.setdefault((process, thread), [])
        number = 0
        for lane in thread_lanes:
            while lane and lane[-1] <= begin:
                lane.pop()
            if not lane or end <= lane[-1]:
                break
            number += 1
        else:
            thread_lanes.append([])
        lane_of.append(number)
        depth_of.append(len(thread_lanes[number]))
        thread_lanes[number].append(end)
    return np.array(lane_of, np.int64), np.array(depth_of, np.int64)


# --- names ---------------------------------------------------------------------------------------------------


def process_name(columns: Columns, row: int) -> str:
    """A process of the host, with its rank and its machine where they are known."""
    pid = f"pid {columns.pids[row]}"
    if not columns.origins:
        return f"host process {columns.pids[row]}"
    origin = columns.origins[row]
    facts = ("" if origin.rank is None else f"rank {origin.rank}", origin.host, pid)
    return f"host process {', '.join(filter(None, facts))}"


def thread_name(columns: Columns, process: int, thread: int) -> str:
    """A thread of the host; its number where it has no name."""
    return columns.thread_names.get((process, thread)) or f"thread {thread}"


def buffer_title(columns: Columns, submission: int) -> str:
    """A command buffer: its label, or its number."""
    subs = columns.submissions
    return str(subs.label[submission]) or f"command buffer {int(subs.ordinal[submission])}"
