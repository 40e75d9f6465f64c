"""Bytes and operations that depend on a replay's parameter values, in a closed form that can be saved as data.

    base + Σ factor · min(max(value + plus, 0), upto)

over the terms, each of an integer parameter. That covers attention over a growing cache (one row more per token, up to
a window), and the sums that fusing dispatches needs.
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
        """The number for this value of the parameter."""
        counted = max(value + self.plus, 0)
        return self.factor * (counted if self.upto is None else min(counted, self.upto))


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of bytes or operations that depends on a replay's parameters. Made by `per`; `+` adds to it."""

    base: int
    terms: tuple[Term, ...]

    def at(self, values: Mapping[str, int]) -> int:
        """The number for these values of its parameters."""
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
    """The amount less `saved`, at least 0. Of an `Amount`, it is subtracted from the constant part."""
    if isinstance(amount, Amount):
        return replace(amount, base=max(amount.base - saved, 0))
    return max(amount - saved, 0)


def settled(amount: int | Amount | None, values: Mapping[str, int]) -> int | None:
    """The number for these parameter values; None when no amount was declared or a value is missing."""
    if isinstance(amount, Amount):
        return amount.at(values) if amount.params <= values.keys() else None
    return amount
