"""kernels-community: activations, norms, four-bit formats, paged and packed attention, experts of gpt-oss."""

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
    PagedCache,
    Random,
    affine,
    attention,
    check,
    check_product,
    erf,
    four_bits,
    fp8_values,
    mxfp4,
    sigmoid,
    values,
)

NAMES = {"f32": "float", "f16": "half", "bf16": "bfloat16_t", "fp8": "uchar"}
MLX_NAMES = {"f32": "float", "f16": "float16_t", "bf16": "bfloat16_t"}
GPT_OSS = "gpt-oss-metal-kernels/gptoss_kernels/source"
PAGED = "paged-attention/paged-attention-metal"
MLX = "mlx-quantization-metal-kernels/quantization_mlx"
BITSANDBYTES = "bitsandbytes-mps/bitsandbytes_mps"


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("kernels-community", f"{file}.metal", **options)[name]


# --- activations and norms ------------------------------------------------------------------------------------------


def gelu_by_tanh(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Any] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": gelu_by_tanh,
    "gelu_fast": gelu_by_tanh,
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
}


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str) -> None:
    """A thread for eight numbers of a row, the rows of a length that leaves one over."""
    x = values(numbers, (7, 101), kind)
    run = kernel(checkouts, "activation/activation_metal/activation", f"{name}_{kind}")
    got = launch(dev, run, np.zeros_like(x), x, 101, threads=(13, 7))
    check(got, ACTIVATIONS[name](x.astype(float)), kind)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("name", ["silu_and_mul", "mul_and_silu", "gelu_tanh_and_mul", "fatrelu_and_mul"])
def test_gated_activation(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str) -> None:
    x = values(numbers, (7, 2, 101), kind)
    run = kernel(checkouts, "activation/activation_metal/activation", f"{name}_{kind}")
    more = (0.25,) if name.startswith("fatrelu") else ()
    got = launch(dev, run, np.zeros_like(x[:, 0]), x, 101, *more, threads=(13, 7))
    gate, other = x.astype(float).swapaxes(0, 1)[:: -1 if name == "mul_and_silu" else 1]
    activated = (
        np.where(gate > 0.25, gate, 0) if more else ACTIVATIONS[name.replace("_and_mul", "").split("_and_")[-1]](gate)
    )
    check(got, activated * other, kind)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("n", [1001, 4500])
