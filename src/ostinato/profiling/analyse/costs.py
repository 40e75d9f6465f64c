"""Bytes and flops of commands, also where they depend on parameter values of each submission.

A recording stores such an amount as a constant and terms, factor · min(max(value + plus, 0), upto), and the values with
each submission. Rates use the mean over the same dispatches as their times, so that a bandwidth is the sum of bytes
divided by the sum of times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..recording.schema import AMOUNTS
from .columns import ABSENT, Columns, Flags, Floats, Ints, amounts
from .statistics import split_by


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of each command, or of each dispatch; NaN where not known."""

    bytes_read: Floats
    bytes_written: Floats
    flops: Floats

    def each(self) -> tuple[Floats, Floats, Floats]:
        """In the order in which terms number them."""
        return self.bytes_read, self.bytes_written, self.flops


def declared_amounts(columns: Columns) -> Amounts:
    """The constant amounts of each command, without terms."""
    commands = columns.commands
    return Amounts(amounts(commands.bytes_read), amounts(commands.bytes_written), amounts(commands.flops))


def varying(columns: Columns) -> Flags:
    """The commands whose amounts depend on values of their submissions."""
    varies: Flags = np.zeros(len(columns.commands), bool)
    varies[columns.terms.command] = True
    return varies


def mean_amounts(columns: Columns, command: Ints, submission: Ints) -> Amounts:
    """The mean amounts of each command over dispatches, given by the row of the command and of the submission of each.

    Those of a command that varies are NaN if it has no dispatch here, or one without a value that it needs.
    """
    size, varies = len(columns.commands), varying(columns)
    with np.errstate(invalid="ignore"):
        means = [
            np.bincount(command, weights=amounts, minlength=size) / np.bincount(command, minlength=size)
            for amounts in amounts_of(columns, command, submission).each()
        ]
    return Amounts(*(np.where(varies, m, p) for m, p in zip(means, declared_amounts(columns).each(), strict=True)))


def amounts_of(columns: Columns, command: Ints, submission: Ints) -> Amounts:
    """The amounts of single dispatches, given by the row of the command and of the submission of each."""
    terms = columns.terms
    amounts = {name: getattr(declared_amounts(columns), name)[command] for name in AMOUNTS}
    dispatches = split_by(command, np.arange(len(command)), len(columns.commands)) if len(terms) else []
    value = {name: _values(columns, name) for name in dict.fromkeys(terms.param)}
    upto = np.where(terms.upto == ABSENT, np.inf, terms.upto)
    for row, (of, amount, param) in enumerate(zip(terms.command, terms.amount, terms.param, strict=True)):
        here = dispatches[of]
        counted = np.clip(value[param][submission[here]] + terms.plus[row], 0.0, upto[row])
        amounts[amount][here] += terms.factor[row] * counted
    return Amounts(**amounts)


def _values(columns: Columns, param: str) -> Floats:
    """The value of a parameter in each submission; NaN where it has none."""
    given = columns.values.where(columns.values.param == param)
    values = np.full(len(columns.submissions), np.nan)
    values[given.submission] = given.value
    return values
