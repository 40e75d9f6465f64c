"""Where a timeline starts, on which lanes its slices lie, and what host threads did.

Slices of one lane never cross: they follow each other or, on the lanes of host threads, nest.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from math import inf
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


def nested(slices: HostSlices, most_lanes: int | None = None) -> tuple[Ints, Ints]:
    """For each slice the first lane of its thread on which it nests with others, and how many are around it there.

    Lane -1 is that of slices that do not fit on the first `most_lanes` of their thread.
    """
    threads: dict[tuple[int, int], _NestingLanes] = {}
    lane_of, depth_of = [], []
    for process, thread, begin, end in zip(
        *(column.tolist() for column in (slices.process, slices.thread, slices.begin_ns, slices.end_ns)), strict=True
    ):
        if (process, thread) not in threads:
            threads[process, thread] = _NestingLanes(most_lanes)
        lane, depth = threads[process, thread].place(begin, end)
        lane_of.append(lane)
        depth_of.append(depth)
    return np.array(lane_of, np.int64), np.array(depth_of, np.int64)


class _NestingLanes:
    """The lanes of a thread. None of its operations looks at all lanes: there may be as many as there are slices."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._open: list[list[int]] = [[]]
        """Of each lane the ends of the slices that are open, the innermost last."""
        self._ends: list[tuple[int, int]] = []
        """A heap of the ends of all open slices, with their lanes."""
        self._until: list[float] = [inf, inf]
        """A tree over the lanes, whose leaves are the second half: until when the next slice may last; of an inner node
        the most below it, which leads to the first lane with room for a slice."""

    def place(self, begin: int, end: int) -> tuple[int, int]:
        """The lane and the depth of the next slice, in order of begins and, for one begin, of falling ends."""
        while self._ends and self._ends[0][0] <= begin:
            _, lane = heapq.heappop(self._ends)
            self._open[lane].pop()
            self._update(lane)
        if self._until[1] < end:
            self._open += [[] for _ in self._open]
            self._until = [inf] * (2 * len(self._open))
            for lane in range(len(self._open) // 2):
                self._update(lane)
        node = 1
        while node < len(self._open):
            node *= 2
            node += self._until[node] < end
        lane = node - len(self._open)
        if self._most is not None and lane >= self._most:
            return -1, 0
        depth = len(self._open[lane])
        self._open[lane].append(end)
        heapq.heappush(self._ends, (end, lane))
        self._update(lane)
        return lane, depth

    def _update(self, lane: int) -> None:
        node = lane + len(self._open)
        self._until[node] = self._open[lane][-1] if self._open[lane] else inf
        while node > 1:
            node //= 2
            self._until[node] = max(self._until[2 * node], self._until[2 * node + 1])


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
