"""CUDA source that stands beside a Metal one: for the kernels it defines, it is what runs on CUDA.

The Metal source says what the arguments are and what a kernel means, and is what every other device runs. A kernel of
the CUDA source becomes a device function that the generated entry point calls with the buffer arguments by ascending
index: a pointer for each `device` or `constant` pointer, the value for each `constant T &`. So it is timed, launched
early and given changing values like any other. It is launched in one row of blocks: `blockIdx.x` and `threadIdx.x`
count all groups and all threads of a group, x fastest.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from ..errors import KernelCompileError

_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_GLOBAL = re.compile(r"\b__global__\b")
_KERNEL = re.compile(r"__global__\s+void\s+(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
FILE = "<cuda>"


def native_kernels(text: str) -> frozenset[str]:
    """The kernels that a CUDA source defines."""
    return frozenset(_KERNEL.findall(_LAUNCH_BOUNDS.sub(" ", _COMMENT.sub(" ", text))))


def check_native(text: str, known: Collection[str]) -> None:
    """Refuses a CUDA source without kernels, or with one that the Metal source does not have."""
    found = native_kernels(text)
    for name in sorted(found - set(known)):
        listed = ", ".join(known) or "none"
        raise KernelCompileError(
            f"the CUDA source defines kernel {name!r}, which the Metal source does not have; it has {listed}", FILE
        )
    if text.strip() and not found:
        raise KernelCompileError("the CUDA source defines no kernel: no `__global__ void name(`", FILE)


def as_device_functions(text: str) -> str:
    """The source with its kernels as device functions."""
    if not text:
        return ""
    # Lines stay where they are: bounds are of the entry point, and they may be written over several.
    unbounded = _LAUNCH_BOUNDS.sub(lambda found: "\n" * found[0].count("\n"), text)
    return f'#line 1 "{FILE}"\n' + _GLOBAL.sub("__device__", unbounded) + "\n"
