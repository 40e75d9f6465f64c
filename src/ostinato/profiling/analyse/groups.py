"""Dispatch times by kernel, label path, op kind and shape, and command buffers by label.

Every grouping is a number per *command*; samples follow their commands. The samples are put in order of their commands
once, and each grouping then only rearranges whole stretches, so ten million samples take seconds.

Counts are exact: `dispatched` is what ran, sampled or not, `count` what has a time. Without times, figures are None,
never zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import ABSENT, BOUNDED, Columns, Flags, Floats, Ints, partly_timed, usable
from .kernels import named
from .lists import runs_per_command
from .statistics import order_of, percentiles, split_by
from .timeline import busy_share

_MAX_DEPTH = 16
"""Label components past this are counted with the last one; nobody reads deeper, and a hostile label could go on."""


@dataclass(frozen=True, slots=True)
class Times:
    """Statistics of a set of durations."""

    total_ns: int
    mean_ns: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    min_ns: int
    max_ns: int


def times_of(durations_ns: Ints) -> Times | None:
    """The statistics of some durations; None without any."""
    if durations_ns.size == 0:
        return None
    p50, p90, p99 = percentiles(durations_ns, (50, 90, 99))
    total = int(durations_ns.sum())
    low, high = int(durations_ns.min()), int(durations_ns.max())
    return Times(total, total / durations_ns.size, p50, p90, p99, low, high)


@dataclass(frozen=True, slots=True)
class Group:
    """The dispatches of one name."""

    name: str
    detail: str
    """Of a kernel, what distinguishes it from others of its name, if there are any; of a shape, the grid; else ""."""
    depth: int
    """Components of a label path; 0 elsewhere."""
    dispatched: int
    """How many ran."""
    count: int
    """How many of them have a time."""
    bounded: int
    """How many of those are known only to lie below what the clock or their neighbours resolve."""
    times: Times | None
    share: float | None
    """Of device busy time; overlapping dispatches split it evenly, so shares add up to 1."""
    per_instance_ns: float | None
    """Time per instance of the repeated region ("per token"), over instances in which all dispatches were timed. None
    for what never ran inside one."""
    place: str
    """Where it was encoded, if that is one place."""
    file: str = ""
    """The file with the kernel's function, if that is one; "" also where the source was a text."""
    line: int | None = None
    """The line of the function in it."""
    source_digest: str = ""
    """Of that file or text: SHA-256, hexadecimal."""
    execution: str = ""
    """How the kernel's threads run, and why, if all run the same way; "" also where the backend does not say."""

    @property
    def total_ns(self) -> int:
        """Total of the measured times."""
        return self.times.total_ns if self.times else 0


@dataclass(frozen=True, slots=True)
class CommandTimes:
    """The samples in order of their commands, with sums per command: the input of every grouping."""

    durations_ns: Ints
    first: Ints
    """Where each command's samples begin, and one more."""
    dispatched: Ints
    bounded: Ints
    device_busy_ns: Floats
    """(devices, commands): the busy time of each command on each device; where dispatches take turns at being timed,
    extrapolated to all that ran."""
    instance_ns: Ints
    """Time inside instances of the repeated region in which all dispatches were timed."""
    instance_counts: Ints
    """Dispatches inside those instances."""
    instances: int
    """How many those are."""
    in_part: bool
    """Whether dispatches took turns at being timed, so that totals do not cover all that ran."""

    @property
    def busy_ns(self) -> Floats:
        """The busy time of each command on all devices."""
        total: Floats = self.device_busy_ns.sum(axis=0)
        return total

    @property
    def counts(self) -> Ints:
        """Samples per command."""
        return np.diff(self.first)


def command_times(columns: Columns, instance: Ints | None = None) -> CommandTimes:
    """Sorts the samples by command. `instance` numbers the region instance of every submission, -1 for outside."""
    samples, subs = columns.samples, columns.submissions
    size = len(columns.commands)
    known = usable(samples)
    command = columns.plans.command[known.node]
    durations = known.end_ns - known.start_ns
    busy = np.zeros((len(columns.devices), size))
    device = subs.device[known.submission] if len(columns.devices) > 1 else None
    partly = partly_timed(columns)
    for number in range(len(columns.devices)):
        mine: Any = slice(None) if device is None else device == number
        shares = busy_share(known.start_ns[mine], known.end_ns[mine])
        busy[number] = np.bincount(command[mine], weights=shares, minlength=size)
        if partly[subs.device == number].any():
            busy[number] *= _stands_for(columns, number, np.bincount(command[mine], minlength=size))
    inside, counted = np.zeros(size, np.int64), np.zeros(size, np.int64)
    whole = np.zeros(0, np.int64)
    if instance is not None and len(known):
        whole = sampled_whole(columns, instance)
        chosen = np.isin(instance, whole)[known.submission]
        inside = np.bincount(command[chosen], weights=durations[chosen], minlength=size).astype(np.int64)
        counted = np.bincount(command[chosen], minlength=size)
    return CommandTimes(
        durations[order_of(command, size)],
        np.concatenate([[0], np.cumsum(np.bincount(command, minlength=size))]),
        dispatched(columns),
        np.bincount(command[known.status == BOUNDED], minlength=size),
        busy,
        inside,
        counted,
        whole.size,
        bool(partly.any()),
    )


