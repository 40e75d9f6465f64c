"""The overhead of dispatches and command buffers on a machine, and a prediction of what a graph should take.

Each figure is a median over repetitions after a warm-up, with an interval. The linear model is a fit to the median
replay times of graphs of no-op dispatches, chains and independent ones, of many sizes: a constant, a cost of each
dispatch that waits for another, and a cost of each that does not. If it does not fit the machine, there is no
prediction. `predict` adds the time of the graph's bytes and operations at the device's ceilings. It runs nothing, so it
does not account for slow kernels, data in caches, or dispatches that overlap. `explain` replays the graph, and does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import counters
from ..encode.encoder import CommandEncoder
from ..errors import OstinatoError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..ir.commands import Barrier, Dispatch
from ..ir.costs import settled
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from . import ceilings
from .analyse import formatting
from .analyse.statistics import Interval, least_squares
from .ceilings import Ceilings
from .explaining import Explanation as Explanation
from .explaining import Progress, interval_of
from .explaining import explain as explain

if TYPE_CHECKING:
    from ..device import Device

_Measured = TypeVar("_Measured")

DISPATCH_COUNTS = (10, 50, 100, 500, 1_000, 5_000)
BUFFER_COUNTS = (1, 10, 50, 100)
MODEL_SIZES = (1, 10, 50, 100, 300, 1_000)
LEAST_R_SQUARED = 0.9
"""A model with a lower R² does not describe the machine."""
_LIST = 1_000
# Replays are short, and whether a second worker joins in is random: their medians need this many times more rounds.
_REPLAYS = 5

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void scalar_mul(device const bfloat *in [[buffer(0)]], device bfloat *out [[buffer(1)]],
                       constant float &factor [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = bfloat(float(in[id]) * factor);
}
kernel void scalar_add(device const bfloat *in [[buffer(0)]], device bfloat *out [[buffer(1)]],
                       constant float &added [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    out[id] = bfloat(float(in[id]) + added);
}
kernel void one_buffer(device float *a [[buffer(0)]]) { a[0] = 1.0f; }
kernel void eight_buffers(device float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                          device const float *c [[buffer(2)]], device const float *d [[buffer(3)]],
                          device const float *e [[buffer(4)]], device const float *f [[buffer(5)]],
                          device const float *g [[buffer(6)]], device const float *h [[buffer(7)]]) {
    a[0] = b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0];
}
"""


class FitError(OstinatoError, ValueError):
    """The linear model does not fit the calibrated machine, so there is no prediction."""


@dataclass(frozen=True, slots=True)
class ReplayModel:
    """Device time of a replay: a constant, and a cost of each dispatch. No coefficient is negative."""

    constant_ns: Interval
    waiting_ns: Interval
    """Cost of a dispatch that waits for another."""
    free_ns: Interval
    """Cost of a dispatch that waits for none."""
    r_squared: float
    """The part of the (weighted) variance of the medians that it explains; 0 if they do not vary."""

    @property
    def describes(self) -> bool:
        """Whether it fits well enough for predictions."""
        return self.r_squared >= LEAST_R_SQUARED


@dataclass(frozen=True, slots=True)
class DispatchRow:
    """A list of dispatches of one element: encoding it, then committing it and waiting."""

    dispatches: int
    encode_ns: Interval
    commit_and_wait_ns: Interval

    @property
    def encode_ns_per_dispatch(self) -> float:
        """Encode time per dispatch."""
        return self.encode_ns.estimate / self.dispatches


