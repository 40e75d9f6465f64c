"""Kernels of llama.cpp and MLX on the CPU, unmodified, with vectors and as they run where there is no clang.

ggml's products with 4-bit weights and its attention for one query, and MLX's product of half matrices. CHECKOUTS is a
folder with checkouts of both projects, as for `tests/corpora`; docs/kernels.md says at which commits they ran. Results
are checked against NumPy before anything is timed. All contenders of a kernel take turns in one process. Times are of
the clock, and of the processor: all cores together.

    python bench/other_projects.py CHECKOUTS [--json] [--rounds N] [--slow-rounds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import ostinato
from harness import Table, interleaved, median, report
from ostinato.native import toolchain
from ostinato.profiling.analyse.statistics import median_interval

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import ggml
import mlx_kernels
from checkouts import Checkouts

HEADS, KEYS, SIZE, PARTS = 32, 2_048, 128, 32


@dataclass(frozen=True)
class Dispatch:
    """A kernel with its arguments in order, and its grid."""

    kernel: ostinato.Kernel
    arguments: Sequence[Any]
    geometry: Mapping[str, Any]


Work = Callable[[ostinato.Device, Checkouts], tuple[list[Dispatch], ostinato.Buffer, np.ndarray]]
"""Makes dispatches, the buffer with their result, and what it should be."""


def struct(kernel: ostinato.Kernel, *sources: np.ndarray, out: np.ndarray, **arguments: Any) -> np.ndarray:
    values = ggml.fields(kernel, *sources, out=out, **arguments)
    made = np.zeros(1, kernel.dtype(0))
    for name, value in values.items():
        made[name] = value
    return made


def mul_mm(dev: ostinato.Device, checkouts: Checkouts) -> tuple[list[Dispatch], ostinato.Buffer, np.ndarray]:
    rows, columns, vectors = 4_096, 4_096, 512
    kernel = ggml.kernel(
        checkouts, "kernel_mul_mm_q4_0_f32", "FC_mul_mm", bc_inp=0, bc_out=0, ne12=1, ne13=1, r2=1, r3=1
    )
    random = np.random.default_rng(1)
    weights, values = ggml.quantised(random, "q4_0", 1, rows, columns)
    x, out = ggml.random(random, 1, vectors, columns), np.zeros((1, vectors, rows), np.float32)
    buffers = [dev.array(ggml.memory(each)) for each in (weights, x, out)]
    described = struct(kernel, weights, x, out=out, ne00=columns, r2=1, r3=1)
    geometry = {"groups": (vectors // 32, rows // 64, 1), "group_size": (32, 4, 1), "shared": {0: 4096 + 2048}}
    return [Dispatch(kernel, [described, *buffers], geometry)], buffers[-1], x @ values.swapaxes(-1, -2)


def mul_mv(dev: ostinato.Device, checkouts: Checkouts) -> tuple[list[Dispatch], ostinato.Buffer, np.ndarray]:
    side = 4_096
    kernel = ggml.kernel(checkouts, "kernel_mul_mv_q4_0_f32", "FC_mul_mv", nsg=2, ne12=1, r2=1, r3=1)
    random = np.random.default_rng(2)
    weights, values = ggml.quantised(random, "q4_0", 1, side, side)
    x, out = ggml.random(random, 1, 1, side), np.zeros((1, 1, side), np.float32)
    buffers = [dev.array(ggml.memory(each)) for each in (weights, x, out)]
    described = struct(kernel, weights, x, out=out, ne00=side, ne01=side, nr0=4, r2=1, r3=1)
    geometry = {"groups": (side // 8, 1, 1), "group_size": (32, 2, 1)}
    return [Dispatch(kernel, [described, *buffers], geometry)], buffers[-1], x @ values.swapaxes(-1, -2)


def attention(dev: ostinato.Device, checkouts: Checkouts) -> tuple[list[Dispatch], ostinato.Buffer, np.ndarray]:
    random = np.random.default_rng(3)
    q = ggml.random(random, 1, HEADS, 1, SIZE)
    k, v = (ggml.random(random, 1, HEADS, KEYS, SIZE, dtype=ggml.F16) for _ in range(2))
    mask, sinks = np.zeros((1, 1, 1, KEYS), np.float16), np.zeros(HEADS, np.float32)
    parts, out = np.zeros(HEADS * PARTS * (SIZE + 2), np.float32), np.zeros((1, HEADS, SIZE), np.float32)
    constants = {"has_mask": 1, "has_sinks": 0, "has_bias": 0, "has_scap": 0, "has_kvpad": 0}
    attend = ggml.kernel(
        checkouts,
        f"kernel_flash_attn_ext_vec_f16_dk{SIZE}_dv{SIZE}",
        "FC_flash_attn_ext_vec",
        **constants,
        ns10=SIZE,
        ns20=SIZE,
        nsg=1,
        nwg=PARTS,
    )
    join = ggml.kernel(
        checkouts, "kernel_flash_attn_ext_vec_reduce", "FC_flash_attn_ext_vec_reduce", DV=SIZE, NWG=PARTS
    )
    known = {"ne30": KEYS, "ne_12_2": HEADS, "ne_12_3": 1, "ns10": SIZE, "ns20": SIZE, "scale": SIZE**-0.5}
    known |= {"max_bias": 0, "m0": 1, "m1": 1, "n_head_log2": HEADS, "logit_softcap": 0}
    known |= {"ne1": HEADS, "ne2": 1, "ne3": 1}
    buffers = [dev.array(ggml.memory(each)) for each in (q, k, v, mask, sinks, np.zeros(16, np.uint8), parts)]
    result = dev.array(ggml.memory(out))
    described = struct(attend, q, k, v, mask, out=out, **known)
    rows = struct(join, parts, out=out, nrows=HEADS)
    room = {0: (SIZE + 4 * 32 + 2 * SIZE) * 2 + 512}
    scores = np.einsum("hd,hkd->hk", q[0, :, 0].astype(np.float16).astype(float), k[0].astype(float)) * SIZE**-0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hk,hkd->hd", weights / weights.sum(-1, keepdims=True), v[0].astype(float))
    return (
        [
            Dispatch(
                attend,
                [described, *buffers],
                {"groups": (1, HEADS, PARTS), "group_size": (32, 1, 1), "shared": room},
            ),
            Dispatch(join, [rows, buffers[-1], result], {"groups": HEADS, "group_size": 32 * PARTS}),
        ],
        result,
        expected,
    )


def gemm(dev: ostinato.Device, checkouts: Checkouts) -> tuple[list[Dispatch], ostinato.Buffer, np.ndarray]:
    side = 512
    constants = dict.fromkeys(("align_M", "align_N", "align_K"), True)
    constants |= dict.fromkeys(("has_batch", "use_out_source", "do_axpby"), False)
    file, name = "steel_gemm_fused", "steel_gemm_fused_nn_float16_float16_bm64_bn64_bk16_wm2_wn2"
    kernel = mlx_kernels.kernel(checkouts, f"steel/gemm/kernels/{file}", name, constants=constants)
    random = np.random.default_rng(4)
    a, b = (random.standard_normal((side, side)).astype(np.float16) for _ in range(2))
    described = np.zeros(1, kernel.dtype("params"))
    for field in ("M", "N", "K", "lda", "ldb", "ldd"):
        described[field] = side
    described["tiles_n"] = described["tiles_m"] = side // 64
    described["gemm_k_iterations_aligned"] = side // 16
    out = dev.zeros((side, side), np.float16)
    geometry = {"groups": (side // 64, side // 64, 1), "group_size": (32, 2, 2)}
    arguments = [dev.array(a), dev.array(b), out, described]
    return [Dispatch(kernel, arguments, geometry)], out, a.astype(float) @ b.astype(float)


KERNELS: dict[str, tuple[Work, float, float]] = {
    "ggml mul_mm q4_0, 512 x 4,096 x 4,096": (mul_mm, 2 * 512 * 4_096**2, 1e-2),
    "ggml mul_mv q4_0, 4,096²": (mul_mv, 2 * 4_096**2, 1e-4),
    "ggml flash_attn_ext_vec f16, 32 heads x 2,048 keys": (attention, 4 * HEADS * KEYS * SIZE, 1e-3),
    "MLX steel gemm f16, 512³": (gemm, 2 * 512**3, 1e-2),
}
"""What makes the work, its operations, and the error allowed, relative to the largest result."""


def contender(work: Work, error: float, root: Path, context: AbstractContextManager[object]) -> tuple[Any, str]:
    """A function that does the work once, and how its first kernel runs."""
    dev = ostinato.open_device("cpu")
    with context:
        dispatches, result, expected = work(dev, Checkouts(dev, root))

    def run() -> None:
        encoder = dev.command_encoder()
        for each in dispatches:
            encoder.dispatch(each.kernel, *each.arguments, **each.geometry)
        encoder.commit_and_wait()

    run()
    got = result.numpy().reshape(-1).view(np.float16 if result.dtype == np.float16 else np.float32)
    worst = np.abs(got - expected.reshape(-1)).max() / np.abs(expected).max()
    assert worst <= error, f"{dispatches[0].kernel.name}: an error of {worst:.3g}"
    return run, dispatches[0].kernel.execution.way


def seconds_of_both_clocks(run: Callable[[], None], processor: list[float]) -> float:
    """How long a run takes; the processor time goes into the list."""
    start, used = time.perf_counter(), time.process_time()
    run()
    processor.append(time.process_time() - used)
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("checkouts", type=Path, help="the folder of checkouts")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=21, help="measurements of each kernel (default 21)")
    options.add_argument("--slow-rounds", type=int, default=0, help="of them, with kernels as without a clang too")
    arguments = options.parse_args()
    rows = []
    for name, (work, operations, error) in KERNELS.items():
        contexts: dict[str, AbstractContextManager[object]] = {"as shipped": nullcontext()}
        if arguments.slow_rounds:
            contexts["no clang"] = mock.patch.object(toolchain, "find_clang", return_value=None)
        made = {label: contender(work, error, arguments.checkouts, context) for label, context in contexts.items()}
        processor: dict[str, list[float]] = {label: [] for label in made}
        runs: dict[str, Callable[[], float]] = {
            label: lambda run=run, used=processor[label]: seconds_of_both_clocks(run, used)  # type: ignore[misc]
            for label, (run, _) in made.items()
        }
        times = interleaved(runs, arguments.slow_rounds or arguments.rounds)
        for label, values in times.items():
            interval = median_interval(values)
            spread = "" if interval is None else f"{interval.low * 1e3:.3g} … {interval.high * 1e3:.3g}"
            used = median(processor[label][1:]) * 1e3
            rate = operations / median(values) / 1e9
            rows.append((name, label, made[label][1], median(values) * 1e3, spread, used, rate))
    columns = ("kernel", "compiled", "way", "ms", "95 % interval", "ms of the processor", "GFLOP/s")
    report([Table("Kernels of other projects", columns, rows)], arguments.json)


if __name__ == "__main__":
    main()
