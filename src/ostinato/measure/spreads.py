"""How much processes of one program differ on a device, measured once and kept for comparisons of single recordings.

Two processes of the same program differ by where their memory lies, by which cores they got, and by what the machine
did meanwhile. One recording of each side cannot show how much. So a fixed workload is run in many processes, and the
spread of their medians is kept, for kernels of several lengths, in the private cache. Calibrations add up: those of
other hours and days show what the machine does over time. The newest processes are kept.
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

Times = Mapping[str, tuple[float, ...]]
"""The medians of each row of the workload in ns, one per process."""


@dataclass(frozen=True, slots=True)
class RowSpread:
    """One row of the workload."""

    name: str
    median_ns: float
    processes: int
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
        both = {name: (*kept.get(name, ()), *times)[-_MOST_PROCESSES:] for name, times in measured.items()}
        return json.dumps(both)

    return described(_read(cache.note(_key(devices), merged, anew=True)))


def known_spreads(devices: Sequence[str]) -> Spreads | None:
    """What processes on devices of these kinds were seen to differ by; None if it was not measured."""
    rows = [(float(np.median(times)), _spread(times)) for times in _read(_cached(devices)).values()]
    return Spreads(tuple(sorted(rows, key=lambda row: row[0]))) if rows else None


def described(times: Times) -> tuple[RowSpread, ...]:
    """The spread of each row, shortest first."""
    rows = []
    for name, each in times.items():
        middle, spread = float(np.median(each)), _spread(each)
        difference = calibrated([middle], [middle], spread)
        assert difference is not None
        rows.append(RowSpread(name, middle, len(each), spread.deviation, difference.ratio(_CONFIDENCE).high - 1))
    return tuple(sorted(rows, key=lambda row: row.median_ns))


def _spread(times: Sequence[float]) -> Spread:
    return Spread(float(np.log(times).std(ddof=1)), len(times) - 1)


def _times(units: Sequence[Mapping[Key, UnitTimes]]) -> Times:
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


def _read(text: str) -> Times:
    """The rows of a cache entry; none if it is damaged."""
    try:
        rows = json.loads(text)
        times = {str(name): tuple(map(_time, each)) for name, each in rows.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: each for name, each in times.items() if LEAST_PROCESSES <= len(each) <= _MOST_PROCESSES}


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(value)
    return float(value)
