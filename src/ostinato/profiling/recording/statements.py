"""The SQL of a recording, made from the declaration of its tables.

The text of the statements that create tables and views is part of the format: a reader compares what a file says with
what stands here for the file's version, and refuses a file in which any of it differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from . import schema
from .declaring import NONE, Column, Kind, Table

_TYPES = {Kind.REAL: "REAL", Kind.WORD: "TEXT"}


def tables_of(version: int) -> Mapping[str, Table]:
    """The tables of a version, with the columns that they have in it."""
    return {name: table.at(version) for name, table in schema.TABLES.items() if table.since <= version}


def definitions(version: int) -> dict[tuple[str, str], str]:
    """What a file of a version holds, by kind and name: the statements that create its tables and views."""
    made = {("table", name): create(table) for name, table in tables_of(version).items()}
    return made | {("view", "dispatch_report"): dispatch_report(version)}


@cache
def create(table: Table) -> str:
    """The statement that creates a table."""
    alone = len(table.key) == 1
    lines = [
        f"{name} {_TYPES.get(column.kind, 'INTEGER')}"
        + (" PRIMARY KEY" if alone and name == table.key[0] else "" if column.optional else " NOT NULL")
        for column in table.columns
        for name in column.sql_names
    ]
    lines += [f"{name} BLOB NOT NULL" for name in table.blobs]
    if table.key and not alone:
        lines.append(f"PRIMARY KEY({', '.join(table.key)})")
    return f"CREATE TABLE {table.name}({', '.join(lines)})" + (" WITHOUT ROWID" if table.key and not alone else "")


def insert(table: Table, rows: int = 1, verb: str = "INSERT") -> str:
    """The statement that stores rows."""
    names = table.sql_names
    row = f"({','.join('?' * len(names))})"
    return f"{verb} INTO {table.name} ({', '.join(names)}) VALUES {','.join([row] * rows)}"


def update(table: Table, names: Iterable[str]) -> str:
    """The statement that changes columns of a row."""
    return f"UPDATE {table.name} SET {', '.join(f'{name} = ?' for name in names)} WHERE id = ?"


@cache
def select(table: Table, where: str = "") -> str:
    """The query for all columns but the blobs, by rising key; `where` is a condition on the rows."""
    names = [_read(column, name) for column in table.columns for name in column.sql_names]
    # An index that somebody added may disagree with its table.
    order = f" ORDER BY {', '.join(table.key)}" if table.key else ""
    return f"SELECT {', '.join(names)} FROM {table.name} NOT INDEXED{where and f' WHERE {where}'}{order}"


def _read(column: Column, name: str) -> str:
    if not column.optional or column.kind is Kind.REAL:
        return name
    return f"ifnull({name}, '')" if column.kind is Kind.WORD else f"ifnull({name}, {NONE})"


REPORT = {
    "process": "submissions.process", "device": "devices.name", "submission": "dispatches.submission",
    "ordinal": "submissions.ordinal", "submission_label": "submissions.label", "node": "dispatches.node",
    "kind": "commands.kind", "label": "commands.label", "kernel": "commands.kernel",
    "specialisation": "commands.specialisation", "source": "commands.source", "kernel_digest": "commands.digest",
    "file": "commands.file", "line": "commands.line", "source_digest": "commands.source_digest",
    "execution": "commands.execution",
    "op_kind": "commands.op_kind", "threads": "commands.threads", "group": "commands.group",
    "bytes_read": "commands.bytes_read", "bytes_written": "commands.bytes_written",
    "bytes_declared": "commands.bytes_declared", "flops": "commands.flops", "start_ns": "dispatches.start_ns",
    "end_ns": "dispatches.end_ns", "duration_ns": "dispatches.duration_ns", "place": "commands.place",
    "status": "dispatches.status",
}  # fmt: skip
"""The columns of the view `dispatch_report`, and where they come from. A version has those that its tables have."""


def dispatch_report(version: int) -> str:
    """The view with one row for each dispatch, in words."""
    tables = tables_of(version)
    lines = [line for alias, source in REPORT.items() for line in _shown(tables, source, alias)]
    return f"""CREATE VIEW dispatch_report AS SELECT
 {f",{chr(10)} ".join(lines)}
 FROM dispatches JOIN submissions ON submissions.id = dispatches.submission
 JOIN plan_nodes ON plan_nodes.plan = submissions.plan AND plan_nodes.node = dispatches.node
 JOIN commands ON commands.id = plan_nodes.command JOIN devices ON devices.id = submissions.device"""


def _shown(tables: Mapping[str, Table], source: str, alias: str) -> list[str]:
    table, _, name = source.partition(".")
    if name == "duration_ns":
        return ["dispatches.end_ns - dispatches.start_ns AS duration_ns"]
    if name == "status":
        words = " ".join(f"WHEN {number} THEN '{word}'" for number, word in enumerate(schema.STATUSES))
        return [f"CASE {source} {words} END AS status"]
    if name in schema.AMOUNTS:
        return [_amount(name)]
    column = schema.TABLES[table].column(name)
    if column not in tables[table].columns:
        return []
    if column.kind is Kind.TEXT:
        return [f"(SELECT text FROM strings WHERE id = {source}) AS {alias}"]
    return [f"{table}.{part}" for part in column.sql_names] if len(column.sql_names) > 1 else [f"{source} AS {alias}"]


def _amount(name: str) -> str:
    """An amount of a dispatch, with what its submission's values make of it; NULL if one of them is missing."""
    return f"""commands.{name} + (SELECT CASE WHEN count(*) = count(v.value)
 THEN CAST(total(t.factor * max(min(v.value + t.plus, ifnull(t.upto, v.value + t.plus)), 0)) AS INTEGER) END
 FROM command_terms t LEFT JOIN submission_values v ON v.submission = dispatches.submission AND v.param = t.param
 WHERE t.command = commands.id AND t.amount = {schema.AMOUNTS.index(name)}) AS {name}"""
