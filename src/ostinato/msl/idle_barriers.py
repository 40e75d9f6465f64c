"""Barriers that only keep the threads of a group in step: ``threadgroup_barrier(mem_flags::mem_none)`` in a loop that
stores nothing and calls nothing but arithmetic.

Kernels have them for the sake of caches, in flow that diverges too: threads that are outside of the matrix skip the
loop. On a GPU whose barriers wait for every thread, that never ends. Without such a barrier no result changes, since no
thread can see from the loop how far another one is.
"""

from __future__ import annotations

from .declarations import Declarations, Function
from .reflect import SCALARS
from .syntax import BEFORE_EXPRESSIONS, Syntax
from .tokens import IDENTIFIER
from .uniform_facts import ARITHMETIC, KEYWORDS, VECTOR, WORDS

_CALLED = ARITHMETIC | SCALARS.keys() | KEYWORDS | WORDS | {"threadgroup_barrier"}
_ORDERS_NOTHING = (["mem_flags", "::", "mem_none"], ["metal", "::", "mem_flags", "::", "mem_none"])
_LOOPS = frozenset(("for", "while", "do"))
_BEFORE_STATEMENTS = frozenset("; { } ( )".split())
_OF_TYPES = frozenset(":: < > , * &".split())
_NOT_TYPES = KEYWORDS | BEFORE_EXPRESSIONS
_SHARED = frozenset("auto device threadgroup threadgroup_imageblock & *".split())
"""What a declaration of a variable has in it if others may see what is stored there."""
_LONGEST = 32
"""Tokens of a declaration before its name; the names of longer ones are not known."""
_COMPONENTS = frozenset("xyzwrgba")


def idle_barriers(syntax: Syntax, declarations: Declarations, function: Function) -> set[int]:
    """The positions of the barriers of a function that may be left out."""
    assert function.body is not None
    by_loop: dict[int, list[int]] = {}
    around: list[int] = []
    for at in range(*function.body):
        while around and syntax.after_statement(around[-1]) <= at:
            around.pop()
        if syntax.texts[at] in _LOOPS:
            around.append(at)
        elif around and syntax.texts[at : at + 2] == ["threadgroup_barrier", "("]:
            orders_nothing = syntax.texts[at + 2 : syntax.match[at + 1]] in _ORDERS_NOTHING
            by_loop.setdefault(around[-1], []).extend([at] * orders_nothing)
    own = _own_variables(syntax, declarations, function) if by_loop else set()
    return {
        at
        for loop, barriers in by_loop.items()
        if all(_is_private(syntax, token, own) for token in range(loop, syntax.after_statement(loop)))
        for at in barriers
    }


def _own_variables(syntax: Syntax, declarations: Declarations, function: Function) -> set[str]:
    """Names that are declared in a body, each time as a value or an array of values that no other thread has."""
    assert function.body is not None
    texts, tokens = syntax.texts, syntax.tokens
    own, shared = set[str](), set(texts[function.opening : function.closing])
    indirect = _SHARED | {
        name for name, aliased in declarations.aliases.items() if any(token.text in ("*", "&") for token in aliased)
    }
    for at in range(*function.body):
        if tokens[at].kind != IDENTIFIER or texts[at + 1] not in ("=", ";", "[", ",", ")", "{", ":"):
            continue
        first = at
        while first > at - _LONGEST and (tokens[first - 1].kind == IDENTIFIER or texts[first - 1] in _OF_TYPES):
            first -= 1
        declared = texts[first:at]
        begins = first < at and tokens[first].kind == IDENTIFIER and texts[first - 1] in _BEFORE_STATEMENTS
        if begins and _NOT_TYPES.isdisjoint(declared):
            (own if indirect.isdisjoint(declared) else shared).add(texts[at])
    return own - shared


def _is_private(syntax: Syntax, at: int, own: set[str]) -> bool:
    """Whether the token at ``at`` neither calls what may store nor stores where another thread may look."""
    texts = syntax.texts
    if syntax.tokens[at].kind == IDENTIFIER and texts[at + 1] == "(" and texts[at - 1] != ">":
        return texts[at] in _CALLED or VECTOR.fullmatch(texts[at]) is not None
    if texts[at] == "(" and texts[at - 1] == ">":
        name = texts[syntax.angle_start(at - 1) - 1]
        return name in ("static_cast", "as_type") or VECTOR.fullmatch(name) is not None
    if not syntax.assigns(at):
        return True
    target = at + 1 if texts[at] in ("++", "--") and syntax.tokens[at + 1].kind == IDENTIFIER else at - 1
    while texts[target] in ("]", ")"):
        target = syntax.match[target] - 1
    if texts[target - 1] == "." and _COMPONENTS.issuperset(texts[target]):
        target -= 2
    if syntax.tokens[target - 1].kind == IDENTIFIER and texts[target - 1] not in _NOT_TYPES:
        return True  # declares what it assigns to
    return texts[target] in own and texts[target - 1] not in (".", "->", "::", "*")
