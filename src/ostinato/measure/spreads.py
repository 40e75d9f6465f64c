"""How much processes of one program differ on a device, measured once and kept for comparisons of single recordings.

Two processes of the same program differ by where their memory lies, by which cores they got, and by what the machine
did meanwhile. One recording of each side cannot show how much. So a fixed workload is run in many processes, and the
spread of their medians is kept, for kernels of several lengths, in the private cache. The newest processes are kept.

Processes of one calibration ran within a minute and have that minute in common. So a single calibration says nothing of
what changes over hours. Several show it, and the fewer they are, the less sure it is: it has one degree of freedom less
than there are calibrations.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base import cache
from ..errors import CacheError, ComparisonError
from ..profiling.analyse.comparison import Key, UnitTimes, stacked
from ..profiling.analyse.units import Unit, read_unit
from ..profiling.analyse.verdicts import Spread, Spreads, calibrated
from . import workload
from .programs import Command, recorded

LEAST_PROCESSES = 5
_MOST_PROCESSES = 60
_CONFIDENCE = 0.95

Calibrations = tuple[tuple[float, ...], ...]
"""The medians of a row of the workload in ns, one per process of each calibration, oldest first."""


@dataclass(frozen=True, slots=True)
class RowSpread:
    """One row of the workload."""

    name: str
    median_ns: float
    calibrations: int
    processes: int
    """Of all calibrations."""
    deviation: float
    """Standard deviation of the logarithm of the processes' medians: about the part by which they differ."""
    two_recordings: float
    """Nineteen in twenty pairs of single recordings of one program differ by less than this part."""


def calibrate_processes(
    device: str, processes: int, progress: Callable[[str], None] = lambda what: None
) -> tuple[RowSpread, ...]:
    """Runs the workload in so many processes, keeps their medians with earlier ones, and gives the spread of all."""
    command = Command("the workload", (sys.executable, "-m", workload.__name__, device))
    units: list[Unit] = []
    with tempfile.TemporaryDirectory(prefix="ostinato-") as folder:
        for number in range(processes):
            progress(f"calibrating: process {number + 1} of {processes}")
            units.append(read_unit(recorded(command, Path(folder) / str(number))))
    devices = units[0].devices
    if any(unit.devices != devices for unit in units):
        raise ComparisonError("the workload ran on different devices; calibrate one device at a time")
    measured = _times([unit.times for unit in units])

    def merged() -> str:
        kept = _read(_cached(devices))
        return json.dumps({name: _newest((*kept.get(name, ()), times)) for name, times in measured.items()})

    return described(_read(cache.note(_key(devices), merged, anew=True)))


def known_spreads(devices: Sequence[str]) -> Spreads | None:
    """What processes on devices of these kinds were seen to differ by; None if it was not measured."""
    calibrations = _read(_cached(devices)).values()
    rows = [(_middle(each), _spread(each)) for each in calibrations]
    return Spreads(tuple(sorted(rows, key=lambda row: row[0])), min(map(len, calibrations))) if rows else None


def described(rows: Mapping[str, Calibrations]) -> tuple[RowSpread, ...]:
    """The spread of each row, shortest first."""
    spreads = []
    for name, calibrations in rows.items():
        middle, spread = _middle(calibrations), _spread(calibrations)
        difference = calibrated([middle], [middle], spread)
        assert difference is not None
        two = difference.ratio(_CONFIDENCE).high - 1
        processes = sum(map(len, calibrations))
        spreads.append(RowSpread(name, middle, len(calibrations), processes, spread.deviation, two))
    return tuple(sorted(spreads, key=lambda row: row.median_ns))


def _middle(calibrations: Calibrations) -> float:
    return float(np.median(np.concatenate(calibrations)))


def _spread(calibrations: Calibrations) -> Spread:
    """How much processes differ that belong to no common calibration.

    Their variance is that within calibrations and that between them (one-way random effects, Satterthwaite's degrees
    of freedom); of a single calibration it is that within it.
    """
    logs = [np.log(times) for times in calibrations]
    everything = np.concatenate(logs)
    count, inner, outer = everything.size, everything.size - len(logs), len(logs) - 1
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in logs) / inner
    if not outer:
        return Spread(math.sqrt(within), inner)
    between = sum(each.size * float(each.mean() - everything.mean()) ** 2 for each in logs) / outer
    size = (count - sum(each.size**2 for each in logs) / count) / outer
    parts = within * (1 - 1 / size), between / size
    errors = parts[0] ** 2 / inner + parts[1] ** 2 / outer
    freedom = int(sum(parts) ** 2 / errors) if errors else inner
    return Spread(math.sqrt(max(within, sum(parts))), max(freedom, 1))


def _newest(calibrations: Calibrations) -> Calibrations:
    kept: list[tuple[float, ...]] = []
    for times in reversed(calibrations):
        room = _MOST_PROCESSES - sum(map(len, kept))
        kept += [times[-room:]] if room else []
    return tuple(reversed(kept))


def _times(units: Sequence[Mapping[Key, UnitTimes]]) -> dict[str, tuple[float, ...]]:
    """The medians of the kernels and graphs that have a time in every process."""
    return {
        f"{key.kind} {key.name}{f' {key.label}' if key.label else ''}": tuple(row.times_ns.tolist())
        for key, row in stacked(units).items()
        if key.kind != "label" and np.isfinite(row.times_ns).all() and (row.times_ns > 0).all()
    }


# --- the cache -----------------------------------------------------------------------------------------------


def _key(devices: Sequence[str]) -> str:
    return f"spreads-{cache.digest(workload.IDENTITY, *devices)[:32]}"


def _cached(devices: Sequence[str]) -> str:
    def missing() -> str:
        raise LookupError

    try:
        return cache.note(_key(devices), missing)
    except (LookupError, CacheError):
        return "{}"


def _read(text: str) -> dict[str, Calibrations]:
    """The rows of a cache entry; none if it is damaged."""
    try:
        rows = {
            str(name): tuple(tuple(map(_time, times)) for times in calibrations)
            for name, calibrations in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: each for name, each in rows.items() if _is_whole([len(times) for times in each])}


def _is_whole(sizes: Sequence[int]) -> bool:
    # The oldest calibration may have lost all but one process, the newest is as it was made.
    return bool(sizes) and min(sizes) > 0 and sizes[-1] >= LEAST_PROCESSES and sum(sizes) <= _MOST_PROCESSES


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(value)
    return float(value)
