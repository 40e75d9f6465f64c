"""The accumulators of mlx-native: time per command buffer by label, and one entry per dispatch.

`record` and `record_dispatch` may be called by anyone; while OSTINATO_PROFILE_CB or OSTINATO_PROFILE_DISPATCH (or their
older names) is on, every submission reports here too, labelled or not. Nothing waits for that: what the device has done
arrives when the submission is seen to be done, and `dump` and `dump_dispatches` first wait for what is in flight.

Every dispatch has an entry. One that was not timed in that run has no times and says why; one that is not kept, because
there is no room or because the device cannot time dispatches at all, is counted in `dropped_dispatches`.

These tables answer the questions that mlx-native's did. `ostinato.profile()` answers more, and is the way to go.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace

from .. import settings
from ..backends.clock import Clock, ClockFit, ClockPair
from ..backends.protocol import Level
from ..base.locks import ForkLock
from ..errors import SamplingWarning
from ..ir.commands import Dispatch
from ..runtime import tracing
from ..runtime.queue import settle
from ..runtime.tracing import HostSpan, Region, Trace

_LARGEST = 2**64 - 1
MOST_DISPATCHES = 1 << 18
"""Dispatches that are kept until `reset`; further ones are counted in `dropped_dispatches`."""
MOST_LABELS = 1 << 16
"""Labels of command buffers that are kept until `reset`; those of further ones go under `OTHER_LABELS`."""
OTHER_LABELS = "(other labels)"
UNLABELLED = "(no label)"


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """What was recorded under one label; sums stop at the largest 64-bit number."""

    count: int = 0
    total_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True, slots=True)
class DispatchEntry:
    """One dispatch in a command buffer."""

    cb_label: str
    op_kind: str
    dispatch_index: int
    """Its place among the dispatches of the command buffer, from 0."""
    gpu_ns: int | None
    """None, like its start and end, where it was not timed."""
    start_gpu_ns: int | None
    end_gpu_ns: int | None
    kernel: str = ""
    label: str | None = None
    """The scopes it was encoded in, joined by '/'."""
    cb_ordinal: int = 0
    """The command buffer's number on its device."""
    node: int = 0
    """Its index among all commands of the list or graph."""
    status: str = "measured"
    """Or "bounded": shorter than the clock can tell, or timed together with others; or "unavailable": not timed."""
    reason: str = ""
    """Why it was not timed."""
    kernel_digest: str = ""
    """Tells kernels of one name apart, as `Kernel.digest` does."""


_SETTINGS = ("profile_cb", "profile_dispatch")
_GATES = settings.watched(*_SETTINGS)
_lock = ForkLock()
_entries: dict[str, ProfileEntry] = {}
_dispatches: dict[str, list[DispatchEntry]] = {}
_kept = 0
_dropped: Counter[str] = Counter()
"""Dispatches that are not kept, by the reason."""
_clock = Clock()


def is_enabled() -> bool:
    """Whether every command buffer reports here."""
    return settings.is_on("profile_cb")


def is_dispatch_enabled() -> bool:
    """Whether every dispatch reports here."""
    return settings.is_on("profile_dispatch")


def record(label: str, gpu_ns: int) -> None:
    """Add the device time of one command buffer to its label's entry."""
    spent = min(max(int(gpu_ns), 0), _LARGEST)
    with _lock:
        if label not in _entries and len(_entries) >= MOST_LABELS:
            label = OTHER_LABELS
        known = _entries.get(label)
        if known is None:
            _entries[label] = ProfileEntry(1, spent, spent, spent)
        else:
            _entries[label] = replace(
                known,
                count=min(known.count + 1, _LARGEST),
                total_ns=min(known.total_ns + spent, _LARGEST),
                min_ns=min(known.min_ns, spent),
                max_ns=max(known.max_ns, spent),
            )


def record_dispatch(entry: DispatchEntry) -> None:
    """Add one dispatch to its command buffer's label, if there is room."""
    global _kept
    with _lock:
        if _kept >= MOST_DISPATCHES:
            _dropped[f"{MOST_DISPATCHES:,} are kept until reset()"] += 1
        else:
            _kept += 1
            _dispatches.setdefault(entry.cb_label, []).append(entry)


def dropped_dispatches() -> int:
    """How many dispatches ran since the last `reset` and have no entry: there was no room, or no way to time them."""
    settle()
    with _lock:
        return _dropped.total()


def dump() -> list[tuple[str, ProfileEntry]]:
    """Labels and what was recorded under them, by falling total; labels of equal total in order of arrival."""
    settle()
    with _lock:
        return sorted(_entries.items(), key=lambda item: -item[1].total_ns)


