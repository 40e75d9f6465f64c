"""Constants in generic lambdas, for compilers that lose them there.

NVRTC: ``[&](auto n) { each([&](auto m) { f<n.value, m.value>(); }); }`` needs only the type of ``n``, but a captured
``n`` is taken for a member of the inner lambda, whose value is not constant. So where a constant is needed, in template
arguments and ``if constexpr``, a value of the parameter's type is written for it; the type must have no state
(`__ost::stateless`, metal_cuda.h).

g++: ``constexpr short A = 2; using Row = Tile<wide ? A : 1>; each([&](auto n) { Box<A, Row> box; });`` captures ``A``
and then finds that it is not constant. A static constant is not captured.
"""

from __future__ import annotations

from collections.abc import Iterator

from .declarations import Declarations, Function
from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import IDENTIFIER


def spell_out_captured_constants(syntax: Syntax, rewriter: Rewriter) -> None:
    """Replaces parameters ``auto name`` of lambdas in the places of their bodies that need a constant."""
    texts = syntax.texts
    lambdas = list(_generic_lambdas(syntax))
    if not lambdas:
        return
    constant = _constant_places(syntax)
    for body, names in lambdas:
        for index in range(body, syntax.match[body]):
            if constant[index] and texts[index] in names and texts[index - 1] not in (".", "->", "::"):
                rewriter.replace(index, f"__ost::stateless<decltype({texts[index]})>()")


def make_constants_static(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Makes the constants static that a function with generic lambdas declares outside of them."""
    texts, match = syntax.texts, syntax.match
    bodies = [body for body, _ in _generic_lambdas(syntax)]
    if not bodies:
        return
    inside = bytearray(len(texts))
    for body in bodies:
        inside[body : match[body]] = b"\1" * (match[body] - body)
    for function in declarations.functions:
        if function.body is None or not any(inside[slice(*function.body)]) or _is_constexpr(syntax, function):
            continue
        for index in range(*function.body):
            if texts[index] == "constexpr" and texts[index - 1] in (";", "{", "}") and not inside[index]:
                rewriter.before(index, "static")


def _is_constexpr(syntax: Syntax, function: Function) -> bool:
    return "constexpr" in syntax.texts[function.start : function.name_at]


def _generic_lambdas(syntax: Syntax) -> Iterator[tuple[int, frozenset[str]]]:
    """The ``{`` of each lambda with parameters of type ``auto``, and their names."""
    texts, match = syntax.texts, syntax.match
    for index in range(syntax.count - 1):
        if texts[index] == "]" and texts[index + 1] == "(":
            closing = match[index + 1]
            names = frozenset(
                texts[at + 1]
                for at in range(index + 2, closing)
                if texts[at] == "auto" and syntax.tokens[at + 1].kind == IDENTIFIER and texts[at + 2] in (",", ")")
            )
            if names and closing + 1 < syntax.count and texts[closing + 1] == "{":
                yield closing + 1, names


def _constant_places(syntax: Syntax) -> bytearray:
    """Marks the tokens of template arguments and of the conditions of ``if constexpr``."""
    texts = syntax.texts
    constant = bytearray(len(texts))
    end = 0
    for index in range(syntax.count - 1):
        if texts[index] == "<" and syntax.tokens[index - 1].kind == IDENTIFIER:
            end = max(end, syntax.angle_end(index, in_expression=True) or 0)
        elif texts[index] == "(" and texts[index - 1] == "constexpr" and texts[index - 2] == "if":
            end = max(end, syntax.match[index])
        constant[index] = index < end
    return constant
