"""The tables of a report, as rows of text, for the terminal and for notebooks.

A cell without a figure shows "–", and a note under the table says why. Names are as they were recorded: the caller must
escape them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..analyse import formatting
from ..analyse.by_process import PARTS
from ..analyse.groups import Group, Times
from ..analyse.kernels import named
from ..analyse.summary import Summary
from ..analyse.validity import Check
from .origin import origin

MISSING = "–"
_ROWS = 15
_LABEL_ROWS = 24
_ROWS_ASKED_FOR = 60
_KERNELS_OF_A_PART = 5
DEFAULT_GROUPINGS = ("kernel", "label")


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, its alignment, and how soon it is dropped on a narrow terminal."""

    heading: str
    right: bool = True
    spare: int = 0
    """Columns with the largest number are dropped first; 0 is never dropped."""
    wide: bool = False
    """Sentences, which may wrap; other text is names, which are cut."""
    status: bool = False
    """Words of a fixed set, shown in colours."""


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns, rows, and notes below."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def overview(summary: Summary) -> list[str]:
    """The lines above the tables: what was recorded, and what ran."""
    lines = origin(summary.origins)
    for d in summary.devices:
        tuned = f"tuned by {d.tuned}" if d.tuned else ""
        lines.append(": ".join(filter(None, (d.name, ", ".join(filter(None, (d.description, d.driver, tuned)))))))
    runs = formatting.count(summary.submissions, "command buffer")
    timed = f"{summary.timed:,} of {formatting.count(summary.dispatched, 'dispatch', 'dispatches')} timed"
    if not summary.submissions:
        lines.append("nothing was recorded")
        return lines
    lost = sum(count for _, count in summary.drops)
    lines.append(f"{runs}, {timed}, {f'{lost:,}' if lost else 'nothing'} dropped")
    return lines


def tables(summary: Summary, by: Sequence[str] = DEFAULT_GROUPINGS) -> list[Table]:
    """All tables that are not empty, most useful first, without the validity checks.

    `by` lists the groupings of dispatches, of `GROUPINGS`. Those that are asked for get more rows.
    """
    rows = _ROWS if tuple(by) == DEFAULT_GROUPINGS else _ROWS_ASKED_FOR
    made = (
        suspects(summary),
        *(GROUPINGS[grouping](summary, rows) for grouping in dict.fromkeys(by)),
        regions(summary),
        command_buffers(summary),
        devices(summary),
        critical_path(summary),
    )
    return [table for table in made if table.rows]


def suspects(summary: Summary) -> Table:
    """The kernels that could save wall time, and why."""
    several = len(summary.suspects) > 1
    rows: list[tuple[str, ...]] = []
    ranked = (s for device in summary.suspects for s in device.ranked)
    for s in sorted(ranked, key=lambda s: (-s.saving_ns, -s.total_ns)):
        if s.saving_ns <= 0 and rows:
            continue
        bounded = s.efficiency_is_bound and bool(s.efficiency)
        saving = _share(s.saving_share) if s.saving_share is not None else formatting.time(s.saving_ns)
        rows.append(
            (
                named(s.kernel, s.detail) + (f" on {s.device}" if several else ""),
                formatting.time(s.total_ns),
                ("up to " if s.saving_is_bound else "") + saving + _reach(s.saving_low, s.saving_high),
                _share(s.twice_as_fast_share),
                MISSING
                if s.efficiency is None
                else ("≤ " if bounded else "") + formatting.percent(s.efficiency, at_most=bounded),
                "; ".join(s.reasons),
            )
        )
    notes = [
        f"efficiency{f' on {s.device}' if len({other.measure for other in summary.suspects}) > 1 else ''}: {s.measure}"
        for s in summary.suspects
    ] + _typical_note(summary, "savings are parts of typical command-buffer time")
    return Table(
        "Suspects, by the wall time that better efficiency could save",
        (
            Column("kernel", right=False),
            Column("total"),
            Column("could save"),
            Column("if 2× faster", spare=2),
            Column("efficiency"),
            Column("why", right=False, wide=True),
        ),
        tuple(rows[:_ROWS]),
        tuple(dict.fromkeys(notes)),
    )


