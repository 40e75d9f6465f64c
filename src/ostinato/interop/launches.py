"""Running a generated kernel on arrays: in memory of its own for small arrays, in theirs for large ones.

Sharing the memory of an array costs more than copying a few kilobytes, so a call on small arrays of the host is
prepared once per kernel and shapes (`Prepared`): a graph over buffers that stay, into which inputs are copied and from
which results are copied. A call on anything else (`run_once`) shares the inputs' memory where it can and writes into
memory that becomes the results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..device import Device
from ..runtime.buffer import Buffer
from ..runtime.library import Kernel
from . import arrays
from .metal_signature import Generated

SMALL_BYTES = 65536
"""The most bytes of an array that is copied rather than shared."""

Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Call:
    """What a call asks for, checked."""

    output_shapes: tuple[tuple[int, ...], ...]
    output_dtypes: tuple[np.dtype[Any], ...]
    grid: Extent
    threadgroup: Extent
    init_value: float | None

    @property
    def group_size(self) -> Extent:
        """The group of the dispatch: no larger than the grid."""
        x, y, z = (min(group, threads) for group, threads in zip(self.threadgroup, self.grid, strict=True))
        return x, y, z

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run."""
        return 0 in self.grid

    def filling(self, position: int) -> np.ndarray:
        """The value of every element of an output before the kernel runs, in its dtype; zero unless the caller says."""
        with np.errstate(all="ignore"):  # a value that the dtype cannot hold becomes what C makes of it
            return np.asarray(self.init_value or 0.0, np.float32).astype(self.output_dtypes[position])


def is_small(inputs: Sequence[np.ndarray], call: Call) -> bool:
    """Whether all arrays of a call are cheaper to copy than to share."""
    outputs = zip(call.output_shapes, call.output_dtypes, strict=True)
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in outputs]
    return max((*(given.nbytes for given in inputs), *sizes), default=0) <= SMALL_BYTES


def _arguments(
    generated: Generated,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    shapes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> list[Any]:
    """What stands at each index of the kernel; `shapes` has the shape of each input, and its strides in elements."""
    arguments: list[Any] = []
    for part, position in generated.buffers:
        match part:
            case "array":
                arguments.append(inputs[position])
            case "output":
                arguments.append(outputs[position])
            case "shape":
                arguments.append(np.array(shapes[position][0], np.int32))
            case "strides":
                arguments.append(np.array(shapes[position][1], np.int64))
            case "ndim":
                arguments.append(np.array(len(shapes[position][0]), np.int32))
    return arguments


class Prepared:
    """A call on contiguous host arrays of fixed dtypes and shapes, in buffers of its own. One thread at a time."""

    __slots__ = ("_filled", "_inputs", "_run", "outputs")

    def __init__(
        self, device: Device, kernel: Kernel, generated: Generated, inputs: Sequence[np.ndarray], call: Call
    ) -> None:
        given = [_at_least_one(device, array.shape, array.dtype) for array in inputs]
        results = [
            _at_least_one(device, shape, dtype)
            for shape, dtype in zip(call.output_shapes, call.output_dtypes, strict=True)
        ]
        shapes = [(array.shape, arrays.contiguous_strides(array.shape)) for array in inputs]
        arguments = _arguments(generated, given, results, shapes)
        # In a buffer, as all else that a replay finds in its place.
        buffers = [device.array(value) if isinstance(value, np.ndarray) else value for value in arguments]
        self._inputs = [_window(buffer, array.shape) for buffer, array in zip(given, inputs, strict=True)]
        self.outputs = [_window(buffer, shape) for buffer, shape in zip(results, call.output_shapes, strict=True)]
        """The results of the last run; the next one overwrites them."""
        self._filled = [(window, call.filling(position)) for position, window in enumerate(self.outputs)]
        self._run = device.capture(
            lambda encoder: encoder.dispatch(kernel, *buffers, threads=call.grid, group_size=call.group_size),
            label=generated.name,
        ).instantiate()

    def __call__(self, inputs: Sequence[np.ndarray]) -> None:
        """Copy the inputs in, run, and wait."""
        for window, array in zip(self._inputs, inputs, strict=True):
            window[...] = array
        for window, value in self._filled:
            window[...] = value
        self._run.replay().wait()


def _at_least_one(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Buffer:
    """A buffer for an array, with memory to point at even if the array is empty."""
    return device.empty(shape if math.prod(shape) else 1, dtype)


def _window(buffer: Buffer, shape: tuple[int, ...]) -> np.ndarray:
    return buffer.as_numpy() if math.prod(shape) else np.empty(shape, buffer.dtype)


def run_once(
    device: Device,
    kernel: Kernel,
    generated: Generated,
    inputs: Sequence[Any],
    call: Call,
    kind: str,
    is_strided: bool,
) -> list[Any]:
    """Run on arrays of one place, in their memory where the device can reach it; results are arrays of `kind`.

    With `is_strided` the kernel gets inputs as they lie in memory, else contiguous copies of those that are not. An
    array without axes may be on the host wherever the others are: its value becomes a part of the command.
    """
    given = [_given(device, array, is_strided) for array in inputs]
    results = [_result(device, kind, call, position) for position in range(len(call.output_shapes))]
    encoder = device.command_encoder(generated.name)
    for position, (buffer, array) in enumerate(results):
        if array is None:
            encoder.fill(buffer, call.filling(position))
    if not call.is_empty:
        shapes = [(tuple(array.shape), strides) for array, (_, strides) in zip(inputs, given, strict=True)]
        buffers = [buffer for buffer, _ in results]
        arguments = _arguments(generated, [argument for argument, _ in given], buffers, shapes)
        encoder.dispatch(kernel, *arguments, threads=call.grid, group_size=call.group_size)
    submission = encoder.commit()
    if device.capabilities.shared_memory:
        submission.wait()
    return [
        arrays.array(kind, buffer.view(shape=shape)) if array is None else array
        for (buffer, array), shape in zip(results, call.output_shapes, strict=True)
    ]


def _given(device: Device, array: Any, is_strided: bool) -> tuple[Any, tuple[int, ...]]:
    """The argument for an input, and its strides in elements."""
    shape = tuple(array.shape)
    if not shape and isinstance(array, np.ndarray):
        return array, ()
    if is_strided:
        buffer, offset_bytes, strides = arrays.strided_buffer(device, array)
        return (buffer, offset_bytes) if offset_bytes else buffer, strides
    contiguous = arrays.contiguous(array)
    return arrays.buffer(device, contiguous), arrays.contiguous_strides(shape)


def _result(device: Device, kind: str, call: Call, position: int) -> tuple[Buffer, Any]:
    """A buffer for an output, and the array that has its memory already; without one, the buffer has no values yet."""
    shape, dtype = call.output_shapes[position], call.output_dtypes[position]
    if device.name == "cpu" and 0 not in shape:
        array, window = arrays.host_zeros(kind, shape, dtype)
        if call.init_value:
            window[...] = call.filling(position)
        return device.from_dlpack(window), array
    return _at_least_one(device, shape, dtype), None
