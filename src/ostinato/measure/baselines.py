"""Named baselines: recordings kept in a folder of the user's, for each device, to compare later ones with.

A baseline is the folder NAME/DEVICE/NUMBER in the user's folder. It holds recordings, or a folder of them for a run of
several processes, and can itself be given to `ostinato compare`. A new baseline is copied beside and appears in one
rename under the next number; the highest number counts. The one before it stays for those who are reading it, and
older ones are removed. An interrupted writer leaves the old baseline in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..base.options import checked_name, is_name
from ..profiling.recording import SUFFIX
from ..profiling.recording.database import side_files
from .keeping import beside, folder_name


def kept_baseline(folder: Path, name: str, devices: Sequence[str]) -> Path | None:
    """The folder of recordings of a baseline; None if there is none for these devices."""
    numbers = _numbers(_place(folder, name, devices))
    return _place(folder, name, devices) / str(numbers[-1]) if numbers else None


def keep_baseline(folder: Path, name: str, devices: Sequence[str], units: Sequence[Sequence[Path]]) -> Path:
    """Copies recordings into a new baseline and gives its folder; each unit is the recordings of one run."""
    place = _place(folder, name, devices)
    with beside(place) as unfinished:
        baseline = unfinished / "baseline"
        for number, unit in enumerate(units, 1):
            for part, recording in enumerate(unit, 1):
                _copy(recording, baseline / str(number) / f"{part}{SUFFIX}")
        while True:
            kept = place / str(max(_numbers(place), default=0) + 1)
            try:
                os.rename(baseline, kept)
                break
            except OSError:
                if not kept.exists():  # otherwise another process was faster
                    raise
    for number in _numbers(place):
        if number < int(kept.name) - 1:
            shutil.rmtree(place / str(number), ignore_errors=True)
    return kept


def baseline_names(folder: Path) -> list[str]:
    """The names of the baselines in a folder."""
    with contextlib.suppress(OSError):
        return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and is_name(entry.name))
    return []


def _place(folder: Path, name: str, devices: Sequence[str]) -> Path:
    return folder / checked_name(name) / folder_name("\n".join(devices))


def _numbers(place: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(e.name) for e in place.iterdir() if e.name.isascii() and e.name.isdigit() and e.is_dir())
    return []


def _copy(recording: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(recording, to)
    log, _, _ = side_files(recording)
    if log.exists():  # of a program that was killed: what the log holds is not in the file yet
        shutil.copyfile(log, side_files(to)[0])