@dataclass(frozen=True, slots=True)
class BufferRow:
    """Command buffers of one dispatch each: host time of one, in each regime."""

    buffers: int
    encode_only_ns: Interval
    """Encoded, then discarded."""
    async_ns: Interval
    """Encoded and committed; the wait at the end is not included."""
    sync_ns: Interval
    """Encoded, committed, and waited for one by one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measurements of one device."""

    device: str
    description: str
    dispatch_table: tuple[DispatchRow, ...]
    buffer_table: tuple[BufferRow, ...]
    barrier_ns: Interval
    """Host time to record one barrier."""
    binding_ns: Interval
    """Host time of one more buffer in a dispatch."""
    pipeline_switch_ns: Interval
    """Host time of switching to another kernel."""
    ceilings: Ceilings
    model: ReplayModel

    def overhead_ns(self, dispatches: int, waiting: int) -> float:
        """The predicted device time of a graph of no-op dispatches, of which `waiting` wait for another."""
        model = self.model
        if not model.describes:
            raise FitError(
                f"the linear model explains {model.r_squared:.0%} of the variance of replay times on {self.device},"
                f" less than {LEAST_R_SQUARED:.0%}, so it predicts nothing; calibrate again on an idle machine"
            )
        free = dispatches - waiting
        return model.constant_ns.estimate + model.waiting_ns.estimate * waiting + model.free_ns.estimate * free

    def work_ns(self, graph: Graph, params: Mapping[str, Any]) -> tuple[float, int]:
        """The time of a graph's dispatches at the ceilings, added up, and how many of them declare neither bytes nor
        operations: for those the bound bytes are used."""
        best = self.ceilings
        values = {name: value for name, value in params.items() if name in graph.params}
        work_ns, unknown = 0.0, 0
        for node in graph.nodes:
            command = node.command
            if not isinstance(command, Dispatch):
                nbytes = sum(buffer.nbytes for buffer in node.buffers)
                work_ns += nbytes / best.copy_bytes_per_s * 1e9
                continue
            amounts = (settled(amount, values) for amount in (command.bytes_read, command.bytes_written, command.flops))
            bytes_read, bytes_written, flops = amounts
            nbytes = (bytes_read or 0) + (bytes_written or 0)
            if bytes_read is None and bytes_written is None:
                nbytes = sum(buffer.nbytes for buffer in node.buffers)
                unknown += flops is None
            work_ns += max(nbytes / best.copy_bytes_per_s, (flops or 0) / best.flops_per_s) * 1e9
        return work_ns, unknown


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a graph should take according to a calibration; `explain` measures it."""

    dispatches: int
    waiting: int
    overhead_ns: float
    work_ns: float
    """Sum over dispatches of the time at the ceilings, by bytes or by operations, whichever is longer."""
    unknown: int
    """Dispatches that declare neither bytes nor operations; for those the bound bytes are used."""

    @property
    def predicted_ns(self) -> float:
        """Overhead and work together."""
        return self.overhead_ns + self.work_ns

    def __str__(self) -> str:
        text = (
            f"predicted {formatting.time(self.predicted_ns)}: {formatting.time(self.overhead_ns)} overhead of"
            f" {self.dispatches:,} dispatches ({self.waiting:,} wait for another),"
            f" {formatting.time(self.work_ns)} of work at the ceilings"
        )
        if self.unknown:
            text += f" ({self.unknown:,} by their bound bytes, an upper bound)"
        return text


def calibrate(device: Device, repetitions: int = 9, progress: Progress | None = None) -> Calibration:
    """Measures a device, in a second or two on a CPU. `progress` is called before every step, and at the end."""
    total = 1 + len(DISPATCH_COUNTS) + len(BUFFER_COUNTS) + 3 + len(MODEL_SIZES)
    done = 0

    def step(what: str, measure: Callable[[], _Measured]) -> _Measured:
        nonlocal done
        if progress is not None:
            progress(what, done, total)
        measured = measure()
        done += 1
        return measured

    with counters.uncounted():
        bench = _Bench(device, repetitions)
        best = step("ceilings", lambda: ceilings.of(device._queue, anew=True))
        dispatch_rows = [step(f"{n:,} dispatches", partial(bench.dispatches, n)) for n in DISPATCH_COUNTS]
        buffer_rows = [step(f"{n:,} command buffers", partial(bench.buffers, n)) for n in BUFFER_COUNTS]
        barrier = step("barriers", bench.barrier)
        binding = step("bindings", bench.binding)
        switch = step("kernel switches", bench.switch)
        replays = [each for n in MODEL_SIZES for each in step(f"replays of {n:,}", partial(bench.replays, n))]
    if progress is not None:
        progress("done", done, total)
    capabilities = device.capabilities
    return Calibration(
        capabilities.name,
        capabilities.description,
        tuple(dispatch_rows),
        tuple(buffer_rows),
        barrier,
        binding,
        switch,
        best,
        fitted(replays),
    )


def predict(graph: Graph, known: Calibration, *, params: Mapping[str, Any] | None = None) -> Prediction:
    """What the graph should take on the calibrated device, without running it; `params` are the values of a replay.

    Bytes and operations that depend on a value which is not given count as undeclared.
    """
    work_ns, unknown = known.work_ns(graph, params or {})
    # Barriers are no work of their own: they make others wait.
    working = np.array([not isinstance(node.command, Barrier) for node in graph.nodes], bool)
    waiting = int(working[np.unique(graph.edges[:, 1])].sum())
    overhead_ns = known.overhead_ns(int(working.sum()), waiting)
    return Prediction(graph.dispatches, waiting, overhead_ns, work_ns, unknown)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A graph of no-op dispatches, and the median device time of its replays."""

    dispatches: int
    waiting: int
    """How many of them wait for another."""
    median_ns: float


