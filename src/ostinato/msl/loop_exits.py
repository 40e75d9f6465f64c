"""Exits of loops, for kernels whose simdgroups run as vectors.

``if (x) { sum = simd_sum(1u); break; }``: the lanes that leave a loop do so in their iteration, before the others begin
the next. To a compiler such a block is no part of the loop, and it would run when all lanes have left. So in loops with
simdgroup functions or atomics a lane that leaves goes to the end of the body first, where a call that the compiler must
not move, ``__ost_turn``, keeps the ways of an iteration together. So does one that continues: of a second way back to
the beginning a compiler may make a loop of its own, in which lanes run ahead of the others.

What a function returns is kept until behind the loop. Where its type is not written out (`auto`, references), a
`return` is left as it is; so are loops in `constexpr` functions and lambdas.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .convergent_calls import find_calls
from .declarations import Declarations, Function
from .rewriter import Rewriter
from .syntax import ADDRESS_SPACES, Syntax

_NO_TYPES = frozenset({"static", "inline", "extern", "METAL_FUNC", "kernel"})
_UNKNOWN_TYPES = frozenset({"auto", "decltype", "&", "&&", "const", "operator"})


@dataclass(slots=True)
class _Loop:
    begin: int
    body: range
    end: int
    breaks: list[int] = field(default_factory=list)
    continues: list[int] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)
    around: _Loop | None = None

    @property
    def leaving(self) -> str:
        """How a lane leaves the loop."""
        return f"__ost_left_{self.begin} = true; goto __ost_turn_{self.begin};"

    @property
    def returning(self) -> str:
        """The same for a lane that returns."""
        return f"__ost_returned_{self.begin} = true; {self.leaving}"


def keep_exits_inside(
    syntax: Syntax, declarations: Declarations, names: Collection[str], rewriter: Rewriter, skipped: Collection[int]
) -> None:
    """Rewrites the loops with calls of ``names`` or atomics, except in functions at ``skipped`` positions."""
    calls = find_calls(syntax, declarations, names, skipped)
    meets = [0]
    for index, text in enumerate(syntax.texts):
        meets.append(meets[-1] + (index in calls.openings or text.startswith("atomic_")))
    for function in declarations.functions:
        if function.body is None or function.name_at in skipped or rewriter.is_deleted(function.body[0]):
            continue
        has_labels = "constexpr" not in syntax.texts[function.start : function.name_at]
        if has_labels and meets[function.body[1]] > meets[function.body[0]]:
            type_ = _type(syntax, function)
            _rewrite(_loops(syntax, range(*function.body), meets, type_), type_, syntax, rewriter)


def _type(syntax: Syntax, function: Function) -> str | None:
    """What a function returns; "" for nothing, None if that is not written out."""
    words: list[str] = []
    index = function.templates[-1].end + 1 if function.templates else function.start
    while index < function.name_at:
        text = syntax.texts[index]
        if text in _UNKNOWN_TYPES or function.special:
            return None
        if text == "__attribute__":
            index = syntax.match[index + 1]
        elif text == "[" and syntax.texts[index + 1] == "[":
            index = syntax.match[index]
        elif text not in _NO_TYPES | ADDRESS_SPACES:
            words.append(text)
        index += 1
    return "" if words == ["void"] else " ".join(words) or None


def _loops(syntax: Syntax, body: range, meets: list[int], type_: str | None) -> list[_Loop]:
    """The loops of a body that matter, with their own exits, outer ones first."""
    texts, match = syntax.texts, syntax.match
    loops: list[_Loop] = []
    # The statements around a place that `break` may leave, by their end, with the word that they begin with.
    breakable: list[tuple[int, _Loop | None, str]] = []
    lambdas: list[int] = []
    conditions: set[int] = set()  # of `do`
    for index in body:
        while breakable and breakable[-1][0] <= index:
            breakable.pop()
        while lambdas and lambdas[-1] <= index:
            lambdas.pop()
        text = texts[index]
        around = next((loop for _, loop, _ in reversed(breakable) if loop is not None), None)
        if text in ("for", "while", "do") and index not in conditions:
            first = index + 1 if text == "do" else match[index + 1] + 1
            after = syntax.after_statement(first)
            if text == "do":
                conditions.add(after)
            loop = _Loop(index, range(first, after), syntax.after_statement(index), around=around)
            matters = meets[loop.end] > meets[index] and not lambdas
            breakable.append((after, loop if matters else None, text))
            if matters:
                loops.append(loop)
        elif text == "switch":
            breakable.append((syntax.after_statement(index), None, text))
        elif text == "break" and breakable and breakable[-1][1] is not None:
            breakable[-1][1].breaks.append(index)
        elif text == "continue":
            inmost = next((loop for _, loop, word in reversed(breakable) if word != "switch"), None)
            if inmost is not None:
                inmost.continues.append(index)
        elif text == "return" and type_ is not None and around is not None and not lambdas:
            around.returns.append(index)
        elif text == "{" and texts[index - 1] in (")", "mutable") and _is_lambda(syntax, index):
            lambdas.append(match[index])
    return loops


def _is_lambda(syntax: Syntax, brace: int) -> bool:
    closing = brace - 1 if syntax.texts[brace - 1] == ")" else brace - 2
    return syntax.texts[closing] == ")" and syntax.texts[syntax.match[closing] - 1] == "]"


def _rewrite(loops: list[_Loop], type_: str | None, syntax: Syntax, rewriter: Rewriter) -> None:
    returning = [loop for loop in loops if loop.returns]
    for loop in returning:  # and those around it
        if loop.around is not None and loop.around not in returning:
            returning.append(loop.around)
    for loop in loops:
        for index in loop.breaks:
            rewriter.replace(index, f"{{ {loop.leaving}")
            rewriter.after(index + 1, "}")
        for index in loop.continues:
            rewriter.replace(index, f"goto __ost_turn_{loop.begin}")
        for index in loop.returns:
            rewriter.replace(index, f"{{ __ost_kept_{loop.begin}.value =" if type_ else "{")
            rewriter.after(syntax.after_statement(index) - 1, f"{loop.returning} }}")
    for loop in reversed(loops):
        name = loop.begin
        left = loop.breaks or loop in returning
        rewriter.before(loop.body.start, f"{{ bool __ost_left_{name} = false; {{ " if left else "{ { ", outermost=True)
        turn = f"__ost_turn_{name}: __ost_turn();" if left or loop.continues else "__ost_turn();"
        turn = f"}} {turn} if (__ost_left_{name}) break; }}" if left else f"}} {turn} }}"
        rewriter.after(loop.body.stop - 1, turn)
        if loop not in returning:
            continue
        kept = f"__ost::Kept<{type_}> __ost_kept_{name}; " if type_ else ""
        rewriter.before(loop.begin, f"{{ {kept}bool __ost_returned_{name} = false; ", outermost=True)
        onwards = f"return{f' __ost_kept_{name}.value' if type_ else ''};"
        if loop.around is not None:
            passed = f"__ost_kept_{loop.around.begin}.value = __ost_kept_{name}.value; " if type_ else ""
            onwards = passed + loop.around.returning
        rewriter.after(loop.end - 1, f" if (__ost_returned_{name}) {{ {onwards} }} }}")
