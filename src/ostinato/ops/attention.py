"""Operations on tokens and their positions: embedding, rotary embedding (RoPE), KV cache, attention.

The position is that of the first token of the call, counted from zero; the others follow it. It may be a parameter, so
that one captured graph serves every token. Caches are [heads, capacity, size].
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..ir.commands import CapturedOpKind
from ..ir.costs import Amount
from ..ir.params import Param, per
from ..runtime.buffer import Buffer
from .checks import (
    Index,
    axes,
    check_dtype,
    check_index,
    check_size,
    find,
    is_aligned,
    prefers_plain,
    tokens_heads_size,
    type_ending,
)

MOST_SIZE = 256
"""The largest head size that the attention kernels support."""

_SIMDGROUPS = 16
_KEYS_TOGETHER = 4
_OWN = 8
"""Elements of a head per lane."""


def embedding(encoder: CommandEncoder, table: Buffer, tokens: Buffer, out: Buffer) -> None:
    """out[i] = table[tokens[i]], for a table [rows, width]. A token past the last row gives NaN."""
    name = "embedding"
    ending = type_ending(name, table, out)
    check_dtype(name, "tokens", tokens, np.uint32)
    rows, width = axes(name, "table", table, "rows", "width")
    check_size(name, "out", out, tokens.size * width)
    encoder.dispatch(
        find(encoder, "positions", f"{name}_{ending}"),
        *(table, tokens, out, rows),
        threads=(width, tokens.size),
        group_size=(min(width, 256), 1),
        bytes_read=out.nbytes + tokens.nbytes,
        bytes_written=out.nbytes,
        flops=0,
    )


def rope(
    encoder: CommandEncoder,
    x: Buffer,
    frequencies: Buffer,
    out: Buffer,
    position: Index,
    *,
    interleaved: bool = False,
    scale: float = 1.0,
) -> None:
    """Rotate pairs of elements of each head by position · frequency, for x [tokens, heads, size]. `out` may be `x`.

    `frequencies` has one frequency per pair (`rope_frequencies`); elements beyond the pairs are copied. A pair is
    (i, i + pairs), or (2i, 2i + 1) with `interleaved`. `scale` multiplies the rotated elements.
    """
    name = "rope"
    ending = type_ending(name, x, out)
    check_dtype(name, "frequencies", frequencies, np.float32)
    tokens, heads, size = tokens_heads_size(name, "x", x)
    check_size(name, "out", out, x.size)
    check_index(name, "position", position)
    pairs = frequencies.size
    if 2 * pairs > size:
        raise ArgumentError(f"{name}: {pairs} pairs do not fit in heads of {size} elements")
    encoder.dispatch(
        find(encoder, "positions", f"{name}_{ending}"),
        *(x, frequencies, out, position, pairs, int(interleaved), scale),
        threads=(size - pairs, heads, tokens),
        bytes_read=x.nbytes + frequencies.nbytes,
        bytes_written=out.nbytes,
        flops=tokens * heads * pairs * 24,
    )


def rope_frequencies(
    size: int,
    theta: float = 10000.0,
    *,
    factor: float = 1.0,
    low: float | None = None,
    high: float | None = None,
    trained_length: int | None = None,
) -> np.ndarray:
    """The frequencies for `rope`: theta^(−2i / size), for each pair of `size` elements.

    `factor` alone divides all frequencies (linear scaling). With `low`, `high` and `trained_length` (Llama 3), it
    divides the frequencies with fewer than `low` turns over the trained length, leaves those with more than `high`
    turns unchanged, and blends those between.
    """
    if size < 2 or size % 2 or not theta > 0 or not factor > 0:
        raise ArgumentError(f"rope_frequencies: size {size} must be even, theta {theta} and factor {factor} positive")
    plain = theta ** (-np.arange(0, size, 2, dtype=np.float64) / size)
    if low is None and high is None and trained_length is None:
        return np.asarray(plain / factor, np.float32)
    if low is None or high is None or trained_length is None or not high > low:
        raise ArgumentError("rope_frequencies: low, a larger high, and trained_length must be passed together")
    turns = trained_length * plain / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(kept * plain + (1 - kept) * plain / factor, np.float32)


def kv_append(
    encoder: CommandEncoder, keys: Buffer, values: Buffer, key_cache: Buffer, value_cache: Buffer, position: Index
) -> None:
    """cache[head, position + token] = x[token, head], for keys and values [tokens, heads, size].

    Tokens that a parameter places past the end of the cache are dropped.
    """
    name = "kv_append"
    ending = type_ending(name, keys, values, key_cache, value_cache)
    tokens, heads, size = tokens_heads_size(name, "keys", keys)
    capacity = _cache(name, key_cache, value_cache, heads, size)
    check_size(name, "values", values, keys.size)
    check_index(name, "position", position, below=capacity - tokens + 1)
    encoder.dispatch(
        find(encoder, "positions", f"{name}_{ending}"),
        *(keys, values, key_cache, value_cache, position, capacity),
        threads=(size, heads, tokens),
        bytes_read=keys.nbytes + values.nbytes,
        bytes_written=keys.nbytes + values.nbytes,
        flops=0,
    )


def rope_append(
    encoder: CommandEncoder,
    x: Buffer,
    frequencies: Buffer,
    queries: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    position: Index,
    *,
    query_norm: Buffer | None = None,
    key_norm: Buffer | None = None,
    eps: float = 1e-6,
) -> None:
    """Norm, `rope` and `kv_append` of queries, keys and values in one dispatch, to prepare `sdpa`.

    `x` is [tokens, heads + 2 · KV heads, size]: for each token its queries, then its keys, then its values. Queries and
    keys are normalised if norm weights are passed, and rotated as by `rope`; keys and values go to the caches as by
    `kv_append`; `queries` becomes [tokens, heads, size].
    """
    name = "rope_append"
    norms = [norm for norm in (query_norm, key_norm) if norm is not None]
    ending = type_ending(name, x, queries, key_cache, value_cache, *norms)
    check_dtype(name, "frequencies", frequencies, np.float32)
    tokens, rows, size = tokens_heads_size(name, "x", x)
    kept_heads = axes(name, "key_cache", key_cache, "heads", "capacity", "size")[0]
    heads = rows - 2 * kept_heads
    if heads < 1:
        raise ArgumentError(f"{name}: {x!r} has no room for queries beside {kept_heads} keys and values per token")
    capacity = _cache(name, key_cache, value_cache, kept_heads, size)
    check_size(name, "queries", queries, tokens * heads * size)
    check_index(name, "position", position, below=capacity - tokens + 1)
    if len(norms) == 1:
        raise ArgumentError(f"{name}: query_norm and key_norm must be passed together")
    for norm in norms:
        check_size(name, "a norm", norm, size)
    if 2 * frequencies.size > size:
        raise ArgumentError(f"{name}: {frequencies.size} pairs do not fit in heads of {size} elements")
    plain = prefers_plain(encoder)
    grid: dict[str, Any] = {"threads": (rows, tokens), "group_size": 1}
    if not plain:
        grid = {"groups": (rows, tokens), "group_size": 32}
    encoder.dispatch(
        find(encoder, "rope_append_plain" if plain else "rope_append", f"{name}_{ending}"),
        *(x, frequencies, *(norms or (x, x)), queries, key_cache, value_cache, position),
        *(heads, kept_heads, size, frequencies.size, capacity, int(bool(norms)), eps),
        **grid,
        bytes_read=x.nbytes + frequencies.nbytes + sum(norm.nbytes for norm in norms),
        bytes_written=x.nbytes,
        flops=tokens * (heads + kept_heads) * (frequencies.size * 24 + (4 * size if norms else 0)),
    )


def sdpa(
    encoder: CommandEncoder,
    queries: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    out: Buffer,
    position: Index,
    *,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
) -> None:
    """Causal attention of queries [tokens, heads, size] to the cached keys and values.

    One token is decoding, several are prefill: the query of a token attends to keys 0 to position + token. Several
    heads may share a head of the cache. `scale` is 1 / √size by default; `window` limits a query to that many last
    keys, including its own; `cap` replaces a score by cap · tanh(score / cap).
    """
    name = "sdpa"
    ending = type_ending(name, queries, key_cache, value_cache, out)
    tokens, heads, size = tokens_heads_size(name, "queries", queries)
    kept_heads = axes(name, "key_cache", key_cache, "heads", "capacity", "size")[0]
    capacity = _cache(name, key_cache, value_cache, kept_heads, size)
    check_size(name, "out", out, queries.size)
    check_index(name, "position", position, below=capacity - tokens + 1)
    check_index(name, "window", window)
    if size > MOST_SIZE:
        raise ArgumentError(f"{name}: heads of {size} elements are too large; at most {MOST_SIZE}")
    if heads % kept_heads:
        raise ArgumentError(f"{name}: {heads} heads are not a multiple of the {kept_heads} heads of {key_cache!r}")
    arguments: list[Any] = [queries, key_cache, value_cache, out, position, size, heads // kept_heads, capacity, window]
    arguments += [1 / math.sqrt(size) if scale is None else scale, cap]
    if prefers_plain(encoder):
        kernel = find(encoder, "attention_plain", f"attend_{ending}")
        grid: dict[str, Any] = {"threads": (heads, tokens), "group_size": 1}
    else:
        row = 8 if size <= 64 else 16 if size <= 128 else 32
        whole = size % _OWN == 0 and is_aligned(16, 0, queries, key_cache, value_cache)
        kernel = find(encoder, "attention", f"attend_{ending}_{row}{'' if whole else '_any'}")
        most = min(capacity, window or capacity)
        simdgroups = min(_SIMDGROUPS, -(-most // (_KEYS_TOGETHER * 32 // row)))
        grid = {"groups": (heads, tokens), "group_size": 32 * simdgroups}
    # A key is read once, however many queries attend to it.
    most_rows = min(capacity, tokens + window - 1) if window else capacity
    encoder.dispatch(
        kernel,
        *arguments,
        **grid,
        op_kind=CapturedOpKind.Sdpa,
        bytes_read=_add(queries.nbytes, position, 2 * kept_heads * size * queries.dtype.itemsize, tokens, most_rows),
        bytes_written=out.nbytes,
        flops=_seen(position, tokens, capacity, window, 4 * heads * size),
    )


def _seen(position: Index, tokens: int, capacity: int, window: int, each: int) -> int | Amount | None:
    """The flops of causal attention, with `each` per query and key.

    None for several queries with a window at a parameter's position: some queries may reach the window and others not,
    which no `Amount` expresses.
    """
    if not isinstance(position, Param):
        ends = np.arange(int(position) + 1, int(position) + tokens + 1)
        return each * int((np.minimum(ends, window) if window else ends).sum())
    if not window:
        return _add(each * tokens * (tokens + 1) // 2, position, each * tokens, 0, capacity - tokens)
    return _add(0, position, each, 1, min(window, capacity)) if tokens == 1 else None


def _add(base: int, position: Index, factor: int, plus: int, upto: int) -> int | Amount:
    """base + factor · min(position + plus, upto)."""
    if isinstance(position, Param):
        return base + per(position, factor, plus=plus, upto=upto)
    return base + factor * min(int(position) + plus, upto)


def _cache(name: str, key_cache: Buffer, value_cache: Buffer, heads: int, size: int) -> int:
    """The capacity of the caches, in tokens."""
    kept_heads, capacity, kept_size = axes(name, "key_cache", key_cache, "heads", "capacity", "size")
    if value_cache.shape != key_cache.shape or kept_heads != heads or kept_size != size:
        raise ArgumentError(
            f"{name}: both caches must be [{heads}, capacity, {size}], not {key_cache!r} and {value_cache!r}"
        )
    return capacity
