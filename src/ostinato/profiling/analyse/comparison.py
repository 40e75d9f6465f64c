"""Two programs, row by row: graphs, kernels and labels with their times in A and B, the ratio, and a verdict.

Rows are matched by kernel, label and grid; numbers in labels are folded, so the layers of a model are one row. A value
of a row is the median of its undisturbed runs in one *unit*: a round of a live comparison, or a process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import verdicts
from .columns import Columns, Flags, Floats, Ints, usable
from .comparable import undisturbed
from .groups import extent, folded
from .lists import only_warming
from .statistics import Interval, median, median_interval, medians_by, split_by
from .verdicts import LEAST_UNITS, Difference, Spreads, Verdict

_MOST_DEPTH = 16
_MOST_PARTS = 1_000
"""Runs of one process beyond this number are taken together with their neighbours for its interval."""
_MINOR = 0.01
"""What takes a smaller part of the time does not decide whether a comparison could tell."""
_KINDS = ("graph", "label", "kernel")


@dataclass(frozen=True, slots=True)
class Key:
    """What a row is of."""

    kind: str
    """"graph", "label" or "kernel"."""
    name: str
    """The graph's label, or the kernel's name."""
    label: str = ""
    """Of a kernel, the label it was dispatched under, with numbers folded."""
    grid: str = ""
    """Of a kernel, threads and threadgroup; of a graph, how many commands it has."""


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """The times of one row."""

    times_ns: Floats
    """One per unit; NaN where the row did not run, or never undisturbed."""
    runs: int
    """Over all units."""
    share: float
    """Of the time on the device."""
    step_ns: float = 0.0
    """The smallest difference between two times that the clock showed."""
    disturbed_ns: float = math.nan
    """The median of all runs, for a row that never ran undisturbed."""
    within: Interval | None = None
    """Of the median over the runs of a single unit, where it was asked for."""


@dataclass(frozen=True, slots=True)
class Side:
    """A row in one of the two programs."""

    median_ns: float
    interval: Interval | None
    """Of the median over units; over the runs of a single process; None for too few."""
    units: int
    runs: int
    share: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row that both programs have."""

    key: Key
    a: Side
    b: Side
    ratio: Interval | None
    """B's time over A's, with an interval that holds for all rows together; None for too few units."""
    verdict: Verdict
    smallest_change: float | None
    """The change, as a part, that this comparison would have found nine times in ten."""


@dataclass(frozen=True, slots=True)
class OneSided:
    """A row that only one program has."""

    key: Key
    share: float

    @property
    def is_minor(self) -> bool:
        """Whether it takes less than 1 % of the program's time."""
        return self.share < _MINOR


@dataclass(frozen=True, slots=True)
class Comparison:
    """B compared with A."""

    names: tuple[str, str]
    unit: str
    """What a value of a row stands for: "round" or "process"."""
    paired: bool
    delta: float
    """Changes within this part count as the same."""
    confidence: float
    rows: tuple[Row, ...]
    only_a: tuple[OneSided, ...] = ()
    only_b: tuple[OneSided, ...] = ()
    about: tuple[str, ...] = ()
    """What each side is, in words; empty where there is nothing to say."""
    differences: tuple[str, ...] | None = None
    """What differs beside the program, in words; None where both ran in one process, so that nothing can."""
    notes: tuple[str, ...] = ()
    """What to know about the measurement, in words."""

    @property
    def whole(self) -> Row | None:
        """The row of the graph, where there is exactly one."""
        graphs = [row for row in self.rows if row.key.kind == "graph"]
        return graphs[0] if len(graphs) == 1 else None

    @property
    def ratio(self) -> Interval | None:
        """B's time over A's, of the whole graph."""
        return None if self.whole is None else self.whole.ratio

    @property
    def verdict(self) -> Verdict:
        """Of the whole graph; of several, SLOWER if any row is slower."""
        return self.whole.verdict if self.whole is not None else self.combined

    @property
    def combined(self) -> Verdict:
        """Over all rows: SLOWER if any is slower, then CANNOT TELL, then FASTER."""
        return verdicts.combined([row.verdict for row in self.rows])

    @property
    def undecided(self) -> tuple[Row | OneSided, ...]:
        """What takes at least 1 % of the time and has no verdict.

        Graphs that only one program has are among it. Labels and kernels are not: their time is in that of a graph.
        """
        rows = [
            row for row in self.rows if row.verdict is Verdict.CANNOT_TELL and max(row.a.share, row.b.share) >= _MINOR
        ]
        graphs = [row for row in (*self.only_a, *self.only_b) if row.key.kind == "graph" and not row.is_minor]
        return (*rows, *graphs)


