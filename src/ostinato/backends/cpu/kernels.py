"""Kernels as native code of this machine: translated, compiled, loaded, and read from the table of their library.

The `code` of a compiled kernel is the address of its entry point (`Entry` in runtime/abi.h). Whatever can give it a
`Dispatch` and a `Worker` can run it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from os.path import isabs
from typing import TYPE_CHECKING

from ... import settings
from ...base import cache
from ...errors import KernelCompileError, ToolchainError
from ...ir.commands import CompiledKernel
from ...native import toolchain
from ..printing import SILENT, Printing, chosen
from . import line_counts
from .building import check_threads, checked_library, kernel_library, vector_library
from .checking import Checks

if TYPE_CHECKING:
    from ...msl import Execution, Module, Translation

MAX_THREADS_PER_GROUP = 1024
_HALF = re.compile(r"\bhalf[234]?\b")


class _KernelInfo(ctypes.Structure):
    """`KernelInfo` of runtime/abi.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("entry", ctypes.c_uint64),
        ("threadgroup_bytes", ctypes.c_uint32),
        ("arena_bytes", ctypes.c_uint32),
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
    checked: Checks | None = None,
    debug: bool = False,
    printing: Printing = SILENT,
) -> Mapping[str, CompiledKernel]:
    """The kernels of a module, or some of them, for these values of its function constants.

    Kernels that run as vectors are left out unless one is asked for alone.

    Checked, kernels are made for finding faults and not for speed: each thread is a fiber, so that a fault names
    it, and nothing is vectorised, so that no access is made that the source does not make. For `debug`, a debugger sees
    the lines and variables of the source.
    """
    if debug:
        return _debug_kernels(module, constants, only, printing)
    if checked is not None:
        counted = settings.text("coverage") is not None
        translation = module.translate("cpu", constants, only, checked=True, counted=counted, **printing.options)
        # Only clang inlines the hooks that look for bounds.
        clang = toolchain.find_clang() if checked.bounds_only else None
        library, warnings = checked_library(clang or toolchain.find(), translation, checked)
        if translation.counted:
            line_counts.remember(library, translation, _readable_files(module))
        kernels = _kernels_of(library, translation, {})
        return {name: replace(kernel, warnings=warnings) for name, kernel in kernels.items()}
    for name in only if only is not None and len(only) == 1 else ():
        known = module.known_execution(name, constants)
        if known is not None and _better_as_vectors(known):
            vector, _ = _vector_kernels(module, constants, {name: _reason(known)}, alone=True)
            if vector:
                return vector
    translation = module.translate("cpu", constants, only, **printing.options)
    slow = _to_be_vectors(translation)
    vector, notes = _vector_kernels(module, constants, slow, alone=len(translation.kernels) == 1) if slow else ({}, {})
    rest = [name for name in translation.kernels if name not in slow or name in notes]
    loops = _half_loops(module, constants, translation, rest, printing)
    rest = [name for name in rest if name not in loops]
    if not rest:
        return {**vector, **loops}
    if len(rest) < len(translation.kernels):
        translation = module.translate("cpu", constants, rest, **printing.options)
    return {**loops, **_kernels_of(kernel_library(toolchain.find(), translation), translation, notes)}


def generated_text(module: Module, constants: Mapping[int | str, object], only: Collection[str] | None = None) -> str:
    """What compilers on this machine get for the kernels of a module; nothing is compiled.

    Kernels that run as vectors have a text of their own, for clang. Above each text a line names its kernels, if they
    are not all in the text for loops, which is the one to use where clang or the lane pass refuses a kernel.
    """
    printing = chosen(module, debug=False)
    translation = module.translate("cpu", constants, only, **printing.options)
    slow = list(_to_be_vectors(translation))
    if not slow or not _is_clang_there():
        return translation.text
    vectors = module.translate("cpu-vector", constants, slow).text
    text = f"// As vectors of the lanes of a simdgroup, for clang: {', '.join(slow)}\n{vectors}"
    rest = [name for name in translation.kernels if name not in slow]
    if not rest:
        return text
    loops = module.translate("cpu", constants, rest, **printing.options).text
    return f"{text}\n// As loops over threads, or as fibers: {', '.join(rest)}\n{loops}"


