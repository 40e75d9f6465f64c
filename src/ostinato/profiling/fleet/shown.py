"""A report on a store for people: tables on a terminal, and a page for a browser.

The page is put together like that of a recording: nothing of a recording is part of its markup, scripts show data as
text, and the policy lets nothing else run or load.
"""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.text import Text

from ...base.files import write_whole
from ...base.fragments import STYLE, line
from ..analyse import formatting
from ..analyse.origin import moment
from ..analyse.statistics import Interval
from ..report.html import table_html
from ..report.page.sentences import sentence
from ..report.page.writing import assembled
from ..report.tables import MISSING, Column, Table
from ..report.terminal import print_line, print_sentence, print_table
from ..report.text import LONGEST_SENTENCE, visible
from .findings import Change, Slow
from .querying import Answer
from .reporting import FleetReport

_ROWS = 20
_KERNEL_ROWS = 30
_MOST_DRAWN = 40
_MOST_RANKS = 8
_SHORT = 12
_MORE = "ostinato fleet report --width {width}, or --json"
_PLACE = (Column("program", right=False, spare=3), Column("device", right=False, spare=1))


def overview(report: FleetReport) -> list[str]:
    """What the store holds of what was asked about."""
    first, last = report.days
    counts = ", ".join(
        formatting.count(count, what)
        for count, what in ((report.hosts, "host"), (report.versions, "version"), (report.samples, "sample"))
    )
    days = first if first == last else f"{first} to {last}"
    lines = [
        f"{report.store}: {formatting.count(report.recordings, 'recording')}, {counts}{f', {days}' if first else ''}",
        f"devices: {', '.join(report.devices) or 'none'}",
    ]
    if report.lost or report.unclosed:
        lines.append(
            f"{report.lost:,} lost while recording; {formatting.count(report.unclosed, 'recording')} never closed"
        )
    return lines


def closing(report: FleetReport) -> str:
    """The line to read first."""
    slower = [change for change in report.changes if change.step.change > 0]
    if slower:
        worst = slower[0]
        return (
            f"look first at {worst.kernel} on {worst.device}: {_percent(worst.step.change)} slower since"
            f" {_short(worst.version)}"
        )
    if report.slow_hosts:
        slow = report.slow_hosts[0]
        return f"look first at {slow.name}: {_percent(slow.slower.estimate)} slower than its peers"
    return "no kernel became slower, and no host stands out" if report.series else "too few runs to compare versions"


def tables(report: FleetReport, kernels: int | None = None) -> list[Table]:
    """All tables that have rows, most useful first; `kernels` limits the rows of the one that has most."""
    made = (
        _changes(report),
        _slow("Slow hosts, against others on the same work", report.slow_hosts, report),
        _slow("Slow ranks, against others on the same work", report.slow_ranks, report),
        _kernels(report, len(report.kernels) if kernels is None else kernels),
        _missing(report),
        _failed(report),
        _aside(report),
    )
    return [table for table in made if table.rows]


def print_report(report: FleetReport, to: Console) -> None:
    """Prints all of it."""
    for text in overview(report):
        print_sentence(text, to)
    for table in tables(report, _KERNEL_ROWS):
        to.print()
        print_table(table, to, _MORE)
    to.print()
    print_line(Text(visible(closing(report), LONGEST_SENTENCE), style="bold"), to)


def print_answer(answer: Answer, to: Console, most: int = 1000) -> None:
    """Prints the rows of a query."""
    rows = tuple(tuple("" if value is None else str(value) for value in row) for row in answer.rows[:most])
    numeric = [
        all(isinstance(row[at], int | float) or row[at] is None for row in answer.rows[:most])
        for at in range(len(answer.columns))
    ]
    columns = tuple(Column(name, right=right) for name, right in zip(answer.columns, numeric, strict=True))
    hidden = len(answer.rows) - len(rows)
    notes = (f"{hidden:,} more rows; --json has all",) if hidden > 0 else ()
    print_table(Table(formatting.count(len(answer.rows), "row"), columns, rows, notes), to, _MORE)


def save_page(report: FleetReport, path: str | os.PathLike[str]) -> int:
    """Writes the page, which is there whole or not at all; its size in bytes."""
    text = page(report).encode()
    write_whole(path, text)
    return len(text)


def page(report: FleetReport) -> str:
    """The page, as text."""
    shown = tables(report)
    body = "\n".join(
        [*(line(text) for text in overview(report)), *map(table_html, shown), line(closing(report), "first")]
    )
    head = {
        "overview": [sentence(text) for text in overview(report)],
        "figures": [],
        "look_first": sentence(closing(report)),
        "named": [],
        "sure": True,
        "tone": "",
        "checks_title": f"{formatting.count(len(report.failed), 'recording')} with failed checks",
        "checks_open": False,
        "checks": [
            {"name": visible(each.file), "status": "error", "sentence": sentence("; ".join(each.checks))}
            for each in report.failed[:_ROWS]
        ],
    }
    data = {
        "kernels": [],
        "head": head,
        "fleet": {
            "tables": [_plain(table) for table in shown],
            "changes": [_drawn(change) for change in report.changes[:_MOST_DRAWN]],
        },
    }
    return assembled(data, f"fleet: {report.store}", STYLE, body, ["fleet"])


def _plain(table: Table) -> dict[str, Any]:
    return {
        "title": visible(table.title),
        "columns": [{"heading": column.heading, "right": column.right} for column in table.columns],
        "rows": [[visible(cell, LONGEST_SENTENCE) for cell in row] for row in table.rows],
        "notes": [sentence(note) for note in table.notes],
    }


