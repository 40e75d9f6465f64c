"""Work that shares a device of limited capacity: taken from measured times, and run again with other amounts of it.

Where several dispatches run at once and together want more workers than there are, each gets a part of the device and
is slowed down by the others. What such a dispatch takes is then not its duration but its *work*: the workers it had,
added up over the time it had them. `calibrated` reads the work off measured times; `replay` runs any amounts of work
through the dependencies on the same number of workers. Nothing is lost on the way (a worker that has something to do
does it), so the replay of the unchanged list takes as long as the list took; how far it is off is its *residue*.

A dispatch uses at most as many workers as it has threadgroups. It starts when what it waits for has ended, a gap later
(launch latency), and when a worker is free. Where it was seen to start although none was, it joins: it does not wait.
Who gets how many is the device's way of sharing:

- FIRST: one worker each, and the rest go to those that started first. So does the CPU backend.
- PROPORTIONAL: who starts takes all that it can use; those that are there together have parts by what each could use.
  So does a GPU, whose multiprocessors hold groups of several dispatches.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from .columns import Flags, Floats, Ints

FITS = 0.1
"""A replay whose unchanged list is further off than this part of the measured time says nothing about a changed one."""
_NEAR = 0.25
"""A dispatch that starts within this part of another's duration from its end is taken to have waited for it."""
_NOTICEABLE = 0.05
"""Starts and ends that are off by more than this part of the whole make another way of sharing worth a try."""
_TOLERANCE = 1e-9


