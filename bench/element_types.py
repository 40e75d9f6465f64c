"""What a kernel's element type costs on the CPU: float, half and bfloat, by each C++ compiler of the machine.

A scaling (a plain loop), a dot product of each row by one thread (a loop with a sum), and an RMS norm (256 threads per
row with barriers: as vectors where there is a clang, else split into loops). Arithmetic is in float, as kernels of
decoders have it: memory holds the element type, and the conversions are what is measured. Arrays of 1 Mi elements stay
in the last-level cache. Results are checked against NumPy before anything is timed. All contenders take turns in one
process; times are processor time.

    python bench/element_types.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

import ml_dtypes
import numpy as np

import ostinato
from harness import Table, interleaved, median, ratio, report
from ostinato.native import toolchain

ROWS, WIDTH = 256, 4_096
TYPES = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
KERNELS = ("scale", "dot", "rms_norm")

METAL = """
#include <metal_stdlib>
using namespace metal;

template <typename T> kernel void scale(device const T *x, device T *y, constant uint &width,
                                        uint i [[thread_position_in_grid]]) {
  y[i] = T(float(x[i]) * 0.5f);
}

template <typename T> kernel void dot(device const T *x, device T *y, constant uint &width,
                                      uint row [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint i = 0; i < width; ++i) sum += float(x[row * width + i]) * float(x[i]);
  y[row] = T(sum);
}

template <typename T> kernel void rms_norm(device const T *x, device T *y, constant uint &width,
                                           uint row [[threadgroup_position_in_grid]],
                                           uint t [[thread_index_in_threadgroup]],
                                           uint threads [[threads_per_threadgroup]]) {
  threadgroup float partial[256];
  float sum = 0;
  for (uint i = t; i < width; i += threads) { float v = float(x[row * width + i]); sum += v * v; }
  partial[t] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint half_ = threads / 2; half_ > 0; half_ /= 2) {
    if (t < half_) partial[t] += partial[t + half_];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  float scale = 1.0f / sqrt(partial[0] / float(width) + 1e-6f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = t; i < width; i += threads) y[row * width + i] = T(float(x[row * width + i]) * scale);
}
""" + "\n".join(
    f'template [[host_name("{kernel}_{type_}")]] kernel decltype({kernel}<{type_}>) {kernel}<{type_}>;'
    for kernel in KERNELS
    for type_ in TYPES
)


def compilers() -> dict[str, AbstractContextManager[object]]:
    """As shipped, and with one compiler alone: contexts in which kernels are compiled so."""
    found = {each.version.split(" (")[0]: each for each in (toolchain.find(), toolchain.find_clang()) if each}
    return {"as shipped": nullcontext(), **{f"{name} alone": alone(compiler) for name, compiler in found.items()}}


@contextmanager
def alone(compiler: toolchain.Toolchain) -> Iterator[None]:
    clang = compiler if compiler.clang_version >= toolchain.OLDEST_CLANG else None
    with (
        mock.patch.dict(os.environ, {"CXX": shlex.join(compiler.command)}),
        mock.patch.object(toolchain, "find_clang", return_value=clang),
    ):
        yield


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of this process for ``work``: other programs on the machine hardly change it."""
    start = time.process_time()
    work()
    return time.process_time() - start


def expected(kernel: str, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float32)
    if kernel == "scale":
        return x * 0.5
    if kernel == "dot":
        return x @ x[0]
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()

    dev = ostinato.open_device("cpu")
    inputs = np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32)
    contenders: dict[str, Callable[[], float]] = {}
    compiled: dict[tuple[str, str, str], ostinato.Kernel] = {}
    for compiler, context in compilers().items():
        with context:
            library = dev.library(METAL)
            compiled |= {
                (compiler, kernel, type_): library[f"{kernel}_{type_}"] for kernel in KERNELS for type_ in TYPES
            }
    for key, function in compiled.items():
        _, kernel, type_ = key
        dtype = TYPES[type_]
        x, y = dev.array(inputs.astype(dtype)), dev.zeros(inputs.size, dtype)
        geometry: Mapping[str, int] = (
            {"groups": ROWS, "group_size": 256} if kernel == "rms_norm"
            else {"threads": ROWS if kernel == "dot" else inputs.size}
        )  # fmt: skip

        def run(function=function, x=x, y=y, geometry=geometry) -> None:  # type: ignore[no-untyped-def]
            encoder = dev.command_encoder()
            for _ in range(8):
                encoder.dispatch(function, x, y, WIDTH, **geometry)
            encoder.commit_and_wait()

        run()
        wanted = expected(kernel, inputs.astype(dtype)).reshape(-1)
        got = y.numpy().reshape(-1)[: wanted.size].astype(np.float32)
        np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=1e-1 if kernel == "dot" else 1e-3)
        contenders["|".join(key)] = lambda run=run: processor_seconds(run) / 8  # type: ignore[misc]
    times = interleaved(contenders, options.rounds)
    rows = []
    for compiler, kernel in dict.fromkeys(key[:2] for key in compiled):
        per_type = {type_: times[f"{compiler}|{kernel}|{type_}"] for type_ in TYPES}
        rates = [inputs.size / median(values) / 1e9 for values in per_type.values()]
        way = compiled[compiler, kernel, "float"].execution.way
        rows.append([kernel, compiler, way, *rates, ratio(per_type["half"], per_type["bfloat"])])
    columns = ["kernel", "compiler", "runs as", *TYPES, "time of half ÷ bfloat"]
    report([Table("Element types, G elements per second of a core", columns, rows)], as_json=options.json)


if __name__ == "__main__":
    main()