def _typical_note(summary: Summary, what: str) -> list[str]:
    """What savings are parts of."""
    if not summary.what_if_total_ns:
        return []
    total = formatting.time(summary.what_if_total_ns)
    return [f"{what}: {total}, a typical undisturbed run of each command list times the number of its runs"]


def kernels(summary: Summary, rows: int = _ROWS) -> Table:
    """Kernels by total time."""
    return _grouped(summary, "Kernels", "kernel", summary.kernels, rows)


def op_kinds(summary: Summary, rows: int = _ROWS) -> Table:
    """Op kinds by total time."""
    return _grouped(summary, "Op kinds", "op kind", summary.op_kinds, rows)


def shapes(summary: Summary, rows: int = _ROWS) -> Table:
    """Kernels and grids by total time."""
    table = _grouped(summary, "Shapes: kernels by grid", "kernel", summary.shapes, rows)
    kernel, *columns = table.columns
    lines = zip(summary.shapes, table.rows, strict=False)
    return replace(
        table,
        columns=(kernel, Column("grid"), *columns),
        rows=tuple((group.name, group.detail or MISSING, *row[1:]) for group, row in lines),
    )


def split(part: str, summary: Summary, rows: int = _ROWS) -> Table:
    """Ranks, hosts or processes (`part`), each with the kernels that take most of its time."""
    parts = summary.parts[part][:rows]
    title = f"By {part}, with the {_KERNELS_OF_A_PART} longest kernels of each"
    table = _grouped(summary, title, part, [each.whole for each in summary.parts[part]], rows)
    lines = []
    for line, each in zip(table.rows, parts, strict=True):
        kernels = _grouped(summary, "", "", each.kernels, _KERNELS_OF_A_PART).rows
        lines += [line, *((f"  {kernel[0]}", *kernel[1:]) for kernel in kernels)]
    return replace(table, rows=tuple(lines))


def _grouped(summary: Summary, title: str, heading: str, groups: Sequence[Group], most: int) -> Table:
    shown = groups[:most]
    columns = [
        Column(heading, right=False),
        Column("count"),
        Column("total"),
        Column("share"),
        Column(f"per {summary.repeated}" if summary.repeated else "mean", spare=1),
        Column("p50"),
        Column("p90", spare=3),
        Column("p99"),
        Column("min", spare=2),
        Column("max", spare=1),
    ]
    rows = [
        (
            named(g.name, g.detail),
            _count(g),
            _figure(g.times, "total_ns"),
            _share(g.share),
            _time(g.per_instance_ns) if summary.repeated else _figure(g.times, "mean_ns"),
            *_spread(g.times),
        )
        for g in shown
    ]
    return Table(title, tuple(columns), tuple(rows), tuple(_group_notes(summary, groups, shown)))


def labels(summary: Summary, rows: int = _ROWS) -> Table:
    """The label tree: a path includes everything below it. Numbers are folded where there are many paths."""
    most = max(rows, _LABEL_ROWS)
    folded = len(summary.labels) > most
    groups = summary.label_patterns if folded else summary.labels
    shown = _tree(groups)[:most]
    columns = [Column("label", right=False), Column("count"), Column("total"), Column("share")]
    if summary.repeated:
        columns.append(Column(f"per {summary.repeated}", spare=1))
    lines = []
    for g in shown:
        line = [
            "  " * (g.depth - 1) + g.name.split("/", g.depth - 1)[-1],
            _count(g),
            _figure(g.times, "total_ns"),
            _share(g.share),
        ]
        lines.append((*line, _time(g.per_instance_ns)) if summary.repeated else tuple(line))
    notes = ["* stands for a number"] if folded and any("*" in g.name for g in shown) else []
    if len(groups) > len(shown):
        notes.append(f"{len(groups) - len(shown):,} more rows in the JSON report")
    notes += _outside_notes(summary, shown)
    return Table("Labels", tuple(columns), tuple(lines), tuple(notes))


