"""Which dispatches of a list may read some of their arguments before the dispatches that they depend on are done.

A kernel may say that it reads arguments before it waits (`Argument.early`). That is sound where no command of the list
writes what these arguments refer to. Values that come from memory are read when a kernel begins, so they count as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.ranges import Range, common, merged
from .commands import Barrier, BufferBinding, Command, Dispatch
from .hazards import accesses_of


def early_dispatches(commands: Sequence[Command]) -> frozenset[int]:
    """The indices of the dispatches that may do so."""
    candidates = [index for index, command in enumerate(commands) if any(_early_reads(command))]
    if not candidates:
        return frozenset()
    written: list[Range] = []
    for command in commands:
        accesses = accesses_of(command)
        if accesses is None:
            if isinstance(command, Barrier):
                continue
            return frozenset()  # it may write anything
        written += [(access.begin, access.end) for access in accesses if access.write]
    written = merged(written)
    return frozenset(index for index in candidates if not common(merged(_early_reads(commands[index])), written))


def _early_reads(command: Command) -> Iterator[Range]:
    """What a dispatch reads before it waits; nothing if its kernel waits first."""
    if not isinstance(command, Dispatch):
        return
    arguments = command.kernel.signature.arguments
    if not any(argument.early for argument in arguments):
        return
    for argument, binding in zip(arguments, command.bindings, strict=True):
        if isinstance(binding, BufferBinding) and (argument.early or argument.kind == "value"):
            yield binding.address, binding.address + binding.nbytes
