"""A comparison for people and programs: tables on a terminal and in a notebook, JSON, and Markdown for a pull request.

What differs beside the program stands above the tables. A row shows the medians of A and B, the ratio with its
interval, the verdict, and the smallest change that would have been found. Names come from programs and files and are
escaped for the place where they are shown.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ...base import fragments
from ..analyse import formatting
from ..analyse.comparison import Comparison, Key, OneSided, Row, Side
from ..analyse.statistics import Interval
from ..analyse.verdicts import Verdict
from .html import table_html
from .json import plain as plain_types
from .tables import MISSING, Column, Table
from .terminal import console, print_line, print_sentence, print_table
from .text import LONGEST_SENTENCE, visible

VERSION = 1
_TITLES = {"graph": "Graphs", "label": "Labels", "kernel": "Kernels"}
_ROWS = 15
_WIDE = 100
_SHORT_NAME = 60
_NAMED = 5
_ONE_SIDED = 10
_MORE = "a terminal of {width} columns, or --json"
_ENDS_CODE = re.compile(r"[`|\\]|^\s*$")
_PUNCTUATION = re.compile(r"[^\w\s]|_", re.ASCII)


def render(comparison: Comparison, width: int | None = None) -> str:
    """The tables as text without colours."""
    out = io.StringIO()
    print_comparison(comparison, console(out, width or console().width))
    return out.getvalue()


def print_comparison(comparison: Comparison, to: Console | None = None) -> None:
    """Prints what is compared, what differs beside it, the tables, and one closing line."""
    to = to or console()
    for line in _opening(comparison):
        print_sentence(line, to)
    for table in _tables(comparison, to.width):
        to.print()
        print_table(table, to, _MORE)
    print_sentence(_legend(comparison), to, "  ", style="dim")
    to.print()
    for line in (*_one_sided(comparison), *comparison.notes):
        print_sentence(line, to)
    # Neither wrapped nor cut: this line is also what a script looks for.
    print_line(Text(visible(closing(comparison), LONGEST_SENTENCE), style="bold"), to)


def as_html(comparison: Comparison) -> str:
    """The same as a fragment of HTML."""
    return fragments.fragment(comparison_body(comparison))


def comparison_body(comparison: Comparison) -> str:
    """What is inside it, for a page that has `fragments.STYLE` elsewhere."""
    parts = [
        *map(fragments.line, _opening(comparison)),
        *(table_html(table) for table in _tables(comparison, _WIDE)),
        fragments.line(_legend(comparison), "note"),
        *map(fragments.line, (*_one_sided(comparison), *comparison.notes)),
        fragments.line(closing(comparison), "first"),
    ]
    return "\n".join(parts)


def closing(comparison: Comparison) -> str:
    """One line: what is slower, what is faster, and what has no verdict though it takes 1 % of the time."""
    return "; ".join(f"{heading}: {_listed(texts, _NAMED)}" for heading, texts in _statements(comparison))


def word(verdict: Verdict) -> str:
    """The verdict as it is printed."""
    return verdict.value.upper()


def _statements(comparison: Comparison, shown: Callable[[str], str] = str) -> list[tuple[str, list[str]]]:
    """The parts of the closing line: a heading, and the rows that it is about."""
    one_sided = {f"ONLY IN {name}": rows for name, rows in _by_side(comparison)}
    keys = [row.key for row in comparison.rows]
    names = _names(keys + [row.key for rows in one_sided.values() for row in rows])

    def text(row: Row | OneSided) -> str:
        return f"{row.key.kind} {shown(visible(names[row.key], _SHORT_NAME))}"

    parts = {
        word(verdict): [
            f"{text(row)} ({_digits(row.ratio.estimate)}×)"
            for row in comparison.rows
            if row.verdict is verdict and row.ratio
        ]
        for verdict in (Verdict.SLOWER, Verdict.FASTER)
    }
    parts[word(Verdict.CANNOT_TELL)] = [text(row) for row in comparison.undecided]
    if not any(parts.values()):
        delta = formatting.percent(comparison.delta)
        parts[word(Verdict.SAME)] = [f"nothing in both that takes 1 % of the time changed by {delta}"]
    for heading, rows in one_sided.items():
        parts[heading] = [f"{text(row)} ({formatting.percent(row.share)})" for row in rows if not row.is_minor]
    return [(heading, texts) for heading, texts in parts.items() if texts]


def _by_side(comparison: Comparison) -> Iterator[tuple[str, tuple[OneSided, ...]]]:
    return zip(comparison.names, (comparison.only_a, comparison.only_b), strict=True)


# --- the parts -----------------------------------------------------------------------------------------------


def _opening(comparison: Comparison) -> list[str]:
    lines = list(comparison.about)
    if comparison.differences:
        lines.append("Beside the program, these differ:")
        lines += [f"  {line}" for line in comparison.differences]
    elif comparison.differences is not None:
        lines.append("Beside the program, nothing that was recorded differs (device, versions, settings, clocks, load)")
    return lines


def _tables(comparison: Comparison, width: int = 0) -> list[Table]:
    """A table for each kind of row; where there is room, or no other interval, with the intervals of A and B."""
    a, b = comparison.names
    wide = width >= _WIDE or not _has_intervals(comparison)
    confidence = formatting.whole_percent(comparison.confidence)
    columns = (
        Column(a),
        Column(b),
        *([Column(f"± {a}, {b}", spare=2)] if wide else []),
        Column(f"{b} / {a} ({confidence})"),
        Column("verdict", right=False, status=True),
        Column("detectable", spare=1),
    )
    made = []
    for kind, title in _TITLES.items():
        rows = [row for row in comparison.rows if row.key.kind == kind]
        names = _names([row.key for row in rows])
        shown, notes = _chosen(rows, _ROWS)
        cells = tuple((names[row.key], *_cells(row, wide)) for row in shown)
        if cells:
            made.append(Table(title, (Column(kind, right=False), *columns), cells, notes))
    return made


def _cells(row: Row, wide: bool) -> tuple[str, ...]:
    within = [", ".join(_half_width(side) for side in (row.a, row.b))] if wide else []
    return (
        _time(row.a),
        _time(row.b),
        *within,
        _ratio(row),
        word(row.verdict),
        MISSING if row.smallest_change is None else _change(row.smallest_change),
    )


def _legend(comparison: Comparison) -> str:
    unit = {"process": "runs"}.get(comparison.unit, f"{comparison.unit}s")
    confidence = formatting.whole_percent(comparison.confidence)
    (a, b), delta = comparison.names, formatting.percent(comparison.delta)
    if not _has_intervals(comparison):
        return f"±: half the {confidence} interval of the median within the recording"
    ratio = "the mean ratio of neighbouring ones" if comparison.paired else "the ratio of their geometric means"
    return (
        f"{a}, {b}: medians over {unit}; {b} / {a}: {ratio}, with intervals that hold for all rows together"
        f" ({confidence}); SAME: within {delta}; detectable: the smallest change that would be found nine times in ten"
    )


def _has_intervals(comparison: Comparison) -> bool:
    return any(row.ratio is not None for row in comparison.rows)


def _chosen(rows: Sequence[Row], most: int) -> tuple[list[Row], tuple[str, ...]]:
    """The rows that take most time and all that are slower or faster, in order, and a note about the others."""
    changed = (Verdict.SLOWER, Verdict.FASTER)
    shown = [row for number, row in enumerate(rows) if number < most or row.verdict in changed]
    counts = Counter(row.verdict for row in rows[most:] if row.verdict not in changed)
    if not counts:
        return shown, ()
    kinds = ", ".join(f"{count:,} {word(verdict)}" for verdict, count in counts.items())
    return shown, (f"and {sum(counts.values()):,} more that take less time ({kinds})",)


def _names(keys: Sequence[Key]) -> dict[Key, str]:
    """The shortest names that tell rows apart: the name, with the label and the grid where others share it."""
    names = {}
    for key in keys:
        alike = [other for other in keys if other.kind == key.kind and other.name == key.name]
        name = key.name or "(no name)"
        if len({other.label for other in alike}) > 1:
            name += f" in {key.label or '(no label)'}"
        if len({other.grid for other in alike if other.label == key.label}) > 1:
            name += f", {key.grid}" + (" commands" if key.kind == "graph" else "")
        names[key] = name
    return names


def _one_sided(comparison: Comparison) -> list[str]:
    lines = []
    for name, rows in _by_side(comparison):
        if rows:
            texts = [f"{row.key.kind} {_full(row.key)}" for row in rows]
            lines.append(f"Only in {name}: {_listed(texts, _ONE_SIDED)}")
    return lines


def _full(key: Key) -> str:
    unit = " commands" if key.kind == "graph" else ""
    label = f" in {key.label}" if key.label else ""
    return f"{key.name or '(no name)'}{label}{f' ({key.grid}{unit})' if key.grid else ''}"


def _listed(texts: Sequence[str], most: int) -> str:
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _time(side: Side) -> str:
    return formatting.time(side.median_ns) if math.isfinite(side.median_ns) else MISSING


def _ratio(row: Row) -> str:
    if row.ratio is not None:
        return f"{_digits(row.ratio.estimate)} ({_digits(row.ratio.low)}–{_digits(row.ratio.high)})"
    ratio = row.b.median_ns / row.a.median_ns if row.a.median_ns > 0 else math.nan
    return _digits(ratio) if math.isfinite(ratio) else MISSING


def _digits(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:,.0f}"


def _half_width(side: Side) -> str:
    interval = side.interval
    if interval is None or not side.median_ns > 0:
        return MISSING
    return f"{(interval.high - interval.low) / 2 / side.median_ns * 100:.1f} %"


def _change(part: float) -> str:
    return f"{part * 100:.1f} %" if part < 10 else "> 1000 %"


# --- Markdown ------------------------------------------------------------------------------------------------


def as_markdown(comparison: Comparison) -> str:
    """The comparison for a pull request. What comes from programs and files stands in code spans, where it can be
    neither a link, a mention nor HTML."""
    lines = [f"**{heading}**: {_listed(texts, _NAMED)}  " for heading, texts in _statements(comparison, _code)]
    lines += ["", *(f"- {_code(line)}" for line in comparison.about)] if comparison.about else []
    if comparison.differences:
        lines += ["", "Beside the program, these differ:", "", *(f"- {_code(line)}" for line in comparison.differences)]
    for table in _tables(comparison):
        lines += ["", _cells_line(column.heading for column in table.columns)]
        lines.append(_cells_line("--:" if column.right else ":--" for column in table.columns))
        lines += [_cells_line((_code(name), *cells)) for name, *cells in table.rows]
        lines += ["", *table.notes] if table.notes else []
    lines += ["", *(f"{_code(line)}  " for line in _one_sided(comparison))] if _one_sided(comparison) else []
    lines += ["", *comparison.notes] if comparison.notes else []
    return "\n".join([*lines, ""])


def _cells_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(text: str) -> str:
    """A code span; where the text has characters that could end one or the cell, the same with all punctuation as
    entities."""
    text = visible(text, LONGEST_SENTENCE)
    if not _ENDS_CODE.search(text):
        return f"`{text}`"
    return f"<code>{_PUNCTUATION.sub(lambda match: f'&#{ord(match[0])};', text)}</code>"


# --- JSON ----------------------------------------------------------------------------------------------------


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a dictionary of plain types; docs/json.md describes every field."""
    made = {
        "format": "ostinato.comparison",
        "version": VERSION,
        "names": comparison.names,
        "about": comparison.about,
        "differences": comparison.differences,
        "notes": comparison.notes,
        "unit": comparison.unit,
        "paired": comparison.paired,
        "delta": comparison.delta,
        "confidence": comparison.confidence,
        "verdict": comparison.verdict.value,
        "ratio": _interval(comparison.ratio),
        "rows": [
            {
                **_key(row.key),
                "a": _side(row.a),
                "b": _side(row.b),
                "ratio": _interval(row.ratio),
                "verdict": row.verdict.value,
                "smallest_change": row.smallest_change,
            }
            for row in comparison.rows
        ],
        "only_a": [{**_key(row.key), "share": row.share} for row in comparison.only_a],
        "only_b": [{**_key(row.key), "share": row.share} for row in comparison.only_b],
        "closing": closing(comparison),
    }
    plain: dict[str, Any] = plain_types(made)
    return plain


def as_json(comparison: Comparison) -> str:
    """The comparison as text; ASCII only, so that nothing in it can act on a terminal."""
    return json.dumps(as_dict(comparison), indent=2, ensure_ascii=True, allow_nan=False)


def _key(key: Key) -> dict[str, Any]:
    return {"kind": key.kind, "name": key.name, "label": key.label, "grid": key.grid}


def _side(side: Side) -> dict[str, Any]:
    return {
        "median_ns": side.median_ns,
        "interval": _interval(side.interval),
        "units": side.units,
        "runs": side.runs,
        "share": side.share,
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {
        "estimate": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "confidence": interval.confidence,
    }
