"""Findings as SARIF 2.1.0, for code scanning.

A finding is shown at the line of the kernel where it was noticed. The other access and the lines that encoded the
dispatches are related locations. Where the kernel's source is no file, the line that encoded the dispatch comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..base.printable import printable
from ..version import __version__
from .findings import Coverage, Finding, Ignored
from .kinds import KINDS

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

Json = dict[str, Any]


def sarif(findings: Iterable[Finding], ignored: Iterable[Ignored], root: Path, coverage: Coverage) -> Json:
    """A log with one run; ignored findings are suppressed results, and files below `root` are relative to it.

    What was not checked, and how many reports were dropped, are notifications.
    """
    known = [(each.finding, each) for each in ignored]
    listed = [(finding, None) for finding in findings]
    results = [_result(finding, root, suppressed) for finding, suppressed in (*listed, *known)]
    kinds = dict.fromkeys((*KINDS, *(finding.kind for finding, _ in (*listed, *known))))
    driver = {"name": "ostinato", "version": __version__, "rules": [_rule(kind) for kind in kinds]}
    left_out = filter(None, (*coverage.unchecked, coverage.lost_text))
    notifications = [{"level": "note", "message": {"text": printable(text)}} for text in left_out]
    invocation = {"executionSuccessful": True, "toolExecutionNotifications": notifications}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(kind: str) -> Json:
    rule: Json = {"id": _rule_id(kind), "name": "".join(word.capitalize() for word in kind.split())}
    if kind in KINDS:
        meaning, advice = map(_sentence, KINDS[kind])
        rule |= {"shortDescription": {"text": meaning}, "help": {"text": f"{meaning} {advice}"}}
    return rule


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def _rule_id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(finding: Finding, root: Path, suppressed: Ignored | None) -> Json:
    places = list(_locations(finding, root))
    places.sort(key=lambda location: "physicalLocation" not in location)
    text = "; ".join(part for part in (finding.why, finding.advice) if part)
    names = ", ".join(finding.names)
    result: Json = {
        "ruleId": _rule_id(finding.kind),
        "level": finding.severity,
        "message": {"text": printable(f"{names}: {text}" if names else text)},
        "locations": [location for location in places[:1] if "physicalLocation" in location],
    }
    related = places[len(result["locations"]) :]
    if related:
        result["relatedLocations"] = [location | {"id": number} for number, location in enumerate(related, start=1)]
    if finding.count > 1:
        result["occurrenceCount"] = finding.count
    if suppressed is not None:
        source = "inSource" if suppressed.in_source else "external"
        result["suppressions"] = [{"kind": source, "justification": printable(suppressed.reason)}]
    return result


def _locations(finding: Finding, root: Path) -> Iterator[Json]:
    if finding.code is not None:
        text = f"the code of {', '.join(finding.names)}"
        yield _location(finding.code.file, finding.code.line, finding.code.column, text, root)
    for access in reversed(finding.accesses):
        if access.place is not None:
            yield _location(access.place.file, access.place.line, access.place.column, str(access), root)
    for name, place in zip(finding.names, finding.places, strict=True):
        if place is not None:
            yield _location(place.file, place.line, None, f"{name} was encoded here", root)


def _location(file: str, line: int, column: int | None, text: str, root: Path) -> Json:
    location: Json = {"message": {"text": printable(text)}}
    if file.startswith("<"):  # a text of the program, or an interactive session
        return location
    path = root / file
    uri = quote(path.relative_to(root).as_posix()) if path.is_relative_to(root) else path.as_uri()
    region = {"startLine": line} | ({"startColumn": column} if column else {})
    return location | {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
