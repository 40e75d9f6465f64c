"""Elements of a dispatch's outputs that became NaN or infinite, found by comparing them before and after it ran."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.kernel_findings import KernelFinding
from ..ir.commands import BufferBinding, Dispatch
from .replica import Replica

_INVALID = 1
"""The value of a record of an operation that made a NaN (`FloatEvent` in `cpu/runtime/float_traps.h`)."""
_FLOATS = frozenset({"float16", "bfloat16", "float32"})


@dataclass(frozen=True, slots=True)
class NonFinite:
    """How many elements became NaN or infinite, and the first of them."""

    nans: int = 0
    infinities: int = 0
    first: str = ""
    from_finite: bool = False
    """Whether all floats of its arguments were finite before."""


NOTHING = NonFinite()


def new_non_finite(replica: Replica, index: int) -> NonFinite:
    """What a dispatch, which has run on the live copy from the shadow's state, made NaN or infinite."""
    command = replica.commands[index]
    assert isinstance(command, Dispatch)
    arguments = {argument.index: argument for argument in command.kernel.signature.arguments}
    nans = infinities = 0
    first, from_finite = "", True
    for binding in command.bindings:
        argument = arguments.get(binding.index)
        if not isinstance(binding, BufferBinding) or argument is None or argument.scalar not in _FLOATS:
            continue
        dtype = np.dtype(argument.scalar)
        nbytes = binding.nbytes // dtype.itemsize * dtype.itemsize
        span = (binding.address, binding.address + nbytes)
        before = replica.shadow(span).view(dtype)
        from_finite = from_finite and bool(np.isfinite(before).all())
        if not binding.writes:
            continue
        after = replica.live(span).view(dtype)
        made = ~np.isfinite(after) & (before.view(f"u{dtype.itemsize}") != after.view(f"u{dtype.itemsize}"))
        made_nan = made & np.isnan(after)
        nans += int(made_nan.sum())
        infinities += int((made & ~made_nan).sum())
        if not first and made.any():
            element = int(np.flatnonzero(made)[0])
            first = f"{argument.name}[{element}] is {float(after[element]):g}"
    return NonFinite(nans, infinities, first, from_finite)


def led_to(record: KernelFinding, became: NonFinite) -> bool:
    """Whether an operation made a number of the kind that is left in an output."""
    return bool(became.nans if record.value == _INVALID else became.infinities)
