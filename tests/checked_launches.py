"""How each kernel of `checked_kernels/` is launched, and what NumPy says that it computes.

`LAUNCHES` has a function for each kernel, from a group size to a `Launch`. The grids are clipped: the last group has
fewer threads, or, where groups must be whole, the last group has less data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Extent = int | tuple[int, int]
Check = Callable[[list[np.ndarray]], None]

GROUPS = 3
_RANDOM = np.random.default_rng(18)


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch: its arguments, its grid, and its expected result."""

    arguments: tuple[Any, ...]
    """Arrays become buffers; scalars and dicts are passed as they are."""
    check: Check
    """Takes the buffers after the dispatch, in the order of the arguments; raises `AssertionError`."""
    group_size: Extent
    threads: Extent | None = None
    groups: Extent | None = None
    shared: Mapping[int, int] = field(default_factory=dict)


def _clipped(n: int) -> int:
    """Threads of a grid whose last group is not full, nor is its last simdgroup."""
    return (GROUPS - 1) * n + (35 if n > 35 else 13)


def _blocks(count: int, n: int) -> list[slice]:
    return [slice(first, min(first + n, count)) for first in range(0, count, n)]


def _uints(count: int, limit: int = 1000) -> np.ndarray:
    return _RANDOM.integers(0, limit, count).astype(np.uint32)


def _whole_floats(count: int) -> np.ndarray:
    """Floats whose sums are exact in every order."""
    return _RANDOM.integers(-50, 50, count).astype(np.float32)


