"""The arguments of a kernel, from the options of `ostinato bench`: checked against its signature, and put into memory.

Whatever is missing or does not fit is an `ArgumentError` that says what to write instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..base.host import free_bytes
from ..device import Device
from ..errors import ArgumentError, OutOfMemory
from ..msl.reflect import Argument
from ..profiling.analyse import formatting
from ..runtime.library import Kernel
from .argument_language import Filled, Number, Value, assignment, made

_EXAMPLE_SIZE = 1024
_COPIES = 2
"""Of the arguments, in the memory of the host: the data, and what a bench restores afterwards."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is to be dispatched, as the command line says it."""

    arguments: tuple[str, ...]
    threads: tuple[int, ...] | None
    groups: tuple[int, ...] | None
    group_size: tuple[int, ...] | None
    shared: tuple[str, ...]
    bytes_read: int | None
    bytes_written: int | None
    flops: int | None

    @property
    def options(self) -> list[str]:
        """The options that were given."""
        values = {
            "--arg": self.arguments,
            "--threads": self.threads,
            "--groups": self.groups,
            "--group-size": self.group_size,
            "--shared": self.shared,
            "--bytes-read": self.bytes_read,
            "--bytes-written": self.bytes_written,
            "--flops": self.flops,
        }
        return [name for name, value in values.items() if value not in (None, ())]


def values_of(kernel: Kernel, launch: Launch) -> dict[int, Value]:
    """The value of every argument of the kernel, by index."""
    values: dict[int, Value] = {}
    size = _threads(launch)
    for text in launch.arguments:
        name, value = assignment(text)
        argument = next((each for each in kernel.signature.arguments if name in (str(each.index), each.name)), None)
        if argument is None:
            raise ArgumentError(f"{text!r}: kernel {kernel.name!r} has no argument {name!r}; it is {kernel.signature}")
        if argument.index in values:
            raise ArgumentError(f"{text!r}: argument {_shown(argument)} is given twice")
        _check(kernel, argument, value, size)
        values[argument.index] = value
    missing = list(_missing(kernel, launch, values))
    if missing:
        raise ArgumentError(f"something is missing for kernel {kernel.name!r}: {'; '.join(missing)}")
    return values


def _missing(kernel: Kernel, launch: Launch, values: Mapping[int, Value]) -> Iterator[str]:
    """What the command line has yet to say, with what to write."""
    size = _threads(launch)
    if launch.threads is None and launch.groups is None:
        yield f"the grid, write --threads {size}"
    if launch.groups is not None and launch.group_size is None:
        yield "the size of a group, write --group-size 256"
    for argument in kernel.signature.arguments:
        if argument.index not in values:
            yield f"{_shown(argument)}, {_example(kernel, argument, size)}"
    given = shared_sizes(launch.shared) or {}
    for shared in kernel.signature.shared:
        if shared.index not in given:
            place = f"{shared.index} {shared.name!r} ({shared.type} *)"
            yield f"threadgroup memory {place}, write --shared {shared.index}=4096"


def _check(kernel: Kernel, argument: Argument, value: Value, size: int) -> None:
    if not isinstance(value, Number):
        return
    # A kernel reads a few numbers through a `constant` pointer, and one number may be all of them.
    if argument.kind == "buffer" and argument.space != "constant":
        raise ArgumentError(
            f"argument {_shown(argument)} is a buffer, not a number; {_example(kernel, argument, size)}"
        )
    if argument.scalar is None or argument.lanes > 1:
        raise ArgumentError(f"argument {_shown(argument)} is not one number; {_example(kernel, argument, size)}")


def _example(kernel: Kernel, argument: Argument, size: int) -> str:
    """What to write for an argument."""
    write = f"write --arg {argument.index}="
    if argument.kind == "value" and argument.scalar is not None and argument.lanes == 1:
        return write + ("true" if argument.scalar == "bool" else "1" if "int" in argument.scalar else "1.0")
    count = [size] if argument.kind == "buffer" else []
    try:
        dtype = kernel.dtype(argument.index)
    except ArgumentError:
        return f"{write}FILE.npy with its bytes"
    if dtype.names:
        shape = ",".join(map(str, [*count, dtype.itemsize]))
        return f"{write}uint8[{shape}]:zeros, or FILE.npy with its bytes"
    return f"{write}{dtype.base.name}[{','.join(map(str, [*count, *dtype.shape]))}]"


def _threads(launch: Launch) -> int:
    """The size of buffers in examples: an element for each thread."""
    if launch.groups:
        return math.prod((*launch.groups, *(launch.group_size or ())))
    return math.prod(launch.threads) if launch.threads else _EXAMPLE_SIZE


def _shown(argument: Argument) -> str:
    return f"{argument.index} {argument.name!r} ({argument.type} {'*' if argument.kind == 'buffer' else '&'})"


def shared_sizes(texts: tuple[str, ...]) -> dict[int, int] | None:
    """The sizes of threadgroup arguments by index, from INDEX=BYTES."""
    sizes = {}
    for text in texts:
        index, _, size = text.partition("=")
        if not (index.isdecimal() and size.isdecimal()):
            raise ArgumentError(f"{text!r} is not INDEX=BYTES, such as 0=4096")
        sizes[int(index)] = int(size)
    return sizes or None


def check_room(device: Device, values: Mapping[Any, Value]) -> None:
    """Refuses arrays that the memory of the host cannot hold; that of another device refuses by itself."""
    sizes = [value.nbytes for value in values.values() if isinstance(value, Filled)]
    needed = _COPIES * sum(sizes) if device.capabilities.shared_memory else max(sizes, default=0)
    free = free_bytes()
    if needed > free:
        raise OutOfMemory(
            f"the arguments take {formatting.size(sum(sizes))}, which needs {formatting.size(needed)} of memory;"
            f" {formatting.size(free)} are free"
        )


def bound(device: Device, value: Value, stream: int) -> Any:
    """The value as an argument of a dispatch: a number, or a buffer of the device."""
    return value.value if isinstance(value, Number) else device.array(made(value, stream))
