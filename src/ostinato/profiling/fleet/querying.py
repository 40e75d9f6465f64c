"""Questions to a store, answered by DuckDB inside this process.

The tables are PyArrow datasets over the files that count, so DuckDB reads no file itself: before anybody's text
reaches it, access to files, extensions and settings is locked. Values that users and recordings bring are parameters,
never text of a statement. DuckDB asks for the columns and the kernels of a query only, and the statistics of the files
let it skip the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from ...base.extras import install_command
from ...base.printable import LONGEST_SENTENCE, printable
from ...errors import FleetError, MissingPackage
from .parts import arrow, dataset, schema
from .places import without_secrets
from .store import TABLES, Part, State, Store

_MEMORY = "1GB"
_ANSWERS = ("SELECT", "EXPLAIN")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs a question is about; None is all."""

    since: date | None = None
    device: str | None = None
    kernel: str | None = None
    program: str | None = None

    def parts(self, parts: Sequence[Part]) -> list[Part]:
        """The files that may hold such runs."""
        first = "" if self.since is None else self.since.isoformat()
        return [part for part in parts if part.day >= first]

    def condition(self) -> tuple[str, list[str]]:
        """What it says of a row of `runs`, with the parameters of that. Devices and programs go by a part of them."""
        said, values = ["true"], []
        if self.since is not None:
            said.append("day >= ?")
            values.append(self.since.isoformat())
        for column, text in (("device", self.device), ("program", self.program)):
            if text is not None:
                said.append(f"contains(lower({column}), lower(?))")
                values.append(text)
        return " AND ".join(said), values


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def connect(store: Store, parts: Sequence[Part]) -> Any:
    """A connection of DuckDB that knows the tables of a store and nothing else."""
    try:
        import duckdb
    except ImportError as problem:
        raise MissingPackage(f"reports of a store need DuckDB: {install_command('fleet')}") from problem
    pa = arrow()
    connection = duckdb.connect(":memory:", config={"memory_limit": _MEMORY, "python_enable_replacements": False})
    for table in TABLES:
        mine = [part for part in parts if part.table == table]
        rows = dataset(store, mine) if mine else pa.Table.from_batches([], schema(table))
        connection.register(table, rows)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def query(store: Store, sql: str) -> Answer:
    """The answer to a text from the user, which may read and nothing else."""
    return store.consistently(lambda state: _query(store, state, sql))


def _query(store: Store, state: State, sql: str) -> Answer:
    import duckdb

    connection = connect(store, state.parts)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name not in _ANSWERS:
            raise FleetError("--sql takes one SELECT; a store is changed by `fleet add` and `fleet compact` alone")
        done = connection.execute(statements[0])
        return Answer(tuple(column[0] for column in done.description), done.fetchall())
    except (duckdb.Error, OSError) as problem:
        raise FleetError(printable(without_secrets(f"the query failed: {problem}"), LONGEST_SENTENCE)) from None
    finally:
        connection.close()


def ask(connection: Any, sql: str, values: Sequence[Any] = ()) -> dict[str, Any]:
    """The columns of the answer to a statement of ours, as NumPy arrays."""
    import duckdb

    try:
        found: dict[str, Any] = connection.execute(sql, list(values)).fetchnumpy()
    except (duckdb.Error, OSError) as problem:
        raise FleetError(without_secrets(f"cannot read the store: {problem}")) from None
    return found


def since(text: str) -> date:
    """A day, or some days ago ("14d")."""
    try:
        if text.endswith("d") and text[:-1].isdecimal():
            return date.fromordinal(datetime.now(UTC).date().toordinal() - int(text[:-1]))
        return date.fromisoformat(text)
    except (ValueError, OverflowError):
        raise FleetError(
            f"{printable(text)!r} is not a day such as 2026-11-18, nor a number of days such as 14d"
        ) from None
