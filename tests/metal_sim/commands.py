"""Queues, command buffers and compute encoders.

What is encoded becomes groups of commands with barriers between them. Encoders of a command buffer are ordered as Metal
does it for tracked buffers, which are all that the backend makes: one waits for another if both use a buffer and one of
them writes to it, and they run at the same time if not. A committed command buffer runs on the CPU runtime, several
commands at the same time and the last of them first: where a barrier, or a use that Metal was not told of, is missing,
results are wrong. Times are those at which it really ran. Command buffers of a queue run one after the other, which
differs from Metal only for buffers that share memory, and those are refused (`buffers.py`).
"""

from __future__ import annotations

import os
import queue as queues
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ostinato.backends.cpu import CpuBackend
from ostinato.backends.protocol import Run
from ostinato.backends.records import barrier, pack
from ostinato.ir.command_list import CapturedNode, CommandList
from ostinato.ir.commands import Barrier, BufferBinding, Fill, Ordering

from .buffers import Buffer, ResidencySet
from .constants import CONSTANTS
from .counters import ComputePassDescriptor, CounterSampleBuffer
from .indirect import IndirectCommandBuffer
from .libraries import ComputePipelineState
from .objects import Error, Object, Size, autoreleased, note
from .profiles import Profile
from .recorded import Recorded
from .rules import BrokenRule, require, unraised, whole, wholes

_ADDRESS_FAULT = "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"


class Mark:
    """A moment at which a counter is sampled."""

    def __init__(self, buffer: CounterSampleBuffer, index: int) -> None:
        require(whole(index, "an index") < buffer.sampleCount(), f"sample {index} is outside of its buffer")
        self.buffer = buffer
        self.index = index


def written(mark: Mark, ticks: int) -> None:
    """The device writes a sample."""
    mark.buffer.ticks[mark.index] = ticks


class Pass:
    """What one encoder holds: groups of commands, and the buffers that Metal knows it to use."""

    def __init__(self) -> None:
        self.groups: list[list[Recorded | Mark]] = [[]]
        self.writes: dict[int, bool] = {}

    def add(self, one: Recorded | Mark) -> None:
        self.groups[-1].append(one)

    def end_group(self) -> None:
        if self.groups[-1]:
            self.groups.append([])

    def note_use(self, buffer: Buffer, writes: bool) -> None:
        self.writes[id(buffer)] = writes or self.writes.get(id(buffer), False)


def levels(passes: list[Pass]) -> list[list[Recorded | Mark]]:
    """What runs at the same time, level after level: every pass as early as Metal may start it."""
    found: list[list[Recorded | Mark]] = []
    written: dict[int, int] = {}  # by buffer: the level at which all that write to it are done, and all that use it
    used: dict[int, int] = {}
    for one in passes:
        at = max(((used if writes else written).get(key, 0) for key, writes in one.writes.items()), default=0)
        for group in one.groups:
            if group:
                found += [[] for _ in range(at + 1 - len(found))]
                found[at] += group
                at += 1
        for key, writes in one.writes.items():
            used[key] = max(used.get(key, 0), at)
            if writes:
                written[key] = max(written.get(key, 0), at)
    return found


