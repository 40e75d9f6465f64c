"""Replays in turns: A B, then B A, and so on, each visit of a contender being a few replays in a row.

What is slow on a shared machine (a clock that changes, another program that comes and goes) meets all contenders of a
round alike, so a round is what can be compared. A visit begins with a replay that only warms up, unless replays are
long; with cold caches every replay follows a flush instead. The rounds move through several placements of the
contenders' memory. Nothing is written or computed while replays run: they are kept as traces, and become a recording
between rounds, with a region for every round and in it one for every visit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType

import numpy as np

from .. import counters
from ..backends.protocol import Level
from ..errors import ArgumentError
from ..graph.replay import Replayable
from ..passes.snapshot import restored
from ..profiling.analyse import Columns, columns_of
from ..profiling.analyse.columns import Flags, Ints
from ..profiling.analyse.comparable import comparable
from ..profiling.analyse.lists import WARM_UP
from ..profiling.session import Profile
from ..runtime import tracing
from ..runtime.tracing import KeptTraces
from .flushing import flush_of
from .placements import LEAST, MOST, elsewhere, placements, places_for
from .subjects import Contender

_VISIT_NS = 2_000_000
"""How long a visit lasts, about."""
_FEW_REPLAYS, _MOST_REPLAYS = 3, 12
"""Replays of a visit, the same for all contenders, after one that warms up; of what takes longer than a visit, one."""
_SAMPLED_EVERY = 4
"""Where sampling costs something, dispatches are timed in one of so many rounds."""
_PLACING = 0.15
"""The part of the time that making placements may take."""
_EARLY = (0.125, 0.25, 0.5)
"""When to look at the data before the end, as parts of the time."""
_EARLY_ERROR = 0.05
"""The part of the admitted error that each early look uses up."""
_ROUND = "round"


class Rounds:
    """Measures contenders in turns, as long as it is asked to. Leaving its block gives their memory back."""

    def __init__(self, contenders: Sequence[Contender], seconds: float, cold: bool = False) -> None:
        """`seconds` is how long it is meant to run in all."""
        self._began = time.monotonic()
        self.contenders = tuple(contenders)
        self._seconds = seconds
        self._cold = cold
        for each in self.contenders:
            _check_timed(each)
        self._flush = [flush_of(each.queue) for each in self.contenders] if cold else []
        self._runs: list[list[Replayable]] = []
        self._kept = KeptTraces()
        self.profile = Profile(Level.DISPATCHES, None)
        """The recording of everything; it can be read and saved after the block too."""
        self._recorder = self.profile.begin()
        self._replays = 0
        self.count = 0
        """Rounds so far."""
        self._always_sampled = False
        self._scope = ExitStack()

    def __enter__(self) -> Rounds:
        graphs = [each.run.graph for each in self.contenders]
        if not min(map(places_for, graphs)):  # it is measured where it is
            self._scope.enter_context(restored(*graphs))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._scope.close()
        finally:
            self._write()
            self.profile.close()
            self._runs, self._flush = [], []

    def looks(self, least: int = 1, progress: Callable[[float], None] | None = None) -> Iterator[float]:
        """Measure for the whole time, at least so many rounds, and stop in between for a look at the data.

        Yields the part of the admitted error that this look may use; whoever has seen enough leaves the loop.
        `progress` is called with the seconds until when it measures.
        """
        looking = 0.0
        for part in (*_EARLY, 1.0):
            until = part * self._seconds
            if progress is not None:
                progress(until)
            # The last look takes about twice as long as the one before, at half of the time.
            self.run(self._began + until - time.monotonic() - 2 * looking)
            while part == 1.0 and self.count < least:
                self.run(0.0)
            looked = time.monotonic()
            yield _EARLY_ERROR if part < 1.0 else 1.0 - len(_EARLY) * _EARLY_ERROR
            looking = time.monotonic() - looked

    def run(self, seconds: float) -> None:
        """Measure for so long, at least one round."""
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        with counters.uncounted(), tracing.only(self._kept):
            if not self._runs:
                self._place(_PLACING * self._seconds)
                self._warm_up()
            while True:
                self._round()
                if time.monotonic_ns() >= end_ns:
                    break

    def _round(self) -> None:
        sampled = self._always_sampled or self._sampled(self.count)
        self._kept.level = Level.DISPATCHES if sampled else Level.COMMAND_BUFFERS
        order = range(len(self.contenders))
        with tracing.region(_ROUND):
            for number in reversed(order) if self.turned(np.array(self.count)) else order:
                self._visit(number)
        self.count += 1

    def _sampled(self, number: int) -> bool:
        """One round in so many; over several passes every placement has one."""
        passed, placement = divmod(number, self.placed)
        return (passed + placement) % _SAMPLED_EVERY == _SAMPLED_EVERY - 1

    def turned(self, rounds: Ints) -> Flags:
        """Whether the last contender comes first in these rounds: by chance, and the other way in the next pass.

        In a fixed order, something else that comes and goes regularly could meet the same contender each time.
        """
        passed, placement = np.divmod(rounds, self.placed)
        chance = (passed // 2 * 0x9E3779B1 + placement * 0x85EBCA6B) >> 13
        turned: Flags = (chance + passed) % 2 == 1
        return turned

    def _place(self, seconds: float) -> None:
        """Make the placements, as many of each contender."""
        count = min(places_for(each.run.graph) for each in self.contenders)
        if not count:
            self._runs = [[each.run] for each in self.contenders]
            return
        # After a first replay, what equal contenders have written is equal too, whatever was in the memory before.
        first = [elsewhere(each.run.graph) for each in self.contenders]
        for each, graph in zip(self.contenders, first, strict=True):
            graph.instantiate().replay(**each.values).wait()
        self._runs = placements(first, count, seconds)

    @property
    def placed(self) -> int:
        """How many placements the rounds move through."""
        return min(map(len, self._runs), default=0)

    def _warm_up(self) -> None:
        """The first replays of each, which also say how many make up a visit."""
        took = []
        with tracing.region(WARM_UP):
            for each, runs in zip(self.contenders, self._runs, strict=True):
                for level in (Level.DISPATCHES, *[Level.COMMAND_BUFFERS] * 4):
                    self._kept.level = level
                    begin_ns = time.monotonic_ns()
                    runs[0].replay(**each.values).wait()
                    took.append(time.monotonic_ns() - begin_ns)
        replays = _VISIT_NS // max(min(took), 1)
        self._replays = min(max(replays, _FEW_REPLAYS), _MOST_REPLAYS) if replays and not self._cold else 1
        # Where workers say how much time they got, that comes with samples, which are cheap there.
        self._always_sampled = any(trace.worker_time is not None for trace in self._kept.traces)

    def _visit(self, number: int) -> None:
        each = self.contenders[number]
        run = self._runs[number][self.count % self.placed]
        with tracing.region(str(number)):
            if self._cold:
                for _ in range(self._replays):
                    with tracing.region(WARM_UP):
                        self._flush[number].replay()
                    run.replay(**each.values).wait()
                return
            if self._replays > 1:
                with tracing.region(WARM_UP):
                    run.replay(**each.values)
            # Waiting for each would put the time to wake the workers between them.
            submissions = [run.replay(**each.values) for _ in range(self._replays)]
            submissions[-1].wait()

    # --- what was measured -----------------------------------------------------------------------------------

    def columns(self) -> tuple[Columns, Ints, Ints]:
        """Everything so far, and of each submission its contender and its round; -1 for warm-ups."""
        self._write()
        with self.profile.recording() as recording:
            columns = columns_of(recording)
        regions, subs = columns.regions, columns.submissions
        names = {str(number): number for number in range(len(self.contenders))}
        number = np.array([names.get(name, -1) for name in regions.name], np.int64)
        of_round = np.cumsum(regions.name == _ROUND) - 1
        inside = subs.region >= 0
        contender = np.where(inside, number[subs.region], -1)
        parent = np.where(inside, regions.parent[subs.region], -1)
        return columns, contender, np.where((contender >= 0) & (parent >= 0), of_round[parent], -1)

    def replays(self, columns: Columns, of_contender: Ints, number: int) -> Ints:
        """The submissions of each replay of a contender, of shape (replays, parts): a split graph has several."""
        rows = np.flatnonzero((of_contender == number) & columns.submissions.ran)
        return rows.reshape(-1, len(self.contenders[number].run.graph.splits) + 1)

    def counting(self, columns: Columns, of_contender: Ints) -> Flags:
        """The submissions that count, by one rule for all contenders.

        Part by part: the parts of a split graph take different times, with different numbers of workers.
        """
        replays = [self.replays(columns, of_contender, number) for number in range(len(self.contenders))]
        counts: Flags = np.zeros(len(columns.submissions), bool)
        for part in range(max(each.shape[1] for each in replays)):
            rows = [each[:, part] for each in replays if part < each.shape[1]]
            sides = [np.isin(np.arange(len(counts)), submissions) for submissions in rows]
            for chosen in comparable([(columns, side) for side in sides]):
                counts |= chosen
        return counts

    def group_of_round(self) -> Ints:
        """Which rounds have something in common: a placement, or where there are too few of those, a time."""
        rounds = np.arange(self.count)
        if self.placed >= LEAST:
            return rounds % self.placed
        return rounds * min(MOST, max(self.count // 2, 1)) // self.count

    @property
    def placement_matters(self) -> bool:
        """Whether contenders may differ by where their memory lies: it differs, and there are few placements."""
        memories = [set(runs[0].graph.memories) for runs in self._runs]
        return self.placed < LEAST and any(each != memories[0] for each in memories)

    def _write(self) -> None:
        """Hand what was kept to the recording, in order of time."""
        kept, self._kept = self._kept, KeptTraces(self._kept.level)
        regions = sorted(kept.regions, key=lambda each: each[0].number)
        for region, _ in regions:
            self._recorder.region_begins(region)
        for trace in kept.traces:
            self._recorder.submission(trace)
        for region, end_ns in regions:
            self._recorder.region_ends(region, end_ns)


def _check_timed(each: Contender) -> None:
    capabilities = each.queue.backend.capabilities
    if capabilities.sampling is Level.OFF:
        reason = capabilities.sampling_reason or "no reason given"
        raise ArgumentError(f"device {capabilities.name!r} cannot time what it runs: {reason}")
