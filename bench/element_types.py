"""What a kernel's element type costs on the CPU: float, half and bfloat, by each C++ compiler of the machine.

A scaling (a plain loop), a dot product of each row by one thread (a loop with a sum), and an RMS norm (256 threads per
row, split into loops at its barriers). Arithmetic is in float, as kernels of decoders have it: memory holds the element
type, and the conversions are what is measured. Arrays of 1 Mi elements stay in the last-level cache. Results are
checked against NumPy before anything is timed. All contenders take turns in one process; times are processor time.

    python bench/element_types.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

import ostinato
from harness import Table, interleaved, median, ratio, report
from ostinato.native import toolchain

ROWS, WIDTH = 256, 4_096
TYPES = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
KERNELS = {"scale": "loop", "dot": "loop", "rms_norm": "split"}

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


def compilers() -> dict[str, str]:
    """The compilers by name, as `$CXX` takes them: the one that is used, and clang if that is another."""
    chosen = [toolchain.find(), toolchain.find_clang()]
    return {compiler.version.split(" (")[0]: shlex.join(compiler.command) for compiler in chosen if compiler}


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
    for compiler, command in {"as shipped": "", **compilers()}.items():
        if command:
            os.environ["CXX"] = command
        library = dev.library(METAL)
        os.environ.pop("CXX", None)
        for kernel, way in KERNELS.items():
            for type_, dtype in TYPES.items():
                compiled = library[f"{kernel}_{type_}"]
                assert compiled.execution.way == way, compiled.execution
                x, y = dev.array(inputs.astype(dtype)), dev.zeros(inputs.size, dtype)
                geometry: Mapping[str, int] = (
                    {"groups": ROWS, "group_size": 256} if kernel == "rms_norm"
                    else {"threads": ROWS if kernel == "dot" else inputs.size}
                )  # fmt: skip

                def run(compiled=compiled, x=x, y=y, geometry=geometry) -> None:  # type: ignore[no-untyped-def]
                    encoder = dev.command_encoder()
                    for _ in range(8):
                        encoder.dispatch(compiled, x, y, WIDTH, **geometry)
                    encoder.commit_and_wait()

                run()
                wanted = expected(kernel, inputs.astype(dtype)).reshape(-1)
                got = y.numpy().reshape(-1)[: wanted.size].astype(np.float32)
                np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=1e-1 if kernel == "dot" else 1e-3)
                contenders[f"{compiler}|{kernel}|{type_}"] = lambda run=run: processor_seconds(run) / 8  # type: ignore[misc]
    times = interleaved(contenders, options.rounds)
    rows = []
    for compiler in ["as shipped", *compilers()]:
        for kernel in KERNELS:
            per_type = {type_: times[f"{compiler}|{kernel}|{type_}"] for type_ in TYPES}
            rates = [inputs.size / median(values) / 1e9 for values in per_type.values()]
            rows.append([kernel, compiler, *rates, ratio(per_type["half"], per_type["bfloat"])])
    columns = ["kernel", "compiler", *TYPES, "time of half ÷ bfloat"]
    report([Table("Element types, G elements per second of a core", columns, rows)], as_json=options.json)


if __name__ == "__main__":
    main()
