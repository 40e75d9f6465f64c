"""The CPU, simdgroups as vectors: each kernel as the code of one thread, of which the lane pass makes that of 32."""

from __future__ import annotations

from collections.abc import Collection

from . import cpu_entry
from .convergence import BUILTINS, Convergence
from .convergent_calls import find_calls
from .cpu_target import TENSORS
from .declarations import Declarations
from .float_overloads import add_bfloat_overloads
from .loop_exits import keep_exits_inside
from .rewriter import Rewriter
from .syntax import Syntax
from .target import Execution, Source, TargetText
from .tensors import uses_tensors
from .translate import Dialect, Translator

# The lane pass works on one function, so everything that a kernel calls is inlined.
_INLINE = "#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)\n"
_INLINE_END = "#pragma clang attribute pop\n"
_AGAINST_INLINING = frozenset({"noinline", "optnone", "noduplicate"})
_FIRST = f'#define __OST_VECTOR 1\n#include "fiber.h"\n#include "ostinato/division_cpu.h"\n{_INLINE}'
_INCLUDES = '#include "ostinato/metal_cpu.h"\n#include "ostinato/entry_cpu.h"\n'


def _mark_calls(
    syntax: Syntax, declarations: Declarations, convergence: Convergence, rewriter: Rewriter, skipped: Collection[int]
) -> None:
    """Calls and loops as clang needs them.

    Lanes run in lockstep, so a call needs no site to tell who meets there; the shim's functions still take one. Loops
    that the source unrolls are unrolled before the lane pass, where arrays that they index become registers.
    """
    for opening in find_calls(syntax, declarations, BUILTINS, skipped).openings.values():
        comma = "," if syntax.match[opening] > opening + 1 else ""
        rewriter.after(opening, f"__ost::Site{{0}}{comma}")
    for index, token in enumerate(syntax.tokens):
        if token.unroll and not rewriter.is_deleted(index):
            rewriter.before(index, f'_Pragma("{token.unroll}")')
    keep_exits_inside(syntax, declarations, convergence.names | convergence.atomic, rewriter, skipped)


def _rewrite_types(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """The types of other CPU targets, and no `noinline`, with which clang would leave a function as it is."""
    add_bfloat_overloads(syntax, declarations, rewriter)
    for index, text in enumerate(syntax.texts):
        if text == "__attribute__":
            for at in range(index + 3, syntax.match[index + 1]):
                if syntax.texts[at].strip("_") in _AGAINST_INLINING:
                    rewriter.replace(at, "unused")


_DIALECT = Dialect(
    kernel_parameters="__ost::Worker *__ost_w",
    arena="__ost_w->arena",
    enter_namesake="",
    rewrite_types=_rewrite_types,
    mark_sites=_mark_calls,
)


def translate_for_simdgroups(source: Source) -> TargetText:
    """C++17 for clang, whose LLVM code the lane pass takes."""
    translator = Translator(
        source.syntax, source.declarations, source.convergence, _DIALECT, log_calls=source.log_calls
    )
    body = translator.run(source.constants)
    ways = dict.fromkeys((instance.name for instance in source.instances), cpu_entry.Way.SIMDGROUPS)
    entries = cpu_entry.table(source.instances, ways, translator.layouts, source.absent)
    executions = {name: Execution("vector") for name in ways}
    head = _FIRST + _INCLUDES + (TENSORS if uses_tensors(source.syntax) else "") + _INLINE_END
    return TargetText(head, body + entries, executions, begin=_INLINE, end=_INLINE_END)
