"""Kernels whose lanes may share memory in ways that only lockstep orders.

On a GPU the lanes of a simdgroup step together, so one lane may read what another has just written. Fibers run a lane
on to its next meeting point instead, and loops one thread after the other. A kernel is affected if it has memory that
its lanes can share: threadgroup memory, or a device buffer that it both reads and writes; where no lane ever waits for
another, only one that it reads at another index than it writes. The analysis goes by names and tokens: it may name a
kernel whose lanes keep apart, and does not follow the pointers of kernels whose lanes never meet.
"""

from __future__ import annotations

from .convergence import Convergence
from .kernels import KernelInstance, Parameter
from .syntax import Syntax, text_of

_ASSIGNMENTS = frozenset("= += -= *= /= %= &= |= ^= <<= >>=".split())


def has_threadgroup_memory(instance: KernelInstance, syntax: Syntax) -> bool:
    """Whether a kernel names memory of its group."""
    begin, end = instance.function.body or (0, 0)
    return "threadgroup" in syntax.texts[begin:end] or any(each.role == "shared" for each in instance.parameters)


def lanes_may_share(instance: KernelInstance, syntax: Syntax, convergence: Convergence) -> bool:
    """Whether lanes of a simdgroup may depend on each other's memory accesses between two meetings."""
    if has_threadgroup_memory(instance, syntax):
        return True
    begin, end = instance.function.body or (0, 0)
    names = {*syntax.texts[begin:end], *(token.text for token in instance.template_arguments)}
    meets = convergence.hidden_calls or names & convergence.meeting
    is_shared = _is_read if meets else _is_read_elsewhere
    return any(_is_writable(each) and is_shared(each.name, begin, end, syntax) for each in instance.parameters)


def _is_writable(parameter: Parameter) -> bool:
    return parameter.space == "device" and not any(token.text == "const" for token in parameter.pointee)


def _is_read(name: str, begin: int, end: int, syntax: Syntax) -> bool:
    """Whether a pointer is used for anything but `name[…] = …` and being moved."""
    texts = syntax.texts
    for at in range(begin, end):
        if texts[at] != name or texts[at + 1] in ("+=", "-="):
            continue
        if texts[at + 1] != "[" or texts[syntax.match[at + 1] + 1] != "=":
            return True
    return False


def _is_read_elsewhere(name: str, begin: int, end: int, syntax: Syntax) -> bool:
    """Whether `name[…]` is read at an index that is spelled otherwise than one at which it is written."""
    texts = syntax.texts
    read: set[str] = set()
    written: set[str] = set()
    for at in range(begin, end):
        if texts[at] == name and texts[at + 1] == "[":
            closing = syntax.match[at + 1]
            index = text_of(syntax.tokens[at + 2 : closing])
            (written if texts[closing + 1] in _ASSIGNMENTS else read).add(index)
    return any(index != other for index in read for other in written)
