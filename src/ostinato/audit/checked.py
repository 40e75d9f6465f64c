"""Kernels checked while they run: a dispatch runs alone, in the checked build, on a copy of its memory.

Each bound range is placed far from all others, so that an access past its end does not land in another; overlapping
ranges stay one range. Inline values are placed like buffers. An access out of bounds ends the run; all else that the
checks find is found in one run. Of memory that nobody wrote before this dispatch the device knows it, and afterwards
the replica knows what the dispatch wrote of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..backends.kernel_findings import KernelFinding
from ..base.ranges import Range
from ..ir.command_list import CapturedNode
from ..ir.commands import Binding, BufferBinding, Dispatch, InlineBinding, Ordering, UnboundBinding
from ..runtime.queue import keep_for_good
from .differences import merged
from .findings import NOTE, Finding, title
from .guards import Arena, Room
from .kernels import findings_about
from .non_finite import NOTHING, NonFinite, led_to
from .replica import Replica
from .runner import Runner, TookTooLong

_ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class Requested:
    """What is looked for on request only."""

    nan: bool = False
    """The operation that made an output NaN or infinite."""
    overflow: bool = False
    """Overflow of signed integers."""
    unwritten: bool = False
    """Elements of outputs that no thread wrote."""


NOTHING_MORE = Requested()


@dataclass(frozen=True, slots=True)
class _Placed:
    """A range to be placed: its current addresses, or its bytes."""

    span: Range
    data: bytes | None
    arguments: tuple[int, ...]
    """The indices of the arguments in the range."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The result of running a dispatch in the checked build."""

    findings: tuple[Finding, ...] = ()
    unchecked: str = ""
    """Why it was not checked."""
    lost: int = 0
    """As `Coverage` has it."""
    ended: bool = False
    """Whether it ran to its end, so that the replica knows what it wrote."""


def run_checked(replica: Replica, index: int, runner: Runner, limit_s: float, became: NonFinite = NOTHING) -> Checks:
    """Run a dispatch in the checked build, from the state of the replica's shadow; `limit_s=0` skips the run.

    `became` says what it made NaN or infinite. Of the operations that make such numbers, only the first that can have
    led to it is reported: many are done on purpose, and leave nothing behind.
    """
    if not limit_s:
        return Checks(unchecked="it would take too long in the checked build")
    command = replica.commands[index]
    assert isinstance(command, Dispatch)
    node = replica.graph.nodes[index]
    checked = replace(command, kernel=runner.kernel(node.command), accesses=())  # type: ignore[arg-type]
    ranges = _ranges(replica, command)
    # At their own alignment, so that what is aligned in the program is aligned here, and nothing else.
    rooms = [Room(end - begin, _ALIGNMENT, begin % _ALIGNMENT) for begin, end in (each.span for each in ranges)]
    arena = Arena(rooms, at_end=False)
    where = {}
    followed: list[tuple[int, np.ndarray]] = []
    for room, placement in enumerate(ranges):
        if placement.data is not None:
            arena.block(room)[:] = bytearray(placement.data)
        elif rooms[room].nbytes:
            arena.block(room)[:] = replica.shadow(placement.span)
            unwritten = replica.unwritten(placement.span)
            if unwritten is not None:
                followed.append((arena.addresses[room], unwritten))
        where.update(dict.fromkeys(placement.arguments, (arena.addresses[room], placement.span[0])))
    placed = replace(checked, bindings=tuple(_bound_in(binding, where) for binding in command.bindings))
    try:
        status = runner.run_following(runner.listed([placed], Ordering.SERIAL), limit_s, followed)
    except TookTooLong as reason:
        keep_for_good(arena)
        return Checks(unchecked=str(reason))
    except KeyboardInterrupt:
        keep_for_good(arena)
        raise
    arena.close()
    records = [_judged(command, record) for record in status.findings if record.kind != "not a number"]
    origins = [record for record in status.findings if record.kind == "not a number" and led_to(record, became)]
    findings = findings_about([node._replace(command=placed)], [*records, *origins[:1]], first=index)
    if origins:
        findings = tuple(
            replace(finding, why=f"{finding.why}; {became.first}") if finding.kind == "not a number" else finding
            for finding in findings
        )
    if became.first and became.from_finite and not origins:
        findings += (_stored(node, index, became),)
    if not findings and status.failed:
        return Checks(unchecked=f"it stopped with signal {status.signal} at {status.address:#x}")
    return Checks(findings, lost=status.findings_lost, ended=not status.failed)


def _stored(node: CapturedNode, index: int, became: NonFinite) -> Finding:
    """A NaN or infinity in an output that no operation made: a constant, or bits taken for a float."""
    why = f"{became.first}, and no operation of the kernel made it of its arguments, which are finite"
    advice = "look for INFINITY, NAN or as_type in the kernel; nothing is wrong if it stores one on purpose"
    return Finding(NOTE, "not a number", (index,), (title(node),), (node.place,), why, advice)


def _judged(command: Dispatch, record: KernelFinding) -> KernelFinding:
    """A record whose accesses are in exclusive branches is a race: lockstep does not order these."""
    places = [access.place for access in record.accesses]
    if record.kind != "relies on lockstep" or command.kernel.origin is None or None in places:
        return record
    first, second = ((place.file, place.line, place.column) for place in places if place is not None)
    exclusive = command.kernel.origin.module.are_exclusive(command.kernel.name, first, second)
    return replace(record, kind="race") if exclusive else record


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
        ranges.append(_Placed((begin, end), None, inside))
    for binding in command.bindings:
        if isinstance(binding, InlineBinding):
            ranges.append(_Placed((0, len(binding.data)), binding.data, (binding.index,)))
        elif isinstance(binding, BufferBinding) and not binding.nbytes:
            ranges.append(_Placed((0, 0), b"", (binding.index,)))
    return ranges
