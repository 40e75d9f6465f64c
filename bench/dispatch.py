"""What one dispatch costs: encoding and submitting it from Python, and running it, beside PyOpenCL on PoCL.

Both sides set the arguments on every dispatch of a kernel that increments one element. "encode" is the loop of
dispatches alone, "submit" the commit (a flush in OpenCL), "run" the time from commit to completion of a list whose
dispatches each wait for the one before (in OpenCL the list is held back by a user event until it is complete).

    python bench/dispatch.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyopencl as cl

import ostinato
from harness import Table, interleaved, median, ratio, report

COUNTS = (10, 50, 100, 500, 1_000, 5_000)

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void increment(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                      uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1.0f; }
"""
OPENCL = """
kernel void increment(global const float *in, global float *out) {
  out[get_global_id(0)] = in[get_global_id(0)] + 1.0f;
}
"""


class Ostinato:
    """One list of n dispatches on our CPU device; ``split`` holds the seconds of each part."""

    def __init__(self) -> None:
        self.device = ostinato.open_device("cpu")
        self.kernel = self.device.library(METAL)["increment"]
        self.input, self.output = (self.device.zeros(1, np.float32) for _ in range(2))

    def run(self, count: int) -> tuple[float, float, float]:
        kernel, source, target = self.kernel, self.input, self.output
        encoder = self.device.command_encoder()
        start = time.perf_counter()
        for _ in range(count):
            encoder.dispatch(kernel, source, target, threads=1)
        encoded = time.perf_counter()
        submission = encoder.commit()
        submitted = time.perf_counter()
        submission.wait()
        return encoded - start, submitted - encoded, time.perf_counter() - encoded


class PoCL:
    """The same through PyOpenCL."""

    def __init__(self) -> None:
        self.context = cl.Context(cl.get_platforms()[0].get_devices())
        self.queue = cl.CommandQueue(self.context)
        self.kernel = cl.Kernel(cl.Program(self.context, OPENCL).build(), "increment")
        self.input, self.output = (cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4) for _ in range(2))
        self.run(10)

    def run(self, count: int) -> tuple[float, float, float]:
        kernel, queue, source, target = self.kernel, self.queue, self.input, self.output
        start = time.perf_counter()
        for _ in range(count):
            kernel.set_args(source, target)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        encoded = time.perf_counter()
        queue.flush()
        submitted = time.perf_counter()
        queue.finish()
        gate = cl.UserEvent(self.context)
        cl.enqueue_marker(queue, wait_for=[gate])
        for _ in range(count):
            kernel.set_args(source, target)
            cl.enqueue_nd_range_kernel(queue, kernel, (1,), None)
        queue.flush()
        released = time.perf_counter()
        gate.set_status(cl.command_execution_status.COMPLETE)
        queue.finish()
        return encoded - start, submitted - encoded, time.perf_counter() - released


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=9, help="measurements of each cell (default 9)")
    arguments = options.parse_args()
    ours, theirs = Ostinato(), PoCL()
    rows = []
    for count in COUNTS:
        parts: dict[str, list[tuple[float, float, float]]] = {"ostinato": [], "pocl": []}

        def turn(name: str, count: int = count, parts: dict[str, list[tuple[float, float, float]]] = parts) -> float:
            parts[name].append((ours if name == "ostinato" else theirs).run(count))
            return 0.0

        interleaved({"ostinato": lambda t=turn: t("ostinato"), "pocl": lambda t=turn: t("pocl")}, arguments.rounds)
        scale = 1e6 / count
        mine, other = ([[part * scale for part in run] for run in parts[name][1:]] for name in ("ostinato", "pocl"))
        submitted = [[encode + submit for encode, submit, _ in runs] for runs in (mine, other)]
        run = [[wall for _, _, wall in runs] for runs in (mine, other)]
        rows.append(
            (
                count,
                round(median([encode for encode, _, _ in mine]), 2),
                round(median([submit for _, submit, _ in mine]), 2),
                round(median(submitted[1]), 2),
                round(ratio(*submitted), 2),
                round(median(run[0]), 2),
                round(median(run[1]), 2),
                round(ratio(*run), 2),
            )
        )
    columns = (
        "N",
        "encode µs",
        "submit µs",
        "PyOpenCL encode+submit µs",
        "ratio",
        "run µs",
        "PoCL run µs",
        "ratio run",
    )
    report([Table("One dispatch: encode, submit, run (per dispatch)", columns, rows)], arguments.json)


if __name__ == "__main__":
    main()