class Sharing(Enum):
    """Who gets how many workers."""

    FIRST = "first"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Dispatches that may run beside each other and together want more workers than the device has.

    Everything before them has ended when the first of them starts, and everything after waits for all of them.
    """

    nodes: tuple[int, ...]
    """In order of their starts. Everything below is by position in this."""
    predecessors: tuple[tuple[int, ...], ...]
    useful: tuple[float, ...]
    """How many workers each can use."""
    workers: float
    sharing: Sharing
    work_ns: Floats
    """Workers, times the time they took."""
    gap_ns: Floats
    joins: Flags
    """Which start although no worker is free."""
    wall_ns: float = 0.0
    """What was measured, and what a replay takes."""
    residue: float = 0.0
    """How far the replay was from the measured time before it was scaled to it, as a part of it."""

    def __len__(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class Run:
    """A replay: when each started and ended, from the moment at which the first could."""

    start_ns: Floats
    end_ns: Floats
    cause: tuple[int, ...]
    """Whose end each one's start waited for: a predecessor, or what had the workers; -1 for nobody's."""

    @property
    def wall_ns(self) -> float:
        """Until the last one ended."""
        return float(self.end_ns.max(initial=0.0))


def calibrated(
    nodes: Sequence[int],
    predecessors: Sequence[tuple[int, ...]],
    useful: Floats,
    workers: float,
    sharing: Sharing,
    start_ns: Floats,
    duration_ns: Floats,
) -> Crowd:
    """The crowd whose replay comes closest to what was measured: one row of times per run, NaN where there is none.

    `sharing` is how the device is known to share. It is taken to have done otherwise where that puts starts and ends
    clearly nearer to what was measured: a worker that another program kept from running, say, is not there to share.
    """
    crowd, off_ns = _calibrated(nodes, predecessors, useful, workers, sharing, start_ns, duration_ns)
    if off_ns > _NOTICEABLE * crowd.wall_ns:
        other = Sharing.PROPORTIONAL if sharing is Sharing.FIRST else Sharing.FIRST
        found, other_off_ns = _calibrated(nodes, predecessors, useful, workers, other, start_ns, duration_ns)
        if other_off_ns < off_ns / 2:
            return found
    return crowd


def _calibrated(
    nodes: Sequence[int],
    predecessors: Sequence[tuple[int, ...]],
    useful: Floats,
    workers: float,
    sharing: Sharing,
    start_ns: Floats,
    duration_ns: Floats,
) -> tuple[Crowd, float]:
    """The crowd, and by how much its starts and ends are off in the middle.

    The work of each run is taken from its own times, because who ran beside whom differs from run to run and the work
    does not; then the median. The replay of that is held against the median of what the runs took, and scaled to it.
    """
    before = tuple(predecessors)
    caps = tuple(useful.tolist())
    runs = [_observed(before, caps, workers, sharing, s, d) for s, d in zip(start_ns, duration_ns, strict=True)]
    work, gap = (np.median([run[part] for run in runs], axis=0) for part in (0, 1))
    joins: Flags = np.mean([run[2] for run in runs], axis=0) > 0.5
    crowd = Crowd(tuple(nodes), before, caps, workers, sharing, work, gap, joins)
    measured = float(np.median(np.nanmax(start_ns + duration_ns, axis=1)))
    again = replay(crowd, work)
    if measured <= 0 or again.wall_ns <= 0:
        return replace(crowd, wall_ns=measured, residue=0.0 if measured == again.wall_ns else 1.0), 0.0
    timed = useful > 0
    starts, ends = np.median(start_ns[:, timed], axis=0), np.median((start_ns + duration_ns)[:, timed], axis=0)
    off = np.abs(again.start_ns[timed] - starts) + np.abs(again.end_ns[timed] - ends)
    scale = measured / again.wall_ns
    residue = abs(again.wall_ns - measured) / measured
    made = replace(crowd, work_ns=work * scale, gap_ns=gap * scale, wall_ns=measured, residue=residue)
    return made, float(off.mean() / 2)


def shares(running: Sequence[int], useful: Sequence[float], workers: float, sharing: Sharing) -> list[float]:
    """How many workers each of those running has, in order of their starts."""
    wanted = [useful[node] for node in running]
    total = sum(wanted)
    if total <= workers or not running:
        return wanted
    if sharing is Sharing.PROPORTIONAL:
        return [one * workers / total for one in wanted]
    if len(running) >= workers:
        return [max(workers, 0.0) / len(running)] * len(running)
    spare = workers - len(running)
    found = []
    for one in wanted:
        more = min(one - 1, spare)
        spare -= more
        found.append(1 + more)
    return found


def replay(crowd: Crowd, work_ns: Floats) -> Run:
    """Runs these amounts of work.

    Of those that wait for a worker the one that started earlier when measured goes first. Who gets a worker holds it
    through its gap: nobody else can use it while it is on its way.
    """
    size, useful, predecessors = len(crowd), crowd.useful, crowd.predecessors
    after: list[list[int]] = [[] for _ in range(size)]
    for node, found in enumerate(predecessors):
        for p in found:
            after[p].append(node)
    blockers = [len(found) for found in predecessors]
    left, gaps = work_ns.tolist(), crowd.gap_ns.tolist()
    held = _held(crowd.sharing)
    taken = [min(one, 1.0) if crowd.sharing is Sharing.FIRST else one for one in useful]
    needs_none = [joins or not most for joins, most in zip(crowd.joins.tolist(), useful, strict=True)]
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
        free = crowd.workers - sum(having) - sum([taken[node] for _, node in launching if not needs_none[node]])
        while waiting and (free > 1 - _TOLERANCE or not (running or launching)):
            node = heapq.heappop(waiting)
            if now > ready[node]:
                cause[node] = ended
            free -= taken[node]
            heapq.heappush(launching, (now + gaps[node], node))
        if not (running or launching):
            break
        having = shares(running, useful, crowd.workers - held * len(launching), crowd.sharing)
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
    return Run(np.array(start), np.array(end), tuple(cause))


def _held(sharing: Sharing) -> float:
    """What a dispatch takes of the device while it is being launched."""
    return 1.0 if sharing is Sharing.FIRST else 0.0


def slack_of(crowd: Crowd, duration_ns: Floats) -> Floats:
    """By how much each could take longer, at the pace that was measured, without the whole taking longer.

    Found by trying, to a thousandth of the whole: dependencies alone do not say it, because what takes longer also
    takes workers from the others. NaN for what has no time.
    """
    now = replay(crowd, crowd.work_ns)
    close = now.wall_ns * 1e-3
    found = np.full(len(crowd), np.nan)
    for node in np.flatnonzero((crowd.work_ns > 0) & (duration_ns > 0)).tolist():
        pace = crowd.work_ns[node] / duration_ns[node]

        def fits(extra: float, node: int = node, pace: float = pace) -> bool:
            longer = crowd.work_ns.copy()
            longer[node] += extra * pace
            return replay(crowd, longer).wall_ns <= now.wall_ns + close / 10

        low, high = 0.0, float(now.wall_ns - now.end_ns[node]) * max(1.0, crowd.useful[node] / pace)
        if high > close and fits(close):
            low = high if fits(high) else close
            while high - low > close:
                middle = (low + high) / 2
                low, high = (middle, high) if fits(middle) else (low, middle)
        found[node] = low
    return found


def _observed(
    predecessors: tuple[tuple[int, ...], ...],
    useful: tuple[float, ...],
    workers: float,
    sharing: Sharing,
    start_ns: Floats,
    duration_ns: Floats,
) -> tuple[Floats, Floats, Flags]:
    """Work, gap, and whether it joined, of every node of one run."""
    size = len(useful)
    ran = ~np.isnan(start_ns)
    start, duration = np.where(ran, start_ns, 0.0), np.where(ran, duration_ns, 0.0)
    end = start + duration
    ready = np.zeros(size)
    for node, found in enumerate(predecessors):
        ready[node] = max((end[p] for p in found), default=0.0)
        if not ran[node]:
            start[node] = end[node] = ready[node]
    gap, joins = _starts(predecessors, useful, workers, sharing, start, end, ready)
    # Walks along what happened, and hands out the workers in between.
    moments = [(float(end[n]), 0, n) for n in range(size)]
    moments += [(float(start[n]), 1, n) for n in range(size)]
    moments += [(float(start[n] - gap[n]), 2, n) for n in range(size) if gap[n] > 0]
    held = _held(sharing)
    running: list[int] = []
    having: list[float] = []
    launching = 0
    now = 0.0
    work = np.zeros(size)
    for at, what, node in sorted(moments):
        if at > now:
            for one, rate in zip(running, having, strict=True):
                work[one] += (at - now) * rate
            now = at
        if what == 2:
            launching += 1
        elif what == 1:
            launching -= gap[node] > 0
            if end[node] > start[node]:
                running.append(node)
        elif node in running:
            running.remove(node)
        having = shares(running, useful, workers - held * launching, sharing)
    return work, gap, joins


def _starts(
    predecessors: tuple[tuple[int, ...], ...],
    useful: tuple[float, ...],
    workers: float,
    sharing: Sharing,
    start: Floats,
    end: Floats,
    ready: Floats,
) -> tuple[Floats, Flags]:
    """How long each took to start once it could, and whether it started although no worker was free."""
    size = len(useful)
    gap, joins = np.maximum(start - ready, 0.0), np.zeros(size, bool)
    duration = end - start
    moments = sorted([(float(end[n]), 0, n) for n in range(size)] + [(float(start[n]), 1, n) for n in range(size)])
    running: list[int] = []
    wanted = 0.0
    ended: int | None = None  # the last that ended on a full device
    for at, starts, node in moments:
        if duration[node] <= 0:
            continue
        full = wanted >= workers - _TOLERANCE
        if not starts:
            running.remove(node)
            wanted -= useful[node]
            ended = node if full else ended
            continue
        if full and any(end[one] - at <= _NEAR * min(duration[one], duration[node]) for one in running):
            gap[node] = 0.0  # the last groups of the one it waited for were still running
        elif ended is not None and end[ended] > ready[node]:
            gap[node] = at - end[ended]
            joins[node] = full and gap[node] > _NEAR * min(duration[ended], duration[node])
        elif full:
            had_its_own = sharing is Sharing.FIRST and not predecessors[node] and len(running) < workers
            passed_on = gap[node] <= _NEAR * duration[node] and bool(predecessors[node])
            joins[node] = not (had_its_own or passed_on)
        if joins[node]:
            gap[node] = max(at - ready[node], 0.0)
        running.append(node)
        wanted += useful[node]
    return gap, joins


def crowds(
    order: Sequence[int],
    predecessors: Sequence[Sequence[int]],
    useful: Floats,
    workers: float,
) -> list[list[int]]:
    """The stretches of nodes, in order, that can run beside each other and together want more than there is.

    Between them lie nodes that all others come before or after: whatever happens on one side of such a node only moves
    what lies on the other side.
    """
    size = len(order)
    successors: list[list[int]] = [[] for _ in range(size)]
    for node, found in enumerate(predecessors):
        for p in found:
            successors[p].append(node)
    joining, forking = _meeting(order, predecessors), _meeting(list(reversed(order)), successors)
    stretches: list[list[int]] = [[]]
    for node in order:
        if joining[node] and forking[node]:
            stretches.append([])
        else:
            stretches[-1].append(node)
    return [one for one in stretches if len(one) > 1 and float(useful[one].sum()) > workers]


def _meeting(order: Sequence[int], before: Sequence[Sequence[int]]) -> list[bool]:
    """Which nodes come after all that stand before them in this order."""
    found = [False] * len(order)
    ends: set[int] = set()
    for node in order:
        ends.difference_update(before[node])
        found[node] = not ends
        ends.add(node)
    return found


def useful_workers(groups: Ints, workers: int) -> Floats:
    """How many workers dispatches of so many threadgroups can use."""
    return np.minimum(np.maximum(groups, 1), workers).astype(np.float64)
