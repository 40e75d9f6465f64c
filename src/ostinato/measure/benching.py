"""`ostinato.bench`: how long something takes, with an interval, by replays on undisturbed cores.

    print(ost.bench(inc, x, y, threads=256))

Replays go on until the 95 % interval of the median is narrower than asked, or the time is over. Runs that other
programs disturbed do not count.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.printable import printable
from ..profiling.analyse import formatting
from ..profiling.analyse.columns import Columns, Flags, Floats, Ints
from ..profiling.analyse.comparable import undisturbed
from ..profiling.analyse.roofline import rates
from ..profiling.analyse.statistics import Interval, median, median_interval, medians_by
from ..profiling.analyse.verdicts import LEAST_UNITS
from ..profiling.session import Profile
from ..runtime.queue import OnQueue
from .checks import check_seconds, check_share
from .rounds import Rounds
from .subjects import Contender, contender

_FIRST_LOOK = 0.1
"""When to look for the first time, as a part of the time; then each time after twice as long."""
_WANTED = 10
"""Values that an interval needs before it may end a measurement: of fewer, some are narrow by chance."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """How long a replay took, and how fast that is."""

    name: str
    device: str
    cold: bool
    """Whether caches were flushed before every replay."""
    median_ns: float
    interval: Interval | None
    """Of the median, with 95 % confidence; None for too few runs."""
    samples_ns: Ints = field(repr=False)
    """The time on the device of every run that counts."""
    runs: int
    """All runs, those that do not count among them."""
    disturbed: int
    """Runs that do not count, because other programs took a part of them; where that is all of them, all count."""
    bytes_moved: float | None
    """By one replay; None where it is not known."""
    bytes_bound: bool
    """Whether that is only an upper bound: the size of what was bound, not what was declared."""
    flops: float | None
    """Declared floating-point operations of one replay."""
    copy_bytes_per_s: float | None
    """The ceilings of the device."""
    flops_per_s: float | None
    precise: bool
    """Whether the interval is as narrow as asked."""
    columns: Columns = field(repr=False)
    """Everything that was measured, as `analyse` reads it."""
    _profile: Profile = field(repr=False)

    @property
    def bytes_per_s(self) -> float | None:
        """The bandwidth."""
        return None if self.bytes_moved is None or not self.median_ns > 0 else self.bytes_moved * 1e9 / self.median_ns

    @property
    def flop_rate(self) -> float | None:
        """Floating-point operations in a second."""
        return None if self.flops is None or not self.median_ns > 0 else self.flops * 1e9 / self.median_ns

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recording of all runs to a file."""
        self._profile.save(path)

    @property
    def title(self) -> str:
        """What was measured, and where."""
        return f"{printable(self.name)} on {self.device}{', cold caches' if self.cold else ''}"

    def facts(self) -> list[tuple[str, str]]:
        """What to say of it: pairs of a heading and a text."""
        facts = [("time", self._time())]
        if self.bytes_per_s is not None:
            at_most = "≤ " if self.bytes_bound else ""
            rate = _rate(self.bytes_per_s, self.copy_bytes_per_s, formatting.byte_rate, "of a copy")
            facts.append(("memory", at_most + rate))
        if self.flop_rate is not None:
            rate = _rate(self.flop_rate, self.flops_per_s, formatting.flop_rate, "of the peak")
            facts.append(("arithmetic", rate))
        facts.append(("runs", self._runs()))
        if not self.precise:
            facts.append(("interval", "not as precise as asked"))
        return facts

    def _time(self) -> str:
        if self.interval is None:
            return formatting.time(self.median_ns)
        low, high = formatting.time(self.interval.low), formatting.time(self.interval.high)
        return f"{formatting.time(self.median_ns)} (95 % interval {low} to {high})"

    def _runs(self) -> str:
        runs = formatting.count(len(self.samples_ns), "run")
        if not self.disturbed:
            return runs
        if self.disturbed == self.runs:
            return f"{runs}, all of them disturbed by other programs"
        return f"{runs} ({self.disturbed:,} disturbed ones left out)"

    def __str__(self) -> str:
        return f"{self.title}: {'; '.join(text for _, text in self.facts())}"

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.title, table.title_justify, table.title_style = Text(self.title, style="bold"), "left", ""
        for heading, text in self.facts():
            table.add_row(Text(heading, style="dim"), Text(text))
        return table

    def _repr_html_(self) -> str:
        from ..base import fragments

        return fragments.fragment(fragments.facts(self.facts(), self.title))


