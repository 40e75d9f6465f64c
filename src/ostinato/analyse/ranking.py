"""How sure the order of the suspects is: what they save, resampled over runs.

A recording is one draw of what could have been recorded. Runs of each command list are drawn from its own again and
again, with replacement and neighbours together (what disturbs one run often disturbs the next), and times, efficiencies
and savings are worked out anew. A kernel is named first only where it leads in nearly all of these. Two that save the
same, but for a few percent, are not told apart: the model behind a saving is not better than that.

A list with too few runs says little of how much it varies. Its times are taken to be right within a factor of two.
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
class Draws:
    """Which runs of one list each resample holds."""

    weights: Floats | None
    """(resamples, runs): how often each run was drawn, as a part; None for a list with too few runs."""
    factors: Floats
    """(resamples, kernels): what the times of each kernel are multiplied with; ones where there are enough runs."""

    def means(self, values: Floats, rows: slice = slice(None)) -> Floats:
        """(resamples, n) of (runs, n): means over the runs that were drawn, strays held back; or some `rows` of it."""
        steady = steadied(values)
        if self.weights is None:
            return np.repeat(steady.mean(axis=0)[None, :], len(range(RESAMPLES)[rows]), axis=0)
        drawn: Floats = self.weights[rows] @ steady
        return drawn


def draws(plans: Sequence[PlanSavings], kernels: int, seed: int = 0) -> list[Draws]:
    """Draws the runs of all lists anew, many times. The same recording always gives the same draws."""
    generator = np.random.default_rng(seed)
    found = []
    for plan in plans:
        runs = len(plan.wall_ns)
        if min(plan.undisturbed, runs) >= WANTED_RUNS:
            found.append(Draws(_weights(runs, generator), np.ones((RESAMPLES, kernels))))
        else:
            found.append(Draws(None, _FACTOR ** generator.uniform(-1.0, 1.0, (RESAMPLES, kernels))))
    return found


def _weights(runs: int, generator: np.random.Generator) -> Floats:
    blocks = -(-runs // _BLOCK)
    heads = generator.integers(0, runs, (RESAMPLES, blocks, 1))
    drawn = ((heads + np.arange(_BLOCK)) % runs).reshape(RESAMPLES, -1)[:, :runs]
    counts = np.zeros((RESAMPLES, runs))
    np.add.at(counts, (np.arange(RESAMPLES)[:, None], drawn), 1.0)
    return counts / runs


def steadied(values: Floats) -> Floats:
    """The values of runs, a row each, with strays moved to the edge of what is usual (Tukey's fences).

    Savings of runs may lie in two heaps, of which a median would tell one; a plain mean would hang on strays.
    """
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    reach = 1.5 * (high - low)
    held: Floats = np.clip(values, low - reach, high + reach)
    return held


def total(plans: Sequence[PlanSavings]) -> Floats:
    """What all command buffers together save, by what-if."""
    saved: Floats = np.sum([plan.submissions * steadied(plan.saved_ns).mean(axis=0) for plan in plans], axis=0)
    return saved


def total_wall(plans: Sequence[PlanSavings]) -> float:
    """What all command buffers together take."""
    return float(sum(plan.submissions * steadied(plan.wall_ns).mean() for plan in plans))


def well_measured(plans: Sequence[PlanSavings]) -> tuple[float, int]:
    """The part of the wall in lists that have enough runs, and the undisturbed runs of the one that takes most."""
    walls = [plan.submissions * float(steadied(plan.wall_ns).mean()) for plan in plans]
    enough = sum(
        wall for wall, plan in zip(walls, plans, strict=True) if min(plan.undisturbed, len(plan.wall_ns)) >= WANTED_RUNS
    )
    largest = plans[int(np.argmax(walls))].undisturbed if plans else 0
    return enough / sum(walls) if sum(walls) > 0 else 0.0, largest


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
