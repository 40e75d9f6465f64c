"""What a kernel reads before it waits for the dispatches that it depends on.

``ostinato::wait_for_all_but(a, b);`` as a statement of a kernel's body names arguments that the kernel reads before it.
On devices that start a dispatch while others still run, the kernel waits there, and not when it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from .declarations import Function
from .kernels import Parameter
from .syntax import Syntax
from .tokens import IDENTIFIER, fail

_NAME = "wait_for_all_but"
_LEAVING = frozenset({"return", "goto"})
_CALL = ["ostinato", "::", _NAME, "("]


def wait_of(syntax: Syntax, function: Function) -> range | None:
    """The tokens of the call at which the kernel waits, without its ``;``; None if the kernel waits when it begins.

    Only a statement of the body itself counts: all threads come to it.
    """
    if function.body is None:
        return None
    texts = syntax.texts
    first, end = function.body[0] + 1, function.body[1]
    if _NAME not in texts[first:end]:
        return None
    statement = first
    while statement < end:
        name = statement + (texts[statement] == "::")
        opening = name + len(_CALL) - 1
        if texts[name : opening + 1] == _CALL and texts[syntax.match[opening] + 1] == ";":
            if not _LEAVING.isdisjoint(texts[first:statement]):
                raise fail(
                    "a kernel must not return or use goto before it calls ostinato::wait_for_all_but",
                    syntax.tokens[name],
                )
            return range(statement, syntax.match[opening] + 1)
        statement = max(syntax.after_statement(statement), statement + 1)
    return None


def early_reads(syntax: Syntax, function: Function, parameters: Sequence[Parameter]) -> frozenset[str]:
    """The names of the arguments that a kernel reads before it waits.

    Raises if another of its buffers occurs before. Values (``constant T &``) may: they are read when the kernel begins.
    """
    call = wait_of(syntax, function)
    if call is None or function.body is None:
        return frozenset()
    inside = range(syntax.match[call[-1]] + 1, call[-1])
    named = frozenset(syntax.texts[at] for at in inside if syntax.tokens[at].kind == IDENTIFIER)
    waited_for = {each.name for each in parameters if each.role == "buffer" or _is_reference_to_device(each)} - named
    for at in range(function.body[0] + 1, call.start):
        name = syntax.texts[at]
        if name in waited_for and syntax.texts[at - 1] not in (".", "->", "::"):
            raise fail(
                f"kernel {function.name} uses argument {name!r} before ostinato::wait_for_all_but, which does not name "
                "it; name it there too, or use it behind the call",
                syntax.tokens[at],
            )
    return named


def _is_reference_to_device(parameter: Parameter) -> bool:
    return parameter.role == "value" and parameter.space != "constant"
