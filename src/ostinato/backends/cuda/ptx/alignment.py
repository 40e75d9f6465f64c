"""What is known of the last bits of registers in PTX: those of addresses tell how they are aligned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .assignments import assignment

_BITS = re.compile(r"\s*and\.b(?P<size>32|64)\s+(?P<to>%\w+), (?P<of>%\w+), (?P<mask>\d+);\s*")
_ALIGNED = re.compile(r"\.align (\d+) \.b8 (\w+)\[")
_GENERIC = re.compile(r"cvt\.u64\.u32\s+%tmp, (?P<of>%r\d+);\s*cvta\.shared\.u64\s+(?P<to>%rd\d+), %tmp;")
_INTEGERS = re.compile(r"(?:\.lo|\.wide|\.[bsu](?:16|32|64)|\.(?:to\.)?shared)?\.[bsu](?:16|32|64)")
_MOST = 64


class TrailingZeros:
    """How many of its last bits are surely zero, for each register of a function."""

    def __init__(self, ptx: str, lines: Sequence[str], given: Mapping[str, int]) -> None:
        self._variables = {name: _zeros(int(alignment)) for alignment, name in _ALIGNED.findall(ptx)}
        self._assigned: dict[str, list[tuple[str, Sequence[str]]]] = {}
        for found in filter(None, map(assignment, lines)):
            if _INTEGERS.fullmatch(found.kind):
                self._assigned.setdefault(found.to, []).append((found.operation, found.operands))
        for generic in _GENERIC.finditer("\n".join(lines)):
            self._assigned.setdefault(generic["to"], []).append(("cvta", [generic["of"]]))
        self._given = given
        self._known: dict[str, int] = {}

    def of(self, register: str) -> int:
        """The fewest zeros that any assignment leaves; loops are solved as a greatest fixed point."""
        found = dict.fromkeys(self._reached(register), _MOST)
        changed = register not in self._known
        while changed:
            changed = False
            for each, before in found.items():
                found[each] = min(self._result(*assigned, found) for assigned in self._assigned[each])
                changed |= found[each] != before
        self._known.update(found)
        return self._known.get(register, 0)

    def of_variable(self, name: str) -> int:
        """Of its address."""
        return self._variables.get(name, 0)

    def _reached(self, register: str) -> list[str]:
        """The registers that it is computed from and that nothing but known assignments give a value."""
        reached: dict[str, None] = {}
        waiting = [register]
        while waiting:
            one = waiting.pop()
            assigned = self._assigned.get(one, ())
            if one not in reached and one not in self._known and assigned and len(assigned) == self._given[one]:
                reached[one] = None
                waiting += (operand for _, operands in assigned for operand in operands if operand.startswith("%"))
        return list(reached)

    def _result(self, operation: str, operands: Sequence[str], found: Mapping[str, int]) -> int:
        zeros = [self._operand(operand, found) for operand in operands]
        match operation:
            case "mov" | "cvt" | "cvta":
                return zeros[0]
            case "add" | "sub" | "or" | "xor" | "min" | "max":
                return min(zeros)
            case "and":
                return max(zeros)
            case "selp":
                return min(zeros[:2])
            case "mul":
                return min(sum(zeros), _MOST)
            case "mad":
                return min(zeros[0] + zeros[1], zeros[2])
            case "shl" if operands[1].isdigit():
                return min(zeros[0] + int(operands[1]), _MOST)
        return 0

    def _operand(self, operand: str, found: Mapping[str, int]) -> int:
        if operand.startswith("%"):
            return found.get(operand, self._known.get(operand, 0))
        return _zeros(int(operand)) if operand.lstrip("-").isdigit() else self._variables.get(operand, 0)


def _zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else _MOST


def without_known_bits(line: str, zeros: TrailingZeros) -> str:
    """A line that asks for bits that are surely zero, such as those that say how an address is aligned, answered."""
    found = _BITS.fullmatch(line)
    if found is None or int(found["mask"]) >> zeros.of(found["of"]):
        return line
    return f"\tmov.b{found['size']} {found['to']}, 0;"
