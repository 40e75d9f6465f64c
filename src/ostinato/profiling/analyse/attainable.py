"""How long a dispatch would take if it were as efficient as the other kernels of the recording.

The target of a kernel is the median efficiency of the other kernels, weighted by time, between 15 % and 75 %: nobody
reaches a ceiling. A kernel that takes nearly all of the time has no others to be compared with; its target is half
of a ceiling. Without ceilings the others' bandwidth is the target. Where the efficiency of a command is not known
(nothing is declared, and the bound bytes are refuted), half of its time counts. Nothing is faster than its launch.
"""

from __future__ import annotations

import numpy as np

from .columns import Floats, Ints
from .roofline import Rates, weighted_medians

LEAST_REFERENCE, MOST_REFERENCE = 0.15, 0.75
REFERENCE_ALONE = 0.5
LAUNCH_NS = 1000.0
"""A dispatch shorter than this is mostly launch on every device known so far."""
_COMPANY = 0.1
"""The part of the time that the other kernels must take for a comparison."""


def attainable_ns(reached: Rates, code: Ints, calibrated: bool, typical_ns: Floats, judged: Ints) -> Floats:
    """The time that a dispatch of each command would take if it were as efficient as the other kernels.

    `typical_ns` is the time of a dispatch of each command now, a row per resample, and so is the result. Kernels that
    are not `judged` are compared with all kernels; leaving one out matters only where it takes much of the time.
    """
    ideal = reached.least_ns if calibrated else reached.bytes_moved * 1e9
    mine = code >= 0
    size = int(code.max(initial=0)) + 1
    spent = by_kernel(np.where(mine, reached.runs, 0.0) * np.where(mine, typical_ns, 0.0), code, size)
    known = mine & ~np.isnan(ideal)
    least = by_kernel(np.where(known, reached.runs * np.where(known, ideal, 0.0), 0.0)[None, :], code, size)
    known_ns = by_kernel(np.where(known, reached.runs * np.where(known, typical_ns, 0.0), 0.0), code, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(known_ns > 0, least / known_ns, np.nan)
    values = np.minimum(values, 1.0) if calibrated else values
    reference = np.repeat(_limited(weighted_medians(values, spent), calibrated)[:, None], size, axis=1)
    for kernel in judged.tolist():
        others = spent.copy()
        others[:, kernel] = 0.0
        company = others.sum(axis=1) >= _COMPANY * spent.sum(axis=1)
        reached_by_others = weighted_medians(values, others)
        reference[:, kernel] = _limited(np.where(company | (not calibrated), reached_by_others, np.nan), calibrated)
    with np.errstate(divide="ignore", invalid="ignore"):
        attainable = ideal / reference[:, np.maximum(code, 0)]
    attainable = np.where(np.isnan(attainable), typical_ns / 2, attainable)
    launch = np.minimum(np.nanmin(np.where(mine, typical_ns, np.nan), axis=1, initial=LAUNCH_NS), LAUNCH_NS)
    limited: Floats = np.maximum(attainable, launch[:, None])
    return limited


def by_kernel(values: Floats, code: Ints, size: int) -> Floats:
    """(resamples, kernels) of (resamples, commands): added up."""
    chosen = np.flatnonzero(code >= 0)
    order = chosen[np.argsort(code[chosen], kind="stable")]
    numbers, heads = np.unique(code[order], return_index=True)
    totals = np.zeros((len(values), size))
    if order.size:
        totals[:, numbers] = np.add.reduceat(values[:, order], heads, axis=1)
    return totals


def _limited(reference: Floats, calibrated: bool) -> Floats:
    if not calibrated:
        return reference
    held = np.clip(reference, LEAST_REFERENCE, MOST_REFERENCE)
    return np.where(np.isnan(reference), REFERENCE_ALONE, held)