class CommandQueue(Object):
    """MTLCommandQueue."""

    def __init__(self, profile: Profile, most: int) -> None:
        super().__init__()
        self.profile = profile
        self._most = most
        self._alive: weakref.WeakSet[CommandBuffer] = weakref.WeakSet()
        self._todo: queues.SimpleQueue[Any] = queues.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.cpu = CpuBackend(workers=max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))
        self._scratch = np.zeros(1, np.uint8)
        self.residency_sets: list[ResidencySet] = []
        target = BufferBinding(0, 0, self._scratch.ctypes.data, 0, 1, True)
        self.mark_record = pack(Fill(target, b"\1"))

    def addResidencySet_(self, one: ResidencySet) -> None:
        self.residency_sets.append(one)

    def commandBuffer(self) -> CommandBuffer:
        return self._made(True)

    def commandBufferWithUnretainedReferences(self) -> CommandBuffer:
        return self._made(False)

    def _made(self, retained: bool) -> CommandBuffer:
        autoreleased("a command buffer")
        waiting = [one for one in self._alive if one.status() < CONSTANTS["MTLCommandBufferStatusCompleted"]]
        require(len(waiting) < self._most, f"all {self._most} command buffers of the queue are in use: this would hang")
        made = CommandBuffer(self, retained)
        self._alive.add(made)
        return made

    def finish_later(self, command_buffer: CommandBuffer, run: Run) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_finish_all, args=(self._todo, self.cpu), daemon=True)
            self._thread.start()
        self._todo.put((command_buffer, run))

    def __del__(self) -> None:
        if getattr(self, "_thread", None) is not None:
            self._todo.put(None)
        elif hasattr(self, "cpu"):
            self.cpu.close()


def _finish_all(todo: queues.SimpleQueue[Any], cpu: CpuBackend) -> None:
    while (submitted := todo.get()) is not None:
        command_buffer, run = submitted
        while not run.wait(50_000_000):
            pass
        command_buffer.run_done(cpu, run)
        del submitted, command_buffer, run
    cpu.close()


