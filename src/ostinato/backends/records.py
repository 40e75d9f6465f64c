"""Commands as records: the lowered form that native code reads; the layout is described in `cpu/runtime/node.h`.

The CPU runtime runs these records, and the CUDA launcher launches them. The size of a record is a multiple of 64 bytes
and lists are 64-byte aligned, so inline bytes that are aligned within their record are aligned in memory, for every
MSL type.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..ir.commands import Barrier, Binding, BufferBinding, Command, Copy, Dispatch, InlineBinding, Size3, UnboundBinding

ALIGNMENT = 64
RED_ZONE = 64
"""Bytes between the regions of threadgroup memory where kernels are checked."""
_INLINE = 1 << 63
_WRITTEN = 1 << 63
_VALUE = 1 << 62
_UNKNOWN = 2**32 - 1
_DISPATCH, _BARRIER, _COPY, _FILL = range(4)
_HEAD = struct.Struct("=2IQ14I")
ARGUMENTS_AT = _HEAD.size
"""Where the addresses of a dispatch's arguments begin in its record."""
_COPY_BODY, _FILL_BODY = struct.Struct("=3Q"), struct.Struct("=3Q2I")


def pack(command: Command, checked: bool = False) -> bytes:
    """The record of a command for the CPU runtime; `checked`, with the sizes of all views that are bound."""
    if isinstance(command, Dispatch):
        return _pack_dispatch(command, checked)
    if isinstance(command, Barrier):
        return barrier()
    if isinstance(command, Copy):
        return _record(_COPY, _COPY_BODY.pack(command.source.address, command.target.address, command.source.nbytes))
    pattern = int.from_bytes(command.pattern, "little")
    target = command.target
    return _record(_FILL, _FILL_BODY.pack(target.address, target.nbytes, pattern, len(command.pattern), 0))


def barrier() -> bytes:
    """The record of a barrier."""
    return _record(_BARRIER, b"")


def dispatch(
    entry: int,
    threads: Size3,
    group_size: Size3,
    groups: Size3,
    arena_bytes: int,
    spans: bytes | None,
    arguments: Sequence[int | bytes] = (),
    shared_offsets: Sequence[int] = (),
    views: Sequence[int] = (),
) -> bytes:
    """The record of a dispatch. Arguments are addresses, or bytes to store in the record."""
    known = spans or b""
    views_at = rounded(_HEAD.size + 8 * len(arguments) + len(known) + 4 * len(shared_offsets), 8)
    head_bytes = views_at + 8 * len(views)
    inline = bytearray()
    inline_at = rounded(head_bytes, ALIGNMENT)
    addresses = []
    for argument in arguments:
        if isinstance(argument, int):
            addresses.append(argument)
        else:
            addresses.append(_INLINE | inline_at + len(inline))
            inline += argument.ljust(rounded(max(len(argument), 1), ALIGNMENT), b"\0")
    body = struct.pack(
        f"=Q14I{len(addresses)}Q{len(known)}s{len(shared_offsets)}I{len(shared_offsets) % 2 * 4}x{len(views)}Q",
        entry,
        *threads,
        *group_size,
        *groups,
        len(addresses),
        len(shared_offsets),
        arena_bytes,
        _UNKNOWN if spans is None else len(known) // 16,
        views_at if views else 0,
        *addresses,
        known,
        *shared_offsets,
        *views,
    )
    return _record(_DISPATCH, body.ljust(inline_at - 8, b"\0") + inline if inline else body)


def shared_offsets(static_bytes: int, sizes: tuple[int, ...], apart: int = 0) -> tuple[tuple[int, ...], int]:
    """The offset of each threadgroup argument in the arena, after the body's own memory, and the arena's size.

    There are `apart` bytes between them, which belong to none.
    """
    offsets = []
    end = rounded(static_bytes, 16)
    for size in sizes:
        offsets.append(end)
        end += rounded(size, 16) + apart
    return tuple(offsets), end


def is_barrier(record: bytes) -> bool:
    """Whether a record is that of a barrier."""
    return int.from_bytes(record[4:8], "little") == _BARRIER


def rounded(size: int, alignment: int) -> int:
    """The next multiple of an alignment."""
    return -(-size // alignment) * alignment


def _pack_dispatch(command: Dispatch, checked: bool) -> bytes:
    static_bytes = command.kernel.arena_bytes if checked else command.kernel.threadgroup_bytes
    offsets, arena_bytes = shared_offsets(static_bytes, command.shared, RED_ZONE if checked else 0)
    return dispatch(
        command.kernel.code,
        command.threads,
        command.group_size,
        command.groups,
        arena_bytes,
        command.spans,
        [_argument(binding) for binding in command.bindings],
        offsets,
        [*map(_view, command.bindings), *command.shared] if checked else (),
    )


def _view(binding: Binding) -> int:
    if isinstance(binding, BufferBinding):
        return binding.nbytes | (_WRITTEN if binding.writes else 0)
    return _VALUE | (len(binding.data) if isinstance(binding, InlineBinding) else binding.nbytes)


def _argument(binding: Binding) -> int | bytes:
    if isinstance(binding, BufferBinding):
        return binding.address
    if isinstance(binding, UnboundBinding) and not binding.nbytes:
        return 0
    # Zeros for a parameter: a replay passes the values separately.
    return binding.data if isinstance(binding, InlineBinding) else bytes(binding.nbytes)


def _record(kind: int, body: bytes) -> bytes:
    nbytes = rounded(8 + len(body), ALIGNMENT)
    return struct.pack("=2I", nbytes, kind) + body.ljust(nbytes - 8, b"\0")
