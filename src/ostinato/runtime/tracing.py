"""What is recorded of a submission, from encoding to its end, for listeners.

Profiles and `kernel_profile` attach themselves as listeners. A submission reports to the listeners that are attached
when it is committed, once it is known to be done. Nothing here waits for a device, and without listeners a commit costs
one test of an empty tuple.

What does not change from run to run (kernels, labels, grids, edges) is the command list, which equal submissions share;
a submission adds only its times.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .. import counters, settings
from ..backends.protocol import Backend, Executable, Level, Run, WorkerTime, read_level
from ..base.labels import check_label
from ..base.locks import ForkLock
from ..errors import ArgumentError, SamplingWarning
from ..ir.command_list import CommandList

_MAX_LISTS = 512
_MAX_THREADS = 10_000


def level_named(name: Any) -> Level:
    """The level with this name ("off", "command_buffers" or "dispatches"); raises for any other."""
    return read_level("level", name, ArgumentError)


@dataclass(slots=True, eq=False)
class Trace:
    """One submission: what is known when it is committed, and, once it is done, its times and error."""

    listeners: tuple[Listener, ...]
    commands: CommandList
    device: Any
    """The queue it was committed to; only its identity and its backend's capabilities are used."""
    label: str | None
    replay: bool
    sampled: bool
    """Whether the device times its dispatches."""
    probe: bool = False
    """Whether it runs without sampling to measure the overhead of sampling."""
    region: int | None = None
    encode_begin_ns: int | None = None
    values: Mapping[str, int] = field(default_factory=dict)
    """Of a replay: the parameter values that its dispatches' bytes and flops depend on."""
    thread: int = 0
    ordinal: int = 0
    commit_begin_ns: int = 0
    commit_end_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    samples: np.ndarray | None = None
    """Start and end of every command, in ns; None when they were not measured."""
    bounded: np.ndarray | None = None
    """Which of the samples are only bounds; None when none are."""
    worker_time: WorkerTime | None = None
    """How much CPU time the device's workers got while they ran it; None when that is not known."""
    reason: str = ""
    """Why requested times are missing."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class HostSpan:
    """A span of host time, such as a "wait"."""

    kind: str
    name: str
    begin_ns: int
    end_ns: int
    thread: int
    region: int | None = None
    submission: tuple[Any, int] | None = None
    """Of a wait: the device and the ordinal of the submission."""


@dataclass(frozen=True, slots=True)
class Region:
    """One pass through a repeated section of the program."""

    number: int
    name: str
    begin_ns: int
    thread: int
    parent: int | None


class Listener(Protocol):
    """Receives traces. Called from any thread in the middle of other work: it must neither block nor raise."""

    @property
    def level(self) -> Level: ...

    @property
    def probes(self) -> bool:
        """Whether some replays run unsampled, to measure the overhead of sampling."""
        ...

    def expects(self, device: Any) -> None:
        """A submission is about to be committed to a device; `submission` is called when it is done."""
        ...

    def submission(self, trace: Trace) -> None:
        """A submission is done."""
        ...

    def host_span(self, span: HostSpan) -> None:
        """A span of host time has ended."""
        ...

    def region_begins(self, region: Region) -> None:
        """A region was entered."""
        ...

    def region_ends(self, region: Region, end_ns: int) -> None:
        """A region was left."""
        ...


class KeptTraces:
    """A listener that keeps what is submitted inside `only`, and does nothing else while it runs."""

    probes = False

    def __init__(self, level: Level = Level.DISPATCHES) -> None:
        self.level = level
        self.traces: list[Trace] = []
        self.regions: list[tuple[Region, int]] = []
        """Those that have ended, each with its end."""

    def expects(self, device: Any) -> None:
        """Nobody asks."""

    def submission(self, trace: Trace) -> None:
        """Keep it."""
        self.traces.append(trace)

    def host_span(self, span: HostSpan) -> None:
        """Not kept."""

    def region_begins(self, region: Region) -> None:
        """Kept when it ends."""

    def region_ends(self, region: Region, end_ns: int) -> None:
        """Keep it."""
        self.regions.append((region, end_ns))


gates: list[Callable[[], Listener | None]] = []
"""Functions that return a listener while a setting is on; each is called at every commit."""
watched_keys: list[Any] = list(settings.watched("barriers", "no_residency"))
"""The keys, as in `settings.watched`, of all settings that a replay looks at. Native code has this list too."""

_listeners: tuple[Listener, ...] = ()
_lock = ForkLock()
_lists: OrderedDict[tuple[Any, ...], CommandList] = OrderedDict()
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
"""Lists and executables that `Backend.prepare_samples` has prepared for timing."""
_regions = itertools.count(1)
_region: ContextVar[int | None] = ContextVar("ostinato_region", default=None)
_only: ContextVar[Listener | None] = ContextVar("ostinato_only_listener", default=None)
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_known_thread = threading.local()
_thread_names: dict[int, str] = {}


def add_gate(gate: Callable[[], Listener | None], *names: str) -> None:
    """Ask a gate at every commit while one of the settings with these names is set."""
    gates.append(gate)
    watched_keys.extend(settings.watched(*names))


def attach(listener: Listener) -> None:
    """Report all submissions committed from now on to a listener."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def detach(listener: Listener) -> None:
    """Stop reporting to a listener; submissions that are already committed still report to it."""
    global _listeners
    with _lock:
        _listeners = tuple(attached for attached in _listeners if attached is not listener)
        if not _listeners:
            _lists.clear()


