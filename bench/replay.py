"""What a replay costs: the call, the run, the capture before it, beside PyOpenCL on PoCL and tinygrad's JIT.

* chain: 1,000 dispatches of one element, each waiting for the one before. "call" is the time until Python has control
  again, "wall" until the work is done. PyOpenCL has nothing to replay, so it enqueues the list anew each time;
  tinygrad replays a captured function (skipped where it is not installed, or finds no compiler).
* call by size: the time until `replay` returns, for graphs of growing length.
* two chains: two chains of equal kernels of one threadgroup each, against the same graph run serially.
* capture: encoding, noting who called, and the hazard analysis, per dispatch. The buffers are new each time, so the
  first dispatch on each of them is checked in full.
* passes: fuse and reorder over eight interleaved chains of RMS norm and multiply.

    python bench/replay.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import pyopencl as cl

import ostinato
from harness import Table, interleaved, median, ratio, report

CHAIN = 1_000
SIZES = (10, 100, 1_000, 10_000, 100_000)

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void increment(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1.0f; }

kernel void heavy(device uint *x [[buffer(0)]], constant uint &steps [[buffer(1)]]) {
    uint value = x[0];
    for (uint i = 0; i < steps; ++i) {
        value = value * 1664525u + 1013904223u;
        value ^= value >> 13;
    }
    x[0] = value;
}
"""
OPENCL = "kernel void increment(global float *x) { x[get_global_id(0)] += 1.0f; }"

Timed = Callable[[], tuple[float, float]]  # seconds of the call, and until all is done


class Ostinato:
    """Chains of one-element dispatches as graphs."""

    def __init__(self) -> None:
        self.device = ostinato.open_device("cpu")
        self.library = self.device.library(METAL)
        self.x = self.device.zeros(1, np.float32)

    def chain(self, count: int) -> ostinato.Graph:
        kernel, x = self.library["increment"], self.x

        def encode(encoder: ostinato.CommandEncoder) -> None:
            for _ in range(count):
                encoder.dispatch(kernel, x, threads=1)

        return self.device.capture(encode)

    def timed(self, count: int) -> Timed:
        run = self.chain(count).instantiate()

        def once() -> tuple[float, float]:
            start = time.perf_counter()
            submission = run.replay()
            called = time.perf_counter()
            submission.wait()
            return called - start, time.perf_counter() - start

        return once

    def two_chains(self, serial: bool) -> Callable[[], float]:
        kernel = self.library["heavy"]
        ends = [self.device.zeros(64, np.uint32)[:1] for _ in range(2)]

        def encode(encoder: ostinato.CommandEncoder) -> None:
            for _ in range(20):
                for x in ends:
                    encoder.dispatch(kernel, x, 200_000, threads=1)

        run = self.device.capture(encode, barriers="serial" if serial else "auto").instantiate()

        def once() -> float:
            start = time.perf_counter()
            run.replay().wait()
            return time.perf_counter() - start

        return once

    def capture(self, count: int, different: int) -> tuple[float, float, float]:
        """Seconds of encoding, of closing the capture with its analysis, and of instantiating."""
        kernel = self.library["increment"]
        buffers = [self.device.zeros(1, np.float32) for _ in range(different)]
        encoder = self.device.command_encoder()
        encoder.start_capture()
        start = time.perf_counter()
        for index in range(count):
            encoder.dispatch(kernel, buffers[index * 7 % len(buffers)], threads=1)
        encoded = time.perf_counter()
        graph = encoder.take_capture()
        assert graph is not None
        assert len(graph.edges) == count - len(buffers)
        analysed = time.perf_counter()
        graph.instantiate()
        return encoded - start, analysed - encoded, time.perf_counter() - analysed


def pocl(count: int) -> Timed:
    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, OPENCL).build(), "increment")
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)

    def once() -> tuple[float, float]:
        start = time.perf_counter()
        for _ in range(count):
            kernel.set_args(x)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        queue.flush()
        called = time.perf_counter()
        queue.finish()
        return called - start, time.perf_counter() - start

    return once


def tinygrad(count: int) -> Timed | None:
    os.environ["DEV"] = "CPU"
    try:
        from tinygrad import Device, GlobalCounters, Tensor, TinyJit

        @TinyJit
        def chain(x: Tensor) -> Tensor:
            for _ in range(count):
                x = (x + 1).contiguous()
            return x.realize()

        x = Tensor([0.0]).realize()
        for _ in range(3):  # the third call is the first replay
            before = GlobalCounters.kernel_count
            chain(x)
        if GlobalCounters.kernel_count - before not in (count, 1):  # 1 where it counts a captured batch as one
            return None
    except Exception as error:  # not installed, no compiler, another interface
        print(f"tinygrad left out: {error!r}")
        return None

    def once() -> tuple[float, float]:
        start = time.perf_counter()
        chain(x)
        called = time.perf_counter()
        Device[Device.DEFAULT].synchronize()
        return called - start, time.perf_counter() - start

    return once


