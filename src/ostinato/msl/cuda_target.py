"""CUDA: every thread of a kernel is a thread, every simdgroup a warp; compiled by NVRTC."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from . import cuda_entry
from .captured_constants import spell_out_captured_constants
from .compound_literals import has_designators, rewrite_designators
from .conditionals import arm_conditionals
from .cuda_entry import NAMESPACE, in_program
from .declarations import Declarations
from .early_reads import wait_of
from .float_overloads import BFLOAT, HALF, add_float_overloads
from .kernels import is_kernel
from .lane_sites import mark_lanes
from .native_cuda import as_device_functions, native_kernels
from .rewriter import Rewriter
from .syntax import ADDRESS_SPACES, BEFORE_EXPRESSIONS, Syntax
from .target import CPP17, CPP20, Source, TargetText
from .tensors import uses_matrices, uses_tensors
from .tokens import IDENTIFIER
from .translate import Dialect, Translator
from .unaligned import rewrite_unaligned

_INCLUDES = '#include "ostinato/metal_cuda.h"\n#include "ostinato/entry_cuda.h"\n'
_TENSORS = '#include "ostinato/tensors_cuda.h"\n'
MATRICES = "__OST_MATRICES"
"""Defined in sources with simdgroup matrices or tensors."""
_BEFORE_TYPES = frozenset(
    "const constexpr explicit friend inline kernel mutable operator private protected public sizeof static typename "
    "using typedef volatile".split()
)
_BESIDE_CONSTANTS = frozenset("== != < >".split())
"""Comparisons, through which nothing is read, and the brackets of template arguments, which are constants."""


def _rewrite_types(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    rewrite_designators(syntax, rewriter)
    rewrite_unaligned(syntax, declarations, rewriter)
    arm_conditionals(syntax, rewriter)
    add_float_overloads(syntax, declarations, rewriter, BFLOAT | HALF)
    spell_out_captured_constants(syntax, rewriter)
    _widen_copies(syntax, rewriter)
    _hide_null_pointers(syntax, rewriter)
    _wait_inside(syntax, declarations, rewriter)
    for index, token in enumerate(syntax.tokens):
        if token.unroll and not rewriter.is_deleted(index):
            rewriter.before(index, f'_Pragma("{_unrolled(token.unroll)}") ')
    for index in range(syntax.count):
        # Globals of the source are in the program's namespace.
        if syntax.texts[index] == "::" and not _is_qualified(syntax, index) and not rewriter.is_deleted(index):
            rewriter.before(index, NAMESPACE)


def _wait_inside(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """A kernel that says where it waits for others does so there; the start of its time moves there too."""
    for function in declarations.functions:
        call = wait_of(syntax, function) if is_kernel(syntax, function) else None
        if call is not None:
            rewriter.delete(call.start, call.stop)
            rewriter.before(call.stop, "__ost_sample.wait()")


def _widen_copies(syntax: Syntax, rewriter: Rewriter) -> None:
    """Structs of bytes alone, which sources have to copy vectors of any alignment, look at it when they are copied."""
    texts = syntax.texts
    for index in range(syntax.count):
        if texts[index] != "struct":
            continue
        at = syntax.match[index + 2] + 1 if texts[index + 1] == "alignas" else index + 1
        if texts[at + 1 : at + 3] not in (["{", "uint8_t"], ["{", "uchar"]) or texts[at + 4] != "[":
            continue
        end = syntax.match[at + 4]
        if texts[end + 1 : end + 3] == [";", "}"] and syntax.tokens[at].kind == IDENTIFIER:
            name = texts[at]
            copied = f"__ost::copy_bytes<sizeof({name})>(this, &__ost_from); return *this;"
            rewriter.after(at + 1, f" OST_FN {name} &operator=(const {name} &__ost_from) {{ {copied} }} ")


def _hide_null_pointers(syntax: Syntax, rewriter: Rewriter) -> None:
    """A ``nullptr`` that becomes a pointer does so by an instruction, not as a constant.

    Sorts read through null pointers the numbers that they do not use. NVRTC takes it that such code never runs, and has
    no option for it.
    """
    for index, text in enumerate(syntax.texts):
        if text != "nullptr" or rewriter.is_deleted(index):
            continue
        if _BESIDE_CONSTANTS.isdisjoint((syntax.texts[index - 1], syntax.texts[index + 1])):
            rewriter.replace(index, "__ost::Null{}")


def _unrolled(pragma: str) -> str:
    """A pragma of `preprocess.unrolling` in NVRTC's words."""
    count = re.search(r"[0-9]+", pragma)
    return f"unroll {count[0]}" if count else "unroll 1" if "disable" in pragma else "unroll"


def _is_qualified(syntax: Syntax, index: int) -> bool:
    """Whether a class or namespace stands before the ``::`` at ``index``: a name, ``name<…>`` or ``decltype(…)``."""
    if index == 0:
        return False
    before = syntax.tokens[index - 1]
    if before.text == ")":
        return syntax.texts[syntax.match[index - 1] - 1] == "decltype"
    if before.text == ">":
        opening = syntax.angle_start(index - 1)
        if opening == index - 1:
            return False
        before = syntax.tokens[opening - 1]
        return before.kind == IDENTIFIER and before.text != "template"
    return before.kind == IDENTIFIER and before.text not in BEFORE_EXPRESSIONS | ADDRESS_SPACES | _BEFORE_TYPES


_DIALECT = Dialect(
    kernel_parameters="const __ost::Site __ost_lanes, __ost::Sampled &__ost_sample",
    arena="__ost_arena",
    enter_namesake="",
    rewrite_types=_rewrite_types,
    mark_sites=mark_lanes,
)


def translate_for_cuda(source: Source) -> TargetText:
    """CUDA C++ for NVRTC, to be compiled with `cuda_options`: C++17, or C++20 if initialisers name members."""
    logging = (source.log_calls, source.active)
    translator = Translator(source.syntax, source.declarations, source.convergence, _DIALECT, None, *logging)
    body = translator.run(source.constants)
    instances = [replace(instance, call=in_program(instance.call)) for instance in source.instances]
    entries = cuda_entry.table(
        instances, translator.layouts, source.absent, source.prints, native_kernels(source.native)
    )
    program = f"namespace {NAMESPACE} {{\n{body}{entries}}}\n"
    tensors = uses_tensors(source.syntax)
    head = f"#define {MATRICES} 1\n" if tensors or uses_matrices(source.syntax) else ""
    head += _INCLUDES + (_TENSORS if tensors else "")
    standard = CPP20 if has_designators(source.syntax) else CPP17
    return TargetText(as_device_functions(source.native) + head, program, standard=standard)


def cuda_options(architecture: str, inline_bytes: int = 0, standard: str = CPP17) -> tuple[str, ...]:
    """The options NVRTC needs for a translation; ``architecture`` is ``sm_90`` or ``compute_90`` and the like.

    ``inline_bytes`` is the room in each kernel's parameters for the bytes of buffers that are only read;
    ``standard`` is that of the translation.
    """
    include = Path(__file__).parent / "include"
    options = (
        f"--gpu-architecture={architecture}",
        f"--std={standard}",
        "--device-as-default-execution-space",
        "--device-int128",
        f"--include-path={include}",
    )
    return (*options, f"--define-macro=__OST_INLINE_BYTES={inline_bytes}") if inline_bytes else options
