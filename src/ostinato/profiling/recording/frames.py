"""A recording as a pandas data frame: one row for each dispatch, the columns of the view `dispatch_report`.

pandas is imported when a frame is asked for; this library does not depend on it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import MissingPackage
from . import statements
from .declaring import NONE, Flags, Ints, Kind, Texts
from .reader import Recording
from .schema import AMOUNTS, STATUSES, TABLES, UNAVAILABLE
from .tables import objects


def to_pandas(recording: Recording) -> Any:
    """A `pandas.DataFrame` of all dispatches, copies and fills that have a sample.

    Texts are categorical, and numbers that may be missing are nullable integers (`Int64`). Raises `MissingPackage`
    without pandas, and `RecordingError` for a recording that is damaged or does not fit in memory.
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise MissingPackage(
            "to_pandas() needs the package pandas: pip install pandas. Without it, recording.samples() gives NumPy"
            " columns, and any tool that reads SQLite reads the view dispatch_report of a recording's file"
        ) from None

    def text(values: Texts, rows: Ints, optional: bool) -> Any:
        numbers: dict[str, int] = {}
        codes = np.array(
            [-1 if optional and not value else numbers.setdefault(value, len(numbers)) for value in values], int
        )
        return pandas.Categorical.from_codes(codes[rows] if len(codes) else rows, list(numbers))

    def nullable(values: Ints, missing: Flags) -> Any:
        return pandas.arrays.IntegerArray(np.where(missing, 0, values), missing)

    return pandas.DataFrame(_columns(recording, text, nullable), copy=False)


def _columns(
    recording: Recording, text: Callable[[Texts, Ints, bool], Any], nullable: Callable[[Ints, Flags], Any]
) -> dict[str, Any]:
    submissions, samples, lists = recording.submissions, recording.samples(), recording.lists()
    samples = samples.where(submissions.plan[samples.submission] != NONE)
    owner = samples.submission
    rows = {
        "dispatches": np.arange(len(samples)),
        "submissions": owner,
        "devices": submissions.device[owner],
        "commands": lists.command[lists.first[submissions.plan[owner]] + samples.node],
    }
    untimed = samples.status == UNAVAILABLE
    ids = {name: recording.columns(name)["id"] for name in ("processes", "submissions")}
    columns: dict[str, Any] = {}
    for alias, source in statements.REPORT.items():
        table, _, name = source.partition(".")
        if name == "duration_ns":
            columns[alias] = nullable(samples.end_ns - samples.start_ns, untimed)
        elif name in AMOUNTS:
            columns[alias] = nullable(*_amount(recording, name, rows["commands"], owner))
        elif name == "status":
            columns[alias] = text(objects(STATUSES), samples.status.astype(np.int64), False)
        else:
            column = TABLES[table].column(name)
            values = getattr(samples, name) if table == "dispatches" else recording.columns(table)[name]
            if column.kind is Kind.SIZES:
                columns |= {part: values[rows[table], axis] for axis, part in enumerate(column.sql_names)}
            elif column.kind in (Kind.TEXT, Kind.WORD):
                columns[alias] = text(values, rows[table], column.optional)
            elif column.kind is Kind.TIME:
                columns[alias] = nullable(values, untimed)
            elif column.optional:
                columns[alias] = nullable(values[rows[table]], values[rows[table]] == NONE)
            elif column.kind is Kind.REFERENCE:
                columns[alias] = ids[column.table][values[rows[table]]]
            else:
                columns[alias] = values[rows[table]]
    return columns


def _amount(recording: Recording, name: str, command: Ints, owner: Ints) -> tuple[Ints, Flags]:
    """An amount of each dispatch, with what its submission's values make of it, and where it is missing."""
    constant: Ints = recording.columns("commands")[name][command]
    amount, missing = constant.copy(), constant == NONE
    terms, values, size = recording.terms, recording.values, len(recording.submissions)
    for row in np.flatnonzero(terms.amount == name).tolist():
        given = np.flatnonzero(values.param == terms.param[row])
        value, known = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        at = values.submission[given]
        value[at], known[at] = values.value[given], True
        chosen: Flags = command == terms.command[row]
        counted = np.maximum(value[owner[chosen]] + terms.plus[row], 0)
        if terms.upto[row] != NONE:
            counted = np.minimum(counted, terms.upto[row])
        amount[chosen] += terms.factor[row] * counted
        missing[chosen] |= ~known[owner[chosen]]
    return amount, missing