def _zeros(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(count, dtype)


def _equals(index: int, expected: np.ndarray) -> Check:
    def check(buffers: list[np.ndarray]) -> None:
        np.testing.assert_array_equal(buffers[index][: expected.size], expected.ravel())

    return check


def _close(index: int, expected: np.ndarray) -> Check:
    def check(buffers: list[np.ndarray]) -> None:
        np.testing.assert_allclose(buffers[index], expected.ravel(), rtol=1e-4, atol=1e-5)

    return check


def _per_group(
    n: int, values: np.ndarray, of_block: Callable[[np.ndarray], Any], dtype: Any, *scalars: Any, margin: int = 0
) -> Launch:
    """A kernel with `in` and `out`, whose groups each compute something of a block of their own."""
    count = len(values)
    expected = np.concatenate([np.atleast_1d(of_block(values[block])) for block in _blocks(count, n)]).astype(dtype)
    arguments = (values, _zeros(len(expected) + margin, dtype), *scalars)
    return Launch(arguments, _equals(1, expected), n, threads=count)


def _sums(n: int) -> Launch:
    return _per_group(n, _whole_floats(_clipped(n)), np.sum, np.float32)


def _sums_in_lockstep(n: int) -> Launch:
    return _per_group(n, _whole_floats(_clipped(n) if n > 32 else GROUPS * n), np.sum, np.float32)


def _arg_max(n: int) -> Launch:
    values = _RANDOM.permutation(_clipped(n)).astype(np.float32)
    expected = [block.start + int(np.argmax(values[block])) for block in _blocks(len(values), n)]
    return Launch((values, _zeros(GROUPS, np.uint32)), _equals(1, np.array(expected)), n, threads=len(values))


def _dot_rows(n: int) -> Launch:
    rows, width = 2 * GROUPS + 1, 2 * n + 5
    a, b = _whole_floats(rows * width).reshape(rows, width), _whole_floats(width)
    arguments = (a.ravel(), b, _zeros(rows), np.uint32(width), np.uint32(rows))
    return Launch(arguments, _equals(2, a @ b), n, threads=_clipped(n))


def _sum_last_group(n: int) -> Launch:
    values = _whole_floats(_clipped(n))
    arguments = (values, _zeros(GROUPS), _zeros(1, np.uint32), _zeros(1))
    return Launch(arguments, _equals(3, values.sum(keepdims=True)), n, threads=len(values))


def _max_atomic(n: int) -> Launch:
    values = _uints(_clipped(n))
    return Launch((values, _zeros(1, np.uint32)), _equals(1, values.max(keepdims=True)), n, threads=len(values))


def _inclusive(n: int) -> Launch:
    return _per_group(n, _uints(_clipped(n)), np.cumsum, np.uint32)


def _exclusive(n: int) -> Launch:
    return _per_group(n, _uints(_clipped(n)), lambda block: np.cumsum(block) - block, np.uint32)


def _scan_look_back(n: int) -> Launch:
    values = _uints(GROUPS * n - 7)
    counters = (_zeros(1, np.uint32), _zeros(GROUPS, np.uint32), _zeros(GROUPS, np.uint32))
    arguments = (values, _zeros(len(values), np.uint32), *counters, np.uint32(len(values)))
    return Launch(arguments, _equals(1, np.cumsum(values)), n, groups=GROUPS)


def _compact(n: int) -> Launch:
    values = _uints(_clipped(n))
    kept = values[values < 500]

    def check(buffers: list[np.ndarray]) -> None:
        assert buffers[2][0] == len(kept)
        np.testing.assert_array_equal(np.sort(buffers[1][: len(kept)]), np.sort(kept))

    arguments = (values, _zeros(len(values), np.uint32), _zeros(1, np.uint32), np.uint32(500))
    return Launch(arguments, check, n, threads=len(values))


def _histogram(bins: int) -> Callable[[int], Launch]:
    def launch(n: int) -> Launch:
        values = _uints(_clipped(n))
        counts = np.bincount(values % bins, minlength=bins)
        return Launch((values, _zeros(bins, np.uint32)), _equals(1, counts), n, threads=len(values))

    return launch


def _histogram_private(n: int) -> Launch:
    values = _uints(5 * n)
    counts = np.bincount(values % 16, minlength=16)
    arguments = (values, _zeros(16, np.uint32), np.uint32(len(values)))
    return Launch(arguments, _equals(1, counts), n, threads=_clipped(n))


_SHAPES = {32: (8, 4), 64: (8, 8), 96: (16, 6), 128: (8, 16), 256: (16, 16)}


def _transpose(n: int) -> Launch:
    width, height = _SHAPES[n]
    columns, rows = 2 * width + 5, 2 * height + 3
    values = _whole_floats(rows * columns).reshape(rows, columns)
    arguments = (values.ravel(), _zeros(values.size))
    return Launch(arguments, _equals(1, values.T), (width, height), threads=(columns, rows))


def _matmul_tiles(n: int) -> Launch:
    width, height = _SHAPES[n]
    columns, rows, depth = width + 5, height + 3, 35
    a, b = _whole_floats(rows * depth).reshape(rows, depth), _whole_floats(depth * columns).reshape(depth, columns)
    arguments = (a.ravel(), b.ravel(), _zeros(rows * columns), {"m": rows, "n": columns, "k": depth})
    return Launch(arguments, _equals(2, a @ b), (width, height), threads=(columns, rows))


def _matmul_simdgroups(n: int) -> Launch:
    rows, columns, depth = n // 4 + 3, 7, 19
    a, b = _whole_floats(rows * depth).reshape(rows, depth), _whole_floats(depth * columns).reshape(depth, columns)
    arguments = (a.ravel(), b.ravel(), _zeros(rows * columns), {"m": rows, "n": columns, "k": depth})
    return Launch(arguments, _equals(2, a @ b), n, groups=2)


def _convolve(n: int) -> Launch:
    values, weights = _whole_floats(_clipped(n)), np.arange(1, 8, dtype=np.float32)
    expected = np.convolve(np.pad(values, 3), weights[::-1], "valid")
    arguments = (values, _zeros(len(values)), weights)
    return Launch(arguments, _equals(1, expected), n, threads=len(values))


def _smooth(n: int) -> Launch:
    def smoothed(block: np.ndarray) -> np.ndarray:
        for _ in range(3):
            padded = np.pad(block, 1)
            block = 0.25 * padded[:-2] + 0.5 * block + 0.25 * padded[2:]
        return block

    return _per_group(n, 64 * _whole_floats(_clipped(n)), smoothed, np.float32, np.uint32(3))


def _pipeline(n: int) -> Launch:
    count, parts = _clipped(n), 4
    values = _whole_floats(parts * count).reshape(parts, count)
    turned = np.concatenate([values[:, block][:, ::-1] for block in _blocks(count, n)], axis=1)
    expected = np.array([8, 4, 2, 1], np.float32) @ turned
    arguments = (values.ravel(), _zeros(count), np.uint32(parts))
    return Launch(arguments, _equals(1, expected), n, threads=count)


def _n_body(n: int) -> Launch:
    count = _clipped(n)
    bodies = _RANDOM.normal(size=(count, 4)).astype(np.float32)
    away = bodies[None, :, :3] - bodies[:, None, :3]
    pull = (bodies[None, :, 3:] * away / ((away**2).sum(axis=2, keepdims=True) + 1)).sum(axis=1)
    expected = np.pad(pull, ((0, 0), (0, 1)))
    arguments = (bodies.ravel(), _zeros(4 * count), np.uint32(count))
    return Launch(arguments, _close(1, expected), n, threads=count, shared={0: 16 * n})


def _pack_bytes(n: int) -> Launch:
    values = _RANDOM.integers(0, 256, GROUPS * n - 8).astype(np.uint8)
    expected = np.concatenate([values[block].view(np.uint32)[::-1] for block in _blocks(len(values), n)])
    return Launch((values, _zeros(len(expected), np.uint32)), _equals(1, expected), n, threads=len(values))


def _rows(width: int, rows: int) -> np.ndarray:
    return _RANDOM.normal(size=(rows, width)).astype(np.float32)


def _softmax(n: int) -> Launch:
    x = _rows(n + 9, GROUPS)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    arguments = (x.ravel(), _zeros(x.size), np.uint32(n + 9))
    return Launch(arguments, _close(1, weights / weights.sum(axis=1, keepdims=True)), n, threads=_clipped(n))


def _layer_norm(n: int) -> Launch:
    x = _rows(n + 9, GROUPS)
    expected = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    arguments = (x.ravel(), _zeros(x.size), np.uint32(n + 9))
    return Launch(arguments, _close(1, expected), n, threads=_clipped(n))


def _rms_norm(n: int) -> Launch:
    x = _rows(n + 9, 2 * GROUPS + 1)
    expected = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)
    arguments = (x.ravel(), _zeros(x.size), np.uint32(n + 9), np.uint32(len(x)))
    return Launch(arguments, _close(1, expected), n, threads=_clipped(n))


