"""The encoder: records commands, and submits the list when it is committed.

There is one path: every call is checked, memoised per (kernel, arguments, geometry, annotations), and appended to
one list together with its lowered form. A commit passes the list to the backend in one call. A capture removes what was
recorded since it began, and returns it as a `Graph`. A call that raises leaves the list unchanged.

An encoder may be used by one thread at a time; several threads may use one encoder each.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from .. import counters, settings
from ..base.copies import refuse_copy
from ..base.labels import check_label
from ..base.source_lines import Place, caller
from ..errors import (
    ArgumentError,
    DeviceError,
    EncoderError,
    OstinatoError,
    OstinatoWarning,
    SettingError,
    UncommittedWork,
    WrongDevice,
)
from ..graph.graph import Graph, captured
from ..graph.hooks import watchers
from ..ir.command_list import CapturedNode, CommandList
from ..ir.commands import CapturedOpKind, Copy, Dispatch, Fill, Ordering
from ..ir.costs import Amount
from ..ir.dtypes import matching_dtypes
from ..ir.hazards import HazardTracker
from ..ir.ordering import NOT_INFERRED
from ..ir.params import Param
from ..runtime import tracing
from ..runtime.allocation import Allocation
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from ..runtime.queue import Queue
from ..runtime.submission import Submission
from . import bindings
from .bindings import Declared
from .geometry import Extent
from .memo import checked_amount, declared_key, extent_key, note_use, shared_key
from .validation import checked_dispatch, fill_pattern

# Combinations memoised per kernel. Bounded, because inline values that change with every token each add one; all layers
# of a model fit.
_MEMO_ENTRIES = 16384

ORDERINGS = {"auto": Ordering.INFERRED, "manual": Ordering.BARRIERS, "serial": Ordering.SERIAL}
"""The ordering of each barrier mode."""


class CommandEncoder:
    """Records work for a device. Made by `Device.command_encoder`; ends with one of the commits."""

    __slots__ = (
        "__weakref__",
        "_allocations",
        "_barrier_ns",
        "_barriers",
        "_began_ns",
        "_captured_from",
        "_mode",
        "_nodes",
        "_open",
        "_params",
        "_path",
        "_pending_op_kind",
        "_queue",
        "_ready",
        "_retain",
        "_submission",
        "_time_barriers",
        "_timed_barriers",
        "_transfers",
        "_with_places",
        "label",
    )

    def __init__(self, queue: Queue, label: str | None, barriers: str, retain: bool) -> None:
        self._open = False
        if label is not None:
            check_label(label)
        if barriers not in settings.BARRIER_MODES:
            raise SettingError(f"barriers={barriers!r}: expected one of {', '.join(settings.BARRIER_MODES)}")
        if not isinstance(retain, bool | np.bool_):
            raise ArgumentError(f"retain={retain!r}: expected True or False")
        queue.check()
        mode_setting = settings.text("barriers")
        unretained = settings.get("unretained_refs")
        settings.report_unhonoured(queue.name, queue.backend.capabilities.gates)
        self._queue = queue
        self._mode = barriers if mode_setting is None else mode_setting
        self._retain = retain if unretained is None else not unretained
        self._time_barriers = settings.is_on("profile_barriers")
        self.label = label
        """The label of the submission, unless a commit names another."""
        self._nodes: list[CapturedNode] = []
        # With duplicates, which commit removes: once there is cheaper than here for every dispatch.
        self._allocations: list[Allocation] = []
        self._pending_op_kind: CapturedOpKind | None = None
        self._path: str | None = None
        self._transfers = 0
        self._barriers = 0
        self._barrier_ns = 0
        self._timed_barriers = 0
        self._submission: Submission | None = None
        # Where the capture begins in the lists of nodes and allocations.
        self._captured_from: tuple[int, int] | None = None
        self._params: dict[str, Param] = {}
        # Whether nodes record the line that encoded them.
        self._with_places = bool(watchers) or queue.backend.capabilities.checks_kernels
        # When the first command was recorded; 0 until then, None when nothing traces.
        self._began_ns = 0 if tracing.listening() else None
        self._open = True
        # Open, and no call under way. Test and set are atomic: the interpreter switches threads only at calls and
        # loops.
        self._ready = True

    # --- recording -----------------------------------------------------------------------------------------

    def dispatch(
        self,
        kernel: Kernel,
        *args: Any,
        threads: Extent | None = None,
        groups: Extent | None = None,
        group_size: Extent | None = None,
        shared: Mapping[int, int] | None = None,
        reads: Declared = None,
        writes: Declared = None,
        op_kind: CapturedOpKind | None = None,
        bytes_read: int | Amount | None = None,
        bytes_written: int | Amount | None = None,
        flops: int | Amount | None = None,
    ) -> None:
        """Record one run of a kernel.

        Arguments fill the buffer indices in ascending order, or are passed as one `{index: argument}`. Pass the
        grid as `threads` or as `groups`. `shared` is the size in bytes of each threadgroup argument, by index.
        The rest describes the dispatch to passes and profiles and does not change what runs. For bytes and flops that
        depend on a parameter of the dispatch, use `per`.
        """
        queue = self._queue
        if not (self._ready and queue.usable):
            self._refuse()
        self._ready = False
        try:
            if type(kernel) is not Kernel:
                raise ArgumentError(f"dispatch: expected a Kernel, got {kernel!r}")
            if kernel._queue is not queue:
                raise WrongDevice(
                    f"kernel {kernel.name!r} was compiled for another device, {kernel._queue.title}, and this encoder"
                    f" is on {queue.title}; compile it there: library() of that device"
                )
            if op_kind is None:
                op_kind = self._pending_op_kind
            elif type(op_kind) is not CapturedOpKind:
                kinds = ", ".join(kind.name for kind in CapturedOpKind)
                raise ArgumentError(f"kernel {kernel.name!r}: op_kind is a CapturedOpKind ({kinds}), not {op_kind!r}")
            if type(threads) is not int or groups is not None or group_size is not None:
                threads, groups, group_size = extent_key(threads), extent_key(groups), extent_key(group_size)
            # The memo's key, so all in it is hashable and strict: 1, 1.0 and True are equal, but bind differently.
            parts: list[Any] = [threads, groups, group_size, op_kind, self._path]
            used: list[Allocation] = []
            params: dict[str, Param] | None = None
            freed = False
            given: Any = args
            # A dict with string keys is a struct; one with integer keys gives the arguments by index.
            if (
                len(args) == 1
                and type(args[0]) is dict
                and (not args[0] or any(type(key) is not str for key in args[0]))
            ):
                given = dict(args[0])
                for index, argument in given.items():
                    if type(argument) is Param:
                        params = self._with_param(argument, params or {})
                    key, given[index] = bindings.memo_key(kernel._compiled, argument, args[0])
                    parts.append(("at", index, key))  # three parts: a plain (index, key) might equal another key
                    freed |= note_use(argument, used)
            else:
                for argument in args:
                    if type(argument) is Buffer:
                        allocation = argument._lease.allocation
                        if allocation is None:
                            freed = True
                        else:
                            used.append(allocation)
                            parts.append(argument._serial)
                    else:
                        if type(argument) is Param:
                            params = self._with_param(argument, params or {})
                        key, plain = bindings.memo_key(kernel._compiled, argument, args)
                        if plain is not argument:
                            given = [plain if other is argument else other for other in given]
                        parts.append(key)
                        freed |= note_use(argument, used)
            if freed:
                bindings.bind(kernel._compiled, given, queue)  # raises, and names the buffer
            if not (
                shared is None
                and reads is None
                and writes is None
                and bytes_read is None
                and bytes_written is None
                and flops is None
            ):
                declared = (shared_key(kernel, shared), declared_key(reads, used), declared_key(writes, used))
                bytes_read, bytes_written, flops = (
                    checked_amount(kernel, name, amount)
                    for name, amount in (("bytes_read", bytes_read), ("bytes_written", bytes_written), ("flops", flops))
                )
                parts.append((*declared, bytes_read, bytes_written, flops))
            memo_key = tuple(parts)
            node = kernel._memo.get(memo_key)
            if node is None:
                dispatch = checked_dispatch(
                    queue,
                    kernel,
                    given,
                    (threads, groups, group_size),
                    shared=shared,
                    reads=reads,
                    writes=writes,
                    op_kind=op_kind,
                    label=self._path,
                    bytes_read=bytes_read,
                    bytes_written=bytes_written,
                    flops=flops,
                )
                node = CapturedNode(dispatch, lowered=queue.backend.lower(dispatch))
                if len(kernel._memo) >= _MEMO_ENTRIES:
                    kernel._memo.clear()
                kernel._memo[memo_key] = node
            if self._with_places:
                node = CapturedNode(node.command, caller(), self._origin(), node.lowered)
                if params:
                    self._params.update(params)
            self._nodes.append(node)
            self._allocations += used
            if self._began_ns == 0:
                self._began_ns = time.monotonic_ns()
            self._pending_op_kind = None
        finally:
            self._ready = True

    def memory_barrier(self) -> None:
        """Order everything recorded so far before everything that follows, in every barrier mode.

        A barrier before the first command orders nothing; it is neither recorded nor counted.
        """
        if not (self._ready and self._queue.usable):
            self._refuse()
        self._ready = False
        try:
            if len(self._nodes) == (0 if self._captured_from is None else self._captured_from[0]):
                return
            # A captured barrier is not committed by this encoder, so it is neither counted nor timed.
            counted = self._captured_from is None
            started_ns = time.perf_counter_ns() if self._time_barriers else 0
            barrier = self._queue.barrier
            if self._with_places:
                barrier = barrier._replace(place=caller(), origin=self._origin())
            self._nodes.append(barrier)
            self._barriers += counted
            if self._time_barriers and counted:
                self._barrier_ns += time.perf_counter_ns() - started_ns
                self._timed_barriers += 1
        finally:
            self._ready = True

    def force_barrier_and_reset_tracker(self) -> None:
        """Record a barrier. (mlx-native's name; its hazard tracker starts anew here, as with every barrier.)"""
        self.memory_barrier()

    @property
    def tracked_ranges(self) -> int:
        """Ranges of memory used by the commands since the last barrier, or since the capture began."""
        tracker = HazardTracker()
        first = self._captured_from[0] if self._captured_from else 0
        for index, node in enumerate(self._nodes[first:]):
            tracker.add(index, node.accesses)
        return len(tracker)

    def copy(self, src: Buffer, dst: Buffer) -> None:
        """Record a copy of all bytes of `src` to `dst`, a buffer of the same size."""
        with self._recording():
            source = bindings.whole(src, self._queue, "copy source", writes=False)
            target = bindings.whole(dst, self._queue, "copy target", writes=True)
            if src.nbytes != dst.nbytes or not matching_dtypes(src.dtype, dst.dtype):
                raise ArgumentError(f"copy: {src!r} does not fit {dst!r}; equal bytes and dtypes are expected")
            if source.access(False).overlaps(target.access(True)):
                raise ArgumentError(f"copy: {src!r} and {dst!r} overlap")
            self._append(Copy(source, target, self._path), src._allocation(), dst._allocation())

    def fill(self, buf: Buffer, value: Any) -> None:
        """Record a fill: every element of the buffer becomes `value`."""
        with self._recording():
            target = bindings.whole(buf, self._queue, "fill", writes=True)
            self._append(Fill(target, fill_pattern(buf, value), self._path), buf._allocation())

    @contextmanager
    def scope(self, label: str) -> Iterator[None]:
        """Label everything recorded in the `with` block; nested labels are joined with '/'."""
        check_label(label)
        with self._recording():
            outer = self._path
            self._path = label if outer is None else f"{outer}/{label}"
        try:
            yield
        finally:
            self._path = outer

    def set_op_kind(self, kind: CapturedOpKind) -> None:
        """Set the `op_kind` of the next dispatch only."""
        if not isinstance(kind, CapturedOpKind):
            raise ArgumentError(f"set_op_kind: expected a CapturedOpKind, got {kind!r}")
        with self._recording():
            self._pending_op_kind = kind

    # --- capture -------------------------------------------------------------------------------------------

    def start_capture(self) -> None:
        """Begin a capture: commands recorded from now on become a graph, which `take_capture` returns."""
        with self._recording():
            if self._captured_from is not None:
                raise EncoderError(f"{self!r} is already capturing; take_capture() ends the capture")
            self._captured_from = (len(self._nodes), len(self._allocations))
            self._pending_op_kind = None
            self._with_places = True

    def is_capturing(self) -> bool:
        """Whether a capture is under way."""
        return self._captured_from is not None

    def take_capture(self) -> Graph | None:
        """End the capture and return its graph; None when no capture is under way."""
        with self._recording():
            if self._captured_from is None:
                return None
            first, first_allocation = self._captured_from
            graph = self._graph_from(first, first_allocation, self.label)
            del self._nodes[first:], self._allocations[first_allocation:]
            self._with_places = bool(watchers) or self._queue.backend.capabilities.checks_kernels
            self._captured_from = None
            self._pending_op_kind = None
            self._params = {}
            return graph

    def _graph_from(self, first: int, first_allocation: int, label: str | None) -> Graph:
        # Only what was recorded before anybody watched has no origin yet.
        nodes = tuple(
            [node if node.origin else node._replace(origin=(index,)) for index, node in enumerate(self._nodes[first:])]
        )
        commands = CommandList(nodes, ORDERINGS[self._mode], dict(self._params))
        return captured(self._queue, commands, self._allocations[first_allocation:], label)

    # --- the end -------------------------------------------------------------------------------------------

    def commit(self) -> Submission:
        """Submit the recorded work and return at once. The encoder cannot be used again."""
        return self._commit(self.label)

    def commit_labeled(self, label: str) -> Submission:
        """`commit` under a label."""
        check_label(label)
        return self._commit(label)

    def commit_and_wait(self) -> Submission:
        """`commit`, then wait until the work is done. Raises if it failed."""
        submission = self.commit()
        submission.wait()
        return submission

    def commit_and_wait_labeled(self, label: str) -> Submission:
        """`commit_and_wait` under a label."""
        submission = self.commit_labeled(label)
        submission.wait()
        return submission

    def commit_wait_with_gpu_time(self) -> tuple[float, float]:
        """`commit_and_wait`; returns when the device started and finished the work, in seconds on its clock."""
        times = self.commit_and_wait().gpu_time
        if times is None:
            raise DeviceError(f"device {self._queue.name!r} reported no start and end times for the work")
        return times[0] / 1e9, times[1] / 1e9

    def discard(self) -> None:
        """Drop the recorded commands without running them. The encoder cannot be used again."""
        with self._recording():
            self._nodes, self._allocations = [], []
            self._captured_from = None
            self._open = False
        self._ready = False

    def wait_until_completed(self) -> None:
        """Wait for the work that this encoder committed. Raises if it failed."""
        if self._submission is None:
            raise EncoderError("wait_until_completed: nothing has been committed yet")
        self._submission.wait()

    # --- inside --------------------------------------------------------------------------------------------

    def _commit(self, label: str | None) -> Submission:
        if not (self._ready and self._queue.usable):
            self._refuse()
        if self._captured_from is not None:
            raise EncoderError(f"{self!r} is capturing; take_capture() must come before a commit")
        for watcher in watchers if self._with_places and counters.counting() else ():
            watcher(self._graph_from(0, 0, label), {})
        # Closed before anything starts: after a commit that Ctrl-C interrupts, the list must not run again.
        self._ready = self._open = False
        try:
            backend, retain = self._queue.backend, self._retain
            commands = CommandList(tuple(self._nodes), ORDERINGS[self._mode])
            # With repeats: to name memory twice costs less than to find out that it was named before.
            held = self._allocations
            listeners = tracing.listening()
            trace = None
            if listeners:
                commands = tracing.shared_list(backend, commands)
                began_ns = self._began_ns or None
                trace = tracing.trace(self._queue, commands, listeners, label=label, encode_begin_ns=began_ns)
            sample = trace is not None and trace.sampled
            self._submission = submission = self._queue.submit(
                commands,
                lambda started: backend.submit(commands, started, sample, retain),
                uses=[allocation.backing for allocation in held],
                keep=held,
                label=label,
                trace=trace,
            )
            assert submission._run is not None
            if self._mode != "auto":
                inferred = NOT_INFERRED
            else:
                inferred = commands.order.inferred if commands.is_ordered else submission._run.inferred()
            counters.add_command_buffer(
                dispatches=len(self._nodes) - self._transfers - self._barriers,
                barriers=self._barriers + inferred.barriers,
                auto_barriers=inferred.barriers,
                concurrent=inferred.concurrent,
                barrier_ns=self._barrier_ns,
                timed_barriers=self._timed_barriers,
            )
            self._nodes, self._allocations = [], []
            return submission
        except (OstinatoError, OstinatoWarning):
            self._open = True  # none of the work has started
            raise
        finally:
            self._ready = self._open

    def _origin(self) -> tuple[int, ...]:
        """The origin of the next node of a captured graph: its own position."""
        return (len(self._nodes) - (0 if self._captured_from is None else self._captured_from[0]),)

    def _append(self, command: Copy | Fill, *allocations: Allocation) -> None:
        place, origin = (caller(), self._origin()) if self._with_places else (None, ())
        self._nodes.append(CapturedNode(command, place, origin, self._queue.backend.lower(command)))
        self._allocations += allocations
        self._transfers += self._captured_from is None

    def _with_param(self, param: Param, others: dict[str, Param]) -> dict[str, Param]:
        """A parameter of a dispatch with its others, which join the capture once the dispatch is recorded."""
        if self._captured_from is None:
            raise ArgumentError(f"{param}: a parameter can be used only while capturing")
        known = self._params.get(param.name) or others.setdefault(param.name, param)
        if known != param:
            raise ArgumentError(f"{param}: this capture has another parameter of that name, {known}")
        return others

    @contextmanager
    def _recording(self) -> Iterator[None]:
        if not (self._ready and self._queue.usable):
            self._refuse()
        self._ready = False
        try:
            yield
        finally:
            self._ready = True

    def _refuse(self) -> NoReturn:
        if self._open and not self._ready:
            raise EncoderError("two threads use one encoder at the same time; give each thread its own")
        self._queue.check()
        raise EncoderError(f"{self!r} was committed or discarded; use a new encoder for more work")

    def __del__(self) -> None:
        if getattr(self, "_open", False) and self._nodes and not self._queue._forked:
            warnings.warn(
                f"{self!r} was dropped without {'take_capture()' if self._captured_from else 'a commit'}:"
                f" {len(self._nodes)} commands did not run"
                + (f" (the last was encoded at {place})" if (place := _last_place(self._nodes)) else ""),
                UncommittedWork,
                stacklevel=2,
            )

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        state = f"{len(self._nodes)} commands" if self._open else "committed"
        state = f"capturing, {state}" if self._captured_from else state
        name = f" {self.label!r}" if self.label else ""
        return f"<CommandEncoder{name} on {self._queue.name!r}, {self._mode}, {state}>"


def capture(
    queue: Queue, encode: Callable[[CommandEncoder], object], label: str | None = None, barriers: str = "auto"
) -> Graph:
    """The graph of what `encode(encoder)` records on a queue."""
    if not callable(encode):
        raise ArgumentError(f"capture: expected a function that takes an encoder, got {encode!r}")
    encoder = CommandEncoder(queue, label, barriers, True)
    encoder.start_capture()
    try:
        encode(encoder)
    except BaseException:
        encoder.take_capture()  # drops the unfinished capture
        raise
    graph = encoder.take_capture()
    if graph is None:
        raise EncoderError("capture: the function called take_capture() itself; capture() returns the graph")
    return graph


def _last_place(nodes: list[CapturedNode]) -> Place | None:
    commands = (node.command for node in reversed(nodes))
    return next((command.place for command in commands if isinstance(command, Dispatch)), None)