def compared(ours: Ostinato, rounds: int) -> Table:
    contenders = {"ostinato": ours.timed(CHAIN), "PyOpenCL": pocl(CHAIN)}
    peer = tinygrad(CHAIN)
    if peer is not None:
        contenders["tinygrad JIT"] = peer
    calls: dict[str, list[float]] = {name: [] for name in contenders}

    def turn(name: str) -> Callable[[], float]:
        def once() -> float:
            call, wall = contenders[name]()
            calls[name].append(call * 1e6)
            return wall * 1e6 / CHAIN

        return once

    walls = interleaved({name: turn(name) for name in contenders}, rounds)
    rows = [
        (name, round(median(calls[name][1:]), 1), round(median(wall), 3), round(ratio(walls["ostinato"], wall), 3))
        for name, wall in walls.items()
    ]
    return Table(f"Chain of {CHAIN:,} dispatches", ("", "call µs", "wall µs a dispatch", "ours / theirs"), rows)


def by_size(ours: Ostinato, rounds: int) -> Table:
    rows = []
    for size in SIZES:
        once = ours.timed(size)
        runs = [once() for _ in range(rounds + 1)][1:]
        call = median([call for call, _ in runs]) * 1e6
        wall = median([wall for _, wall in runs]) * 1e6
        rows.append((size, round(call, 1), round(wall / size, 3)))
    return Table("Replay by size, one chain", ("N", "call µs", "wall µs a dispatch"), rows)


def overlapping(ours: Ostinato, rounds: int) -> Table:
    times = interleaved({"overlapping": ours.two_chains(False), "serial": ours.two_chains(True)}, rounds)
    row = (
        round(median(times["overlapping"]) * 1e3, 2),
        round(median(times["serial"]) * 1e3, 2),
        round(ratio(times["overlapping"], times["serial"]), 2),
    )
    return Table("Two chains of heavy one-group kernels", ("overlapping ms", "serial ms", "ratio"), [row])


def captured(ours: Ostinato, rounds: int) -> Table:
    rows = []
    for size, different in ((100, 10), (1_000, 100), (10_000, 100), (100_000, 100), (100_000, 10_000)):
        runs = [ours.capture(size, different) for _ in range(min(rounds, 5) + 1)][1:]
        parts = [median([run[part] for run in runs]) * 1e6 / size for part in range(3)]
        rows.append((size, different, *(round(part, 2) for part in parts), round(parts[0] + parts[1], 2)))
    columns = ("N", "buffers", "encode µs", "close + analyse µs", "instantiate µs", "capture + analysis µs")
    return Table("Capture, per dispatch", columns, rows)


def optimised(ours: Ostinato, rounds: int) -> Table:
    device = ours.device
    lanes = [[device.zeros((1, 8), np.float32) for _ in range(4)] for _ in range(8)]
    weight = device.zeros((1, 8), np.float32)

    def encode(encoder: ostinato.CommandEncoder, count: int) -> None:
        for index in range(count // 2):
            x, normed, out, gain = lanes[index % 8]
            ostinato.ops.rms_norm(encoder, x, weight, normed)
            ostinato.ops.mul(encoder, normed, gain, out)

    rows = []
    for size in SIZES[2:]:
        graph = device.capture(lambda encoder, size=size: encode(encoder, size))
        graph.edges  # noqa: B018  (found when first asked for; not part of a pass)
        spent: dict[str, list[float]] = {"fuse": [], "reorder": []}
        for _ in range(3):
            for name, run in (("fuse", ostinato.passes.fuse), ("reorder", ostinato.passes.reorder)):
                _, report = run(graph)
                spent[name].append(report.spent_ns / 1000 / size)
        rows.append((size, round(median(spent["fuse"]), 1), round(median(spent["reorder"]), 1)))
    return Table("Passes, per node", ("N", "fuse µs", "reorder µs"), rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=15, help="measurements of each cell (default 15)")
    arguments = options.parse_args()
    ours = Ostinato()
    tables = [step(ours, arguments.rounds) for step in (compared, by_size, overlapping, captured, optimised)]
    report(tables, arguments.json)


if __name__ == "__main__":
    main()