def _is_clang_there() -> bool:
    try:
        return toolchain.find_clang() is not None
    except ToolchainError:  # there is no compiler at all
        return False


def _to_be_vectors(translation: Translation) -> dict[str, str]:
    """The kernels that are to run as vectors where that can be, and why they are no loops."""
    return {
        name: _reason(way)
        for name, way in translation.executions.items()
        if _better_as_vectors(way) and name not in translation.log_sites
    }


def _better_as_vectors(execution: Execution) -> bool:
    """Whether a kernel is to run with the lanes of a simdgroup in vector registers, if that can be."""
    return execution.way in ("fibers", "split") or bool(execution.as_vectors)


def _reason(execution: Execution) -> str:
    """Why a kernel is to run as vectors."""
    return execution.as_vectors or execution.reason


def _debug_kernels(
    module: Module, constants: Mapping[int | str, object], only: Collection[str] | None, printing: Printing
) -> Mapping[str, CompiledKernel]:
    """Kernels for a debugger."""
    translation = module.translate("cpu", constants, only, debug_files=_readable_files(module), **printing.options)
    try:
        library = kernel_library(toolchain.find(), translation, debug=True)
    except KernelCompileError:
        # Lines that name the user's files have no columns of them: the messages of the plain text are exact.
        kernel_library(toolchain.find(), module.translate("cpu", constants, only, fibers=True, **printing.options))
        raise
    return _kernels_of(library, translation, {})


def _readable_files(module: Module) -> dict[str, str]:
    """Where other programs read the files of a source: one that was passed as text is written to the cache."""
    name = re.sub(r"\W", "_", next(iter(module.kernels), "kernels"), flags=re.ASCII)[:80] + ".metal"
    return {
        file: file if isabs(file) else str(cache.text_file(name, text))
        for file, text in module.files_read.texts.items()
    }


def _half_loops(
    module: Module,
    constants: Mapping[int | str, object],
    translation: Translation,
    among: Collection[str],
    printing: Printing,
) -> dict[str, CompiledKernel]:
    """The plain loops among these kernels, compiled by clang if the source has halves: g++ converts those one by one.

    Nothing where there is no clang or it refuses them, and where `$CXX` chooses a compiler.
    """
    loops = [name for name in among if translation.executions[name].way == "loop"]
    if not loops or os.environ.get("CXX") or _HALF.search(translation.text) is None:
        return {}
    clang = toolchain.find_clang()
    if clang is None or clang == toolchain.find():
        return {}
    if len(loops) < len(translation.kernels):
        translation = module.translate("cpu", constants, loops, **printing.options)
    try:
        return _kernels_of(kernel_library(clang, translation), translation, {})
    except KernelCompileError:  # an error in the source is shown as the other compiler has it
        return {}


def _vector_kernels(
    module: Module, constants: Mapping[int | str, object], reasons: Mapping[str, str], alone: bool
) -> tuple[dict[str, CompiledKernel], dict[str, str]]:
    """A kernel whose simdgroups run as vectors, and why others cannot; `reasons` say why none of them is a loop.

    Of several kernels it only makes sure that they compile: code for 32 lanes is long, and few kernels of a library are
    used.
    """
    compiler = toolchain.find_clang()
    if compiler is None:
        return {}, dict.fromkeys(reasons, f"vectors need clang {toolchain.OLDEST_CLANG} or the ziglang wheel")
    translation = module.translate("cpu-vector", constants, reasons)
    executions = {name: replace(way, reason=reasons[name]) for name, way in translation.executions.items()}
    translation = replace(translation, executions=executions)
    try:
        if not alone:
            check_threads(compiler, translation)
            return {}, {}
        library = vector_library(compiler, translation)
    except KernelCompileError as error:
        return {}, dict.fromkeys(reasons, f"clang does not compile it: {error.message}")
    refused = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "__ost_refused"))))
    if refused:
        return {}, dict.fromkeys(reasons, f"no vectors: {refused['0']}")
    return _kernels_of(library, translation, {}), {}


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
        arena_bytes=info.arena_bytes,
        argument_bytes=tuple(info.arg_sizes[: info.n_args]),
        argument_alignments=tuple(info.arg_aligns[: info.n_args]),
        code=info.entry,
        execution=execution,
        log_sites=translation.log_sites.get(name, ()),
    )
