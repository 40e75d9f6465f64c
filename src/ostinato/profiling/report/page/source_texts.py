"""The source of kernels on the page: each text once, whole while there is room, and where a kernel stands in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...analyse.columns import ABSENT, Columns, Ints
from ...analyse.sources import SourceText, function_lines, source_of, why_missing
from ..text import LONGEST_SENTENCE, visible
from .packing import packed
from .sentences import sentence

_MOST_CHARACTERS = 2_000_000
"""Of all texts together; of what does not fit whole, functions are shown alone while there is room."""
_NO_ROOM = "left out: the sources of kernels that take more time fill the room that this page has for sources"
_TAB = 4
_ORIGINS = {"recording": "recorded with the program", "file": "read from the local file, which has not changed since"}


class SourceTexts:
    """Collects the texts while kernels are listed."""

    def __init__(self, columns: Columns, with_source: bool) -> None:
        self._columns, self._left, self._with_source = columns, _MOST_CHARACTERS, with_source
        self._numbers: dict[tuple[str, int], int] = {}
        self.made: list[dict[str, Any]] = []
        """`text` in UTF-8, packed; `first` is the number of its first line, and `whole` whether all lines are there."""

    def of(self, commands: Ints) -> dict[str, Any] | None:
        """Where the source of a kernel is, given its commands; None for copies and fills."""
        described = self._columns.commands
        dispatches = commands[described.kind[commands] == "dispatch"]
        if dispatches.size == 0:
            return None
        command = int(dispatches[0])
        line = int(described.line[command])
        compiled = str(described.source[command])
        file = str(described.file[command]) or compiled
        facts: dict[str, Any] = {
            "file": visible(file),
            "compiled": visible(compiled) if compiled != file else "",
            "line": None if line == ABSENT else line,
            "digest": visible(str(described.source_digest[command])),
            "execution": visible(str(described.execution[command]), LONGEST_SENTENCE),
        }
        if not self._with_source:
            return {**facts, "text": None, "why": "This page was made without the source texts of kernels."}
        source = source_of(self._columns, command)
        if source is None:
            return {**facts, "text": None, "why": sentence(why_missing(self._columns, command))}
        function = function_lines(source.text, source.line)
        number = self._number(source, function, facts["digest"])
        if number is None:
            return {**facts, "line": source.line, "text": None, "why": _NO_ROOM}
        return {
            **facts,
            "line": source.line,
            "text": number,
            "lines": [function.start, function.stop - 1],
            "why": _ORIGINS[source.origin],
        }

    def _number(self, source: SourceText, function: range, digest: str) -> int | None:
        """Of the text with these lines; the whole text, if there is room for it. None: there is room for nothing."""
        key = digest, 0
        if key not in self._numbers and len(source.text) > self._left:
            key = digest, function.start
            if key not in self._numbers and self._left <= 0:
                return None
        if key not in self._numbers:
            lines = source.text.split("\n")
            whole = key[1] == 0
            shown = lines if whole else lines[function.start - 1 : function.stop - 1]
            text = "\n".join(visible(line.expandtabs(_TAB), LONGEST_SENTENCE) for line in shown)
            self._left -= len(text)
            self._numbers[key] = len(self.made)
            first = 1 if whole else function.start
            self.made.append({"text": packed(np.frombuffer(text.encode(), np.uint8)), "first": first, "whole": whole})
        return self._numbers[key]
