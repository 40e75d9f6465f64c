"""Instructions of PTX that compute one register from others and from numbers."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

_ASSIGNMENT = re.compile(
    r"\s*(?P<condition>@!?%p\d+\s+)?(?P<operation>\w+)(?P<kind>[\w.]*)\s+(?P<to>%\w+), (?P<operands>[^;{}\[\]]+);\s*"
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One instruction; `kind` is what follows its name, such as `.lo.s32`."""

    to: str
    operation: str
    kind: str
    operands: tuple[str, ...]
    is_conditional: bool
    """Whether the register may keep what it had."""


def assignment(line: str) -> Assignment | None:
    """The instruction of a line, if it computes a register and neither reads memory nor packs registers."""
    found = _ASSIGNMENT.fullmatch(line)
    if found is None:
        return None
    operands = tuple(operand.strip() for operand in found["operands"].split(","))
    return Assignment(found["to"], found["operation"], found["kind"], operands, found["condition"] is not None)


class Assignments:
    """Of the registers that one instruction always gives their value; `given` counts how often each is given one."""

    def __init__(self, lines: Sequence[str], given: Mapping[str, int]) -> None:
        found = filter(None, map(assignment, lines))
        self._by_register = {each.to: each for each in found if given[each.to] == 1 and not each.is_conditional}

    def of(self, register: str) -> Assignment | None:
        return self._by_register.get(register)

    def up_to(self, register: str, known: Container[str]) -> list[str]:
        """The register and those it is computed from that are not `known`, each behind its operands.

        Only where registers depend on themselves, one comes before its operand.
        """
        order: dict[str, None] = {}
        seen: set[str] = set()
        waiting = [] if register in known else [register]
        while waiting:
            last = waiting[-1]
            found = None if last in seen else self.of(last)
            seen.add(last)
            ahead = [] if found is None else [each for each in found.operands if each.startswith("%")]
            ahead = [each for each in ahead if each not in known and each not in seen]
            if ahead:
                waiting += ahead
            else:
                order[waiting.pop()] = None
        return list(order)