def _attention(n: int) -> Launch:
    queries = _clipped(n)
    length, depth = 40, 8
    q, k, v = _rows(depth, queries), _rows(depth, length), _rows(depth, length)
    weights = np.exp(q @ k.T)
    expected = weights @ v / weights.sum(axis=1, keepdims=True)
    arguments = (q.ravel(), k.ravel(), v.ravel(), _zeros(q.size), np.uint32(length))
    return Launch(arguments, _close(3, expected), n, threads=queries)


def _sort(n: int) -> Launch:
    return _per_group(n, _uints(_clipped(n)), np.sort, np.uint32)


def _sort_radix_step(n: int) -> Launch:
    def step(block: np.ndarray) -> np.ndarray:
        return np.asarray(block[np.argsort((block >> 2) & 3, kind="stable")])

    return _per_group(n, _uints(_clipped(n)), step, np.uint32, np.uint32(2))


def _top_k(n: int) -> Launch:
    values = _RANDOM.permutation(_clipped(n)).astype(np.float32)
    return _per_group(n, values, lambda block: np.sort(block)[::-1][:5], np.float32, np.uint32(5))


def _reverse(index: int, factor: int, addend: int) -> Callable[[int], Launch]:
    def launch(n: int) -> Launch:
        values = _uints(_clipped(n))
        turned = np.concatenate([values[block][::-1] for block in _blocks(len(values), n)])
        arguments = (values, _zeros(len(values) + 1, np.uint32), _zeros(len(values), np.uint32))
        return Launch(arguments, _equals(index, turned * factor + addend), n, threads=len(values))

    return launch


