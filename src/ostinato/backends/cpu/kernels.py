"""Kernels as native code of this machine: translated, compiled, loaded, and read from the table of their library.

The `code` of a compiled kernel is the address of its entry point (`Entry` in runtime/abi.h). Whatever can give it a
`Dispatch` and a `Worker` can run it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...ir.commands import CompiledKernel
from ...native import toolchain
from .building import kernel_library

if TYPE_CHECKING:
    from ...msl import Module, Translation

MAX_THREADS_PER_GROUP = 1024


class _KernelInfo(ctypes.Structure):
    """`KernelInfo` of runtime/abi.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_uint64),
        ("threadgroup_bytes", ctypes.c_uint32),
        ("max_threads", ctypes.c_uint32),
        ("fibers", ctypes.c_uint32),
        ("n_args", ctypes.c_uint32),
        ("arg_sizes", ctypes.POINTER(ctypes.c_uint32)),
        ("arg_aligns", ctypes.POINTER(ctypes.c_uint32)),
    )


def compile_kernels(
    module: Module,
    constants: Mapping[int | str, object],
    only: Collection[str] | None = None,
    checked: bool = False,
) -> Mapping[str, CompiledKernel]:
    """The kernels of a module, or some of them, for these values of its function constants.

    Checked, kernels are made for finding faults and not for speed: each thread is a fiber, so that a fault names
    it, and nothing is vectorised, so that no access is made that the source does not make.
    """
    translation = module.translate("cpu", constants, only, fibers=checked)
    library = kernel_library(toolchain.find(), translation, checked)
    count = ctypes.c_uint32.in_dll(library, "__ost_kernel_count").value
    table = (_KernelInfo * count).in_dll(library, "__ost_kernels") if count else ()
    return {kernel.name: kernel for kernel in (_compiled(info, translation) for info in table)}


def _compiled(info: _KernelInfo, translation: Translation) -> CompiledKernel:
    name = info.name.decode()
    return CompiledKernel(
        name=name,
        signature=translation.kernels[name],
        max_threads_per_group=min(info.max_threads, MAX_THREADS_PER_GROUP),
        threadgroup_bytes=info.threadgroup_bytes,
        argument_bytes=tuple(info.arg_sizes[: info.n_args]),
        argument_alignments=tuple(info.arg_aligns[: info.n_args]),
        code=info.entry,
        execution=translation.executions[name],
    )
