"""The last seconds of a recording that is being written: kernels, regions, queue depth, and the checks so far.

A `Window` adds up what a `Follower` reads, in short steps of time, and forgets what is older than its length. Rates are
over the time from the first step to the moment that the recording reaches. *Share* is of device busy time, as in a
report: dispatches that overlap split it evenly. *Queue depth* is the mean number of command buffers that were committed
and had not ended. A recording holds only those that have ended, so one that still runs counts when it ends. What began
before the window counts from the start of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from ..recording.following import News
from ..recording.following import State as State
from ..recording.plan_kernels import Kernel
from ..recording.schema import Device
from . import formatting
from .kernels import KernelFacts, details, named
from .machine import LOST_PART
from .timeline import busy_share
from .validity import Check, Status

DISTURBED_FROM = LOST_PART
_MANY_DROPS = 0.01
_MANY_DISTURBED, _MOST_DISTURBED = 0.1, 0.5


@dataclass(frozen=True, slots=True)
class LiveKernel:
    """A kernel in the last seconds."""

    name: str
    share: float
    """Of device busy time."""
    per_s: float
    """Dispatches in a second; of those that were looked at."""
    mean_ns: float


@dataclass(frozen=True, slots=True)
class LiveRegion:
    """The regions of one name that ended in the last seconds."""

    name: str
    per_s: float
    mean_ns: float


@dataclass(frozen=True, slots=True)
class Picture:
    """How a recording stands. Names are as they were recorded."""

    state: State
    program: str
    pid: int
    devices: tuple[str, ...]
    lasted_ns: int
    """From the start of the recording to the moment that it reaches."""
    idle_ns: int
    """How long nothing has ended, while the program runs."""
    window_ns: int
    kernels: tuple[LiveKernel, ...]
    """By share."""
    regions: tuple[LiveRegion, ...]
    """By frequency."""
    buffers_per_s: float
    """Command buffers in a second."""
    queue_depth: float | None
    """Mean number of command buffers committed and not ended; None if no commit was recorded."""
    busy: float | None
    """Mean part of the time in which a device was busy; None if nothing ran, or not all dispatches were looked at."""
    in_part: bool
    """Whether shares are of the newest dispatches only, because there were too many to look at."""
    checks: tuple[Check, ...]
    submissions: int
    """Recorded in all, as are the next ones."""
    samples: int
    regions_begun: int
    file_bytes: int

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in (State.ENDED, State.KILLED)


_Key = TypeVar("_Key")


class _Sums(Generic[_Key]):
    """Figures added up by key and step of time."""

    def __init__(self) -> None:
        self._steps: dict[int, dict[_Key, list[float]]] = {}

    def add(self, step: int, key: _Key, *figures: float) -> None:
        """Add figures to those of a key in a step."""
        sums = self._steps.setdefault(step, {}).setdefault(key, [0.0] * len(figures))
        for number, figure in enumerate(figures):
            sums[number] += figure

    def since(self, first: int) -> dict[_Key, list[float]]:
        """The sums of all keys from a step on; older ones are forgotten."""
        for step in [step for step in self._steps if step < first]:
            del self._steps[step]
        totals: dict[_Key, list[float]] = {}
        for sums in self._steps.values():
            for key, figures in sums.items():
                before = totals.get(key, [0.0] * len(figures))
                totals[key] = [a + b for a, b in zip(before, figures, strict=True)]
        return totals


class Window:
    """The last `length_ns` of one recording, as a follower with a window of that length reads it."""

    def __init__(self, length_ns: int) -> None:
        self._length_ns = length_ns
        self._kernels, self._regions, self._buffers = _Sums[int](), _Sums[str](), _Sums[int]()
        self._partly_until_ns = -1
        self._names: list[str] = []

    def add(self, news: News) -> Picture:
        """Take in what came, and look at the window that ends with it."""
        if len(news.kernels) != len(self._names):
            self._names = _names(news.kernels)
        for region in news.regions:
            self._regions.add(region.step, region.name, region.ended, region.total_ns)
        for buffers in news.buffers:
            step, device, *figures = buffers
            self._buffers.add(step, device, *figures)
        self._add_dispatches(news)
        if news.in_part:
            self._partly_until_ns = news.until_ns + self._length_ns
        return self._picture(news)

    def _add_dispatches(self, news: News) -> None:
        dispatches, kernels = news.dispatches, len(news.kernels)
        step = np.minimum(dispatches.end_ns, news.until_ns) // news.step_ns
        first = int(step.min(initial=news.until_ns))
        place = (step - first) * kernels + dispatches.kernel
        since_ns = self._first_step(news) * news.step_ns
        for device in news.devices:
            mine: Any = dispatches.device == device.id if len(news.devices) > 1 else slice(None)
            start_ns, end_ns = dispatches.start_ns[mine], dispatches.end_ns[mine]
            columns = busy_share(np.maximum(start_ns, since_ns), end_ns), end_ns - start_ns
            busy_ns, spent_ns = (np.bincount(place[mine], weights=column) for column in columns)
            ran = np.bincount(place[mine])
            for at in np.flatnonzero(ran).tolist():
                steps, kernel = divmod(at, kernels)
                self._kernels.add(first + steps, kernel, float(busy_ns[at]), int(ran[at]), float(spent_ns[at]))

    def _first_step(self, news: News) -> int:
        return (news.until_ns - self._length_ns) // news.step_ns

    def _picture(self, news: News) -> Picture:
        first = self._first_step(news)
        began_ns = min((process.start_monotonic_ns or news.until_ns for process in news.processes), default=0)
        length_ns = max(news.until_ns - max(first * news.step_ns, began_ns), 1)
        kernels, regions, buffers = self._kernels.since(first), self._regions.since(first), self._buffers.since(first)
        busy_ns = sum(figures[0] for figures in kernels.values())
        in_part = news.until_ns < self._partly_until_ns
        totals = [sum(column) for column in zip(*buffers.values(), strict=True)] or [0.0] * 8
        ended, in_flight_ns, committed, unsampled_ns, *of_workers = totals
        a_second = length_ns / 1e9
        return Picture(
            state=news.state,
            program=news.processes[0].meta.get("program", ""),
            pid=news.processes[0].pid,
            devices=tuple(device.name for device in news.devices),
            lasted_ns=max(news.until_ns - began_ns, 0),
            idle_ns=max(news.now_ns - news.last_ns, 0) if news.state is State.RUNNING and news.last_ns else 0,
            window_ns=length_ns,
            kernels=tuple(
                LiveKernel(self._names[code], busy / busy_ns, ran / a_second, spent_ns / ran)
                for code, (busy, ran, spent_ns) in sorted(kernels.items(), key=lambda item: -item[1][0])
                if busy_ns
            ),
            regions=tuple(
                LiveRegion(name, left / a_second, spent_ns / left)
                for name, (left, spent_ns) in sorted(regions.items(), key=lambda item: -item[1][0])
            ),
            buffers_per_s=ended / a_second,
            queue_depth=in_flight_ns / length_ns if committed else None,
            busy=min((busy_ns + unsampled_ns) / length_ns / len(buffers), 1.0) if buffers and not in_part else None,
            in_part=in_part,
            checks=(_drops(news), _machine(news.devices, *of_workers), _measured(news)),
            submissions=news.submissions,
            samples=news.samples,
            regions_begun=news.regions_begun,
            file_bytes=news.file_bytes,
        )


def _names(kernels: Sequence[Kernel]) -> list[str]:
    facts = [KernelFacts(*kernel) for kernel in kernels]
    return [named(kernel.name, detail) for kernel, detail in zip(kernels, details(facts), strict=True)]


def _drops(news: News) -> Check:
    lost = sum(drop.count for drop in news.drops)
    if not lost:
        return Check("drops", Status.FINE, "nothing was dropped")
    where = ", ".join(f"{drop.count:,} {drop.where}" for drop in news.drops if drop.count)
    many = lost > _MANY_DROPS * (news.samples + lost)
    return Check("drops", Status.ERROR if many else Status.NOTED, f"{lost:,} dropped ({where})")


def _machine(devices: Sequence[Device], worked_ns: float, lost_ns: float, reported: float, disturbed: float) -> Check:
    """Whether other programs disturb the workers now. Only a report can tell outliers and late workers."""
    parts = [f"{device.name}: throttled by {device.held_back_by}" for device in devices if device.held_back_by]
    parts += [
        f"{device.name}: used by {formatting.count(device.other_processes, 'other program')}"
        for device in devices
        if device.other_processes
    ]
    status = Status.NOTED if parts else Status.NOT_JUDGED
    if worked_ns:
        lost = lost_ns / worked_ns
        sentence = f"other programs took {formatting.percent(lost)} of the workers' time"
        if disturbed:
            sentence += f"; {disturbed:,.0f} of {formatting.count(reported, 'run')} disturbed"
        parts.insert(0, sentence)
        noted = bool(parts[1:]) or lost > LOST_PART or disturbed > _MANY_DISTURBED * reported
        status = Status.NOTED if noted else Status.FINE
        if disturbed > _MOST_DISTURBED * reported:
            status = Status.ERROR
    return Check("machine", status, "; ".join(parts) or "no workers reported how much CPU time they got")


def _measured(news: News) -> Check:
    if news.failed:
        return Check("measured", Status.NOTED, f"{formatting.count(news.failed, 'command buffer')} failed")
    if news.submissions and not news.samples:
        return Check("measured", Status.NOTED, "no dispatch is timed, only command buffers")
    status = Status.FINE if news.samples else Status.NOT_JUDGED
    return Check("measured", status, "dispatches are timed" if news.samples else "nothing was recorded yet")
