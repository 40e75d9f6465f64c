"""The memory-bound operations of `ostinato.ops` on large inputs, as shares of what a copy of the same device moves.

Each operation is a graph of a few dispatches, far larger than the caches together; operations and the copy take turns.
Bytes are those that a dispatch declares: every input read once, every output written once. A copy counts as read and
written.

    python bench/memory_bound.py [--device cuda] [--megabytes 256] [--rounds 15] [--dtype bfloat16] [--only softmax]
        [--json]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import ml_dtypes
import numpy as np

import ostinato as ost
from ostinato import ops
from ostinato.ir.commands import Copy

sys.path.append(_HERE)

from harness import Table, interleaved, median, ratio, report, seconds

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
REPEATS = 4
WIDTH = 4096


def operations(dev: ost.Device, dtype: Any, elements: int) -> dict[str, Callable[[ost.CommandEncoder], None]]:
    """What is measured, by name; inputs have `elements` elements in rows of `WIDTH`."""
    rng = np.random.default_rng(1)
    rows = elements // WIDTH
    a, b, out = (dev.empty((rows, WIDTH), dtype) for _ in range(3))
    for buffer in (a, b):
        buffer.write(np.resize(rng.standard_normal(1 << 20).astype(dtype), (rows, WIDTH)))
    wide = dev.empty((rows, WIDTH), np.float32 if np.dtype(dtype).itemsize == 2 else np.float16)
    weight = dev.array(np.ones(WIDTH, dtype))
    halves, half_out = a.view(shape=(rows, 2, WIDTH // 2)), out[: rows // 2]
    tokens = dev.array(rng.integers(0, rows, rows).astype(np.uint32))
    heads = WIDTH // 128
    by_head = (rows, heads, 128)
    frequencies = dev.array(ops.rope_frequencies(128))
    caches = [out.view(shape=(heads, rows, 128)), b.view(shape=(heads, rows, 128))]
    slots = 4
    shares = dev.array(rng.random((rows // slots, slots)).astype(np.float32))
    places = dev.zeros(rows // 32, np.uint32)
    kept = heads // 4
    joined = a.view(shape=by_head)
    small = [
        buffer.view(shape=(heads * rows * 128,))[: kept * rows * 128].view(shape=(kept, rows, 128))
        for buffer in (out, b)
    ]
    rotated = dev.empty((rows, heads - 2 * kept, 128), dtype)
    return {
        "copy": lambda enc: enc.copy(a, out),
        "add": lambda enc: ops.add(enc, a, b, out),
        "mul": lambda enc: ops.mul(enc, a, b, out),
        "silu_mul": lambda enc: ops.silu_mul(enc, a, b, out),
        "silu_mul_halves": lambda enc: ops.silu_mul_halves(enc, halves, half_out),
        "sigmoid_mul": lambda enc: ops.sigmoid_mul(enc, a, b, out),
        "gelu": lambda enc: ops.gelu(enc, a, out),
        "gelu_erf": lambda enc: ops.gelu(enc, a, out, approximate=False),
        "scalar_mul": lambda enc: ops.scalar_mul(enc, a, out, 0.5),
        "softcap": lambda enc: ops.softcap(enc, a, out, 30.0),
        "cast": lambda enc: ops.cast(enc, a, wide),
        "weighted_sum": lambda enc: ops.weighted_sum(enc, a, shares, out[: rows // slots]),
        "rms_norm": lambda enc: ops.rms_norm(enc, a, weight, out),
        "rms_norm_mul": lambda enc: ops.rms_norm_mul(enc, a, weight, b, out),
        "add_rms_norm": lambda enc: ops.add_rms_norm(enc, a, b, weight, b, out),
        "softmax": lambda enc: ops.softmax(enc, a, out),
        "argmax": lambda enc: ops.argmax(enc, a, places),
        "embedding": lambda enc: ops.embedding(enc, a, tokens, out),
        "rope": lambda enc: ops.rope(enc, joined, frequencies, out.view(shape=by_head), 3),
        "kv_append": lambda enc: ops.kv_append(enc, joined, joined, *caches, 0),
        "rope_append": lambda enc: ops.rope_append(enc, joined, frequencies, rotated, *small, 0),
    }


def rates(
    dev: ost.Device, dtype: Any, elements: int, rounds: int, only: Sequence[str] | None
) -> list[tuple[str, str, str]]:
    """Each operation with its rate, and that rate beside the copy's."""
    work, moved = {}, {}
    for name, encode in operations(dev, dtype, elements).items():
        if only and name not in ("copy", *only):
            continue
        graph = dev.capture(lambda enc, encode=encode: [encode(enc) for _ in range(REPEATS)])
        moved[name] = sum(bytes_of(command) for command in graph.commands)
        run = graph.instantiate()
        work[name] = lambda run=run: seconds(lambda: run.replay().wait())
    times = interleaved(work, rounds)
    per_byte = {name: [value / moved[name] for value in values] for name, values in times.items()}
    return [
        (name, f"{1e-9 / median(values):,.0f}", f"{ratio(per_byte['copy'], values):.1%}")
        for name, values in per_byte.items()
    ]


def bytes_of(command: Any) -> int:
    """The bytes that a command reads and writes."""
    if isinstance(command, Copy):
        return 2 * command.source.nbytes
    return int(command.bytes_read) + int(command.bytes_written)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", choices=DTYPES, action="append")
    parser.add_argument("--only", action="append", help="an operation to measure, instead of all")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    tables = []
    with ost.open_device(given.device) as dev:
        for name in given.dtype or ["bfloat16", "float32"]:
            dtype = np.dtype(DTYPES[name])
            rows = given.megabytes * 1_000_000 // dtype.itemsize // WIDTH // 128 * 128
            rated = rates(dev, dtype, rows * WIDTH, given.rounds, given.only)
            tables.append(Table(f"{dev.capabilities.description}, {name}", ("operation", "GB/s", "of a copy"), rated))
    report(tables, given.json)


if __name__ == "__main__":
    main()
