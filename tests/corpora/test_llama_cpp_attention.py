"""llama.cpp: ggml's flash attention, for a few queries and for many, with what its host program runs around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F16, F32, SCALES, assert_near, extents, kernel, matrix, random, run

BATCHES, HEADS, KV_HEADS = 2, 6, 2


@dataclass(frozen=True)
class Attention:
    """A kind of keys and values, the sizes of a head in both, how many there are, and what is done to the scores."""

    name: str
    key: int
    value: int
    queries: int
    keys: int
    mask: bool = True
    sinks: bool = False
    bias: float = 0.0
    cap: float = 0.0

    def __str__(self) -> str:
        extras = [name for name in ("sinks", "bias", "cap") if getattr(self, name)]
        return "-".join([f"{self.name}-{self.key}x{self.value}-{self.queries}-{self.keys}", *extras])


@dataclass(frozen=True)
class Case:
    """The tensors of an attention in ggml's layout, and its result."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray
    sinks: np.ndarray
    arguments: dict[str, Any]
    expected: np.ndarray


def softmax_of_heads(a: Attention, q: np.ndarray, k: np.ndarray, mask: np.ndarray, sinks: np.ndarray) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(a.key)
    if a.cap:
        scores = a.cap * np.tanh(scores / a.cap)
    if a.mask:
        scores = scores + mask.astype(float) * slopes(a.bias)[:, None, None]
    highest = np.maximum(scores.max(-1, keepdims=True), sinks[:, None, None] if a.sinks else -np.inf)
    weights = np.exp(scores - highest)
    sink = np.exp(sinks[:, None, None] - highest) if a.sinks else 0.0
    return np.asarray(weights / (weights.sum(-1, keepdims=True) + sink))


def slopes(bias: float) -> np.ndarray:
    """ALiBi for HEADS heads, which is no power of two: 4 have a slope each, and the others have those in between."""
    return 2.0 ** (-bias / 4 * np.array([1, 2, 3, 4, 0.5, 1.5]))


