"""Kernels whose lanes may share memory in ways that only lockstep orders.

On a GPU the lanes of a simdgroup step together, so one lane may read what another has just written. Fibers run a lane
on to its next meeting point instead. A kernel is affected only if its lanes meet in simdgroup functions (others have no
business with simdgroups) and if it has memory that they can share: threadgroup memory, or a device buffer that it both
reads and writes. The analysis goes by names and tokens: it may name a kernel whose lanes keep apart.
"""

from __future__ import annotations

from .convergence import Convergence
from .kernels import KernelInstance, Parameter
from .syntax import Syntax


def lanes_may_share(instance: KernelInstance, syntax: Syntax, convergence: Convergence) -> bool:
    """Whether lanes of a simdgroup may depend on each other's memory accesses between two meetings."""
    begin, end = instance.function.body or (0, 0)
    names = {*syntax.texts[begin:end], *(token.text for token in instance.template_arguments)}
    if not (convergence.hidden_calls or names & convergence.meeting):
        return False
    if "threadgroup" in names or any(parameter.role == "shared" for parameter in instance.parameters):
        return True
    return any(
        _is_writable(parameter) and _is_read(parameter.name, begin, end, syntax) for parameter in instance.parameters
    )


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
