"""Ranks of a job at regions of the same name: how far apart they begin and end, and who waits for whom.

The n-th region of a name in one process belongs to the n-th of that name in every other: ranks of a job run the same
program. In each such round the rank that ends last is the one that the others wait for, from their own end to its end.
Whether they really stood still meanwhile is not known; what they did is in the timeline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import ABSENT, Columns, Ints


@dataclass(frozen=True, slots=True)
class Rounds:
    """The regions of one name that all processes went through; (rounds, processes)."""

    name: str
    processes: tuple[int, ...]
    """Rows of the processes, by rank."""
    begin_ns: Ints
    end_ns: Ints
    left_out: int
    """Regions beyond those that every process has."""

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def begin_skew_ns(self) -> Ints:
        """Of each round: from the first begin to the last."""
        return np.asarray(np.ptp(self.begin_ns, axis=1))

    @property
    def end_skew_ns(self) -> Ints:
        """Of each round: from the first end to the last, which is the longest wait."""
        return np.asarray(np.ptp(self.end_ns, axis=1))

    @property
    def last(self) -> Ints:
        """Of each round: the column of the process that ended last."""
        return np.asarray(np.argmax(self.end_ns, axis=1))

    def waits_ns(self) -> Ints:
        """How long each process (row) waited for each other one (column), over all rounds."""
        size, last = len(self.processes), self.last
        waits = np.zeros((size, size), np.int64)
        if len(self):
            waited = self.end_ns.max(axis=1)[:, None] - self.end_ns
            np.add.at(waits, (np.arange(size)[None, :].repeat(len(self), 0), last[:, None].repeat(size, 1)), waited)
        return waits


def rounds(columns: Columns) -> list[Rounds]:
    """The names of regions that several processes went through, those with most time first."""
    regions = columns.regions
    ended = np.flatnonzero(regions.end_ns != ABSENT)
    if len(columns.pids) < 2 or not ended.size:
        return []
    spent: dict[str, int] = {}
    for name, wall in zip(regions.name[ended], (regions.end_ns - regions.begin_ns)[ended].tolist(), strict=True):
        spent[str(name)] = spent.get(str(name), 0) + wall
    made = []
    for name in sorted(spent, key=lambda each: -spent[each]):
        rows = ended[regions.name[ended] == name]
        rows = rows[np.argsort(regions.begin_ns[rows], kind="stable")]
        of = {process: rows[regions.process[rows] == process] for process in np.unique(regions.process[rows]).tolist()}
        if len(of) < 2:
            continue
        order = tuple(sorted(of, key=lambda process: _place(columns, process)))
        count = min(len(mine) for mine in of.values())
        begin, end = (
            np.stack([times[of[process][:count]] for process in order], axis=1)
            for times in (regions.begin_ns, regions.end_ns)
        )
        made.append(Rounds(name, order, begin, end, rows.size - count * len(order)))
    return made


def _place(columns: Columns, process: int) -> tuple[int, int]:
    rank = columns.origins[process].rank if process < len(columns.origins) else None
    return (1 << 31 if rank is None else rank, process)
