"""Kernels as native code of this machine: translated, compiled, loaded, and read from the table of their library.

The `code` of a compiled kernel is the address of its entry point (`Entry` in runtime/abi.h). Whatever can give it a
`Dispatch` and a `Worker` can run it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import KernelCompileError
from ...ir.commands import CompiledKernel
from ...native import toolchain
from .building import kernel_library, vector_library

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
    if checked:
        return _kernels_of(kernel_library(toolchain.find(), translation, checked), translation, {})
    slow = {name: execution.reason for name, execution in translation.executions.items() if execution.way == "fibers"}
    vector, refused = _vector_kernels(module, constants, slow) if slow else ({}, {})
    if vector:
        rest = [name for name in translation.kernels if name not in vector]
        if not rest:
            return vector
        translation = module.translate("cpu", constants, rest)
    others = _kernels_of(kernel_library(toolchain.find(), translation, checked), translation, refused)
    return {name: (vector | others)[name] for name in (*vector, *others)}


def _vector_kernels(
    module: Module, constants: Mapping[int | str, object], reasons: Mapping[str, str]
) -> tuple[dict[str, CompiledKernel], dict[str, str]]:
    """Kernels whose simdgroups run as vectors, and why others cannot; `reasons` say why none of them is a loop."""
    compiler = toolchain.find_clang()
    if compiler is None:
        return {}, dict.fromkeys(reasons, f"vectors need clang {toolchain.OLDEST_CLANG} or the ziglang wheel")
    translation = module.translate("cpu-vector", constants, reasons)
    executions = {name: replace(way, reason=reasons[name]) for name, way in translation.executions.items()}
    translation = replace(translation, executions=executions)
    try:
        library = vector_library(compiler, translation)
    except KernelCompileError as error:
        return {}, dict.fromkeys(reasons, f"clang does not compile it: {error.message}")
    text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "__ost_refused")))
    numbers = list(translation.kernels)
    refused = {numbers[int(number)]: f"no vectors: {reason}" for number, reason in json.loads(text).items()}
    kernels = _kernels_of(library, translation, {})
    return {name: kernel for name, kernel in kernels.items() if name not in refused}, refused


def _kernels_of(library: ctypes.CDLL, translation: Translation, notes: Mapping[str, str]) -> dict[str, CompiledKernel]:
    """The kernels in the table of a library; `notes` are added to the reasons for the way they run."""
    count = ctypes.c_uint32.in_dll(library, "__ost_kernel_count").value
    table = (_KernelInfo * count).in_dll(library, "__ost_kernels") if count else ()
    return {kernel.name: kernel for kernel in (_compiled(info, translation, notes) for info in table)}


def _compiled(info: _KernelInfo, translation: Translation, notes: Mapping[str, str]) -> CompiledKernel:
    name = info.name.decode()
    execution = translation.executions[name]
    if name in notes:
        execution = replace(execution, note="; ".join(part for part in (execution.note, notes[name]) if part))
    return CompiledKernel(
        name=name,
        signature=translation.kernels[name],
        max_threads_per_group=min(info.max_threads, MAX_THREADS_PER_GROUP),
        threadgroup_bytes=info.threadgroup_bytes,
        argument_bytes=tuple(info.arg_sizes[: info.n_args]),
        argument_alignments=tuple(info.arg_aligns[: info.n_args]),
        code=info.entry,
        execution=execution,
    )
