"""The report on a terminal: tables of at most 100 columns, the truth checks, and one unwrapped closing line.

Colours only where there is a terminal. Columns that do not fit go, the least important first; names are folded, never
cut, so that a row can be matched to a program.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from ..analyse.summary import Summary, look_first
from .tables import DEFAULT_GROUPINGS, Column, Table, checks, overview, tables
from .text import visible

WIDEST = 100
_NAME_WIDTH = 16
_TEXT_WIDTH = 30
_STYLES = {"fine": "green", "noted": "yellow", "error": "bold red", "not judged": "dim"}


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """A console for reports: as wide as the terminal but no wider than 100; 100 where there is no terminal."""
    made = Console(file=file, markup=False, highlight=False, emoji=False)
    if width is None:
        width = min(made.width, WIDEST) if made.is_terminal else WIDEST
    made.width = min(width, WIDEST)
    return made


def render(summary: Summary, width: int = WIDEST) -> str:
    """The report as text without colours."""
    out = io.StringIO()
    print_summary(summary, console(out, width))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().split("\n")[:-1])


def print_summary(summary: Summary, to: Console | None = None, by: Sequence[str] = DEFAULT_GROUPINGS) -> None:
    """Prints the whole report, dispatches grouped by `by` (of `GROUPINGS`)."""
    to = to or console()
    for line in overview(summary):
        to.print(Text(visible(line)))
    for table in tables(summary, by):
        to.print()
        _print(table, to)
    to.print()
    _print(checks(summary), to)
    to.print()
    # Neither wrapped nor cut: this line is also what a script looks for.
    to.print(Text(visible(look_first(summary), 2000), style="bold"), soft_wrap=True)


def _print(table: Table, to: Console) -> None:
    kept = _fitting(table, to.width)
    made = RichTable(box=box.SIMPLE_HEAD if any(c.heading for c in table.columns[1:]) else None, pad_edge=False)
    made.padding = (0, 1, 0, 0)
    made.show_edge = False
    made.show_header = any(c.heading for c in table.columns[1:])
    for number in kept:
        column = table.columns[number]
        made.add_column(
            Text(visible(column.heading)),
            justify="right" if column.right else "left",
            no_wrap=column.right,
            overflow="fold",
            min_width=None if column.right else 8,
            ratio=1 if column.wide else None,
        )
    for row in table.rows:
        made.add_row(*(_cell(row[number], table.columns[number]) for number in kept))
    to.print(Text(table.title, style="bold"))
    to.print(made)
    for note in table.notes:
        to.print(Padding(Text(visible(note), style="dim"), (0, 0, 0, 2), expand=False))


def _cell(text: str, column: Column) -> Text:
    return Text(visible(text), style="" if column.heading else _STYLES.get(text, ""))


def _fitting(table: Table, width: int) -> list[int]:
    """The columns that have room beside each other, with enough left for names and sentences."""
    kept = list(range(len(table.columns)))
    while True:
        needed = sum(_width(table, number) + 2 for number in kept) - 2
        spare = max(kept, key=lambda number: (table.columns[number].spare, number))
        if needed <= width or table.columns[spare].spare == 0:
            return kept
        kept.remove(spare)


def _width(table: Table, number: int) -> int:
    column = table.columns[number]
    widest = max(cell_len(visible(text)) for text in (column.heading, *(row[number] for row in table.rows)))
    if column.right:
        return widest
    return min(widest, _TEXT_WIDTH if column.wide else _NAME_WIDTH)
