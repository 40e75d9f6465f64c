"""Two extensions that Apple's compiler has and others lack: ``case 4 ... 6:`` and ``{[1] = x}`` for elements of arrays.

They become plain C++ where the numbers are known to the front end, and stay as they are elsewhere.
"""

from __future__ import annotations

from .constant_expression import NotConstant, Value, evaluate, whole
from .declarations import Declarations
from .rewriter import Rewriter
from .syntax import Syntax
from .tokens import Token

_MOST = 1024
"""Labels that a range becomes, and elements of an array that are written out."""


def rewrite_case_ranges(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Turns every range of cases into a label for each of its values."""
    texts = syntax.texts
    for index, text in enumerate(texts):
        if text != "case":
            continue
        end = index + 1
        dots = 0
        while end < syntax.count and texts[end] not in (":", ";", "{", "}", "case"):
            dots = end if texts[end] == "..." else dots
            end = max(end, syntax.match[end]) + 1
        if not dots or texts[end] != ":":
            continue
        first = _number(declarations, syntax.tokens[index + 1 : dots])
        last = _number(declarations, syntax.tokens[dots + 1 : end])
        if first is None or last is None or not 0 <= last - first < _MOST:
            continue
        labels = " : case ".join(str(value) for value in range(first, last + 1))
        rewriter.delete(index + 1, end)
        rewriter.replace(index + 1, labels)


def rewrite_element_designators(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> None:
    """Writes out lists of elements of which some are named by their index."""
    texts, match = syntax.texts, syntax.match
    if not any(texts[index - 1] in ("{", ",") and _is_designated(syntax, index) for index in range(1, syntax.count)):
        return
    for brace in range(syntax.count - 1, -1, -1):  # lists inside of others first
        if texts[brace] != "{" or rewriter.is_deleted(brace):
            continue
        parts = [part for part in syntax.split(brace + 1, match[brace]) if part[0] < part[1]]
        if not any(_is_designated(syntax, begin) for begin, _ in parts):
            continue
        places: list[int] = []
        for begin, _ in parts:
            named = _number(declarations, syntax.tokens[begin + 1 : match[begin]]) if texts[begin] == "[" else None
            if _is_designated(syntax, begin):
                places.append(-1 if named is None else named)
            else:
                places.append(places[-1] + 1 if places else 0)
        if min(places) < 0 or max(places) >= _MOST:
            continue
        values = ["{}"] * (max(places) + 1)
        for place, (begin, end) in zip(places, parts, strict=True):
            value_at = match[begin] + 2 if _is_designated(syntax, begin) else begin
            values[place] = rewriter.inline(value_at, end)
        rewriter.delete(brace + 1, match[brace])
        rewriter.replace(brace + 1, ", ".join(values))


def _is_designated(syntax: Syntax, begin: int) -> bool:
    texts = syntax.texts
    return texts[begin] == "[" and texts[syntax.match[begin] + 1] == "=" and texts[begin + 1] != "["


def _number(declarations: Declarations, tokens: list[Token]) -> int | None:
    """The value of a constant expression; None if it is not known here."""
    visiting: set[str] = set()

    def lookup(name: str) -> Value:
        if name in visiting:
            raise NotConstant(f"{name} depends on itself")
        visiting.add(name)
        try:
            enumerator = declarations.enumerators.get(name)
            if enumerator is not None:
                return enumerator.value(declarations.enumerators, lookup)
            raise NotConstant(f"{name} is not known")
        finally:
            visiting.discard(name)

    try:
        return whole(evaluate(tokens, lookup))
    except NotConstant:
        return None