def regions(summary: Summary) -> Table:
    """Regions of the host program."""
    rows = []
    for r in summary.regions[:_ROWS]:
        reach = r.median_ns
        within = (
            f" ({formatting.time(reach.low)} to {formatting.time(reach.high)})" if reach and r.instances > 4 else ""
        )
        rows.append(
            (
                r.name,
                f"{r.instances:,}",
                formatting.time(r.wall.p50_ns) + within,
                formatting.time(r.wall.p99_ns),
                f"{r.submissions:,.4g}",
                f"{r.dispatches:,.4g}" if r.dispatches else MISSING,
                _figure(r.device_sum, "p50_ns"),
            )
        )
    return Table(
        "Host regions, per instance",
        (
            Column("region", right=False),
            Column("instances"),
            Column("median wall (95 %)"),
            Column("p99", spare=2),
            Column("buffers", spare=1),
            Column("dispatches", spare=1),
            Column("device time"),
        ),
        tuple(rows),
        tuple(_region_notes(summary)) if rows else (),
    )


def _region_notes(summary: Summary) -> list[str]:
    notes = ["device time: sum of the dispatch times of an instance, over instances in which all were timed"]
    left_out = summary.outside
    if left_out is not None and left_out.submissions:
        sentence = f"{formatting.count(left_out.submissions, 'command buffer')} outside of any {summary.repeated!r}"
        if left_out.while_open:
            sentence += f", {left_out.while_open:,} of them committed by other threads while one was open"
        notes.append(sentence)
    return notes


def command_buffers(summary: Summary) -> Table:
    """Command buffers by label."""
    rows = [
        (
            b.name or "(no label)",
            f"{b.count:,}",
            _figure(b.times, "total_ns"),
            _figure(b.times, "p50_ns"),
            _figure(b.times, "p99_ns"),
            _figure(b.queue_delay, "p50_ns"),
            _figure(b.encode, "p50_ns"),
        )
        for b in summary.command_buffers[:_ROWS]
    ]
    hidden = len(summary.command_buffers) - len(rows)
    return Table(
        "Command buffers",
        (
            Column("label", right=False),
            Column("count"),
            Column("total"),
            Column("p50"),
            Column("p99", spare=2),
            Column("queue delay p50"),
            Column("encode p50", spare=1),
        ),
        tuple(rows),
        (f"{hidden:,} more rows in the JSON report",) if hidden > 0 else (),
    )


def devices(summary: Summary) -> Table:
    """Busy and idle time, and the causes of idle time."""
    rows, notes = [], []
    for d in summary.device_times:
        rows.append(
            (
                d.device,
                formatting.time(d.span_ns),
                formatting.time(d.busy_ns),
                _share(d.busy_ns / d.span_ns if d.span_ns else None),
                formatting.time(d.sum_ns),
                formatting.time(d.idle_ns),
                d.basis,
            )
        )
        notes += [
            f"{f'{d.device} ' if len(summary.device_times) > 1 else ''}idle {formatting.time(c.total_ns)}"
            f" ({formatting.percent(c.total_ns / d.idle_ns)}{f', {c.count:,} ×' if c.count else ''}): {c.what}"
            for c in d.causes[:4]
        ]
    return Table(
        "Device time",
        (
            Column("device", right=False),
            Column("span"),
            Column("busy"),
            Column("share"),
            Column("sum", spare=1),
            Column("idle"),
            Column("busy while running", right=False, spare=2, wide=True),
        ),
        tuple(rows),
        tuple(notes),
    )


def critical_path(summary: Summary) -> Table:
    """The kernels on the critical path."""
    shown = summary.what_ifs[:5]
    several = len({w.device_row for w in summary.what_ifs}) > 1
    rows = [
        (
            named(w.kernel, w.detail) + (f" on {w.device}" if several else ""),
            MISSING if w.saved_ns is None else formatting.time(w.on_path_ns),
            _time(w.saved_ns),
            _share(w.saved_share) + _reach(w.saved_low, w.saved_high),
        )
        for w in shown
    ]
    notes = []
    if any(w.saved_ns is None for w in shown):
        notes.append(f"{MISSING} not known: these compete for a full device, and no replay reproduces how")
    if summary.replay_residue is not None:
        off = formatting.percent(summary.replay_residue)
        notes.append(
            "kernels off the critical path also save time when they compete for a full device; estimated by"
            f" replays that match the measured time to within {off}"
        )
    notes += _typical_note(summary, "typical time")
    for p in summary.critical_paths[:1]:
        which = f"command list {p.label!r}" if p.label else "the longest command list"
        on_it = f"{len(p.path.nodes):,} of {formatting.count(len(p.kernel), 'node')}"
        notes.append(
            f"{which}: {formatting.time(p.schedule.wall_ns)}, of which {formatting.time(p.path.execution_ns)} in the"
            f" dispatches on the critical path ({on_it}) and {formatting.time(p.path.gap_ns)} between them"
        )
    return Table(
        "Critical path: what a kernel would save if it were twice as fast",
        (Column("kernel", right=False), Column("on the path"), Column("saves"), Column("of typical time")),
        tuple(rows),
        tuple(notes),
    )