def made(a: Attention, numbers: np.random.Generator) -> Case:
    q = random(numbers, BATCHES, a.queries, HEADS, a.key).swapaxes(1, 2)
    k, keys = matrix(numbers, a.name, BATCHES, KV_HEADS, a.keys, a.key)
    v, values = matrix(numbers, a.name, BATCHES, KV_HEADS, a.keys, a.value)
    if a.name in SCALES:
        keys, values = keys.astype(F16), values.astype(F16)  # what the kernels make of blocks
    rows, columns = (-(-size // 8) * 8 for size in (a.queries, a.keys))
    mask = random(numbers, 1, 1, rows, columns, dtype=F16)[:, :, : a.queries, : a.keys]
    mask[numbers.random(mask.shape) < 0.3] = -np.inf
    mask[..., :8, 64:128] = -np.inf
    mask[..., 8:16, :64] = 0
    sinks = random(numbers, HEADS)
    rounded = q.astype(k.dtype if a.name == "bf16" and a.queries >= 20 else F16)
    repeats = HEADS // KV_HEADS
    keys, values = keys.repeat(repeats, 1).astype(np.float64), values.repeat(repeats, 1).astype(np.float64)
    arguments = {
        **extents("0", q),
        **extents("1", k),
        **extents("2", v),
        **extents("3", mask),
        "ne30": a.keys,
        "ne_12_2": KV_HEADS,
        "ne_12_3": BATCHES,
        "ns10": k.strides[2] // k.strides[3],
        "ns20": v.strides[2] // v.strides[3],
        "scale": a.key**-0.5 / (a.cap or 1),
        "max_bias": a.bias,
        "m0": 2 ** (-a.bias / 4),
        "m1": 2 ** (-a.bias / 2 / 4),
        "n_head_log2": 4,
        "logit_softcap": a.cap,
    }
    weights = softmax_of_heads(a, rounded.astype(np.float64), keys, mask, sinks)
    return Case(q, k, v, mask, sinks, arguments, (weights @ values).swapaxes(1, 2))


def padded(dev: ost.Device, checkouts: Checkouts, a: Attention, case: Case, chunk: int) -> np.ndarray:
    """The keys, values and mask of the last, partial chunk, followed by zeros; to begin with not numbers."""
    nbytes = chunk * (BATCHES * KV_HEADS * (case.k.strides[2] + case.v.strides[2]) + (a.queries * 2 if a.mask else 0))
    memory = np.full(nbytes, 255, np.uint8)
    if a.keys % chunk == 0:
        return memory
    pad = kernel(checkouts, "kernel_flash_attn_ext_pad", "FC_flash_attn_ext_pad", has_mask=a.mask, ncpsg=chunk)
    geometry: dict[str, Any] = {"groups": (chunk, KV_HEADS, BATCHES), "group_size": 32}
    return np.asarray(run(dev, pad, case.k, case.v, case.mask, out=memory, arguments=case.arguments, **geometry))


@pytest.mark.parametrize(
    "a",
    [
        Attention("f16", 128, 128, 3, 77),
        Attention("f16", 128, 128, 1, 2113, sinks=True),
        Attention("f16", 64, 64, 2, 96, mask=False),
        Attention("f16", 192, 128, 2, 77, bias=8.0),
        Attention("f16", 576, 512, 1, 77),
        Attention("f32", 64, 64, 2, 77, cap=5.0),
        Attention("bf16", 128, 128, 2, 77),
        Attention("q4_0", 64, 64, 2, 77),
        Attention("q4_1", 256, 256, 2, 77),
        Attention("q5_0", 128, 128, 3, 77, mask=False),
        Attention("q5_1", 96, 96, 2, 77),
        Attention("q8_0", 128, 128, 2, 77, bias=8.0, cap=5.0, sinks=True),
    ],
    ids=str,
)
def test_attention_of_a_few_queries(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, a: Attention
) -> None:
    case, groups, simdgroups, chunk = made(a, numbers), 32, 2 if a.keys > 2048 else 1, 32
    attend = kernel(
        checkouts,
        f"kernel_flash_attn_ext_vec_{a.name}_dk{a.key}_dv{a.value}",
        "FC_flash_attn_ext_vec",
        has_mask=a.mask,
        has_sinks=a.sinks,
        has_bias=a.bias != 0,
        has_scap=a.cap != 0,
        has_kvpad=a.keys % chunk != 0,
        ns10=case.arguments["ns10"],
        ns20=case.arguments["ns20"],
        nsg=simdgroups,
        nwg=groups,
    )
    rows = BATCHES * a.queries * HEADS
    key, value = (-(-size // 128) * 128 for size in (a.key, a.value))
    parts = run(
        dev,
        attend,
        case.q,
        case.k,
        case.v,
        case.mask,
        case.sinks,
        padded(dev, checkouts, a, case, chunk),
        out=np.zeros(rows * groups * (a.value + 2), F32),
        arguments=case.arguments | extents("", case.expected),
        groups=(a.queries, HEADS, BATCHES * groups),
        group_size=(32, simdgroups, 1),
        # Some kernels set more of it to zero than the host program asks for: half a kilobyte.
        shared={0: (key + 4 * chunk + 2 * value) * simdgroups * 2 + 512},
    )
    got = run(
        dev,
        kernel(checkouts, "kernel_flash_attn_ext_vec_reduce", "FC_flash_attn_ext_vec_reduce", DV=a.value, NWG=groups),
        parts,
        out=np.zeros(case.expected.shape, F32),
        arguments={"nrows": rows},
        groups=rows,
        group_size=32 * groups,
    )
    assert_near(got, case.expected, np.abs(case.expected).max(), 1e-4)


@pytest.mark.parametrize(
    "a",
    [
        Attention("f16", 128, 128, 43, 200),
        Attention("f16", 128, 128, 40, 192, mask=False),
        Attention("f16", 64, 64, 21, 200, sinks=True, bias=8.0),
        Attention("f16", 72, 72, 21, 200),
        Attention("f16", 576, 512, 21, 100),
        Attention("f32", 64, 64, 21, 200, cap=5.0),
        Attention("bf16", 128, 128, 24, 200),
        Attention("q8_0", 128, 128, 21, 200),
        Attention("q4_0", 96, 96, 21, 200),
    ],
    ids=str,
)
def test_attention_of_many_queries(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, a: Attention
) -> None:
    case, at_once, chunk, simdgroups = made(a, numbers), 8, 64, 8 if a.key >= 512 else 4
    blocks = np.zeros((-(-a.queries // at_once), -(-a.keys // chunk)), np.int8)
    if a.mask:
        kinds = kernel(checkouts, "kernel_flash_attn_ext_blk", "FC_flash_attn_ext_blk", nqptg=at_once, ncpsg=chunk)
        geometry: dict[str, Any] = {"groups": blocks.T.shape, "group_size": 32}
        blocks = run(dev, kinds, case.mask, out=blocks, arguments=case.arguments, **geometry)
    attend = kernel(
        checkouts,
        f"kernel_flash_attn_ext_{a.name}_dk{a.key}_dv{a.value}",
        "FC_flash_attn_ext",
        has_mask=a.mask,
        has_sinks=a.sinks,
        has_bias=a.bias != 0,
        has_scap=a.cap != 0,
        has_kvpad=a.keys % chunk != 0,
        bc_mask=a.queries % 8 != 0,
        ns10=case.arguments["ns10"],
        ns20=case.arguments["ns20"],
        nsg=simdgroups,
    )
    halves = at_once * (a.key + 2 * (-(-a.value // 64) * 64) + 4 * chunk)
    got = run(
        dev,
        attend,
        case.q,
        case.k,
        case.v,
        case.mask,
        case.sinks,
        padded(dev, checkouts, a, case, chunk),
        blocks,
        out=np.zeros(case.expected.shape, F32),
        arguments=case.arguments,
        groups=(blocks.shape[0], HEADS, BATCHES),
        group_size=(32, simdgroups, 1),
        shared={0: 2 * (halves + (16 * 32 * simdgroups if a.name in SCALES else 0))},
    )
    # The sums of bfloat are kept in half.
    assert_near(got, case.expected, np.abs(case.expected).max(), 5e-3 if a.name == "bf16" else 1e-4)
