"""Audits as tables, with one row per finding, for a terminal, as plain text and for notebooks; and as JSON."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..base import fragments
from ..base.fragments import Column
from ..base.printable import printable
from ..base.source_lines import Place
from .findings import Audit, Coverage, Finding, Ignored, InferredBarrier

if TYPE_CHECKING:
    from .check import Checked

_COLOURS = {"error": "bold red", "note": "yellow"}
_WIDTH = 100
_SHOWN_INFERRED = 20


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, int]]:
    """Equal findings about the same lines as one, with their number."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        # Findings without a line are told apart by their nodes, and those without nodes by their text.
        places = tuple(place or node for place, node in zip(finding.places, finding.nodes, strict=True))
        what = (finding.severity, finding.kind, finding.names, finding.advice, finding.access, finding.argument)
        groups.setdefault((*what, finding.kernel_places, places or finding.why), []).append(finding)
    return [(group[0], len(group)) for group in groups.values()]


def findings_table(findings: Iterable[Finding]) -> Table:
    """The table of findings: severity, what, where, why, what to do."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column("what", ratio=3)
    table.add_column("where", ratio=6, overflow="fold")
    table.add_column("why", ratio=8, overflow="fold")
    table.add_column("what to do", ratio=6, overflow="fold")
    for finding, why in _finding_rows(findings):
        table.add_row(
            Text(finding.severity, _COLOURS[finding.severity]),
            finding.kind,
            "\n".join(_safe(place) for place in finding.where) or "the list",
            _safe(why),
            _safe(finding.advice),
        )
    return table


def _finding_rows(findings: Iterable[Finding]) -> Iterator[tuple[Finding, str]]:
    """The findings to show, and why, with how often."""
    for finding, count in grouped(findings):
        yield finding, finding.why + (f" ({count} times)" if count > 1 else "")


def inferred_table(inferred: Sequence[InferredBarrier], at_most: int | None = None) -> Table:
    """The table of inferred barriers: where, and because of what."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("inferred before", ratio=2, overflow="fold")
    table.add_column("because of", ratio=5, overflow="fold")
    for where, why in _inferred_rows(inferred, at_most):
        table.add_row(_safe(where), _safe(why))
    return table


def _inferred_rows(inferred: Sequence[InferredBarrier], at_most: int | None) -> Iterator[tuple[str, str]]:
    rows: dict[tuple[str, str], int] = {}
    for barrier in inferred:
        where = f"{barrier.name} ({barrier.place or f'node {barrier.node}'})"
        rows[where, barrier.why] = rows.get((where, barrier.why), 0) + 1
    for number, ((where, why), count) in enumerate(rows.items()):
        if number == at_most:
            yield f"… and {len(rows) - number} more", ""
            return
        yield where, why + (f" ({count} times)" if count > 1 else "")


