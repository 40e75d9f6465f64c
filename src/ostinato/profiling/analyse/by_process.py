"""Dispatch times by rank, host or process, and by kernel within each: where a job is uneven.

Merging keeps the commands of every process apart, so a command belongs to the process whose submissions run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .columns import Columns, Ints
from .groups import CommandTimes, Group, grouped, kernel_codes
from .origin import Origin

PARTS = ("rank", "host", "process")
"""What a job can be split by."""


@dataclass(frozen=True, slots=True)
class Part:
    """The work of some processes."""

    whole: Group
    """All of it, under the name of the rank, host or process."""
    kernels: tuple[Group, ...]
    """The same by kernel."""


def by_process(columns: Columns, spent: CommandTimes) -> Mapping[str, tuple[Part, ...]]:
    """The parts of a job by each of `PARTS`, by rank where there are any; none where no process is known."""
    if not columns.origins:
        return dict.fromkeys(PARTS, ())
    done: dict[tuple[int, ...], tuple[Part, ...]] = {}
    by_part = {}
    for part in PARTS:
        of_process = [_name(part, origin) for origin in columns.origins]
        names = list(dict.fromkeys(_name(part, origin) for origin in _in_order(columns.origins)))
        numbers = tuple(names.index(name) for name in of_process)
        if numbers not in done:
            done[numbers] = _parts(columns, spent, np.array(numbers, np.int64), names)
        # Ranks and processes are usually the same parts under other names; percentiles are not computed again.
        by_part[part] = tuple(
            replace(each, whole=replace(each.whole, name=name))
            for each, name in zip(done[numbers], names, strict=False)
        )
    return by_part


def _name(part: str, origin: Origin) -> str:
    if part == "host":
        return origin.host or "(no name)"
    if part == "rank":
        return "(no rank)" if origin.rank is None else f"rank {origin.rank}"
    return origin.name


def _in_order(origins: Sequence[Origin]) -> list[Origin]:
    return sorted(origins, key=lambda origin: (origin.rank is None, origin.rank or 0))


def _parts(columns: Columns, spent: CommandTimes, part_of_process: Ints, names: list[str]) -> tuple[Part, ...]:
    """A part for each name, also for one without any work."""
    kernel, kernels = kernel_codes(columns)
    process = _process_of_command(columns)
    part = np.where((process >= 0) & (kernel >= 0), part_of_process[process], -1)
    wholes = {group.name: group for group in grouped(columns, spent, part, [(name, "") for name in names])}
    return tuple(
        Part(
            wholes.get(name) or Group(name, "", 0, 0, 0, 0, None, None, None, ""),
            tuple(grouped(columns, spent, np.where(part == number, kernel, -1), kernels)),
        )
        for number, name in enumerate(names)
    )


def _process_of_command(columns: Columns) -> Ints:
    """The row of the process that ran each command; -1 for none."""
    subs, plans = columns.submissions, columns.plans
    of_plan = np.full(len(plans), -1, np.int64)
    planned = subs.plan >= 0
    of_plan[subs.plan[planned]] = subs.process[planned]
    of_node = np.repeat(of_plan, np.diff(plans.first))
    of_command = np.full(len(columns.commands), -1, np.int64)
    of_command[plans.command[of_node >= 0]] = of_node[of_node >= 0]
    return of_command
