"""What registers of PTX hold in each thread of a block, where that follows from the thread's number alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .assignments import Assignments

THREADS = 1024
"""As many as a block can have."""
_NUMBER = re.compile(r"-?\d+$")
_KIND = re.compile(r"(?:\.(?P<part>lo|wide|[bsu](?:16|32|64)))?\.(?P<type>[bsu](?:16|32|64))$")
_WIDTHS = {"%rs": 16, "%r": 32, "%rd": 64}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "mov": lambda x: x,
    "cvt": lambda x: x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "mad": lambda x, y, z: x * y + z,
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y,
    "shr": lambda x, y: x >> y,
}


@dataclass(frozen=True, slots=True)
class LaneValue:
    """The address of a variable, if there is one, and a number for each thread."""

    variable: str
    numbers: Any


class LaneValues:
    """Of one function; `given` counts how often each register is given a value."""

    def __init__(self, lines: Sequence[str], given: Mapping[str, int]) -> None:
        self._assignments = Assignments(lines, given)
        self._known: dict[str, LaneValue | None] = {"%tid.x": LaneValue("", np.arange(THREADS))}

    def of(self, register: str) -> LaneValue | None:
        """None where it depends on anything else."""
        for each in self._assignments.up_to(register, self._known):
            self._known[each] = self._computed(each)
        return self._known[register]

    def _computed(self, register: str) -> LaneValue | None:
        found = self._assignments.of(register)
        kind = _KIND.match(found.kind) if found is not None else None
        width = _WIDTHS.get(register.rstrip("0123456789"))
        if found is None or kind is None or width is None or found.operation not in _OPERATIONS:
            return None
        values = [self._operand(operand) for operand in found.operands]
        known = [value for value in values if value is not None]
        variables = [value.variable for value in known if value.variable]
        if len(known) < len(values) or len(variables) > 1 or (variables and found.operation not in ("mov", "add")):
            return None
        operands = [_extended(value.numbers, kind["type"]) for value in known]
        if found.operation == "mad" and kind["part"] == "wide":
            operands[2] = known[2].numbers  # it has the width of the sum
        if found.operation == "shr" and kind["type"] in ("b64", "u64") and (operands[0] < 0).any():
            return None  # not negative: its highest bit is set
        numbers = _OPERATIONS[found.operation](*operands)
        return LaneValue("".join(variables), _extended(numbers, f"u{width}"))

    def _operand(self, operand: str) -> LaneValue | None:
        if _NUMBER.match(operand):
            return LaneValue("", np.full(THREADS, int(operand) % (1 << 64), np.uint64).view(np.int64))
        return self._known.get(operand) if operand.startswith("%") else LaneValue(operand, np.zeros(THREADS, np.int64))


def _extended(numbers: Any, type_: str) -> Any:
    """Numbers of a type with up to 64 bits, as they are; 64 bits wrap by themselves."""
    bits = int(type_[1:])
    if bits == 64:
        return numbers
    numbers = numbers & ((1 << bits) - 1)
    return numbers - ((numbers >> (bits - 1)) << bits) if type_[0] == "s" else numbers
