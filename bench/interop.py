"""What a call costs through `interop` beside calling Ostinato directly, after the first call.

Each contender runs the same kernel on the same values and waits. "directly" encodes, dispatches and commits on buffers
that are already there. The stand-ins also take their arrays in and give arrays back: "copies" is what that costs by
itself, measured as the copies alone. The overhead is the median difference of neighbouring measurements, less the
copies; beside it stands the difference between the fastest rounds, which other processes disturb least.

    python bench/interop.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import ostinato as ost
from harness import Table, interleaved, median, report, seconds
from ostinato.interop import arrays
from ostinato.interop.launches import SMALL_BYTES
from ostinato.interop.mlx import install, metal_kernel, uninstall

SIZES = (1, 256, 1024, 1 << 16, 1 << 22)
"""Elements of float32."""
TARGET_US = 20

BODY = "uint i = thread_position_in_grid.x; out[i] = inp[i] * 2;"
METAL = """
kernel void twice(const device float *inp [[buffer(0)]], device float *out [[buffer(1)]],
                  uint3 thread_position_in_grid [[thread_position_in_grid]]) { %s }
"""

Row = tuple[str, str, float, float, float, float, float]


def repeated(work: Callable[[], object], times: int) -> Callable[[], float]:
    """The microseconds of one call, over several."""

    def several() -> None:
        for _ in range(times):
            work()

    return lambda: seconds(several) / times * 1e6


def directly(size: int) -> Callable[[], object]:
    device = arrays.device_at(arrays.HOST)
    kernel = device.library(METAL % BODY)["twice"]
    inp, out = device.array(np.ones(size, np.float32)), device.empty(size, np.float32)

    def call() -> ost.Submission:
        encoder = device.command_encoder()
        encoder.dispatch(kernel, inp, out, threads=(size, 1, 1), group_size=(min(size, 256), 1, 1))
        return encoder.commit_and_wait()

    return call


def by_metal_kernel(values: Any, dtype: Any) -> Callable[[], object]:
    kernel = metal_kernel(name="twice", input_names=["inp"], output_names=["out"], source=BODY)
    options: dict[str, Any] = {
        "grid": (values.size, 1, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [values.shape],
        "output_dtypes": [dtype],
    }
    return lambda: kernel(inputs=[values], **options)


def by_compile_shader(size: int) -> Callable[[], object]:
    torch = sys.modules["torch"]
    from ostinato.interop.torch import compile_shader

    kernel = compile_shader(METAL % BODY).twice
    inp, out = torch.ones(size), torch.empty(size)
    return lambda: kernel(inp, out, threads=(size, 1, 1), group_size=(min(size, 256), 1, 1))


def copies_of(values: Any, kind: str) -> Callable[[], object]:
    """What goes in and out: up to 64 KB both are copied, beyond it an output of MLX is filled with zeros."""
    window = np.ones(values.size, np.float32)
    if values.nbytes > SMALL_BYTES:
        return lambda: arrays.host_zeros(kind, values.shape, window.dtype)

    def copy() -> object:
        window[...] = arrays.host_array(values)
        return arrays.copied(kind, window)

    return copy


def contenders(size: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Calls by name, each with its copies."""
    host = np.ones(size, np.float32)
    found: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "metal_kernel, NumPy": (by_metal_kernel(host, np.float32), copies_of(host, "numpy"))
    }
    if "mlx.core" in sys.modules:
        mx = sys.modules["mlx.core"]
        values = mx.array(host)
        found["metal_kernel, MLX"] = (by_metal_kernel(values, mx.float32), copies_of(values, "mlx"))
    if "torch" in sys.modules:
        found["compile_shader, torch"] = (by_compile_shader(size), lambda: None)
    return found


def measured(size: int, rounds: int) -> list[Row]:
    times = 10 if size <= 1 << 16 else 3
    calls = contenders(size)
    works = {"directly": repeated(directly(size), times)}
    for name, (call, copy) in calls.items():
        works[name], works[f"{name}: copies"] = repeated(call, times), repeated(copy, times)
    results = interleaved(works, rounds)
    base, rows = results["directly"], []
    for name in calls:
        ours, copies = results[name], results[f"{name}: copies"]
        overhead = statistics.median(mine - theirs for mine, theirs in zip(ours, base, strict=True)) - median(copies)
        fastest = min(ours) - min(base) - min(copies)
        rows.append((f"{4 * size:,} bytes", name, median(base), median(ours), median(copies), overhead, fastest))
    return rows


def unused(rounds: int) -> list[tuple[str, float, float, float]]:
    """What MLX's own work costs before and after `install()`."""
    mx = sys.modules["mlx.core"]
    values = mx.ones(256)
    compiled = mx.compile(lambda inp: inp * 2 + 1)
    rows = []
    for name, work in (("add and eval", lambda: mx.eval(values + 1)), ("compiled", lambda: mx.eval(compiled(values)))):

        def before(work: Callable[[], object] = work) -> float:
            repeated(work, 50)()
            return repeated(work, 50)()

        def installed(before: Callable[[], float] = before) -> float:
            with install():  # which looks through all modules: the caches are warm only after some work
                return before()

        results = interleaved({"before": before, "installed": installed}, rounds)
        difference = statistics.median(a - b for a, b in zip(results["installed"], results["before"], strict=True))
        rows.append((name, median(results["before"]), median(results["installed"]), difference))
    uninstall()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    try:
        import mlx.core  # noqa: F401
    except ImportError:
        print("without MLX: its arrays are not measured", file=sys.stderr)
    folder = sys.path.pop(0)  # it has a cuda.py, which torch would take for the package of that name
    try:
        import torch  # noqa: F401
    except ImportError:
        print("without torch: compile_shader is not measured", file=sys.stderr)
    sys.path.insert(0, folder)
    rows = [row for size in SIZES for row in measured(size, options.rounds)]
    goal = f"target ≤ {TARGET_US} up to 4 KB"
    columns = (
        "arrays",
        "call",
        "directly, µs",
        "call, µs",
        "copies, µs",
        f"overhead, µs ({goal})",
        "of the fastest, µs",
    )
    tables = [Table("A call through interop", columns, rows)]
    if "mlx.core" in sys.modules:
        columns = ("work of MLX", "before, µs", "installed, µs", "difference, µs")
        tables.append(Table("install() when it is not used", columns, unused(options.rounds)))
    report(tables, options.json)


if __name__ == "__main__":
    main()
