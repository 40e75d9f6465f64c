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
from ..runtime.queue import OnQueue, queue_of
from .checks import (
    Index,
    axes,
    check_dtype,
    check_index,
    check_size,
    find,
    fours,
    is_aligned,
    prefers_plain,
    tokens_heads_size,
    type_ending,
)

MOST_SIZE = 256
"""The largest head size that the attention kernels support."""

MOST_PARTS = 128
"""The most parts that `sdpa` splits the keys of a token into."""

_SIMDGROUPS = 16
_QUERIES_OF_A_PART = 8
_SLICES_OF_PARTS = 8
_GROUPS_A_WORKER = 4
_FEWEST_KEYS = 256
"""Fewer keys per part are not worth another dispatch."""
_TILED_SIZES = (64, 96, 128)
"""Sizes of heads that kernels have which compute with simdgroup matrices."""
_TILED_TOKENS = 64
"""Tokens of a group that computes with simdgroup matrices; from a quarter of it on they are faster."""
_HEADS_TOGETHER = 8
"""Heads of a token that are rotated together, by the same angles."""
_HEADS_APPENDED = {16: 16, 4096: 32}
"""Heads per simdgroup of `rope_append`, by the fewest tokens from which that many are taken."""
_TOKENS_LOOKED_UP = 4
"""Rows that a thread of the embedding reads at a time."""
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
    each, way = fours(encoder, width, out.size, table, out, most=8)
    encoder.dispatch(
        find(encoder, "positions", f"{name}{way}_{ending}"),
        *(table, tokens, out, rows, tokens.size),
        threads=(width // each, tokens.size if each == 1 else -(-tokens.size // _TOKENS_LOOKED_UP)),
        group_size=(min(width // each, 256), 1),
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
    each, way = fours(encoder, pairs, x.size, x, out)
    if each > 1 and 2 * pairs == size and not interleaved:
        arguments: tuple[Any, ...] = (x, frequencies, out, position, heads, scale)
        threads = (pairs // each, -(-heads // _HEADS_TOGETHER), tokens)
    else:
        way = ""
        arguments = (x, frequencies, out, position, pairs, int(interleaved), scale)
        threads = (size - pairs, heads, tokens)
    encoder.dispatch(
        find(encoder, "positions", f"{name}{way}_{ending}"),
        *arguments,
        threads=threads,
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
    each, way = fours(encoder, size, keys.size, keys, values, key_cache, value_cache)
    encoder.dispatch(
        find(encoder, "positions", f"{name}{way}_{ending}"),
        *(keys, values, key_cache, value_cache, position, capacity),
        threads=(size // each, heads, tokens),
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
    arguments: list[Any] = [x, frequencies, *(norms or (x, x)), queries, key_cache, value_cache, position]
    arguments += [heads, kept_heads, size, frequencies.size, capacity, int(bool(norms)), eps]
    grid: dict[str, Any] = {"threads": (rows, tokens), "group_size": 1}
    way = ""
    if not plain:
        together = max((heads for least, heads in _HEADS_APPENDED.items() if tokens >= least), default=1)
        if 2 * frequencies.size == size and size in (8, 16, 32, 64, 128, 256):
            most = 4 if size == 8 else 8
            _, way = fours(encoder, size, x.size, x, queries, key_cache, value_cache, *norms, most=most)
        arguments.append(together)
        grid = {"groups": (-(-rows // together), tokens), "group_size": 32}
    encoder.dispatch(
        find(encoder, "rope_append_plain" if plain else "rope_append", f"{name}{way}_{ending}"),
        *arguments,
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
    partial: Buffer | None = None,
) -> None:
    """Causal attention of queries [tokens, heads, size] to the cached keys and values.

    One token is decoding, several are prefill: the query of a token attends to keys 0 to position + token. Several
    heads may share a head of the cache. `scale` is 1 / √size by default; `window` limits a query to that many last
    keys, including its own; `cap` replaces a score by cap · tanh(score / cap).

    With `partial`, a float32 buffer [parts, heads, size + 2], the keys of one token are split over that many groups and
    joined by a second dispatch: for long contexts on a GPU. `attention_parts` says how many parts pay; the buffer may
    serve many calls. It is used for half and bfloat16 and heads of 64, 96 or 128 elements, not on CPUs.
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
    # A key is read once, however many queries attend to it.
    most_rows = min(capacity, tokens + window - 1) if window else capacity
    cost: dict[str, Any] = {
        "op_kind": CapturedOpKind.Sdpa,
        "bytes_read": _add(queries.nbytes, position, 2 * kept_heads * size * queries.dtype.itemsize, tokens, most_rows),
        "flops": _seen(position, tokens, capacity, window, 4 * heads * size),
    }
    parts = 0 if partial is None else _parts(partial, heads, size)
    row = 8 if size <= 64 else 16 if size <= 128 else 32
    whole = size % _OWN == 0 and is_aligned(16, 0, queries, key_cache, value_cache)
    tiled = whole and size in _TILED_SIZES and queries.dtype.itemsize == 2
    if prefers_plain(encoder):
        kernel = find(encoder, "attention_plain", f"attend_{ending}")
        grid: dict[str, Any] = {"threads": (heads, tokens), "group_size": 1}
    elif tiled and partial is not None and tokens == 1:
        encoder.dispatch(
            find(encoder, "attention_parts", f"attend_part_{ending}_{size}"),
            *(*arguments[:3], partial, position, *arguments[6:]),
            groups=(parts, kept_heads, -(-(heads // kept_heads) // _QUERIES_OF_A_PART)),
            group_size=128,
            bytes_written=partial.nbytes,
            **cost,
        )
        encoder.dispatch(
            find(encoder, "attention_parts", f"join_parts_{ending}_{size}"),
            *(partial, out, parts),
            groups=heads,
            group_size=size * _SLICES_OF_PARTS,
            bytes_read=partial.nbytes,
            bytes_written=out.nbytes,
            flops=2 * partial.size,
        )
        return
    elif tiled and tokens >= _TILED_TOKENS // 4:
        arguments[5] = tokens
        kernel = find(encoder, "attention_tiles", f"attend_tiles_{ending}_{size}")
        grid = {"groups": (-(-tokens // _TILED_TOKENS), heads), "group_size": 128}
    else:
        kernel = find(encoder, "attention", f"attend_{ending}_{row}{'' if whole else '_any'}")
        most = min(capacity, window or capacity)
        simdgroups = min(_SIMDGROUPS, -(-most // (_KEYS_TOGETHER * 32 // row)))
        grid = {"groups": (heads, tokens), "group_size": 32 * simdgroups}
    encoder.dispatch(kernel, *arguments, **grid, bytes_written=out.nbytes, **cost)


def attention_parts(device: OnQueue, kv_heads: int, capacity: int) -> int:
    """Into how many parts `sdpa` should split the keys of one token; 1 where splitting does not pay."""
    capabilities = queue_of(device, "attention_parts").backend.capabilities
    if capabilities.plain_loops:
        return 1
    filling = -(-_GROUPS_A_WORKER * capabilities.workers // kv_heads)
    return max(1, min(filling, capacity // _FEWEST_KEYS, MOST_PARTS))


def _parts(partial: Buffer, heads: int, size: int) -> int:
    check_dtype("sdpa", "partial", partial, np.float32)
    parts, *rest = axes("sdpa", "partial", partial, "parts", "heads", "size + 2")
    if rest != [heads, size + 2] or parts > MOST_PARTS:
        raise ArgumentError(
            f"sdpa: partial must be [parts, {heads}, {size + 2}] with at most {MOST_PARTS} parts, not {partial!r}"
        )
    return parts


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
