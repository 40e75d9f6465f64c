"""Out-of-bounds accesses: a dispatch runs alone, in the checked build, each bound range between guard regions.

Each range is placed twice, first with its end against a guard and then with its start; overlapping ranges stay one
range. Inline values are placed like buffers. The first access out of bounds ends the run and is reported: the thread,
read or write, the argument, and the distance. Reads of alignment padding (less than an element, usually nothing) are
not detected, nor are accesses to threadgroup memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..backends.protocol import Status
from ..base.ranges import Range
from ..ir.commands import Binding, BufferBinding, Dispatch, InlineBinding, Ordering, UnboundBinding
from ..runtime.queue import keep_for_good
from .differences import merged
from .findings import ERROR, Finding, argument_name, finding_about
from .guards import Arena, Room, Stray
from .replica import Replica
from .runner import Runner, TookTooLong

# Kernels may access memory in larger units than the type of their argument, if its alignment allows that.
_LARGEST_UNIT = 16
_WRAPPED = 1 << 31


@dataclass(frozen=True, slots=True)
class _Placed:
    """A range to be placed between guards: its current addresses, or its bytes."""

    span: Range
    data: bytes | None
    arguments: tuple[int, ...]
    """The indices of the arguments in the range."""
    alignment: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The result of running a dispatch between guards."""

    findings: tuple[Finding, ...] = ()
    unchecked: str = ""
    """Why the bounds were not checked, or not completely."""


def run_guarded(replica: Replica, index: int, runner: Runner, limit_s: float) -> Bounds:
    """Run a dispatch between guards, from the state of the replica's shadow; `limit_s=0` skips the run."""
    if not limit_s:
        return Bounds(unchecked="it would take too long in the checked build")
    command = replica.commands[index]
    assert isinstance(command, Dispatch)
    ranges = _ranges(replica, command)
    checked = replace(command, kernel=runner.kernel(replica.graph.nodes[index].command), accesses=())  # type: ignore[arg-type]
    findings: dict[tuple[int, bool], Finding] = {}
    unchecked: dict[bool, str] = {}
    for at_end in (True, False):
        for unit in (1, _LARGEST_UNIT):
            try:
                stray, status = _run(replica, checked, ranges, at_end, unit, runner, limit_s)
            except TookTooLong as reason:
                return Bounds(tuple(findings.values()), str(reason))
            unchecked.pop(at_end, None)
            if stray is not None:
                # If both placements detect it, the fault is reported: a canary does not know the thread.
                side = (stray.room, stray.offset < 0)
                if status.failed or side not in findings:
                    findings[side] = _finding(replica, index, ranges[stray.room], stray, status)
            elif status.failed:
                unchecked[at_end] = (
                    f"it stopped with signal {status.signal} at {status.address:#x}, outside of all guards"
                )
                continue  # perhaps the alignment: memory accessed in larger units than its type
            break
    return Bounds(tuple(findings.values()), next(iter(unchecked.values()), ""))


def _run(
    replica: Replica,
    command: Dispatch,
    ranges: Sequence[_Placed],
    at_end: bool,
    unit: int,
    runner: Runner,
    limit_s: float,
) -> tuple[Stray | None, Status]:
    rooms = []
    for placement in ranges:
        alignment = max(placement.alignment, unit)
        rooms.append(Room(placement.span[1] - placement.span[0], alignment, placement.span[0] % alignment))
    arena = Arena(rooms, at_end)
    where = {}
    for room, placement in enumerate(ranges):
        if placement.data is not None:
            arena.block(room)[:] = bytearray(placement.data)
        elif rooms[room].nbytes:
            arena.block(room)[:] = replica.shadow(placement.span)
        where.update(dict.fromkeys(placement.arguments, (arena.addresses[room], placement.span[0])))
    placed = replace(command, bindings=tuple(_bound_in(binding, where) for binding in command.bindings))
    try:
        status = runner.run(runner.listed([placed], Ordering.SERIAL), limit_s)
    except (TookTooLong, KeyboardInterrupt):
        keep_for_good(arena)
        raise
    with arena:
        return (arena.locate(status.address) if status.failed else arena.trampled()), status


