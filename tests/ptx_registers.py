"""Where registers of PTX are given values and read: what may not change when lines are added to a function."""

from __future__ import annotations

import re
from collections import Counter

_BODY = re.compile(r"^\{.*?^\}", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(r"%[a-z]+\d+")
_SUMS = re.compile(r"mma\.\S+ \{([^}]*)\}")
_LAST = re.compile(r"(?:mov\.b32 (%r\d+), \{x, y\}|mov\.b32 \{([^}]*)\}, [abcd]|selp\.b32 (%r\d+), [ab], [ab], odd)")
_PLAIN = re.compile(r"(?:@!?%p\d+\s+)?(?P<name>[\w.:]+)\s+(?P<first>\{[^}]*\}|[^,]*)")
_STORING = ("st.", "red.", "bra", "bar.", "call", "ret", "membar", "fence", "cp.", "prefetch")


def written(line: str) -> list[str]:
    """The registers that a line gives values."""
    text = line.strip()
    if sums := _SUMS.search(text):
        return _REGISTER.findall(sums[1])
    if text.startswith("{"):
        return _REGISTER.findall(" ".join("".join(found) for found in _LAST.findall(text)))
    plain = _PLAIN.match(text)
    return [] if plain is None or plain["name"].startswith(_STORING) else _REGISTER.findall(plain["first"])


def read(line: str) -> list[str]:
    """The registers that a line reads."""
    left = Counter(_REGISTER.findall(line.split("//")[0] if "tile" not in line else line))
    left.subtract(written(line))
    return [register for register, count in left.items() if count > 0]


def assert_registers_hold(before: str, after: str) -> None:
    """Lines that only `after` has read registers that hold the same at any time.

    These registers are given a value on an earlier line, and nowhere else. Products are left out: the sums that they
    add to are given values in every round of a loop.
    """
    bodies = _BODY.findall(before), _BODY.findall(after)
    assert len(bodies[0]) == len(bodies[1])
    for old, new in zip(*bodies, strict=True):
        _assert_body_holds(old.split("\n"), new.split("\n"))


def _assert_body_holds(old: list[str], new: list[str]) -> None:
    given = Counter(register for line in new for register in written(line))
    known, kept = set(_REGISTER.findall("\n".join(old))), Counter(old)
    early = _read_early(old)
    assert _read_early(new) <= early, "a register is read that has no value yet"
    for line in new:
        if kept[line]:
            kept[line] -= 1
            continue
        for register in written(line):
            assert register in known or given[register] == 1, f"{register} is given several values: {line}"
        if "mma.sync" not in line:
            for register in read(line):
                assert given[register] == 1, f"{register} may have another value by now: {line}"


def _read_early(lines: list[str]) -> set[str]:
    """The registers that are read on a line before any that gives them a value."""
    given: set[str] = set()
    early: set[str] = set()
    for line in lines:
        early.update(register for register in read(line) if register not in given)
        given.update(written(line))
    return early