class CommandBuffer(Object):
    """MTLCommandBuffer."""

    def __init__(self, queue: CommandQueue, retained: bool) -> None:
        super().__init__()
        self.queue = queue
        self.profile = queue.profile
        self._retained = retained
        self._status = CONSTANTS["MTLCommandBufferStatusNotEnqueued"]
        self._error: Error | None = None
        self._handlers: list[Callable[[CommandBuffer], None]] = []
        self._times = (0.0, 0.0)
        self._passes: list[Pass] = []
        self._order: list[Mark | None] = []
        self._kept: list[Any] = []
        self._used: dict[int, weakref.ref[Buffer]] = {}
        self.encoder: ComputeCommandEncoder | None = None

    # --- encoding --------------------------------------------------------------------------------------------

    def computeCommandEncoderWithDispatchType_(self, kind: int) -> ComputeCommandEncoder:
        return self._begin(kind, None)

    def computeCommandEncoderWithDescriptor_(self, description: ComputePassDescriptor) -> ComputeCommandEncoder:
        attachment = description.sampleBufferAttachments().first.values
        if attachment["sampleBuffer"] is None:
            return self._begin(description.values["dispatchType"], None)
        require(self.profile.stage_boundary, "this device does not sample counters at stage boundaries")
        buffer = attachment["sampleBuffer"]
        start, end = (Mark(buffer, attachment[f"{one}OfEncoderSampleIndex"]) for one in ("start", "end"))
        return self._begin(description.values["dispatchType"], (start, end))

    def _begin(self, kind: int, marks: tuple[Mark, Mark] | None) -> ComputeCommandEncoder:
        require(self._status == 0, "a committed command buffer takes no more encoders")
        require(self.encoder is None, "the last encoder of the command buffer was not ended")
        autoreleased("an encoder")
        self._passes.append(Pass())
        note("encoder", "serial" if kind == CONSTANTS["MTLDispatchTypeSerial"] else "concurrent")
        serial = kind == CONSTANTS["MTLDispatchTypeSerial"]
        encoder = ComputeCommandEncoder(self, self._passes[-1], serial, marks)
        self.encoder = encoder
        return encoder

    def note_use(self, buffer: Buffer) -> None:
        if id(buffer) not in self._used:
            self._used[id(buffer)] = weakref.ref(buffer)
            # The memory itself is kept in any case, so that a broken rule does not end the process.
            self._kept.append(buffer if self._retained else buffer.memory)

    # --- running ---------------------------------------------------------------------------------------------

    def addCompletedHandler_(self, handler: Callable[[CommandBuffer], None]) -> None:
        require(self._status == 0, "handlers are added before the commit")
        self._handlers.append(handler)

    def commit(self) -> None:
        require(self._status == 0, "a command buffer is committed once")
        require(self.encoder is None, "a command buffer was committed with an open encoder")
        note("commit", self._label, "retained" if self._retained else "unretained")
        records: list[bytes] = []
        for level in levels(self._passes):
            if records:
                records.append(barrier())
                self._order.append(None)
            for one in reversed(level):
                if isinstance(one, Mark):
                    records.append(self.queue.mark_record)
                    self._order.append(one)
                    require(not one.buffer.pending[one.index], "a sample is taken into the place of another")
                    one.buffer.pending[one.index] = True
                else:
                    records.append(one.lowered(self.profile.constant_step))
                    self._order.append(None)
                    self._kept.append(one.pipeline)
                    for buffer, _ in one.used_buffers():
                        self.note_use(buffer)
        self._passes = []
        if not self._retained:
            for reference in self._used.values():
                used = reference()
                if used is not None:
                    used.in_flight += 1
                del used
        self._status = CONSTANTS["MTLCommandBufferStatusCommitted"]
        # The runtime reads records, whatever commands they are of.
        nodes = tuple(CapturedNode(Barrier(), lowered=record) for record in records)
        started: list[Run] = []
        self.queue.cpu.submit(CommandList(nodes, Ordering.BARRIERS), started, sample=True)
        self.queue.finish_later(self, started[0])

    def run_done(self, cpu: CpuBackend, run: Run) -> None:
        """Called when it is done, on the queue's own thread."""
        status, times, samples = run.status(), run.times(), run.samples()
        if status.failed:
            cpu.resume(())  # as on a Mac: what is queued behind a fault runs
        if not self._retained:
            for reference in self._used.values():
                buffer = reference()
                if buffer is None:
                    self._error = Error("a buffer was freed before the command buffer that used it was done")
                else:
                    buffer.in_flight -= 1
                del buffer
        if status.failed:
            self._error = Error(_ADDRESS_FAULT)
        elif times is not None:
            self._times = (times[0] / 1e9, times[1] / 1e9)
        for at, mark in enumerate(self._order):
            if mark is not None:
                mark.buffer.pending[mark.index] = False
                if samples is not None and not self.profile.zero_samples:
                    moment_ns = int(samples[at, 0])
                    written(mark, ticks(self.profile, moment_ns) if moment_ns else 0)
        run.release()
        self._kept, self._used, self._order = [], {}, []
        failed = self._error is not None
        self._status = CONSTANTS["MTLCommandBufferStatusError" if failed else "MTLCommandBufferStatusCompleted"]
        handlers, self._handlers = self._handlers, []
        for handler in handlers:
            try:
                handler(self)
            except BaseException as error:
                unraised.append(f"a completion handler raised {error!r}")

    def status(self) -> int:
        return self._status

    def error(self) -> Error | None:
        return self._error

    def GPUStartTime(self) -> float:
        return self._times[0]

    def GPUEndTime(self) -> float:
        return self._times[1]