def fitted(replays: Sequence[Replayed]) -> ReplayModel:
    """The model of some replays, by least squares with weights of 1 / dispatches, so that small graphs count too.

    A coefficient that would be negative is 0, with the upper end of its interval, and the others are fitted without it.
    """
    design = np.array([(1, each.waiting, each.dispatches - each.waiting) for each in replays], np.float64)
    observed = np.array([each.median_ns for each in replays], np.float64)
    weights = 1 / np.array([each.dispatches for each in replays], np.float64)
    coefficients = [Interval(0.0, 0.0, 0.0)] * 3
    left = [0, 1, 2]
    while left:
        roots = np.sqrt(weights)
        fit = least_squares(design[:, left] * roots[:, None], observed * roots)
        for column, each in zip(left, fit, strict=True):
            coefficients[column] = Interval(
                max(each.estimate, 0.0), max(each.low, 0.0), max(each.high, 0.0), each.confidence
            )
        lowest = min(range(len(left)), key=lambda at: fit[at].estimate)
        if fit[lowest].estimate >= 0:
            break
        del left[lowest]
    residuals = observed - design @ np.array([each.estimate for each in coefficients])
    spread = observed - float(weights @ observed) / float(weights.sum())
    varies = float(weights @ spread**2)
    constant, waiting, free = coefficients
    explained = 1 - float(weights @ residuals**2) / varies if varies > 0 else 0.0
    return ReplayModel(constant, waiting, free, explained)


