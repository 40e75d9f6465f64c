"""Kernels with simdgroup functions on the CPU, beside the same work without them, without a clang, and on PoCL.

An RMS norm of 1,024 rows of 4,096, a 4,096 x 4,096 matrix-vector product, and products of 512 x 512 matrices through
simdgroup matrices, in half and in float. Results are checked against NumPy before anything is timed. All contenders
of a table take turns in one process. "no clang" is the same kernel as it runs where there is none: split at its
barriers, or as fibers. PoCL runs the versions with barriers. The peak is the most that kernels of independent
multiply-adds reach in the same run.

    python bench/simdgroups.py [--json] [--quick] [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np

import ostinato
from harness import Table, interleaved, median, ratio, report, seconds
from ostinato.native import toolchain
from ostinato.profiling.analyse.statistics import median_interval
from sources import OPENCL_REDUCTIONS, REDUCTIONS

# Each simdgroup makes a block of 32 x 32 from tiles of 8 x 8; four simdgroups a group make 64 x 64.
PRODUCT = """
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void product(device const T *a [[buffer(0)]], device const T *b [[buffer(1)]], device float *c [[buffer(2)]],
                    constant uint &side [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group.y * 64 + (simdgroup / 2) * 32, column = group.x * 64 + (simdgroup % 2) * 32;
  simdgroup_matrix<float, 8, 8> sums[4][4];
  for (uint i = 0; i < 4; ++i)
    for (uint j = 0; j < 4; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < side; k += 8) {
    simdgroup_matrix<T, 8, 8> left[4], right[4];
    for (uint i = 0; i < 4; ++i) simdgroup_load(left[i], a + (row + 8 * i) * side + k, side);
    for (uint j = 0; j < 4; ++j) simdgroup_load(right[j], b + k * side + column + 8 * j, side);
    for (uint i = 0; i < 4; ++i)
      for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i][j], left[i], right[j], sums[i][j]);
  }
  for (uint i = 0; i < 4; ++i)
    for (uint j = 0; j < 4; ++j) simdgroup_store(sums[i][j], c + (row + 8 * i) * side + column + 8 * j, side);
}