def test_norm(dev: ost.Device, checkouts: Checkouts, numbers: Random, n: int, kind: str) -> None:
    """Short rows at once, longer ones in a loop; the weights have a stride."""
    x, weight = values(numbers, (5, n), kind), values(numbers, (n, 2), kind)
    looped, dtype = n > 4096, {"f32": "float32", "f16": "float16"}[kind]
    run = kernel(checkouts, "mlx-rmsnorm/mlx_rmsnorm/rmsnorm", f"rms{'_looped' * looped}{dtype}", constants={20: False})
    width = 1024 if looped else -(-n // 128) * 32
    got = launch(dev, run, x, weight, np.zeros_like(x), 1e-5, n, 2, groups=5, group_size=width)
    wide = x.astype(float)
    check(got, wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight[:, 0].astype(float), kind)


@pytest.mark.parametrize("both", [True, False], ids=["both", "input"])
@pytest.mark.parametrize("n", [1001, 4500])
def test_gradient_of_norm(dev: ost.Device, checkouts: Checkouts, numbers: Random, n: int, both: bool) -> None:
    """Of the input, and of the weights if a function constant asks for it."""
    x, gradient, weight = (values(numbers, shape, "f32") for shape in ((5, n), (5, n), n))
    looped = n > 4096
    name = f"vjp_rms{'_looped' * looped}float32"
    run = kernel(checkouts, "mlx-rmsnorm/mlx_rmsnorm/rmsnorm", name, constants={20: both})
    empty, width = (np.zeros_like(x), np.zeros_like(x)), 1024 if looped else -(-n // 128) * 32
    got = launch(dev, run, x, weight, gradient, *empty, 1e-5, n, 1, groups=5, group_size=width)
    wide, out = x.astype(float), gradient.astype(float) * weight
    norm = 1 / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5)
    check(got[0], norm * out - wide * norm**3 * (out * wide).mean(axis=1, keepdims=True), "f32")
    check(got[1], gradient * wide * norm if both else 0 * wide, "f32")


# --- four-bit formats -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "kind"), [("fp4", "f32"), ("nf4", "f16"), ("nf4", "f32")])
class TestBitsAndBytes:
    """Numbers of a table, times the largest of a block; the high half of a byte comes first."""

    def kernel(self, checkouts: Checkouts, op: str, name: str, kind: str) -> ost.Kernel:
        full = f"bnb_{op}_{NAMES[kind]}_bs_64_qt_{1 if name == 'fp4' else 2}"
        return kernel(checkouts, f"{BITSANDBYTES}/bnb_quantized", full, include=(BITSANDBYTES,))

    def weights(self, numbers: Random, name: str, *shape: int) -> tuple[Any, Any, Any]:
        raw = numbers.integers(0, 256, (*shape[:-1], shape[-1] // 2), np.uint8)
        scale = numbers.uniform(0.5, 2, (*shape[:-1], -(-shape[-1] // 64))).astype(np.float32)
        number = four_bits(name)[np.stack([raw >> 4, raw & 15], axis=-1).reshape(shape)]
        return raw, scale, number * np.repeat(scale, 64, axis=-1)[..., : shape[-1]]

    def test_quantised(self, dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str) -> None:
        x = values(numbers, 1000, kind)
        run = self.kernel(checkouts, "quantize_blockwise", name, kind)
        scale, raw = launch(dev, run, x, np.zeros(16, np.float32), np.zeros(500, np.uint8), 1000, threads=16)
        wide = np.append(x.astype(float), np.zeros(24)).reshape(16, 64)
        check(scale, np.abs(wide).max(axis=1), "f32")
        small = (wide / np.abs(wide).max(axis=1, keepdims=True)).ravel()[:1000]
        far = np.abs(small[:, None] - four_bits(name))
        chosen = np.stack([raw >> 4, raw & 15], axis=-1).ravel()
        down = (name == "fp4") & (np.abs(small) > 7 / 12) & (np.abs(small) < 3 / 4)  # to 1/2, though 2/3 is nearer
        assert np.all(down | (far[np.arange(1000), chosen] <= far.min(axis=1) + 1e-6))

    def test_dequantised(self, dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str, kind: str) -> None:
        raw, scale, expected = self.weights(numbers, name, 1000)
        run = self.kernel(checkouts, "dequantize_blockwise", name, kind)
        got = launch(dev, run, raw, scale, np.zeros(1000, TYPES[kind]), 1000, groups=16, group_size=32)
        check(got, expected, kind)

    @pytest.mark.parametrize("op", ["qmv", "qmm_t"])
    def test_product(
        self, dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, name: str, kind: str
    ) -> None:
        n, k, m = 45, 640, 1 if op == "qmv" else 37
        raw, scale, weights = self.weights(numbers, name, 64, k)  # the scales of a whole tile are read
        x, run = values(numbers, (m, k), kind), self.kernel(checkouts, op, name, kind)
        grid: dict[str, Any] = {"groups": (1, -(-n // 8), 1), "group_size": (64, 1, 1)}
        if op == "qmm_t":
            grid = {"groups": (-(-n // 32), -(-m // 32), 1), "group_size": (128, 1, 1)}
        rows = () if op == "qmv" else (m,)
        got = launch(dev, run, raw, scale, x, np.zeros((m, n), x.dtype), k, n, *rows, **grid)
        check_product(got, x, weights[:n], NEAR[kind] / 2)


LAYOUT = [np.zeros(1, t) for t in (np.int32, np.int32, np.int64, np.int32, np.int32, np.int64, np.int64, np.int64)]
"""Of batches, in arguments that the kernels of single products do not look at."""


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("op", ["qmv", "qmm_t", "qmm_n"])
@pytest.mark.parametrize("form", ["affine", "mxfp4"])
def test_mlx_product(dev: ost.Device, checkouts: Checkouts, numbers: Random, form: str, op: str, kind: str) -> None:
    """With weights by rows, or by columns. There are whole tiles of weights, since all their scales are read."""
    m, n, k = 1 if op == "qmv" else 37, 64 if op == "qmm_n" else 45, 640
    shape, layout = (k, n) if op == "qmm_n" else (64, k), LAYOUT if form == "affine" else LAYOUT[:-1]
    *parts, weights = affine(numbers, kind, 4, 64, *shape) if form == "affine" else mxfp4(numbers, *shape)
    x, rows = values(numbers, (m, k), kind), () if op == "qmv" else (m,)
    tail = f"gs_{64 if form == 'affine' else 32}_b_4{'_alN_false' * (op == 'qmm_t')}_batch_0"
    file = f"{MLX}/{'quantized' if form == 'affine' else 'fp_quantized'}"
    run = kernel(checkouts, file, f"{form}_{op}_{MLX_NAMES[kind]}_{tail}", include=(MLX,))
    grid: dict[str, Any] = {"groups": (-(-n // 32), -(-m // 32), 1), "group_size": (128, 1, 1)}
    if op == "qmv":
        grid = {"groups": (1, -(-n // 8), 1), "group_size": (64, 1, 1)}
    packed = parts[0].view(np.uint32)
    got = launch(dev, run, packed, *parts[1:], x, np.zeros((m, n), x.dtype), k, n, *rows, *layout, **grid)
    check_product(got, x, weights.T if op == "qmm_n" else weights[:n], NEAR[kind] / 4)


@pytest.mark.parametrize("name", ["mxfp4_{}_float_gs_32_b_4", "nvfp4_{}_float_gs_16_b_4", "mxfp8_{}_float_gs_32_b_8"])
def test_to_few_bits_and_back(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """By the scale that the kernel chooses, which brings the largest number near the largest of the format."""
    group, bits, n = int(name[-6:-4]), int(name[-1]), 1024
    number, most = (ml_dtypes.float4_e2m1fn, 6) if bits == 4 else (FP8, 448)
    x = values(numbers, n, "f32")
    quantise, back = (
        kernel(checkouts, f"{MLX}/fp_quantized", name.format(op), include=(MLX,)) for op in ("quantize", "dequantize")
    )
    empty = np.zeros(n * bits // 8, np.uint8), np.zeros(n // group, np.uint8)
    raw, scale = launch(dev, quantise, x, *empty, threads=(n, 1), group_size=(group, 1))
    wide = scale.view(FP8 if group == 16 else ml_dtypes.float8_e8m0fnu).astype(float)
    needed = np.abs(x.reshape(-1, group)).max(axis=1) / most
    assert np.all((wide > needed / 2.01) & (wide < needed * 2.01))
    expected = np.clip(x.reshape(-1, group) / wide[:, None], -most, most).astype(np.float32).astype(number)
    codes = np.stack([raw & 15, raw >> 4], axis=-1).ravel() if bits == 4 else raw
    near = codes.view(number).astype(float) - expected.ravel().astype(float)
    assert np.count_nonzero(near) < 3  # ties, and quotients that are rounded to one
    got = launch(dev, back, raw, scale, np.zeros_like(x), threads=(raw.size, 1), group_size=(32, 1))
    check(got, codes.view(number).astype(float) * np.repeat(wide, group), "f32")


# --- attention ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "cached", "width", "block", "extra"),
    [
        ("f32", "f32", 64, 16, "alibi"),
        ("f16", "f16", 96, 32, "cap"),
        ("bf16", "bf16", 256, 8, ""),
        ("f32", "fp8", 128, 16, ""),
        ("bf16", "fp8", 80, 32, "alibi"),
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_paged_attention(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, parts: int, kind: str, cached: str, width: int, block: int,
    extra: str,
) -> None:  # fmt: skip
    """Of sequences of different length, in one pass, or in parts of 512 keys that a second kernel puts together."""
    lengths, heads, shared, scale = [700, 45, 513], 4, 2, width**-0.5
    cache = PagedCache(numbers, lengths, heads // shared, width, block, cached)
    q, slopes = values(numbers, (len(lengths), heads, width), kind), numbers.random(heads, np.float32) / 8
    scales = [np.array([0.5], np.float32), np.array([1.5], np.float32)]
    out, cap = np.zeros_like(q), 5.0 if extra == "cap" else 1.0
    sizes = (heads * width, heads // shared * width * block, width * block)
    arguments = (cache.keys, cache.values, *scales, heads // shared, scale, cap, cache.table, cache.lengths, cache.most)
    options: Any = {"constants": {10: parts > 1, 20: extra == "alibi", 30: cached == "fp8"}, "include": (PAGED,)}
    ending = f"nt256_nsl32_ps{512 if parts > 1 else 0}"
    file = f"{PAGED}/attention/paged_attention"
    name = f"paged_attention_{NAMES[kind]}_cache_{NAMES[cached]}_hs{width}_bs{block}_{ending}"
    run = kernel(checkouts, file, name, **options)
    grid: dict[str, Any] = {"group_size": (256, 1, 1), "shared": {0: 4 * max(4 * width, 720)}}
    each = (len(lengths), heads, parts)
    sums, most = np.zeros(each, np.float32), np.zeros(each, np.float32)
    made = np.zeros((*each, width), q.dtype) if parts > 1 else out
    groups = (heads, len(lengths), parts)
    sums, most, got = launch(dev, run, sums, most, made, q, *arguments, slopes, *sizes, groups=groups, **grid)
    if parts > 1:
        merge = kernel(checkouts, file, f"paged_attention_v2_reduce_{NAMES[kind]}_hs{width}_{ending}", **options)
        more = (sums, most, got, cache.lengths, parts)
        got, _ = launch(dev, merge, out, *more, groups=(heads, len(lengths), 1), **grid)
    for row, (k, v), n, result in zip(q, cache.dense, lengths, got, strict=True):
        if cached == "fp8":
            k, v = k.astype(float) * scales[0], v.astype(float) * scales[1]
        bias = slopes[:, None, None] * (np.arange(n) - n + 1) if extra == "alibi" else 0.0
        expected = attention(row[None, :, None], k, v, scale, bias, cap if cap != 1 else 0.0)
        check(result, expected[0, :, 0], kind, scale=0.5)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_into_the_cache(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """Tokens go to their slots, tokens in front; a slot below zero is none."""
    tokens, heads, width, block = 11, 2, 48, 8
    k, v = (values(numbers, (tokens, heads, width), kind) for _ in range(2))
    slots = numbers.permutation(5 * block)[:tokens].astype(np.int64)
    slots[4] = -1
    run = kernel(
        checkouts, f"{PAGED}/cache/reshape_and_cache", f"reshape_and_cache_flash_{NAMES[kind]}", constants={10: False},
        include=(PAGED,),
    )  # fmt: skip
    sizes = [np.int32(n) for n in (heads * width, heads * width, heads, width, block)]
    empty = [np.zeros((5 * block, heads, width), k.dtype) for _ in range(2)]
    got = launch(dev, run, k, v, *empty, slots, *sizes, groups=tokens, group_size=64)
    for x, stored, result in zip((k, v), empty, got, strict=True):
        stored[slots[slots >= 0]] = x[slots >= 0]
        np.testing.assert_array_equal(result, stored)


@pytest.mark.parametrize(("source", "target"), [("fp8", "f16"), ("f32", "fp8"), ("bf16", "f32")])
def test_fp8_conversion(dev: ost.Device, checkouts: Checkouts, numbers: Random, source: str, target: str) -> None:
    """Eight bits are multiplied by the scale, or made of what is divided by it."""
    types = TYPES | {"fp8": FP8}
    x = fp8_values(numbers, 1003) if source == "fp8" else (numbers.uniform(0.1, 50, 1003)).astype(types[source])
    run = kernel(checkouts, f"{PAGED}/convert_fp8", f"convert_fp8_{NAMES[source]}_to_{NAMES[target]}")
    expected = (x.astype(np.float32) * np.float32(2 if target == "fp8" else 0.5)).astype(types[target])
    memory = [part.view(np.uint8) if part.dtype == FP8 else part for part in (x, np.zeros_like(expected))]
    got = launch(dev, run, *memory, np.float32(0.5), np.uint32(1003), threads=1003, group_size=64)
    np.testing.assert_array_equal(got, expected.view(got.dtype))


@pytest.mark.parametrize(
    ("kind", "width", "causal"), [("f32", 64, False), ("f16", 128, True), ("bf16", 96, True), ("f32", 256, True)]
)
def test_packed_attention(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, width: int, causal: bool
) -> None:
    """Sequences of different length behind each other, a batch of three, the last causal query at the last key."""
    heads, scale, lengths, behind = 4, width**-0.5, np.array([45, 7, 64]), np.array([77, 7, 100])
    ends = [np.append(0, np.cumsum(n)).astype(np.int32) for n in (lengths, behind)]
    q = values(numbers, (lengths.sum(), heads, width), kind)
    k, v = (values(numbers, (behind.sum(), 2, width), kind) for _ in range(2))
    tile = {256: (16, 8, 2)}.get(width, (32, 16 if width >= 128 else 32, 4))
    name = "steel_attention_{}_bq{}_bk{}_bd{}_wm{}_wn1_maskbool_".format(
        {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[kind], *tile[:2], width, tile[2]
    )
    constants = {200: False, 201: False, 300: False, 301: causal}
    run = kernel(checkouts, "metal-flash-sdpa/sdpa-metal/scaled_dot_product_attention", name, constants=constants)
    sizes = (3, heads, width, 0, 0, heads // 2, scale, 1.0, *7 * [0], *4 * [[0, 0, 0]], len(q), len(k), 64, 100)
    grid: dict[str, Any] = {"groups": (-(-64 // tile[0]), heads, 3), "group_size": (32, tile[2], 1)}
    got = launch(dev, run, q, k, v, np.zeros_like(q), sizes, *ends, **grid)
    for i in range(3):
        mine, theirs = (slice(*part[i : i + 2]) for part in ends)
        places = np.arange(lengths[i])[:, None] + behind[i] - lengths[i]
        bias = np.where(np.arange(behind[i]) <= places, 0, -np.inf) if causal else 0.0
        rows, keys, summed = (x.swapaxes(0, 1)[None] for x in (q[mine], k[theirs], v[theirs]))
        check(got[mine].swapaxes(0, 1), attention(rows, keys, summed, scale, bias)[0], kind, scale=0.5)


# --- experts of gpt-oss ---------------------------------------------------------------------------------------------


def gpt_oss(checkouts: Checkouts, file: str, name: str) -> ost.Kernel:
    return kernel(checkouts, f"{GPT_OSS}/{file}", f"gptoss_{name}", include=(f"{GPT_OSS}/include",))


def test_routing(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """Four experts for each token: where each expert's rows begin, tokens copied there, results added up."""
    tokens, experts, width = 37, 11, 60
    choices = np.zeros((tokens, 4), [("expert_id", np.uint32), ("score", np.float32)])
    choices["expert_id"] = np.argsort(numbers.random((tokens, experts)), axis=1)[:, :4]
    choices["score"] = numbers.random((tokens, 4))
    run = gpt_oss(checkouts, "expert_routing_metadata", "f32_expert_routing_metadata")
    empty = np.zeros(experts + 1, np.uint32), np.zeros(choices.shape, np.uint32)
    starts, inside = launch(dev, run, (4 * tokens, experts), choices, *empty, groups=1, group_size=256)
    counts = np.bincount(choices["expert_id"].ravel(), minlength=experts)
    np.testing.assert_array_equal(starts, np.append(0, np.cumsum(counts)))
    places = starts[choices["expert_id"]] + inside
    np.testing.assert_array_equal(np.sort(places.ravel()), np.arange(4 * tokens))

    x, sizes = values(numbers, (tokens, width), "f32"), (tokens, 4, width)
    grid: dict[str, Any] = {"threads": (width // 4, tokens, 1), "group_size": (15, 1, 1)}
    scatter = gpt_oss(checkouts, "scatter", "f32_scatter_e4")
    rows = launch(dev, scatter, sizes, x, choices, starts, inside, np.zeros((4 * tokens, width), np.float32), **grid)
    np.testing.assert_array_equal(rows[places], np.repeat(x[:, None], 4, axis=1))

    results, before = values(numbers, rows.shape, "f32"), values(numbers, x.shape, "f32")
    gather = gpt_oss(checkouts, "gather_and_accumulate", "f32_gather_and_accumulate_e4")
    got = launch(dev, gather, sizes, results, choices, starts, inside, before, **grid)
    check(got, before + np.einsum("tewx,te->tx", results[places][:, :, None].astype(float), choices["score"]), "f32")


@pytest.mark.parametrize("swiglu", [True, False], ids=["swiglu", "plain"])
def test_products_of_experts(dev: ost.Device, checkouts: Checkouts, numbers: Random, swiglu: bool) -> None:
    """For the rows of each expert, one of which has none. The host adds 14 to the powers of two."""
    experts, n, k, counts = 4, 128, 96, np.array([37, 0, 64, 5])
    starts = np.append(0, np.cumsum(counts)).astype(np.uint32)
    raw, powers, weights = mxfp4(numbers, experts, n, k)
    x, bias = values(numbers, (starts[-1], k), "f32") / 8, values(numbers, (experts, n), "bf16")
    run = gpt_oss(checkouts, "moematmul", "f32_mf4w_moe_dense_matmul" + "_swiglu" * swiglu)
    sizes = (k, n, n * k // 2, n * k // 32, 2 * n, *(-7.0, 7.0) * swiglu)
    out = np.zeros((starts[-1], n // 2 if swiglu else n), np.float32)
    grid: dict[str, Any] = {"groups": (n // 64, 2, experts), "group_size": (128, 1, 1)}
    got = launch(dev, run, sizes, starts, x, raw.view(np.uint32), powers + 14, bias, out, **grid)
    for expert in range(experts):
        rows = slice(*starts[expert : expert + 2])
        expected = x[rows].astype(float) @ weights[expert].T + bias[expert].astype(float)
        if swiglu:
            gate, linear = np.minimum(expected[:, ::2], 7), np.clip(expected[:, 1::2], -7, 7)
            expected = gate * sigmoid(1.702 * gate) * (linear + 1)
        check(got[rows], expected, "f32", scale=20)


def test_numbers_of_four_bits(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    raw, powers, weights = mxfp4(numbers, 1003, 32)
    run = gpt_oss(checkouts, "convert", "mf4_f32_convert")
    sizes = {"num_vecs_per_threadgroup": 300, "num_vecs": 1003}
    got = launch(
        dev, run, sizes, raw.view(np.uint32), powers, np.zeros((1003, 32), np.float32), groups=4, group_size=64
    )
    np.testing.assert_array_equal(got, weights)