def _chain(n: int) -> Launch:
    values = _uints(GROUPS * n).reshape(GROUPS, n)
    expected = values.copy()
    for part in range(1, GROUPS):
        expected[part] += expected[part - 1, ::-1]
    arguments = (values.ravel(), _zeros(values.size, np.uint32), _zeros(1, np.uint32), _zeros(GROUPS, np.uint32))
    return Launch(arguments, _equals(1, expected), n, groups=GROUPS)


def _message(n: int) -> Launch:
    values = _uints(_clipped(n)) + 1

    def check(buffers: list[np.ndarray]) -> None:
        sent = 5 * values[np.arange(1, GROUPS) * n - 1]
        received = buffers[3][1:]
        np.testing.assert_array_equal(received[received != 0], sent[received != 0])

    arguments = (values, _zeros(len(values), np.uint32), _zeros(GROUPS, np.uint32), _zeros(GROUPS, np.uint32))
    return Launch(arguments, check, n, threads=len(values))


def _append(n: int) -> Launch:
    values = _uints(_clipped(n))
    kept = np.flatnonzero(values < 500)

    def check(buffers: list[np.ndarray]) -> None:
        assert buffers[2][0] == len(kept)
        np.testing.assert_array_equal(np.sort(buffers[1][: len(kept)]), kept)

    arguments = (values, _zeros(len(values), np.uint32), _zeros(1, np.uint32), np.uint32(500))
    return Launch(arguments, check, n, threads=len(values))


def _swap(n: int) -> Launch:
    def swapped(block: np.ndarray) -> np.ndarray:
        return np.asarray(block[np.minimum(np.arange(len(block)) ^ 1, len(block) - 1)])

    return _per_group(n, _uints(_clipped(n)), swapped, np.uint32)


LAUNCHES: dict[str, Callable[[int], Launch]] = {
    "sum_tree": _sums,
    "sum_simd": _sums,
    "arg_max": _arg_max,
    "dot_rows": _dot_rows,
    "sum_last_group": _sum_last_group,
    "max_atomic": _max_atomic,
    "scan_hillis_steele": _inclusive,
    "scan_ping_pong": _inclusive,
    "scan_blelloch": _exclusive,
    "scan_simd": _exclusive,
    "scan_quads": _exclusive,
    "scan_look_back": _scan_look_back,
    "compact": _compact,
    "histogram_shared": _histogram(64),
    "histogram_atomic": _histogram(16),
    "histogram_private": _histogram_private,
    "transpose": _transpose,
    "matmul_tiles": _matmul_tiles,
    "matmul_simdgroups": _matmul_simdgroups,
    "convolve": _convolve,
    "smooth": _smooth,
    "pipeline": _pipeline,
    "n_body": _n_body,
    "pack_bytes": _pack_bytes,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "attention": _attention,
    "sort_bitonic": _sort,
    "sort_radix_step": _sort_radix_step,
    "sort_odd_even": _sort,
    "top_k": _top_k,
    "reverse_in_device": _reverse(2, 1, 1),
    "reverse_in_both": _reverse(2, 4, 0),
    "chain": _chain,
    "message": _message,
    "append": _append,
    "swap_neighbours": _swap,
    "swap_in_lockstep": _swap,
    "sum_in_lockstep": _sums_in_lockstep,
}
GROUP_SIZES = (32, 64, 96, 128, 256)
IN_LOCKSTEP = {"swap_in_lockstep", "sum_in_lockstep"}
"""Right only while a simdgroup runs in lockstep: notes, and no oracle where threads are fibers."""
