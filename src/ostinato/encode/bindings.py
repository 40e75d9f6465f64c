"""Checked bindings from the arguments that a caller passes to a kernel.

An argument is a `Buffer`, a `(Buffer, byte_offset)` pair counted from that view, a NumPy scalar or array or
`bytes` (copied at once), a Python number (converted to the kernel's type and range-checked), a dict or tuple for a
struct (`structs.py`), or, while capturing, a `Param` whose value is passed to each replay. An argument that the kernel
does not use may be None or left out. `memo_key` gives the key of an argument for memoisation; `bind` does the full
check, once per new combination.
"""

from __future__ import annotations

import operator
import reprlib
import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, FreedBuffer, WrongDevice
from ..ir import structs
from ..ir.commands import (
    UNKNOWN,
    Access,
    Binding,
    BufferBinding,
    CompiledKernel,
    InlineBinding,
    ParamBinding,
    UnboundBinding,
    Unknown,
)
from ..ir.dtypes import check_dtype
from ..ir.params import Param
from ..ir.scalars import number_bytes, plain_number
from ..runtime.buffer import Buffer
from ..runtime.queue import Queue

if TYPE_CHECKING:
    from ..msl import Argument

Declared = Sequence[Buffer] | Unknown | None
"""What `reads=` and `writes=` take."""


class _Where:
    """Names an argument in messages; the text is built only when a message needs it."""

    __slots__ = ("_argument", "_kernel")

    def __init__(self, kernel: CompiledKernel, argument: Argument) -> None:
        self._kernel = kernel
        self._argument = argument

    def __str__(self) -> str:
        return f"kernel {self._kernel.name!r}, argument {_name(self._argument)}"


def memo_key(kernel: CompiledKernel, argument: Any, among: Sequence[Any] | Mapping[Any, Any]) -> tuple[Hashable, Any]:
    """A key that is equal only for arguments that bind alike, and the argument in plain form.

    `among` holds all arguments; an error uses it to name the argument by its position.
    Keys of anything but a whole buffer are tuples, so that they never equal a buffer's serial number.
    """
    kind = type(argument)
    if kind is Buffer:
        return argument._serial, argument
    if kind is int or kind is bool:
        return (int(argument),), argument
    if kind is float:
        return (_float_bits(argument),), argument  # by bits: 0.0 == -0.0, and a NaN equals nothing
    if kind is bytes:
        return (b"", argument), argument
    if kind is Param:
        return (Param, argument), argument
    if argument is None:
        return (None,), None
    if kind is tuple and len(argument) == 2 and type(argument[0]) is Buffer:
        try:
            offset = operator.index(argument[1])
        except TypeError:
            raise ArgumentError(f"{_place(kernel, argument, among)}: {argument[1]!r} is not a byte offset") from None
        return (argument[0]._serial, offset), (argument[0], offset)
    if kind is tuple or kind is list or isinstance(argument, Mapping):
        return ("struct", structs.value_key(argument)), argument
    if isinstance(argument, np.ndarray | np.generic):
        if not argument.dtype.hasobject:
            return _array_key(kernel, argument, among), argument
    elif isinstance(argument, bytearray | memoryview):
        data = bytes(argument)
        return (b"", data), data
    else:
        number = plain_number(argument)
        if number is not None:
            return memo_key(kernel, number, among)
    if _is_shareable(argument):
        raise ArgumentError(
            f"{_place(kernel, argument, among)}: expected a Buffer, got {_describe(argument)}; {_as_buffer(argument)}"
        )
    raise ArgumentError(
        f"{_place(kernel, argument, among)}: expected a Buffer, (Buffer, byte offset), a NumPy scalar or array, bytes,"
        f" a number, a dict or tuple for a struct, or a param, got {_describe(argument)}"
    )


def bind(kernel: CompiledKernel, given: Sequence[Any] | Mapping[int, Any], queue: Queue) -> tuple[Binding, ...]:
    """One checked binding for each buffer argument of the kernel."""
    arguments = kernel.signature.arguments
    if isinstance(given, Mapping):
        expected = {argument.index for argument in arguments}
        wrong = [index for index in given if index not in expected]
        missing = [argument for argument in arguments if argument.used and argument.index not in given]
        if wrong or missing:
            raise ArgumentError(
                f"kernel {kernel.name!r}: "
                + (f"no argument with index {', '.join(map(repr, wrong))}; " if wrong else "")
                + (f"nothing for {', '.join(map(_name, missing))}; " if missing else "")
                + f"it takes {kernel.signature}"
            )
        values = [given.get(argument.index) for argument in arguments]
    else:
        missing = [argument for argument in arguments[len(given) :] if argument.used]
        if len(given) > len(arguments) or missing:
            raise ArgumentError(
                f"kernel {kernel.name!r} takes {len(arguments)} arguments, {len(given)} were given; "
                + (f"nothing for {', '.join(map(_name, missing))}; " if missing else "")
                + f"it is {kernel.signature}"
            )
        values = [*given, *[None] * (len(arguments) - len(given))]
    return tuple(
        _bind_one(kernel, position, argument, value, queue)
        for position, (argument, value) in enumerate(zip(arguments, values, strict=True))
    )


