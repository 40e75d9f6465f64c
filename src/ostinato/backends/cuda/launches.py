"""A dispatch as a CUDA launch: blocks, threads, shared memory, and one block of parameters.

The parameters are a `Head` (see `msl/include/ostinato/entry_cuda.h`), an address for every buffer argument, offsets of
threadgroup arguments, and a slot for each value. A lowered dispatch is a record whose only inline argument is that
block, so a launch copies nothing.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import GeometryError
from ...ir.commands import BufferBinding, Dispatch, InlineBinding, Size3, UnboundBinding
from .. import records

if TYPE_CHECKING:
    from .kernels import KernelCode

HEAD = struct.Struct("=9I12x4IQQ")
NODE_AT, FLAGS_AT, MASK_AT, SAMPLES_AT = 36, 48, 60, 64
WAITS, RELEASES, OWN_SLOTS, ONE_ROW, WAITS_IN_BODY, RELEASES_LATE = 1, 2, 4, 8, 16, 32
"""Flags, as in msl/include/ostinato/entry_cuda.h. The kernel waits for its predecessor when it begins; its successor
may start as soon as it begins; every warp has its own pair of times; the grid has one row; the kernel waits where its
body says so; its successor may start once it has waited."""

MOST_BLOCKS = 2**31 - 1
MOST_SLOTS, FEWEST_SLOTS = 4096, 32
"""Most pairs of times per dispatch, in a short list and in a very long one; with more warps, they share pairs."""
MOST_PAIRS = 1 << 21
"""Most pairs of a whole list; a list that needs more has fewer per dispatch."""
_OWN = 0xFFFFFFFF

_INLINE = 1 << 63
_RECORD = struct.Struct("=2IQ14IQ")


class Launch(NamedTuple):
    """The fields of a record that a launch needs."""

    entry: int
    blocks: int
    threads: int
    shared_bytes: int
    params_at: int
    """Offset of the parameters in the record."""


def lowered(dispatch: Dispatch, code: KernelCode, log_address: int = 0) -> bytes:
    """The record of a dispatch of a compiled kernel; `log_address` is where it prints."""
    blocks = dispatch.groups[0] * dispatch.groups[1] * dispatch.groups[2]
    if blocks > MOST_BLOCKS:
        raise GeometryError(f"kernel {dispatch.kernel.name!r}: {blocks} groups; a CUDA device takes {MOST_BLOCKS}")
    offsets, arena_bytes = records.shared_offsets(dispatch.kernel.threadgroup_bytes, dispatch.shared)
    arena_bytes += code.staging_bytes
    behind_pointers = (
        binding
        for at, binding in enumerate(dispatch.bindings)
        if at not in code.values and not isinstance(binding, BufferBinding | UnboundBinding)
    )
    variant = code.variant(sum(records.rounded(_inline_bytes(binding), 16) for binding in behind_pointers))
    layout = variant.layout
    params = bytearray(layout.total_bytes)
    threads, group_size = dispatch.threads, dispatch.group_size
    flat = threads[1:] == (1, 1) and group_size[1:] == (1, 1)
    hot = (ONE_ROW if flat else 0, threads[0], group_size[0], 0)
    HEAD.pack_into(params, 0, *threads, *group_size, *dispatch.groups, *hot, 0, log_address)
    inline_at = 0
    for position, binding in enumerate(dispatch.bindings):
        address, slot = 0, layout.values.get(position)
        if isinstance(binding, BufferBinding):
            address = binding.address
        elif slot is not None:
            if isinstance(binding, InlineBinding):
                params[slot : slot + len(binding.data)] = binding.data
        elif not isinstance(binding, UnboundBinding):
            address = _INLINE | inline_at
            if isinstance(binding, InlineBinding):
                at = layout.inline_bytes + inline_at
                params[at : at + len(binding.data)] = binding.data
            inline_at += records.rounded(_inline_bytes(binding), 16)
        struct.pack_into("=Q", params, layout.addresses + 8 * position, address)
    struct.pack_into(f"={len(offsets)}I", params, layout.shared_offsets, *offsets)
    code.allow_shared(arena_bytes)
    # Whole warps: lanes may be numbered otherwise than the hardware does, so the last need not be the last threads.
    block = (records.rounded(group_size[0] * group_size[1] * group_size[2], 32), 1, 1)
    return record(variant.entry, dispatch.threads, block, dispatch.groups, arena_bytes, params)


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


def numbered(record: bytes, node: int) -> bytes:
    """The record of a launch that knows its number in the list."""
    launch = launch_of(record)
    assert launch is not None
    changed = bytearray(record)
    struct.pack_into("=I", changed, launch.params_at + NODE_AT, node)
    return bytes(changed)


def launch_of(record: bytes) -> Launch | None:
    """What a record launches; None for a barrier."""
    if records.is_barrier(record):
        return None
    _, _, entry, _, _, _, x, y, z, gx, gy, gz, _, _, shared_bytes, _, _, params = _RECORD.unpack_from(record)
    return Launch(entry, gx * gy * gz, x * y * z, shared_bytes, params & ~_INLINE)


def sample_starts(lowered: Sequence[bytes]) -> np.ndarray:
    """The first pair of each command in a block of samples, and, last, the number of pairs.

    Each command has one pair per warp, up to a bound that is halved until the total is at most `MOST_PAIRS`.
    """
    launches = (launch_of(record) for record in lowered)
    warps = np.array([0 if launch is None else _warps(launch) for launch in launches], np.int64)
    most = MOST_SLOTS
    while most > FEWEST_SLOTS and np.minimum(warps, most).sum() > MOST_PAIRS:
        most //= 2
    return np.concatenate([[0], np.minimum(warps, most).cumsum()]).astype(np.uint32)


def aim(params: ctypes.Array[ctypes.c_char], launch: Launch, pairs: int, count: int, flags: int = 0) -> None:
    """Set the parameters of a sampled launch so that it writes its times to `count` pairs at address `pairs`."""
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
    """The driver's array of pointers to parameters: one, to the block."""
    return (ctypes.c_void_p * 1)(ctypes.addressof(params))


def _inline_bytes(binding: object) -> int:
    if isinstance(binding, InlineBinding):
        return max(len(binding.data), 1)
    return int(getattr(binding, "nbytes", 0))