def dump_dispatches() -> list[tuple[str, list[DispatchEntry]]]:
    """Dispatches by the label of their command buffer, labels and dispatches in order of arrival.

    At most `MOST_DISPATCHES` are kept, and none of a device that cannot time dispatches; a `SamplingWarning` says how
    many were dropped.
    """
    settle()
    with _lock:
        entries_by_label = [(label, list(entries)) for label, entries in _dispatches.items()]
        dropped = list(_dropped.items())
    for reason, count in dropped:
        warnings.warn(f"kernel_profile dropped {count:,} dispatches: {reason}", SamplingWarning, stacklevel=2)
    return entries_by_label


def reset() -> None:
    """Forget everything that was recorded, clock pairs included. Work in flight is waited for, and forgotten too."""
    global _kept
    settle()
    with _lock:
        _entries.clear()
        _dispatches.clear()
        _kept = 0
        _dropped.clear()
        _clock.clear()


def record_clock_pair(cpu_ns: int, gpu_ticks: int) -> None:
    """Add a reading of both clocks, taken at one moment."""
    with _lock:
        _clock.add(ClockPair(int(cpu_ns), int(gpu_ticks)))


def convert_gpu_ticks_to_ns(ticks: int) -> int:
    """Host time of a device time, by the line through the pairs so far; without any pair a tick is a nanosecond."""
    with _lock:
        return _clock.fit.host_ns(int(ticks))


def clock_fit() -> ClockFit:
    """Rate, offset and uncertainty of the conversion."""
    with _lock:
        return _clock.fit


@dataclass(frozen=True, slots=True)
class _Accumulator:
    """The listener that fills the tables; which of them is decided by the gates at commit."""

    command_buffers: bool
    dispatches: bool

    @property
    def level(self) -> Level:
        return Level.DISPATCHES if self.dispatches else Level.COMMAND_BUFFERS

    @property
    def probes(self) -> bool:
        return False

    def expects(self, device: object) -> None:
        pass

    def submission(self, trace: Trace) -> None:
        label = trace.label or UNLABELLED
        if self.command_buffers and trace.start_ns is not None and trace.end_ns is not None:
            record(label, trace.end_ns - trace.start_ns)
        if self.dispatches:
            _record_dispatches(label, trace)

    def host_span(self, span: HostSpan) -> None:
        pass

    def region_begins(self, region: Region) -> None:
        pass

    def region_ends(self, region: Region, end_ns: int) -> None:
        pass


def _record_dispatches(label: str, trace: Trace) -> None:
    """One entry per dispatch, unless the device can time none."""
    dispatches = [(node, c) for node, c in enumerate(trace.commands.commands) if isinstance(c, Dispatch)]
    capabilities = trace.device.backend.capabilities
    if capabilities.sampling < Level.DISPATCHES:
        with _lock:
            _dropped[trace.reason] += len(dispatches)
        return
    # Start and end are zero where there is no time.
    times = [(0, 0)] * len(trace.commands) if trace.samples is None else trace.samples.tolist()
    reason = _why_untimed(trace)
    for index, (node, command) in enumerate(dispatches):
        start, end = times[node]
        timed = bool(start and end)
        bounded = timed and (
            end - start < capabilities.timer_step_ns or (trace.bounded is not None and bool(trace.bounded[node]))
        )
        record_dispatch(
            DispatchEntry(
                cb_label=label,
                op_kind=command.op_kind.value,
                dispatch_index=index,
                gpu_ns=end - start if timed else None,
                start_gpu_ns=start if timed else None,
                end_gpu_ns=end if timed else None,
                kernel=command.kernel.name,
                kernel_digest="" if command.kernel.origin is None else command.kernel.origin.digest,
                label=command.label,
                cb_ordinal=trace.ordinal,
                node=node,
                status="unavailable" if not timed else "bounded" if bounded else "measured",
                reason="" if timed else reason,
            )
        )


def _why_untimed(trace: Trace) -> str:
    """Why a dispatch of this submission has no time, if it has none."""
    if trace.error is not None:
        return f"it did not run to its end: {trace.error}"
    if trace.probe:
        return "a profile left this replay untimed, to measure the overhead of timing"
    return trace.reason or "the device did not time it in this run: its dispatches take turns, or samples ran out"


def _gate() -> _Accumulator | None:
    if not settings.any_set(_GATES):
        return None
    command_buffers, dispatches = is_enabled(), is_dispatch_enabled()
    return _Accumulator(command_buffers, dispatches) if command_buffers or dispatches else None


tracing.add_gate(_gate, *_SETTINGS)
