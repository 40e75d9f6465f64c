"""Bytes and operations that depend on the values of a replay, in a closed form that can be saved and never executed.

    base + Σ factor · min(max(value + plus, 0), upto)

over the terms, each of a parameter with whole numbers as values. That is what attention to a growing cache needs (a row
more with every token, up to a window), and what is added up when dispatches are fused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

MOST = (1 << 63) - 1
"""The largest number in an amount."""


@dataclass(frozen=True, slots=True)
class Term:
    """factor · min(max(value + plus, 0), upto), where `value` is that of a parameter; no limit if `upto` is None."""

    param: str
    factor: int
    plus: int = 0
    upto: int | None = None

    def at(self, value: int) -> int:
        """What it is for that value."""
        counted = max(value + self.plus, 0)
        return self.factor * (counted if self.upto is None else min(counted, self.upto))


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of bytes or operations that each replay's values settle; `per` makes one, and sums with `+`."""

    base: int
    terms: tuple[Term, ...]

    def at(self, values: Mapping[str, int]) -> int:
        """What it is for these values of its parameters."""
        return self.base + sum(term.at(int(values[term.param])) for term in self.terms)

    @property
    def params(self) -> frozenset[str]:
        """The names of the parameters that it depends on."""
        return frozenset(term.param for term in self.terms)

    def __add__(self, other: object) -> Amount:
        if isinstance(other, Amount):
            return Amount(self.base + other.base, self.terms + other.terms)
        if type(other) is int and other >= 0:
            return replace(self, base=self.base + other)
        return NotImplemented

    __radd__ = __add__


def less(amount: int | Amount, saved: int) -> int | Amount:
    """The amount without some of it, at least 0. What does not change comes off the part that does not change."""
    if isinstance(amount, Amount):
        return replace(amount, base=max(amount.base - saved, 0))
    return max(amount - saved, 0)


def settled(amount: int | Amount | None, values: Mapping[str, int]) -> int | None:
    """The number for these values; None where there is none, or where a value that it needs is not given."""
    if isinstance(amount, Amount):
        return amount.at(values) if amount.params <= values.keys() else None
    return amount
