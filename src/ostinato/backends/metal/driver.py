"""The Metal backend: what `Backend` asks for, on one device and one command queue.

A list becomes a command buffer with one concurrent compute encoder, and barriers only where the hazard engine requires
them. Command buffers are created at commit and never kept open, and their number in flight is bounded so that the queue
always has room for one more. Metal itself orders encoders and command buffers that use the same buffer.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import compress, starmap
from pathlib import Path
from typing import Any

import numpy as np

from ... import msl
from ...errors import DeviceError, DeviceUnavailable, OstinatoError, OutOfMemory
from ...ir.command_list import CommandList
from ...ir.commands import Barrier, Command, CompiledKernel, Copy, Dispatch, Fill, Ordering
from ...ir.ordering import barriers_before
from ...msl import Module
from .. import copy_fill
from ..conditions import Conditions
from ..host_memory import HostMemory
from ..protocol import GATES, Capabilities, Level, Memory, Run, sampling_level
from . import api, capturing, encoding, probing
from .api import Framework, default_device
from .clocks import DeviceClock
from .compiling import Compiler
from .encoding import DispatchEncoder, Encoded, Group, Listed, Work, groups_of
from .graphs import MOST_COMMANDS, Indirect, NativeGraph, Staging
from .memory import Blocks, Residency
from .runs import MetalRun
from .sampling import Boundary, Sampler
from .turns import Turns

MAX_INLINE_BYTES = 4096
SIMD_WIDTH = 32
QUEUE_LENGTH = 64
MOST_IN_FLIGHT = 56
"""The rest of the queue's length is for command buffers that are being encoded."""

_FULL_WAIT_S = 0.05