# --- times of rows -------------------------------------------------------------------------------------------


def unit_times(columns: Columns, unit: Ints, units: int, chosen: Flags | None = None) -> dict[Key, UnitTimes]:
    """The times of every row in every unit, given the unit of each submission (-1: none) and which of them count."""
    subs = columns.submissions
    present: Flags = (unit >= 0) & subs.ran & (subs.plan >= 0)
    chosen = undisturbed(columns, present) if chosen is None else chosen
    rows = _graphs(columns, unit, units, present, chosen)
    rows |= _kernels(columns, unit, units, present, chosen)
    rows |= _labels(columns, unit, units, present, chosen)
    return rows


def process_times(columns: Columns, confidence: float | None = None) -> dict[Key, UnitTimes]:
    """The times of every row in a recording that is one unit; with a confidence, also the interval of each median.

    Work in a region called "warm-up" does not count.
    """
    count = len(columns.submissions)
    warm_up = only_warming(columns)
    rows = unit_times(columns, np.where(warm_up, -1, 0), 1)
    if confidence is None:
        return rows
    parts = min(count, _MOST_PARTS)
    by_part = unit_times(columns, np.where(warm_up, -1, np.arange(count) * parts // max(count, 1)), parts)
    return {
        key: replace(row, within=median_interval(part[~np.isnan(part)], confidence))
        for key, row in rows.items()
        for part in (by_part[key].times_ns,)
    }


def stacked(processes: Sequence[Mapping[Key, UnitTimes]]) -> dict[Key, UnitTimes]:
    """The times of several processes, each of which is a unit."""
    keys = dict.fromkeys(key for process in processes for key in process)
    rows = {}
    for key in keys:
        each = [process.get(key) for process in processes]
        present = [row for row in each if row is not None]
        rows[key] = UnitTimes(
            np.array([math.nan if row is None else median(row.times_ns[~np.isnan(row.times_ns)]) for row in each]),
            sum(row.runs for row in present),
            sum(row.share for row in present) / len(processes),
            min((row.step_ns for row in present if row.step_ns > 0), default=0.0),
            median(np.array([row.disturbed_ns for row in present])),
            present[0].within if len(processes) == 1 else None,
        )
    return rows


def _graphs(columns: Columns, unit: Ints, units: int, present: Flags, chosen: Flags) -> dict[Key, UnitTimes]:
    subs = columns.submissions
    interval_ns = subs.end_ns - subs.start_ns
    total = float(interval_ns[present].sum())
    codes: dict[Key, int] = {}
    code = np.full(len(subs), -1, np.int64)
    names: dict[tuple[int, str], int] = {}
    for row in np.flatnonzero(present).tolist():
        plan, label = int(subs.plan[row]), str(subs.label[row])
        number = names.get((plan, label))
        if number is None:
            number = names[plan, label] = codes.setdefault(_graph_key(columns, plan, label), len(codes))
        code[row] = number
    rows = {}
    for key, number in codes.items():
        mine = (code == number) & chosen
        # Sampling costs a little: runs with and without it are not mixed.
        sampled = mine & subs.sampled
        mine = sampled if 2 * int(sampled.sum()) > int(mine.sum()) else mine & ~sampled
        everything = interval_ns[code == number]
        values = medians_by(unit[mine], interval_ns[mine], units)
        share = float(everything.sum()) / total if total else 0.0
        rows[key] = UnitTimes(values, int(mine.sum()), share, _step_ns(interval_ns[mine], columns), median(everything))
    return rows


def _step_ns(times_ns: Ints, columns: Columns) -> float:
    """The smallest difference between different times, at most the clock's: medians are no finer than that."""
    different = np.unique(times_ns)
    clock_ns = max((device.timer_step_ns or 0.0 for device in columns.devices), default=0.0)
    return min(float(np.diff(different).min()), clock_ns) if different.size > 1 else clock_ns


def joined_times(columns: Columns, replays: Ints, unit: Ints, units: int, chosen: Flags) -> UnitTimes:
    """The times of replays of several parts each, given the submissions of each replay, of shape (replays, parts)."""
    subs = columns.submissions
    took = subs.end_ns[replays[:, -1]] - subs.start_ns[replays[:, 0]]
    counts = chosen[replays].all(axis=1)
    values = medians_by(unit[replays[:, 0]][counts], took[counts], units)
    return UnitTimes(values, int(counts.sum()), 1.0, _step_ns(took[counts], columns), median(took))


def _graph_key(columns: Columns, plan: int, label: str) -> Key:
    command = columns.plans.command[columns.plans.nodes(plan)]
    command = command[columns.commands.kind[command] != "barrier"]
    name = label
    if not name and command.size:
        name = columns.commands.title(int(command[0])) + (", …" if command.size > 1 else "")
    return Key("graph", name, grid=f"{command.size:,}")


def _kernels(columns: Columns, unit: Ints, units: int, present: Flags, chosen: Flags) -> dict[Key, UnitTimes]:
    commands, codes = columns.commands, dict[Key, int]()
    code = np.full(len(commands), -1, np.int64)
    for row in np.flatnonzero(commands.kind != "barrier").tolist():
        grid = f"{extent(commands.threads[row].tolist())} / {extent(commands.group[row].tolist())}"
        label = folded(str(commands.label[row]))
        key = Key("kernel", commands.title(row), label, grid if commands.kind[row] == "dispatch" else "")
        code[row] = codes.setdefault(key, len(codes))
    samples = usable(columns.samples)
    samples = samples.where(present[samples.submission])
    row_of = code[columns.plans.command[samples.node]]
    durations = samples.end_ns - samples.start_ns
    spent = np.bincount(row_of, weights=durations, minlength=len(codes))
    total = max(float(spent.sum()), 1.0)
    disturbed_ns = medians_by(row_of, durations, len(codes))
    counts = chosen[samples.submission]
    unit_of, row_of, durations = unit[samples.submission[counts]], row_of[counts], durations[counts]
    medians = medians_by(row_of * units + unit_of, durations, len(codes) * units)
    runs = np.bincount(row_of, minlength=len(codes))
    step_ns = [_step_ns(times, columns) for times in split_by(row_of, durations, len(codes))]
    return {
        key: UnitTimes(
            medians[number * units : (number + 1) * units],
            int(runs[number]),
            float(spent[number]) / total,
            step_ns[number],
            float(disturbed_ns[number]),
        )
        for key, number in codes.items()
        if not math.isnan(disturbed_ns[number])
    }


def _labels(columns: Columns, unit: Ints, units: int, present: Flags, chosen: Flags) -> dict[Key, UnitTimes]:
    """The time per run of what has one label, or labels below it: of labels that hold several kernels only."""
    commands, subs = columns.commands, columns.submissions
    samples = usable(columns.samples)
    samples = samples.where(present[samples.submission])
    command = columns.plans.command[samples.node]
    durations = (samples.end_ns - samples.start_ns).astype(np.float64)
    total = max(float(durations.sum()), 1.0)
    below: dict[str, set[int]] = {}
    for row in np.unique(command).tolist():
        parts = folded(str(commands.label[row])).split("/")[:_MOST_DEPTH]
        for depth in range(1, len(parts) + 1):
            below.setdefault("/".join(parts[:depth]), set()).add(row)
    rows: dict[Key, UnitTimes] = {}
    seen: set[frozenset[int]] = set()
    # The longest path stands for shorter ones that hold the same.
    for path, members in sorted(below.items(), key=lambda each: -len(each[0])):
        if not path or frozenset(members) in seen or len({commands.title(row) for row in members}) < 2:
            continue
        seen.add(frozenset(members))
        inside = np.isin(command, list(members))
        per_run = np.bincount(samples.submission[inside], weights=durations[inside], minlength=len(subs))
        with_any = np.bincount(samples.submission[inside], minlength=len(subs)) > 0
        counts = with_any & chosen
        rows[Key("label", path)] = UnitTimes(
            medians_by(unit[counts], per_run[counts], units),
            int(counts.sum()),
            float(durations[inside].sum()) / total,
            disturbed_ns=median(per_run[with_any]),
        )
    return rows


# --- comparison ----------------------------------------------------------------------------------------------


def compare_times(
    a: Mapping[Key, UnitTimes],
    b: Mapping[Key, UnitTimes],
    *,
    names: tuple[str, str] = ("A", "B"),
    unit: str = "process",
    paired: bool = False,
    groups: Ints | None = None,
    turned: Flags | None = None,
    delta: float = 0.02,
    confidence: float = 0.95,
    level: float | None = None,
    in_turns: bool = True,
    spreads: Spreads | None = None,
    about: Sequence[str] = (),
    differences: Sequence[str] | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """The comparison of two sets of rows.

    `paired` says that the units of both sides belong together, `groups` which of these are not independent of each
    other, and `turned` where B came first. `in_turns` says that units of both sides alternated, so that neither had the
    better hour. `spreads` is what processes are known to differ by; it is used where a side has fewer than five of them
    or they did not take turns. `level` is the confidence that this look at the data may use, of several.
    """
    pairs, only_a, only_b = _matched(a, b)
    each = verdicts.simultaneous(level or confidence, len(pairs))
    rows = []
    for key, first, second in pairs:
        difference = verdicts.paired(first.times_ns, second.times_ns, groups, turned) if paired else None
        if difference is None and unit == "process":
            difference = _between_processes(first, second, in_turns, spreads, each)
        difference = _as_resolved(difference, first, second)
        ratio = None if difference is None else difference.ratio(each)
        smallest = None if difference is None else difference.smallest_change(delta, each)
        rows.append(
            Row(key, _side(first, confidence), _side(second, confidence), ratio, verdicts.judge(ratio, delta), smallest)
        )
    rows.sort(key=lambda row: (_KINDS.index(row.key.kind), -max(row.a.share, row.b.share)))
    return Comparison(
        names,
        unit,
        paired,
        delta,
        confidence,
        tuple(rows),
        tuple(OneSided(key, a[key].share) for key in only_a),
        tuple(OneSided(key, b[key].share) for key in only_b),
        tuple(about),
        None if differences is None else tuple(differences),
        tuple(notes),
    )


def _matched(
    a: Mapping[Key, UnitTimes], b: Mapping[Key, UnitTimes]
) -> tuple[list[tuple[Key, UnitTimes, UnitTimes]], tuple[Key, ...], tuple[Key, ...]]:
    pairs = [(key, a[key], b[key]) for key in a if key in b]
    only_a, only_b = [key for key in a if key not in b], [key for key in b if key not in a]
    # A graph that lost or gained dispatches is still the graph of that label; a single one is the one that is meant.
    for left in [key for key in only_a if key.kind == "graph"]:
        alike = [key for key in only_b if key.kind == "graph" and key.name == left.name]
        also = [key for key in only_a if key.kind == "graph" and key.name == left.name]
        if not alike and sum(key.kind == "graph" for key in (*a, *b)) == 2:
            alike, also = [key for key in only_b if key.kind == "graph"], [left]
        if len(alike) == len(also) == 1:
            right = alike[0]
            name = left.name if left.name == right.name else f"{left.name} → {right.name}"
            grid = left.grid if left.grid == right.grid else f"{left.grid} → {right.grid}"
            pairs.append((Key("graph", name, grid=grid), a[left], b[right]))
            only_a.remove(left)
            only_b.remove(right)
    return pairs, tuple(only_a), tuple(only_b)


def _between_processes(
    a: UnitTimes, b: UnitTimes, in_turns: bool, spreads: Spreads | None, confidence: float
) -> Difference | None:
    own = verdicts.unpaired(a.times_ns, b.times_ns)
    if own is not None and in_turns:
        return own
    # As if there were one process of each: more of them do not help against what changes between them.
    middles = [median(side.times_ns[~np.isnan(side.times_ns)]) for side in (a, b)]
    spread = None if spreads is None or not all(map(math.isfinite, middles)) else spreads.at(min(middles))
    known = None if spread is None else verdicts.calibrated(middles[:1], middles[1:], spread)
    if known is None or own is None:
        return known
    return max(known, own, key=lambda difference: difference.reach(confidence))


def _as_resolved(difference: Difference | None, a: UnitTimes, b: UnitTimes) -> Difference | None:
    if difference is None:
        return None
    shortest_ns = min(float(np.nanmedian(side.times_ns)) for side in (a, b))
    return replace(difference, resolution=max(a.step_ns, b.step_ns) / shortest_ns if shortest_ns > 0 else math.inf)


def _side(row: UnitTimes, confidence: float) -> Side:
    values = row.times_ns[~np.isnan(row.times_ns)]
    interval = median_interval(values, confidence) if values.size >= LEAST_UNITS else row.within
    typical = median(values) if values.size else row.disturbed_ns
    return Side(typical, interval, values.size, row.runs, row.share)