def checks(made: Sequence[Check], title: str = "Validity checks") -> Table:
    """Checks, with their results."""
    return Table(
        title,
        (Column("check", right=False), Column("", right=False, status=True), Column("", right=False, wide=True)),
        tuple((check.name, check.status.value, check.sentence) for check in made),
    )


GROUPINGS: Mapping[str, Callable[[Summary, int], Table]] = {
    "kernel": kernels,
    "label": labels,
    "op": op_kinds,
    "shape": shapes,
    **{part: partial(split, part) for part in PARTS},
}
"""How dispatches can be grouped."""


# --- cells ---------------------------------------------------------------------------------------------------


def _count(group: Group) -> str:
    return f"{group.count or group.dispatched:,}"


def _time(ns: float | None) -> str:
    return MISSING if ns is None else formatting.time(ns)


def _figure(times: Times | None, name: str) -> str:
    return _time(None if times is None else getattr(times, name))


def _share(part: float | None) -> str:
    return MISSING if part is None else formatting.percent(part)


def _reach(low: float | None, high: float | None) -> str:
    """Half the width of a 95 % interval: ' ± 1.2 %'; empty where there is none, or it is too small to show."""
    if low is None or high is None or high - low < 2e-4:
        return ""
    return f" ± {formatting.percent((high - low) / 2)}"


def _spread(times: Times | None) -> tuple[str, ...]:
    if times is None:
        return (MISSING,) * 5
    return tuple(map(formatting.time, (times.p50_ns, times.p90_ns, times.p99_ns, times.min_ns, times.max_ns)))


def _group_notes(summary: Summary, groups: Sequence[Group], shown: Sequence[Group]) -> list[str]:
    notes = []
    if any(g.share is not None for g in shown):
        notes.append("share: of device busy time; overlapping dispatches split it evenly")
    if len(groups) > len(shown):
        rest = sum(g.share or 0.0 for g in groups[len(shown) :])
        more = f"{len(groups) - len(shown):,} more rows in the JSON report"
        notes.append(f"{more} ({formatting.percent(rest)} of busy time)")
    if any(g.times is None for g in shown):
        notes.append(f"{MISSING} not timed: {_why_not(summary)}; count: all that ran")
    elif any(g.count < g.dispatched for g in shown):
        unsampled = sum(g.dispatched - g.count for g in groups)
        turns = "; dispatches take turns at being timed, and shares cover all of them" if summary.in_part else ""
        notes.append(f"{unsampled:,} more ran but were not timed; count and total exclude them{turns}")
    if any(g.bounded for g in shown):
        bounded = sum(g.bounded for g in groups)
        times = "1 time is an upper bound" if bounded == 1 else f"{bounded:,} times are upper bounds"
        notes.append(f"{times}: shorter than the resolution of the clock, or timed together with others")
    return notes + _outside_notes(summary, shown)


def _outside_notes(summary: Summary, shown: Sequence[Group]) -> list[str]:
    if summary.repeated is None or all(g.times is None or g.per_instance_ns is not None for g in shown):
        return []
    return [f"{MISSING} per {summary.repeated}: did not run in any {summary.repeated} whose dispatches were all timed"]


def _why_not(summary: Summary) -> str:
    measured = summary.measured
    return measured.sentence if measured.status != "fine" else "only command buffers were sampled"


def _tree(groups: Sequence[Group]) -> list[Group]:
    """Parents before their children, siblings by total."""
    children: dict[str, list[Group]] = {}
    for g in groups:
        parent = "/".join(g.name.split("/")[: g.depth - 1]) if g.depth > 1 else ""
        children.setdefault(f"{g.depth}:{parent}", []).append(g)
    listed: list[Group] = []
    stack = list(reversed(children.get("1:", [])))
    while stack:
        g = stack.pop()
        listed.append(g)
        stack.extend(reversed(children.get(f"{g.depth + 1}:{g.name}", [])))
    return listed
