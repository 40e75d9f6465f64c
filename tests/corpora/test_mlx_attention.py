"""MLX: attention, in blocks ("steel", and with Metal 4's tensors), and of few queries in one and in two passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, kernel, strides_of

Array = np.ndarray[Any, Any]

FLOATS = {"float": "float32", "float16_t": "float16", "bfloat16_t": "bfloat16"}


def normal(numbers: np.random.Generator, name: str, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(DTYPES[name])


def attention(q: Array, k: Array, v: Array, scale: float, mask: Array | None, sinks: Array | None) -> Array:
    """Of arrays [batch, head, position, element]; several heads of queries share a head of keys."""
    shared = q.shape[1] // k.shape[1]
    q, k, v = (a.astype(np.float64) for a in (q, np.repeat(k, shared, 1), np.repeat(v, shared, 1)))
    scores = scale * q @ k.swapaxes(-1, -2)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype(np.float64)
    if sinks is not None:  # a score for each head that has no value
        last = np.broadcast_to(sinks.astype(np.float64)[:, None, None], (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, last], -1)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray((powers / powers.sum(-1, keepdims=True))[..., : k.shape[2]] @ v)


def masks(numbers: np.random.Generator, kind: str, name: str, queries: int, keys: int, heads: int) -> Array | None:
    if kind == "causal":
        return np.tri(queries, keys, keys - queries, dtype=bool)
    if kind == "bool":
        mask = numbers.random((1, heads, queries, keys)) < 0.7
        mask[..., 0] = True
        return mask
    return normal(numbers, name, 1, heads, queries, keys) if kind == "float" else None


@pytest.mark.parametrize(
    ("file", "name", "bq", "bk", "bd", "kind"),
    [
        ("steel_attention", "float32", 32, 32, 64, "causal"),
        ("steel_attention", "float16", 32, 16, 128, "bool"),
        ("steel_attention", "bfloat16", 32, 32, 80, "float"),
        ("steel_attention_nax", "float16", 64, 32, 64, "causal"),
        ("steel_attention_nax", "bfloat16", 64, 32, 128, "bool"),
        ("steel_attention_nax", "float16", 64, 32, 64, "none"),
    ],
)
def test_attention_in_blocks(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    file: str,
    name: str,
    bq: int,
    bk: int,
    bd: int,
    kind: str,
) -> None:
    queries, keys = 75, 101
    # Positions before heads, as a projection leaves them.
    memory = [normal(numbers, name, 2, length, heads, bd) for length, heads in ((queries, 4), (keys, 2), (keys, 2))]
    q, k, v = (a.swapaxes(1, 2) for a in memory)
    mask = masks(numbers, kind, name, queries, keys, 4)
    sinks = normal(numbers, name, 4) if kind == "causal" else None
    constants = {"align_Q": False, "align_K": False, "has_mask": kind in ("bool", "float")}
    constants |= {"do_causal": kind == "causal", "has_sinks": kind == "causal"}
    of_mask = "bool_" if kind == "bool" else name
    attend = kernel(
        checkouts, f"steel/attn/kernels/{file}",
        f"steel_attention_{name}_bq{bq}_bk{bk}_bd{bd}_wm4_wn1_mask{of_mask}", constants=constants,
    )  # fmt: skip
    params = np.zeros(1, attend.dtype("params"))
    fields = {"B": 2, "H": 4, "D": bd, "qL": queries, "kL": keys, "gqa_factor": 2, "scale": bd**-0.5}
    fields |= {"NQ": -(-queries // bq), "NK": -(-keys // bk), "NQ_aligned": queries // bq, "NK_aligned": keys // bk}
    fields |= {"qL_rem": queries % bq, "kL_rem": keys % bk, "qL_off": keys - queries}
    for field, value in fields.items():
        params[field] = value
    out = np.ones((2, 4, queries, bd), q.dtype)
    for field, a in zip("QKVO", (q, k, v, out), strict=True):
        params[f"{field}_strides"] = strides_of(a, 0, 1, 2)
    arguments: list[Any] = [*memory, out, params]
    if mask is not None and constants["has_mask"]:
        of_batches = np.zeros(1, attend.dtype("mask_params"))
        of_batches["M_strides"] = strides_of(np.broadcast_to(mask, (2, *mask.shape[1:])), 0, 1, 2)
        arguments += [of_batches, mask]
    arguments += [sinks] if sinks is not None else []
    got = launch(dev, attend, *arguments, groups=(-(-queries // bq), 4, 2), group_size=(32, 4))
    close(got, attention(q, k, v, bd**-0.5, mask, sinks), 2)


def vector_constants(kind: str, *, turned: bool = False, sinks: bool = False) -> dict[str, Any]:
    return {
        "has_mask": kind in ("bool", "float"), "query_transposed": turned, "do_causal": kind == "causal",
        "bool_mask": kind == "bool", "float_mask": kind == "float", "has_sinks": sinks,
    }  # fmt: skip


def mask_arguments(mask: Array | None, kind: str) -> tuple[Any, ...]:
    """A mask for all batches, if a kernel takes one, and its strides along keys, queries and heads."""
    return () if mask is None or kind == "causal" else (mask, *(int(s) for s in strides_of(mask, 3, 2, 1)))


@pytest.mark.parametrize(
    ("type_name", "width", "out_width", "kind"),
    [
        ("float", 64, 64, "none"),
        ("float16_t", 128, 128, "bool"),
        ("bfloat16_t", 192, 128, "causal"),
        ("float", 64, 64, "float"),
    ],
)
def test_attention_of_few_queries(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    type_name: str,
    width: int,
    out_width: int,
    kind: str,
) -> None:
    name, queries, keys = FLOATS[type_name], 3, 141
    q = normal(numbers, name, 1, queries, 6, width).swapaxes(1, 2)
    k, v = normal(numbers, name, 1, 3, keys + 9, width), normal(numbers, name, 1, 3, keys, out_width)
    mask = masks(numbers, kind, name, queries, keys, 6)
    sinks = normal(numbers, name, 6) if kind == "none" else None
    constants = vector_constants(kind, turned=True, sinks=sinks is not None)
    attend = kernel(
        checkouts, "scaled_dot_product_attention", f"sdpa_vector_{type_name}_{width}_{out_width}", constants=constants
    )
    strides = (int(s) for s in (*strides_of(k, 1, 2), *strides_of(v, 1, 2)))
    arguments = (
        2,
        keys,
        *strides,
        width**-0.5,
        *mask_arguments(mask, kind),
        *([sinks, 6] if sinks is not None else []),
    )
    out = np.ones((1, 6, queries, out_width), q.dtype)
    got = launch(dev, attend, q.swapaxes(1, 2), k, v, out, *arguments, groups=(6, queries), group_size=1024)
    close(got, attention(q, k[:, :, :keys], v, width**-0.5, mask, sinks), 2)


@pytest.mark.parametrize(
    ("type_name", "kind"), [("float", "none"), ("bfloat16_t", "causal"), ("float", "bool"), ("bfloat16_t", "float")]
)
def test_attention_of_few_queries_in_two_passes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, type_name: str, kind: str
) -> None:
    name, queries, keys, blocks = FLOATS[type_name], 2, 333, 64
    q = normal(numbers, name, 2, 6, queries, 96)
    k, v = normal(numbers, name, 2, 2, keys, 96), normal(numbers, name, 2, 2, keys, 96)
    mask = masks(numbers, kind, name, queries, keys, 6)
    mask = None if mask is None else np.concatenate([mask, mask]) if mask.ndim == 4 else mask
    sinks = normal(numbers, name, 6) if kind == "none" else None
    constants = vector_constants(kind, sinks=sinks is not None) | {"blocks": blocks}
    file = "scaled_dot_product_attention"
    first = kernel(checkouts, file, f"sdpa_vector_2pass_1_{type_name}_96_96", constants=constants)
    second = kernel(checkouts, file, f"sdpa_vector_2pass_2_{type_name}_96")
    parts = (np.ones((2, 6, queries, blocks, 96), q.dtype), *(np.ones((2, 6, queries, blocks), np.float32),) * 2)
    strides = (int(s) for s in (*strides_of(k, 1, 2), *strides_of(v, 1, 2)))
    arguments = (keys, *strides, 96**-0.5, *mask_arguments(mask, kind), *([sinks] if sinks is not None else []))
    partial = launch(dev, first, q, k, v, *parts, *arguments, groups=(2, 2, blocks), group_size=(32, 3, queries))
    got = launch(dev, second, *partial, np.ones_like(q), blocks, groups=(12, queries), group_size=1024)
    close(got, attention(q, k, v, 96**-0.5, mask, sinks), 2)


def test_attention_of_many_heads_that_share_keys(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator
) -> None:
    keys, blocks = 1003, 32
    q, k, v = (normal(numbers, "float16", 1, heads, length, 128) for heads, length in ((16, 1), (2, keys), (2, keys)))
    file = "scaled_dot_product_attention"
    first = kernel(checkouts, file, "sdpa_vector_2pass_1_gqa_float16_t_128_128", constants=vector_constants("none"))
    second = kernel(checkouts, file, "sdpa_vector_2pass_2_float16_t_128")
    parts = (np.ones((16, blocks, 128), np.float16), *(np.ones((16, blocks), np.float32),) * 2)
    strides = (int(s) for s in (*strides_of(k, 1, 2), *strides_of(v, 1, 2)))
    partial = launch(dev, first, q, k, v, *parts, keys, *strides, 128**-0.5, groups=(2, 1, blocks), group_size=(32, 8))
    got = launch(dev, second, *partial, np.ones_like(q), blocks, groups=(16, 1), group_size=1024)
    close(got, attention(q, k, v, 128**-0.5, None, None), 2)
