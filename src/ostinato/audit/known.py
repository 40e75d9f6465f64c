"""Findings that are known and shall be ignored, by comments in sources and by a table in a file.

A comment stands at the line of an access in the kernel, or at the line that encoded the dispatch, or right above:

    // ostinato: benign race: any of the values will do

The table is TOML. An entry has a kind and a reason, and names a kernel, a file (a pattern, relative to the table's
folder) or a line of a file. A finding that matches an entry in everything that the entry names is ignored.

    [[ignore]]
    kind = "race"
    kernel = "histogram"
    reason = "the counts are advisory"
"""

from __future__ import annotations

import linecache
import os
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..base.printable import printable
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.commands import Dispatch
from ..msl.benign import benign, unknown_kind
from .findings import Finding, Ignored
from .kinds import KINDS

_MOST_BYTES = 1 << 20
_MOST_SHOWN = 40
"""Characters of an unknown kind."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a table."""

    name: str
    """The file of the table, and the number of the entry."""
    folder: str
    kind: str
    reason: str
    kernel: str = ""
    file: str = ""
    line: int = 0

    def matches(self, finding: Finding) -> bool:
        """Whether a finding is of this kind, and about this kernel, file and line."""
        kernels = {name.rpartition("/")[2] for name in finding.names}
        places = [(file, line) for file, line in _places(finding) if self._is_file(file)]
        return (
            finding.kind == self.kind
            and (not self.kernel or self.kernel in kernels)
            and (not self.file or any(self.line in (0, line) for _, line in places))
        )

    def _is_file(self, file: str) -> bool:
        try:
            relative = os.path.relpath(os.path.realpath(file), self.folder)
        except ValueError:  # on another drive
            return False
        return fnmatchcase(relative.replace(os.sep, "/"), self.file)

    def __str__(self) -> str:
        named = [f"{key} {value!r}" for key, value in (("kernel", self.kernel), ("file", self.file)) if value]
        line = f", line {self.line}" if self.line else ""
        return printable(f"{self.name}: {self.kind} in {' and '.join(named)}{line}")


def read_table(path: str | os.PathLike[str]) -> tuple[Entry, ...]:
    """The entries of a table; raises `ArgumentError` if the file has another form."""
    file = Path(path)
    with file.open("rb") as opened:
        data = opened.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ArgumentError(f"it has more than {_MOST_BYTES:,} bytes")
        document = tomllib.loads(data.decode())
        entries = document.pop("ignore", [])
        if document or not isinstance(entries, list):
            raise ArgumentError(f"expected [[ignore]] and nothing else, got {', '.join(document) or 'one [ignore]'}")
        folder = os.path.realpath(file.parent)
        return tuple(
            _entry(f"{file.name}, entry {number}", folder, given) for number, given in enumerate(entries, start=1)
        )
    except (ArgumentError, ValueError) as error:  # of TOML or of UTF-8
        raise ArgumentError(printable(f"{file}: {error}")) from None


def _entry(name: str, folder: str, given: Any) -> Entry:
    number = name.rpartition(", ")[2]
    if not isinstance(given, dict):
        raise ArgumentError(f"{number} is {given!r}, not a table")
    for key, value in given.items():
        if key not in ("kind", "reason", "kernel", "file", "line"):
            raise ArgumentError(f"{number} has {key!r}; there are kind, reason, kernel, file and line")
        if key == "line":
            if type(value) is not int or value < 1:
                raise ArgumentError(f"{number}: line = {value!r} is not the number of a line")
        elif not isinstance(value, str) or not value.strip():
            raise ArgumentError(f"{number}: {key} = {value!r} is not a text")
        elif key == "kind" and value not in KINDS:
            raise ArgumentError(f"{number}: kind = {value!r} is none; there are {', '.join(sorted(KINDS))}")
    missing = [key for key in ("kind", "reason") if key not in given]
    if missing:
        raise ArgumentError(f"{number} has no {' and no '.join(missing)}")
    if "file" not in given and ("kernel" not in given or "line" in given):
        raise ArgumentError(f"{number} names {'a line, and no file' if 'line' in given else 'no kernel and no file'}")
    return Entry(name, folder, **given)


def apart(graph: Graph, findings: Iterable[Finding]) -> tuple[list[Finding], list[Ignored]]:
    """Findings about a graph, without those that a comment in a source calls benign; and these."""
    kept, ignored = [], []
    for finding in findings:
        commented = list(_commented(graph, finding))
        reasons = [(place, benign(lines, finding.kind)) for place, lines in commented]
        counting = [(place, reason) for place, reason in reasons if reason]
        if counting:
            ignored.append(Ignored(finding, counting[0][1], tuple(place for place, _ in counting), in_source=True))
            continue
        faults = [f"the comment at {place} gives no reason" for place, reason in reasons if reason is not None]
        for place, lines in commented:
            unknown = unknown_kind(lines, KINDS)
            if unknown is not None:
                named = unknown[:_MOST_SHOWN]
                faults.append(f"the comment at {place} calls {named!r} benign (there are {', '.join(sorted(KINDS))})")
        kept.append(
            replace(finding, advice=f"{finding.advice}; {faults[0]}, and does not count") if faults else finding
        )
    return kept, ignored


def by_table(findings: Iterable[Finding], entries: Sequence[Entry]) -> tuple[list[Finding], list[Ignored]]:
    """Findings without those that entries of a table match; and these."""
    kept, ignored = [], []
    for finding in findings:
        matching = [entry for entry in entries if entry.matches(finding)]
        if matching:
            names = tuple(entry.name for entry in matching)
            ignored.append(Ignored(finding, matching[0].reason, names, in_source=False))
        else:
            kept.append(finding)
    return kept, ignored


def _places(finding: Finding) -> Iterator[tuple[str, int]]:
    for place in (*finding.kernel_places, *finding.places):
        if place is not None:
            yield place.file, place.line


def _commented(graph: Graph, finding: Finding) -> Iterator[tuple[str, list[str]]]:
    """The places whose comments may call a finding benign, and the lines up to each."""
    for node in finding.nodes:
        command = graph.nodes[node].command
        origin = command.kernel.origin if isinstance(command, Dispatch) else None
        for written in finding.kernel_places if origin is not None else ():
            assert origin is not None
            yield str(written), origin.module.lines_to(written.file, written.line)
    for place in finding.places:
        if place is not None:
            yield str(place), linecache.getlines(place.file)[: place.line]
