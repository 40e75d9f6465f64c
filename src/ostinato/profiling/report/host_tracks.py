"""What a timeline shows of host threads: regions, encoding, commits, waits and whatever else they did, as slices.

Slices of one track must nest, so what overlaps on a thread without nesting (two encoders that take turns, tasks that
wait at the same time) goes to a further lane of that thread. `trace.py` writes what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analyse.columns import ABSENT, Columns

_STEP = (1 << 24) + 1
"""Tracks whose number is taken try the one this far on. It is odd, so they try all numbers before they repeat one."""


@dataclass(slots=True)
class HostSlice:
    """Something that a host thread did."""

    process: int
    thread: int
    begin_ns: int
    end_ns: int
    kind: str
    title: str
    submission: int = -1
    """What it encoded, committed or waited for; -1 for none."""
    lane: int = 0
    tid: int = 0
    """The number of its track, which no other track of the process has."""


def title(columns: Columns, submission: int) -> str:
    """What a command buffer is called."""
    subs = columns.submissions
    return str(subs.label[submission]) or f"command buffer {int(subs.ordinal[submission])}"


def host_slices(columns: Columns) -> list[HostSlice]:
    """What all host threads did, by time, an outer slice before the inner ones, each on a lane where it nests."""
    regions, spans, subs = columns.regions, columns.host_spans, columns.submissions
    slices = [
        HostSlice(process, thread, begin, end, "region", str(name))
        for process, thread, begin, end, name in _rows(
            regions.process, regions.thread, regions.begin_ns, regions.end_ns, regions.name
        )
        if end != ABSENT
    ]
    # Encoding and committing are known from the submissions; their spans would only repeat them.
    repeated = (spans.submission >= 0) & np.isin(spans.kind, ["encode", "commit"])
    kept = spans.where(~repeated & (spans.kind != "region"))
    slices += [
        HostSlice(process, thread, begin, end, str(kind), f"{kind} {name}" if name else str(kind), submission)
        for process, thread, begin, end, kind, name, submission in _rows(
            kept.process, kept.thread, kept.begin_ns, kept.end_ns, kept.kind, kept.name, kept.submission
        )
    ]
    for kind, begins, ends in (
        ("encode", subs.encode_begin_ns, subs.encode_end_ns),
        ("commit", subs.commit_begin_ns, subs.commit_end_ns),
    ):
        slices += [
            HostSlice(process, thread, begin, end, kind, f"{kind} {title(columns, row)}", row)
            for row, (process, thread, begin, end) in enumerate(_rows(subs.process, subs.thread, begins, ends))
            if begin != ABSENT and end != ABSENT
        ]
    slices.sort(key=lambda each: (each.begin_ns, -each.end_ns))
    _place(slices)
    _number(slices)
    return slices


def _rows(*columns: Any) -> Iterable[Any]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _place(slices: list[HostSlice]) -> None:
    """Gives every slice the first lane of its thread on which it nests."""
    open_until: dict[tuple[int, int], list[list[int]]] = {}
    for each in slices:
        lanes = open_until.setdefault((each.process, each.thread), [])
        for number, lane in enumerate(lanes):
            while lane and lane[-1] <= each.begin_ns:
                lane.pop()
            if not lane or each.end_ns <= lane[-1]:
                each.lane = number
                break
        else:
            each.lane = len(lanes)
            lanes.append([])
        lanes[each.lane].append(each.end_ns)


def _number(slices: list[HostSlice]) -> None:
    """Gives every lane a number: that of its thread, as far as viewers keep it, unless another has it."""
    tids: dict[tuple[int, int, int], int] = {}
    taken: set[tuple[int, int]] = set()
    # First lanes are numbered first, so that threads have their own numbers.
    for lane, process, thread in sorted({(each.lane, each.process, each.thread) for each in slices}):
        tid = thread & 0x7FFFFFFF
        while (process, tid) in taken:
            tid = (tid + _STEP) & 0x7FFFFFFF
        taken.add((process, tid))
        tids[lane, process, thread] = tid
    for each in slices:
        each.tid = tids[each.lane, each.process, each.thread]
