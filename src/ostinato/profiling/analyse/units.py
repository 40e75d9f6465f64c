"""Recordings as units of a comparison, and the comparison of two sets of them.

A unit is one run of a program: a recording, or the recordings of all processes that the run started. Units are drawn
anew when a program is run again, so intervals are computed over units. Columns are read one recording at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ...errors import ComparisonError
from ..recording import SUFFIX, open_recording
from . import formatting
from .comparison import Comparison, Key, UnitTimes, compare_times, process_times, stacked
from .origin import Origin
from .reading import columns_of
from .surroundings import Surroundings, differences, surroundings
from .verdicts import LEAST_UNITS, Spreads

_REVISION_CHARACTERS = 12
_UNNAMED = "unnamed program"
_LONGEST_STREAK = 2
"""Units of one side that follow each other where two programs take turns (A B, B A, …)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One run of a program."""

    times: Mapping[Key, UnitTimes]
    surroundings: tuple[Surroundings, ...]
    """Of each of its recordings."""
    origins: tuple[Origin, ...]
    began_ns: int | None
    """On the wall clock."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The kinds of devices that it ran on."""
        return tuple(sorted({device for each in self.surroundings for device in each.devices}))


def units_in(path: Path) -> list[tuple[Path, ...]]:
    """The recordings of each unit: of a recording, of a folder of them, or of a folder with one folder per run."""
    if not path.is_dir():
        return [(path,)]
    units: list[tuple[Path, ...]] = [(file,) for file in _recordings(path)]
    units += [tuple(files) for folder in sorted(path.iterdir(), key=_by_number) if (files := _recordings(folder))]
    if not units:
        raise ComparisonError(f"there are no recordings (*{SUFFIX}) in {path}")
    return units


def read_unit(paths: Sequence[Path], confidence: float | None = None) -> Unit:
    """Reads the recordings of one run; with a confidence, also the interval of each median within the run."""
    times, around, began = [], [], []
    origins: list[Origin] = []
    for path in paths:
        with open_recording(path) as recording:
            columns = columns_of(recording)
        times.append(process_times(columns, confidence if len(paths) == 1 else None))
        around.append(surroundings(columns))
        origins += columns.origins
        began += [] if columns.began_ns is None else [columns.began_ns]
    return Unit(stacked(times), tuple(around), tuple(origins), min(began, default=None))


def compare_units(
    a: Sequence[Unit],
    b: Sequence[Unit],
    *,
    names: tuple[str, str] = ("A", "B"),
    delta: float = 0.02,
    confidence: float = 0.95,
    spreads: Spreads | None = None,
    allow_different_devices: bool = False,
) -> Comparison:
    """The comparison of two programs by their runs.

    Raises `ComparisonError` where they ran on different devices, unless that is allowed, or have nothing in common.
    """
    devices = [sorted({unit.devices for unit in side}) for side in (a, b)]
    if (devices[0] != devices[1] or len(devices[0]) > 1) and not allow_different_devices:
        shown = (f"{name} on {'; '.join(map(' and '.join, side))}" for name, side in zip(names, devices, strict=True))
        raise ComparisonError(
            f"recordings of different devices are not compared: {', '.join(shown)}; --allow-different-devices does it"
        )
    in_turns = took_turns(a, b)
    if in_turns:
        a, b = (sorted(side, key=lambda unit: unit.began_ns or 0) for side in (a, b))
    around = [[each for unit in side for each in unit.surroundings] for side in (a, b)]
    comparison = compare_times(
        stacked([unit.times for unit in a]),
        stacked([unit.times for unit in b]),
        names=names,
        delta=delta,
        confidence=confidence,
        paired=in_turns and len(a) == len(b) >= LEAST_UNITS,
        in_turns=in_turns,
        spreads=spreads,
        about=[_about(name, side) for name, side in zip(names, (a, b), strict=True)],
        differences=differences(around[0], around[1], names),
        notes=_notes(a, b, names, in_turns, spreads),
    )
    if not comparison.rows:
        raise ComparisonError(_nothing(comparison))
    return comparison


def took_turns(a: Sequence[Unit], b: Sequence[Unit]) -> bool:
    """Whether the runs of both sides alternated, by when they began."""
    began = [(unit.began_ns, side) for side, units in enumerate((a, b)) for unit in units]
    if any(moment is None for moment, _ in began):
        return False
    sides = [side for _, side in sorted(began)]
    streak = longest = 1
    for before, after in pairwise(sides):
        streak = streak + 1 if before == after else 1
        longest = max(longest, streak)
    return longest <= _LONGEST_STREAK


def _about(name: str, units: Sequence[Unit]) -> str:
    origins = [origin for unit in units for origin in unit.origins]
    revisions = {
        f"{origin.revision[:_REVISION_CHARACTERS]}{' with changes' if origin.changed else ''}"
        for origin in origins
        if origin.revision
    }
    facts = [formatting.count(len(units), "run")]
    facts += [formatting.count(len(origins), "process", "processes")] if len(origins) != len(units) else []
    facts += [f"revision {' and '.join(sorted(revisions))}"] if revisions else []
    began = min((origin.began for origin in origins if origin.began), default="")
    facts += [f"from {began[:19].replace('T', ' ')} UTC"] if began else []
    return f"{name}: {_programs(units)} ({', '.join(facts)})"


def _programs(units: Sequence[Unit]) -> str:
    """The program that was run; a run may consist of several. Where runs are not of the same, that is said."""
    runs = Counter(" and ".join(dict.fromkeys(origin.program or _UNNAMED for origin in unit.origins)) for unit in units)
    if len(runs) == 1:
        return next(iter(runs))
    listed = ", ".join(f"{formatting.count(count, 'run')} of {program}" for program, count in runs.most_common())
    return f"{len(runs)} different programs, taken together: {listed}"


def _notes(
    a: Sequence[Unit], b: Sequence[Unit], names: tuple[str, str], in_turns: bool, spreads: Spreads | None
) -> list[str]:
    few = min(len(a), len(b)) < LEAST_UNITS
    if not few and in_turns:
        return []
    counts = f"{len(a)} of {names[0]} and {len(b)} of {names[1]}"
    if few:
        reason = f"A verdict needs {LEAST_UNITS} runs of each, made in turns; there are {counts}"
    else:
        reason = f"The runs ({counts}) were not made in turns, so what changed on the machine meanwhile counts too"
    if spreads is None:
        return [
            f"{reason}. Run both programs in turns (ostinato compare -- A … -- B …), or measure how much processes"
            " differ on this device (ostinato calibrate --processes 20)"
        ]
    wide = f"{reason}. The intervals are as wide as processes of one program were seen to differ on this device"
    if spreads.calibrations > 1:
        return [f"{wide}, in {spreads.calibrations} calibrations"]
    return [
        f"{wide}, in one calibration. It does not show what changes over hours; calibrate again at another time of day"
    ]


def _nothing(comparison: Comparison) -> str:
    kept = [
        f"{len(only)} only in {name}"
        for only, name in zip((comparison.only_a, comparison.only_b), comparison.names, strict=True)
    ]
    return f"nothing to compare: no kernel, label or graph with a time is in both ({', '.join(kept)})"


def _recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def _by_number(path: Path) -> tuple[int, str]:
    return (int(path.name) if path.name.isascii() and path.name.isdigit() else 0, path.name)
