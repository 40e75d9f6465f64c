"""Contention: dispatches that compete for a device of limited capacity, replayed with other amounts of work.

Where several dispatches run at once and together want more workers than there are, each gets a part of the device and
is slowed down by the others. The cost of such a dispatch is then not its duration but its *work*: worker-nanoseconds.
`calibrated` derives the work from measured times; `replay` runs any amounts of work through the dependencies on the
same number of workers. No worker is idle while a dispatch could use it, so the replay of the unchanged list should take
the measured time; how far it is off is its *residue*.

A dispatch uses at most as many workers as it has threadgroups. It starts when its dependencies have ended, after a gap
(launch latency), and when a worker is free. A dispatch that was seen to start on a full device joins: it does not wait.
How workers are divided depends on the device:

- FIRST: one worker each, and the rest go to those that started first. So does the CPU backend.
- PROPORTIONAL: a dispatch takes all the workers that it can use; dispatches that overlap divide them in proportion to
  what each could use. So does a GPU, whose multiprocessors hold threadgroups of several dispatches.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np

from .columns import Flags, Floats

FITS = 0.1
"""The largest residue, as a part of the measured time, at which a replay can be trusted about a changed list."""
_NEAR = 0.25
"""A dispatch that starts this close to another's end, as a part of its duration, is assumed to have waited for it."""
_NOTICEABLE = 0.05
"""The other way of sharing is tried where starts and ends are off by more than this part of the whole."""
_TOLERANCE = 1e-9


class Sharing(Enum):
    """Who gets how many workers."""

    FIRST = "first"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class Contention:
    """Dispatches that may overlap and together want more workers than the device has.

    Everything before them has ended when the first of them starts, and everything after waits for all of them.
    """

    nodes: tuple[int, ...]
    """In order of their starts. Everything below is by position in this."""
    predecessors: tuple[tuple[int, ...], ...]
    useful: tuple[float, ...]
    """How many workers each can use."""
    workers: float
    sharing: Sharing
    work_ns: Floats = field(default_factory=lambda: np.zeros(0))
    """Worker-nanoseconds. These and the fields below come from `calibrated`."""
    gap_ns: Floats = field(default_factory=lambda: np.zeros(0))
    joins: Flags = field(default_factory=lambda: np.zeros(0, bool))
    """Which start although no worker is free."""
    wall_ns: float = 0.0
    """Measured, and reproduced by the replay."""
    residue: float = 0.0
    """How far the replay was off before it was scaled to the measured time, as a part of that time."""

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class Replay:
    """When each dispatch started and ended, from the moment at which the first could."""

    start_ns: Floats
    end_ns: Floats
    cause: tuple[int, ...]
    """Whose end each start waited for: a predecessor, or a dispatch that held the workers; -1 for none."""

    @property
    def wall_ns(self) -> float:
        """Until the last one ended."""
        return float(self.end_ns.max(initial=0.0))


def calibrated(contention: Contention, start_ns: Floats, duration_ns: Floats) -> Contention:
    """With the work, gaps and joins whose replay comes closest to the measured times: a row per run, NaN for no time.

    `contention.sharing` is how the device normally divides its workers. The other way is assumed where it puts starts
    and ends clearly closer to the measurement: a worker that another program kept from running cannot be shared.
    """
    usual, off_ns = _calibrated(contention, start_ns, duration_ns)
    if off_ns > _NOTICEABLE * usual.wall_ns:
        sharing = Sharing.PROPORTIONAL if contention.sharing is Sharing.FIRST else Sharing.FIRST
        other, other_off_ns = _calibrated(replace(contention, sharing=sharing), start_ns, duration_ns)
        if other_off_ns < off_ns / 2:
            return other
    return usual


def _calibrated(contention: Contention, start_ns: Floats, duration_ns: Floats) -> tuple[Contention, float]:
    """The calibrated contention, and by how much its starts and ends are off in the middle.

    The work of each run is derived from its own times, because overlaps differ from run to run and the work does not;
    then the median is taken. The replay of the medians is compared with the median wall time, and scaled to it.
    """
    runs = [_observed(contention, *times) for times in zip(start_ns, duration_ns, strict=True)]
    work, gap = (np.median([run[part] for run in runs], axis=0) for part in (0, 1))
    joins: Flags = np.mean([run[2] for run in runs], axis=0) > 0.5
    contention = replace(contention, work_ns=work, gap_ns=gap, joins=joins)
    measured = float(np.median(np.nanmax(start_ns + duration_ns, axis=1)))
    again = replay(contention, work)
    if measured <= 0 or again.wall_ns <= 0:
        return replace(contention, wall_ns=measured, residue=0.0 if measured == again.wall_ns else 1.0), 0.0
    timed = np.array(contention.useful) > 0
    starts, ends = np.median(start_ns[:, timed], axis=0), np.median((start_ns + duration_ns)[:, timed], axis=0)
    off = np.abs(again.start_ns[timed] - starts) + np.abs(again.end_ns[timed] - ends)
    scale = measured / again.wall_ns
    residue = abs(again.wall_ns - measured) / measured
    scaled = replace(contention, work_ns=work * scale, gap_ns=gap * scale, wall_ns=measured, residue=residue)
    return scaled, float(off.mean() / 2)


