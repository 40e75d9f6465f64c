"""The tables of a report as HTML, for notebooks and for pages whose scripts do not run; everything is escaped."""

from __future__ import annotations

from ...base import fragments
from ..analyse.summary import Summary, look_first
from .tables import Column, Table, checks, overview, tables


def fragment(summary: Summary) -> str:
    """One `<div>` with everything in it, its style too."""
    return fragments.fragment(report_body(summary))


def report_body(summary: Summary) -> str:
    """What is inside it, for a page that has `fragments.STYLE` elsewhere."""
    parts = [fragments.line(text) for text in overview(summary)]
    parts += [table_html(table) for table in (*tables(summary), checks(summary.checks))]
    return "\n".join([*parts, fragments.line(look_first(summary), "first")])


def table_html(table: Table) -> str:
    """A table of a report."""
    columns = [fragments.Column(each.heading, _kind(each, number)) for number, each in enumerate(table.columns)]
    return fragments.table(columns, table.rows, table.title, table.notes)


def _kind(column: Column, number: int) -> fragments.Kind:
    if column.status:
        return "status"
    return "number" if column.right else "text" if number else "name"
