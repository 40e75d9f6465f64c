"""How sure the order of the suspects is: what they save, resampled over runs.

A recording is one draw of what could have been recorded. Runs of each command list are drawn from its own again and
again, with replacement and neighbours together (what disturbs one run often disturbs the next), and times, efficiencies
and savings are worked out anew. A kernel is named first only where it leads in nearly all of these. Two that save the
same, but for a few percent, are not told apart: the model behind a saving is not better than that.

A list with too few runs says little of how much it varies. Its times are taken to be right within a factor of two, the
same for all such lists: what makes one of them slow may make all of them slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .columns import Floats
from .machine import WANTED_RUNS
from .schedules import PlanSavings
from .statistics import percentiles

SURE = 0.95
"""The part of the resamples in which the first must lead."""
LEAD = 0.1
"""What it must save more than any other, as a part."""
RESAMPLES = 400
_FACTOR = 2.0
_BLOCK = 4
"""Neighbouring runs that are drawn together."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Which runs of one list the resamples hold. Drawn when it is asked for, and always the same."""

    runs: int
    number: int
    """Of the list; each has random numbers of its own."""
    enough: bool
    """Whether there are enough runs to draw from."""

    def means(self, values: Floats, rows: slice = slice(None)) -> Floats:
        """(resamples, n) of (runs, n): means over the runs that were drawn; or some `rows` of it."""
        if not self.enough:
            return np.repeat(values.mean(axis=0)[None, :], len(range(RESAMPLES)[rows]), axis=0)
        drawn: Floats = self._weights()[rows] @ values
        return drawn

    def _weights(self) -> Floats:
        """(resamples, runs): how often each run was drawn, as a part."""
        generator = np.random.default_rng((0, self.number))
        heads = generator.integers(0, self.runs, (RESAMPLES, -(-self.runs // _BLOCK), 1))
        drawn = ((heads + np.arange(_BLOCK)) % self.runs).reshape(RESAMPLES, -1)[:, : self.runs]
        counts = np.zeros((RESAMPLES, self.runs))
        np.add.at(counts, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
        return counts / self.runs


def draws(plans: Sequence[PlanSavings]) -> list[Draw]:
    """How the runs of all lists are drawn anew."""
    return [Draw(len(plan.wall_ns), number, _is_enough(plan)) for number, plan in enumerate(plans)]


def unsure_factors(kernels: int) -> Floats:
    """(resamples, kernels): by what the times of each kernel may be off in lists with too few runs; 1 in the mean."""
    drawn = _FACTOR ** np.random.default_rng(1).uniform(-1.0, 1.0, (RESAMPLES, kernels))
    balanced: Floats = drawn / drawn.mean(axis=0)
    return balanced


def _is_enough(plan: PlanSavings) -> bool:
    return min(plan.undisturbed, len(plan.wall_ns)) >= WANTED_RUNS


def total(plans: Sequence[PlanSavings]) -> Floats:
    """What all command buffers together save, by what-if."""
    saved: Floats = np.sum([plan.submissions * plan.saved_ns.mean(axis=0) for plan in plans], axis=0)
    return saved


def total_wall(plans: Sequence[PlanSavings]) -> float:
    """What all command buffers together take."""
    return float(sum(plan.submissions * plan.wall_ns.mean() for plan in plans))


def well_measured(plans: Sequence[PlanSavings]) -> tuple[float, int]:
    """The part of the wall in lists that have enough runs, and the undisturbed runs of the one that takes most."""
    walls = np.array([plan.submissions * float(plan.wall_ns.mean()) for plan in plans])
    enough = float(walls[[_is_enough(plan) for plan in plans]].sum()) if plans else 0.0
    largest = plans[int(walls.argmax())].undisturbed if plans else 0
    return enough / float(walls.sum()) if walls.sum() > 0 else 0.0, largest


def interval(drawn_ns: Floats, drawn_wall_ns: Floats) -> tuple[float, float]:
    """The 95 % interval of what is saved, as a part of the wall."""
    known = drawn_wall_ns > 0
    if not known.any():
        return 0.0, 0.0
    low, high = percentiles(np.clip(drawn_ns[known] / drawn_wall_ns[known], 0.0, 1.0), (2.5, 97.5))
    return low, high


def leading(drawn_ns: Floats) -> Floats:
    """The part of the resamples in which each saves clearly more than all others."""
    if drawn_ns.shape[1] == 0:
        return np.zeros(0)
    order = np.sort(drawn_ns, axis=1)
    best = order[:, -1]
    second = order[:, -2] if drawn_ns.shape[1] > 1 else np.zeros(len(order))
    clear = (best > 0) & (best >= (1 + LEAD) * second)
    found: Floats = ((drawn_ns == best[:, None]) & clear[:, None]).mean(axis=0)
    return found
