"""Matrix-vector and matrix-matrix products. Weights are [out, in], as in checkpoints.

Each has two kernels: in one a thread sums a row (CPUs), in the other simdgroups do (GPUs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..encode.encoder import CommandEncoder
from ..errors import ArgumentError
from ..runtime.buffer import Buffer
from ..runtime.queue import Queue
from .checks import (
    GATE_FLOPS,
    Index,
    axes,
    check_dtype,
    check_index,
    check_size,
    find,
    is_aligned,
    prefers_plain,
    prefers_tensors,
    type_ending,
)
from .choices import choose

_ROWS_TOGETHER = 8
_ROWS_TRIED = (8, 1, 2, 4, 16, 32, 64)
_SIMDGROUPS = 8
_SIMDGROUPS_TRIED = (8, 4, 2, 1)
_SPLITS = (1, 2, 4, 8)
_FLIGHTS = (4, 8)
_ENOUGH_SIMDGROUPS = 8192
"""Fewer do not fill a GPU; then several share a row."""
_GROUPS_A_WORKER = (3, 4)
"""Every group stages its own copy of x, so there are no more groups than run concurrently."""
_GROUPS_TRIED = (3, 2, 4, 6, 8, 12, 16)
_PAIRS = ((8, 2), (4, 3))
"""Where a simdgroup multiplies two rows: simdgroups in a group, and groups per worker."""
_PAIRS_TRIED = (8, 4, 2, 16)
_FEWEST_GROUPS = 64
"""Lower limit of groups, for devices that report a single worker because their number of cores is unknown."""
_MOST_STAGED = 65536
"""Most bytes of x that a group stages; with more, too few groups would run concurrently."""
_TILE_ON_CPU = (2, 4)
_TILE = 64
_TILES = {(128, 256, 8): 22, (128, 128, 8): 14, (64, 128, 4): 12, (64, 64, 4): 9}
"""Where `matmul2d` multiplies: tokens and rows of a tile, the simdgroups that make it, and about what it costs (on an
H200, µs for rows of 2,048)."""


def matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer, *, addend: Buffer | None = None) -> None:
    """out = weight · x, for weights [out, in]; with an addend, out = addend + weight · x. `out` may be the addend."""
    others = [] if addend is None else [addend]
    ending = type_ending("matvec", weight, x, out, *others)
    rows, width = axes("matvec", "weight", weight, "out", "in")
    check_size("matvec", "x", x, width)
    check_size("matvec", "out", out, rows)
    for buffer in others:
        check_size("matvec", "addend", buffer, rows)
    # Without an addend x is bound in its place, and the kernel does not read it.
    arguments = [weight, x, out, width, *(others or [x]), len(others)]
    read = weight.nbytes + x.nbytes + sum(buffer.nbytes for buffer in others)
    _dense(encoder, f"matvec_{ending}", arguments, rows, 1, read, out.nbytes, rows * (2 * width + len(others)))


def norm_matvec(
    encoder: CommandEncoder, weight: Buffer, x: Buffer, norm: Buffer, out: Buffer, eps: float = 1e-6
) -> None:
    """out = weight · rms_norm(x, norm), for weights [out, in], in one dispatch.

    Meant for GPUs, where it saves a launch; on a CPU every row normalises x again. Rows have at most `most_staged`
    bytes.
    """
    rows, width = axes("norm_matvec", "weight", weight, "out", "in")
    _normed(encoder, "norm_matvec", weight, x, norm, out, eps, rows, width, 1)


def gated_matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out = silu(weight[0] · x) · (weight[1] · x), for weights [2, out, in]."""
    name = "gated_matvec"
    ending = type_ending(name, weight, x, out)
    rows, width = _gates(name, weight)
    check_size(name, "x", x, width)
    check_size(name, "out", out, rows)
    flops = rows * (4 * width + GATE_FLOPS)
    read = weight.nbytes + x.nbytes
    _dense(encoder, f"{name}_{ending}", [weight, x, out, width], rows, 1, read, out.nbytes, flops, matrices=2)


