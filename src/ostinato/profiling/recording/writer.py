"""Writing a recording while the program runs.

Producers append to a queue and return: a few microseconds and a copy of the arrays, no input or output, and no lock
that is held during any. A thread takes the queue several times a second, turns it into rows and chunks, and commits
them; so a kill loses what finished in the last fraction of a second. What waits is bounded: beyond `max_pending_bytes`
new work is dropped, and every drop is counted, in the file too. When the disk refuses, what waits is tried again,
`flush` and `close` say so, and the file says what it lacks (`unwritten.py`).

The file appears with all that is known at the start in it, or not at all.

A writer belongs to the process that made it. In a forked child it takes nothing and touches nothing.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import sqlite3
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...base.locks import ForkLock
from ...errors import RecordingError, RecordingWarning
from . import chunks, database, expansion, opening, provenance, switching, unwritten
from .reader import Recording, open_recording
from .rows import Describe, Rows
from .schema import PlanNode

_PERIOD_S = 0.2
_CHECKPOINT_S = 0.5
_EARLY_BYTES = 1 << 23
_STARVING_NS = 250_000_000
_FORK_WAIT_S = 2.0
_JOIN_S = 10.0
_GIT_JOIN_S = 0.5
# What a queued event is taken to weigh; only the order of magnitude matters.
_EVENT_BYTES = 500
_NODE_BYTES = 100

_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


class Writer:
    """One recording being written: into a new file, or with None into a private temporary database.

    A file of that name is replaced if it is a recording that nobody is writing, and refused if it is anything else.
    Every method may be called from any thread. Those that take something down never wait and never fail: what cannot be
    stored is counted as dropped. Where they give an id, 0 says that it was dropped; 0 is accepted wherever an id is.
    """

    _closed = True  # until it is open: a finaliser may find one that never was

    def __init__(self, path: str | os.PathLike[str] | None = None, *, max_pending_bytes: int = 1 << 28) -> None:
        self.path = None if path is None else Path(os.path.abspath(path))
        """The file, or None."""
        if self.path is not None:
            opening.check_replaceable(self.path)
        self._limit = max_pending_bytes
        self._gate = ForkLock()  # guards the queue, its size and the drops; never held during input or output
        self._io = threading.RLock()  # guards the connection and the rows
        self._queue: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._pending = 0
        self._oldest_ns = 0  # when the first of what waits came, or before
        self._dropped: dict[str, tuple[int, int]] = {}
        self._drops_stored: dict[str, tuple[int, int]] = {}
        self._accepting = True
        self._accepted: Counter[str] = Counter()
        self._written: Counter[str] = Counter()  # how much of what was accepted is in the file
        self._refused: tuple[str, int] | None = None  # why and since when the disk refuses
        self._writing = False
        self._forked = False
        self._error: RecordingError | None = None
        self._checkpointed = 0.0
        self._rows = Rows(1, self.drop)
        self._ids = {what: itertools.count(1) for what in ("device", "plan", "submission", "region")}
        self._wake = threading.Event()
        self._thread = _in_background("recording", _write_on, weakref.ref(self), self._wake)
        self._rows.add_process({"pid": os.getpid(), **provenance.of_process(), **provenance.moment("start")})
        for key, value in provenance.start_facts():
            self._rows.add_meta(key, value)
        project = provenance.git_revision(provenance.project_folder())
        if project is not None:
            self._rows.add_meta("git.revision", project[1])
        self._git_thread = None if project is None else _in_background("git", _ask_git, weakref.ref(self), project[0])
        self._note: unwritten.Note | None = None
        self._open()

    def _open(self) -> None:
        """Make the file and begin; of what cannot be begun nothing stays."""
        with ExitStack() as undo:
            undo.callback(self._abandon)
            if self.path is None:
                self._connection = database.create_temporary(self._store_first)
            else:
                database.remove(self.path)
                database.create(self.path, undo, self._store_first)
                self._note, self._connection = _opened(self.path)
                undo.callback(self._note.close)
            undo.callback(self._connection.close)
            self._turns = switching.ShortTurns()
            undo.callback(self._turns.end)
            _writers.add(self)
            self._thread.start()
            if self._git_thread is not None:
                self._git_thread.start()
            self._closed = False
            undo.pop_all()

    def _abandon(self) -> None:
        self._closed = True
        self._stop_accepting()

    def _stop_accepting(self) -> None:
        with self._gate:
            self._accepting = False
        self._wake.set()

    def _store_first(self, connection: sqlite3.Connection) -> None:
        """What is in the file from the start."""
        self._rows.store(connection, {})
        unwritten.reserve(connection, self._rows.process)

    # --- producers ----------------------------------------------------------------------------------------------

    def device(self, name: str, backend: str, *, details: Mapping[str, str] | None = None, **columns: Any) -> int:
        """Describe a device by columns of the table `devices`; the id is what plans and submissions name."""
        columns |= {"name": name, "backend": backend}
        return self._numbered("device", _EVENT_BYTES, self._rows.add_device, columns, dict(details or {}))

    def device_facts(self, device: int, **columns: Any) -> None:
        """Say what was learnt of a device after it was described."""
        self._put("facts", 1, _EVENT_BYTES, self._rows.add_device_facts, (device, columns))

    def detail(self, device: int, key: str, value: str) -> None:
        """Add a fact about a device in words, unless there is one of that name."""
        self._put("facts", 1, _EVENT_BYTES, self._rows.add_detail, (device, key, value))

    def plan(self, device: int, nodes: Sequence[PlanNode], edges: np.ndarray | None = None) -> int:
        """Describe a command list; the id is what its submissions name. `edges` are pairs (before, after).

        The same list may be described again and again: it is stored once.
        """
        taken = tuple(nodes)
        pairs = None if edges is None else np.array(edges, np.int64)
        return self._plan(device, len(taken), lambda: (taken, pairs), 0 if pairs is None else pairs.nbytes)

    def plan_to_come(self, device: int, count: int, describe: Describe) -> int:
        """The same for a list of `count` commands that is described when it is written, by the thread that writes.

        So whoever hands it over does not spend its time on that. `describe` gives nodes and edges; it is called once,
        or never.
        """
        return self._plan(device, count, describe)

    def _plan(self, device: int, count: int, describe: Describe, edges_bytes: int = 0) -> int:
        size = _EVENT_BYTES + _NODE_BYTES * count + edges_bytes
        return self._numbered("plan", size, self._rows.add_plan, device, count, describe)

    def submission(
        self, *, device: int, plan: int | None, values: Mapping[str, int] | None = None, **columns: Any
    ) -> int:
        """Record a finished command buffer by columns of the table `submissions`.

        `values` are those that amounts of its commands depend on.
        """
        number = next(self._ids["submission"])
        columns["device"], columns["plan"] = device, plan
        event = (number, columns, dict(values) if values else {})
        return number if self._put("submissions", 1, _EVENT_BYTES, self._rows.add_submission, event) else 0

    def samples(
        self,
        submission: int,
        nodes: int | ArrayLike,
        start_ns: ArrayLike,
        end_ns: ArrayLike,
        status: ArrayLike | None = None,
    ) -> None:
        """Take down when commands of a submission (given before) ran; the arrays are copied.

        `nodes` is the first of successive nodes, or the node of each sample. Without `status` all are measured.
        """
        try:
            count, starts = chunks.column(start_ns, np.int64)
            lengths, ends = chunks.column(end_ns, np.int64)
            which: int | bytes
            if isinstance(nodes, int):
                counted, which = count, nodes
            else:
                counted, which = chunks.column(nodes, np.int64)
            states, statuses = (count, None) if status is None else chunks.column(status, np.int8)
            if not count == lengths == counted == states:
                raise ValueError("of different lengths")
        except (TypeError, ValueError, OverflowError) as problem:
            self.drop(f"samples that are not columns of numbers: {problem}"[:200])
            return
        if submission:
            event = (submission, count, which, starts, ends, statuses)
            self._put("samples", count, _EVENT_BYTES + 4 * len(starts), self._rows.add_samples, event)
        else:
            self.drop("samples of submissions that were dropped", count)

    def begin_region(self, name: str, begin_ns: int, **columns: Any) -> int:
        """A scope of the host program begins; submissions and spans inside it name its id."""
        columns |= {"name": name, "begin_ns": begin_ns}
        return self._numbered("region", _EVENT_BYTES, self._rows.begin_region, columns)

    def end_region(self, region: int, end_ns: int) -> None:
        """A scope ends."""
        if region:
            self._put("ends of regions", 1, _EVENT_BYTES, self._rows.end_region, (region, end_ns))

    def host_span(self, kind: str, begin_ns: int, end_ns: int, **columns: Any) -> None:
        """The host did something of a kind of `SPAN_KINDS`."""
        columns |= {"kind": kind, "begin_ns": begin_ns, "end_ns": end_ns}
        self._put("host spans", 1, _EVENT_BYTES, self._rows.add_host_span, (columns,))

    def name_thread(self, thread: int, name: str) -> None:
        """Say the name of a thread; the first one stays."""
        self._put("names of threads", 1, _EVENT_BYTES, self._rows.add_thread, (thread, name))

    def meta(self, key: str, value: str) -> None:
        """Add a fact about this process in words."""
        self._put("facts", 1, _EVENT_BYTES, self._rows.add_meta, (key, value))

    def process_facts(self, **columns: Any) -> None:
        """Say what was learnt of this process."""
        self._put("facts", 1, _EVENT_BYTES, self._rows.add_process_facts, (columns,))

    def drop(self, where: str, count: int = 1) -> None:
        """Count something as lost."""
        with self._gate:
            before, since_ns = self._dropped.get(where, (0, time.monotonic_ns()))
            self._dropped[where] = (before + count, since_ns)

    def _numbered(self, what: str, size: int, store: Callable[..., None], *arguments: Any) -> int:
        number = next(self._ids[what])
        return number if self._put(f"{what}s", 1, size, store, (number, *arguments)) else 0

    def _put(self, what: str, count: int, size: int, store: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        now_ns = time.monotonic_ns()
        with self._gate:
            full = self._pending + size > self._limit
            taken = self._accepting and not full
            if taken:
                if not self._pending:
                    self._oldest_ns = now_ns
                self._pending += size
                self._accepted[what] += count
                self._queue.append((store, arguments))
        if not taken:
            self.drop(f"{what}: {'too much was waiting to be written' if full else 'came after the end'}", count)
            return False
        if self._pending > _EARLY_BYTES and not self._wake.is_set():
            self._wake.set()
        if now_ns - self._oldest_ns > _STARVING_NS:
            switching.give_way(now_ns)
        return True

    # --- looking at it ------------------------------------------------------------------------------------------

    @property
    def dropped(self) -> Mapping[str, int]:
        """What was lost so far, and how much."""
        with self._gate:
            return {where: count for where, (count, _) in self._dropped.items()}

    @property
    def error(self) -> RecordingError | None:
        """Why nothing could be written the last time; None if all is well."""
        return self._error

    @property
    def closed(self) -> bool:
        """Whether it takes nothing any more."""
        return not self._accepting

    def recording(self) -> Recording:
        """What was recorded so far, as it stands now."""
        self._check_process()
        if not self._closed:
            self.flush()
        if self.path is not None:
            return open_recording(self.path)
        snapshot = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        with self._io:
            self._connection.backup(snapshot)
        opening.restrict(snapshot)
        return Recording(opening.Source(snapshot, None))

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self._pending} bytes waiting"
        return f"<Writer {'in memory' if self.path is None else str(self.path)!r}, {state}>"

    # --- the writing side ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write everything that was given so far; raises if that is not possible."""
        self._check_process()
        self._write(checkpoint=True)
        if self._error is not None:
            raise self._error

    def relax(self) -> None:
        """Put Python's switch interval back: little is still to come, and nobody may ask for it."""
        self._turns.end()

    def close(self) -> None:
        """Write everything, expand it into plain tables if it is small, and end. More than once is harmless."""
        if self._closed:
            return
        try:
            self._await_git()
            self._close()
        finally:
            self.relax()

    def _await_git(self) -> None:
        """The file of a program that ends at once still gets git's answer, if that comes soon."""
        asking = self._git_thread
        if self.path is None or asking is None or self._forked or threading.current_thread() is asking:
            return
        asking.join(_GIT_JOIN_S)

    def _close(self) -> None:
        self._stop_accepting()
        if self._forked:
            return
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)
        with self._io:
            if self._closed or self._writing:
                return
            self._closed = True
            try:
                problem = self._finish()
            except BaseException:  # interrupted: the next one to close it goes on
                self._closed = False
                raise
            if self.path is not None:
                self._connection.close()
                if self._note is not None:
                    self._note.close()
                _writers.discard(self)
        if problem is not None:
            raise RecordingError(f"{self.path or 'the recording'} is not complete: {problem}") from problem

    def _finish(self) -> Exception | None:
        """Write the rest and make it a plain file; what went wrong, if anything did."""
        self._rows.add_process_facts({"closed": True})
        self._write(checkpoint=True)
        problem: Exception | None = self._error
        if self.path is not None:
            try:
                if problem is None:
                    expansion.expand_tables(self._connection, self.path, expansion.MOST_AT_CLOSING)
                database.make_plain(self._connection)
            except (sqlite3.Error, RecordingError) as cause:
                problem = cause
        return problem

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            _close_quietly(self)

    def _write(self, checkpoint: bool) -> None:
        """Bring what waits into the file. A failure is kept in `_error`; what a later try may store keeps waiting."""
        with self._io:
            if self._writing:  # called by a finaliser in the middle of it
                return
            self._writing = True
            begin_ns = time.monotonic_ns()
            try:
                with self._gate:
                    events, self._queue = self._queue, []
                    taken = self._pending
                    accepted = self._accepted.copy()
                    drops = dict(self._dropped)
                self._rows.take(events)
                if self._rows.waiting or drops != self._drops_stored:
                    self._rows.add_process_facts(provenance.moment("end"))
                    self._rows.store(self._connection, drops)
                    self._drops_stored = drops
                self._written = accepted
                with self._gate:
                    self._pending -= taken
                    self._oldest_ns = begin_ns
                now = time.monotonic()
                if checkpoint or now - self._checkpointed >= _CHECKPOINT_S:
                    database.checkpoint(self._connection)
                    self._checkpointed = now
                self._error = None
                self._refused = None
            except Exception as problem:  # no room, no access, no memory: it may be better next time
                self._error = RecordingError(f"cannot write {self.path or 'the recording'}: {problem}")
                self._refused = (str(problem), begin_ns if self._refused is None else self._refused[1])
            finally:
                self._writing = False
            if self._note is not None:
                self._note.tell(self._lost())

    def _lost(self) -> dict[str, tuple[int, int]]:
        """What the file lacks because the disk refuses, and since when: all that would be lost with a kill now."""
        if self._refused is None:
            return {}
        why, since_ns = self._refused
        with self._gate:
            waiting = self._accepted - self._written
            lost = {f"{what}: could not be written ({why})": (count, since_ns) for what, count in waiting.items()}
            for place, (count, since_ns) in self._dropped.items():
                before, _ = self._drops_stored.get(place, (0, 0))
                if count > before:
                    lost[place] = (count - before, since_ns)
        return lost

    # --- processes ----------------------------------------------------------------------------------------------

    def _check_process(self) -> None:
        if self._forked:
            raise RecordingError("this recording belongs to the parent of this process; a forked child makes its own")

    def _leave_to_parent(self) -> None:
        """In a forked child: take nothing more, and never let SQLite touch the parent's file, not even to close it."""
        if not self._closed:
            self.relax()
        self._forked = self._closed = True
        self._accepting = False
        self._io = threading.RLock()
        self._queue = []
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))


