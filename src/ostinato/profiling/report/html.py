"""The report as a fragment of HTML, for notebooks: self-contained, everything escaped, light and dark alike."""

from __future__ import annotations

from ..analyse.summary import Summary, look_first
from .tables import Table, checks, overview, tables
from .text import LONGEST_NAME, LONGEST_SENTENCE, for_html

# Colours are mixed from the page's own, so that the fragment suits light and dark pages without knowing which it is on.
STYLE = """
.ostinato {font-size: 0.9em; line-height: 1.35; color: inherit}
.ostinato table {border-collapse: collapse; margin: 0.2em 0 0.1em 0}
.ostinato th, .ostinato td {padding: 0.1em 0.6em; border: none; background: none; vertical-align: top; color: inherit}
.ostinato th {border-bottom: 1px solid currentColor; font-weight: 600}
.ostinato td.n, .ostinato th.n {text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.ostinato td.t, .ostinato th.t {text-align: left}
.ostinato td.name {font-family: monospace; white-space: pre-wrap; overflow-wrap: anywhere}
.ostinato .title {font-weight: 600; margin-top: 0.9em}
.ostinato .note {opacity: 0.7}
.ostinato .fine {color: #2e8b57} .ostinato .noted {color: #b8860b} .ostinato .error {color: #d03030; font-weight: 600}
.ostinato .first {margin-top: 0.9em; font-weight: 600; overflow-wrap: anywhere}
"""


def fragment(summary: Summary) -> str:
    """One `<div>` with everything in it, its style too."""
    return f'<div class="ostinato">\n<style>{STYLE}</style>\n{report_body(summary)}\n</div>'


def report_body(summary: Summary) -> str:
    """What is inside it, for a page that has `STYLE` elsewhere."""
    parts = [f"<div>{for_html(line, LONGEST_SENTENCE)}</div>" for line in overview(summary)]
    parts += [_table(table) for table in tables(summary)]
    parts.append(_table(checks(summary)))
    parts.append(f'<div class="first">{for_html(look_first(summary), LONGEST_SENTENCE)}</div>')
    return "\n".join(parts)


def _table(table: Table) -> str:
    lines = [f'<div class="title">{for_html(table.title)}</div>', "<table>"]
    if any(column.heading for column in table.columns[1:]):
        heads = (
            f'<th class="{"n" if column.right else "t"}">{for_html(column.heading)}</th>' for column in table.columns
        )
        lines.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
    lines.append("<tbody>")
    for row in table.rows:
        cells = []
        for number, (text, column) in enumerate(zip(row, table.columns, strict=True)):
            kind = "n" if column.right else "t name" if number == 0 else "t"
            longest = LONGEST_SENTENCE if column.wide else LONGEST_NAME
            status = "" if column.heading or column.wide or number == 0 else f" {text.split()[0]}"
            cells.append(f'<td class="{kind}{for_html(status)}">{for_html(text, longest)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody></table>")
    lines += [f'<div class="note">{for_html(note, LONGEST_SENTENCE)}</div>' for note in table.notes]
    return "\n".join(lines)