def norm_gated_matvec(
    encoder: CommandEncoder, weight: Buffer, x: Buffer, norm: Buffer, out: Buffer, eps: float = 1e-6
) -> None:
    """`gated_matvec` of rms_norm(x, norm), in one dispatch. Rows have at most `most_staged` bytes."""
    rows, width = _gates("norm_gated_matvec", weight)
    _normed(encoder, "norm_gated_matvec", weight, x, norm, out, eps, rows, width, 2)


def qkv_matvec(
    encoder: CommandEncoder,
    weight: Buffer,
    x: Buffer,
    norm: Buffer,
    frequencies: Buffer,
    queries: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    position: Index,
    eps: float = 1e-6,
) -> None:
    """Queries, keys and values of one token in one dispatch: `norm_matvec`, then `rope_append`.

    `weight` is [(heads + 2 · KV heads) · size, in]. Whole heads are rotated: there is a frequency for each pair.
    """
    name = "qkv_matvec"
    ending = type_ending(name, weight, x, norm, queries, key_cache, value_cache)
    check_dtype(name, "frequencies", frequencies, np.float32)
    rows, width = axes(name, "weight", weight, "out", "in")
    kept, capacity, size = axes(name, "key_cache", key_cache, "heads", "capacity", "size")
    if value_cache.shape != key_cache.shape or size % 2:
        raise ArgumentError(
            f"{name}: the caches must have one shape and an even size, not {key_cache!r} and {value_cache!r}"
        )
    heads = rows // size - 2 * kept
    if rows % size or heads < 1:
        raise ArgumentError(f"{name}: {weight!r} has no rows for queries beside {kept} keys and values of {size}")
    for what, buffer, elements in (
        ("x", x, width),
        ("norm", norm, width),
        ("queries", queries, heads * size),
        ("frequencies", frequencies, size // 2),
    ):
        check_size(name, what, buffer, elements)
    check_index(name, "position", position, below=capacity)
    _check_staged(encoder, name, x)
    arguments = [weight, x, norm, frequencies, queries, key_cache, value_cache, width, eps]
    arguments += [position, heads, kept, size, capacity]
    read = weight.nbytes + x.nbytes + norm.nbytes + frequencies.nbytes
    written = rows * weight.dtype.itemsize
    flops = 2 * rows * width + 4 * width + 12 * (heads + kept) * size
    kernel = f"{name}_{ending}"
    if prefers_plain(encoder):
        compiled = find(encoder, "matvec_plain", kernel)
        together = _rows_together(encoder, "matvec_plain", kernel, (rows, width, size))
        grid: dict[str, Any] = {"threads": (size // 2, rows // size), "group_size": (together, 1)}
        encoder.dispatch(compiled, *arguments, **grid, bytes_read=read, bytes_written=written, flops=flops)
    else:
        _pairs(encoder, kernel, arguments, rows // 2, norm, read, written, flops)


def _gates(name: str, weight: Buffer) -> tuple[int, int]:
    two, rows, width = axes(name, "weight", weight, "2", "out", "in")
    if two != 2:
        raise ArgumentError(f"{name}: weight must be [2, out, in], not {weight!r}")
    return rows, width


def _normed(
    encoder: CommandEncoder,
    name: str,
    weight: Buffer,
    x: Buffer,
    norm: Buffer,
    out: Buffer,
    eps: float,
    rows: int,
    width: int,
    matrices: int,
) -> None:
    ending = type_ending(name, weight, x, norm, out)
    for what, buffer, size in (("x", x, width), ("norm", norm, width), ("out", out, rows)):
        check_size(name, what, buffer, size)
    _check_staged(encoder, name, x)
    read = weight.nbytes + x.nbytes + norm.nbytes
    flops = rows * (2 * matrices * width + GATE_FLOPS * (matrices - 1)) + 4 * width
    kernel, arguments = f"{name}_{ending}", [weight, x, norm, out, width, eps]
    if matrices == 2 and not prefers_plain(encoder):
        _pairs(encoder, kernel, arguments, rows, norm, read, out.nbytes, flops)
    else:
        _dense(encoder, kernel, arguments, rows, 1, read, out.nbytes, flops, matrices=matrices, norm=norm)


def expert_matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, indices: Buffer, out: Buffer) -> None:
    """out[slot] = weight[indices[slot]] · x[slot], for weights [experts, out, in] and indices made on the device.

    `x` has a row per slot, or a row per token for all its slots. An index past the last expert gives NaN.
    """
    experts, rows, width = axes("expert_matvec", "weight", weight, "experts", "out", "in")
    _by_experts(encoder, "expert_matvec", weight, x, indices, out, experts, rows, width, 1)


def expert_gated_matvec(encoder: CommandEncoder, weight: Buffer, x: Buffer, indices: Buffer, out: Buffer) -> None:
    """out[slot] = silu(weight[index, 0] · x[slot]) · (weight[index, 1] · x[slot]), for weights [experts, 2, out, in].

    `index` is indices[slot]. `x` has a row per slot, or a row per token for all its slots. An index past the last
    expert gives NaN.
    """
    name = "expert_gated_matvec"
    experts, two, rows, width = axes(name, "weight", weight, "experts", "2", "out", "in")
    if two != 2:
        raise ArgumentError(f"{name}: weight must be [experts, 2, out, in], not {weight!r}")
    _by_experts(encoder, name, weight, x, indices, out, experts, rows, width, 2)


def _by_experts(
    encoder: CommandEncoder,
    name: str,
    weight: Buffer,
    x: Buffer,
    indices: Buffer,
    out: Buffer,
    experts: int,
    rows: int,
    width: int,
    matrices: int,
) -> None:
    ending = type_ending(name, weight, x, out)
    check_dtype(name, "indices", indices, np.uint32)
    slots = indices.size
    check_size(name, "out", out, slots * rows)
    if x.size % width or slots % (x.size // width):
        raise ArgumentError(
            f"{name}: {x!r} must have rows of {width}, and their number must divide the {slots} slots of {indices!r}"
        )
    arguments: list[Any] = [weight, x, indices, out, width, slots * width // x.size, experts]
    # The experts of one token differ. Those of several tokens may coincide, so the bytes read are not known.
    read: int | None = None
    if len(indices.shape) == 1 or indices.shape[0] == 1:
        read = slots * matrices * rows * width * weight.dtype.itemsize + x.nbytes + indices.nbytes
    flops = slots * rows * (2 * matrices * width + GATE_FLOPS * (matrices - 1))
    _dense(encoder, f"{name}_{ending}", arguments, rows, slots, read, out.nbytes, flops, matrices=matrices)


def matmul(encoder: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
    """out[token] = weight · x[token], for weights [out, in] and x [tokens, in]."""
    name = "matmul"
    ending = type_ending(name, weight, x, out)
    rows, width = axes(name, "weight", weight, "out", "in")
    if x.size % width:
        raise ArgumentError(f"{name}: {x!r} must have rows of {width} for {weight!r}")
    tokens = x.size // width
    check_size(name, "out", out, tokens * rows)
    plain = prefers_plain(encoder)
    source, kernel = "matvec_plain" if plain else "matvec", f"{name}_{ending}"
    if plain:
        together = _rows_together(encoder, "matvec_plain", f"{name}_{ending}", (tokens, rows, width))
        grid: dict[str, Any] = {
            "threads": (-(-rows // _TILE_ON_CPU[0]), -(-tokens // _TILE_ON_CPU[1])),
            "group_size": (together, 1),
        }
    elif prefers_tensors(encoder) and ending != "float":
        tile = _tile(tokens, rows, encoder._queue.backend.capabilities.workers)
        source, kernel = "matmul", "_".join(map(str, (kernel, *tile)))
        grid = {"groups": (-(-rows // tile[1]), -(-tokens // tile[0])), "group_size": 32 * tile[2]}
    else:
        grid = {"groups": (-(-rows // _TILE), -(-tokens // _TILE)), "group_size": 256}
    encoder.dispatch(
        find(encoder, source, kernel, alone=source == "matmul"),
        *(weight, x, out, width, rows, tokens),
        **grid,
        bytes_read=weight.nbytes + x.nbytes,
        bytes_written=out.nbytes,
        flops=2 * tokens * rows * width,
    )


def _tile(tokens: int, rows: int, workers: int) -> tuple[int, int, int]:
    """The tile with which the worker that has most to do is done first."""

    def longest(tile: tuple[int, int, int]) -> int:
        groups = -(-tokens // tile[0]) * -(-rows // tile[1])
        return -(-groups // workers) * _TILES[tile]

    return min(_TILES, key=longest)


def _dense(
    encoder: CommandEncoder,
    kernel: str,
    arguments: list[Any],
    rows: int,
    slots: int,
    bytes_read: int | None,
    bytes_written: int,
    flops: int,
    *,
    matrices: int = 1,
    norm: Buffer | None = None,
) -> None:
    """Dispatch with one row of the weights per thread, or per several simdgroups; the second axis is the slots.

    `arguments` begins with the weights and x. With two matrices, one row of each gives one result.
    """
    weight, x, width = arguments[0], arguments[1], arguments[0].shape[-1]
    cost: dict[str, Any] = {"bytes_read": bytes_read, "bytes_written": bytes_written, "flops": flops}
    if prefers_plain(encoder):
        plain = find(encoder, "matvec_plain", kernel)
        together = _rows_together(encoder, "matvec_plain", kernel, (slots, rows, width))
        encoder.dispatch(plain, *arguments, threads=(rows, slots), group_size=(together, 1), **cost)
        return
    queue, row_bytes = encoder._queue, width * weight.dtype.itemsize
    read_whole = [weight, x] if norm is None else [weight, x, norm]
    split = _split(
        rows * slots * matrices, row_bytes, _SIMDGROUPS // matrices, _SIMDGROUPS * _groups(queue, _GROUPS_A_WORKER[0])
    )
    flight = 8 if row_bytes >= split * 32 * 8 * 16 else 4
    staged = row_bytes <= most_staged(queue)
    tasks = -(-rows * matrices * split // _SIMDGROUPS) * slots
    at_a_time = max((_groups(queue, each) for each in _GROUPS_A_WORKER), key=lambda groups: _fullness(tasks, groups))
    chosen: Mapping[str, int] = {"groups": at_a_time, "simdgroups": _SIMDGROUPS, "split": split, "flight": flight}
    if queue.tuned is not None:
        values = {
            "groups": tuple(_groups(queue, each) for each in _GROUPS_TRIED),
            "simdgroups": _SIMDGROUPS_TRIED,
            "split": _SPLITS,
            "flight": _FLIGHTS,
        }
        # The sums of a row are shared by `split` simdgroups, and those of the norm by all of a group.
        sums = frozenset({"split", "flight"} if norm is None else {"split", "flight", "simdgroups"})
        whole, site = ("simdgroups", ("split",), matrices), (slots, rows, width)
        chosen = choose(encoder, "matvec", f"{kernel}_{flight}", kernel, site, chosen, values, sums, whole)
    split, simdgroups = chosen["split"], chosen["simdgroups"]
    arguments += [rows, int(is_aligned(16, row_bytes, *read_whole)), split]
    if norm is None:
        arguments.append(int(staged))
    groups = min(-(-rows * matrices * split // simdgroups), -(-chosen["groups"] // slots))
    compiled = find(encoder, "matvec", f"{kernel}_{chosen['flight']}")
    room = {0: -(-row_bytes // 16) * 16 if staged else 16}
    encoder.dispatch(compiled, *arguments, groups=(groups, slots), group_size=32 * simdgroups, shared=room, **cost)


def _pairs(
    encoder: CommandEncoder,
    kernel: str,
    arguments: list[Any],
    results: int,
    norm: Buffer,
    bytes_read: int,
    bytes_written: int,
    flops: int,
) -> None:
    """Dispatch with a result per simdgroup, from two rows of the weights. `arguments` begins with the weights and x."""
    weight, x, width = arguments[0], arguments[1], arguments[0].shape[-1]
    queue, row_bytes = encoder._queue, width * weight.dtype.itemsize
    simdgroups, groups = max(
        ((simdgroups, _groups(queue, each)) for simdgroups, each in _PAIRS),
        key=lambda choice: _fullness(results, choice[0] * choice[1]),
    )
    flight = 8 if row_bytes >= 32 * 8 * 16 else 4
    chosen: Mapping[str, int] = {"groups": groups, "simdgroups": simdgroups, "flight": flight}
    if queue.tuned is not None:
        values = {
            "groups": tuple(_groups(queue, each) for each in _GROUPS_TRIED),
            "simdgroups": _PAIRS_TRIED,
            "flight": _FLIGHTS,
        }
        # The sums of the norm are shared by all simdgroups of a group.
        sums, site = frozenset({"simdgroups"}), (1, results, width)
        chosen = choose(encoder, "matvec_pairs", f"{kernel}_{flight}", kernel, site, chosen, values, sums)
    compiled = find(encoder, "matvec_pairs", f"{kernel}_{chosen['flight']}")
    encoder.dispatch(
        compiled,
        *(*arguments, results, int(is_aligned(16, row_bytes, weight, x, norm))),
        groups=min(-(-results // chosen["simdgroups"]), chosen["groups"]),
        group_size=32 * chosen["simdgroups"],
        shared={0: -(-row_bytes // 16) * 16},
        bytes_read=bytes_read,
        bytes_written=bytes_written,
        flops=flops,
    )


def _groups(queue: Queue, each: int) -> int:
    """How many groups are made, for `each` per worker."""
    return max(each * queue.backend.capabilities.workers, _FEWEST_GROUPS)


def _fullness(tasks: int, at_a_time: int) -> float:
    """How much there is to do for those that take tasks in turn, up to the end of the last."""
    return tasks / (-(-tasks // at_a_time) * at_a_time)


def _rows_together(encoder: CommandEncoder, source: str, kernel: str, shape: tuple[int, ...]) -> int:
    """Threads per group where each sums a row by itself: no result depends on it."""
    if encoder._queue.tuned is None:
        return _ROWS_TOGETHER
    chosen = choose(encoder, source, kernel, kernel, shape, {"rows": _ROWS_TOGETHER}, {"rows": _ROWS_TRIED})
    return chosen["rows"]


def _check_staged(encoder: CommandEncoder, name: str, x: Buffer) -> None:
    most = most_staged(encoder._queue)
    if x.nbytes > most:
        raise ArgumentError(f"{name}: rows of {x.nbytes} bytes are too long; at most {most} on this device")


def most_staged(queue: Queue) -> int:
    """The longest row, in bytes, that a group can stage beside its sums; the limit of `norm_matvec`."""
    return min(queue.backend.capabilities.threadgroup_memory_bytes, _MOST_STAGED) - 256


def _split(rows: int, row_bytes: int, most: int, at_a_time: int) -> int:
    """How many simdgroups share a row: more if there are few rows, as long as each lane has four loads.

    If the `at_a_time` simdgroups that run concurrently can load the whole matrix before they wait for x, no more are
    made than those.
    """
    at_once = at_a_time * _FLIGHTS[-1] * 32 * 16
    few = at_a_time // 2 + 1 if rows * row_bytes <= at_once else _ENOUGH_SIMDGROUPS
    split = 1
    while split < most and rows * split < few and row_bytes >= 2 * split * 32 * 4 * 16:
        split *= 2
    return split
