"""Metal's rules: breaking one is loud, as it is under Metal's own validation layer."""

from __future__ import annotations


class BrokenRule(AssertionError):
    """Something that Metal would stop the process for."""


unraised: list[str] = []
"""Rules broken where nothing can be raised: in finalisers, and on the thread of completion handlers."""


def require(holds: object, what: str) -> None:
    """Raise unless a rule holds."""
    if not holds:
        raise BrokenRule(what)
