"""A recording as a data frame: one row for each dispatch, with the columns of the view `dispatch_report`.

The columns are made once, as NumPy arrays; each library turns them into its own without a loop over dispatches. pandas,
Polars and PyArrow are imported when a frame is asked for; this library does not depend on them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.extras import install_command
from ...errors import MissingPackage
from . import statements
from .declaring import NONE, Flags, Ints, Kind, Texts
from .reader import Recording
from .schema import AMOUNTS, STATUSES, TABLES, UNAVAILABLE
from .tables import objects


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts, few of them different."""

    words: list[str]
    code: NDArray[np.int32]
    """The number of each row's word; -1 for a text that is missing."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of integers of which some may be missing."""

    values: Ints
    missing: Flags


Column = Words | Numbers | NDArray[Any]
"""A column without missing values is an array."""


def to_pandas(recording: Recording) -> Any:
    """A `pandas.DataFrame` of all dispatches, copies and fills that have a sample.

    Texts are categorical, and numbers that may be missing are nullable integers (`Int64`). Raises `MissingPackage`
    without pandas, and `RecordingError` for a recording that is damaged or does not fit in memory.
    """
    pandas = _imported("pandas", "to_pandas()", "pandas")

    def made(column: Column) -> Any:
        if isinstance(column, Words):
            return pandas.Categorical.from_codes(column.code, column.words)
        if isinstance(column, Numbers):
            return pandas.arrays.IntegerArray(column.values, column.missing)
        return column

    return pandas.DataFrame({name: made(column) for name, column in columns_of(recording).items()}, copy=False)


def to_polars(recording: Recording) -> Any:
    """The same as a `polars.DataFrame`. Texts are categorical, and what is missing is null."""
    polars = _imported("polars", "to_polars()", "polars")

    def made(column: Column) -> Any:
        if isinstance(column, Words):
            code = polars.Series(column.code)
            return polars.Series(column.words, dtype=polars.Categorical).gather(code.set(code < 0, None))
        if isinstance(column, Numbers):
            return polars.Series(column.values).set(polars.Series(column.missing), None)
        return polars.Series(column)

    return polars.DataFrame({name: made(column) for name, column in columns_of(recording).items()})


def to_arrow(recording: Recording) -> Any:
    """The same as a `pyarrow.Table`. Texts are dictionaries, and what is missing is null."""
    arrow = _imported("pyarrow", "to_arrow()", "arrow")

    def made(column: Column) -> Any:
        if isinstance(column, Words):
            code = arrow.array(column.code, mask=column.code < 0)
            return arrow.DictionaryArray.from_arrays(code, arrow.array(column.words, arrow.string()))
        if isinstance(column, Numbers):
            return arrow.array(column.values, mask=column.missing)
        return arrow.array(column)

    return arrow.table({name: made(column) for name, column in columns_of(recording).items()})


def _imported(module: str, function: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPackage(
            f"{function} needs the package {module}: {install_command(extra)}. Without it, recording.samples() gives"
            " NumPy columns, and any tool that reads SQLite reads the view dispatch_report of a recording's file"
        ) from None


def columns_of(recording: Recording) -> dict[str, Column]:
    """The columns of the view `dispatch_report`, a row for each sample."""
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
    columns: dict[str, Column] = {}
    for alias, source in statements.REPORT.items():
        table, _, name = source.partition(".")
        if name == "duration_ns":
            columns[alias] = Numbers(np.where(untimed, 0, samples.end_ns - samples.start_ns), untimed)
        elif name in AMOUNTS:
            columns[alias] = _amount(recording, name, rows["commands"], owner)
        elif name == "status":
            columns[alias] = _words(objects(STATUSES), samples.status.astype(np.int64))
        elif table == "dispatches" and name.endswith("_ns"):
            columns[alias] = Numbers(np.where(untimed, 0, getattr(samples, name)), untimed)
        else:
            values = getattr(samples, name) if table == "dispatches" else recording.columns(table)[name]
            columns |= _from_table(recording, alias, table, name, values, rows[table])
    return columns


def _from_table(recording: Recording, alias: str, table: str, name: str, values: Any, rows: Ints) -> dict[str, Column]:
    """The columns that one of a table becomes, as its declaration says."""
    column = TABLES[table].column(name)
    if column.kind is Kind.SIZES:
        return {part: values[rows, axis] for axis, part in enumerate(column.sql_names)}
    if column.kind in (Kind.TEXT, Kind.WORD, Kind.CODE):
        return {alias: _words(values, rows, column.optional)}
    if column.kind is Kind.REAL:
        return {alias: values[rows]}
    picked = values[rows]
    missing = picked == NONE if column.optional else np.zeros(len(rows), bool)
    if column.kind is Kind.REFERENCE:
        ids = recording.columns(column.table)["id"]
        picked = np.append(ids, 0)[picked]
    return {alias: Numbers(np.where(missing, 0, picked), missing) if column.optional else picked}


def _words(values: Texts, rows: Ints, optional: bool = False) -> Words:
    """The texts of some rows of a table, of which "" is a missing one if they are optional."""
    numbers: dict[str, int] = {}
    code = [-1 if optional and not value else numbers.setdefault(value, len(numbers)) for value in values]
    return Words(list(numbers), np.array(code, np.int32)[rows])


def _amount(recording: Recording, name: str, command: Ints, owner: Ints) -> Numbers:
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
    return Numbers(np.where(missing, 0, amount), missing)
