"""Findings about kernels, for people: what the checks of a device recorded, with names, places and advice.

Records that describe the same pair of places are one finding with a count: the same line may be compiled several
times, and be executed by any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..backends.kernel_findings import KernelAccess, KernelFinding, KernelMemory, KernelPlace
from ..ir.command_list import CapturedNode
from ..ir.commands import BufferBinding, Command, Dispatch
from .findings import ERROR, NOTE, Finding, argument_name, element_at, title
from .kinds import KINDS
from .number_texts import number_text

_FAR_BYTES = 1 << 40
_WRAPPED = 1 << 31


def findings_about(
    nodes: Sequence[CapturedNode], records: Iterable[KernelFinding], first: int = 0
) -> tuple[Finding, ...]:
    """The findings of a list of commands, errors first; `first` is the number of the first node."""
    folded: dict[object, KernelFinding] = {}
    for record in records:
        key = (record.kind, record.node, _places(record) or record)
        known = folded.get(key)
        folded[key] = record if known is None else replace(known, count=known.count + record.count)

    def follows(record: KernelFinding) -> bool:
        """Whether another finding says as much."""
        return record.kind == "relies on lockstep" and ("race", record.node, _places(record)) in folded

    findings = [_finding(nodes[record.node], record, first) for record in folded.values() if not follows(record)]
    return tuple(sorted(findings, key=lambda finding: not finding.is_error))


def _places(record: KernelFinding) -> frozenset[tuple[str, KernelPlace]]:
    """What its accesses did and where, in no order; empty if a place is not known."""
    known = [(access.what, access.place) for access in record.accesses if access.place is not None]
    if record.kind == "misaligned":  # one expression may be checked at several steps
        known = [(what, replace(place, column=None)) for what, place in known]
    return frozenset(known) if len(known) == len(record.accesses) else frozenset()


def _finding(node: CapturedNode, record: KernelFinding, first: int) -> Finding:
    memory, why, advice = _memory(node, record), "", KINDS[record.kind].advice
    if number := number_text(record):
        memory = _byte_of(node.command, record.value) if record.kind == "misaligned" else ""
        why = f"{_described(record.accesses[-1])}: {f'{memory}: ' if memory else ''}{number}"
        if record.kind == "out of bounds":
            advice = "check the index against the length of the array"
    elif record.kind == "out of bounds":
        memory, why, advice = _out_of_bounds(node.command, record)
    elif record.kind == "not written":
        why = f"no thread writes {memory}; {record.value:,} bytes of the argument are not written"
    elif record.kind == "divergent barrier" and len(record.accesses) == 1:
        why = f"{_described(record.accesses[0])} waits at a barrier; {record.value} threads of its group have returned"
    elif record.kind == "inactive lane":
        why = (
            f"{_described(record.accesses[0])} reads the value of lane {record.value}, which takes no part in the call"
        )
    elif record.kind == "divergent simdgroup function":
        lanes = ", ".join(str(lane) for lane in range(32) if record.value >> lane & 1)
        why = f"{_described(record.accesses[0])} meets its simdgroup without lanes {lanes}"
    else:
        about = f"{memory}: " if memory else ""
        why = about + " and ".join(map(_described, record.accesses))
    times = f" ({record.count:,} times)" if record.count > 1 else ""
    return Finding(
        ERROR if record.is_error else NOTE,
        record.kind,
        (first + record.node,),
        (title(node),),
        (node.place,),
        why + times,
        advice,
        access=record.accesses[-1].what if record.accesses else "",
        argument=memory,
        accesses=record.accesses,
        count=record.count,
    )


def _described(access: KernelAccess) -> str:
    """ "thread 5 of group 0 writes at x.metal:7:11"."""
    does = {"": "", "read": " reads", "write": " writes", "atomic read": " reads atomically"}
    place = f" at {access.place}" if access.place is not None else ""
    thread, group = position_text(access.thread), position_text(access.group)
    return f"thread {thread} of group {group}{does.get(access.what, ' writes atomically')}{place}"


def position_text(numbers: tuple[int, int, int]) -> str:
    """A position without trailing zeros: `5` in a row, `(5, 2)` in a plane."""
    x, y, z = numbers
    return f"({x}, {y}, {z})" if z else f"({x}, {y})" if y else str(x)


def _memory(node: CapturedNode, record: KernelFinding) -> str:
    """What lies at the address of a finding: an element of an argument, or a variable."""
    memory = record.memory
    if not memory.nbytes or not isinstance(node.command, Dispatch):
        return ""
    if memory.kind in ("threadgroup", "thread"):
        return _variable(memory)
    element = element_at(node.command, memory.address)
    if element is not None:
        return element[0]
    return _byte_of(node.command, memory.address)


def _byte_of(command: Command, address: int) -> str:
    """Which byte of which argument an address is; "" if it is in none."""
    if not isinstance(command, Dispatch):
        return ""
    for binding in command.bindings:
        if isinstance(binding, BufferBinding) and 0 <= address - binding.address < binding.nbytes:
            return f"byte {address - binding.address} of {_argument(command, binding)}"
    return ""


def _variable(memory: KernelMemory) -> str:
    end = memory.offset + memory.nbytes
    return f"{memory.kind} memory{f' {memory.name!r}' if memory.name else ''}, bytes {memory.offset} to {end}"


def _argument(command: Dispatch, binding: BufferBinding) -> str:
    return f"argument {binding.index} {argument_name(command, binding.index)}"


def _out_of_bounds(command: Command, record: KernelFinding) -> tuple[str, str, str]:
    """The argument nearest to an address that lies in none, the finding as text, and what to do.

    The runtime names it by its number, counted from 1: where neighbours were apart while the kernel ran, the address
    alone would not say it.
    """
    memory, access = record.memory, record.accesses[-1]
    does, place = _described(replace(access, place=None)), f", at {access.place}" if access.place is not None else ""
    advice = KINDS[record.kind].advice
    if memory.kind:
        return _variable(memory), f"{does} {_variable(memory)}, which lie in no array{place}", advice
    assert isinstance(command, Dispatch)
    nearest = command.bindings[record.value - 1] if record.value else None
    if nearest is None or (isinstance(nearest, BufferBinding) and abs(memory.address - nearest.address) > _FAR_BYTES):
        return "", f"{does} {memory.nbytes} bytes at {memory.address:#x}, far from all arguments{place}", advice
    name = f"argument {nearest.index} {argument_name(command, nearest.index)}"
    if not isinstance(nearest, BufferBinding):
        return name, f"{does} {memory.nbytes} bytes beside {name}, a value{place}", advice
    offset = memory.address - nearest.address
    distance = offset - nearest.nbytes if offset >= 0 else -offset
    side = f"{distance} bytes past its end" if offset >= 0 else f"{distance} bytes before its start"
    if offset >= 0 and distance <= 0:
        side = "right past its end" if distance == 0 else f"the last {memory.nbytes + distance} bytes past its end"
    if offset < 0:
        advice = "check the index at the first elements: it is below 0 there"
    elif distance >= _WRAPPED:
        advice = "look for an unsigned index that wrapped below 0, or an uninitialised index"
    return name, f"{does} byte {offset} of {name}, which has {nearest.nbytes} bytes: {side}{place}", advice
