"""What work costs on this machine before any kernel does something useful, and what a graph should therefore take.

Every figure is a median over repetitions after one that is thrown away, with an interval; every regime of a table is
its own code. The linear model is fitted to replays of graphs of no-op dispatches, chains and independent ones, of many
sizes: device time against dispatches, and dispatches that wait. `predict` adds what the bytes and operations of a
graph's dispatches need at the device's ceilings; what a measured run takes beyond that is the unexplained rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ceilings, counters
from .analyse.statistics import Fit, Interval, least_squares, median_interval
from .buffer import Buffer
from .ceilings import Ceilings
from .commands import Dispatch
from .encoder import CommandEncoder
from .graph import Graph
from .passes.snapshot import restored
from .pipeline import Kernel

if TYPE_CHECKING:
    from .device import Device

DISPATCH_COUNTS = (10, 50, 100, 500, 1_000, 5_000)
BUFFER_COUNTS = (1, 10, 50, 100)
MODEL_SIZES = (1, 10, 50, 100, 300, 1_000)
_LIST = 1_000

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

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DispatchRow:
    """A list of dispatches of one element: encoding it, then committing it and waiting."""

    dispatches: int
    encode_ns: Interval
    commit_and_wait_ns: Interval

    @property
    def encode_ns_per_dispatch(self) -> float:
        """The part of each dispatch."""
        return self.encode_ns.estimate / self.dispatches


@dataclass(frozen=True, slots=True)
class BufferRow:
    """Command buffers of one dispatch each: host time of one, in each regime."""

    buffers: int
    encode_only_ns: Interval
    """Encoded, then thrown away."""
    async_ns: Interval
    """Encoded and committed; all of them waited for at the end, outside the time."""
    sync_ns: Interval
    """Encoded, committed, and waited for one by one."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that was measured on one device."""

    device: str
    description: str
    dispatch_table: tuple[DispatchRow, ...]
    buffer_table: tuple[BufferRow, ...]
    barrier_ns: Interval
    """Host time to record one barrier."""
    binding_ns: Interval
    """Host time of one more buffer in a dispatch."""
    pipeline_switch_ns: Interval
    """Host time that another kernel than the one before costs."""
    ceilings: Ceilings
    model: Fit
    """Device time of a replay: a constant, per dispatch, and per dispatch that has to wait; ns."""

    def overhead_ns(self, dispatches: int, waiting: int) -> float:
        """What the model says a graph takes whose kernels do nothing."""
        constant, each, wait = (one.estimate for one in self.model.coefficients)
        return max(constant + each * dispatches + wait * waiting, 0.0)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a graph should take, and what it took when it was measured."""

    dispatches: int
    waiting: int
    overhead_ns: float
    work_ns: float
    """Sum of what each dispatch needs at the ceilings, by bytes or by operations, whichever is more."""
    unknown: int
    """Dispatches that declare neither bytes nor operations; of those the bound bytes were taken."""
    measured_ns: Interval | None = None

    @property
    def predicted_ns(self) -> float:
        """Overhead and work together."""
        return self.overhead_ns + self.work_ns

    @property
    def unexplained_ns(self) -> float | None:
        """What the measured time has beyond that; None when nothing was measured."""
        return None if self.measured_ns is None else self.measured_ns.estimate - self.predicted_ns

    def __str__(self) -> str:
        text = (
            f"predicted {self.predicted_ns / 1000:,.1f} µs: {self.overhead_ns / 1000:,.1f} µs for {self.dispatches}"
            f" dispatches of which {self.waiting} wait, {self.work_ns / 1000:,.1f} µs of work at the ceilings"
        )
        if self.unknown:
            text += f" ({self.unknown} by their bound bytes, an upper bound)"
        if self.measured_ns is not None and self.unexplained_ns is not None:
            share = self.unexplained_ns / self.measured_ns.estimate
            text += (
                f"; measured {self.measured_ns.estimate / 1000:,.1f} µs"
                f" ({self.measured_ns.low / 1000:,.1f} … {self.measured_ns.high / 1000:,.1f}),"
                f" unexplained {self.unexplained_ns / 1000:,.1f} µs ({share:.0%})"
            )
        return text


def calibrate(device: Device, repetitions: int = 9, progress: Progress | None = None) -> Calibration:
    """Measure a device; about ten seconds on a CPU. `progress` is told what comes next."""
    say = progress or (lambda what: None)
    with counters.uncounted():
        bench = _Bench(device, repetitions)
        say("ceilings")
        best = ceilings.of(device._queue, anew=True)
        dispatch_rows = []
        for count in DISPATCH_COUNTS:
            say(f"{count} dispatches")
            dispatch_rows.append(bench.dispatches(count))
        buffer_rows = []
        for count in BUFFER_COUNTS:
            say(f"{count} command buffers")
            buffer_rows.append(bench.buffers(count))
        say("barriers, bindings, pipelines")
        barrier, binding, switch = bench.barrier(), bench.binding(), bench.switch()
        say("linear model")
        model = bench.model()
    able = device.capabilities
    return Calibration(
        able.name,
        able.description,
        tuple(dispatch_rows),
        tuple(buffer_rows),
        barrier,
        binding,
        switch,
        best,
        model,
    )


def predict(graph: Graph, known: Calibration) -> Prediction:
    """What the graph should take on the calibrated device."""
    best = known.ceilings
    work_ns, unknown = 0.0, 0
    for node in graph.nodes:
        command = node.command
        if not isinstance(command, Dispatch):
            nbytes = sum(one.nbytes for one in node.buffers)
            work_ns += nbytes / best.copy_bytes_per_s * 1e9
            continue
        nbytes = (command.bytes_read or 0) + (command.bytes_written or 0)
        if command.bytes_read is None and command.bytes_written is None:
            nbytes = sum(one.nbytes for one in node.buffers)
            unknown += command.flops is None
        work_ns += max(nbytes / best.copy_bytes_per_s, (command.flops or 0) / best.flops_per_s) * 1e9
    waiting = len(np.unique(graph.edges[:, 1]))
    return Prediction(graph.dispatches, waiting, known.overhead_ns(len(graph), waiting), work_ns, unknown)


def explain(graph: Graph, known: Calibration, repetitions: int = 15, **values: Any) -> Prediction:
    """`predict`, beside the time of real replays; the memory that the graph writes is put back afterwards."""
    run = graph.instantiate()
    with counters.uncounted(), restored(graph):
        times = []
        for _ in range(repetitions + 1):
            submission = run.replay(**values)
            submission.wait()
            assert submission.gpu_time is not None
            times.append(submission.gpu_time[1] - submission.gpu_time[0])
    return replace(predict(graph, known), measured_ns=_interval(times[1:]))


class _Bench:
    """The measurements, on one device."""

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
        return [_interval(figures) for figures in zip(*rounds, strict=True)]

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
        def encode_only() -> float:
            begin = time.perf_counter_ns()
            for _ in range(count):
                enc = self.device.command_encoder()
                self.encode(enc, 1, self.mul)
                enc.discard()
            return (time.perf_counter_ns() - begin) / count

        def asynchronous() -> float:
            begin = time.perf_counter_ns()
            for _ in range(count):
                enc = self.device.command_encoder()
                self.encode(enc, 1, self.mul)
                last = enc.commit()
            spent = time.perf_counter_ns() - begin
            last.wait()
            return spent / count

        def synchronous() -> float:
            begin = time.perf_counter_ns()
            for _ in range(count):
                enc = self.device.command_encoder()
                self.encode(enc, 1, self.mul)
                enc.commit_and_wait()
            return (time.perf_counter_ns() - begin) / count

        return BufferRow(count, *self.repeated(lambda: (encode_only(), asynchronous(), synchronous())))

    def _list_ns(self, fill: Callable[[CommandEncoder], None]) -> float:
        enc = self.device.command_encoder()
        begin = time.perf_counter_ns()
        fill(enc)
        spent = time.perf_counter_ns() - begin
        enc.discard()
        return spent

    def _difference(self, more: Callable[[CommandEncoder], None], less: Callable[[CommandEncoder], None]) -> Interval:
        """Host ns that the one list takes beyond the other, a dispatch; the two take turns."""
        (found,) = self.repeated(lambda: ((self._list_ns(more) - self._list_ns(less)) / _LIST,))
        return found

    def barrier(self) -> Interval:
        def with_barriers(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.one, self.floats[0], threads=1)
                enc.memory_barrier()

        def without(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.one, self.floats[0], threads=1)

        return self._difference(with_barriers, without)

    def binding(self) -> Interval:
        def eight(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.eight, *self.floats, threads=1)

        def one(enc: CommandEncoder) -> None:
            for _ in range(_LIST):
                enc.dispatch(self.one, self.floats[0], threads=1)

        found = self._difference(eight, one)
        return Interval(found.estimate / 7, found.low / 7, found.high / 7, found.confidence)

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

    def model(self) -> Fit:
        """Replays of chains and of independent dispatches, of many sizes."""
        apart = [self.device.zeros(1, np.float32) for _ in range(max(MODEL_SIZES))]
        design, observed = [], []
        for size in MODEL_SIZES:
            for chained in (True, False):
                buffers = [self.floats[0]] * size if chained else apart[:size]
                graph = self.device.capture(partial(self._each, buffers))
                run = graph.instantiate()
                for repetition in range(self.repetitions + 1):
                    submission = run.replay()
                    submission.wait()
                    if repetition and submission.gpu_time is not None:
                        design.append((1, size, len(np.unique(graph.edges[:, 1]))))
                        observed.append(submission.gpu_time[1] - submission.gpu_time[0])
        return least_squares(design, observed)

    def _each(self, buffers: Sequence[Buffer], enc: CommandEncoder) -> None:
        for buffer in buffers:
            enc.dispatch(self.one, buffer, threads=1)


def _interval(values: Sequence[float]) -> Interval:
    found = median_interval(values)
    if found is not None:
        return found
    estimate = float(np.median(values))
    return Interval(estimate, float(np.min(values)), float(np.max(values)))
