"""Tensor cores from Metal on an NVIDIA GPU, beside cuBLAS (through torch) in the same run.

* product: 4,096³ in bf16. `ops.matmul`, and a tiled product with simdgroup matrices (`tensor_cores.metal`), as shares
  of what cuBLAS reaches. With `--sources`, a folder with `mlx` (a checkout of MLX) and `ggml` (its `ggml-metal.metal`
  and the headers that it includes), also MLX's steel GEMM and ggml's mul_mm, unmodified, as shares of what their tiles
  allow: the flops per byte of the tile times what L2 delivers, or the rate of products from registers, if that is less.
  MLX multiplies float, so it runs on a device with `tf32=True`; its inputs are bf16, which TF32 holds exactly.
* tiles: every tile of `ops.matmul`'s kernel, on the shapes of a 1B decoder's layer with 128, 512 and 2,048 tokens.

    python bench/tensor_cores.py [--rounds N] [--tiles] [--only TEXT] [--sources FOLDER]
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import numpy as np
import torch

import ostinato as ost
from ostinato import ops
from ostinato.ops import compiled, linear

sys.path.append(_HERE)

from harness import interleaved, median, ratio

SIDE = 4096
LAYER = {"qkv": (3072, 2048), "out": (2048, 2048), "gate and up": (16384, 2048), "down": (2048, 8192)}


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


def with_tile(dev: ost.Device, tile: tuple[int, int, int], weight: Any, x: Any, out: Any) -> Callable[[Any], None]:
    """Encodes a product with the kernel of one tile."""
    rows, width = weight.shape
    tokens = x.shape[0]
    name = "matmul_bfloat_{}_{}_{}".format(*tile)
    kernel = compiled.kernel(dev._queue, compiled.module("matmul"), name, alone=True)
    groups = (-(-rows // tile[1]), -(-tokens // tile[0]))

    def encode(encoder: Any) -> None:
        encoder.dispatch(kernel, weight, x, out, width, rows, tokens, groups=groups, group_size=32 * tile[2])

    return encode


def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    error = ((found.double() - expected.double()).norm() / expected.double().norm()).item()
    print(f"  {name}: relative error {error:.2e}", "" if error < 1e-2 else "WRONG", flush=True)


def rates(dev: ost.Device, library: ost.Library) -> tuple[float, float]:
    """Bytes a second from L2, and flops a second of products of simdgroup matrices in registers."""
    threads, times = dev.capabilities.workers * 8 * 256, 40
    data, out = dev.zeros((threads * 4, 4), np.uint32), dev.zeros((threads, 4), np.uint32)
    read = replayed(
        dev,
        lambda enc: enc.dispatch(library["read_all"], data, out, times, threads=threads, group_size=256),
        1,
    )
    groups, rounds = dev.capabilities.workers * 2, 2000
    factors = dev.from_dlpack(torch.randn(1024, device="cuda", dtype=torch.bfloat16))
    sums = dev.zeros(groups * 64, np.float32)
    multiply = replayed(
        dev,
        lambda enc: enc.dispatch(library["multiply_registers"], factors, sums, rounds, groups=groups, group_size=256),
        1,
    )
    flops = groups * 8 * rounds * 64 * 2 * 8**3
    return data.nbytes * times / median([read() for _ in range(5)]), flops / median([multiply() for _ in range(5)])


def mlx(folder: Path, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> tuple[ost.Device, Any]:
    """MLX's steel GEMM, x wᵀ, with its tile of 64 × 64."""
    dev = ost.open_device("cuda", tf32=True)
    kernels = folder / "mlx/mlx/backend/metal/kernels/steel/gemm/kernels/steel_gemm_fused.metal"
    constants = {10: False, 100: False, 110: False, 200: True, 201: True, 202: True}
    library = dev.library(kernels, constants, include_dirs=[folder / "mlx"])
    kernel = library["steel_gemm_fused_nt_bfloat16_bfloat16_bm64_bn64_bk16_wm2_wn2"]
    tiles = SIDE // 64
    words = struct.pack("8i3q3i4x", *[SIDE] * 6, tiles, tiles, 0, 0, 0, 0, SIDE // 16, 0)
    buffers = [dev.from_dlpack(tensor) for tensor in (x, w, out)]
    parameters = dev.array(np.frombuffer(words, np.uint8))
    grid = {"groups": (tiles, tiles), "group_size": (32, 2, 2)}
    return dev, lambda enc: enc.dispatch(kernel, *buffers, parameters, **grid)


def ggml(folder: Path, dev: ost.Device, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Any:
    """ggml's mul_mm of bf16 weights and float activations, with its tile of 64 × 32."""
    source = folder / "ggml/ggml-metal.metal"
    constants = {700: False, 701: False, 702: 1, 703: 1, 704: 1, 705: 1}
    library = dev.library(source, constants, include_dirs=[folder / "ggml"], defines={"GGML_METAL_HAS_BF16": 1})
    kernel = library["kernel_mul_mm_bf16_f32"]
    row, wide = 2 * SIDE, 4 * SIDE
    whole = SIDE * SIDE
    words = struct.pack(
        "2i3Qi4x4Q2i2h4x", SIDE, 1, row, 2 * whole, 2 * whole, 1, 4, wide, 4 * whole, 4 * whole, SIDE, SIDE, 1, 1
    )
    buffers = [dev.from_dlpack(tensor.view(torch.uint8)) for tensor in (w, x, out)]
    parameters = dev.array(np.frombuffer(words, np.uint8))
    grid = {"groups": (SIDE // 32, SIDE // 64, 1), "group_size": 128, "shared": {0: 8192}}
    return lambda enc: enc.dispatch(kernel, parameters, *buffers, **grid)


def products(dev: ost.Device, rounds: int, only: str, sources: Path | None) -> None:
    x, w = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.zeros(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    ours_x, ours_w, ours_out = dev.from_dlpack(x), dev.from_dlpack(w), dev.from_dlpack(out)
    flops = 2 * SIDE**3
    contenders: dict[str, Callable[[], float]] = {
        "cuBLAS x wᵀ": in_torch(lambda: torch.mm(x, w.t()), 20),
        "cuBLAS x w": in_torch(lambda: torch.mm(x, w), 20),
    }
    cases: dict[str, tuple[ost.Device, Callable[[Any], None], torch.Tensor, torch.Tensor]] = {}
    turned, straight = torch.mm(x, w.t()), torch.mm(x, w)
    cases["ops.matmul"] = (dev, lambda enc: ops.matmul(enc, ours_w, ours_x, ours_out), out, turned)
    for tile in linear._TILES:
        cases[f"matmul2d {_shown(tile)}"] = (dev, with_tile(dev, tile, ours_w, ours_x, ours_out), out, turned)
    library = dev.library(Path(__file__).with_suffix(".metal"))
    tiled, groups = library["tiled_bfloat"], (SIDE // 128, SIDE // 128)
    words_x, words_w = (dev.from_dlpack(tensor.view(torch.int32)).view(np.uint32) for tensor in (x, w))
    cases["simdgroup matrices, 128 × 128"] = (
        dev,
        lambda enc: enc.dispatch(tiled, words_x, words_w, ours_out, SIDE, SIDE, groups=groups, group_size=128),
        out,
        straight,
    )
    bytes_a_second, in_registers = rates(dev, library)
    print(f"L2 {bytes_a_second / 1e12:.2f} TB/s; products from registers {in_registers / 1e12:.0f} TFLOP/s", flush=True)
    bounds: dict[str, float] = {}
    if sources is not None:
        try:
            second, encode = mlx(sources, x, w, out)
            cases["MLX's steel GEMM, 64 × 64"] = (second, encode, out, turned)
            bounds["MLX's steel GEMM, 64 × 64"] = min(64 * 64 / 128 * bytes_a_second, in_registers / 2)
        except ost.OstinatoError as error:
            print("  MLX:", error)
        try:
            wide, result = x.float(), torch.zeros(SIDE, SIDE, device="cuda")
            cases["ggml's mul_mm, 64 × 32"] = (dev, ggml(sources, dev, wide, w, result), result, turned)
            bounds["ggml's mul_mm, 64 × 32"] = min(2 * 64 * 32 / (64 * 2 + 32 * 4) * bytes_a_second, in_registers)
        except ost.OstinatoError as error:
            print("  ggml:", error)
    for name, (device, encode, to, expected) in cases.items():
        if only not in name:
            continue
        try:
            to.fill_(float("nan"))
            torch.cuda.synchronize()
            encoder = device.command_encoder()
            encode(encoder)
            encoder.commit_and_wait()
            check(name, to, expected)
            contenders[name] = replayed(device, encode, 20)
        except ost.OstinatoError as error:
            print(f"  {name}: {error}", flush=True)
    times = interleaved(contenders, rounds)
    for name, values in times.items():
        base = times["cuBLAS x w" if "simdgroup" in name or name == "cuBLAS x w" else "cuBLAS x wᵀ"]
        reached = flops / median(values)
        bound = f"  {100 * reached / bounds[name]:5.1f} % of {bounds[name] / 1e12:.0f}" if name in bounds else ""
        print(f"{name:34} {reached / 1e12:7.1f} TFLOP/s  {100 / ratio(values, base):5.1f} % of cuBLAS{bound}")


def _shown(tile: tuple[int, int, int]) -> str:
    return f"{tile[0]} × {tile[1]} by {tile[2]}"


def tiles(dev: ost.Device, rounds: int) -> None:
    for tokens in (128, 512, 2048):
        for name, (rows, width) in LAYER.items():
            x = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
            w = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
            out = torch.zeros(tokens, rows, device="cuda", dtype=torch.bfloat16)
            ours = dev.from_dlpack(w), dev.from_dlpack(x), dev.from_dlpack(out)
            contenders = {"cuBLAS": in_torch(lambda x=x, w=w: torch.mm(x, w.t()), 50)}
            for tile in linear._TILES:
                contenders["{}x{}/{}".format(*tile)] = replayed(dev, with_tile(dev, tile, *ours), 50)
            times = {key: median(values) for key, values in interleaved(contenders, rounds).items()}
            chosen = linear._tile(tokens, rows, dev.capabilities.workers)
            shown = "  ".join(f"{key} {value * 1e6:6.1f}" for key, value in times.items())
            print(f"{tokens:5} × {name:12} µs: {shown}  chosen {chosen}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--sources", type=Path, help="a folder with mlx and ggml")
    chosen = parser.parse_args()
    dev = ost.open_device("cuda")
    products(dev, chosen.rounds, chosen.only, chosen.sources)
    if chosen.tiles:
        tiles(dev, chosen.rounds)


if __name__ == "__main__":
    main()
