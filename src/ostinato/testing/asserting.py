"""`assert_kernel`: runs a kernel on NumPy arrays and compares what it wrote with what was expected.

A kernel runs in this process where a fault ends only its submission. Where a fault affects more (on CUDA every later
use of the GPU by the process fails), it runs in a child process; see `isolation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.tolerances import Tolerance, checked_tolerance
from ..encode.encoder import CommandEncoder, capture
from ..encode.geometry import Extent
from ..errors import ArgumentError
from ..ir.commands import Dispatch, InlineBinding
from ..runtime.buffer import Buffer, allocate
from ..runtime.library import Kernel
from .differences import mismatches
from .isolation import Job, TookTooLong, run_isolated

TIMEOUT_S = 60.0


def assert_kernel(
    kernel: Kernel,
    args: Sequence[Any] | Mapping[str | int, Any],
    grid: Extent,
    expected: Any,
    tolerance: Tolerance = 0.0,
    *,
    group_size: Extent | None = None,
    shared: Mapping[int, int] | None = None,
    timeout: float = TIMEOUT_S,
    isolated: bool | None = None,
) -> None:
    """Run a kernel once and raise an `AssertionError` that says where its results differ from the expected ones.

    `args` are the arguments in the order of their indices, or a mapping by name or index: NumPy arrays for buffers
    (copied, never changed), numbers or structs for the rest. `grid` is the number of threads, `group_size` and `shared`
    are those of `CommandEncoder.dispatch`.

    `expected` is an array for a kernel that writes to one buffer, else a mapping from arguments, by name or index, to
    arrays; buffers that it leaves out are not compared. Floating-point arrays of another precision are rounded to that
    of the buffer.

    With `tolerance=0` values are compared bit for bit, except that NaN equals NaN. Otherwise |expected - actual| may be
    `tolerance + tolerance · |expected|`; a mapping such as `{"float16": 1e-3}` gives it per dtype. Integers are always
    compared exactly.

    A kernel that faults raises `KernelFault`. One that still runs after `timeout` seconds is an `AssertionError`.
    `isolated` says whether the kernel runs in a child process, so that neither case affects later tests; by default it
    does on devices where a fault affects more than its own submission, such as CUDA's.
    """
    __tracebackhide__ = True
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"assert_kernel: expected a Kernel, got {kernel!r}; device.library(source)[name] gives one")
    checked = checked_tolerance(tolerance, "assert_kernel")
    if not timeout > 0:
        raise ArgumentError(f"assert_kernel: timeout={timeout!r} is not a positive time")
    given = _by_index(kernel, args, "args")
    arrays = {
        argument.index: given[argument.index]
        for argument in kernel.signature.arguments
        if isinstance(given.get(argument.index), np.ndarray)
        and (argument.kind == "buffer" or argument.access != "read")
    }
    wanted = _wanted(kernel, expected, arrays)
    geometry = {"threads": grid, "group_size": group_size, "shared": shared}
    capabilities = kernel._queue.backend.capabilities
    if isolated is None:
        isolated = bool(capabilities.after_fault) or not capabilities.catches_faults
    run = _in_a_child if isolated else _here
    try:
        written = run(kernel, given, arrays, geometry, timeout)
    except TookTooLong as reason:
        raise AssertionError(f"kernel {kernel.name!r} on {capabilities.name!r}: {reason}") from None
    where = f"kernel {kernel.name!r} on {capabilities.name!r}"
    texts = [
        f"{where}, argument {argument.index} '{argument.name}{path}': {mismatch}"
        for argument in kernel.signature.arguments
        if argument.index in wanted
        for path, mismatch in mismatches(wanted[argument.index], written[argument.index], checked)
    ]
    if texts:
        raise AssertionError("\n".join(texts))


# --- arguments --------------------------------------------------------------------------------------------------------


def _by_index(kernel: Kernel, values: Any, what: str) -> dict[int, Any]:
    """Values that were given in order, or by name or index, by the index of their argument."""
    arguments = kernel.signature.arguments
    if isinstance(values, Mapping):
        indices: dict[Any, int] = {argument.index: argument.index for argument in arguments}
        indices |= {argument.name: argument.index for argument in arguments}
        unknown = [key for key in values if key not in indices]
        if unknown:
            raise ArgumentError(
                f"assert_kernel, {what}: kernel {kernel.name!r} has no argument {unknown[0]!r};"
                f" it is {kernel.signature}"
            )
        return {indices[key]: value for key, value in values.items()}
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ArgumentError(f"assert_kernel, {what}: expected a list or a mapping, got {type(values).__name__}")
    if len(values) != len(arguments):
        raise ArgumentError(
            f"assert_kernel: kernel {kernel.name!r} takes {len(arguments)} arguments, {len(values)} were given;"
            f" it is {kernel.signature}"
        )
    return {argument.index: value for argument, value in zip(arguments, values, strict=True)}


def _wanted(kernel: Kernel, expected: Any, arrays: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The expected contents by index, in the dtype of the buffer."""
    outputs = {argument.index: argument for argument in kernel.signature.arguments if argument.access != "read"}
    if not outputs:
        raise ArgumentError(f"assert_kernel: kernel {kernel.name!r} writes to no buffer; it is {kernel.signature}")
    if isinstance(expected, Mapping):
        by_index = _by_index(kernel, expected, "expected")
    elif len(outputs) == 1:
        by_index = dict.fromkeys(outputs, expected)
    else:
        names = ", ".join(repr(argument.name) for argument in outputs.values())
        raise ArgumentError(f"assert_kernel: kernel {kernel.name!r} writes to {names}; pass expected={{name: array}}")
    if not by_index:
        raise ArgumentError("assert_kernel: expected is empty, so nothing would be compared")
    wanted = {}
    for index, values in by_index.items():
        where = f"assert_kernel, expected[{index}]"
        if index not in outputs:
            raise ArgumentError(f"{where}: kernel {kernel.name!r} only reads it; it is {kernel.signature}")
        if index not in arrays:
            raise ArgumentError(f"{where}: the kernel writes to it, so pass a NumPy array for it in args")
        wanted[index] = _converted(np.asarray(values), arrays[index], where)
    return wanted