class _Bench:
    """Runs the measurements on one device."""

    def __init__(self, device: Device, repetitions: int) -> None:
        self.device = device
        self.repetitions = repetitions
        library = device.library(SOURCE)
        self.mul, self.add = library["scalar_mul"], library["scalar_add"]
        self.one, self.eight = library["one_buffer"], library["eight_buffers"]
        self.source, self.target = device.zeros(1, "bfloat16"), device.zeros(1, "bfloat16")
        self.floats = [device.zeros(1, np.float32) for _ in range(8)]

    def encode(self, enc: CommandEncoder, count: int, kernel: Kernel) -> None:
        source, target = self.source, self.target
        for _ in range(count):
            enc.dispatch(kernel, source, target, 1.0, threads=1)

    def repeated(self, once: Callable[[], Sequence[float]]) -> list[Interval]:
        """Medians of each figure that `once` gives."""
        rounds = [once() for _ in range(self.repetitions + 1)][1:]
        return [interval_of(figures) for figures in zip(*rounds, strict=True)]

    def dispatches(self, count: int) -> DispatchRow:
        def once() -> tuple[float, float]:
            enc = self.device.command_encoder()
            begin = time.perf_counter_ns()
            self.encode(enc, count, self.mul)
            encoded = time.perf_counter_ns()
            enc.commit_and_wait()
            return encoded - begin, time.perf_counter_ns() - encoded

        return DispatchRow(count, *self.repeated(once))

    def buffers(self, count: int) -> BufferRow:
        regimes = (self.encode_only, self.asynchronous, self.synchronous)
        return BufferRow(count, *self.repeated(lambda: [regime(count) for regime in regimes]))

    def encode_only(self, count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            enc = self.device.command_encoder()
            self.encode(enc, 1, self.mul)
            enc.discard()
        return (time.perf_counter_ns() - begin) / count

    def asynchronous(self, count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            enc = self.device.command_encoder()
            self.encode(enc, 1, self.mul)
            last = enc.commit()
        spent = time.perf_counter_ns() - begin
        last.wait()
        return spent / count

    def synchronous(self, count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            enc = self.device.command_encoder()
            self.encode(enc, 1, self.mul)
            enc.commit_and_wait()
        return (time.perf_counter_ns() - begin) / count

    def _list_ns(self, fill: Callable[[CommandEncoder], None]) -> float:
        enc = self.device.command_encoder()
        begin = time.perf_counter_ns()
        fill(enc)
        spent = time.perf_counter_ns() - begin
        enc.discard()
        return spent

    def _difference(self, more: Callable[[CommandEncoder], None], less: Callable[[CommandEncoder], None]) -> Interval:
        """The difference of host ns per dispatch between two lists, measured alternately."""
        (difference,) = self.repeated(lambda: ((self._list_ns(more) - self._list_ns(less)) / _LIST,))
        return difference

    def _plain(self, enc: CommandEncoder) -> None:
        for _ in range(_LIST):
            enc.dispatch(self.one, self.floats[0], threads=1)

    def barrier(self) -> Interval:
        def with_barriers(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.one, self.floats[0], threads=1)
                enc.memory_barrier()

        return self._difference(with_barriers, self._plain)

    def binding(self) -> Interval:
        def eight(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.eight, *self.floats, threads=1)

        seven = self._difference(eight, self._plain)
        return Interval(seven.estimate / 7, seven.low / 7, seven.high / 7, seven.confidence)

    def switch(self) -> Interval:
        def alternating(enc: CommandEncoder) -> None:
            for _ in range(_LIST // 2):
                self.encode(enc, 1, self.mul)
                self.encode(enc, 1, self.add)

        def same(enc: CommandEncoder) -> None:
            for _ in range(_LIST // 2):
                self.encode(enc, 1, self.mul)
                self.encode(enc, 1, self.mul)

        return self._difference(alternating, same)

    def replays(self, size: int) -> list[Replayed]:
        """A chain and as many independent dispatches."""
        rows = []
        for buffers in ([self.floats[0]] * size, [self.device.zeros(1, np.float32) for _ in range(size)]):
            graph = self.device.capture(partial(self._each, buffers))
            run = graph.instantiate()
            times = [_device_ns(run, {}) for _ in range(_REPLAYS * self.repetitions + 1)]
            rows.append(Replayed(size, len(np.unique(graph.edges[:, 1])), float(np.median(times[1:]))))
        return rows

    def _each(self, buffers: Sequence[Buffer], enc: CommandEncoder) -> None:
        for buffer in buffers:
            enc.dispatch(self.one, buffer, threads=1)


def _device_ns(run: Replayable, values: Mapping[str, Any]) -> int:
    submission = run.replay(**values)
    submission.wait()
    times = submission.gpu_time
    assert times is not None
    return times[1] - times[0]
