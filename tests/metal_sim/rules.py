"""Metal's rules: breaking one is loud, as it is under Metal's own validation layer."""

from __future__ import annotations


class BrokenRule(AssertionError):
    """Something that Metal would stop the process for."""


unraised: list[str] = []
"""Rules broken where nothing can be raised: in finalisers, and on the thread of completion handlers."""


def whole(value: object, what: str) -> int:
    """An unsigned integer, as PyObjC takes it: Python's own, and nothing that only looks like one."""
    require(type(value) is int and 0 <= value < 1 << 64, f"{what} is an unsigned integer, not {value!r}")
    assert isinstance(value, int)
    return value


def wholes(values: object, count: int, what: str) -> tuple[int, ...]:
    """A structure of unsigned integers, as PyObjC takes it: a tuple."""
    require(isinstance(values, tuple) and len(values) == count, f"{what} is a tuple of {count}, not {values!r}")
    assert isinstance(values, tuple)
    return tuple(whole(one, what) for one in values)


def require(holds: object, what: str) -> None:
    """Raise unless a rule holds."""
    if not holds:
        raise BrokenRule(what)
