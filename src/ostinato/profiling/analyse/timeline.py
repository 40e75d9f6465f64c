"""When a device was busy and when it was idle, and what each bubble waited for.

*Busy* is the union of intervals, *sum* adds them up (more than busy where work ran concurrently), *span* goes from the
first start to the last end. Where dispatches were sampled the intervals are theirs; a command buffer that was not
sampled counts as busy from its start to its end, and the result says which of the two was used.

A bubble is a gap between busy stretches of one device. Inside a command buffer it is launch latency or a dependency.
Between two, it is host-bound until the host has committed the second (its spans say what it was doing), and queue
latency after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import ABSENT, Columns, Floats, HostSpans, Ints, Submissions, partly_timed, usable

LAUNCH = "inside a command buffer (dependency or launch latency)"
QUEUE = "queue latency (committed in time, started later)"
UNKNOWN = "not known (the commit was not recorded)"
BETWEEN_REGIONS = "host-bound (between regions)"
ELSEWHERE = "host-bound (the next commit came late; the host was doing something else)"
_HOST = {
    "wait": "host-bound (the next commit came late; the host was waiting)",
    "encode": "host-bound (the next commit came late; the host was encoding)",
    "compile": "host-bound (the next commit came late; the host was compiling)",
    "setup": "host-bound (the next commit came late; the host was setting up)",
    "commit": "host-bound (the commit itself)",
}
CAUSES = (LAUNCH, QUEUE, *_HOST.values(), ELSEWHERE, BETWEEN_REGIONS, UNKNOWN)
_LONGEST = 10
_PIECE = 1 << 18
"""Samples are walked in pieces that fit in a cache: it is faster, and memory stays bounded."""


@dataclass(frozen=True, slots=True)
class Line:
    """The intervals of one device on one line: busy time, and the gaps in it."""

    busy_ns: int
    sum_ns: int
    span_ns: int
    inside_ns: int
    """All gaps between two intervals of one owner together."""
    inside_count: int
    gap_begin_ns: Ints
    """The gaps between two owners, and the longest of the others, or all of them."""
    gap_end_ns: Ints
    gap_after: Ints
    """The row that was the last to end before each gap."""
    gap_before: Ints
    """The row that ended each gap by starting."""


def line_of(start_ns: Ints, end_ns: Ints, owner: Ints, every_gap: bool = False) -> Line:
    """Walks along the intervals in order of their start, piece by piece. Intervals that touch leave no gap."""
    count = start_ns.size
    order = _order(start_ns)
    busy = total = inside_ns = inside_count = 0
    reached_before = last_before = first = 0
    kept_gaps: list[tuple[Ints, Ints, Ints, Ints]] = []
    for begin in range(0, count, _PIECE):
        stop = min(begin + _PIECE, count)
        rows = np.arange(begin, stop) if order is None else order[begin:stop]
        start = start_ns[rows]
        end = np.maximum(end_ns[rows], start)
        if begin == 0:
            first = reached_before = int(start[0])
        reached = np.maximum(np.maximum.accumulate(end), reached_before)
        previous = np.concatenate([[reached_before], reached[:-1]])
        busy += int((reached - np.maximum(previous, start)).clip(min=0).sum())
        total += int((end - start).sum())
        gaps = np.flatnonzero(start > previous)
        # The row that reached furthest so far, for every row; 0 stands for one of an earlier piece.
        furthest = np.maximum.accumulate(np.where(end == reached, np.arange(1, rows.size + 1), 0))
        at = np.concatenate([[0], furthest[:-1]])[gaps]
        after = np.where(at > 0, rows[at - 1], last_before)
        before, gap_begin, gap_end = rows[gaps], previous[gaps], start[gaps]
        reached_before = int(reached[-1])
        last_before = int(rows[furthest[-1] - 1]) if furthest[-1] else last_before
        inside = owner[after] == owner[before]
        lengths = (gap_end - gap_begin)[inside]
        inside_ns, inside_count = inside_ns + int(lengths.sum()), inside_count + lengths.size
        kept = ~inside | every_gap
        if lengths.size and not every_gap:
            kept[np.flatnonzero(inside)[_largest(lengths)]] = True
        kept_gaps.append((gap_begin[kept], gap_end[kept], after[kept], before[kept]))
    columns = (
        [np.concatenate(parts) for parts in zip(*kept_gaps, strict=True)] if kept_gaps else [np.zeros(0, np.int64)] * 4
    )
    return Line(busy, total, reached_before - first, inside_ns, inside_count, *columns)


def _order(start_ns: Ints) -> Ints | None:
    """The order of the starts; None when they are in order already, which spares a copy of everything."""
    for begin in range(0, start_ns.size, _PIECE):
        piece = start_ns[begin : begin + _PIECE + 1]
        if (piece[1:] < piece[:-1]).any():
            return np.argsort(start_ns, kind="stable")
    return None


def _largest(lengths: Ints) -> Ints:
    """Rows of the longest few, longest first."""
    if lengths.size > _LONGEST:
        rows = np.argpartition(lengths, lengths.size - _LONGEST)[-_LONGEST:]
    else:
        rows = np.arange(lengths.size)
    return rows[np.argsort(-lengths[rows], kind="stable")]


def busy_share(start_ns: Ints, end_ns: Ints) -> Floats:
    """The busy time of each interval; intervals that overlap split it evenly.

    The shares add up to the union, so percentages of busy time add up to 100 also where work ran concurrently.
    """
    count = start_ns.size
    shares = np.empty(count)
    order = _order(start_ns)
    begin = 0
    while begin < count:
        # A piece must end where nothing is running, or what runs across the cut would not be divided.
        size = _PIECE
        while True:
            stop = min(begin + size, count)
            rows: Any = slice(begin, stop) if order is None else order[begin:stop]
            start, end = start_ns[rows], np.maximum(end_ns[rows], start_ns[rows])
            free = np.flatnonzero(start[1:] >= np.maximum.accumulate(end)[:-1])
            if stop == count or free.size:
                break
            size *= 2
        if stop < count:
            stop = begin + int(free[-1]) + 1
            rows = slice(begin, stop) if order is None else order[begin:stop]
            start, end = start[: stop - begin], end[: stop - begin]
        alone = free.size >= start.size - (stop == count)
        shares[rows] = end - start if alone else _shares(start, end)
        begin = stop
    return shares


def _shares(start: Ints, end: Ints) -> Floats:
    count = start.size
    # At equal times ends come first: intervals that only touch do not share. An interval without length ends before it
    # starts here, which lowers the count only where no time passes.
    times = np.concatenate([start, end]) - start[0]
    times *= 2
    times[:count] += 1
    order = np.argsort(times, kind="stable")
    times >>= 1
    running = np.cumsum(np.where(order < count, 1, -1))
    elapsed = np.diff(times[order]) / np.maximum(running[:-1], 1)
    at = np.empty(2 * count)
    at[order] = np.concatenate([[0.0], np.cumsum(elapsed)])
    return np.maximum(at[count:] - at[:count], 0.0)


# --- command buffers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmissionTimes:
    """Times of each command buffer, one row per submission; `ABSENT` where there is none."""

    interval_ns: Ints
    """Its own interval on the device."""
    span_ns: Ints
    """First start to last end of its sampled dispatches."""
    sum_ns: Ints
    first_ns: Ints
    last_ns: Ints
    sampled: Ints
    """How many of its dispatches have a time."""
    queue_delay_ns: Ints
    """End of the commit call to the start on the device; 0 if it started before the call returned."""
    encode_ns: Ints


def submission_times(columns: Columns) -> SubmissionTimes:
    """The times of every command buffer. Samples may come in any order."""
    subs, samples = columns.submissions, columns.samples
    count = len(subs)
    interval = np.where(subs.ran, subs.end_ns - subs.start_ns, ABSENT)
    known = usable(samples)
    owner, start, end = known.submission, known.start_ns, known.end_ns
    sampled = np.bincount(owner, minlength=count).astype(np.int64)
    if (np.diff(owner) < 0).any():
        order = np.argsort(owner, kind="stable")
        owner, start, end = owner[order], start[order], end[order]
    heads = np.flatnonzero(np.diff(owner, prepend=-1))
    first, last, total = np.full(count, ABSENT), np.full(count, ABSENT), np.full(count, ABSENT)
    if heads.size:
        rows = owner[heads]
        first[rows] = np.minimum.reduceat(start, heads)
        last[rows] = np.maximum.reduceat(end, heads)
        total[rows] = np.add.reduceat(end - start, heads)
    committed = subs.ran & (subs.commit_end_ns != ABSENT)
    encoded = (subs.encode_begin_ns != ABSENT) & (subs.encode_end_ns != ABSENT)
    return SubmissionTimes(
        interval_ns=interval,
        span_ns=np.where(sampled > 0, last - first, ABSENT),
        sum_ns=total,
        first_ns=first,
        last_ns=last,
        sampled=sampled,
        queue_delay_ns=np.where(committed, np.maximum(subs.start_ns - subs.commit_end_ns, 0), ABSENT),
        encode_ns=np.where(encoded, subs.encode_end_ns - subs.encode_begin_ns, ABSENT),
    )


# --- devices and bubbles -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cause:
    """What a share of the idle time waited for."""

    what: str
    total_ns: int
    count: int
    """Gaps for which it is the main cause."""


@dataclass(frozen=True, slots=True)
class Bubble:
    """One gap, and what stood on its two sides."""

    begin_ns: int
    length_ns: int
    cause: str
    after: str
    before: str


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """What one device did between the first start and the last end on it."""

    device: str
    submissions: int
    dispatches: int
    basis: str
    """'dispatches', 'command buffers' or both: what busy time is the union of."""
    busy_ns: int
    sum_ns: int
    begin_ns: int
    span_ns: int
    causes: tuple[Cause, ...]
    bubbles: tuple[Bubble, ...]
    """The longest ones."""

    @property
    def idle_ns(self) -> int:
        """All bubbles together."""
        return self.span_ns - self.busy_ns


def device_times(columns: Columns) -> tuple[DeviceTime, ...]:
    """Busy time and bubbles of every device that ran something.

    A command buffer of which not all dispatches have a time counts as busy from its start to its end.
    """
    subs, samples = columns.submissions, usable(columns.samples)
    timed = np.bincount(subs.device[samples.submission], minlength=len(columns.devices))
    by_device = []
    for number, busy in _busy(columns):
        line = line_of(busy.start_ns, busy.end_ns, busy.owner)
        whole = busy.node < 0
        basis = [name for name, some in (("dispatches", ~whole), ("command buffers", whole)) if some.any()]
        by_device.append(
            DeviceTime(
                columns.devices[number].name,
                int(((subs.device == number) & subs.ran).sum()),
                int(timed[number]),
                " and ".join(basis),
                line.busy_ns,
                line.sum_ns,
                int(busy.start_ns.min()),
                line.span_ns,
                *_bubbles(columns, line, busy.owner, busy.node),
            )
        )
    return tuple(by_device)


@dataclass(frozen=True, slots=True)
class _Busy:
    """What a device was busy with: dispatches, and command buffers (`node` -1) whose dispatches have no times."""

    start_ns: Ints
    end_ns: Ints
    owner: Ints
    node: Ints


def _busy(columns: Columns) -> Iterator[tuple[int, _Busy]]:
    """The devices that ran something, by their rows."""
    subs, samples = columns.submissions, usable(columns.samples)
    partly = partly_timed(columns)
    samples = samples.where(~partly[samples.submission]) if partly.any() else samples
    has_samples = np.bincount(samples.submission, minlength=len(subs)) > 0
    for number in range(len(columns.devices)):
        mine = subs.device == number
        chosen = samples if mine.all() else samples.where(mine[samples.submission])
        whole = np.flatnonzero(mine & subs.ran & ~has_samples)
        start, end, owner, node = chosen.start_ns, chosen.end_ns, chosen.submission, chosen.node
        if whole.size:
            start, end = np.concatenate([start, subs.start_ns[whole]]), np.concatenate([end, subs.end_ns[whole]])
            owner, node = np.concatenate([owner, whole]), np.concatenate([node, np.full(whole.size, -1)])
        if start.size:
            yield number, _Busy(start, end, owner, node)


@dataclass(frozen=True, slots=True)
class Gaps:
    """All gaps of one device, in order of time."""

    begin_ns: Ints
    end_ns: Ints
    cause: Ints
    """Row of `CAUSES`: what most of the gap waited for."""
    inside: Ints
    """The command buffer that has the dispatches on both sides; -1 between two command buffers."""


def device_gaps(columns: Columns) -> dict[int, Gaps]:
    """The gaps of every device that ran something, by its row; the same gaps as those of `device_times`."""
    gaps = {}
    for number, busy in _busy(columns):
        line = line_of(busy.start_ns, busy.end_ns, busy.owner, every_gap=True)
        after, before = busy.owner[line.gap_after], busy.owner[line.gap_before]
        between = np.flatnonzero(after != before)
        cause = np.full(after.size, CAUSES.index(LAUNCH))
        if between.size:
            begin, end = line.gap_begin_ns[between], line.gap_end_ns[between]
            names, table = _parts(columns, begin, end, after[between], before[between])
            cause[between] = np.array([CAUSES.index(name) for name in names])[table.argmax(axis=0)]
        inside = np.where(after == before, after, -1)
        gaps[number] = Gaps(line.gap_begin_ns, line.gap_end_ns, cause, inside)
    return gaps


def _bubbles(columns: Columns, line: Line, owner: Ints, node: Ints) -> tuple[tuple[Cause, ...], tuple[Bubble, ...]]:
    begin, end = line.gap_begin_ns, line.gap_end_ns
    if begin.size == 0:
        return (), ()
    after, before = owner[line.gap_after], owner[line.gap_before]
    names, table = _parts(columns, begin, end, after, before)
    main = table.argmax(axis=0)
    between = after != before
    causes = [Cause(LAUNCH, line.inside_ns, line.inside_count)]
    causes += [
        Cause(name, int(table[i, between].sum()), int((main[between] == i).sum())) for i, name in enumerate(names)
    ]
    return (
        tuple(sorted((c for c in causes if c.total_ns), key=lambda c: -c.total_ns)),
        tuple(
            Bubble(
                int(begin[g]),
                int(end[g] - begin[g]),
                names[int(main[g])] if between[g] else LAUNCH,
                _describe(columns, int(after[g]), int(node[line.gap_after[g]])),
                _describe(columns, int(before[g]), int(node[line.gap_before[g]])),
            )
            for g in _largest(end - begin)
        ),
    )


def _parts(columns: Columns, begin: Ints, end: Ints, before: Ints, after: Ints) -> tuple[list[str], Ints]:
    """Splits gaps between command buffers by what they waited for; the parts of a gap add up to its length."""
    subs = columns.submissions
    length = end - begin
    commit = subs.commit_end_ns[after]
    blind = commit == ABSENT
    late_until = np.where(blind, begin, np.clip(commit, begin, end))
    rest = late_until - begin
    parts = {UNKNOWN: np.where(blind, length, 0), QUEUE: np.where(blind, 0, end - late_until)}
    for kind, covered in _host_activity(columns.host_spans, subs, begin, late_until, after).items():
        parts[_HOST[kind]] = np.minimum(covered, rest)
        rest = rest - parts[_HOST[kind]]
    same_region = subs.region[before] == subs.region[after]
    parts[ELSEWHERE] = np.where(same_region, rest, 0)
    parts[BETWEEN_REGIONS] = np.where(same_region, 0, rest)
    return list(parts), np.stack(list(parts.values()))


def _host_activity(spans: HostSpans, subs: Submissions, begin: Ints, end: Ints, after: Ints) -> dict[str, Ints]:
    """How long the thread that committed each `after` spent between `begin` and `end` in each kind of span."""
    spent = {kind: np.zeros_like(begin) for kind in _HOST}
    who = np.stack([subs.process[after], subs.thread[after]], axis=1)
    for process, thread in np.unique(who, axis=0):
        rows = np.flatnonzero((who[:, 0] == process) & (who[:, 1] == thread))
        mine = (spans.process == process) & (spans.thread == thread)
        for kind in _HOST:
            chosen = mine & (spans.kind == kind)
            first, last = spans.begin_ns[chosen], spans.end_ns[chosen]
            if kind == "encode":
                own = (subs.process == process) & (subs.thread == thread)
                own &= (subs.encode_begin_ns != ABSENT) & (subs.encode_end_ns != ABSENT)
                first = np.concatenate([first, subs.encode_begin_ns[own]])
                last = np.concatenate([last, subs.encode_end_ns[own]])
            if first.size:
                spent[kind][rows] = _covered(first, last, end[rows]) - _covered(first, last, begin[rows])
    return spent


def _covered(begin: Ints, end: Ints, at: Ints) -> Ints:
    """How much of the union of the intervals lies before each time `at`."""
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    heads = np.flatnonzero(np.append(True, begin[1:] > reached[:-1]))
    firsts, lasts = begin[heads], reached[np.append(heads[1:], begin.size) - 1]
    before = np.concatenate([[0], np.cumsum(lasts - firsts)])
    index = np.searchsorted(firsts, at, side="right") - 1
    inside = np.clip(np.minimum(at, lasts[index]) - firsts[index], 0, None)
    covered: Ints = np.where(index < 0, 0, before[index] + inside)
    return covered


def _describe(columns: Columns, submission: int, node: int) -> str:
    subs = columns.submissions
    label = subs.label[submission]
    where = f"command buffer {int(subs.ordinal[submission])}" + (f" ({label})" if label else "")
    return f"{columns.commands.title(int(columns.plans.command[node]))} in {where}" if node >= 0 else where