def shares(running: Sequence[int], useful: Sequence[float], workers: float, sharing: Sharing) -> list[float]:
    """How many workers each of those running has, in order of their starts."""
    wanted = [useful[node] for node in running]
    total = sum(wanted)
    if total <= workers or not running:
        return wanted
    if sharing is Sharing.PROPORTIONAL:
        return [most * workers / total for most in wanted]
    if len(running) >= workers:
        return [max(workers, 0.0) / len(running)] * len(running)
    spare = workers - len(running)
    had = []
    for most in wanted:
        more = min(most - 1, spare)
        spare -= more
        had.append(1 + more)
    return had


def replay(contention: Contention, work_ns: Floats) -> Replay:
    """Runs these amounts of work.

    Of the dispatches that wait for a worker, the one that started first when measured goes first. A dispatch holds its
    worker through its gap: nobody else can use it during the launch.
    """
    size, useful, sharing = len(contention), contention.useful, contention.sharing
    after = _successors(contention.predecessors)
    blockers = [len(before) for before in contention.predecessors]
    left, gaps = work_ns.tolist(), contention.gap_ns.tolist()
    held = _held(sharing)
    taken = [min(most, 1.0) if sharing is Sharing.FIRST else most for most in useful]
    needs_none = [joins or not most for joins, most in zip(contention.joins.tolist(), useful, strict=True)]
    start, end, ready, cause = [0.0] * size, [0.0] * size, [0.0] * size, [-1] * size
    can_start = [node for node in range(size) if not blockers[node]]
    waiting: list[int] = []
    launching: list[tuple[float, int]] = []
    running: list[int] = []
    having: list[float] = []
    now, ended = 0.0, -1
    while True:
        # Workers go to those that wait; what nobody takes helps those that run.
        for node in can_start:
            if needs_none[node]:
                heapq.heappush(launching, (now + gaps[node], node))
            else:
                heapq.heappush(waiting, node)
        free = contention.workers - sum(having) - sum([taken[node] for _, node in launching if not needs_none[node]])
        while waiting and (free > 1 - _TOLERANCE or not (running or launching)):
            node = heapq.heappop(waiting)
            if now > ready[node]:
                cause[node] = ended
            free -= taken[node]
            heapq.heappush(launching, (now + gaps[node], node))
        if not (running or launching):
            break
        having = shares(running, useful, contention.workers - held * len(launching), sharing)
        until, place = np.inf, -1
        for number, node in enumerate(running):
            rate = having[number]
            if left[node] < (until - now) * rate:
                until, place = now + left[node] / rate, number
        arrives = bool(launching) and launching[0][0] <= until
        if arrives:
            until = launching[0][0]
        for number, node in enumerate(running):
            left[node] -= (until - now) * having[number]
        now = until
        can_start = []
        if arrives:
            node = heapq.heappop(launching)[1]
            start[node] = now
            running.append(node)
            having.append(taken[node])
            if left[node] > 0:
                continue
            place = len(running) - 1
        ended = running.pop(place)
        having.pop(place)
        end[ended] = now
        for node in after[ended]:
            blockers[node] -= 1
            if not blockers[node]:
                cause[node], ready[node] = ended, now
                can_start.append(node)
    return Replay(np.array(start), np.array(end), tuple(cause))


def _held(sharing: Sharing) -> float:
    """What a dispatch takes of the device while it is being launched."""
    return 1.0 if sharing is Sharing.FIRST else 0.0


def slack_of(contention: Contention, duration_ns: Floats) -> Floats:
    """By how much each could take longer, at the measured pace, without extending the whole. NaN for what has no time.

    Found by bisection, to a thousandth of the whole: dependencies alone do not determine it, because a longer dispatch
    also takes workers from the others.
    """
    now = replay(contention, contention.work_ns)
    close = now.wall_ns * 1e-3
    slack = np.full(len(contention), np.nan)
    for node in np.flatnonzero((contention.work_ns > 0) & (duration_ns > 0)).tolist():
        pace = contention.work_ns[node] / duration_ns[node]

        def fits(extra: float, node: int = node, pace: float = pace) -> bool:
            longer = contention.work_ns.copy()
            longer[node] += extra * pace
            return replay(contention, longer).wall_ns <= now.wall_ns + close / 10

        low, high = 0.0, float(now.wall_ns - now.end_ns[node]) * max(1.0, contention.useful[node] / pace)
        if high > close and fits(close):
            low = high if fits(high) else close
            while high - low > close:
                middle = (low + high) / 2
                low, high = (middle, high) if fits(middle) else (low, middle)
        slack[node] = low
    return slack


