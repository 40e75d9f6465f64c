"""CUDA source beside a Metal source: the kernels that it defines replace the Metal kernels on CUDA.

The Metal source declares the arguments, defines what a kernel computes, and runs on every other device. A kernel of
the CUDA source becomes a device function that the generated entry point calls with the buffer arguments by ascending
index: a pointer for each `device` or `constant` pointer, the value for each `constant T &`. So it is timed, launched
early and passed parameters like any other kernel. It is launched in one row of blocks: `blockIdx.x` and `threadIdx.x`
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
    """Refuses a CUDA source without kernels, or with a kernel that the Metal source does not have."""
    kernels = native_kernels(text)
    for name in sorted(kernels - set(known)):
        listed = ", ".join(known) or "none"
        raise KernelCompileError(
            f"the CUDA source defines kernel {name!r}, which the Metal source does not have; it has {listed}", FILE
        )
    if text.strip() and not kernels:
        raise KernelCompileError("the CUDA source defines no kernel: no `__global__ void name(`", FILE)


def as_device_functions(text: str) -> str:
    """The source with its kernels as device functions."""
    if not text:
        return ""
    # Launch bounds belong to the entry point; their line breaks stay, so that line numbers do not change.
    unbounded = _LAUNCH_BOUNDS.sub(lambda match: "\n" * match[0].count("\n"), text)
    return f'#line 1 "{FILE}"\n' + _GLOBAL.sub("__device__", unbounded) + "\n"
