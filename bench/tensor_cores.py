"""Tensor cores from Metal on an NVIDIA GPU, beside cuBLAS (through torch) in the same run.

* product: 4,096³ in bf16. `ops.matmul`, and a tiled product with simdgroup matrices (`tensor_cores.metal`), as shares
  of what cuBLAS reaches.
* tiles: every tile of `ops.matmul`'s kernel, on the shapes of a 1B decoder's layer with 128, 512 and 2,048 tokens.

    python bench/tensor_cores.py [--json] [--rounds N] [--tiles]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import torch

import ostinato as ost
from ostinato import ops
from ostinato.ops import compiled, linear

sys.path.append(_HERE)

from harness import interleaved, median, ratio

SIDE = 4096
LAYER = {"qkv": (3072, 2048), "out": (2048, 2048), "gate and up": (16384, 2048), "down": (2048, 8192)}
PEAK_BYTES = 7.5e12
"""Read from L2 a second, as measured on an H200 (7.0 to 8.3)."""


def replayed(dev: ost.Device, encode: Callable[[ost.CommandEncoder], None], count: int) -> Callable[[], float]:
    """Seconds per dispatch of a graph with ``count`` of them; the graph is started once before."""

    def many(encoder: ost.CommandEncoder) -> None:
        for _ in range(count):
            encode(encoder)

    run = dev.capture(many, label="products").instantiate()
    run.replay().wait()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    stream = torch.cuda.ExternalStream(dev._queue.backend.stream)

    def measure() -> float:
        events[0].record(stream)
        submitted = run.replay()
        events[1].record(stream)
        submitted.wait()
        torch.cuda.synchronize()
        return float(events[0].elapsed_time(events[1])) / 1e3 / count

    return measure


def in_torch(work: Callable[[], object], count: int) -> Callable[[], float]:
    """Seconds per call of ``work``, as a CUDA graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def measure() -> float:
        events[0].record()
        graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        return float(events[0].elapsed_time(events[1])) / 1e3 / count

    return measure


def with_tile(dev: ost.Device, tile: tuple[int, int], weight: Any, x: Any, out: Any) -> Callable[[Any], None]:
    """Encodes a product with the kernel of one tile."""
    rows, width = weight.shape
    tokens = x.shape[0]
    name = f"matmul_bfloat_{tile[0]}_{tile[1]}"
    kernel = compiled.kernel(dev._queue, compiled.module("matmul"), name, alone=True)
    groups = (-(-rows // tile[1]), -(-tokens // tile[0]))

    def encode(encoder: Any) -> None:
        encoder.dispatch(
            kernel, weight, x, out, width, rows, tokens, groups=groups, group_size=32 * linear._TILES[tile]
        )

    return encode


def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    error = ((found.double() - expected.double()).norm() / expected.double().norm()).item()
    print(f"  {name}: relative error {error:.2e}", "" if error < 1e-2 else "WRONG", flush=True)


def products(dev: ost.Device, rounds: int, only: str) -> None:
    x, w = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    ours_x, ours_w, ours_out = dev.from_dlpack(x), dev.from_dlpack(w), dev.from_dlpack(out)
    flops = 2 * SIDE**3
    contenders: dict[str, Callable[[], float]] = {
        "cuBLAS x wᵀ": in_torch(lambda: torch.mm(x, w.t()), 20),
        "cuBLAS x w": in_torch(lambda: torch.mm(x, w), 20),
    }
    cases: dict[str, tuple[Callable[[Any], None], torch.Tensor]] = {}
    turned, straight = torch.mm(x, w.t()), torch.mm(x, w)
    cases["ops.matmul"] = (lambda enc: ops.matmul(enc, ours_w, ours_x, ours_out), turned)
    for tile in linear._TILES:
        cases[f"matmul2d {tile[0]} × {tile[1]}"] = (with_tile(dev, tile, ours_w, ours_x, ours_out), turned)
    tiled = dev.library(Path(__file__).with_suffix(".metal"))["tiled_bfloat"]
    groups = (SIDE // 128, SIDE // 128)
    cases["simdgroup matrices, 128 × 128"] = (
        lambda enc: enc.dispatch(tiled, ours_x, ours_w, ours_out, SIDE, SIDE, groups=groups, group_size=256),
        straight,
    )
    for name, (encode, expected) in cases.items():
        if only not in name:
            continue
        try:
            out.fill_(float("nan"))
            torch.cuda.synchronize()
            encoder = dev.command_encoder()
            encode(encoder)
            encoder.commit_and_wait()
            check(name, out, expected)
            contenders[name] = replayed(dev, encode, 20)
        except ost.OstinatoError as error:
            print(f"  {name}: {error}", flush=True)
    times = interleaved(contenders, rounds)
    for name, values in times.items():
        base = times["cuBLAS x w" if "simdgroup" in name or name == "cuBLAS x w" else "cuBLAS x wᵀ"]
        print(f"{name:34} {flops / median(values) / 1e12:7.1f} TFLOP/s  {100 / ratio(values, base):5.1f} % of cuBLAS")


def tiles(dev: ost.Device, rounds: int) -> None:
    for tokens in (128, 512, 2048):
        for name, (rows, width) in LAYER.items():
            x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
            w = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
            out = torch.zeros(tokens, rows, device="cuda", dtype=torch.bfloat16)
            ours = dev.from_dlpack(w), dev.from_dlpack(x), dev.from_dlpack(out)
            contenders = {"cuBLAS": in_torch(lambda x=x, w=w: torch.mm(x, w.t()), 50)}
            for tile in linear._TILES:
                contenders[f"{tile[0]}x{tile[1]}"] = replayed(dev, with_tile(dev, tile, *ours), 50)
            times = {key: median(values) for key, values in interleaved(contenders, rounds).items()}
            chosen = linear._tile(tokens, rows, dev.capabilities.workers)
            shown = "  ".join(f"{key} {value * 1e6:6.1f}" for key, value in times.items())
            print(f"{tokens:5} × {name:12} µs: {shown}  chosen {chosen}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    chosen = parser.parse_args()
    dev = ost.open_device("cuda")
    products(dev, chosen.rounds, chosen.only)
    if chosen.tiles:
        tiles(dev, chosen.rounds)


if __name__ == "__main__":
    main()
