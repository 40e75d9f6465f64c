"""Fragments of HTML for notebooks: sentences, small tables and code, with everything escaped.

All functions take plain text and return HTML, except `fragment` and `folded`, which take what the others return. A
fragment brings its own style. Its colours are mixed from the page's, so that it suits light and dark pages without
knowing which it is on. Without the style, as on sites that remove it, it is still plain tables.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .printable import LONGEST_NAME, LONGEST_SENTENCE, printable, visible

STYLE = """
.ostinato {font-size: 0.9em; line-height: 1.35; color: inherit}
.ostinato table {border-collapse: collapse; margin: 0.2em 0 0.1em 0}
.ostinato th, .ostinato td {padding: 0.1em 0.6em; border: none; background: none; vertical-align: top; color: inherit}
.ostinato th {border-bottom: 1px solid currentColor; font-weight: 600}
.ostinato td.n, .ostinato th.n {text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.ostinato td.t, .ostinato th.t {text-align: left; overflow-wrap: anywhere}
.ostinato th.fact {text-align: left; border: none; font-weight: normal; opacity: 0.7; white-space: nowrap}
.ostinato td.name {font-family: monospace; white-space: pre-wrap}
.ostinato td.word {white-space: nowrap}
.ostinato pre {margin: 0.3em 0; padding: 0.4em 0.6em; overflow-x: auto; font-size: 0.95em; line-height: 1.3;
  background: none; border: none; border-left: 2px solid; color: inherit}
.ostinato .title {font-weight: 600; margin-top: 0.9em; overflow-wrap: anywhere}
.ostinato > .title:first-of-type {margin-top: 0}
.ostinato .note {opacity: 0.7}
.ostinato .good {color: #2e8b57; color: color-mix(in srgb, #10a050 75%, currentColor)}
.ostinato .fair {color: #b8860b; color: color-mix(in srgb, #c08000 75%, currentColor)}
.ostinato .bad {color: #d03030; color: color-mix(in srgb, #e02020 80%, currentColor); font-weight: 600}
.ostinato .first {margin-top: 0.9em; font-weight: 600; overflow-wrap: anywhere}
.ostinato .picture {max-height: 36em; overflow: auto; margin: 0.4em 0}
.ostinato summary {cursor: pointer}
.ostinato iframe {border: 1px solid; margin: 0.4em 0}
"""
"""The style of everything here."""

_TONES = {
    "good": ("fine", "done", "same", "faster"),
    "fair": ("noted", "note", "running", "cannot tell"),
    "bad": ("error", "failed", "different", "slower"),
}
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words}

_LONGEST_LINE = 160

Kind = Literal["text", "name", "number", "status"]
_CLASSES: dict[Kind, str] = {"text": "t", "name": "t name", "number": "n", "status": "t word"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and whether it holds sentences, names, numbers or words with a colour."""

    heading: str = ""
    kind: Kind = "text"


def fragment(*parts: str) -> str:
    """One `<div>` with all parts that are not empty in it, and the style."""
    return "\n".join(('<div class="ostinato">', f"<style>{STYLE}</style>", *filter(None, parts), "</div>"))


def escaped(text: str, longest: int = LONGEST_NAME) -> str:
    """Text from strangers for HTML, in text and in attributes; cut in the middle when too long."""
    return html.escape(visible(text, longest), quote=True)


def line(text: str, kind: Literal["", "title", "note", "first", "status"] = "") -> str:
    """A line of text; a "status" has the colour of its first words."""
    if kind == "status":
        return f"<div{_toned(text.partition(':')[0].partition(',')[0])}>{escaped(text, LONGEST_SENTENCE)}</div>"
    chosen = f' class="{kind}"' if kind else ""
    return f"<div{chosen}>{escaped(text, LONGEST_SENTENCE)}</div>"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], title: str = "", notes: Iterable[str] = ()) -> str:
    """A table with a title above and notes below. Without headings beyond the first column it has no head."""
    lines = [line(title, "title")] if title else []
    lines.append("<table>")
    if any(column.heading for column in columns[1:]):
        heads = (f'<th class="{_CLASSES[each.kind][0]}">{escaped(each.heading)}</th>' for each in columns)
        lines.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
    lines.append("<tbody>")
    for row in rows:
        cells = (_cell(text, column) for text, column in zip(row, columns, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody></table>")
    return "\n".join([*lines, *(line(note, "note") for note in notes)])


def facts(pairs: Iterable[tuple[str, str]], title: str = "") -> str:
    """A table of headings with a text each; pairs without a text are left out."""
    rows = (
        f'<tr><th class="fact">{escaped(heading)}</th><td class="t">{escaped(text, LONGEST_SENTENCE)}</td></tr>'
        for heading, text in pairs
        if text
    )
    head = [line(title, "title")] if title else []
    return "\n".join([*head, f"<table><tbody>{''.join(rows)}</tbody></table>"])


def code(text: str, most_lines: int = 40) -> str:
    """Text with its line breaks and indentation, cut when it has too many lines."""
    lines = [printable(each.expandtabs(4), _LONGEST_LINE) for each in text.splitlines()]
    if len(lines) > most_lines:
        lines[most_lines:] = [f"… {len(lines) - most_lines:,} more lines"]
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>"


def folded(title: str, inside: str) -> str:
    """HTML that a click on its title opens."""
    return f"<details><summary>{escaped(title)}</summary>\n{inside}\n</details>"


def page(text: str, title: str, height: int) -> str:
    """A whole page in a frame. Its scripts run, but reach neither the page around it nor anything of its site."""
    return (
        f'<iframe title="{escaped(title)}" sandbox="allow-scripts" width="100%" height="{height}"'
        f' srcdoc="{html.escape(text, quote=True)}"></iframe>'
    )


def _cell(text: str, column: Column) -> str:
    shown = escaped(text, LONGEST_SENTENCE if column.kind == "text" else LONGEST_NAME)
    tone = f" {_TONE_OF[text.lower()]}" if column.kind == "status" and text.lower() in _TONE_OF else ""
    return f'<td class="{_CLASSES[column.kind]}{tone}">{shown}</td>'


def _toned(word: str) -> str:
    tone = _TONE_OF.get(word.lower())
    return f' class="{tone}"' if tone else ""