def _opened(path: Path) -> tuple[unwritten.Note, sqlite3.Connection]:
    """A file that was made just now, for writing."""
    try:
        note = unwritten.Note(path)
        try:
            return note, database.open_for_writing(path)
        except BaseException:
            note.close()
            raise
    except (OSError, ValueError, sqlite3.Error) as problem:
        raise RecordingError(f"cannot record into {path}: {problem}") from problem


def _in_background(what: str, run: Callable[..., None], *arguments: Any) -> threading.Thread:
    return threading.Thread(target=run, args=arguments, name=f"ostinato-{what}", daemon=True)


def _write_on(reference: weakref.ref[Writer], wake: threading.Event) -> None:
    """The thread of a writer. It holds the writer only while it writes, so that a forgotten one can go."""
    pause_s = _PERIOD_S
    while True:
        wake.wait(pause_s)
        wake.clear()
        writer = reference()
        if writer is None or writer.closed:
            return
        begin = time.monotonic()
        writer._write(checkpoint=False)
        del writer
        # Beside a busy program writing takes long; the pause shrinks, so that the whole turn does not.
        pause_s = max(_PERIOD_S - (time.monotonic() - begin), _PERIOD_S / 10)


def _ask_git(reference: weakref.ref[Writer], tree: Path) -> None:
    changed = provenance.git_changed(tree)
    writer = reference()
    if writer is not None and not writer.closed:
        writer.process_facts(git_changed=changed)


def _close_quietly(writer: Writer) -> None:
    """Where nobody is left to catch an error."""
    try:
        writer.close()
    except RecordingError as problem:
        warnings.warn(str(problem), RecordingWarning, stacklevel=2)


def _close_all() -> None:
    for writer in list(_writers):
        if not writer._closed:
            _close_quietly(writer)


_held: list[Any] = []


def _before_fork() -> None:
    # No thread is inside SQLite at the moment of a fork: its own locks would stay locked for ever in the child.
    for writer in list(_writers):
        if writer._io.acquire(timeout=_FORK_WAIT_S):
            _held.append(writer._io)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _held.clear()
    for writer in list(_writers):
        writer._leave_to_parent()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