def whole(buffer: Any, queue: Queue, what: str, writes: bool) -> BufferBinding:
    """A binding of a whole buffer for a copy or fill."""
    if type(buffer) is not Buffer:
        raise ArgumentError(f"{what}: expected a Buffer, got {_describe(buffer)}")
    return _buffer_binding(what, 0, buffer, 0, writes, queue)


def accesses(
    bound: Sequence[Binding],
    reads: Declared,
    writes: Declared,
    queue: Queue,
    where: str,
) -> tuple[Access, ...] | None:
    """The memory that a dispatch uses: what its signature says of the bindings, or what the caller declares instead.

    A caller may declare less than is bound, or more (memory that the kernel reaches through pointers of its own), but
    no write to memory that the kernel takes as const. None: the caller declares it unknown.
    """
    if reads is UNKNOWN or writes is UNKNOWN:
        return None
    buffers = [binding for binding in bound if isinstance(binding, BufferBinding)]
    if writes is None:
        written = [binding.access(True) for binding in buffers if binding.writes]
    else:
        written = _declared(writes, True, queue, f"{where}, writes")
        for span in written:
            overlapping = [binding for binding in buffers if binding.access(True).overlaps(span)]
            if overlapping and not any(binding.writes for binding in overlapping):
                indices = ", ".join(str(binding.index) for binding in overlapping)
                raise ArgumentError(f"{where}, writes: the kernel only reads argument {indices}")
    if reads is None:
        # A write covers a read, so writable bindings are reads only where the caller declares the writes.
        read = [binding.access(False) for binding in buffers if writes is not None or not binding.writes]
    else:
        read = _declared(reads, False, queue, f"{where}, reads")
    return tuple(dict.fromkeys((*written, *read)))


def _declared(buffers: Any, write: bool, queue: Queue, what: str) -> list[Access]:
    if isinstance(buffers, Buffer) or not isinstance(buffers, Sequence):
        raise ArgumentError(f"{what}: expected a list of Buffers, got {buffers!r}")
    return [whole(buffer, queue, what, write).access(write) for buffer in buffers]


def _bind_one(kernel: CompiledKernel, position: int, argument: Argument, value: Any, queue: Queue) -> Binding:
    where = _Where(kernel, argument)
    element_bytes = kernel.argument_bytes[position]
    writes = argument.access != "read"
    if value is None:
        if argument.used:
            raise ArgumentError(f"{where}: it is None, and the kernel uses it")
        return UnboundBinding(argument.index, element_bytes if argument.kind == "value" else 0)
    if type(value) is Buffer or (type(value) is tuple and value and type(value[0]) is Buffer):
        buffer, offset = value if type(value) is tuple else (value, 0)
        bound = _buffer_binding(where, argument.index, buffer, offset, writes, queue)
        check_dtype(where, argument, buffer.dtype)
        # A pointer may point at an empty range; a reference needs one whole object.
        if argument.kind == "value":
            _check_size(where, argument, element_bytes, bound.nbytes)
        alignment = kernel.argument_alignments[position]
        if alignment and bound.address % alignment:
            raise ArgumentError(
                f"{where}: byte {bound.offset} of its allocation is not aligned to {alignment} bytes,"
                f" as {argument.type} needs"
            )
        return bound
    if writes:
        raise ArgumentError(
            f"{where}: the kernel writes to it, so it must be a Buffer, not {_describe(value)}; {_as_buffer(value)}"
        )
    if type(value) is Param:
        check_dtype(where, argument, value.dtype)
        _check_inline(where, argument, element_bytes, value.nbytes, queue)
        return ParamBinding(argument.index, value.name, value.nbytes)
    data = _inline_bytes(where, argument, value)
    _check_inline(where, argument, element_bytes, len(data), queue)
    return InlineBinding(argument.index, data)


def _check_inline(where: _Where, argument: Argument, element_bytes: int, given_bytes: int, queue: Queue) -> None:
    limit = queue.backend.capabilities.max_inline_bytes
    if given_bytes > limit:
        raise ArgumentError(
            f"{where}: {given_bytes} bytes are too many to copy into a command (at most {limit});"
            " put them into a Buffer"
        )
    _check_size(where, argument, element_bytes, given_bytes)


def _buffer_binding(
    where: _Where | str, index: int, buffer: Buffer, offset: int, writes: bool, queue: Queue
) -> BufferBinding:
    if buffer._queue is not queue:
        raise WrongDevice(
            f"{where}: {buffer!r} belongs to another device, {buffer._queue.title}, than this {queue.title}"
        )
    allocation = buffer._lease.allocation
    if allocation is None:
        raise FreedBuffer(f"{where}: {buffer!r} cannot be used any more")
    if offset and not 0 <= offset < buffer.nbytes:
        raise ArgumentError(f"{where}: byte offset {offset} is outside {buffer!r}")
    backing = allocation.backing
    start = buffer._offset + offset
    return BufferBinding(index, backing.number, backing.address + start, start, buffer.nbytes - offset, writes)