template [[host_name("product_float16")]] kernel decltype(product<half>) product<half>;
template [[host_name("product_float32")]] kernel decltype(product<float>) product<float>;
"""

# How many chains fill the machine depends on its registers and latencies, and on whether lanes are vectors, which
# they are in kernels with simdgroup functions; so several are tried, as scalars and as vectors of the language.
CHAINS = (2, 3, 4, 6, 8)
PEAK_THREADS, PEAK_STEPS = 4_096, 4_096
PEAK = (
    "#include <metal_stdlib>\nusing namespace metal;\n"
    + "".join(
        f"kernel void lanes_{count}(device const float *in, device float *out, constant uint &steps,"
        " uint id [[thread_position_in_grid]]) {\n"
        "  const float factor = in[0], addend = in[1];\n"
        + "".join(f"  float x{i} = in[2] + float(id + {i});\n" for i in range(count))
        + "  for (uint step = 0; step < steps; ++step) {\n"
        + "".join(f"    x{i} = fma(x{i}, factor, addend);\n" for i in range(count))
        + "  }\n"
        + f"  out[id] = simd_sum({' + '.join(f'x{i}' for i in range(count))});\n}}\n"
        for count in CHAINS
    )
    + "".join(
        f"kernel void vectors_{count}(device const float *in, device float *out, constant uint &steps,"
        " uint id [[thread_position_in_grid]]) {\n"
        "  const float4 factor = in[0], addend = in[1];\n"
        + "".join(f"  float4 x{i} = in[2] + float(id + {i});\n" for i in range(count))
        + "  for (uint step = 0; step < steps; ++step) {\n"
        + "".join(f"    x{i} = fma(x{i}, factor, addend);\n" for i in range(count))
        + "  }\n"
        + f"  float4 sum = {' + '.join(f'x{i}' for i in range(count))};\n  out[id] = sum.x + sum.y;\n}}\n"
        for count in CHAINS
    )
)


@dataclass(frozen=True)
class Contender:
    """One way to do the work: `run` does it once and gives the result."""

    run: Callable[[], np.ndarray]
    way: str


@contextmanager
def without_clang() -> Iterator[None]:
    """Kernels that are compiled in this block run as they do on a machine that has no clang."""
    with mock.patch.object(toolchain, "find_clang", return_value=None):
        yield


class Device:
    """The CPU as a device, and how a kernel of a library becomes a contender."""

    def __init__(self) -> None:
        self._device = ostinato.open_device("cpu")

    def library(self, source: str) -> ostinato.Library:
        return self._device.library(source)

    def contender(
        self,
        library: ostinato.Library,
        name: str,
        inputs: Sequence[np.ndarray],
        size: int,
        width: int,
        **geometry: object,
    ) -> Contender:
        kernel = library[name]
        buffers = [self._device.array(array) for array in inputs]
        out = self._device.zeros(size, np.float32)

        def run() -> np.ndarray:
            encoder = self._device.command_encoder()
            encoder.dispatch(kernel, *buffers, out, width, **geometry)
            encoder.commit_and_wait()
            return out.as_numpy()

        return Contender(run, kernel.execution.way)


def pocl() -> Callable[[str, Sequence[np.ndarray], int, int, int, int], Contender] | None:
    """How a kernel of `OPENCL_REDUCTIONS` becomes a contender on PoCL; None where there is none."""
    try:
        import pyopencl as cl

        context = cl.Context(cl.get_platforms()[0].get_devices())
    except (ImportError, IndexError) as error:
        print(f"no PoCL: {error}")
        return None
    try:
        program = cl.Program(context, OPENCL_REDUCTIONS).build()
    except cl.Error as error:  # of a processor that is newer than its compiler
        print(f"no PoCL: {error}")
        return None
    queue = cl.CommandQueue(context)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR

    def contender(name: str, inputs: Sequence[np.ndarray], size: int, width: int, total: int, group: int) -> Contender:
        kernel = cl.Kernel(program, name)
        buffers = [cl.Buffer(context, flags, hostbuf=array) for array in inputs]
        out = cl.Buffer(context, flags, hostbuf=np.zeros(size, np.float32))
        result = np.empty(size, np.float32)

        def run() -> np.ndarray:
            kernel.set_args(*buffers, out, np.uint32(width))
            cl.enqueue_nd_range_kernel(queue, kernel, (total,), (group,))
            queue.finish()
            return result

        run()
        cl.enqueue_copy(queue, result, out).wait()
        return Contender(run, "PoCL")

    return contender


def vector_bits() -> int | str:
    """The width of the processor's widest vectors, as far as the system tells."""
    cpuinfo = Path("/proc/cpuinfo")
    flags = cpuinfo.read_text().split() if cpuinfo.exists() else []
    return next((bits for flag, bits in (("avx512f", 512), ("avx2", 256), ("asimd", 128)) if flag in flags), "unknown")


