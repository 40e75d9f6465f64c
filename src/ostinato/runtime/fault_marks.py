"""Which bytes of a device's memory a fault has left behind, half written or not written at all.

A submission that faults, and one that is not run because it depends on it, may have written any part of what its
commands write. Those bytes are marked with the fault. A mark goes when the bytes are overwritten whole (by the host, by
a fill or as the target of a copy), when their owner accepts them as they are, and when their memory is given back. A
dispatch never removes a mark, since nothing says that it writes every byte it may write; and it counts as using every
byte that is bound to it or declared for it.

Marks are kept twice: as of all work that has finished, and as of all work that is committed. What is committed next is
judged by the second, so that a queue with work in flight need not be waited for.
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
        found = merged([*self._ranges.get(fault, ()), *ranges])
        if found:
            self._ranges[fault] = found

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
        """What running these does to the marks; the fault whose marks stand in the way, if they cannot be run."""
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
        # Memory is given back at any moment and in any thread, so without taking the lock.
        self._given_back: deque[Range] = deque()

    def __bool__(self) -> bool:
        return bool(self._committed or self._finished)

    def at(self, begin: int, end: int) -> KernelFault | None:
        """The fault that has left some of these bytes behind, if one has."""
        if not self._committed or begin >= end:
            return None
        with self._lock:
            self._catch_up()
            return self._committed.at(begin, end)

    def remove(self, begin: int, end: int) -> None:
        """These bytes were written by the host, or are accepted. Nothing in flight uses them."""
        if self:
            with self._lock:
                self._catch_up()
                self._committed.remove(begin, end)
                self._finished.remove(begin, end)

    def give_back(self, begin: int, end: int) -> None:
        """Memory that nothing can reach any more: who gets it next gets undefined contents, which is no fault."""
        if self:
            self._given_back.append((begin, end))

    def commit(self, commands: CommandList) -> KernelFault | None:
        """Judge commands that are committed after everything so far; the fault that keeps them from running, if any."""
        if not self:
            return None
        with self._lock:
            self._catch_up()
            return self._committed.run(commands.commands)

    def finish(self, commands: CommandList, fault: KernelFault | None) -> None:
        """Commands that are the first of those in flight have run; or did not, or in part, because of a fault."""
        if fault is None and not self._finished:
            return
        with self._lock:
            self._catch_up()
            if fault is None:
                self._finished.run(commands.commands)
            else:
                self._finished.add(written(commands.commands), fault)

    def judge_again(self, in_flight: Sequence[tuple[CommandList, KernelFault | None]]) -> list[KernelFault | None]:
        """What keeps each of those in flight from running, now that more is known of what came before them.

        Each comes with what was known to keep it from running already.
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
    """All addresses that commands may write; one that may touch anything may write all that the list uses."""
    found: list[Range] = []
    for command in commands:
        if isinstance(command, Fill | Copy):
            found.append((command.target.address, command.target.address + command.target.nbytes))
        elif isinstance(command, Dispatch) and command.accesses is None:
            return _everything(commands)
        elif isinstance(command, Dispatch):
            found += [(one.begin, one.end) for one in command.accesses or () if one.write]
            found += [(one.address, one.address + one.nbytes) for one in bound(command) if one.writes]
    return merged(found)


def _used(command: Command, commands: Sequence[Command]) -> list[Range]:
    if isinstance(command, Dispatch) and command.accesses is None:
        return _everything(commands)
    return _touched(command)


def _everything(commands: Sequence[Command]) -> list[Range]:
    return merged(one for command in commands for one in _touched(command))


def _touched(command: Command) -> list[Range]:
    found = [(one.address, one.address + one.nbytes) for one in bound(command)]
    if isinstance(command, Dispatch):
        found += [(one.begin, one.end) for one in command.accesses or ()]
    return found


def _meets(ranges: Sequence[Range], begin: int, end: int) -> bool:
    """Whether ascending ranges that do not overlap share a byte with this one."""
    at = bisect_left(ranges, (end,))
    return begin < end and at > 0 and ranges[at - 1][1] > begin
