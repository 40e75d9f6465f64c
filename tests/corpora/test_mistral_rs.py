"""mistral.rs: quantised formats, rows, sorts and scans, state space models, attention with sinks, paged attention."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from oracles import (
    FP8,
    NEAR,
    TYPES,
    Random,
    affine,
    check,
    check_product,
    four_bits,
    fp8_values,
    mxfp4,
    sigmoid,
    softmax,
    spread,
    values,
)

NAMES = {"f32": "float", "f16": "half", "bf16": "bfloat"}
TYPEDEFS = {"f32": "float", "f16": "half", "bf16": "bfloat16_t"}
MLX_NAMES = {"f32": "float", "f16": "float16_t", "bf16": "bfloat16_t"}


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("mistral.rs", f"mistralrs-quant/src/metal_kernels/{file}.metal", **options)[name]


def model_kernel(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return checkouts.library("mistral.rs", f"mistralrs-core/src/metal/kernels/{file}.metal")[name]


# --- quantised formats ----------------------------------------------------------------------------------------------


def packed(numbers: Random, bits: int, rows: int, width: int) -> tuple[Any, Any]:
    """Numbers of HQQ: each word holds those of rows that are far apart, the first in its highest bits."""
    each = 10 if bits == 3 else 8 // bits
    x = numbers.integers(0, 1 << bits, (each, rows, width))
    shifts = bits * np.arange(each)[::-1, None, None]
    return x.reshape(each * rows, width), (x << shifts).sum(axis=0).astype(np.int32 if bits == 3 else np.uint8)


@pytest.mark.parametrize(("bits", "kind"), [(8, "f32"), (4, "bf16"), (3, "f32"), (2, "f16"), (1, "f32")])
def test_hqq_dequantised(dev: ost.Device, checkouts: Checkouts, numbers: Random, bits: int, kind: str) -> None:
    expected, words = packed(numbers, bits, 7, 45)
    scale, zero = values(numbers, 45, kind), numbers.integers(0, 4, 45).astype(TYPES[kind])
    run = kernel(checkouts, "hqq_dequantize", f"dequantize_{bits}bit_{NAMES[kind]}")
    out = np.zeros(expected.shape, scale.dtype)
    got = launch(dev, run, words, scale, zero, out, np.uint32(7), np.uint32(45), **spread(words.size))
    check(got, (expected - zero.astype(float)) * scale.astype(float), kind)


@pytest.mark.parametrize("bits", [8, 4, 3, 2, 1])
def test_hqq_packed(dev: ost.Device, checkouts: Checkouts, numbers: Random, bits: int) -> None:
    x, expected = packed(numbers, bits, 7, 45)
    x = x.astype({8: np.int32, 3: np.uint32}.get(bits, np.uint8))
    run = kernel(checkouts, "hqq_bitpack", f"pack_{bits}bit")
    geometry: dict[str, Any] = {"threads": (7, 45)} if bits < 8 else {"threads": x.size}
    got = launch(dev, run, x, np.zeros_like(expected), *(x.shape if bits < 8 else (x.size,)), **geometry)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("name", "kind"), [("nf4", "f32"), ("nf4", "f16"), ("fp4", "bf16"), ("int8", "f32")])
def test_bitsandbytes(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str) -> None:
    """A thread for each block; with four bits, the high half of a byte comes first."""
    block, n = 32, 1000 if name == "int8" else 500
    raw = numbers.integers(0, 256, n).astype(np.uint8)
    scale = numbers.uniform(0.5, 2, 2 * -(-n // block)).astype(np.float32)
    code = np.sort(numbers.uniform(-1, 1, 256)).astype(np.float32)
    out = np.zeros(1000, TYPES[kind])
    run = kernel(checkouts, "bnb_dequantize", f"kernel_dequantize_{name}_{TYPEDEFS[kind]}")
    got = launch(dev, run, code, raw, scale, out, np.int32(block), np.int32(n), threads=-(-n // block))
    if name == "int8":
        expected = code[raw] * scale[np.arange(n) // block]
    else:
        numbers_of = four_bits(name)[np.stack([raw >> 4, raw & 15], axis=1)]
        expected = (numbers_of * scale[2 * (np.arange(n) // block), None]).ravel()
    check(got, expected, kind)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_fp8_to_wider(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = fp8_values(numbers, 1003)
    run = kernel(checkouts, "scalar_fp8", f"fp8_to_dtype_{TYPEDEFS[kind]}")
    got = launch(dev, run, x.view(np.uint8), np.zeros(1003, TYPES[kind]), 1003, **spread(1003))
    np.testing.assert_array_equal(got, x.astype(TYPES[kind]))


def test_fp8_from_float(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x = (numbers.uniform(0.02, 200, 1003) * numbers.choice([-1, 1], 1003)).astype(np.float32)
    run = kernel(checkouts, "scalar_fp8", "dtype_to_fp8_float")
    got = launch(dev, run, x, np.zeros(1003, np.uint8), 1003, **spread(1003))
    np.testing.assert_array_equal(got, x.astype(FP8).view(np.uint8))


def test_fp8_blocks(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """A scale for each tile of 32 × 48; those at the edges are cut."""
    x, scale = fp8_values(numbers, (70, 100)), numbers.uniform(0.5, 2, (3, 3)).astype(np.float32)
    run = kernel(checkouts, "blockwise_fp8", "dequant_fp8_blockwise_float")
    shape = {"weight_height": 70, "weight_width": 100, "weight_row_stride": 100, "scale_stride": 3}
    shape |= {"block_size_y": 32, "block_size_x": 48}
    grid: dict[str, Any] = {"groups": (3, 3, 1), "group_size": (32, 8, 1)}
    got = launch(dev, run, x.view(np.uint8), scale, np.zeros((70, 100), np.float32), shape, **grid)
    rows, columns = np.arange(70)[:, None] // 32, np.arange(100) // 48
    check(got, x.astype(float) * scale[rows, columns], "f32")


def test_f8q8(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """Blocks of 32 bytes behind a scale of eight bits, which counts in parts of the largest."""
    raw = numbers.integers(0, 256, (70, 33)).astype(np.uint8)
    raw[:, 0] &= 0x77
    run = kernel(checkouts, "f8q8", "f8q8_dequantize_float")
    got = launch(dev, run, raw, np.zeros((70, 32), np.float32), 70, **spread(70))
    check(got, raw[:, :1].view(FP8).astype(float) / 448 * raw[:, 1:].view(np.int8).astype(float), "f32")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["vecmat", "matmul"])
def test_mxfp4_product(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str) -> None:
    m, n, k = 3, 40, 1120
    raw, powers, weights = mxfp4(numbers, n, k)
    x, bias = values(numbers, (m, k), kind), values(numbers, n, kind)
    run = kernel(checkouts, "mxfp4", f"mxfp4_{op}_{kind}")
    grid: dict[str, Any] = {"groups": (n // (4 if op == "vecmat" else 8), m, 1), "group_size": (256, 1, 1)}
    got = launch(dev, run, x, raw, powers, bias, np.zeros((m, n), x.dtype), m, n, k, 1, **grid)
    ones = np.ones((m, 1), x.dtype)
    check_product(got, np.hstack([x, ones]), np.hstack([weights, bias[:, None].astype(float)]), NEAR[kind] / 4)


@pytest.mark.parametrize("op", ["split", "reuse"])
def test_mxfp4_experts(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str) -> None:
    """Each token goes to three experts. A number of an expert that there is none of gives zeros."""
    tokens, top, experts, n, k = 5, 3, 4, 24, 544
    raw, powers, weights = mxfp4(numbers, experts, n, k)
    x, bias = values(numbers, (tokens, k), "bf16"), values(numbers, (experts, n), "bf16")
    chosen = numbers.integers(0, experts + 1, (tokens, top)).astype(np.uint32)
    run = kernel(checkouts, "mxfp4", f"mxfp4_moe_gemm_{op}_bf16")
    more = (0,) if op == "split" else ()
    grid: dict[str, Any] = {"groups": (n // 8, tokens, top if op == "split" else 1), "group_size": (256, 1, 1)}
    out, shape = np.ones((tokens, top, n), x.dtype), (tokens, top, experts, n, k, 1)
    got = launch(dev, run, x, raw, powers, bias, chosen, out, *shape, *more, **grid)
    products = np.einsum("tk,enk->ten", x.astype(float), weights) + bias.astype(float)
    expected = np.concatenate([products, np.zeros((tokens, 1, n))], axis=1)[np.arange(tokens)[:, None], chosen]
    check(got, expected, "bf16", scale=10)


@pytest.mark.parametrize(("kind", "bits", "group"), [("f32", 4, 64), ("bf16", 3, 32), ("f16", 8, 128), ("f32", 6, 64)])
class TestAffine:
    """MLX's format: numbers of some bits, with a scale and a bias for each group."""

    def test_dequantised(
        self, dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, bits: int, group: int
    ) -> None:
        packed, scale, bias, expected = affine(numbers, kind, bits, group, 6, 384)
        run = kernel(checkouts, "quantized", f"affine_dequantize_{MLX_NAMES[kind]}_gs_{group}_b_{bits}")
        out = np.zeros(expected.shape, TYPES[kind])
        each = {3: 8, 6: 4}.get(bits, 8 // bits)
        got = launch(dev, run, packed.view(np.uint8), scale, bias, out, threads=out.size // each, group_size=32)
        check(got, expected, kind)

    def test_embedding(
        self, dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, bits: int, group: int
    ) -> None:
        packed, scale, bias, weights = affine(numbers, kind, bits, group, 19, 384)
        ids = numbers.integers(0, 19, 7).astype(np.uint32)
        run = kernel(checkouts, "quantized", f"affine_embedding_{MLX_NAMES[kind]}_gs_{group}_b_{bits}")
        out, threads = np.zeros((7, 384), TYPES[kind]), 7 * 384 // {3: 8, 6: 4}.get(bits, 8 // bits)
        got = launch(dev, run, packed.view(np.uint8), scale, bias, ids, out, 7, 384, threads=threads, group_size=32)
        check(got, weights[ids], kind)

    @pytest.mark.parametrize("op", ["qmv_fast", "qmv", "qmm_t"])
    def test_product(
        self, dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str, bits: int, group: int
    ) -> None:
        """With few vectors or many; the fast kernel takes whole tiles only."""
        m, (n, k) = 37 if op == "qmm_t" else 3, (40, 1024) if op == "qmv_fast" else (45, 640)
        packed, scale, bias, weights = affine(numbers, kind, bits, group, n, k)
        x = values(numbers, (m, k), kind)
        tail = "_alN_false_batch_0" if op == "qmm_t" else "_batch_0"
        run = kernel(checkouts, "quantized", f"{op}_{MLX_NAMES[kind]}_gs_{group}_b_{bits}{tail}")
        rows, unused = (
            (m,) if op == "qmm_t" else (),
            [np.zeros(1, t) for t in (np.int32, np.int32, np.int64, np.int32, np.int32, *3 * [np.int64])],
        )
        grid: dict[str, Any] = {"groups": (-(-n // 8), m, 1), "group_size": (32, 2, 1)}
        if op == "qmm_t":
            grid = {"groups": (-(-n // 32), -(-m // 32), 1), "group_size": (32, 2, 2)}
        got = launch(dev, run, packed, scale, bias, x, np.zeros((m, n), x.dtype), k, n, *rows, *unused, **grid)
        check_product(got, x, weights, NEAR[kind] / 4)


# --- elements and rows ----------------------------------------------------------------------------------------------

ACTIVATIONS = {
    0: lambda x: x * sigmoid(x),
    1: lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    2: lambda x: np.maximum(x, 0),
    4: sigmoid,
}


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_glu(dev: ost.Device, checkouts: Checkouts, numbers: Random, activation: int, kind: str) -> None:
    a, b = values(numbers, (2, 1003), kind)
    run = kernel(checkouts, "fused_glu", f"fused_glu_{NAMES[kind]}")
    got = launch(dev, run, a, b, np.zeros_like(a), 1003, activation, **spread(1003))
    check(got, ACTIVATIONS[activation](a.astype(float)) * b.astype(float), kind)


def test_softcap(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x = 10 * values(numbers, 1003, "f32")
    got = launch(dev, kernel(checkouts, "softcap", "softcap_float"), x, np.zeros_like(x), 1003, 5.0, **spread(1003))
    check(got, 5 * np.tanh(x.astype(float) / 5), "f32")


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_norm_with_residual(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x, residual, weight, scale = (values(numbers, shape, kind) for shape in ((5, 300), (5, 300), 300, 1))
    run = kernel(checkouts, "rmsnorm_residual", f"rmsnorm_residual_{kind}")
    grid: dict[str, Any] = {"groups": 5, "group_size": 256, "shared": {0: 1024}}
    got = launch(dev, run, x, residual, weight, scale, np.zeros_like(x), 300, 1e-5, 1, **grid)
    x, residual, weight, scale = (part.astype(float) for part in (x, residual, weight, scale))
    norm = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    check(got, (norm + residual) * scale, kind)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_softmax_with_sinks(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x, sinks = 3 * values(numbers, (2, 4, 3, 333), kind), values(numbers, 4, kind)
    run = kernel(checkouts, "softmax_with_sinks", f"softmax_with_sinks_{NAMES[kind]}")
    grid: dict[str, Any] = {"groups": 24, "group_size": 512, "shared": {0: 18 * 4}}
    got = launch(dev, run, x, sinks, np.zeros_like(x), 4, 3, 333, **grid)
    more = np.broadcast_to(sinks[:, None, None], (2, 4, 3, 1))
    check(got, softmax(np.concatenate([x, more], axis=-1).astype(float))[..., :-1], kind, scale=1e-2)


def test_experts_reduced(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x, weights = values(numbers, (7, 3, 101), "bf16"), numbers.random((7, 3), np.float32)
    run = kernel(checkouts, "moe", "moe_weighted_reduce_flat_bfloat")
    got = launch(dev, run, x, weights, np.zeros((7, 101), x.dtype), 7, 101, 3, threads=(101, 7))
    check(got, np.einsum("tsh,ts->th", x.astype(float), weights), "bf16")


@pytest.mark.parametrize("neox", [False, True], ids=["neighbours", "halves"])
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_rotary(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, neox: bool) -> None:
    """Of the first 12 numbers of a head of 20, at positions of each token."""
    b, t, d = 2, 5, 20
    q, k = values(numbers, (b, 4, t, d), kind), values(numbers, (b, 2, t, d), kind)
    angle, places = numbers.uniform(-3, 3, (30, 6)), numbers.integers(0, 30, (b, t)).astype(np.uint32)
    cos, sin = (turn(angle).astype(q.dtype) for turn in (np.cos, np.sin))
    run = kernel(checkouts, "rotary", f"rotary_qk_positions_{NAMES[kind]}")
    empty, threads = (np.zeros_like(q), np.zeros_like(k)), q.size + k.size
    got = launch(dev, run, q, k, cos, sin, places, *empty, b, 4, 2, t, d, 6, neox, **spread(threads))
    z = (cos.astype(float) + 1j * sin.astype(float))[places][:, None]
    for x, result in zip((q, k), got, strict=True):
        wide = x.astype(float)
        first, second = (np.s_[..., :6], np.s_[..., 6:12]) if neox else (np.s_[..., 0:12:2], np.s_[..., 1:12:2])
        pairs = (wide[first] + 1j * wide[second]) * z
        wide[first], wide[second] = pairs.real, pairs.imag
        check(result, wide, kind)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_top_logits(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """The largest of each chunk, then of all, with what a softmax at a temperature would divide by."""
    n, top, chunk, sharp = 5000, 20, 1024, 1.25
    x = numbers.permutation(np.arange(-n // 2, n // 2) / 256 if kind == "f32" else np.arange(n) % 256).astype(
        TYPES[kind]
    )
    if kind == "bf16":  # different numbers at the top
        x[numbers.permutation(n)[:top]] = 256 + 2 * np.arange(top)
    count = -(-n // chunk)
    first, second = (
        kernel(checkouts, "topk_logits", f"topk_logits_{part}") for part in (f"stage1_{kind}", "stage2_packed_f32")
    )
    parts = [
        np.zeros(shape, t) for shape, t in (((count, top), "f4"), ((count, top), "u4"), (count, "f4"), (count, "f4"))
    ]
    parts = launch(dev, first, x, *parts, n, top, chunk, sharp, groups=count, group_size=1024, shared={0: chunk})
    packed = np.zeros(2 * top + 2, np.float32)
    got = launch(dev, second, *parts, packed, count, top, groups=1, group_size=1024, shared={0: 128})
    order = np.argsort(-x.astype(float))[:top]
    wide = x.astype(float) * sharp
    total = np.exp(wide - wide.max()).sum()
    check(got, np.concatenate([x[order].astype(float), order, [total, wide.max()]]), "f32")


# --- sorts and scans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int16"])
def test_block_sort(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """With values only, the kernel has no memory for indices and passes null pointers on."""
    x = (50 * numbers.standard_normal((3, 230))).astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind)
    run = kernel(checkouts, "sort", f"c_block_sort_{kind}_{kind}_bn64_tn4")
    grid: dict[str, Any] = {"groups": (1, 3, 1), "group_size": (64, 1, 1)}
    got = launch(dev, run, x, np.zeros_like(x), 230, 1, 1, 230, 230, **grid)
    np.testing.assert_array_equal(got, np.sort(x))


def test_block_argsort(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    x = values(numbers, (3, 230), "f32")
    run = kernel(checkouts, "sort", "carg_block_sort_float32_uint32_bn64_tn4")
    grid: dict[str, Any] = {"groups": (1, 3, 1), "group_size": (64, 1, 1)}
    got = launch(dev, run, x, np.zeros(x.shape, np.uint32), 230, 1, 1, 230, 230, **grid)
    np.testing.assert_array_equal(got, np.argsort(x))


SCANS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "logaddexp": np.logaddexp}
FIRST = {"sum": 0, "prod": 1, "max": -np.inf, "logaddexp": -np.inf}


KINDS_OF_SCANS = [
    "contig inclusive sum float32",
    "contig exclusive prod float32",
    "contig reverse_inclusive max int32",
    "contig inclusive logaddexp float32",
    "contig inclusive sum int64",
    "strided reverse_exclusive sum float32",
    "strided inclusive max float16",
]


@pytest.mark.parametrize("name", KINDS_OF_SCANS)
def test_scan(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    place, way, op, kind = name.split()
    n, columns = 777, 1 if place == "contig" else 45
    x = (numbers.standard_normal((3, n, columns)) * (10 if "int" in kind else 1)).astype(kind)
    if op == "prod":
        x = np.exp(x / 20)
    run = kernel(checkouts, "scan", f"{place}_scan_{way}_{op}_{kind}_{kind}")
    if place == "contig":
        each = 2 if kind == "int64" else 4
        width = -(-n // (32 * each)) * 32
        got = launch(dev, run, x, np.zeros_like(x), n, groups=(1, 3, 1), group_size=(width, 1, 1))
    else:
        got = launch(dev, run, x, np.zeros_like(x), n, columns, 2, groups=(1, 6, 1), group_size=(256, 1, 1))
    wide = x.astype(int if "int" in kind else float)
    wide = wide[:, ::-1] if "reverse" in way else wide
    if "exclusive" in way:
        wide = np.concatenate([np.full_like(wide[:, :1], FIRST[op]), wide[:, :-1]], axis=1)
    expected = SCANS[op].accumulate(wide, axis=1)
    np.testing.assert_allclose(got, expected[:, ::-1] if "reverse" in way else expected, rtol=1e-4, atol=1e-4)
