"""mistral.rs: paged attention and its cache, attention with sinks, state space models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from oracles import TYPES, PagedCache, Random, attention, check, fp8_values, sigmoid, values

NAMES = {"f32": "float", "f16": "half", "bf16": "bfloat16_t", "fp8": "uchar"}


def kernel(checkouts: Checkouts, room: str, file: str, name: str, **options: Any) -> ost.Kernel:
    folder = {"quant": "src/metal_kernels", "core": "src/metal/kernels", "paged-attn": "src/metal/kernels"}[room]
    return checkouts.library("mistral.rs", f"mistralrs-{room}/{folder}/{file}.metal", **options)[name]


# --- paged attention ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "cached", "width", "block", "extra"),
    [
        ("f32", "f32", 64, 16, ""),
        ("f16", "f16", 80, 32, "cap"),
        ("bf16", "bf16", 128, 8, ""),
        ("f32", "fp8", 64, 16, ""),
        ("bf16", "fp8", 96, 32, "sinks"),
        ("f32", "f32", 128, 32, "sinks"),
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
    q = values(numbers, (len(lengths), heads, width), kind)
    sinks = (values(numbers, heads, "f32"),) if extra == "sinks" else ()
    scales: tuple[Any, ...] = (np.array([0.5], np.float32), np.array([1.5], np.float32)) if cached == "fp8" else ()
    out, cap = np.zeros_like(q), 5.0 if extra == "cap" else 1.0
    sizes = (cache.most, heads * width, heads // shared * width * block, width * block)
    arguments = (cache.keys, cache.values, *scales, heads // shared, scale, cap, cache.table, cache.lengths, *sizes)
    constants = {10: parts > 1, 20: False, 30: cached == "fp8", 40: extra == "sinks"}
    ending = f"nt256_nsl32_ps{512 if parts > 1 else 0}"
    name = f"paged_attention_{NAMES[kind]}_cache_{NAMES[cached]}_hs{width}_bs{block}_{ending}"
    run = kernel(checkouts, "paged-attn", "pagedattention", name, constants=constants)
    grid: dict[str, Any] = {"group_size": (256, 1, 1), "shared": {0: 4 * max(4 * width, 720)}}
    if parts == 1:
        got = launch(dev, run, out, q, *arguments, *sinks, groups=(heads, len(lengths), 1), **grid)
    else:
        each = (len(lengths), heads, parts)
        made = np.zeros(each, np.float32), np.zeros(each, np.float32), np.zeros((*each, width), q.dtype)
        made = launch(dev, run, *made, q, *arguments, *sinks, groups=(heads, len(lengths), parts), **grid)
        name = f"paged_attention_v2_reduce_{NAMES[kind]}_hs{width}_{ending}"
        merge = kernel(checkouts, "paged-attn", "pagedattention", name, constants=constants)
        more = (cache.lengths, parts, *sinks)
        got, _ = launch(dev, merge, out, *made, *more, groups=(heads, len(lengths), 1), **grid)
    for row, (k, v), result in zip(q, cache.dense, got, strict=True):
        if cached == "fp8":
            k, v = k.astype(float) * scales[0], v.astype(float) * scales[1]
        expected = attention(row[None, :, None], k, v, scale, cap=cap if cap != 1 else 0.0, sinks=[*sinks, None][0])
        check(result, expected[0, :, 0], kind, scale=0.5)


@pytest.mark.parametrize(("kind", "cached"), [("f32", "f32"), ("bf16", "bf16"), ("f32", "fp8"), ("f16", "fp8")])
def test_into_the_cache_and_back(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, cached: str
) -> None:
    """Tokens are written to their slots, one of which says not to, then those of two sequences are gathered."""
    tokens, heads, width, block = 11, 2, 48, 8
    k, v = (fp8_values(numbers, (tokens, heads, width)).astype(TYPES[kind]) for _ in range(2))
    dtype, part = (np.uint8, 16) if cached == "fp8" else (TYPES[kind], 16 // k.itemsize)
    scales = (np.array([0.5], np.float32), np.array([0.25], np.float32)) if cached == "fp8" else ()
    keys, stored = np.zeros((5, heads, width // part, block, part), dtype), np.zeros((5, heads, width, block), dtype)
    blocks = np.array([[3, 0], [1, 4]], np.int32)
    lengths = np.array([0, 9, 11], np.int32)  # the first sequence has nine tokens, the second two
    slots = np.concatenate([blocks[0].repeat(8)[:9] * 8 + np.arange(9) % 8, [8, 9]]).astype(np.int64)
    slots[4] = -1
    constants = {10: cached == "fp8"}
    name = f"reshape_and_cache_kv_{NAMES[kind]}_cache_{NAMES[cached]}"
    write = kernel(checkouts, "paged-attn", "reshape_and_cache", name, constants=constants)
    sizes = [np.int32(n) for n in (heads * width, heads * width, heads, width, block, part)]
    keys, stored = launch(dev, write, k, v, keys, stored, slots, *scales, *sizes, groups=tokens, group_size=64)
    name = f"gather_kv_cache_cache_{NAMES[cached]}_out_{NAMES[kind]}"
    gather = kernel(checkouts, "paged-attn", "gather_kv_cache", name, constants=constants)
    sizes = [np.int32(n) for n in (tokens, 2, block, 2, heads, width, part)]
    empty = np.ones_like(k), np.ones_like(v)
    got = launch(dev, gather, keys, stored, *empty, *scales, blocks, lengths, *sizes, groups=tokens, group_size=64)
    for x, result in zip((k, v), got, strict=True):
        x[4] = 0
        check(result, x, kind)


def test_copied_blocks(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """In groups of one thread, since the kernel takes a pair of blocks for a thread of the grid."""
    keys, stored = values(numbers, (6, 96), "f32"), values(numbers, (6, 64), "f32")
    pairs = np.array([[0, 3], [2, 5], [1, 4]], np.int64)
    run = kernel(checkouts, "paged-attn", "copy_blocks", "copy_blocks_float")
    got = launch(dev, run, keys.copy(), stored.copy(), pairs, np.int32(96), np.int32(64), groups=3, group_size=1)
    for x, result in zip((keys, stored), got, strict=True):
        np.testing.assert_array_equal(result, x[[0, 1, 2, 0, 1, 2]])


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_scales_of_the_cache(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """Raised to what the largest number needs, by an atomic maximum; never lowered."""
    k, v = values(numbers, (2, 5001), kind)
    run = kernel(checkouts, "paged-attn", "kv_scale_update", f"kv_scale_update_{NAMES[kind]}")
    before = np.array([0.001], np.float32), np.array([7], np.float32)
    got = launch(dev, run, k, v, *before, k.size, groups=6, group_size=256, shared={0: 1024, 1: 1024})
    check(np.concatenate(got), np.array([np.abs(k).max().astype(float) / 240, 7]), "f32")


# --- attention with sinks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "width"), [("f32", 64), ("bf16", 128)])
def test_one_query_with_sinks(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, width: int) -> None:
    heads, shared, n = 6, 3, 301
    q, k, v = (values(numbers, (1, *shape, width), kind) for shape in ((heads, 1), (2, n), (2, n)))
    sinks = values(numbers, heads, "f32")
    run = kernel(checkouts, "quant", "sdpa_with_sinks", f"sdpa_vector_with_sinks_{NAMES[kind]}_{width}")
    stride = np.uint64(n * width)
    grid: dict[str, Any] = {"groups": (1, heads, 1), "group_size": (1024, 1, 1)}
    got = launch(dev, run, q, k, v, sinks, np.zeros_like(q), shared, n, stride, stride, width**-0.5, **grid)
    check(got, attention(q, k, v, width**-0.5, sinks=sinks), kind, scale=0.5)


@pytest.mark.parametrize(
    ("kind", "width", "window"), [("f32", 64, 0), ("f32", 96, 20), ("f16", 128, 0), ("bf16", 256, 17)]
)
def test_prefill_with_sinks(
    dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, width: int, window: int
) -> None:
    """Causal, the last query at the last key; a window leaves as many keys."""
    batch, heads, rows, n = 2, 4, 21, 75
    tile = {64: 64, 96: 32, 128: 32, 256: 16}[width]
    q, k, v = (values(numbers, (batch, *shape, width), kind) for shape in ((heads, rows), (2, n), (2, n)))
    sinks = values(numbers, heads, "f32")
    run = kernel(checkouts, "quant", "sdpa_with_sinks", f"flash_attn_sinks_{NAMES[kind]}_hd{width}_br8_bc{tile}")
    grid: dict[str, Any] = {"groups": (heads, batch, -(-rows // 8)), "group_size": 256}
    shape = (width**-0.5, rows, n, heads, 2, window)
    got = launch(dev, run, q, k, v, sinks, np.zeros_like(q), *shape, shared={0: 8 * tile * width}, **grid)
    behind = np.arange(rows)[:, None] + n - rows - np.arange(n)
    bias = np.where((behind >= 0) & ((behind < window) | (window == 0)), 0, -np.inf)
    check(got, attention(q, k, v, width**-0.5, bias, sinks=sinks), kind, scale=0.5)


# --- state space models ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("each", [1, 4])
def test_ssm_scan(dev: ost.Device, checkouts: Checkouts, numbers: Random, each: int) -> None:
    """A simdgroup for each row of the state, with so many numbers of it in a thread."""
    b, t, h, d, n = 2, 7, 3, 5, 32 * each
    x, dt, b_in, c_out = (values(numbers, (b, t, h, *more), "f32") for more in ((d,), (), (n,), (n,)))
    a, skip, offset = -np.exp(values(numbers, h, "f32")), values(numbers, h, "f32"), values(numbers, h, "f32")
    state = values(numbers, (b, h, d, n), "f32")
    run = kernel(checkouts, "core", "ssm", f"ssm_scan_c{each}")
    grid: dict[str, Any] = {"groups": (h * d, b), "group_size": (32, 1)}
    after, got = launch(
        dev, run, x, dt, a, b_in, c_out, skip, offset, state.copy(), np.zeros_like(x), h, d, n, t, 0.01, 2.0, **grid
    )
    step = np.clip(np.log1p(np.exp(dt.astype(float) + offset)), 0.01, 2)
    s, expected = state.astype(float), np.zeros(x.shape)
    for i in range(t):
        inside = (step[:, i, :, None] * x[:, i])[..., None] * b_in[:, i, :, None]
        s = s * np.exp(step[:, i] * a)[..., None, None] + inside
        expected[:, i] = (s * c_out[:, i, :, None]).sum(axis=-1) + skip[:, None] * x[:, i]
    check(after, s, "f32", scale=10)
    check(got, expected, "f32", scale=20)


@pytest.mark.parametrize("name", ["64_64", "128_64", "fallback"])
def test_gated_delta_rule(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """The state forgets, then learns what it lacks of a value for a key."""
    n, t, width, depth = 3, 9, {"64_64": 64, "128_64": 128, "fallback": 100}[name], 128
    q, k, v = (values(numbers, (n, t, size), "f32") / np.float32(np.sqrt(size)) for size in (width, width, depth))
    forget, learn = -np.exp(values(numbers, (n, t), "f32")), numbers.random((n, t), np.float32)
    state = values(numbers, (n, width, depth), "f32")
    run = kernel(checkouts, "core", "gdn", f"gated_delta_rule_{name}")
    shape = (t, width, depth) if name == "fallback" else (t, depth)
    grid: dict[str, Any] = {"groups": (depth // 64, n), "group_size": (64, 1)}
    if name == "fallback":
        grid["shared"] = {0: 8 * width}
    after, got = launch(dev, run, q, k, v, forget, learn, state.copy(), np.zeros_like(v), *shape, **grid)
    s, expected = state.astype(float), np.zeros(v.shape)
    for i in range(t):
        s *= np.exp(forget[:, i].astype(float))[:, None, None]
        lack = (v[:, i] - np.einsum("nkv,nk->nv", s, k[:, i])) * learn[:, i, None]
        s += k[:, i, :, None] * lack[:, None]
        expected[:, i] = np.einsum("nkv,nk->nv", s, q[:, i])
    check(after, s, "f32")
    check(got, expected, "f32")


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_causal_convolution(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    """Of channels with the last inputs of before; then what the next call needs of them."""
    b, channels, t, size = 2, 5, 11, 4
    x, weights, before = (
        values(numbers, shape, kind) for shape in ((b, channels, t), (channels, size), (b, channels, size))
    )
    run = kernel(checkouts, "core", "gdn", f"causal_conv1d_full_{NAMES[kind]}")
    got = launch(dev, run, x, weights, before, np.zeros_like(x), b, channels, t, size, threads=(channels, t, b))
    line = np.concatenate([before[..., 1:], x], axis=-1).astype(float)
    sums = np.einsum(
        "bcts,cs->bct", np.lib.stride_tricks.sliding_window_view(line, size, axis=2), weights.astype(float)
    )
    check(got, sums * sigmoid(sums), kind)
    save = kernel(checkouts, "core", "gdn", f"save_conv_state_{NAMES[kind]}")
    got = launch(dev, save, x, before, np.zeros_like(before), b, channels, t, size, threads=(channels, b))
    np.testing.assert_array_equal(got, x[..., -size:])
