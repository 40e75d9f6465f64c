"""What commands moved and computed where that depends on the values of each submission.

A recording holds such an amount as a number and terms, factor · min(max(value + plus, 0), upto), and the values beside
each submission. Rates need the mean over the very dispatches whose times they use, so that a bandwidth is the sum of
bytes over the sum of times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .columns import Columns, Flags, Floats, Ints, amounts


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of each command, or of each dispatch; NaN where it is not known."""

    bytes_read: Floats
    bytes_written: Floats
    flops: Floats


def declared_amounts(columns: Columns) -> Amounts:
    """The amounts without their terms: all there is of a command that has none."""
    commands = columns.commands
    return Amounts(amounts(commands.bytes_read), amounts(commands.bytes_written), amounts(commands.flops))


def varying(columns: Columns) -> Flags:
    """The commands whose amounts depend on values of their submissions."""
    found: Flags = np.zeros(len(columns.commands), bool)
    found[columns.terms.command] = True
    return found


def mean_amounts(columns: Columns, command: Ints, submission: Ints) -> Amounts:
    """The mean amounts over dispatches, given by the row of the command and of the submission of each.

    Of a command that varies and has no dispatch here, or one without a value that it needs, they are not known.
    """
    plain, terms, size = declared_amounts(columns), columns.terms, len(columns.commands)
    found = [plain.bytes_read.copy(), plain.bytes_written.copy(), plain.flops.copy()]
    order = np.argsort(command, kind="stable")
    owner = submission[order]
    ends = np.cumsum(np.bincount(command, minlength=size))
    for row, (of, amount, param) in enumerate(
        zip(terms.command.tolist(), terms.amount.tolist(), terms.param.tolist(), strict=True)
    ):
        here = owner[int(ends[of - 1]) if of else 0 : int(ends[of])]
        counted = np.clip(columns.values[here, param] + terms.plus[row], 0.0, terms.upto[row])
        found[amount][of] += terms.factor[row] * counted.mean() if here.size else np.nan
    return Amounts(*found)


def amounts_of(columns: Columns, command: Ints, submission: Ints) -> Amounts:
    """The amounts of single dispatches, given by the row of the command and of the submission of each."""
    plain, terms = declared_amounts(columns), columns.terms
    found = [plain.bytes_read[command], plain.bytes_written[command], plain.flops[command]]
    for row, (of, amount, param) in enumerate(
        zip(terms.command.tolist(), terms.amount.tolist(), terms.param.tolist(), strict=True)
    ):
        here = np.flatnonzero(command == of)
        counted = np.clip(columns.values[submission[here], param] + terms.plus[row], 0.0, terms.upto[row])
        found[amount][here] += terms.factor[row] * counted
    return Amounts(*found)