def _converted(values: np.ndarray, like: np.ndarray, where: str) -> np.ndarray:
    if values.shape != like.shape:
        raise ArgumentError(f"{where}: it has shape {values.shape}, the buffer has {like.shape}")
    if values.dtype == like.dtype:
        return values
    if values.dtype.names or like.dtype.names:
        raise ArgumentError(f"{where}: its dtype is {values.dtype}, the buffer's is {like.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = values.astype(like.dtype)
    # Rounding to the precision of the buffer is what the kernel is asked to do; another integer is a mistake.
    is_rounding = np.issubdtype(values.dtype, np.floating) and _is_float(like.dtype)
    if not is_rounding and not np.array_equal(converted, values):
        raise ArgumentError(f"{where}: its {values.dtype} values do not fit the {like.dtype.name} of the buffer")
    return converted


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


# --- runs -------------------------------------------------------------------------------------------------------------


def _buffers(kernel: Kernel, arrays: Mapping[int, np.ndarray]) -> dict[int, Buffer]:
    buffers = {}
    for index, array in arrays.items():
        buffers[index] = allocate(kernel._queue, array.shape, array.dtype)
        buffers[index].write(array)
    return buffers


def _here(
    kernel: Kernel, given: dict[int, Any], arrays: Mapping[int, np.ndarray], geometry: dict[str, Any], timeout: float
) -> dict[int, np.ndarray]:
    queue, buffers = kernel._queue, _buffers(kernel, arrays)
    encoder = CommandEncoder(queue, f"assert_kernel {kernel.name}", "auto", True)
    encoder.dispatch(kernel, given | buffers, **geometry)
    if not encoder.commit().wait(timeout):
        queue.close()  # or the next test would wait for this kernel, and be blamed for it
        raise TookTooLong(
            f"it still runs after {timeout:g} s. It cannot be stopped, so this device is closed, and tests that use it"
            " fail from now on; isolated=True runs the kernel in a process that can be ended"
        )
    return {index: buffer.numpy() for index, buffer in buffers.items()}


def _in_a_child(
    kernel: Kernel, given: dict[int, Any], arrays: Mapping[int, np.ndarray], geometry: dict[str, Any], timeout: float
) -> dict[int, np.ndarray]:
    queue, buffers = kernel._queue, _buffers(kernel, arrays)
    graph = capture(queue, lambda encoder: encoder.dispatch(kernel, given | buffers, **geometry), None, "auto")
    command = graph.nodes[0].command  # checked, and its values by bytes
    assert isinstance(command, Dispatch)
    origin = command.kernel.origin
    assert origin is not None
    job = Job(
        device=queue.name,
        source=origin.module.source,
        constants=[(key, np.asarray(value).item()) for key, value in origin.constants.items()],
        cuda=origin.module.native.get("cuda"),
        kernel=kernel.name,
        inline={bound.index: bound.data.hex() for bound in command.bindings if isinstance(bound, InlineBinding)},
        threads=command.threads,
        group_size=command.group_size,
        shared=dict(zip((each.index for each in kernel.signature.shared), command.shared, strict=True)),
    )
    return run_isolated(job, arrays, timeout)