def ignored_table(ignored: Iterable[Ignored]) -> Table:
    """The table of findings that are ignored: what, where, and why they are."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("ignored", ratio=3)
    table.add_column("where", ratio=6, overflow="fold")
    table.add_column("because", ratio=8, overflow="fold")
    table.add_column("says", ratio=6, overflow="fold")
    rows = dict.fromkeys(
        ((each.finding.kind,), (*_all_places(each.finding),) or ("the list",), (each.reason,), each.by)
        for each in ignored
    )
    for row in rows:
        table.add_row(*("\n".join(map(_safe, lines)) for lines in row))
    return table


def summary(coverage: Coverage, findings: Sequence[Finding], ignored: int = 0) -> str:
    """What was checked and what was not, as text."""
    errors = sum(finding.is_error for finding in findings)
    counts = f"{_count(errors, 'error')}, {_count(len(findings) - errors, 'note')}"
    parts = [
        counts + (f", {ignored} ignored" if ignored else ""),
        f"{_count(coverage.dispatches, 'dispatch', 'dispatches')} checked",
    ]
    ran = coverage.alone or coverage.checked or coverage.orders
    unchecked = coverage.unchecked
    if coverage.dispatches and not ran and not unchecked:
        unchecked = ("what kernels do to memory, without run=True",)
    if ran:
        parts.append(
            f"{coverage.alone} run alone, {coverage.checked} in the checked build, {_count(coverage.orders, 'run')}"
            " compared with a serial run"
        )
    if coverage.lost:
        parts.append(coverage.lost_text)
    text = "; ".join(parts)
    return f"{text}\nnot checked: {'; '.join(unchecked)}" if unchecked else text


def renderable(audit: Audit) -> RenderableType:
    """An audit, for rich."""
    parts: list[RenderableType] = []
    if audit.findings:
        parts += [findings_table(audit.findings), ""]
    if audit.inferred:
        parts += [inferred_table(audit.inferred, _SHOWN_INFERRED), ""]
    parts.append(Text(summary(audit.coverage, audit.findings, len(audit.ignored))))
    return Group(*parts)


def as_html(audit: Audit) -> str:
    """An audit as a fragment of HTML."""
    parts = []
    if audit.findings:
        columns = (Column("", "status"), Column("what"), Column("where"), Column("why"), Column("what to do"))
        rows = (
            (finding.severity, finding.kind, ", ".join(finding.where) or "the list", why, finding.advice)
            for finding, why in _finding_rows(audit.findings)
        )
        parts.append(fragments.table(columns, rows, "Audit: findings"))
    if audit.inferred:
        barriers = _inferred_rows(audit.inferred, _SHOWN_INFERRED)
        columns_of_barriers = (Column("before", "name"), Column("because of"))
        parts.append(fragments.table(columns_of_barriers, barriers, "Audit: inferred barriers"))
    checked, _, unchecked = summary(audit.coverage, audit.findings, len(audit.ignored)).partition("\n")
    parts.append(fragments.line(f"{'fine' if audit.ok else 'error'}: {checked}", "status"))
    if unchecked:
        parts.append(fragments.line(unchecked, "note"))
    return fragments.fragment(*parts)


def checked(result: Checked, why: bool = False, everything: bool = False) -> RenderableType:
    """The result of checking a program, for rich.

    `why` adds the reasons of inferred barriers, `everything` the findings that are ignored.
    """
    parts: list[RenderableType] = []
    if result.findings:
        parts += [findings_table(result.findings), ""]
    if everything and result.ignored:
        parts += [ignored_table(result.ignored), ""]
    if why and result.inferred:
        parts += [inferred_table(result.inferred), ""]
    lists = f"{_count(result.submitted, 'command list')} submitted, {result.distinct} distinct checked"
    if result.with_other_values:
        lists += f", {result.with_other_values} with other values"
    if result.inferred and not why:
        lists += f"; {_count(len(result.inferred), 'inferred barrier')} (--why for the reasons)"
    if result.ignored and not everything:
        lists += f"; {_count(len(result.ignored), 'known finding')} ignored (--all shows them)"
    parts.append(Text(f"{lists}\n{summary(result.coverage, result.findings, len(result.ignored))}"))
    parts += [Text(printable(f"matches no finding: {entry}")) for entry in result.unmatched]
    if result.stopped:
        parts.append(Text(printable(f"the program was stopped: {result.stopped}")))
    elif result.status:
        parts.append(Text(f"the program ended with status {result.status}"))
    return Group(*parts)


def plain(result: Checked) -> dict[str, Any]:
    """The result of checking a program, for JSON."""
    return {
        "ok": result.ok,
        "status": result.status,
        "stopped": result.stopped,
        "lists": {
            "submitted": result.submitted,
            "checked": result.distinct,
            "checked_with_other_values": result.with_other_values,
        },
        "findings": [_plain_finding(finding) for finding in result.findings],
        "ignored": [
            {
                "kind": each.finding.kind,
                "where": _all_places(each.finding),
                "reason": each.reason,
                "by": each.by,
                "in_source": each.in_source,
            }
            for each in result.ignored
        ],
        "unmatched": result.unmatched,
        "inferred": [asdict(barrier) | {"place": _plain_place(barrier.place)} for barrier in result.inferred],
        "coverage": asdict(result.coverage),
    }


def _all_places(finding: Finding) -> list[str]:
    """Where a finding's commands were encoded, and its accesses in the kernel."""
    return [*finding.where, *map(str, finding.kernel_places)]


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return asdict(finding) | {"places": [_plain_place(place) for place in finding.places]}


def _plain_place(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {"file": place.file, "line": place.line}


def text(audit: Audit) -> str:
    """An audit as plain text."""
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, legacy_windows=False)
    console.print(renderable(audit))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def _safe(text: str) -> str:
    """Text with names from programs, escaped for a cell."""
    return escape(printable(text))


def _count(number: int, singular: str, plural: str | None = None) -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