def _bound_in(binding: Binding, where: Mapping[int, tuple[int, int]]) -> BufferBinding | UnboundBinding:
    if isinstance(binding, UnboundBinding):
        return binding
    begin, before = where[binding.index]
    if isinstance(binding, BufferBinding):
        return replace(binding, address=begin + (binding.address - before if binding.nbytes else 0))
    assert isinstance(binding, InlineBinding)
    return BufferBinding(binding.index, 0, begin, 0, len(binding.data), False)


def _ranges(replica: Replica, command: Dispatch) -> list[_Placed]:
    """The ranges to place: what is bound, extended to other declared memory of the same block at its distance."""
    alignments = dict(
        zip((binding.index for binding in command.bindings), command.kernel.argument_alignments, strict=True)
    )
    bound = [binding for binding in command.bindings if isinstance(binding, BufferBinding) and binding.nbytes]
    spans = [(binding.address, binding.address + binding.nbytes) for binding in bound]
    for access in command.accesses or ():
        if access.begin == access.end or any(begin <= access.begin and access.end <= end for begin, end in spans):
            continue
        block = replica.around((access.begin, access.end), 1 << 62)
        near = [span for span in spans if block[0] <= span[0] < block[1]]
        if not near:
            continue  # no argument lies in that block, so there is no distance to keep
        nearest = min(near, key=lambda span: max(access.begin - span[1], span[0] - access.end))
        spans.append((min(access.begin, nearest[0]), max(access.end, nearest[1])))
    ranges = []
    for begin, end in merged(spans):
        inside = tuple(binding.index for binding in bound if begin <= binding.address < end)
        ranges.append(_Placed((begin, end), None, inside, max(alignments[index] or 1 for index in inside)))
    for binding in command.bindings:
        alignment = alignments[binding.index] or 1
        if isinstance(binding, InlineBinding):
            ranges.append(_Placed((0, len(binding.data)), binding.data, (binding.index,), alignment))
        elif isinstance(binding, BufferBinding) and not binding.nbytes:
            ranges.append(_Placed((0, 0), b"", (binding.index,), alignment))
    return ranges


def _finding(replica: Replica, index: int, placed: _Placed, stray: Stray, status: Status) -> Finding:
    command = replica.commands[index]
    assert isinstance(command, Dispatch)
    begin = placed.span[0]
    beyond = stray.offset >= 0
    extents = {}
    for binding in command.bindings:
        if binding.index in placed.arguments:
            inline = isinstance(binding, InlineBinding)
            first = 0 if inline or not binding.nbytes else binding.address - begin  # type: ignore[union-attr]
            extents[binding.index] = (first, len(binding.data) if inline else binding.nbytes)  # type: ignore[union-attr]
    # Of several arguments in one range, the one at that end is reported.
    choose = max if beyond else min
    argument = choose(extents, key=lambda number: sum(extents[number]) if beyond else extents[number][0])
    first, nbytes = extents[argument]
    offset = stray.offset - first
    distance = offset - nbytes if beyond else -offset
    side = f"{distance} bytes past its end" if beyond else f"{distance} bytes before its start"
    if distance == 0:
        side = "right past its end"
    thread = f"thread {_position(status.thread)} " if status.thread is not None else "a thread "
    access = status.access if status.failed else "write"
    does = {"read": "reads", "write": "writes", "": "uses"}[access]
    name = f"argument {argument} {argument_name(command, argument)}"
    why = f"{thread}{does} byte {offset} of {name}, which has {nbytes} bytes: {side}"
    advice = "check the index against the size, or dispatch fewer threads"
    if not beyond:
        advice = "check the index at the first elements: it is below 0 there"
    elif distance >= _WRAPPED:
        advice = "look for an unsigned index that wrapped below 0, or an uninitialised index"
    return finding_about(replica.graph, ERROR, "out of bounds", (index,), why, advice, access=access, argument=name)


def _position(thread: tuple[int, int, int]) -> str:
    x, y, z = thread
    return f"({x}, {y}, {z})" if z else f"({x}, {y})" if y else str(x)