def this_thread() -> int:
    """The calling thread's number in the operating system. Its name is kept for `thread_name`."""
    number = threading.get_native_id()
    if getattr(_known_thread, "number", 0) != number:  # a forked child has another one
        _known_thread.number = number
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        with _lock:
            if len(_thread_names) >= _MAX_THREADS:
                _thread_names.clear()
            _thread_names[number] = names.get(threading.get_ident(), "")
    return number


def thread_name(number: int) -> str:
    """The name of the thread that last had this number; "" if it is not known or not a Python thread."""
    return _thread_names.get(number, "")


def listening() -> tuple[Listener, ...]:
    """The listeners of a submission that is committed now; inside `only`, the chosen listener."""
    chosen = _only.get()
    if chosen is not None:
        return (chosen,)
    listeners = _listeners
    for gate in gates:
        listener = gate()
        if listener is not None:
            listeners = (*listeners, listener)
    return listeners if not listeners or counters.counting() else ()


@contextmanager
def only(listener: Listener) -> Iterator[None]:
    """In this block, submissions of this thread or task report to one listener only.

    For work that the library runs and times for its own purposes.
    """
    token = _only.set(listener)
    try:
        yield
    finally:
        _only.reset(token)


def level_of(listeners: Sequence[Listener]) -> Level:
    """The highest level of any listener."""
    return max((listener.level for listener in listeners), default=Level.OFF)


def trace(
    device: Any,
    commands: CommandList,
    listeners: tuple[Listener, ...],
    *,
    label: str | None,
    executable: Executable | None = None,
    probe: bool = False,
    encode_begin_ns: int | None = None,
    values: Mapping[str, int] | None = None,
) -> Trace:
    """A trace of a submission that is about to be committed; for a replay, `executable` is what is replayed."""
    level = level_of(listeners)
    supported: Level = device.backend.capabilities.sampling
    reason = ""
    if level > supported:
        why = device.backend.capabilities.sampling_reason
        reason = f"device {device.name!r} cannot time {'dispatches' if supported else 'command buffers'}"
        reason += f": {why}" if why else ""
        _warn_once(device, reason)
    for listener in listeners:
        listener.expects(device)
    sampled = min(level, supported) is Level.DISPATCHES and not probe
    work = commands if executable is None else executable
    if sampled and work not in _prepared:
        _prepare(device.backend, work, label)
    return Trace(
        listeners=listeners,
        commands=commands,
        device=device,
        label=label,
        replay=executable is not None,
        sampled=sampled,
        probe=probe,
        region=_region.get(),
        encode_begin_ns=encode_begin_ns,
        values=values or {},
        thread=this_thread(),
        reason=reason,
    )


