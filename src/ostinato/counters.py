"""Exact counters: dispatches, command buffers, syncs, barriers, time spent encoding barriers.

Only barriers that a program places itself, and only while OSTINATO_PROFILE_BARRIERS is on, take time of their own to
encode: inferred ones come out of ordering the whole list at commit, and replayed ones were encoded once. So the time of
one barrier is `barrier_total_ns() / timed_barrier_count()`, never a division by all barriers.

Work is counted when it is committed, so an encoder that is dropped counts nothing. A sync is one call that
waits for the device on the host: `Submission.wait`, `await`, `commit_and_wait`, `Buffer.numpy`,
`Buffer.write`; each counts one, whether or not it had to wait, so the number does not depend on timing.

There are process totals (`dispatch_count()` and friends, `reset_counters()`), and there is `scope()`:
a block that counts what its own thread or task does, unaffected by other threads and by resets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields

from .base.locks import ForkLock


@dataclass(slots=True)
class Counts:
    """A set of counters. The one a `scope()` gives keeps counting until the block ends."""

    dispatches: int = 0
    command_buffers: int = 0
    syncs: int = 0
    barriers: int = 0
    auto_barriers: int = 0
    concurrent: int = 0
    barrier_ns: int = 0
    timed_barriers: int = 0
    """The barriers whose encoding `barrier_ns` adds up."""

    @property
    def elision(self) -> float | None:
        """The share of commands in front of which no barrier had to be inferred; None when none was looked at."""
        looked_at = self.concurrent + self.auto_barriers
        return self.concurrent / looked_at if looked_at else None

    @property
    def ns_per_barrier(self) -> float | None:
        """Mean host time to encode a barrier, over those that were timed; None when none was."""
        return self.barrier_ns / self.timed_barriers if self.timed_barriers else None


_FIELDS = tuple(field.name for field in fields(Counts))
_lock = ForkLock()
_totals = Counts()
_counting: ContextVar[bool] = ContextVar("ostinato_counting", default=True)
_scopes: ContextVar[tuple[Counts, ...]] = ContextVar("ostinato_counter_scopes", default=())


def add_command_buffer(
    dispatches: int,
    barriers: int,
    auto_barriers: int,
    concurrent: int,
    barrier_ns: int = 0,
    timed_barriers: int = 0,
) -> None:
    """Count one commit and what was in it."""
    with _lock:
        for counts in _open_counts():
            counts.dispatches += dispatches
            counts.command_buffers += 1
            counts.barriers += barriers
            counts.auto_barriers += auto_barriers
            counts.concurrent += concurrent
            counts.barrier_ns += barrier_ns
            counts.timed_barriers += timed_barriers


def add_sync() -> None:
    """Count one host wait."""
    with _lock:
        for counts in _open_counts():
            counts.syncs += 1


def counting() -> bool:
    """Whether this thread or task works for the program, and not on the library's own account."""
    return _counting.get()


def _open_counts() -> tuple[Counts, ...]:
    """The totals and every scope open in this thread or task; none while it is not counting."""
    return (_totals, *_scopes.get()) if _counting.get() else ()


@contextmanager
def scope() -> Iterator[Counts]:
    """Count what this thread or task does inside the block; blocks may be nested."""
    counts = Counts()
    token = _scopes.set((*_scopes.get(), counts))
    try:
        yield counts
    finally:
        _scopes.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing in the block: for work the library does on its own account."""
    token = _counting.set(False)
    try:
        yield
    finally:
        _counting.reset(token)


def totals() -> Counts:
    """A copy of the process totals, all taken at one moment."""
    with _lock:
        return Counts(*(getattr(_totals, name) for name in _FIELDS))


def reset_counters() -> None:
    """Set the process totals to zero. Open scopes keep what they have counted."""
    with _lock:
        for name in _FIELDS:
            setattr(_totals, name, 0)


def dispatch_count() -> int:
    """Dispatches committed since the start or the last reset."""
    return _totals.dispatches


def cmd_buf_count() -> int:
    """Command buffers committed since the start or the last reset."""
    return _totals.command_buffers


def sync_count() -> int:
    """Host waits since the start or the last reset."""
    return _totals.syncs


def barrier_count() -> int:
    """Barriers committed: those placed by hand after the first command, and those an encoder inferred."""
    return _totals.barriers


def auto_barrier_count() -> int:
    """The part of `barrier_count()` that encoders inferred themselves."""
    return _totals.auto_barriers


def auto_barrier_concurrent_count() -> int:
    """Commands of encoders that infer barriers in front of which none was needed."""
    return _totals.concurrent


def barrier_total_ns() -> int:
    """Host time spent encoding the barriers that `timed_barrier_count()` counts."""
    return _totals.barrier_ns


def timed_barrier_count() -> int:
    """Barriers whose encoding was timed: those placed by hand while OSTINATO_PROFILE_BARRIERS was on.

    Inferred and replayed barriers are in `barrier_count()`, but no time is spent on encoding one of them alone.
    """
    return _totals.timed_barriers
