"""Counting how often the statements of a source run: a call before each of them, and the lines where they stand.

Works on tokens, so it holds with every compiler, and names the user's own lines. Statements inside a lambda or a
`constexpr` function, and declarations that make no code, are not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .declarations import Declarations, Function
from .rewriter import Rewriter
from .syntax import Syntax

_NO_CODE = frozenset({";", "}", "typedef", "using", "struct", "class", "union", "enum", "static_assert", "template"})
_WITH_HEADER = frozenset({"if", "for", "while", "switch"})
_COUNTER = re.compile(r"__ost_ran\(([0-9]+)\)")


@dataclass(frozen=True, slots=True)
class CountedLine:
    """A counter of a library, by its place in the library's table, and the line that it counts."""

    counter: int
    file: str
    line: int
    function: str
    """The name of the function that the line belongs to."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A statement that is counted: its first token, and its function."""

    token_at: int
    function: Function


def count_statements(syntax: Syntax, declarations: Declarations, rewriter: Rewriter) -> list[Counter]:
    """Writes a call before each statement. The first counter counts threads, and belongs to no statement."""
    counters: list[Counter] = []
    for function in declarations.functions:
        if function.body is None or "constexpr" in syntax.texts[function.start : function.name_at]:
            continue
        for index, alone in _statements(syntax, function.body[0]):
            counters.append(Counter(index, function))
            ran = f"::__ost_ran({len(counters)})"
            # A body without braces stays one statement.
            rewriter.lead(index, f"if ({ran}); else" if alone else f"{ran};")
    return counters


def surviving(program: str) -> frozenset[int]:
    """The counters in a translated text: functions may be merged, and variables moved."""
    return frozenset(map(int, _COUNTER.findall(program)))


def _statements(syntax: Syntax, body: int) -> Iterator[tuple[int, bool]]:
    """The first tokens of the statements in a block, and whether each is the body of an `if`, an `else` or a loop."""
    texts, match = syntax.texts, syntax.match
    waiting = [(body, False)]
    while waiting:
        index, alone = waiting.pop()
        text = texts[index]
        if text == "{":
            waiting += [(start, False) for start in _in_block(syntax, index)]
            continue
        if text in _WITH_HEADER:
            opening = index + (2 if texts[index + 1] == "constexpr" else 1)
            begin = match[opening] + 1
            waiting.append((begin, True))
            after = syntax.after_statement(begin)
            if text == "if" and texts[after] == "else":
                waiting.append((after + 1, True))
        elif text == "do":
            waiting.append((index + 1, True))
        elif text in _NO_CODE or _declares_threadgroup_memory(syntax, index):
            continue
        yield index, alone


def _in_block(syntax: Syntax, opening: int) -> Iterator[int]:
    """Where the statements of a block begin, after their labels."""
    texts, match = syntax.texts, syntax.match
    index = opening + 1
    while index < match[opening]:
        if texts[index] in ("case", "default"):
            while index < match[opening] and texts[index] != ":":
                index = max(match[index], index) + 1
            index += 1
            continue
        yield index
        index = max(syntax.after_statement(index), index + 1)


def _declares_threadgroup_memory(syntax: Syntax, index: int) -> bool:
    texts, match = syntax.texts, syntax.match
    while index < syntax.count and texts[index] not in (";", "="):
        if texts[index] == "threadgroup":
            return True
        index = max(match[index], index) + 1
    return False
