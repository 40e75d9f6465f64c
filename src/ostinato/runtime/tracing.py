"""What is recorded of a submission, from encoding to its end, for whoever listens.

Profiles and `kernel_profile` attach themselves as listeners. A submission belongs to those that are attached
when it is committed, and reports to them once it is seen to be done: nothing here ever waits for a device, and with
nobody listening a commit costs one look at an empty tuple.

What does not change from run to run (kernels, labels, grids, edges) is the command list, which all submissions that are
alike share; a submission itself adds only times.
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

from .. import counters
from ..backends.protocol import Backend, Executable, Level, Run, WorkerTime
from ..base.labels import check_label
from ..base.locks import ForkLock
from ..errors import ArgumentError, SamplingWarning
from ..ir.command_list import CommandList
from ..ir.commands import Barrier, Command, Copy, Dispatch

_MAX_LISTS = 512
_MAX_THREADS = 10_000


def level_named(name: Any) -> Level:
    """The level of that name: "off", "command_buffers" or "dispatches"."""
    try:
        return Level[str(name).upper()]
    except KeyError:
        known = ", ".join(repr(one.name.lower()) for one in Level)
        raise ArgumentError(f"level={name!r}: expected one of {known}") from None


@dataclass(slots=True, eq=False)
class Trace:
    """One submission: what was known when it was committed, and, once it is done, how it went."""

    listeners: tuple[Listener, ...]
    commands: CommandList
    device: Any
    """The queue it was committed to; only its identity and its backend's capabilities matter here."""
    label: str | None
    replay: bool
    sampled: bool
    """Whether the device was asked for the times of its dispatches."""
    probe: bool = False
    """Left unsampled on purpose, to measure what sampling costs."""
    region: int | None = None
    encode_begin_ns: int | None = None
    values: Mapping[str, int] = field(default_factory=dict)
    """Of a replay: the values that the amounts of its dispatches depend on, by parameter."""
    thread: int = 0
    ordinal: int = 0
    commit_begin_ns: int = 0
    commit_end_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    samples: np.ndarray | None = None
    """Start and end of every command, in ns; None when they were not taken."""
    bounded: np.ndarray | None = None
    """Which of the samples are only bounds; None when none is."""
    worker_time: WorkerTime | None = None
    """How much of their time the device's workers got while they had work of it; None where that is not known."""
    reason: str = ""
    """Why something that was asked for is not there."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class HostSpan:
    """Something the program did that took time, such as "wait"."""

    kind: str
    name: str
    begin_ns: int
    end_ns: int
    thread: int
    region: int | None = None
    submission: tuple[Any, int] | None = None
    """Of a wait: the device and the ordinal of what was waited for."""


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of the program that repeats."""

    number: int
    name: str
    begin_ns: int
    thread: int
    parent: int | None


class Listener(Protocol):
    """Who wants to know. Called from any thread, in the midst of other work: it must neither block nor raise."""

    @property
    def level(self) -> Level: ...

    @property
    def probes(self) -> bool:
        """Whether some replays are to run unsampled, so that the cost of sampling can be told."""
        ...

    def expects(self, device: Any) -> None:
        """Something is about to be committed to a device; `submission` follows when it is done."""
        ...

    def submission(self, trace: Trace) -> None:
        """A submission is done."""
        ...

    def host_span(self, span: HostSpan) -> None:
        """The program did something."""
        ...

    def region_begins(self, region: Region) -> None:
        """A region was entered."""
        ...

    def region_ends(self, region: Region, end_ns: int) -> None:
        """It was left."""
        ...


gates: list[Callable[[], Listener | None]] = []
"""Listeners that come and go with a setting; each is asked at every commit."""

_listeners: tuple[Listener, ...] = ()
_lock = ForkLock()
_lists: OrderedDict[tuple[Any, ...], CommandList] = OrderedDict()
_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
"""Lists, and what is replayed, of which devices are ready to take times."""
_regions = itertools.count(1)
_region: ContextVar[int | None] = ContextVar("ostinato_region", default=None)
_only: ContextVar[Listener | None] = ContextVar("ostinato_only_listener", default=None)
_warned: weakref.WeakSet[Any] = weakref.WeakSet()
_known_thread = threading.local()
_thread_names: dict[int, str] = {}


def attach(listener: Listener) -> None:
    """From now on, submissions that are committed report to it."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def detach(listener: Listener) -> None:
    """Submissions committed from now on do not report to it; those before still do."""
    global _listeners
    with _lock:
        _listeners = tuple(one for one in _listeners if one is not listener)
        if not _listeners:
            _lists.clear()


def this_thread() -> int:
    """The number that the system has for the calling thread. Its name is kept for `thread_name`, as it may end soon."""
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
    """The name of the thread that last had this number; "" if it is not known, or no thread of Python's."""
    return _thread_names.get(number, "")


