"""What a notebook shows of kernels, libraries, buffers and submissions.

Looking at an object changes nothing and never waits. The values of a buffer are read only when no committed work uses
its memory, at most a few hundred bytes of them, and do not count as a sync. Errors are shown, which does not count as
having observed them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..base import fragments
from ..base.fragments import Column
from ..errors import OstinatoError

if TYPE_CHECKING:
    from .. import msl
    from .allocation import Allocation
    from .buffer import Buffer
    from .library import Kernel, Library
    from .submission import Submission

_SHOWN_KERNELS = 40
_SHOWN_WHOLE = 100
"""Elements of a buffer that is shown whole."""
_EDGE = 3
"""Elements at each end of a longer axis."""
_MOST_CORNERS = (2 * _EDGE) ** 3
_LINE_WIDTH = 100
_MOST_LINES = 250


def kernel_html(kernel: Kernel) -> str:
    """Its signature, how it runs, and the text of its function."""
    signature, compiled = kernel.signature, kernel._compiled
    origin = compiled.origin
    facts = (
        ("runs as", str(kernel.execution)),
        ("group", f"at most {kernel.max_threads_per_group:,} threads"),
        ("threadgroup memory", _bytes(kernel.threadgroup_memory_bytes) if kernel.threadgroup_memory_bytes else ""),
        ("constants", ", ".join(f"{name} = {value}" for name, value in origin.values) if origin else ""),
        ("source", f"{os.path.basename(signature.file)}:{signature.line}"),
        ("digest", kernel.digest),
    )
    columns = (Column("index"), Column("argument", "name"), Column("type", "name"), Column("access"))
    source = origin.module.function_text(kernel.name) if origin else ""
    return fragments.fragment(
        fragments.line(f"Kernel {kernel.name} on {kernel._queue.title}", "title"),
        fragments.table(columns, _arguments(signature)),
        fragments.facts(facts),
        fragments.code(source) if source else "",
    )


def _arguments(signature: msl.Signature) -> Iterator[tuple[str, str, str, str]]:
    for argument in signature.arguments:
        sign, access = ("*", argument.access.replace("_", "-")) if argument.kind == "buffer" else ("&", "value")
        yield f"buffer {argument.index}", argument.name, f"{argument.space} {argument.type} {sign}", access
    for shared in signature.shared:
        yield (
            f"threadgroup {shared.index}",
            shared.name,
            f"threadgroup {shared.type} *",
            "size given with each dispatch",
        )


def library_html(library: Library) -> str:
    """Its kernels: signatures, and how those that are compiled run."""
    rows = []
    for name in list(library)[:_SHOWN_KERNELS]:
        kernel = library._kernels.get(name)
        signature = library.signatures[name] if kernel is None else kernel.signature
        arguments = ", ".join(map(str, (*signature.arguments, *signature.shared)))
        rows.append((name, arguments, "compiled on first use" if kernel is None else str(kernel.execution)))
    constants = ", ".join(f"{name} = {value}" for name, value in library.constants.items())
    notes = [f"and {len(library) - len(rows):,} more"] if len(library) > len(rows) else []
    noun = "kernel" if len(library) == 1 else "kernels"
    return fragments.fragment(
        fragments.line(f"Library of {len(library):,} {noun} on {library._queue.title}", "title"),
        fragments.table((Column("kernel", "name"), Column("arguments", "name"), Column("runs as")), rows, notes=notes),
        fragments.facts([("function constants", constants)]) if constants else "",
    )


def submission_html(submission: Submission) -> str:
    """Its state, without waiting for it, and its time on the device."""
    state, facts = _state(submission), []
    try:
        times = submission.gpu_time
    except OstinatoError:  # of a device that is lost, or of another process
        times = None
    if times is not None:
        facts.append(("time on the device", f"{(times[1] - times[0]) / 1e3:,.1f} µs"))
    if submission.rebind_ns:
        facts.append(("binding other buffers", f"{submission.rebind_ns / 1e3:,.1f} µs on the host"))
    label = f" {submission.label}" if submission.label else ""
    return fragments.fragment(
        fragments.line(f"Submission {submission.ordinal}{label} on {submission._queue.title}", "title"),
        fragments.line(state, "status"),
        fragments.facts(facts) if facts else "",
    )


def _state(submission: Submission) -> str:
    try:
        done = submission.done
    except OstinatoError as error:
        return f"not known: {error}"
    if not done:
        return "running"
    errors = [part._error for part in (*submission._earlier, submission) if part._error is not None]
    return f"failed: {errors[0]}" if errors else "done"


def buffer_html(buffer: Buffer) -> str:
    """Its type, shape and place, and the first and last of its values, or why they are not shown."""
    values, reason = _values(buffer)
    facts = (
        ("dtype", str(buffer.dtype)),
        ("shape", str(buffer.shape)),
        ("size", _bytes(buffer.nbytes)),
        ("view", f"at byte {buffer.byte_offset:,} of its memory" if buffer._view else ""),
    )
    return fragments.fragment(
        fragments.line(f"Buffer on {buffer._queue.title}", "title"),
        fragments.facts(facts),
        fragments.code(values, _MOST_LINES) if values else "",
        fragments.line(reason, "note") if reason else "",
    )


def _values(buffer: Buffer) -> tuple[str, str]:
    """The values as text, and a remark on them."""
    if buffer.freed:
        return "", "the buffer was freed, so it has no values"
    try:
        allocation = buffer._allocation()
        user = allocation.backing.latest_use()
        if user is not None and not user.done:
            return "", f"{user._title()} is still using this memory; numpy() waits for it and returns the values"
        fault = allocation.backing.fault_at(buffer.byte_offset, buffer.nbytes)
        if fault is not None:
            return "", f"a fault left the values undefined: {fault}"
        return _text(buffer, allocation)
    except OstinatoError as error:
        return "", f"the memory cannot be read: {error}"


def _text(buffer: Buffer, allocation: Allocation) -> tuple[str, str]:
    if buffer.size <= _SHOWN_WHOLE:
        return np.array2string(buffer._contents(allocation), threshold=_SHOWN_WHOLE, max_line_width=_LINE_WIDTH), ""
    shape, remark = buffer.shape, ""
    if prod(min(axis, 2 * _EDGE) for axis in shape) > _MOST_CORNERS:
        shape, remark = (buffer.size,), "in C order, over all axes"
    corners = _corners(buffer, allocation, shape)
    return np.array2string(corners, threshold=0, edgeitems=_EDGE, max_line_width=_LINE_WIDTH), remark


def _corners(buffer: Buffer, allocation: Allocation, shape: tuple[int, ...]) -> np.ndarray:
    """The first and last values along each axis, with one place between them that NumPy prints as "...".

    It prints as the whole would, so that a few bytes of a large buffer are enough.
    """
    lengths = [min(axis, 2 * _EDGE + 1) for axis in shape]
    corners = np.zeros(lengths, buffer.dtype)
    for place in np.ndindex(*lengths):
        if any(at == _EDGE and length > 2 * _EDGE for at, length in zip(place, lengths, strict=True)):
            continue
        position = 0
        for at, length, axis in zip(place, lengths, shape, strict=True):
            position = position * axis + (at if at < _EDGE else at - length + axis)
        offset = buffer.byte_offset + position * buffer.dtype.itemsize
        corners[place] = allocation.backing.read(offset, buffer.dtype.itemsize).view(buffer.dtype)[0]
    return corners


def _bytes(count: int) -> str:
    return f"{count:,} byte{'' if count == 1 else 's'}"