class ComputeCommandEncoder(Object):
    """MTLComputeCommandEncoder."""

    def __init__(self, owner: CommandBuffer, filled: Pass, serial: bool, marks: tuple[Mark, Mark] | None) -> None:
        super().__init__()
        self._owner: CommandBuffer | None = owner
        self._pass = filled
        self._serial = serial
        self._marks = marks
        self._state = Recorded()
        self._usable: dict[int, tuple[Buffer, bool]] = {}
        if marks is not None:
            filled.add(marks[0])
            filled.end_group()

    def _open(self) -> CommandBuffer:
        if self._owner is None:
            raise BrokenRule("the encoder was ended")
        return self._owner

    def setComputePipelineState_(self, pipeline: ComputePipelineState) -> None:
        self._open()
        self._state = self._state.with_pipeline(pipeline)

    def setBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        self._open()
        self._state = self._state.with_buffer(index, buffer, offset)

    def setBytes_length_atIndex_(self, data: bytes, nbytes: int, index: int) -> None:
        self._open()
        self._state = self._state.with_bytes(index, data[:nbytes])

    def setThreadgroupMemoryLength_atIndex_(self, nbytes: int, index: int) -> None:
        self._open()
        self._state = self._state.with_shared(index, nbytes)

    def dispatchThreads_threadsPerThreadgroup_(self, threads: Size, group: Size) -> None:
        self._add(self._state.dispatched(threads, group, by_threads=True))

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: Size, group: Size) -> None:
        self._add(self._state.dispatched(groups, group, by_threads=False))

    def _add(self, one: Recorded) -> None:
        owner = self._open()
        assert one.pipeline is not None
        note("dispatch", one.pipeline.kernel.name)
        for buffer, writes in one.used_buffers():
            owner.note_use(buffer)
            self._pass.note_use(buffer, writes)
        self._pass.add(one)
        if self._serial:
            self._pass.end_group()

    def memoryBarrierWithScope_(self, scope: int) -> None:
        require(scope == CONSTANTS["MTLBarrierScopeBuffers"], "a barrier has a scope")
        self._open()
        note("barrier")
        self._pass.end_group()

    def sampleCountersInBuffer_atSampleIndex_withBarrier_(
        self, buffer: CounterSampleBuffer, index: int, with_barrier: bool
    ) -> None:
        owner = self._open()
        require(owner.profile.dispatch_boundary, "this device does not sample counters at dispatch boundaries")
        if with_barrier:
            self._pass.end_group()
        self._pass.add(Mark(buffer, index))
        if with_barrier:
            self._pass.end_group()

    def useResources_count_usage_(self, resources: list[Buffer], count: int, usage: int) -> None:
        require(len(resources) == whole(count, "a count") > 0, "the count is that of the resources")
        read, write = (CONSTANTS[f"MTLResourceUsage{one}"] for one in ("Read", "Write"))
        require(usage in (read, read | write), "buffers are read, or read and written")
        for one in resources:
            self._open().note_use(one)
            self._pass.note_use(one, usage != read)
            before = self._usable.get(id(one), (one, False))[1]
            self._usable[id(one)] = one, before or usage != read

    def executeCommandsInBuffer_withRange_(self, commands: IndirectCommandBuffer, range_: tuple[int, int]) -> None:
        """What a barrier of a command means for commands of other calls is not said, so here it means nothing."""
        owner = self._open()
        first, count = wholes(range_, 2, "a range")
        note("execute", str(count))
        owner._kept.append(commands)
        for at, one in enumerate(commands.commands_in(first, count)):
            require(one.recorded is not None, "a command of the indirect command buffer was not encoded")
            assert one.recorded is not None
            if one.barrier and at:
                self._pass.end_group()
            for buffer, writes in one.recorded.used_buffers():
                require(id(buffer) in self._usable, "an indirect command uses a buffer that useResources did not name")
                told = self._usable[id(buffer)][1]
                require(told or not writes, "an indirect command writes to a buffer that useResources calls read only")
            self._pass.add(one.recorded)
            if self._serial:
                self._pass.end_group()

    def endEncoding(self) -> None:
        owner = self._open()
        if self._marks is not None:
            self._pass.end_group()
            self._pass.add(self._marks[1])
        owner.encoder = None
        self._owner = None

    def __del__(self) -> None:
        if getattr(self, "_owner", None) is not None:
            unraised.append("an encoder was released without endEncoding")


def ticks(profile: Profile, moment_ns: int) -> int:
    """A moment in time of the simulated device."""
    steps = int((moment_ns - profile.epoch_ns) * profile.ticks_per_ns / profile.tick_step)
    return max(round(steps * profile.tick_step), 1)