class MetalBackend(HostMemory):
    """One Apple device."""

    def __init__(
        self,
        sampling: str = "dispatches",
        indirect: bool = True,
        fast_math: bool = False,
        subsets: int | None = None,
        gputrace: Any = None,
        framework: Framework | None = None,
    ) -> None:
        level = sampling_level(sampling)
        _check_options(indirect, fast_math, subsets)
        trace = capturing.checked(gputrace)
        framework = framework or api.framework()
        self._framework = framework
        self._metal = framework.metal
        self._pool = framework.pool
        self._label: str | None = None
        self._capture: capturing.Capture | None = None
        self.no_times = ""
        """Why command buffers have no times; "" if they have."""
        self._no_indirect = "" if indirect else "switched off"
        self._started: deque[MetalRun] = deque()
        self._transfers: Mapping[str, CompiledKernel] | None = None
        self._turns = Turns()
        try:
            with framework.pool():
                self._open(level, indirect, fast_math, subsets, trace)
        except (OstinatoError, AssertionError):
            raise
        except Exception as error:  # a typed error: opening "any device" then tries the next one
            raise DeviceUnavailable(
                f"{framework.name}: Metal is not as expected: {error!r}; please report it"
            ) from error

    # --- opening ---------------------------------------------------------------------------------------------

    def _open(
        self, level: Level, indirect: bool, fast_math: bool, subsets: int | None, trace: tuple[Path, int] | None
    ) -> None:
        framework = self._framework
        self._device = device = default_device(framework)
        self._queue = device.newCommandQueueWithMaxCommandBufferCount_(QUEUE_LENGTH)
        if self._queue is None:
            raise DeviceUnavailable(f"{framework.name}: no command queue could be made")
        self._queue.setLabel_("ostinato")
        self._blocks = Blocks(framework, device)
        self._residency = Residency(framework, device, self._queue, self._blocks)
        self._indirect = indirect and bool(device.supportsFamily_(self._metal.MTLGPUFamilyApple3))
        # Offsets into constant memory: Apple's devices take multiples of the type, others multiples of 32 bytes.
        constant_step = 1 if device.supportsFamily_(self._metal.MTLGPUFamilyApple3) else 32
        self._compiler = Compiler(framework, device, fast_math, self._indirect, constant_step)
        self._dispatches = DispatchEncoder(framework, self._blocks, self._compiler.kernels)
        self.staging = Staging(self._blocks)
        self._sampler = Sampler(framework, device, self._dispatches, subsets)
        self._clock = DeviceClock(device)
        self._check_width()
        self.no_times = probing.times(self)
        if level is Level.DISPATCHES:
            probing.boundary(self, self._sampler, self._clock.uncertainty_ns)
        if self._indirect:
            self._no_indirect = probing.indirect(self)
            self._indirect = not self._no_indirect
        elif not self._no_indirect:
            self._no_indirect = "the device has no indirect command buffers"
        self.capabilities = self._capabilities(level)
        if trace is not None:
            self._capture = capturing.Capture(framework, self._queue, *trace)

    def _check_width(self) -> None:
        kernel = self._transfer_kernels()["fill_1"]
        width = int(kernel.code.pipeline.threadExecutionWidth())
        if width != SIMD_WIDTH:
            raise DeviceUnavailable(
                f"{self._framework.name}: simdgroups of this device are {width} wide, and kernels are written for"
                f" {SIMD_WIDTH}"
            )

    def _capabilities(self, wanted: Level) -> Capabilities:
        device, boundary = self._device, self._sampler.boundary
        supported = min(wanted, Level.DISPATCHES if boundary is not Boundary.NONE else Level.COMMAND_BUFFERS)
        if self.no_times:
            supported = Level.OFF
        largest = device.maxThreadsPerThreadgroup()
        return Capabilities(
            name=self._framework.name,
            backend="metal",
            description=str(device.name()),
            workers=self._framework.cores() or 1,
            max_threads_per_group=int(largest.width),
            simd_width=SIMD_WIDTH,
            threadgroup_memory_bytes=int(device.maxThreadgroupMemoryLength()),
            max_inline_bytes=MAX_INLINE_BYTES,
            shared_memory=True,
            sampling=supported,
            sampling_reason=self._sampler.reason if supported < Level.DISPATCHES else "",
            clock_uncertainty_ns=self._clock.uncertainty_ns,
            timer_step_ns=self._clock.step_ns(),
            encodes_at_replay=not self._indirect,
            gates=GATES,
            details={
                "replay": "indirect command buffers" if self._indirect else f"encoded again ({self._no_indirect})",
                "samples": boundary.value if boundary is not Boundary.NONE else f"none: {self._sampler.reason}",
                "residency set": "yes" if self._residency.present else "no",
                "cores": str(self._framework.cores() or "not known"),
                "memory": f"{int(device.recommendedMaxWorkingSetSize()) >> 20} MiB",
            },
        )

    # --- kernels and memory ----------------------------------------------------------------------------------

    def compile(
        self, module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None
    ) -> Mapping[str, CompiledKernel]:
        """Compile kernels with the Metal compiler, which has its own cache."""
        return self._compiler.compile(module, constants, only)

    def allocate(self, nbytes: int) -> Memory:
        """Allocate a buffer in shared storage."""
        with self._pool():
            try:
                return self._blocks.allocate(nbytes)
            except OutOfMemory:
                if not self._residency.flush():
                    raise
                return self._blocks.allocate(nbytes)  # the residency set may have released enough

    def adopt(self, array: np.ndarray) -> Memory | None:
        """Share the array's memory if it begins a page or lies in one of our buffers; else None."""
        with self._pool():
            return self._blocks.adopt(array)

    def update_residency(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Stage changes; the next commit applies them all at once."""
        self._residency.update(added, removed, tuple(run.event for run in self._started))

    # --- work ------------------------------------------------------------------------------------------------

    def lower(self, command: Command) -> Encoded | str:
        """The encoded command; copies and fills become dispatches, so that one encoder takes everything."""
        return encoding.BARRIER if isinstance(command, Barrier) else self.encoded(command)

    def encoded(self, command: Dispatch | Copy | Fill) -> Encoded:
        """The encoded form of a command that is not a barrier."""
        if isinstance(command, Copy | Fill):
            command = copy_fill.dispatch_of(command, self._transfer_kernels())
        return encoding.encoded(command)

    def _transfer_kernels(self) -> Mapping[str, CompiledKernel]:
        if self._transfers is None:
            self._transfers = self.compile(msl.parse(copy_fill.SOURCE), {})
        return self._transfers

    def submit(self, commands: CommandList, started: list[Run], sample: bool = False, retain: bool = True) -> None:
        """Encode the list into one command buffer and commit it."""
        steps = encoding.steps(commands, self._barriers(commands))
        run = MetalRun(self, len(commands), self._metal.MTLCommandBufferStatusError, commands.order.inferred)
        serial = commands.ordering is Ordering.SERIAL
        work = Listed(self._framework, self._dispatches, groups_of(steps, serial), serial)
        turn = self._turns.next(steps) if sample and self._samples else None
        self._encode_and_start(run, work, turn, retain, started)

    def _barriers(self, commands: CommandList) -> Sequence[bool] | None:
        """For each command, whether a barrier is needed before it; None when the commands run serially."""
        if commands.ordering is Ordering.SERIAL:
            return None
        by_hand = [isinstance(command, Barrier) for command in commands.commands]
        if commands.ordering is Ordering.BARRIERS:
            return by_hand
        return barriers_before(commands.order.edges, by_hand)

    def _encode_and_start(
        self,
        run: MetalRun,
        work: Work,
        turn: int | None,
        retain: bool,
        started: list[Run],
        first: Encoded | None = None,
    ) -> None:
        """Encode work into one encoder, or with samples if `turn` is given, and start it; `first` runs before it."""
        self._make_room()
        with self._pool(), self._captured():
            command_buffer, label = self._command_buffer(retain)
            if work.groups and turn is None:
                self._put(command_buffer, label, work, work.groups, first)
            elif work.groups and turn is not None:
                if first is not None:
                    self._put(command_buffer, label, work, (), first)
                run.sampled = self._sampler.encode(command_buffer, work, turn, label)
            self._start(command_buffer, run, started)

    def _put(self, command_buffer: Any, label: str, work: Work, groups: Sequence[Group], first: Encoded | None) -> None:
        encoder = command_buffer.computeCommandEncoderWithDispatchType_(work.dispatch_type)
        try:
            encoder.setLabel_(label)
            if first is not None:
                self._dispatches.dispatch(encoder, first)
            if first is not None and groups:
                self._dispatches.barrier(encoder)
            if groups:
                work.put(encoder, groups)
        finally:
            encoder.endEncoding()

    def _command_buffer(self, retain: bool) -> tuple[Any, str]:
        queue = self._queue
        command_buffer = queue.commandBuffer() if retain else queue.commandBufferWithUnretainedReferences()
        if command_buffer is None:
            raise DeviceError(f"{self._framework.name}: no command buffer could be made")
        label, self._label = self._label or "command buffer", None
        command_buffer.setLabel_(label)
        return command_buffer, label

    def _make_room(self) -> None:
        """Wait until the queue has room; in slices, so that Ctrl-C is handled."""
        started = self._started
        while started and started[0].event.is_set():
            started.popleft()
        while len(started) >= MOST_IN_FLIGHT:
            if started[0].event.wait(_FULL_WAIT_S):
                started.popleft()

    def _start(self, command_buffer: Any, run: MetalRun, started: list[Run]) -> None:
        """Commit and append the run, without an interpreter step in between."""
        before = len(started)
        self._residency.flush()
        command_buffer.addCompletedHandler_(run.completed)
        self._started.append(run)
        try:
            started.extend(compress((run,), map(operator.not_, starmap(command_buffer.commit, ((),)))))
        finally:
            if len(started) == before and self._started and self._started[-1] is run:
                self._started.pop()

    def _captured(self) -> AbstractContextManager[Any]:
        """A context manager around one command buffer, which captures it if its turn has come."""
        return nullcontext() if self._capture is None else self._capture.around()

    def instantiate(self, commands: CommandList) -> NativeGraph:
        """Encode an indirect command buffer, or prepare the list to be encoded at each replay."""
        barriers = self._barriers(commands)
        if commands.ordering is Ordering.SERIAL and self._indirect:
            # An indirect command buffer has no serial mode.
            barriers = [True] * len(commands)
        steps = encoding.steps(commands, barriers)
        graph = NativeGraph(self, commands, steps)
        if self._indirect and 0 < len(steps) <= MOST_COMMANDS:
            with self._pool(), suppress(DeviceError):  # then each replay encodes the list
                made = (self._framework, self._device, self._dispatches, self._blocks, self._compiler.kernels)
                graph.indirect = Indirect(*made, graph)
        return graph

    def prepare_samples(self, work: Any) -> bool:
        """False: samples are part of encoding, so there is nothing to prepare."""
        return False

    def annotated(self, label: str | None) -> AbstractContextManager[None] | None:
        """None: the label is set on the next command buffer and its encoders, and Instruments shows it."""
        self._label = label
        return None

    def replay(self, graph: NativeGraph, values: bytes, sample: bool, started: list[Run]) -> None:
        """Execute the indirect command buffer, or encode the list again."""
        if graph.backend is not self:
            raise ValueError("a graph is replayed on the device that it was made for")
        if len(values) < graph.value_bytes:
            raise ValueError(f"a replay of this graph takes {graph.value_bytes} bytes of values, got {len(values)}")
        run = MetalRun(self, graph.count, self._metal.MTLCommandBufferStatusError)
        turn = None
        if sample and self._samples:
            turn, graph.turn = graph.turn, graph.turn + 1
        indirect: Indirect | None = graph.indirect
        first = None
        if indirect is not None and graph.value_bytes:
            with self._pool():
                run.staging = self.staging.take(values[: graph.value_bytes])
                first = self.staging.copy(run.staging, indirect.arena, graph.value_bytes, self.encoded)
        work = indirect or Listed(self._framework, self._dispatches, graph.groups, graph.serial, graph.values(values))
        run.kept = (graph, work)
        self._encode_and_start(run, work, turn, False, started, first)

    # --- results ---------------------------------------------------------------------------------------------

    def resume(self, skipped: Collection[Run]) -> None:
        """Nothing to do: after a fault Metal runs everything that is queued, whatever it depends on."""

    def resolved(self, sampled: Any, count: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The samples of a run, in device time, and which of them are bounds."""
        with self._pool():
            ticks, bounded = sampled.resolve(count)
        return ticks, bounded

    def host_ns_of(self, ticks: np.ndarray) -> np.ndarray:
        """Device time in host time."""
        self._clock.renew()
        return self._clock.line.fit.host_ns_of(ticks).astype(np.uint64)

    @property
    def _samples(self) -> bool:
        """Whether samples can be taken; at an unsupported boundary Metal would abort the process."""
        return self._sampler.boundary is not Boundary.NONE

    def conditions(self) -> Conditions:
        """Nothing: Metal does not tell."""
        return Conditions()

    def close(self) -> None:
        """Wait for running work and release everything."""
        while self._started:
            self._started.popleft().event.wait()
        self.staging.close()
        self._compiler.kernels.clear()
        self._transfers = None

    def __repr__(self) -> str:
        return f"MetalBackend({self.capabilities.description})"


def _check_options(indirect: Any, fast_math: Any, subsets: Any) -> None:
    for name, value in (("indirect", indirect), ("fast_math", fast_math)):
        if not isinstance(value, bool):
            raise DeviceUnavailable(f"{name}={value!r}: expected True or False")
    if subsets is not None and (isinstance(subsets, bool) or not isinstance(subsets, int) or not 1 <= subsets <= 1024):
        raise DeviceUnavailable(f"subsets={subsets!r}: expected 1 to 1024, or None")