def _stands_for(columns: Columns, device: int, timed: Ints) -> Floats:
    """For each command, the number of its runs on a device per run that has a time.

    Devices share commands, but each has its own turns: on one all may be timed, and few on another.
    """
    subs = columns.submissions
    ran = runs_per_command(columns, subs.sampled & subs.done & (subs.device == device))
    factor: Floats = np.maximum(ran, timed) / np.maximum(timed, 1)
    return factor


def sampled_whole(columns: Columns, instance: Ints) -> Ints:
    """The region instances all of whose dispatches have a time, given each submission's instance (-1: none).

    Some replays are left unsampled on purpose; an instance with one of them is incomplete.
    """
    plans, subs, known = columns.plans, columns.submissions, usable(columns.samples)
    is_dispatch = columns.commands.kind[plans.command] == "dispatch"
    wanted = nodes_of_submissions(columns, is_dispatch)
    timed = np.bincount(known.submission, weights=is_dispatch[known.node], minlength=len(subs))
    missing = (timed < wanted) | (~subs.sampled & (wanted > 0))
    return np.setdiff1d(instance[(instance >= 0) & (timed > 0)], instance[missing])


def dispatched(columns: Columns) -> Ints:
    """How often each command ran: once per submission of its plans that did not fail. Barriers do not count.

    Of a submission that failed, those dispatches ran that have a time.
    """
    subs, plans, commands, known = columns.submissions, columns.plans, columns.commands, usable(columns.samples)
    counts = runs_per_command(columns, subs.done).astype(np.int64)
    failed = ~subs.done
    if failed.any():
        counts += np.bincount(plans.command[known.node[failed[known.submission]]], minlength=len(commands))
    return np.where(commands.kind == "barrier", 0, counts)


def nodes_of_submissions(columns: Columns, chosen: Flags) -> Ints:
    """How many of the chosen nodes each submission runs."""
    upto = np.concatenate([[0], np.cumsum(chosen)])
    return np.append(np.diff(upto[columns.plans.first]), 0)[columns.submissions.plan]


def grouped(
    columns: Columns, spent: CommandTimes, code: Ints, names: list[tuple[str, str]], depth: int = 0
) -> list[Group]:
    """One group per name. `code` numbers each command's group, -1 for none.

    The largest total is first; where dispatches took turns at being timed, the largest share.
    """
    order = np.argsort(code, kind="stable")
    order = order[code[order] >= 0]
    if order.size == 0:
        return []
    lengths = spent.counts[order]
    # Sample k of the rearranged whole: from where its command's stretch begins, as far in as it is in the new order.
    shift = spent.first[:-1][order] - (np.cumsum(lengths) - lengths)
    durations = spent.durations_ns[np.repeat(shift, lengths) + np.arange(int(lengths.sum()))]
    size = len(names)
    chosen = code[order]
    ends = np.cumsum(np.bincount(chosen, weights=lengths, minlength=size).astype(np.int64))
    total_busy = float(spent.busy_ns.sum())
    ran, bounded, busy, inside, counted = (
        np.bincount(chosen, weights=column[order], minlength=size)
        for column in (spent.dispatched, spent.bounded, spent.busy_ns, spent.instance_ns, spent.instance_counts)
    )
    commands = columns.commands
    shared = [
        _shared(column[order], chosen, missing)
        for column, missing in (
            (commands.place, ""),
            (commands.file, ""),
            (commands.line, ABSENT),
            (commands.source_digest, ""),
            (commands.execution, ""),
        )
    ]
    made = []
    begin = 0
    for number, (name, detail) in enumerate(names):
        times = times_of(durations[begin : ends[number]])
        count = int(ends[number]) - begin
        begin = int(ends[number])
        if ran[number] == 0:
            continue
        place, file, line, source_digest, execution = (values[number] for values in shared)
        made.append(
            Group(
                name,
                detail,
                depth,
                int(ran[number]),
                count,
                int(bounded[number]),
                times,
                float(busy[number]) / total_busy if times and total_busy > 0 else None,
                float(inside[number]) / spent.instances if counted[number] else None,
                place,
                file,
                None if line == ABSENT else line,
                source_digest,
                execution,
            )
        )

    def largest_first(group: Group) -> tuple[float, int, str, str]:
        size = (group.share or 0.0) if spent.in_part else group.total_ns
        return -size, -group.dispatched, group.name, group.detail

    return sorted(made, key=largest_first)