def _inline_bytes(where: _Where, argument: Argument, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, Mapping | tuple | list) and argument.layout is None:
        if argument.scalar is not None:
            raise ArgumentError(f"{where}: {argument.type} is not a struct; pass a NumPy array, not {_describe(value)}")
        raise ArgumentError(
            f"{where}: the fields of {argument.type} are not known before it is compiled;"
            f" pass a NumPy record or bytes, not {_describe(value)}"
        )
    is_array = isinstance(value, np.ndarray | np.generic)
    if argument.layout is not None and (isinstance(value, Mapping | tuple | list) or (is_array and value.dtype.names)):
        try:
            return structs.struct_bytes(argument.layout, value)
        except structs.Mismatch as reason:
            raise ArgumentError(f"{where}: {reason}") from None
    if is_array:
        check_dtype(where, argument, value.dtype)
        data: bytes = value.tobytes()
        return data
    if argument.scalar is None or argument.lanes != 1:
        raise ArgumentError(f"{where}: one number is not a {argument.type}; pass a NumPy array or bytes, not {value!r}")
    try:
        return number_bytes(value, argument.scalar)
    except ValueError as reason:
        raise ArgumentError(f"{where}: {value!r} is {reason}") from None


def _check_size(where: _Where, argument: Argument, element_bytes: int, given_bytes: int) -> None:
    if given_bytes < element_bytes:
        raise ArgumentError(f"{where}: a {argument.type} takes {element_bytes} bytes, got {given_bytes}")


def _array_key(kernel: CompiledKernel, array: Any, among: Sequence[Any] | Mapping[Any, Any]) -> Hashable:
    # Above every device's inline limit: refused here, before the bytes are hashed.
    if array.nbytes > 1 << 16:
        raise ArgumentError(
            f"{_place(kernel, array, among)}: an array of {array.nbytes} bytes is too large to copy into a command;"
            " put it into a Buffer"
        )
    return (array.dtype, array.tobytes())


def _float_bits(value: float) -> bytes:
    return struct.pack("=d", value)


def _is_shareable(value: Any) -> bool:
    """Whether it is an array of another library (torch, CuPy, JAX, MLX)."""
    return hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")


def _as_buffer(value: Any) -> str:
    """Advice for an error message: how to make a buffer of a value."""
    if _is_shareable(value) and not isinstance(value, np.ndarray | np.generic):
        return "device.from_dlpack(…) makes one that shares its memory where possible"
    return "device.array(…) makes one with a copy of it"


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype.name} and shape {value.shape}"
    if _is_shareable(value) and not isinstance(value, Buffer):
        kind = type(value)
        return f"a {kind.__module__}.{kind.__qualname__} of shape {tuple(getattr(value, 'shape', ()))}"
    return "bytes" if isinstance(value, bytes) else f"{type(value).__name__} {reprlib.repr(value)}"


def _place(kernel: CompiledKernel, argument: Any, among: Sequence[Any] | Mapping[Any, Any]) -> str:
    """The name of an argument in messages, from the position it was passed at."""
    arguments = kernel.signature.arguments
    if isinstance(among, Mapping):
        key = next((index for index, value in among.items() if value is argument), None)
        named = next((candidate for candidate in arguments if candidate.index == key), None)
    else:
        position = next((position for position, value in enumerate(among) if value is argument), len(arguments))
        named = arguments[position] if position < len(arguments) else None
    return f"kernel {kernel.name!r}" + (f", argument {_name(named)}" if named is not None else "")


def _name(argument: Argument) -> str:
    pointer = " *" if argument.kind == "buffer" else " &"
    return f"{argument.index} {argument.name!r} ({argument.type}{pointer})"


def shared_sizes(kernel: CompiledKernel, given: Mapping[int, int], limit_bytes: int) -> tuple[int, ...]:
    """Bytes for each threadgroup argument, rounded up to 16 as Metal does."""
    wanted = kernel.signature.shared
    unknown = [index for index in given if index not in {argument.index for argument in wanted}]
    if unknown:
        raise ArgumentError(
            f"kernel {kernel.name!r}: no threadgroup argument with index {', '.join(map(repr, unknown))};"
            f" it is {kernel.signature}"
        )
    sizes = []
    for argument in wanted:
        size = given.get(argument.index)
        where = f"kernel {kernel.name!r}, threadgroup argument {argument.index} {argument.name!r}"
        if size is None and not argument.used:
            sizes.append(0)
            continue
        if size is None:
            raise ArgumentError(f"{where}: its size is missing; pass shared={{{argument.index}: bytes}}")
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ArgumentError(f"{where}: {size!r} is not a number of bytes")
        sizes.append(-(-int(size) // 16) * 16)
    total = -(-kernel.threadgroup_bytes // 16) * 16 + sum(sizes)
    if total > limit_bytes:
        raise ArgumentError(
            f"kernel {kernel.name!r}: {total} bytes of threadgroup memory ({kernel.threadgroup_bytes} in its body);"
            f" the device has {limit_bytes}"
        )
    return tuple(sizes)
