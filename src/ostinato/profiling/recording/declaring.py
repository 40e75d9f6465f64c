"""The language in which the tables of a recording are declared.

A table is a class whose fields are its columns; `schema.py` has them all. Everything else follows from the declaration:
the SQL (`statements.py`), what a writer stores (`rows.py`), what a reader checks (`tables.py`), and what a merge
renumbers (`merging.py`). A table is handed out as one object with a NumPy array per column, or, if it is declared with
`records`, as one object per row.

Once read, a column looks the same whatever wrote it:

| kind | in the file | as an array | in a record |
|---|---|---|---|
| identity | a positive integer that rises from row to row | int64 | int |
| reference | the id of a row of another table | int64: the number of that row, from 0 | the same |
| integer, time | an integer within bounds; times are those of the host's monotonic clock | int64 | int |
| sizes | three integers, `_x`, `_y` and `_z` | int64 of shape (n, 3) | |
| flag | 0 or 1 | bool | bool |
| code | the position of a word in a list | the words | str |
| real | a finite number that is not negative | float64 | float |
| text | the id of a row of `strings` | str | str |
| word | a text in the row itself | str | str |

A value that is not given, or that an older version did not record, is NULL in the file. It is read as `NONE` (-1) in an
array of integers, NaN in one of reals and "" in one of texts; in a record as None or "". A flag that may be missing is
an array of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum
from functools import partial
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int8]
Texts = NDArray[np.object_]

NONE = -1
FIRST_VERSION = 4
"""The oldest version that is read."""
MAX_TIME_NS = 1 << 62
"""Times lie in [0, MAX_TIME_NS), so that no sum or difference of two of them overflows."""

_T = TypeVar("_T")
_COLUMN = "column"


class Kind(Enum):
    """What a column holds."""

    IDENTITY = "identity"
    REFERENCE = "reference"
    INTEGER = "integer"
    TIME = "time"
    SIZES = "sizes"
    FLAG = "flag"
    CODE = "code"
    REAL = "real"
    TEXT = "text"
    WORD = "word"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    kind: Kind
    name: str = ""
    optional: bool = False
    default: Any = None
    """What a writer stores where nothing is given."""
    low: int = 0
    high: int = 1 << 63
    """Integers lie in [low, high)."""
    table: str = ""
    """What a reference leads to."""
    words: Sequence[str] = ()
    """Of a code, or of a word that is one of a few."""
    may_be_lost: bool = False
    """A reference to a row that is not there is none, instead of damage."""
    after: str = ""
    """The column with the time at which that began which ends here."""
    since: int = FIRST_VERSION

    @property
    def sql_names(self) -> tuple[str, ...]:
        """The columns of the file that it takes."""
        return tuple(f"{self.name}_{axis}" for axis in "xyz") if self.kind is Kind.SIZES else (self.name,)

    def missing(self, count: int) -> Any:
        """The column of a file that does not have it, or of a table without rows."""
        if self.kind is Kind.SIZES:
            return np.zeros((count, 3), np.int64)
        if self.kind is Kind.FLAG and not self.optional:
            return np.ones(count, np.bool_)
        if self.kind is Kind.REAL:
            return np.full(count, np.nan)
        if self.kind in (Kind.TEXT, Kind.WORD, Kind.CODE):
            return np.full(count, "", object)
        return np.full(count, NONE, np.int64)

    def scalars(self, values: Any) -> list[Any]:
        """A column as the values of records."""
        listed: list[Any] = values.tolist()
        if not self.optional or self.kind in (Kind.TEXT, Kind.WORD, Kind.CODE):
            return listed
        if self.kind is Kind.REAL:
            return [None if value != value else value for value in listed]
        listed = [None if value == NONE else value for value in listed]
        return [None if value is None else bool(value) for value in listed] if self.kind is Kind.FLAG else listed


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the class of what is handed out, and its columns."""

    name: str
    rows: type[Any]
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that identify a row; none for a table without a key."""
    blobs: tuple[str, ...] = ()
    """Columns of bytes, which are read row by row and no part of what is handed out."""
    records: bool = False
    most_rows: int = 1 << 62
    since: int = FIRST_VERSION

    def at(self, version: int) -> Table:
        """The same with the columns that a version has."""
        return replace(self, columns=tuple(column for column in self.columns if column.since <= version))

    def only(self, *names: str) -> Table:
        """The same with some of its columns."""
        return replace(self, columns=tuple(column for column in self.columns if column.name in names))

    def column(self, name: str) -> Column:
        """The column of a name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def sql_names(self) -> list[str]:
        """The columns in the file, in their order."""
        return [name for column in self.columns for name in column.sql_names] + list(self.blobs)


