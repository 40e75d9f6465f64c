"""Bringing the times of several recordings to one clock, or saying why that cannot be done.

Processes of one start of one machine share its monotonic clock, so their times are kept. Where containers shift that
clock the wall clock, which they share, says by how much, within an uncertainty that is stored. Recordings of different
machines (or of one machine before and after a restart) have nothing in common but wall clocks that nobody has compared:
they are refused, unless the caller says how far those may be apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...errors import RecordingError
from .declaring import MAX_TIME_NS
from .reader import Recording

_READING = ("monotonic", "realtime", "uncertainty")
_STEP_NS = 1_000_000
_DRIFT = 500e-6
"""The rate at which a wall clock may be slewed; a faster change means that it was set."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What is added to the times of a recording, and how far off they may then be."""

    offset_ns: int
    uncertainty_ns: int


def align(recordings: Sequence[Recording], wall_clock_error_ns: int | None = None) -> list[Shift]:
    """How to bring recordings to one clock; refused when that is not possible."""
    if len(recordings) == 1:
        return [Shift(0, 0)]
    clocks = [_Clock.of(recording) for recording in recordings]
    for clock in clocks:
        if clock.boot in ("", "unknown"):
            raise RecordingError(f"{clock.file} does not say which start of which machine its clock belongs to")
    _refuse_twice(recordings)
    identities = [(clock.boot, clock.namespace) for clock in clocks]
    if len(set(identities)) == 1:
        return [Shift(0, 0) for _ in clocks]
    if len({clock.boot for clock in clocks}) > 1 and wall_clock_error_ns is None:
        other = next(clock for clock in clocks if clock.boot != clocks[0].boot)
        raise RecordingError(
            f"{clocks[0].file} and {other.file} cannot be aligned: they come from different machines, or from before"
            " and after a restart, and nothing says how far apart the wall clocks were. If you know, give"
            " wall_clock_error_ns, or --wall-clock-error-ns to `ostinato merge`"
        )
    # The first recording of each clock speaks for all of that clock, which then stay exactly aligned to each other.
    speakers = dict(reversed(list(zip(identities, clocks, strict=True))))
    for clock in speakers.values():
        clock.check_wall()
    # The clock that started first is the reference, so that no time becomes negative.
    reference = min(speakers.values(), key=lambda clock: clock.wall_offset_ns)
    shifts = []
    for identity in identities:
        clock = speakers[identity]
        if clock is reference:
            shifts.append(Shift(0, 0))
            continue
        error = (wall_clock_error_ns or 0) if clock.boot != reference.boot else 0
        uncertainty = clock.wall_uncertainty_ns + reference.wall_uncertainty_ns + error
        shifts.append(Shift(clock.wall_offset_ns - reference.wall_offset_ns, uncertainty))
    return shifts


@dataclass(frozen=True, slots=True)
class _Clock:
    """The clock of a recording, and what the wall clock said beside it at the beginning and at the end."""

    file: str
    boot: str
    namespace: str
    wall_offset_ns: int
    wall_uncertainty_ns: int
    wall_change_ns: int
    length_ns: int

    @staticmethod
    def of(recording: Recording) -> _Clock:
        file = "a recording" if recording.path is None else recording.path.name
        process = next((each for each in recording.processes if each.clock_offset_ns == 0), recording.processes[0])
        readings = [getattr(process, f"{which}_{name}_ns") for which in ("start", "end") for name in _READING]
        if None in readings:
            raise RecordingError(f"{file} does not say what its clock has to do with others")
        if any(not 0 <= value < MAX_TIME_NS for value in readings):
            raise RecordingError(f"{file} says impossible things about its clock")
        start, start_wall, start_error, end, end_wall, end_error = readings
        offsets = (start_wall - start, end_wall - end)
        change = abs(offsets[1] - offsets[0])
        uncertainty = max(start_error, end_error) + change // 2 + 1
        return _Clock(
            file, process.boot, process.time_namespace, sum(offsets) // 2, uncertainty, change, abs(end - start)
        )

    def check_wall(self) -> None:
        if self.wall_change_ns > _STEP_NS + _DRIFT * self.length_ns:
            raise RecordingError(
                f"{self.file} cannot be aligned: its wall clock was set by {self.wall_change_ns / 1e9:.3f} s"
                " while it recorded"
            )


def _refuse_twice(recordings: Iterable[Recording]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for recording in recordings:
        file = "a recording" if recording.path is None else recording.path.name
        for process in recording.processes:
            facts = (process.pid, process.boot, process.start_realtime_ns, process.start_monotonic_ns)
            if facts in seen:
                raise RecordingError(f"{file} and {seen[facts]} hold the same process")
            seen[facts] = file
