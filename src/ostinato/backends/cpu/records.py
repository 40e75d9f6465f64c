"""Commands as the records the C++ runtime reads; the layout is described in `runtime/node.h`.

Every record is a multiple of 64 bytes and the runtime keeps lists 64-byte aligned, so inline bytes that are aligned
within their record are aligned in memory, for every type MSL has.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ...commands import Barrier, BufferBinding, Command, Copy, Dispatch, InlineBinding, ParamBinding

_ALIGNMENT = 64
_INLINE = _WRITTEN = 1 << 63
_UNKNOWN = 2**32 - 1
_DISPATCH, _BARRIER, _COPY, _FILL = range(4)


def pack(command: Command) -> bytes:
    """One record."""
    if isinstance(command, Dispatch):
        return _pack_dispatch(command)
    if isinstance(command, Barrier):
        return _record(_BARRIER, b"")
    if isinstance(command, Copy):
        addresses = (command.source.address, command.target.address, command.source.nbytes)
        return _record(_COPY, struct.pack("=3Q", *addresses))
    pattern = int.from_bytes(command.pattern, "little")
    body = struct.pack("=3Q2I", command.target.address, command.target.nbytes, pattern, len(command.pattern), 0)
    return _record(_FILL, body)


def parameters(command: Command) -> Iterator[tuple[int, str, int]]:
    """Position among the arguments, name and size of each parameter of a command."""
    if isinstance(command, Dispatch):
        for position, binding in enumerate(command.bindings):
            if isinstance(binding, ParamBinding):
                yield position, binding.name, binding.nbytes


def shared_offsets(static_bytes: int, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Where each threadgroup argument starts in the arena, after what the body declares, and where all ends."""
    offsets = []
    end = _rounded(static_bytes, 16)
    for size in sizes:
        offsets.append(end)
        end += _rounded(size, 16)
    return tuple(offsets), end


def _pack_dispatch(dispatch: Dispatch) -> bytes:
    offsets, arena_bytes = shared_offsets(dispatch.kernel.threadgroup_bytes, dispatch.shared)
    accesses = [] if dispatch.accesses is None else dispatch.accesses
    spans = [part for one in accesses for part in (one.begin | (_WRITTEN if one.write else 0), one.end)]
    head_bytes = 72 + 8 * len(dispatch.bindings) + 8 * len(spans) + 4 * len(offsets)
    inline = bytearray()
    inline_at = _rounded(head_bytes, _ALIGNMENT)
    arguments = []
    for binding in dispatch.bindings:
        if isinstance(binding, BufferBinding):
            arguments.append(binding.address)
        else:
            arguments.append(_INLINE | inline_at + len(inline))
            # What is not known yet is zero: a replay says elsewhere where its values are.
            data = binding.data if isinstance(binding, InlineBinding) else bytes(binding.nbytes)
            inline += data.ljust(_rounded(max(len(data), 1), _ALIGNMENT), b"\0")
    head = struct.pack(
        f"=Q14I{len(arguments) + len(spans)}Q{len(offsets)}I",
        dispatch.kernel.code,
        *dispatch.threads,
        *dispatch.group_size,
        *dispatch.groups,
        len(arguments),
        len(offsets),
        arena_bytes,
        _UNKNOWN if dispatch.accesses is None else len(accesses),
        0,
        *arguments,
        *spans,
        *offsets,
    )
    return _record(_DISPATCH, head.ljust(inline_at - 8, b"\0") + inline if inline else head)


def _record(kind: int, body: bytes) -> bytes:
    nbytes = _rounded(8 + len(body), _ALIGNMENT)
    return struct.pack("=2I", nbytes, kind) + body.ljust(nbytes - 8, b"\0")


def _rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
