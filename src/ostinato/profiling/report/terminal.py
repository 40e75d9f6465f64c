"""The report on a terminal: tables as wide as it is, the validity checks, and one unwrapped closing line.

Colours only where there is a terminal. Columns that do not fit are hidden, the least important first, and a note
under the table names them and the width that they need. A row is one line: names are cut in the middle, and those that
differ still do. Only sentences take several lines.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..analyse.summary import Summary, look_first
from .tables import DEFAULT_GROUPINGS, Column, Table, checks, overview, tables
from .text import LONGEST_SENTENCE, cut_apart, folded, visible

WIDTH_WITHOUT_TERMINAL = 100
NARROWEST = 40
_NAME_WIDTH = 20
_TEXT_WIDTH = 30
_LEAST_TEXT_WIDTH = 8
_GAP = "  "
_INDENT = "  "
_STYLES = {
    "fine": "green",
    "noted": "yellow",
    "error": "bold red",
    "not judged": "dim",
    "FASTER": "green",
    "SLOWER": "bold red",
    "CANNOT TELL": "yellow",
}


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """A console for reports, as wide as the terminal; without one, `COLUMNS` wide, or 100."""
    made = Console(file=file, markup=False, highlight=False, emoji=False)
    if width is None:
        known = made.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        width = made.width if known else WIDTH_WITHOUT_TERMINAL
    made.width = max(width, NARROWEST)
    return made


def render(summary: Summary, width: int | None = None) -> str:
    """The report as text without colours, as wide as `console` makes it if no width is given."""
    out = io.StringIO()
    print_summary(summary, console(out, width or console().width))
    return out.getvalue()


def print_summary(summary: Summary, to: Console | None = None, by: Sequence[str] = DEFAULT_GROUPINGS) -> None:
    """Prints the whole report, dispatches grouped by `by` (of `GROUPINGS`)."""
    to = to or console()
    for line in overview(summary):
        print_sentence(line, to)
    for table in tables(summary, by):
        to.print()
        print_table(table, to)
    to.print()
    print_table(checks(summary.checks), to)
    to.print()
    # Neither wrapped nor cut: this line is also what a script looks for.
    print_line(Text(visible(look_first(summary), LONGEST_SENTENCE), style="bold"), to)


def print_line(line: Text, to: Console) -> None:
    """Prints a line as it is, neither wrapped nor cut."""
    line.rstrip()
    to.print(line, soft_wrap=True)


def print_sentence(text: str, to: Console, indent: str = "", style: str = "") -> None:
    """Prints text that may come from strangers, escaped and folded."""
    for line in sentence_lines(text, to.width, indent, style):
        print_line(line, to)


def sentence_lines(text: str, width: int, indent: str = "", style: str = "") -> list[Text]:
    """The lines of text that may come from strangers, escaped and folded."""
    return [Text(indent + line, style=style) for line in folded(visible(text, LONGEST_SENTENCE), width - len(indent))]


def print_table(table: Table, to: Console, more: str = "ostinato report --width {width}, or --json") -> None:
    """Prints a table; `more` says how to see the columns that did not fit."""
    for line in table_lines(table, to.width, more):
        print_line(line, to)


def table_lines(table: Table, width: int, more: str) -> list[Text]:
    """The lines of a table."""
    layout = _layout(table, width)
    shown = [table.columns[number] for number, _ in layout.columns]
    lines = [Text(table.title, style="bold")]
    if any(column.heading for column in table.columns[1:]):
        headings = [
            _stacks([column.heading], column, room)[0] for column, room in zip(shown, layout.rooms, strict=True)
        ]
        lines += _row_lines(headings, shown, layout, style="bold")
        lines.append(Text("─" * layout.width))
    cells = [
        _stacks([row[number] for row in table.rows], table.columns[number], room) for number, room in layout.columns
    ]
    for row in zip(*cells, strict=True):
        lines += _row_lines(row, shown, layout)
    for note in table.notes:
        lines += sentence_lines(note, width, _INDENT, style="dim")
    if layout.left_out:
        names = ", ".join(table.columns[number].heading for number in layout.left_out)
        hidden = f"hidden: {names}; to see all columns: {more.format(width=layout.needed)}"
        lines += sentence_lines(hidden, width, _INDENT, style="dim")
    return lines


def _stacks(texts: Sequence[str], column: Column, width: int) -> list[list[str]]:
    """The lines of each cell of a column."""
    if column.wide:
        return [folded(_shown(text, column), width) for text in texts]
    return [[text] for text in (map(visible, texts) if column.right else cut_apart(texts, width))]


def _row_lines(
    stacks: Sequence[Sequence[str]], columns: Sequence[Column], layout: _Layout, style: str = ""
) -> list[Text]:
    lines = []
    for number in range(max(map(len, stacks))):
        texts = [stack[number] if number < len(stack) else "" for stack in stacks]
        blanks = [" " * (width - cell_len(text)) for text, width in zip(texts, layout.rooms, strict=True)]
        padded = [
            blank + text if column.right else text + blank
            for text, blank, column in zip(texts, blanks, columns, strict=True)
        ]
        line = Text(_GAP.join(padded), style=style)
        for at, (text, column) in enumerate(zip(texts, columns, strict=True)):
            if column.status and text in _STYLES:
                begin = len(_GAP.join((*padded[:at], "")))
                line.stylize(_STYLES[text], begin, begin + len(text))
        lines.append(line)
    return lines


def _shown(text: str, column: Column) -> str:
    return visible(text, LONGEST_SENTENCE) if column.wide else visible(text)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns of a table are shown, and how wide each is."""

    columns: tuple[tuple[int, int], ...]
    """Number and width of each, from left to right."""
    left_out: tuple[int, ...]
    needed: int
    """The width at which none is left out."""

    @property
    def rooms(self) -> list[int]:
        """The width of each column."""
        return [width for _, width in self.columns]

    @property
    def width(self) -> int:
        """Of the whole table."""
        return sum(self.rooms) + len(_GAP) * (len(self.columns) - 1)


def _layout(table: Table, width: int) -> _Layout:
    """Leaves out columns until the rest has room, with enough for names and sentences; those get what is left over."""
    natural = [_natural_width(table, number) for number in range(len(table.columns))]
    least = [
        full if column.right else min(full, _TEXT_WIDTH if column.wide else _NAME_WIDTH)
        for full, column in zip(natural, table.columns, strict=True)
    ]
    kept = list(range(len(table.columns)))

    def room() -> int:
        return width - sum(least[number] + len(_GAP) for number in kept) + len(_GAP)

    needed = width - room()
    while room() < 0:
        spare = max(kept, key=lambda number: (table.columns[number].spare, number))
        if table.columns[spare].spare == 0:
            break
        kept.remove(spare)
    widths = list(least)
    left = room()
    text_columns = [number for number in kept if not table.columns[number].right]
    if left < 0:
        text_columns.reverse()  # sentences give way before names do
    for number in text_columns:
        widths[number] = min(max(least[number] + left, _LEAST_TEXT_WIDTH), natural[number])
        left -= widths[number] - least[number]
    left_out = tuple(number for number in range(len(table.columns)) if number not in kept)
    return _Layout(tuple((number, widths[number]) for number in kept), left_out, needed)


def _natural_width(table: Table, number: int) -> int:
    column = table.columns[number]
    texts = (column.heading, *(row[number] for row in table.rows))
    return max(cell_len(_shown(text, column)) for text in texts)
