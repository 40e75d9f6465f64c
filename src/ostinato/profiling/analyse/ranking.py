"""How sure the order of the suspects is: their savings, resampled over runs.

The runs of each command list are drawn from its own, with replacement and in blocks of neighbours (what disturbs one
run often disturbs the next), and times, efficiencies and savings are computed again. A kernel is named first only if it
leads in nearly all resamples. Two whose savings differ by a few percent are not told apart: the model is not more
precise than that.

A list with too few runs says little about its variation. The times of a kernel in it are assumed to be right within a
factor of two, the same factor for all such lists: what makes one of them slow may make all of them slow.
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
"""The part of the resamples in which the first kernel must lead."""
LEAD = 0.1
"""By how much it must save more than any other, as a part."""
RESAMPLES = 400
ENOUGH_PART = 0.5
"""The part of the wall time that must be in lists with enough undisturbed runs."""
_FACTOR = 2.0
_BLOCK = 4
"""Neighbouring runs that are drawn together."""


@dataclass(frozen=True, slots=True)
class Draw:
    """The runs of one list in each resample. Drawn on demand, and always the same."""

    runs: int
    number: int
    """Of the list; each has random numbers of its own."""
    enough: bool
    """Whether there are enough runs to draw from."""

    def means(self, values: Floats, rows: slice = slice(None)) -> Floats:
        """(resamples, n) of (runs, n): means over the drawn runs; or some `rows` of them."""
        if not self.enough:
            return np.repeat(values.mean(axis=0)[None, :], len(range(RESAMPLES)[rows]), axis=0)
        drawn: Floats = self._weights()[rows] @ values
        return drawn

    def _weights(self) -> Floats:
        """(resamples, runs): the part of the draws that each run has."""
        generator = np.random.default_rng((0, self.number))
        heads = generator.integers(0, self.runs, (RESAMPLES, -(-self.runs // _BLOCK), 1))
        drawn = ((heads + np.arange(_BLOCK)) % self.runs).reshape(RESAMPLES, -1)[:, : self.runs]
        counts = np.zeros((RESAMPLES, self.runs))
        np.add.at(counts, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
        return counts / self.runs


def draws(plans: Sequence[PlanSavings]) -> list[Draw]:
    """How the runs of each list are resampled."""
    return [Draw(len(plan.wall_ns), number, _is_enough(plan)) for number, plan in enumerate(plans)]


def unsure_factors(kernels: int) -> Floats:
    """(resamples, kernels): the factor on the times of each kernel in lists with too few runs; 1 on average."""
    drawn = _FACTOR ** np.random.default_rng(1).uniform(-1.0, 1.0, (RESAMPLES, kernels))
    balanced: Floats = drawn / drawn.mean(axis=0)
    return balanced


def _is_enough(plan: PlanSavings) -> bool:
    return min(plan.undisturbed, len(plan.wall_ns)) >= WANTED_RUNS


def total(plans: Sequence[PlanSavings]) -> Floats:
    """The saving of all command buffers together, by what-if."""
    saved: Floats = np.sum([plan.submissions * plan.saved_ns.mean(axis=0) for plan in plans], axis=0)
    return saved


def total_wall(plans: Sequence[PlanSavings]) -> float:
    """The wall time of all command buffers together."""
    return float(sum(plan.submissions * plan.wall_ns.mean() for plan in plans))


def well_measured(plans: Sequence[PlanSavings]) -> tuple[float, int]:
    """The part of the wall time in lists with enough runs, and the number of the list that takes most of it.

    Where that part is too small, it is the list that takes most among those with too few runs.
    """
    walls = np.array([plan.submissions * float(plan.wall_ns.mean()) for plan in plans])
    enough = np.array([_is_enough(plan) for plan in plans])
    part = float(walls[enough].sum() / walls.sum()) if walls.sum() > 0 else 0.0
    return part, int((walls if part >= ENOUGH_PART else np.where(enough, -1.0, walls)).argmax())


def interval(drawn_ns: Floats, drawn_wall_ns: Floats, estimate: float) -> tuple[float, float]:
    """The 95 % interval of a saving, as a part of the wall time; it contains the estimate."""
    known = drawn_wall_ns > 0
    if not known.any():
        return estimate, estimate
    low, high = percentiles(np.clip(drawn_ns[known] / drawn_wall_ns[known], 0.0, 1.0), (2.5, 97.5))
    return min(low, estimate), max(high, estimate)


def leading(drawn_ns: Floats) -> Floats:
    """The part of the resamples in which each kernel saves clearly more than all others."""
    if drawn_ns.shape[1] == 0:
        return np.zeros(0)
    order = np.sort(drawn_ns, axis=1)
    best = order[:, -1]
    second = order[:, -2] if drawn_ns.shape[1] > 1 else np.zeros(len(order))
    clear = (best > 0) & (best >= (1 + LEAD) * second)
    part: Floats = ((drawn_ns == best[:, None]) & clear[:, None]).mean(axis=0)
    return part
