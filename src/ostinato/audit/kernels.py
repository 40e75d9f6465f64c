"""Findings about kernels, for people: what the checks of a device recorded, with names, places and advice.

Records that describe the same pair of places are one finding with a count: the same line may be compiled several
times, and be executed by any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..backends.kernel_findings import KernelAccess, KernelFinding, KernelPlace
from ..ir.command_list import CapturedNode, CommandList
from ..ir.commands import BufferBinding, Dispatch
from .findings import ERROR, NOTE, Finding, argument_name, element_at, title

_ADVICE = {
    "race": "put a barrier between the accesses whose flags cover this memory, make both atomic, or give each thread"
    " its own element",
    "relies on lockstep": "put a simdgroup_barrier between the accesses; Metal does not promise lockstep",
    "uninitialised": "write the memory before it is read",
    "out of bounds": "correct the index, or bind more memory",
    "misaligned": "access a vector at a multiple of its size, or read its elements one by one",
    "divergent barrier": "let all threads of the group reach the same barrier, or none",
    "divergent simdgroup function": "call it where all lanes of the simdgroup arrive",
    "not a number": "look at the operands of this line",
    "division by zero": "test the divisor first",
    "shift out of range": "shift by less than the number of bits",
    "signed overflow": "compute with unsigned integers or in a wider type",
    "conversion out of range": "clamp the value before it is converted",
    "device limit": "ask for less, or choose another device",
    "not written": "launch threads for all elements",
}


def findings_about(commands: CommandList, records: Iterable[KernelFinding]) -> tuple[Finding, ...]:
    """The findings of a list of commands, errors first."""
    folded: dict[object, KernelFinding] = {}
    for record in records:
        places = frozenset((access.what, access.place) for access in record.accesses)
        key = (record.kind, record.node, places if all(place for _, place in places) else record)
        known = folded.get(key)
        folded[key] = record if known is None else replace(known, count=known.count + record.count)
    racy = {
        (record.node, access.what, access.place)
        for record in folded.values()
        if record.kind == "race"
        for access in record.accesses
    }
    findings = [
        _finding(commands.nodes[record.node], record)
        for record in folded.values()
        # Which of two racing accesses came first is chance, and so is whether the memory was written by then.
        if record.kind != "uninitialised" or (record.node, *_last(record)) not in racy
    ]
    return tuple(sorted(findings, key=lambda finding: not finding.is_error))


def _last(record: KernelFinding) -> tuple[str, KernelPlace | None]:
    return record.accesses[-1].what, record.accesses[-1].place


def _finding(node: CapturedNode, record: KernelFinding) -> Finding:
    memory = _memory(node, record)
    return Finding(
        ERROR if record.is_error else NOTE,
        record.kind,
        (record.node,),
        (title(node),),
        (node.place,),
        _why(record, memory),
        _ADVICE[record.kind],
        access=record.accesses[-1].what if record.accesses else "",
        argument=memory,
        accesses=record.accesses,
        count=record.count,
    )


def _why(record: KernelFinding, memory: str) -> str:
    times = f" ({record.count:,} times)" if record.count > 1 else ""
    about = f"{memory}: " if memory else ""
    return about + " and ".join(map(_described, record.accesses)) + times


def _described(access: KernelAccess) -> str:
    place = f" at {access.place}" if access.place is not None else ""
    return f"{access.what or 'thread'}{place} by thread {_position(access.thread)} of group {_position(access.group)}"


def _position(numbers: tuple[int, int, int]) -> str:
    """A position without trailing zeros: `(5)` of a row, `(5, 2)` of a plane."""
    shown = numbers if numbers[2] else numbers[:2] if numbers[1] else numbers[:1]
    return f"({', '.join(map(str, shown))})"


def _memory(node: CapturedNode, record: KernelFinding) -> str:
    """What lies at the address of a finding: an element of an argument, or threadgroup memory."""
    if not record.nbytes or not isinstance(node.command, Dispatch):
        return ""
    element = element_at(node.command, record.address)
    if element is not None:
        return element[0]
    if record.kind == "out of bounds":
        return _beside(node.command, record)
    for binding in node.command.bindings:
        if isinstance(binding, BufferBinding) and 0 <= record.address - binding.address < binding.nbytes:
            return f"{argument_name(node.command, binding.index)} + {record.address - binding.address} bytes"
    return "threadgroup memory"


def _beside(command: Dispatch, record: KernelFinding) -> str:
    """The argument nearest to an address that lies in none."""
    bindings = [binding for binding in command.bindings if isinstance(binding, BufferBinding)]
    if not bindings:
        return f"{record.nbytes} bytes at {record.address:#x}"

    def gap(binding: BufferBinding) -> int:
        return max(binding.address - record.address, record.address + record.nbytes - binding.address - binding.nbytes)

    nearest = min(bindings, key=gap)
    name = argument_name(command, nearest.index)
    offset = record.address - nearest.address
    return f"{record.nbytes} bytes at offset {offset:,} of {name}, which has {nearest.nbytes:,} bytes"