def bench(
    what: Any,
    *arguments: Any,
    cold: bool = False,
    width: float = 0.01,
    seconds: float = 3.0,
    name: str = "",
    values: Mapping[str, Any] | None = None,
    device: OnQueue | None = None,
    progress: Progress | None = None,
    **dispatch: Any,
) -> Bench:
    """Measure how long `what` takes on its device.

    `what` is a `Replayable`, a `Graph`, a function that encodes (with `device`), or a `Kernel`, which is followed by
    its arguments and the keywords of `CommandEncoder.dispatch`; arrays among the arguments become buffers. `values` are
    the parameters of a replay. `cold` flushes the caches before every replay. It ends when the 95 % interval of the
    median reaches no further than `width` (a part of it) to either side, or after `seconds`. The caller's memory is
    left as it is.
    """
    check_share("width", width)
    check_seconds(seconds)
    ready = contender(what, arguments, name=name, device=device, values=values, **dispatch)
    return bench_contender(ready, cold=cold, width=width, seconds=seconds, progress=progress)


def bench_contender(
    ready: Contender, *, cold: bool, width: float, seconds: float, progress: Progress | None = None
) -> Bench:
    """The same for a contender that is ready."""
    begin, part = time.monotonic(), _FIRST_LOOK
    with Rounds((ready,), seconds, cold) as rounds:
        while True:
            if progress is not None:
                progress(f"{ready.name}, {time.monotonic() - begin:.1f} of {seconds:g} s")
            rounds.run(begin + part * seconds - time.monotonic())
            result = _result(rounds, ready, cold, width)
            if result.precise or time.monotonic() - begin >= seconds:
                return result
            part = min(2 * part, 1.0)


def _result(rounds: Rounds, ready: Contender, cold: bool, width: float) -> Bench:
    columns, of_contender, of_round = rounds.columns()
    subs = columns.submissions
    present: Flags = (of_contender == 0) & subs.ran
    replays = rounds.replays(columns, of_contender, 0)
    counts = undisturbed(columns, present)[replays].all(axis=1)
    disturbed = int((~counts).sum())
    counts = counts if counts.any() else np.ones(len(replays), bool)
    took = (subs.end_ns[replays[:, -1]] - subs.start_ns[replays[:, 0]])[counts]
    values = _by_group(took, of_round[replays[:, 0]][counts], rounds)
    interval = median_interval(values) if values.size >= LEAST_UNITS else None
    moved, bound, flops = _amounts(columns, np.unique(subs.plan[present]))
    facts = columns.devices[0]
    return Bench(
        name=ready.name,
        device=facts.name,
        cold=cold,
        median_ns=median(took) if interval is None else interval.estimate,
        interval=interval,
        samples_ns=took,
        runs=len(replays),
        disturbed=disturbed,
        bytes_moved=moved,
        bytes_bound=bound,
        flops=flops,
        copy_bytes_per_s=facts.copy_bytes_per_s,
        flops_per_s=facts.flops_per_s,
        precise=disturbed < len(replays) and values.size >= _WANTED and _is_within(width, interval),
        columns=columns,
        _profile=rounds.profile,
    )


def _by_group(took: Ints, of_round: Ints, rounds: Rounds) -> Floats:
    """The time on each placement of the memory."""
    by_round, group = medians_by(of_round, took, rounds.count), rounds.group_of_round()
    known = ~np.isnan(by_round)
    values = medians_by(group[known], by_round[known], int(group.max(initial=0)) + 1)
    return values[~np.isnan(values)]


def _is_within(width: float, interval: Interval | None) -> bool:
    if interval is None:
        return False
    return max(interval.high - interval.estimate, interval.estimate - interval.low) <= width * interval.estimate


def _amounts(columns: Columns, plans: Ints) -> tuple[float | None, bool, float | None]:
    """Bytes and flops of one replay, and whether the bytes are an upper bound; None where not all are known."""
    reached = rates(columns, 0)
    command = np.concatenate([columns.plans.command[columns.plans.nodes(plan)] for plan in plans.tolist()])
    command = command[columns.commands.kind[command] != "barrier"]
    moved, flops = float(reached.bytes_moved[command].sum()), float(reached.flops[command].sum())
    bound = bool(reached.bound[command].any())
    return None if math.isnan(moved) else moved, bound, None if math.isnan(flops) else flops


def _rate(value: float, ceiling: float | None, shown: Callable[[float], str], of: str) -> str:
    return f"{shown(value)} ({formatting.percent(value / ceiling)} {of})" if ceiling else shown(value)
