"""Replays in turns: A B, then B A, and so on, each visit of a contender being a few replays in a row.

What is slow on a shared machine (a clock that changes, another program that comes and goes) meets all contenders of a
round alike, so a round is what can be compared. A visit begins with a replay that only warms up, unless replays are
long; with cold caches every replay follows a flush instead. The rounds move through several placements of the
contenders' memory. Nothing is written or computed while replays run: they are kept as traces, and become a recording
between rounds, with a region for every round and in it one for every visit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from .. import counters
from ..backends.protocol import Level
from ..errors import ArgumentError
from ..graph.replay import Replayable
from ..passes.snapshot import restored
from ..profiling.analyse import Columns, columns_of
from ..profiling.analyse.columns import Flags, Ints
from ..profiling.analyse.comparison import WARM_UP
from ..profiling.session import Profile
from ..runtime import tracing
from ..runtime.tracing import KeptTraces
from .flushing import flush_of
from .placements import LEAST, elsewhere, placements, places_for
from .subjects import Contender

_VISIT_NS = 2_000_000
"""How long a visit lasts, about."""
_FEW_REPLAYS, _MOST_REPLAYS = 3, 12
"""Replays of a visit, the same for all contenders, after one that warms up; of what takes longer than a visit, one."""
_SAMPLED_EVERY = 4
"""Where sampling costs something, dispatches are timed in one of so many rounds."""
_PLACING = 0.15
"""The part of the time that making placements may take."""
_ROUND = "round"


class Rounds:
    """Measures contenders in turns, as long as it is asked to."""

    def __init__(self, contenders: Sequence[Contender], seconds: float, cold: bool = False) -> None:
        """`seconds` is how long it is meant to run in all."""
        self.contenders = tuple(contenders)
        self._seconds = seconds
        self._cold = cold
        for each in self.contenders:
            _check_timed(each)
        self._flush = [flush_of(each.queue) for each in self.contenders] if cold else []
        self._runs: list[list[Replayable]] = []
        self._kept = KeptTraces()
        self._profile = Profile(Level.DISPATCHES, None)
        self._recorder = self._profile.begin()
        self._replays = 0
        self._rounds = 0
        self._round: AbstractContextManager[None] | None = None
        self._always_sampled = False

    def run(self, seconds: float) -> None:
        """Measure for so long, at least one round."""
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        self.begin()
        while True:
            order = range(len(self.contenders))
            for number in reversed(order) if self.turned(np.array(self._rounds)) else order:
                self.visit(number)
            self.end_round()
            if time.monotonic_ns() >= end_ns:
                break

    def begin(self) -> None:
        """Make the placements and warm up, the first time."""
        if not self._runs:
            with self._measuring():
                self._place(_PLACING * self._seconds)
                self._warm_up()

    def turned(self, rounds: Ints) -> Flags:
        """Whether the last contender comes first in these rounds; every placement has rounds of both kinds."""
        turned: Flags = (rounds + rounds // self.placed) % 2 == 1
        return turned

    def visit(self, number: int) -> None:
        """Replay a contender a few times, in the current round."""
        with self._measuring():
            if self._round is None:
                sampled = self._always_sampled or self._rounds % _SAMPLED_EVERY == _SAMPLED_EVERY - 1
                self._kept.level = Level.DISPATCHES if sampled else Level.COMMAND_BUFFERS
                self._round = tracing.region(_ROUND)
                self._round.__enter__()
            self._visit(number)

    def end_round(self) -> None:
        """The next visit begins another round, on the next placement."""
        if self._round is not None:
            self._round.__exit__(None, None, None)
            self._round = None
        self._rounds += 1

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        with counters.uncounted(), tracing.only(self._kept):
            yield

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

    def memory_kept(self) -> AbstractContextManager[None]:
        """Restores the contenders' memory at the end of a block, where it is too large to be measured on copies."""
        graphs = [each.run.graph for each in self.contenders]
        return nullcontext() if min(map(places_for, graphs)) else restored(*graphs)

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
        run = self._runs[number][self._rounds % self.placed]
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
        with self._profile.recording() as recording:
            columns = columns_of(recording)
        return columns, *rounds_in(columns, len(self.contenders))

    def placement_of_round(self) -> Ints | None:
        """The placement of each round; None where there are too few to tell how much they differ."""
        return np.arange(self._rounds) % self.placed if self.placed >= LEAST else None

    @property
    def count(self) -> int:
        """Rounds so far."""
        return self._rounds

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything so far to a file, as a recording."""
        self._write()
        self._profile.save(path)

    def close(self) -> None:
        """Forget it all."""
        self._profile.close()

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


def rounds_in(columns: Columns, contenders: int) -> tuple[Ints, Ints]:
    """Of each submission its contender and its round; -1 for warm-ups and anything else."""
    regions, subs = columns.regions, columns.submissions
    names = {str(number): number for number in range(contenders)}
    number = np.array([names.get(name, -1) for name in regions.name], np.int64)
    of_round = np.cumsum(regions.name == _ROUND) - 1
    inside = subs.region >= 0
    contender = np.where(inside, number[subs.region], -1)
    parent = np.where(inside, regions.parent[subs.region], -1)
    return contender, np.where((contender >= 0) & (parent >= 0), of_round[parent], -1)


def _check_timed(each: Contender) -> None:
    capabilities = each.queue.backend.capabilities
    if capabilities.sampling is Level.OFF:
        reason = capabilities.sampling_reason or "no reason given"
        raise ArgumentError(f"device {capabilities.name!r} cannot time what it runs: {reason}")
