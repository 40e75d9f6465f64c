"""A dispatch as CUDA launches it: blocks, threads, shared memory, and one block of parameters.

The parameters are a `Head` (see `msl/include/ostinato/entry_cuda.h`), an address for every buffer argument, offsets of
threadgroup arguments, and a slot for each value. Lowered, a dispatch is a record whose one inline argument is that
block, so a launch copies nothing.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import GeometryError
from ...ir.commands import BufferBinding, Dispatch, InlineBinding, Size3
from .. import records

if TYPE_CHECKING:
    from .kernels import KernelCode

HEAD = struct.Struct("=9I12x4IQQ")
FLAGS_AT, MASK_AT, SAMPLES_AT = 48, 60, 64
WAITS, RELEASES, OWN_SLOTS, ONE_ROW = 1, 2, 4, 8
"""Flags: wait inside for the predecessor; let the successor start early; every warp has a pair of its own; a grid of
one row."""

MOST_BLOCKS = 2**31 - 1
MOST_SLOTS, FEWEST_SLOTS = 4096, 32
"""Pairs of times that one dispatch has room for, in a short list and in a very long one; beyond, warps share them."""
MOST_PAIRS = 1 << 21
"""Pairs that the dispatches of a list have room for together; a list that needs more has fewer for each."""
_OWN = 0xFFFFFFFF

_INLINE = 1 << 63
_RECORD = struct.Struct("=2IQ14IQ")


class Launch(NamedTuple):
    """What is read back from a record."""

    entry: int
    blocks: int
    threads: int
    shared_bytes: int
    params_at: int
    """Where in the record the parameters stand."""


def lowered(dispatch: Dispatch, code: KernelCode) -> bytes:
    """The record of a dispatch of a compiled kernel."""
    blocks = dispatch.groups[0] * dispatch.groups[1] * dispatch.groups[2]
    if blocks > MOST_BLOCKS:
        raise GeometryError(f"kernel {dispatch.kernel.name!r}: {blocks} groups; a CUDA device takes {MOST_BLOCKS}")
    offsets, arena_bytes = records.shared_offsets(dispatch.kernel.threadgroup_bytes, dispatch.shared)
    behind_pointers = (
        one for at, one in enumerate(dispatch.bindings) if at not in code.values and not isinstance(one, BufferBinding)
    )
    variant = code.variant(sum(records.rounded(_inline_bytes(one), 16) for one in behind_pointers))
    layout = variant.layout
    params = bytearray(layout.total_bytes)
    threads, group_size = dispatch.threads, dispatch.group_size
    flat = threads[1:] == (1, 1) and group_size[1:] == (1, 1)
    hot = (ONE_ROW if flat else 0, threads[0], group_size[0], 0)
    HEAD.pack_into(params, 0, *threads, *group_size, *dispatch.groups, *hot, 0, 0)
    inline_at = 0
    for position, binding in enumerate(dispatch.bindings):
        address, slot = 0, layout.values.get(position)
        if isinstance(binding, BufferBinding):
            address = binding.address
        elif slot is not None:
            if isinstance(binding, InlineBinding):
                params[slot : slot + len(binding.data)] = binding.data
        else:
            address = _INLINE | inline_at
            if isinstance(binding, InlineBinding):
                at = layout.inline_bytes + inline_at
                params[at : at + len(binding.data)] = binding.data
            inline_at += records.rounded(_inline_bytes(binding), 16)
        struct.pack_into("=Q", params, layout.addresses + 8 * position, address)
    struct.pack_into(f"={len(offsets)}I", params, layout.shared_offsets, *offsets)
    code.allow_shared(arena_bytes)
    return record(variant.entry, dispatch.threads, dispatch.group_size, dispatch.groups, arena_bytes, params)


def record(
    entry: int,
    threads: Size3,
    group_size: Size3,
    groups: Size3,
    shared_bytes: int,
    params: bytes | bytearray,
) -> bytes:
    """The record of a launch."""
    return records.dispatch(entry, threads, group_size, groups, shared_bytes, b"", [bytes(params)])


def launch_of(one: bytes) -> Launch | None:
    """What a record launches; None for a barrier."""
    if records.is_barrier(one):
        return None
    _, _, entry, _, _, _, x, y, z, gx, gy, gz, _, _, shared_bytes, _, _, params = _RECORD.unpack_from(one)
    return Launch(entry, gx * gy * gz, x * y * z, shared_bytes, params & ~_INLINE)


def sample_starts(lowered: Sequence[bytes]) -> np.ndarray:
    """Where the pairs of each command begin in a block of samples, and, last, where all end.

    Each has one a warp, up to a bound, which is halved until all of them together are not too many.
    """
    launches = (launch_of(one) for one in lowered)
    warps = np.array([0 if one is None else _warps(one) for one in launches], np.int64)
    most = MOST_SLOTS
    while most > FEWEST_SLOTS and np.minimum(warps, most).sum() > MOST_PAIRS:
        most //= 2
    return np.concatenate([[0], np.minimum(warps, most).cumsum()]).astype(np.uint32)


def aim(params: ctypes.Array[ctypes.c_char], launch: Launch, pairs: int, count: int, flags: int = 0) -> None:
    """Have a sampled launch, by its parameters, take its times at so many `pairs`."""
    own = _warps(launch) <= count
    add_flags(params, (OWN_SLOTS if own else 0) | flags)
    struct.pack_into("=IQ", params, MASK_AT, _OWN if own else count - 1, pairs)


def _warps(launch: Launch) -> int:
    return launch.blocks * (-(-launch.threads // 32))


def add_flags(params: ctypes.Array[ctypes.c_char], flags: int) -> None:
    """Set flags in the head of a launch's parameters."""
    (before,) = struct.unpack_from("=I", params, FLAGS_AT)
    struct.pack_into("=I", params, FLAGS_AT, before | flags)


def param_pointers(params: ctypes.Array[ctypes.c_char]) -> ctypes.Array[ctypes.c_void_p]:
    """The array of pointers to parameters that the driver takes: there is one."""
    return (ctypes.c_void_p * 1)(ctypes.addressof(params))


def _inline_bytes(binding: object) -> int:
    if isinstance(binding, InlineBinding):
        return max(len(binding.data), 1)
    return int(getattr(binding, "nbytes", 0))
