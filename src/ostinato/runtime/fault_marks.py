"""Fault marks: which bytes of a device's memory have undefined contents because of a fault.

A submission that faults, and one that is not run because it depends on it, may have written any part of what its
commands write. Those bytes are marked with the fault. A mark is removed when the bytes are overwritten (by the host, by
a fill or as the target of a copy), when their owner accepts them as they are, and when their memory is released. A
dispatch never removes a mark, because it need not write every byte that it may write. It counts as using every byte
that is bound to it or declared for it.

Marks are kept twice: after all finished work, and after all committed work. The next commit is checked against the
second, so that it need not wait for work in flight.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from ..base.locks import ForkLock
from ..base.ranges import Range, merged, without
from ..errors import KernelFault
from ..ir.command_list import CommandList
from ..ir.commands import BufferBinding, Command, Copy, Dispatch, Fill, bound


class _Marks:
    """Marked addresses, by fault."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: dict[KernelFault, list[Range]] | None = None) -> None:
        self._ranges = ranges or {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def copy(self) -> _Marks:
        return _Marks(dict(self._ranges))

    def add(self, ranges: Sequence[Range], fault: KernelFault) -> None:
        marked = merged([*self._ranges.get(fault, ()), *ranges])
        if marked:
            self._ranges[fault] = marked

    def remove(self, begin: int, end: int) -> None:
        for fault, ranges in list(self._ranges.items()):
            if _meets(ranges, begin, end):
                left = without(ranges, [(begin, end)])
                if left:
                    self._ranges[fault] = left
                else:
                    del self._ranges[fault]

    def at(self, begin: int, end: int) -> KernelFault | None:
        return next((fault for fault, ranges in self._ranges.items() if _meets(ranges, begin, end)), None)

    def run(self, commands: Sequence[Command]) -> KernelFault | None:
        """Update the marks as if these commands ran; returns the fault whose marks keep them from running, if any."""
        after = self.copy()
        for command in commands:
            if not after:
                break
            if isinstance(command, Fill):
                after._overwrite(command.target)
                continue
            if isinstance(command, Copy):
                used = [(command.source.address, command.source.address + command.source.nbytes)]
            else:
                used = _used(command, commands)
            for begin, end in used:
                fault = after.at(begin, end)
                if fault is not None:
                    self.add(written(commands), fault)
                    return fault
            if isinstance(command, Copy):
                after._overwrite(command.target)
        self._ranges = after._ranges
        return None

    def _overwrite(self, target: BufferBinding) -> None:
        self.remove(target.address, target.address + target.nbytes)


class FaultMarks:
    """The marks of one device."""

    __slots__ = ("_committed", "_finished", "_given_back", "_lock")

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._finished = _Marks()
        self._committed = _Marks()
        # Memory is released at any moment and in any thread, so this takes no lock.
        self._given_back: deque[Range] = deque()

    def __bool__(self) -> bool:
        return bool(self._committed or self._finished)

    def at(self, begin: int, end: int) -> KernelFault | None:
        """The fault that left some of these bytes undefined; None if there is none."""
        if not self._committed or begin >= end:
            return None
        with self._lock:
            self._catch_up()
            return self._committed.at(begin, end)

    def remove(self, begin: int, end: int) -> None:
        """Unmark bytes that the host wrote or accepted. No work in flight may use them."""
        if self:
            with self._lock:
                self._catch_up()
                self._committed.remove(begin, end)
                self._finished.remove(begin, end)

    def give_back(self, begin: int, end: int) -> None:
        """Unmark memory that nothing can reach any more; its next owner expects undefined contents."""
        if self:
            self._given_back.append((begin, end))

    def commit(self, commands: CommandList) -> KernelFault | None:
        """Check commands that are being committed; returns the fault that keeps them from running, if any."""
        if not self:
            return None
        with self._lock:
            self._catch_up()
            return self._committed.run(commands.commands)

    def finish(self, commands: CommandList, fault: KernelFault | None) -> None:
        """Record that the first commands in flight have run, or did not run completely because of `fault`."""
        if fault is None and not self._finished:
            return
        with self._lock:
            self._catch_up()
            if fault is None:
                self._finished.run(commands.commands)
            else:
                self._finished.add(written(commands.commands), fault)

    def judge_again(self, in_flight: Sequence[tuple[CommandList, KernelFault | None]]) -> list[KernelFault | None]:
        """Check all commands in flight again after a change; returns for each the fault that keeps it from running.

        Each list comes with the fault that was already known to keep it from running.
        """
        with self._lock:
            self._catch_up()
            self._committed = self._finished.copy()
            faults: list[KernelFault | None] = []
            for commands, known in in_flight:
                if known is None:
                    faults.append(self._committed.run(commands.commands) if self._committed else None)
                else:
                    self._committed.add(written(commands.commands), known)
                    faults.append(known)
            return faults

    def _catch_up(self) -> None:
        while self._given_back:
            begin, end = self._given_back.popleft()
            self._committed.remove(begin, end)
            self._finished.remove(begin, end)


def written(commands: Sequence[Command]) -> list[Range]:
    """All addresses that commands may write; a command that may touch anything may write all that the list uses."""
    ranges: list[Range] = []
    for command in commands:
        if isinstance(command, Fill | Copy):
            ranges.append((command.target.address, command.target.address + command.target.nbytes))
        elif isinstance(command, Dispatch) and command.accesses is None:
            return _everything(commands)
        elif isinstance(command, Dispatch):
            ranges += [(access.begin, access.end) for access in command.accesses or () if access.write]
            ranges += [
                (binding.address, binding.address + binding.nbytes) for binding in bound(command) if binding.writes
            ]
    return merged(ranges)


def _used(command: Command, commands: Sequence[Command]) -> list[Range]:
    if isinstance(command, Dispatch) and command.accesses is None:
        return _everything(commands)
    return _touched(command)


def _everything(commands: Sequence[Command]) -> list[Range]:
    return merged(touched for command in commands for touched in _touched(command))


def _touched(command: Command) -> list[Range]:
    ranges = [(binding.address, binding.address + binding.nbytes) for binding in bound(command)]
    if isinstance(command, Dispatch):
        ranges += [(access.begin, access.end) for access in command.accesses or ()]
    return ranges


def _meets(ranges: Sequence[Range], begin: int, end: int) -> bool:
    """Whether ascending, disjoint ranges share a byte with this one."""
    at = bisect_left(ranges, (end,))
    return begin < end and at > 0 and ranges[at - 1][1] > begin