def _drawn(change: Change) -> dict[str, Any]:
    return {
        "kernel": visible(change.kernel),
        "device": visible(change.device),
        "text": sentence(_said(change)),
        "at": change.at,
        "versions": [visible(_short(version)) for version, _, _ in change.series],
        "middle_ns": [middle for _, middle, _ in change.series],
        "error": [error for _, _, error in change.series],
    }


def _said(change: Change) -> str:
    step = change.step
    word = "slower" if step.change > 0 else "faster"
    return (
        f"{_percent(abs(step.change))} {word} since {_short(change.version)}"
        f" ({_signed(step.low)} to {_signed(step.high)}; {step.errors:.0f} standard errors)"
    )


def _changes(report: FleetReport) -> Table:
    rows = tuple(
        (
            change.kernel,
            change.work,
            change.device,
            _short(change.version),
            _short(change.before),
            _signed(change.step.change),
            f"{_signed(change.step.low)} to {_signed(change.step.high)}",
        )
        for change in report.changes[:_ROWS]
    )
    return Table(
        "Kernels that became slower or faster",
        (
            *(Column("kernel", right=False), *_PLACE),
            *(Column("since", right=False), Column("before it", right=False, spare=2)),
            *(Column("change"), Column("95 % interval", spare=1)),
        ),
        rows,
        (
            f"{formatting.count(report.series, 'kernel')} searched; one without any change is reported with a"
            f" probability of at most {report.alarm_rate:.1%}",
            *_more(len(report.changes) - len(rows)),
        ),
    )


def _slow(title: str, slow: tuple[Slow, ...], report: FleetReport) -> Table:
    rows = tuple(
        (
            each.name,
            each.work,
            each.device,
            _signed(each.slower.estimate),
            f"{_signed(each.slower.low)} to {_signed(each.slower.high)}",
            f"{each.runs:,}",
            ", ".join(each.hosts[:_MOST_RANKS]),
        )
        for each in slow[:_ROWS]
    )
    columns = (
        *(Column("", right=False), *_PLACE, Column("slower by"), Column("95 % interval", spare=1)),
        *(Column("runs"), Column("hosts", right=False, spare=2)),
    )
    notes = (
        f"of a fleet of equals, one is named with probability {report.slow_rate:.0%}",
        *_more(len(slow) - len(rows)),
    )
    return Table(title, columns, rows, notes)


def _kernels(report: FleetReport, most: int) -> Table:
    rows = tuple(
        (
            *(row.kernel, row.work, row.device, _short(row.version), f"{row.runs:,}", f"{row.samples:,}"),
            *(_time(row.p50), _range(row.p50), _time(row.p99), _range(row.p99)),
        )
        for row in report.kernels[:most]
    )
    return Table(
        "Kernels by device and version, those with most time first",
        (
            *(
                Column("kernel", right=False),
                *_PLACE,
                Column("version", right=False),
                Column("runs"),
                Column("samples", spare=3),
            ),
            *(Column("p50"), Column("interval", spare=1), Column("p99"), Column("interval of p99", spare=2)),
        ),
        rows,
        (
            "p50 and p99: of the typical run, with 95 % intervals over runs",
            *_more(report.kernels_left_out + len(report.kernels) - len(rows)),
        ),
    )


def _missing(report: FleetReport) -> Table:
    rows = []
    for each in report.missing[-_ROWS:]:
        ranks = ", ".join(map(str, each.ranks[:_MOST_RANKS])) + (" …" if len(each.ranks) > _MOST_RANKS else "")
        found = f"{each.world_size - len(each.ranks):,} of {each.world_size:,}"
        rows.append((moment(each.began_ns), each.work, _short(each.version), found, ranks))
    columns = (
        *(Column("began", right=False), Column("program", right=False), Column("version", right=False, spare=1)),
        *(Column("recordings"), Column("missing ranks", right=False)),
    )
    return Table("Jobs with missing recordings", columns, tuple(rows), _more(len(report.missing) - len(rows)))


def _failed(report: FleetReport) -> Table:
    rows = tuple(
        (each.file, each.host, moment(each.began_ns), "; ".join(each.checks)) for each in report.failed[:_ROWS]
    )
    columns = (
        *(
            Column("recording", right=False),
            Column("host", right=False, spare=1),
            Column("began", right=False, spare=2),
        ),
        Column("check", right=False, wide=True),
    )
    return Table("Recordings whose checks failed", columns, rows, _more(len(report.failed) - len(rows)))


def _aside(report: FleetReport) -> Table:
    rows = tuple((each.file, each.reason) for each in report.aside[-_ROWS:])
    columns = (Column("file", right=False), Column("reason", right=False, wide=True))
    return Table("Set aside, not in the store", columns, rows, _more(len(report.aside) - len(rows)))


def _more(count: int) -> tuple[str, ...]:
    return (f"{formatting.count(count, 'more row')}; --json has more",) if count > 0 else ()


def _time(interval: Interval | None) -> str:
    return MISSING if interval is None else formatting.time(interval.estimate)


def _range(interval: Interval | None) -> str:
    if interval is None or interval.low != interval.low:
        return MISSING
    return f"{formatting.time(interval.low)} to {formatting.time(interval.high)}"


def _signed(part: float) -> str:
    return MISSING if part != part else f"{'−' if part < 0 else '+'}{_percent(abs(part))}"


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _short(version: str) -> str:
    """The beginning of a revision, with its mark."""
    revision, plus, mark = version.partition("+")
    return f"{revision[:_SHORT] if len(revision) >= 40 else revision}{plus}{mark}" or "(no version)"