class Declared:
    """What classes have in common that are declared with `table`."""

    __slots__ = ()
    table: ClassVar[Table]


class InColumns(Declared):
    """What tables have in common that are handed out as columns."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(next(iter(self.by_name().values())))

    @classmethod
    def without_rows(cls: type[_T]) -> _T:
        """A table without rows."""
        declared: Table = cls.table  # type: ignore[attr-defined]
        return cls(**{column.name: column.missing(0) for column in declared.columns})

    def by_name(self) -> dict[str, Any]:
        """Its columns."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]

    def where(self: _T, chosen: Any) -> _T:
        """The rows that a mask or an index picks."""
        columns: dict[str, Any] = self.by_name()  # type: ignore[attr-defined]
        return type(self)(**{name: column[chosen] for name, column in columns.items()})


def column(
    kind: Kind,
    of: str | Sequence[str] = (),
    *,
    low: int = 0,
    high: int = 1 << 63,
    default: Any = None,
    kw_only: bool = True,
    **more: Any,
) -> Any:
    """A column: a field of a class that is declared with `table`.

    `of` is the table that a reference leads to, or the words that there are; for the rest see `Column`.
    """
    optional = more.get("optional", False)
    if isinstance(of, str):
        more["table"] = of
    else:
        more["words"] = of
    if kind is Kind.CODE:
        high = len(of)
    elif optional and default is None and kind in (Kind.TEXT, Kind.WORD):
        default = ""
    made = Column(kind, low=low, high=high, default=default, **more)
    needed = default is None and not optional
    return field(metadata={_COLUMN: made}, default=MISSING if needed else default, kw_only=kw_only)


identity = partial(column, Kind.IDENTITY, low=1)
reference = partial(column, Kind.REFERENCE, low=1)
integer = partial(column, Kind.INTEGER)
signed = partial(column, Kind.INTEGER, low=-(1 << 63) + 1)
time = partial(column, Kind.TIME, high=MAX_TIME_NS)
sizes = partial(column, Kind.SIZES, default=(0, 0, 0))
flag = partial(column, Kind.FLAG, high=2)
code = partial(column, Kind.CODE)
real = partial(column, Kind.REAL)
text = partial(column, Kind.TEXT)
word = partial(column, Kind.WORD)


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(identity, reference, integer, signed, time, sizes, flag, code, real, text, word, field),
)
def table(
    name: str,
    *,
    key: tuple[str, ...] = ("id",),
    blobs: tuple[str, ...] = (),
    records: bool = False,
    most_rows: int = 1 << 62,
    since: int = FIRST_VERSION,
) -> Callable[[type[_T]], type[_T]]:
    """Declare a table; a class that derives from one declares the same table with more columns."""

    def declare(cls: type[_T]) -> type[_T]:
        if not records:
            for value in vars(cls).values():
                if isinstance(value, Field):
                    value.default = MISSING  # what a writer stores is no column
        made: Any = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        columns = tuple(
            replace(each.metadata[_COLUMN], name=each.name) for each in fields(made) if _COLUMN in each.metadata
        )
        if any(column.since > max(since, FIRST_VERSION) and not column.optional for column in columns):
            raise TypeError(f"a column that older files of the table {name} lack must be optional")
        made.table = Table(name, made, columns, key, blobs, records, most_rows, since)
        return made  # type: ignore[no-any-return]

    return declare