def timed(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every contender, in turns."""
    return interleaved(
        {name: lambda run=one.run: seconds(run) * 1e3 for name, one in contenders.items()},  # type: ignore[misc]
        rounds,
    )


def with_interval(values: Sequence[float]) -> tuple[float, str]:
    interval = median_interval(values)
    assert interval is not None
    return interval.estimate, f"{interval.low:.3g} … {interval.high:.3g}"


def reduction_table(
    title: str, contenders: Mapping[str, Contender], expected: np.ndarray, reference: str, moved: int, rounds: int
) -> Table:
    """How long each contender takes, and how that compares with `reference`."""
    for one in contenders.values():
        np.testing.assert_allclose(one.run().reshape(expected.shape), expected, rtol=2e-4, atol=2e-3)
    times = timed(contenders, rounds)
    rows = [
        (
            name,
            contenders[name].way,
            *with_interval(values),
            moved / median(values) / 1e6,
            ratio(values, times[reference]),
        )
        for name, values in times.items()
    ]
    return Table(title, ("kernel", "way", "ms", "95 % interval", "GB/s", f"times of {reference}"), rows)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--quick", action="store_true", help="small sizes and three rounds: whether it runs")
    options.add_argument("--rounds", type=int, help="measurements of each contender (default 15)")
    arguments = options.parse_args()
    rounds = arguments.rounds or (3 if arguments.quick else 15)
    rows, width, side = (64, 1_024, 128) if arguments.quick else (1_024, 4_096, 512)

    generator = np.random.default_rng(1)
    x = generator.standard_normal((rows, width), dtype=np.float32)
    m = generator.standard_normal((width, width), dtype=np.float32)
    v = generator.standard_normal(width, dtype=np.float32)
    norm = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
    product = m.astype(np.float64) @ v.astype(np.float64)

    device, opencl = Device(), pocl()
    library, products, peaks = (device.library(source) for source in (REDUCTIONS, PRODUCT, PEAK))
    with without_clang():
        plainer, plainer_products = device.library(REDUCTIONS), device.library(PRODUCT)

    grid = {"groups": rows, "group_size": 256}
    norms = {
        "barriers": device.contender(library, "rms_norm_barriers", [x], x.size, width, **grid),
        "barriers, no clang": device.contender(plainer, "rms_norm_barriers", [x], x.size, width, **grid),
        "simd_sum": device.contender(library, "rms_norm_simd", [x], x.size, width, **grid),
        "simd_sum, no clang": device.contender(plainer, "rms_norm_simd", [x], x.size, width, **grid),
    }
    lanes, pairs = {"groups": width, "group_size": 32}, {"groups": width, "group_size": 64}
    vectors = {
        "plain": device.contender(library, "matvec_plain", [m, v], width, width, threads=width, group_size=64),
        "barriers": device.contender(library, "matvec_barriers", [m, v], width, width, **pairs),
        "barriers, no clang": device.contender(plainer, "matvec_barriers", [m, v], width, width, **pairs),
        "simd_sum": device.contender(library, "matvec_simd", [m, v], width, width, **lanes),
        "simd_sum, no clang": device.contender(plainer, "matvec_simd", [m, v], width, width, **lanes),
    }
    if opencl is not None:
        norms["PoCL, barriers"] = opencl("rms_norm", [x], x.size, width, rows * 256, 256)
        vectors["PoCL, barriers"] = opencl("matvec", [m, v], width, width, width * 64, 64)
    tables = [
        reduction_table(f"RMS norm, {rows} x {width}", norms, norm, "barriers", 8 * x.size, rounds),
        reduction_table(f"Matrix-vector product, {width} x {width}", vectors, product, "plain", 4 * m.size, rounds),
    ]

    tiles = {"groups": (side // 64, side // 64), "group_size": 128}
    contenders: dict[str, Contender] = {}
    for dtype in (np.float16, np.float32):
        name = np.dtype(dtype).name
        a, b = (generator.standard_normal((side, side), dtype=np.float32).astype(dtype) for _ in range(2))
        expected = a.astype(np.float64) @ b.astype(np.float64)
        for label, source in ((name, products), (f"{name}, no clang", plainer_products)):
            one = device.contender(source, f"product_{name}", [a, b], side * side, side, **tiles)
            np.testing.assert_allclose(one.run().reshape(side, side), expected, rtol=1e-4, atol=1e-3)
            contenders[label] = one
    start = np.array([0.999, 1e-3, 0.5], np.float32)
    chains = {
        f"{kind}_{count}": (count, 1 if kind == "lanes" else 4) for kind in ("lanes", "vectors") for count in CHAINS
    }
    for name in chains:
        contenders[name] = device.contender(
            peaks, name, [start], PEAK_THREADS, PEAK_STEPS, threads=PEAK_THREADS, group_size=128
        )
    times = timed(contenders, rounds)
    peak_flops = {
        name: 2 * count * lanes * PEAK_THREADS * PEAK_STEPS / median(times[name]) / 1e6
        for name, (count, lanes) in chains.items()
    }
    best = max(peak_flops, key=lambda name: peak_flops[name])
    peak = peak_flops[best]
    product_rows = [
        (name, contenders[name].way, *with_interval(times[name]), flops, flops / peak)
        for name in contenders
        if name not in chains
        for flops in (2 * side**3 / median(times[name]) / 1e6,)
    ]
    tables.append(
        Table(
            f"Product of simdgroup matrices, {side}³",
            ("type", "way", "ms", "95 % interval", "GFLOP/s", "of the peak"),
            product_rows,
        )
    )
    tables.append(
        Table(
            "Peak of multiply-adds",
            ("kernel", "way", "GFLOP/s", "bits of the widest vectors"),
            [(best, contenders[best].way, peak, vector_bits())],
        )
    )
    report(tables, arguments.json)


if __name__ == "__main__":
    main()
