"""`ostinato.compare`: is B faster than A? Both in one process, in turns, with a verdict that another run would repeat.

A comparison looks at its data a few times and ends early when every row has a verdict. Each early look uses up a small
part of the error that the comparison may make in all, so ending early does not make wrong verdicts more likely.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..profiling.analyse import machine
from ..profiling.analyse.columns import Columns
from ..profiling.analyse.comparison import Comparison, Key, compare_times, joined_times, unit_times
from ..profiling.analyse.lists import warm_ups
from ..profiling.analyse.timeline import submission_times
from ..profiling.analyse.verdicts import Verdict
from ..runtime.queue import OnQueue
from .checks import check_new_file, check_seconds, check_share
from .rounds import Rounds
from .subjects import contender

_PLACEMENT = (
    "the memory of A and B is large and differs, so it could not be moved often: where it lies may make a difference"
    " of some per cent; give both the same inputs"
)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LiveComparison(Comparison):
    """A comparison that prints as its table, also in a notebook."""

    def __str__(self) -> str:
        from ..profiling.report.comparison import render  # rich takes a third of a second

        return render(self)

    def _repr_html_(self) -> str:
        from ..profiling.report.comparison import as_html

        return as_html(self)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison as a page for a browser: one file that needs no network."""
        from ..profiling.report.page import save_comparison_page

        save_comparison_page(self, path)


def compare(
    a: Any,
    b: Any,
    *,
    delta: float = 0.02,
    seconds: float = 3.0,
    confidence: float = 0.95,
    names: tuple[str, str] = ("A", "B"),
    values: Mapping[str, Any] | None = None,
    device: OnQueue | None = None,
    cold: bool = False,
    save: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> LiveComparison:
    """Compare B with A by replays in turns, and judge it: FASTER, SLOWER, SAME or CANNOT TELL.

    `a` and `b` are what `bench` takes: replayables, graphs, or functions that encode (those need `device`). `values`
    are the parameters of a replay. Changes within `delta` count as the same. It takes at most about `seconds`, and less
    when all rows are decided before. Memory that the graphs write is restored afterwards. `save` writes the recording
    to a new file.
    """
    check_share("delta", delta)
    check_share("confidence", confidence)
    check_seconds(seconds)
    if save is not None:
        check_new_file("save", save)
    sides = [contender(what, name=name, device=device, values=values) for what, name in zip((a, b), names, strict=True)]
    if sides[0].queue is not sides[1].queue:
        raise ArgumentError("A and B are on different devices; only what runs on one device can take turns on it")

    def until(moment: float) -> None:
        if progress is not None:
            progress(f"{names[0]} and {names[1]} in turns, {moment:.1f} of {seconds:g} s")

    with Rounds(sides, seconds, cold) as rounds:
        for error in rounds.looks(progress=until):
            comparison = _judged(rounds, delta, confidence, 1 - (1 - confidence) * error)
            if all(row.verdict is not Verdict.CANNOT_TELL for row in comparison.rows):
                break
    if save is not None:
        rounds.profile.save(save)
    return LiveComparison(**{each.name: getattr(comparison, each.name) for each in fields(comparison)})


def _judged(rounds: Rounds, delta: float, confidence: float, level: float) -> Comparison:
    columns, of_contender, of_round = rounds.columns()
    counts = rounds.counting(columns, of_contender)
    times = []
    for number in (0, 1):
        mine = (of_contender == number) & columns.submissions.ran
        rows = unit_times(columns, np.where(mine, of_round, -1), rounds.count, counts & mine)
        graph = rounds.contenders[number].run.graph
        if graph.splits:
            rows = {key: row for key, row in rows.items() if key.kind != "graph"}
            replays = rounds.replays(columns, of_contender, number)
            rows[Key("graph", graph.label or "graph", grid=f"{len(graph):,}")] = joined_times(
                columns, replays, of_round, rounds.count, counts
            )
        times.append(rows)
    a, b = rounds.contenders
    if all(len(each.run.graph) == 1 for each in (a, b)):  # the graph is its kernel
        times = [{key: row for key, row in side.items() if key.kind == "graph"} for side in times]
    return compare_times(
        *times,
        names=(a.name, b.name),
        unit="round",
        paired=True,
        groups=rounds.group_of_round(),
        turned=rounds.turned(np.arange(rounds.count)),
        delta=delta,
        confidence=confidence,
        level=level,
        notes=(*_notes(columns), *([_PLACEMENT] if rounds.placement_matters else [])),
    )


def _notes(columns: Columns) -> tuple[str, ...]:
    """What the machine check says, where it says something."""
    disturbed = machine.disturbance(columns, submission_times(columns), warm_ups(columns))
    check = machine.check(columns, disturbed)
    return () if check.status.value == "fine" else (f"machine: {check.sentence}",)
