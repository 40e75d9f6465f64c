"""What checking kernels costs: the same kernels on fibers, unchecked, checked for bounds alone, and checked.

An axpy, a reduction with barriers, a tiled product of matrices, sums over four arrays in a loop, and a histogram with
atomics. "fibers" is the kernel as it runs unchecked, each thread a fiber, at -O3; "fibers -O1" the same without
optimisation, as the checked build is compiled. All on one worker. Processor time, so that other programs of the machine
count little. Then the memory that checks take, and a token of the decoder `tiny` under `ostinato check`.

    python bench/checking.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

import numpy as np

import ostinato
from harness import Table, interleaved, median, ratio, report
from ostinato.backends.cpu import building, kernels
from ostinato.ir.commands import CompiledKernel
from ostinato.msl import Module
from ostinato.native import toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNELS = {
    "axpy": """kernel void k(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i] + y[i];
}""",
    "reduction": """kernel void k(device const float *x, device float *y, uint i [[thread_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float s[256];
  s[t] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = 128; k; k /= 2) {
    if (t < k) s[t] += s[t + k];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (t == 0) y[g] = s[0];
}""",
    "tiled product": """kernel void k(device const float *x, device float *y, uint i [[thread_position_in_grid]],
    uint l [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float a[16][16], b[16][16];
  uint2 t = uint2(l % 16, l / 16), at = uint2(g % 32, g / 32) * 16 + t;
  float sum = 0;
  for (uint k = 0; k < 512; k += 16) {
    a[t.y][t.x] = x[at.y * 512 + k + t.x];
    b[t.y][t.x] = x[(k + t.y) * 512 + at.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j = 0; j < 16; j++) sum += a[t.y][j] * b[j][t.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  y[at.y * 512 + at.x] = sum;
}""",
    "four arrays": """kernel void k(device const float *x, device const float *p, device const float *q,
    device const float *r, device float *y, uint i [[thread_position_in_grid]], uint n [[threads_per_threadgroup]]) {
  float sum = 0;
  for (uint k = 0; k < n; k++) sum += x[64 * k + i % 64] * p[k] + q[k] * r[k];
  y[i] = sum;
}""",
    "histogram": """kernel void k(device const uint *x, device atomic_uint *y, uint i [[thread_position_in_grid]],
    uint t [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint bins[64];
  if (t < 64) atomic_store_explicit(&bins[t], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&bins[x[i] % 64], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t >= 64) return;
  atomic_fetch_add_explicit(&y[t], atomic_load_explicit(&bins[t], memory_order_relaxed), memory_order_relaxed);
}""",
}
THREADS = 1 << 18
TRACKED_BYTES = 1 << 22
SPARSE_BYTES, SPARSE_STEP_BYTES = 1 << 26, 1 << 18
STORE = "kernel void k(device TYPE *y, uint i [[thread_position_in_grid]]) { y[STEP * i] = TYPE(i); }"
SHARED_BYTES = 1 << 23
SHARED_STORE = """kernel void k(threadgroup TYPE *a [[threadgroup(0)]], device uint *out,
              uint i [[thread_position_in_grid]]) {
  for (uint k = i; k < COUNT; k += 256) a[k] = TYPE(k);
  if (i == 0) out[0] = a[0];
}"""
UNITS = {"words": ("uint", np.uint32), "units of 2 bytes": ("ushort", np.uint16), "single bytes": ("uchar", np.uint8)}
NAN = ("--nan",) if platform.machine() == "x86_64" else ()  # other processors do not trap
CHECKED_DECODER = (
    *("check", *NAN, "--overflow", "--unwritten", "--as", "apple7"),
    *("-m", "ostinato", "decode", "--preset", "tiny", "--tokens", "1"),
)


def on_fibers(
    module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None, *_: object
) -> Mapping[str, CompiledKernel]:
    """As `compile_kernels`, each thread a fiber."""
    translation = module.translate("cpu", constants, only, fibers=True)
    return kernels._kernels_of(building.kernel_library(toolchain.find(), translation), translation, {})


def contender(source: str, way: str) -> Callable[[], float]:
    """One run of a kernel, in seconds of processor time."""
    checked = {"checked": True, "bounds": "bounds"}.get(way, False)
    slow = tuple("-O1" if flag == "-O3" else flag for flag in building._KERNEL_FLAGS)
    flags = slow if way == "fibers -O1" else building._KERNEL_FLAGS
    dev = ostinato.open_device("cpu", checked=checked) if checked else ostinato.open_device("cpu", workers=1)
    unchecked = mock.patch("ostinato.backends.cpu.driver.compile_kernels", on_fibers)
    with mock.patch.object(building, "_KERNEL_FLAGS", flags):
        if checked:
            kernel = dev.library(HEAD + source)["k"]
        else:
            with unchecked:
                kernel = dev.library(HEAD + source)["k"]
    dtype = np.uint32 if "atomic" in source else np.float32
    numbers = np.random.default_rng(0).integers(0, 1000, THREADS).astype(dtype)
    inputs = [dev.array(numbers) for _ in range(source.count("device const"))]
    y = dev.zeros(THREADS, dtype)

    def run() -> float:
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, *inputs, y, threads=THREADS, group_size=256)
        begin = time.process_time()
        encoder.commit_and_wait()
        return time.process_time() - begin

    return run


def resident_bytes(which: str) -> int:
    """Memory of this process by its name in the process's status: VmRSS, or VmHWM for the most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(which))


def forget_peak() -> None:
    """Begin to measure the most memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def memory_ratio(unit: str, buffer_bytes: int = TRACKED_BYTES, step: int = 1) -> str:
    """Bytes that checks take for each byte of a buffer of which a kernel writes each such unit, or one at each step."""
    text, dtype = UNITS[unit]
    with ostinato.open_device("cpu", checked=True) as dev:
        kernel = dev.library(HEAD + STORE.replace("TYPE", text).replace("STEP", str(step)))["k"]
        count = buffer_bytes // np.dtype(dtype).itemsize
        before = resident_bytes("VmRSS")
        forget_peak()
        y = dev.zeros(count, dtype)
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, y, threads=count // step, group_size=256)
        encoder.commit_and_wait()
        return f"{(resident_bytes('VmHWM') - before - buffer_bytes) / buffer_bytes:.1f}"


def sparse_memory_ratio(unit: str) -> str:
    """The same for a large buffer with a write here and there."""
    return memory_ratio(unit, SPARSE_BYTES, SPARSE_STEP_BYTES // np.dtype(UNITS[unit][1]).itemsize)


def shared_memory_ratio(unit: str) -> str:
    """Bytes that checks take for each byte of threadgroup memory that a kernel writes in such units."""
    text, dtype = UNITS[unit]
    with ostinato.open_device("cpu", checked=True, threadgroup_memory=SHARED_BYTES) as dev:
        count = SHARED_BYTES // np.dtype(dtype).itemsize
        kernel = dev.library(HEAD + SHARED_STORE.replace("TYPE", text).replace("COUNT", str(count)))["k"]
        out = dev.zeros(1, np.uint32)

        before = resident_bytes("VmRSS")
        forget_peak()
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, out, threads=256, group_size=256, shared={0: SHARED_BYTES})
        encoder.commit_and_wait()
        return f"{(resident_bytes('VmHWM') - before - SHARED_BYTES) / SHARED_BYTES:.1f}"


def alone(measure: Callable[[str], str], unit: str) -> str:
    """A measurement in a process of its own: memory that was freed before would be used again and count as none."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure, unit).result()


def checked_decoder() -> list[tuple[str, str, str]]:
    """A token of the decoder `tiny` with all classes of checks, twice: the first run compiles all kernels."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "OSTINATO_CACHE_DIR": cache}
        for run in ("with the compiler", "kernels compiled before"):
            begin, before = time.perf_counter(), os.times()
            command = [sys.executable, "-m", "ostinato", *CHECKED_DECODER]
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            taken, after = time.perf_counter() - begin, os.times()
            user, system = after.children_user - before.children_user, after.children_system - before.children_system
            rows.append((run, f"{taken:.1f} s", f"{user + system:.1f} s"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    measures = (memory_ratio, shared_memory_ratio) if sys.platform == "linux" else ()
    taken = [(unit, *(alone(measure, unit) for measure in measures)) for unit in UNITS]
    if measures:
        taken.append(("a word of each 256 KiB", alone(sparse_memory_ratio, "words"), ""))
    rows = []
    for name, source in KERNELS.items():
        times = interleaved(
            {way: contender(source, way) for way in ("fibers", "fibers -O1", "bounds", "checked")}, options.rounds
        )
        ways = [f"{median(values) * 1e3:.3g} ms" for values in times.values()]
        rows.append((name, *ways, *(ratio(times[way], times["fibers"]) for way in ("bounds", "checked"))))
    columns = ("kernel", "fibers", "fibers -O1", "bounds", "checked", "bounds x fibers", "checked x fibers")
    tables = [Table("Checked kernels", columns, rows)]
    if measures:
        tables.append(Table("Memory of checks", ("memory written in", "device memory", "threadgroup memory"), taken))
    title = f"A token of a decoder: ostinato {' '.join(CHECKED_DECODER)}"
    tables.append(Table(title, ("run", "time", "processor time"), checked_decoder()))
    report(tables, options.json)


if __name__ == "__main__":
    main()