def _prepare(backend: Backend, work: Executable | CommandList, label: str | None) -> None:
    """Have the device prepare what timing needs, once; recorded as "setup"."""
    begin_ns = time.monotonic_ns()
    if backend.prepare_samples(work):
        host_span("setup", f"timing of {label or 'a command list'}", begin_ns)
    _prepared.add(work)


def shared_list(backend: Backend, commands: CommandList) -> CommandList:
    """The cached list that equals this one, or this one: a loop then infers the order of its list only once."""
    # Equal dispatches are one object, and other commands are compared by value.
    key = (id(backend), commands.ordering, *commands.commands)
    with _lock:
        known = _lists.get(key)
        if known is None:
            known = _lists[key] = commands
            if len(_lists) > _MAX_LISTS:
                _lists.popitem(last=False)
        else:
            _lists.move_to_end(key)
    return known


def forget_lists(backend: Backend) -> None:
    """Drop the cached lists of a device that is closed."""
    with _lock:
        for key in [key for key in _lists if key[0] == id(backend)]:
            del _lists[key]


def finish(trace: Trace, times: tuple[int, int] | None, run: Run, error: str | None) -> None:
    """Complete the trace of a submission that is done, and pass it to its listeners. Reads the samples, once."""
    trace.error = error
    if trace.device.backend.capabilities.sampling >= Level.COMMAND_BUFFERS and times is not None:
        trace.start_ns, trace.end_ns = times
    elif times is None and error is None:
        trace.reason = trace.reason or "the device was lost before the times were read"
    if trace.sampled:
        trace.samples = run.samples()
        trace.bounded = run.bounded()
        trace.worker_time = run.worker_time()
    for listener in trace.listeners:
        listener.submission(trace)


def host_span(kind: str, name: str, begin_ns: int, *, submission: tuple[Any, int] | None = None) -> None:
    """Report a span of host time, from `begin_ns` until now, to the listeners: "wait", "compile" or "setup".

    "setup" is one-time preparation other than compiling kernels, such as instantiating a graph.
    """
    listeners = listening()
    if not listeners:
        return
    span = HostSpan(kind, name, begin_ns, time.monotonic_ns(), this_thread(), _region.get(), submission)
    for listener in listeners:
        listener.host_span(span)


@contextmanager
def region(name: str) -> Iterator[None]:
    """A repeated section of the program, such as one token: work committed in the `with` block belongs to it.

    Profiles sum by region and divide by the number of regions. Regions may be nested: work in the inner region belongs
    to the outer one too.

    A region belongs to its thread or task: two threads may each be in a token at the same time. Asyncio tasks that are
    started in it, and `asyncio.to_thread`, are in it; other threads are not, unless they run in a copy of the context
    (`contextvars.copy_context().run`). Reports count work that was committed outside while a region was open.
    """
    check_label(name, "the name of a region")
    listeners = listening()
    if not listeners:
        yield
        return
    entered = Region(next(_regions), name, time.monotonic_ns(), this_thread(), _region.get())
    _region.set(entered.number)
    for listener in listeners:
        listener.region_begins(entered)
    try:
        yield
    finally:
        # Without a ContextVar token: a generator may be closed in another context than it was started in.
        _region.set(entered.parent)
        end_ns = time.monotonic_ns()
        for listener in listeners:
            listener.region_ends(entered, end_ns)


def _warn_once(device: Any, reason: str) -> None:
    if device not in _warned:
        _warned.add(device)
        warnings.warn(f"{reason}; tables show this reason instead of times", SamplingWarning, stacklevel=6)
