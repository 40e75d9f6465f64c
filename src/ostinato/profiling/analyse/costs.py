"""Bytes and flops of commands, also where they depend on parameter values of each submission.

A recording stores such an amount as a constant and terms, factor · min(max(value + plus, 0), upto), and the values with
each submission. Rates use the mean over the same dispatches as their times, so that a bandwidth is the sum of bytes
divided by the sum of times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Columns, Flags, Floats, Ints, amounts
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
    amounts = [column[command] for column in declared_amounts(columns).each()]
    dispatches = split_by(command, np.arange(len(command)), len(columns.commands)) if len(terms) else []
    for row, (of, amount, param) in enumerate(
        zip(terms.command.tolist(), terms.amount.tolist(), terms.param.tolist(), strict=True)
    ):
        here = dispatches[of]
        counted = np.clip(columns.values[submission[here], param] + terms.plus[row], 0.0, terms.upto[row])
        amounts[amount][here] += terms.factor[row] * counted
    return Amounts(*amounts)