def listening() -> tuple[Listener, ...]:
    """Who is told about a submission that is committed now; if it is on the library's own account, whom that chose."""
    chosen = _only.get()
    if chosen is not None:
        return (chosen,)
    found = _listeners
    for gate in gates:
        listener = gate()
        if listener is not None:
            found = (*found, listener)
    return found if not found or counters.counting() else ()


@contextmanager
def only(listener: Listener) -> Iterator[None]:
    """What this thread or task commits in the block reports to one listener and to nobody else.

    For work that the library does, and times, on its own account.
    """
    token = _only.set(listener)
    try:
        yield
    finally:
        _only.reset(token)


def level_of(listeners: Sequence[Listener]) -> Level:
    """The most that any of them wants to know."""
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
    """A trace of a submission that is about to be committed; `executable` is what is replayed, if it is."""
    level = level_of(listeners)
    able: Level = device.backend.capabilities.sampling
    reason = ""
    if level > able:
        told = device.backend.capabilities.sampling_reason
        reason = f"device {device.name!r} cannot time {'dispatches' if able else 'command buffers'}"
        reason += f": {told}" if told else ""
        _warn_once(device, reason)
    for listener in listeners:
        listener.expects(device)
    sampled = min(level, able) is Level.DISPATCHES and not probe
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
    """Have the device make ready what it needs to take times, once; that counts as setting up."""
    begin_ns = time.monotonic_ns()
    if backend.prepare_samples(work):
        host_span("setup", f"timing of {label or 'a command list'}", begin_ns)
    _prepared.add(work)


def shared_list(backend: Backend, commands: CommandList) -> CommandList:
    """The first list that was like one that was encoded just now: a loop has one, whose order is inferred once."""
    key = (
        id(backend),
        commands.ordering,
        *(command if type(command) is Dispatch else _transfer_key(command) for command in commands.commands),
    )
    with _lock:
        known = _lists.setdefault(key, commands)
        _lists.move_to_end(key)
        if len(_lists) > _MAX_LISTS:
            _lists.popitem(last=False)
    return known


def forget_lists(backend: Backend) -> None:
    """Let go of the lists of a device that is no more."""
    with _lock:
        for key in [key for key in _lists if key[0] == id(backend)]:
            del _lists[key]


def finish(trace: Trace, times: tuple[int, int] | None, run: Run, error: str | None) -> None:
    """Note how a submission went, and tell those who wanted to know. Its samples are read here, once."""
    trace.error = error
    if trace.device.backend.capabilities.sampling >= Level.COMMAND_BUFFERS and times is not None:
        trace.start_ns, trace.end_ns = times
    elif times is None and error is None:
        trace.reason = trace.reason or "it ran, but the device was lost before its times were read"
    if trace.sampled:
        trace.samples = run.samples()
        trace.bounded = run.bounded()
        trace.worker_time = run.worker_time()
    for listener in trace.listeners:
        listener.submission(trace)


def host_span(kind: str, name: str, begin_ns: int, *, submission: tuple[Any, int] | None = None) -> None:
    """Tell the listeners what the program did from `begin_ns` until now: "wait", "compile" or "setup".

    Setting up is what happens once before work can run, and is not compiling kernels: instantiating a graph, say.
    """
    listeners = listening()
    if not listeners:
        return
    span = HostSpan(kind, name, begin_ns, time.monotonic_ns(), this_thread(), _region.get(), submission)
    for listener in listeners:
        listener.host_span(span)


@contextmanager
def region(name: str) -> Iterator[None]:
    """A stretch of the program that repeats, such as one token: what is committed in it is counted as its own.

    Profiles sum by region, and divide by how many there were. Regions may be nested: what is committed in the inner one
    is in the outer one too.

    A region is its thread's or task's own: two threads may each be in a token at the same time. Tasks of asyncio that
    are started in it, and `asyncio.to_thread`, are in it; a thread that is started otherwise is not, unless it runs in
    a copy of the context (`contextvars.copy_context().run`). Reports count what was committed beside an open region.
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
        # Not by a token: a generator may be closed in another context than it was begun in.
        _region.set(entered.parent)
        end_ns = time.monotonic_ns()
        for listener in listeners:
            listener.region_ends(entered, end_ns)


def _transfer_key(command: Command) -> Any:
    if isinstance(command, Barrier):
        return Barrier
    if isinstance(command, Copy):
        return (Copy, command.source.address, command.target.address, command.source.nbytes, command.label)
    assert not isinstance(command, Dispatch)
    return (command.target.address, command.target.nbytes, command.pattern, command.label)


def _warn_once(device: Any, reason: str) -> None:
    if device not in _warned:
        _warned.add(device)
        warnings.warn(f"{reason}; tables will say so instead of showing times", SamplingWarning, stacklevel=6)
