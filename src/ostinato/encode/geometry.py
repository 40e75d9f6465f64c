"""The size of a dispatch: the caller's extents, checked and made explicit.

`threads` is a grid in threads, whose last groups are clipped; `groups` is a grid in whole groups. Each, and the
group size, is an integer or a tuple of one to three. With `threads` the group size may be left out and is chosen here;
with `groups` it must be given, because the number of threads depends on it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ..errors import GeometryError
from ..ir.commands import CompiledKernel, DispatchKind, Size3

Extent = int | Sequence[int]

_LARGEST = 2**32 - 1
_MOST_GROUPS = 2**63 - 1
_PREFERRED_THREADS = 256


def resolve(
    kernel: CompiledKernel,
    threads: Extent | None,
    groups: Extent | None,
    group_size: Extent | None,
    simd_width: int,
) -> tuple[DispatchKind, Size3, Size3, Size3]:
    """Kind, threads in the grid, groups, group size."""
    where = f"kernel {kernel.name!r}"
    if (threads is None) == (groups is None):
        given = "neither" if threads is None else "both"
        raise GeometryError(f"{where}: give either threads= or groups=, not {given}")
    limit = kernel.max_threads_per_group
    chosen = None if group_size is None else _size3(where, "group_size", group_size)
    if chosen is not None and chosen[0] * chosen[1] * chosen[2] > limit:
        raise GeometryError(
            f"{where}: group_size {chosen} has {chosen[0] * chosen[1] * chosen[2]} threads; the kernel allows {limit}"
        )
    if threads is not None:
        grid = _size3(where, "threads", threads)
        size = chosen or _choose(grid, limit, simd_width)
        count = (-(-grid[0] // size[0]), -(-grid[1] // size[1]), -(-grid[2] // size[2]))
        kind = DispatchKind.Threads
    else:
        assert groups is not None
        count = _size3(where, "groups", groups)
        if chosen is None:
            raise GeometryError(f"{where}: groups= needs group_size=: the number of threads depends on it")
        size = chosen
        grid = (count[0] * size[0], count[1] * size[1], count[2] * size[2])
        kind = DispatchKind.ThreadGroups
        if max(grid) > _LARGEST:
            raise GeometryError(f"{where}: {count} groups of {size} make {grid} threads; an axis holds {_LARGEST}")
    if count[0] * count[1] * count[2] > _MOST_GROUPS:
        raise GeometryError(
            f"{where}: {grid} threads make {count[0] * count[1] * count[2]} groups of {size}; a dispatch has at most"
            f" {_MOST_GROUPS}"
        )
    return kind, grid, count, size


def _size3(where: str, what: str, given: Extent) -> Size3:
    values: Sequence[Any] = given if isinstance(given, Sequence) else (given,)
    if not 1 <= len(values) <= 3:
        raise GeometryError(f"{where}: {what} has 1 to 3 axes, not {len(values)}")
    extents = []
    for value in values:
        try:
            extent = operator.index(value)
        except TypeError:
            raise GeometryError(f"{where}: {what} is an integer or a tuple of integers, not {given!r}") from None
        if isinstance(value, bool) or not 1 <= extent <= _LARGEST:
            raise GeometryError(f"{where}: {what} {given!r} must be at least 1 and at most {_LARGEST} on every axis")
        extents.append(extent)
    while len(extents) < 3:
        extents.append(1)
    return extents[0], extents[1], extents[2]


def _choose(grid: Size3, limit: int, simd_width: int) -> Size3:
    """Whole simdgroups along x, then y and z, up to 256 threads."""
    room = min(_PREFERRED_THREADS, limit)
    if grid[1] == 1 and grid[2] == 1:
        return min(room, -(-grid[0] // simd_width) * simd_width), 1, 1
    x = min(grid[0], simd_width, room)
    y = min(grid[1], room // x)
    z = min(grid[2], room // (x * y))
    return x, y, z