def _shared(column: Any, code: Ints, missing: Any) -> dict[int, Any]:
    """For each group the value that all its commands have; `missing` where they differ. `code` rises."""
    starts = np.flatnonzero(np.diff(code, prepend=-1))
    firsts = column[starts]
    same = np.logical_and.reduceat(column == np.repeat(firsts, np.diff(starts, append=len(code))), starts)
    values = zip(code[starts].tolist(), firsts.tolist(), same.tolist(), strict=True)
    return {number: value if alike else missing for number, value, alike in values}


# --- the groupings -------------------------------------------------------------------------------------------


def by_kernel(columns: Columns, spent: CommandTimes) -> list[Group]:
    """Per kernel, those of one name told apart by `kernels.details`; copies and fills under those names."""
    return grouped(columns, spent, *kernel_codes(columns))


def kernel_codes(columns: Columns) -> tuple[Ints, list[tuple[str, str]]]:
    """Numbers the kernels of all commands, with the name and the detail of each; barriers get -1."""
    commands = columns.commands
    return _numbered(zip(commands.kernel, commands.detail, strict=True), commands.kind != "barrier")


def by_op_kind(columns: Columns, spent: CommandTimes) -> list[Group]:
    """Per op kind, as the program set it."""
    commands = columns.commands
    return grouped(columns, spent, *_numbered(((kind, "") for kind in commands.op_kind), commands.kind != "barrier"))


def by_shape(columns: Columns, spent: CommandTimes) -> list[Group]:
    """Per kernel and grid: the name is that of `by_kernel`, the detail 'threads 4096×1×1, group 256×1×1'."""
    commands = columns.commands
    shapes = (
        (named(kernel, detail), f"threads {extent(threads)}, group {extent(group)}" if kind == "dispatch" else "")
        for kernel, detail, kind, threads, group in zip(
            commands.kernel,
            commands.detail,
            commands.kind,
            commands.threads.tolist(),
            commands.group.tolist(),
            strict=True,
        )
    )
    return grouped(columns, spent, *_numbered(shapes, commands.kind != "barrier"))


def by_label(columns: Columns, spent: CommandTimes, fold: bool = False) -> list[Group]:
    """Every prefix of every label path, 'decode', 'decode/layer.3', ...: a path holds what is below it.

    With `fold`, numbers in the path become '*', so that the layers of a model are one row. Work without a label is
    not in here.
    """
    commands = columns.commands
    paths = [label_path(label, fold) for label in commands.label]
    by_path: list[Group] = []
    for depth in range(1, max(map(len, paths), default=0) + 1):
        deep = np.array([len(path) >= depth for path in paths]) & (commands.kind != "barrier")
        names = (("/".join(path[:depth]), "") for path in paths)
        by_path += grouped(columns, spent, *_numbered(names, deep), depth)
    return by_path


def label_path(label: str, fold: bool = False) -> tuple[str, ...]:
    """The parts of a label, with their numbers folded if asked; none of an empty one."""
    if not label:
        return ()
    parts = label.split("/", _MAX_DEPTH - 1)
    return tuple(folded(part) if fold else part for part in parts)


def folded(label: str) -> str:
    """A label with its numbers folded: 'layer.*' of every layer."""
    return re.sub(r"\d+", "*", label)


def _numbered(names: Iterable[tuple[str, str]], chosen: Any) -> tuple[Ints, list[tuple[str, str]]]:
    numbers: dict[tuple[str, str], int] = {}
    code = [
        numbers.setdefault(name, len(numbers)) if wanted else -1 for name, wanted in zip(names, chosen, strict=True)
    ]
    return np.array(code, np.int64), list(numbers)


def extent(size: list[int]) -> str:
    return "×".join(str(n) for n in size)


# --- command buffers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferGroup:
    """Command buffers of one label."""

    name: str
    count: int
    measured: int
    times: Times | None
    """Of their intervals on the device."""
    queue_delay: Times | None
    encode: Times | None


def by_command_buffer(columns: Columns, interval_ns: Ints, queue_delay_ns: Ints, encode_ns: Ints) -> list[BufferGroup]:
    """Command buffers by label, "" for those without."""
    code, names = _numbered(((label, "") for label in columns.submissions.label), np.ones(len(interval_ns), bool))
    made = []
    for (name, _), rows in zip(names, split_by(code, np.arange(len(code)), len(names)), strict=True):
        present = [column[rows][column[rows] != ABSENT] for column in (interval_ns, queue_delay_ns, encode_ns)]
        times, queue, encode = map(times_of, present)
        made.append(BufferGroup(name, rows.size, present[0].size, times, queue, encode))
    return sorted(made, key=lambda g: (-(g.times.total_ns if g.times else 0), g.name))