def _observed(contention: Contention, start_ns: Floats, duration_ns: Floats) -> tuple[Floats, Floats, Flags]:
    """Work, gap, and whether it joined, of every node of one run."""
    size = len(contention)
    ran = ~np.isnan(start_ns)
    start, duration = np.where(ran, start_ns, 0.0), np.where(ran, duration_ns, 0.0)
    end = start + duration
    ready = np.zeros(size)
    for node, before in enumerate(contention.predecessors):
        ready[node] = max((end[p] for p in before), default=0.0)
        if not ran[node]:
            start[node] = end[node] = ready[node]
    gap, joins = _starts(contention, start, end, ready)
    # Walks along the events of the run, and divides the workers in between.
    moments = [(float(end[n]), 0, n) for n in range(size)]
    moments += [(float(start[n]), 1, n) for n in range(size)]
    moments += [(float(start[n] - gap[n]), 2, n) for n in range(size) if gap[n] > 0]
    held = _held(contention.sharing)
    running: list[int] = []
    having: list[float] = []
    launching = 0
    now = 0.0
    work = np.zeros(size)
    for at, what, node in sorted(moments):
        if at > now:
            for other, rate in zip(running, having, strict=True):
                work[other] += (at - now) * rate
            now = at
        if what == 2:
            launching += 1
        elif what == 1:
            launching -= gap[node] > 0
            if end[node] > start[node]:
                running.append(node)
        elif node in running:
            running.remove(node)
        having = shares(running, contention.useful, contention.workers - held * launching, contention.sharing)
    return work, gap, joins


def _starts(contention: Contention, start: Floats, end: Floats, ready: Floats) -> tuple[Floats, Flags]:
    """How long each took to start once it could, and whether it started although no worker was free."""
    size, useful, predecessors = len(contention), contention.useful, contention.predecessors
    gap, joins = np.maximum(start - ready, 0.0), np.zeros(size, bool)
    duration = end - start
    moments = sorted([(float(end[n]), 0, n) for n in range(size)] + [(float(start[n]), 1, n) for n in range(size)])
    running: list[int] = []
    wanted = 0.0
    ended: int | None = None  # the last that ended on a full device
    for at, starts, node in moments:
        if duration[node] <= 0:
            continue
        full = wanted >= contention.workers - _TOLERANCE
        if not starts:
            running.remove(node)
            wanted -= useful[node]
            ended = node if full else ended
            continue
        if full and any(end[other] - at <= _NEAR * min(duration[other], duration[node]) for other in running):
            gap[node] = 0.0  # the last groups of the one it waited for were still running
        elif ended is not None and end[ended] > ready[node]:
            gap[node] = at - end[ended]
            joins[node] = full and gap[node] > _NEAR * min(duration[ended], duration[node])
        elif full:
            free_worker = contention.sharing is Sharing.FIRST and len(running) < contention.workers
            had_its_own = free_worker and not predecessors[node]
            passed_on = gap[node] <= _NEAR * duration[node] and bool(predecessors[node])
            joins[node] = not (had_its_own or passed_on)
        if joins[node]:
            gap[node] = max(at - ready[node], 0.0)
        running.append(node)
        wanted += useful[node]
    return gap, joins


def contended(
    order: Sequence[int], predecessors: Sequence[Sequence[int]], useful: Floats, workers: float
) -> list[list[int]]:
    """The stretches of nodes, in order, that may overlap and together want more workers than there are.

    Between them lie nodes that all others come before or after: a change on one side of such a node only shifts what
    lies on the other side.
    """
    joining, forking = _meeting(order, predecessors), _meeting(list(reversed(order)), _successors(predecessors))
    stretches: list[list[int]] = [[]]
    for node in order:
        if joining[node] and forking[node]:
            stretches.append([])
        else:
            stretches[-1].append(node)
    return [nodes for nodes in stretches if len(nodes) > 1 and float(useful[nodes].sum()) > workers]


def _successors(predecessors: Sequence[Sequence[int]]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in predecessors]
    for node, before in enumerate(predecessors):
        for p in before:
            after[p].append(node)
    return after


def _meeting(order: Sequence[int], before: Sequence[Sequence[int]]) -> list[bool]:
    """Which nodes come after all that stand before them in this order."""
    meets = [False] * len(order)
    ends: set[int] = set()
    for node in order:
        ends.difference_update(before[node])
        meets[node] = not ends
        ends.add(node)
    return meets
