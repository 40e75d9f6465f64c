"""Throughput of three kernels beside PoCL running the same algorithm on the same cores.

A 16 Mi-element addition, an RMS norm of 1,024 rows of 4,096 (256 threads a row, tree reduction through threadgroup
memory: ten barriers) and a 4,096 x 4,096 matrix-vector product (one group of 64 threads a row, tree reduction).
Results are checked against NumPy before anything is timed. A second RMS norm and product, written with simdgroup sums
as a Metal author would, have no counterpart in PoCL and are shown for comparison.

    python bench/throughput.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pyopencl as cl

import ostinato
from harness import Table, interleaved, median, ratio, report, seconds
from sources import OPENCL_REDUCTIONS, REDUCTIONS

N = 16 << 20
ROWS, WIDTH = 1_024, 4_096
SIDE = 4_096

METAL = f"""{REDUCTIONS}
kernel void add(device const float *a, device const float *b, device float *c, uint i [[thread_position_in_grid]]) {{
  c[i] = a[i] + b[i];
}}
"""

OPENCL = f"""{OPENCL_REDUCTIONS}
kernel void add(global const float *a, global const float *b, global float *c) {{
  size_t i = get_global_id(0);
  c[i] = a[i] + b[i];
}}
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=11, help="measurements of each cell (default 11)")
    arguments = options.parse_args()

    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal(N, dtype=np.float32) for _ in range(2))
    x = generator.standard_normal((ROWS, WIDTH), dtype=np.float32)
    m = generator.standard_normal((SIDE, SIDE), dtype=np.float32)
    v = generator.standard_normal(SIDE, dtype=np.float32)
    norm = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
    product = m.astype(np.float64) @ v.astype(np.float64)

    device = ostinato.open_device("cpu")
    library = device.library(METAL)
    context = cl.Context(cl.get_platforms()[0].get_devices())
    queue = cl.CommandQueue(context)
    program = cl.Program(context, OPENCL).build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR

    def ours(
        name: str, inputs: list[np.ndarray], size: int, extra: list[int], **geometry: object
    ) -> Callable[[], np.ndarray]:
        buffers = [device.array(array) for array in inputs]
        out = device.zeros(size, np.float32)

        def run() -> np.ndarray:
            encoder = device.command_encoder()
            encoder.dispatch(library[name], *buffers, out, *extra, **geometry)
            encoder.commit_and_wait()
            return out.as_numpy()

        return run

    def theirs(
        name: str, inputs: list[np.ndarray], size: int, extra: list[int], total: int, group: int | None
    ) -> Callable[[], np.ndarray]:
        kernel = cl.Kernel(program, name)
        buffers = [cl.Buffer(context, flags, hostbuf=array) for array in inputs]
        out = cl.Buffer(context, flags, hostbuf=np.zeros(size, np.float32))
        values = [np.uint32(value) for value in extra]
        result = np.empty(size, np.float32)

        def run() -> np.ndarray:
            kernel.set_args(*buffers, out, *values)
            cl.enqueue_nd_range_kernel(queue, kernel, (total,), None if group is None else (group,))
            queue.finish()
            return result

        run()
        cl.enqueue_copy(queue, result, out).wait()
        return run

    cases: list[tuple[str, np.ndarray, Callable[[], np.ndarray], Callable[[], np.ndarray] | None, int]] = [
        (
            "add, 16 Mi elements",
            a + b,
            ours("add", [a, b], N, [], threads=N),
            theirs("add", [a, b], N, [], N, None),
            3 * 4 * N,
        ),
        (
            "RMS norm, 1,024 x 4,096",
            norm,
            ours("rms_norm_barriers", [x], x.size, [WIDTH], groups=ROWS, group_size=256),
            theirs("rms_norm", [x], x.size, [WIDTH], ROWS * 256, 256),
            2 * 4 * x.size,
        ),
        (
            "matrix-vector, 4,096 x 4,096",
            product,
            ours("matvec_barriers", [m, v], SIDE, [SIDE], groups=SIDE, group_size=64),
            theirs("matvec", [m, v], SIDE, [SIDE], SIDE * 64, 64),
            4 * m.size,
        ),
        (
            "RMS norm with simd_sum",
            norm,
            ours("rms_norm_simd", [x], x.size, [WIDTH], groups=ROWS, group_size=256),
            None,
            2 * 4 * x.size,
        ),
        (
            "matrix-vector with simd_sum",
            product,
            ours("matvec_simd", [m, v], SIDE, [SIDE], groups=SIDE, group_size=32),
            None,
            4 * m.size,
        ),
    ]
    rows = []
    for title, expected, mine, other, moved in cases:
        for run in (mine, other):
            if run is not None:
                np.testing.assert_allclose(run().reshape(expected.shape), expected, rtol=2e-4, atol=2e-3)
        contenders = {"ostinato": lambda run=mine: seconds(run)}
        if other is not None:
            contenders["pocl"] = lambda run=other: seconds(run)
        times = interleaved(contenders, arguments.rounds)
        own = median(times["ostinato"])
        rows.append(
            (
                title,
                round(own * 1e3, 2),
                round(moved / own / 1e9, 1),
                round(median(times["pocl"]) * 1e3, 2) if other else "–",
                round(1 / ratio(times["ostinato"], times["pocl"]), 2) if other else "–",
            )
        )
    columns = ("kernel", "ostinato ms", "GB/s", "PoCL ms", "times as fast")
    report([Table("Throughput", columns, rows)], arguments.json)


if __name__ == "__main__":
    main()
