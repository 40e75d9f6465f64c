"""What a kernel reads before it waits for the dispatches that it depends on.

``ostinato::wait_for_all_but(a, b);`` as a statement of a kernel's body names arguments that the kernel reads before it.
On devices that start a dispatch while others still run, the kernel waits there, and not when it begins.
"""

from __future__ import annotations

from .declarations import Function
from .syntax import Syntax
from .tokens import IDENTIFIER, fail

_CALL = ["ostinato", "::", "wait_for_all_but", "("]


def wait_of(syntax: Syntax, function: Function) -> int | None:
    """Where the kernel waits: the index of the call's first token; None if it waits when it begins."""
    if function.body is None:
        return None
    texts = syntax.texts
    index, end = function.body[0] + 1, function.body[1] - 1
    returned = False
    while index < end:
        if texts[index : index + len(_CALL)] == _CALL:
            if returned:
                raise fail("a kernel must not return before it calls ostinato::wait_for_all_but", syntax.tokens[index])
            return index
        if texts[index] == "{":
            returned |= "return" in texts[index : syntax.match[index]]
            index = syntax.match[index]
        returned |= texts[index] == "return"
        index += 1
    return None


def early_reads(syntax: Syntax, function: Function) -> frozenset[str]:
    """The names of the arguments that a kernel reads before it waits."""
    call = wait_of(syntax, function)
    if call is None:
        return frozenset()
    opening = call + len(_CALL) - 1
    inside = range(opening + 1, syntax.match[opening])
    return frozenset(syntax.texts[at] for at in inside if syntax.tokens[at].kind == IDENTIFIER)
