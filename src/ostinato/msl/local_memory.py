"""Local arrays, structs and vectors of checked kernels, made visible to the checks of memory.

``float x[8];`` becomes an array between two fences, ``Tile t;`` is followed by a guard. Both tell the runtime where the
variable lies and that nothing is written there yet, and take that back where the variable's life ends. Their addresses
leave the function, so the compiler's instrumentation of memory sees every access. Scalars and pointers stay as they
are: the guard knows them by their type (`checks_cpu.h`).

Left alone: variables that are declared directly in a ``switch``, where a jump may pass the declaration; constants;
arrays without a length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import KernelCompileError
from .declarations import Declarations
from .reflect import SCALARS
from .rewriter import Rewriter
from .storage import type_end
from .syntax import Syntax
from .tokens import IDENTIFIER

_QUALIFIERS = frozenset({"const", "volatile", "thread"})
_NO_TYPES = frozenset(
    """return else case default delete new goto using typedef constexpr static static_assert struct class union enum if
    for while do switch break continue template namespace threadgroup device constant auto void friend public private
    operator throw extern alignas""".split()
)
_TYPE_WORDS = frozenset({"struct", "class", "union", "enum"})


@dataclass(frozen=True, slots=True)
class _Variable:
    """One declarator; positions are token indices, ends are exclusive."""

    name_at: int
    suffix_end: int
    end: int

    @property
    def is_array(self) -> bool:
        return self.suffix_end > self.name_at + 1

    @property
    def has_initialiser(self) -> bool:
        return self.end > self.suffix_end


def mark_locals(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Fences the arrays and guards the other variables that functions declare."""
    for function in declarations.functions:
        if function.body is None or "constexpr" in syntax.texts[function.start : function.name_at]:
            continue
        for start, declarator, end in _declarations(syntax, *function.body):
            variables = _variables(syntax, declarator, end)
            if variables is not None and not rewriter.is_deleted(declarator):
                with rewriter.without_lead(start):
                    _mark(syntax, rewriter, start, declarator, end, variables)


def _declarations(syntax: Syntax, opening: int, closing: int) -> Iterator[tuple[int, int, int]]:
    """Start, first declarator and ``;`` of each statement that may be a declaration."""
    texts, match = syntax.texts, syntax.match
    switches: set[int] = set()
    around = [opening]
    index = opening + 1
    while index < closing:
        text = texts[index]
        if text == "{":
            around.append(index)
        elif text == "}":
            around.pop()
        elif text == "switch" and texts[index + 1] == "(":
            switches.add(match[index + 1] + 1)
        elif text in _TYPE_WORDS:
            while texts[index] not in ("{", ";", "(", ")", "="):
                index += 1
            if texts[index] == "{":
                index = match[index]
        elif texts[index - 1] in ("{", "}", ";") and around[-1] not in switches:
            declarator = _declarator(syntax, index, closing)
            if declarator is not None:
                yield index, declarator, syntax.statement_end(declarator, closing)
        index += 1


def _declarator(syntax: Syntax, index: int, end: int) -> int | None:
    """The first declarator of the declaration at ``index``; None if it is none."""
    texts, tokens = syntax.texts, syntax.tokens
    while texts[index] in _QUALIFIERS:
        index += 1
    if tokens[index].kind != IDENTIFIER or texts[index] in _NO_TYPES:
        return None
    try:
        declarator = type_end(syntax, index, end)
    except KernelCompileError:
        return None
    while texts[declarator] in _QUALIFIERS:
        declarator += 1
    is_name = tokens[declarator].kind == IDENTIFIER and texts[declarator + 1] in ("[", ";", ",", "=", "{")
    return declarator if is_name else None


def _variables(syntax: Syntax, begin: int, end: int) -> list[_Variable] | None:
    """The variables of a declaration; None if one of them is a pointer, a reference or something rarer."""
    texts = syntax.texts
    variables = []
    for name_at, last in syntax.split(begin, end):
        suffix_end = name_at + 1
        while texts[suffix_end] == "[" and suffix_end < last:
            if syntax.is_attribute(suffix_end) or texts[suffix_end + 1] == "]":
                return None
            suffix_end = syntax.match[suffix_end] + 1
        is_plain = syntax.tokens[name_at].kind == IDENTIFIER and (suffix_end == last or texts[suffix_end] in ("=", "{"))
        if not is_plain or "..." in texts[suffix_end:last]:
            return None
        variables.append(_Variable(name_at, suffix_end, last))
    return variables


def _mark(
    syntax: Syntax, rewriter: Rewriter, start: int, declarator: int, end: int, variables: list[_Variable]
) -> None:
    if not any(variable.is_array for variable in variables):
        for variable in variables:
            if not variable.has_initialiser and syntax.texts[declarator - 1] not in SCALARS:
                rewriter.after(end, _guard(syntax, variable, rewriter))
        return
    type_text = rewriter.inline(start, declarator)
    parts = []
    for variable in variables:
        suffix = rewriter.inline(variable.name_at + 1, variable.suffix_end)
        initialiser = rewriter.inline(variable.suffix_end, variable.end) if variable.has_initialiser else ""
        name = rewriter.inline(variable.name_at, variable.name_at + 1)
        if not variable.is_array:
            parts.append(
                f"{type_text} {name} {initialiser}; {'' if initialiser else _guard(syntax, variable, rewriter)}"
            )
            continue
        number = variable.name_at
        if variable.has_initialiser:
            first = variable.suffix_end + (syntax.texts[variable.suffix_end] == "=")
            if syntax.texts[first] != "{":
                return
            initialiser = f"= {{{{}}, {rewriter.inline(first, variable.end)}, {{}}}}"
        parts.append(
            f"typedef {type_text} __ost_type_{number} {suffix}; "
            f"__ost::LocalArray<__ost_type_{number}> __ost_array_{number} {initialiser}; "
            f"__ost_type_{number} &{name} = __ost_array_{number}.value; "
            f"__ost_array_{number}.fence({int(variable.has_initialiser)}, {_quoted(syntax, variable)});"
        )
    rewriter.delete(start, end + 1)
    rewriter.replace(start, " ".join(parts))


def _guard(syntax: Syntax, variable: _Variable, rewriter: Rewriter) -> str:
    name = rewriter.inline(variable.name_at, variable.name_at + 1)
    return f"__ost::LocalGuard __ost_guard_{variable.name_at}({name}, {_quoted(syntax, variable)});"


def _quoted(syntax: Syntax, variable: _Variable) -> str:
    return f'"{syntax.texts[variable.name_at]}"'
