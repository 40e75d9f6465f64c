"""Where emitted text came from: a map from every emitted token to the token of the user's source.

Whoever emits a token writes a mark before it: the index of the token between two control characters, which no source
can contain. So text can be copied and put together like any text. `take_marks` takes the marks out of the finished text
and keeps where they stood, 8 bytes for each. What follows a mark, up to the next one, came from its token or was
inserted for it.

The finished text stands in the compiled file after a `#line` that calls it `TRANSLATION`. The messages of compilers
therefore name its lines, and `placed` turns them into messages about the user's source.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from ..errors import Diagnostic, KernelCompileError
from .definitions import SOURCE
from .tokens import IDENTIFIER, Token, diagnostic_at

TRANSLATION = "<translation>"
"""The file of translated text in the messages of compilers."""

MARK_BACK = "\x01\x02"
"""Stands after copied text: what follows came from the token that the copy was inserted for."""

_LEADING = re.compile("required|requested here|instantiation|expansion of macro")
_QUOTED = re.compile(r"['\"](\w+)['\"]")
_FOLLOWS = re.compile(
    r"""['"]__(?:a\d+|ost_\w+)['"]\ (?:was\ not\ declared|is\ undefined)
      | (?:undeclared\ identifier|call\ to|function\ template)\ ['"]__(?:a\d|ost_)""",
    re.VERBOSE,
)
_MOST_NOTES = 4
_UNNAMED = "program_source"
"""Metal's name of a source without a `#line`."""


def mark(index: int) -> str:
    """What follows came from the token with this index."""
    return f"\x01{index}\x02"


def mark_entry(index: int) -> str:
    """What follows is made of the declaration, or the instantiation, with a token of this index."""
    return mark(~index)


@dataclass(frozen=True, slots=True)
class SourceMap:
    """For each piece of an emitted text, the token it came from."""

    tokens: Sequence[Token]
    starts: array[int]
    """The offset of each piece, in bytes of UTF-8, ascending."""
    indices: array[int]
    """The token of each piece; with all bits inverted, a token of the declaration that the piece is made of."""
    lines: array[int]
    """The offset of each line of the text, and of its end."""

    def token(self, line: int, column: int, quoted: Collection[str] = ()) -> Token | None:
        """The token behind a place of the text; ``line`` and ``column``, in bytes, count from 1.

        In what is made of a declaration, it is the first token there with one of the texts that a message quotes.
        """
        index = self._index(line, column)
        if index is None or index >= 0:
            return None if index is None else self.tokens[index]
        declaration = takewhile(lambda token: token.text not in (";", "{"), self.tokens[~index:])
        return next((token for token in declaration if token.text in quoted), self.tokens[~index])

    def array_name(self, line: int, column: int) -> str | None:
        """The name of the array whose subscript ends at a place of the text, or whose expression begins there.

        None where it has no name, and where the expression has subscripts of several arrays.
        """
        index = self._index(line, column)
        if index is None or index < 0:
            return None
        tokens, depth = self.tokens, 0
        if tokens[index].text == "]":
            while tokens[index].text == "]" or depth:
                depth += (tokens[index].text == "]") - (tokens[index].text == "[")
                index -= 1
            return tokens[index].text if tokens[index].kind == IDENTIFIER else None
        while tokens[index + 1].text in (".", "->"):
            index += 2
        after = index + 1
        while tokens[after].text == "[" or depth:
            depth += (tokens[after].text == "[") - (tokens[after].text == "]")
            after += 1
        named = tokens[index].kind == IDENTIFIER and tokens[after].text not in (".", "->")
        return tokens[index].text if named else None

    def _index(self, line: int, column: int) -> int | None:
        if not 1 <= line < len(self.lines):
            return None
        piece = bisect_right(self.starts, self.lines[line - 1] + column - 1) - 1
        return self.indices[piece] if piece >= 0 else None

    def on_line(self, line: int) -> list[Token]:
        """The tokens behind a line of the text."""
        if not 1 <= line < len(self.lines):
            return []
        first = bisect_right(self.starts, self.lines[line - 1]) - 1
        end = bisect_left(self.starts, self.lines[line])
        return [self.tokens[max(index, ~index)] for index in self.indices[max(first, 0) : end]]


def take_marks(text: str, tokens: Sequence[Token]) -> tuple[str, SourceMap]:
    """The text without its marks, and the map that they are."""
    parts = text.replace("\x01", "\x02").split("\x02")  # text, index, text, index, text, …
    pieces = parts[::2]
    clean = "".join(pieces)
    counted = map(len, pieces[:-1] if clean.isascii() else [piece.encode() for piece in pieces[:-1]])
    encoded = clean.encode()
    lines = array("I", (0, *(newline.end() for newline in re.finditer(b"\n", encoded)), len(encoded)))
    return clean, SourceMap(tokens, array("I", accumulate(counted)), array("i", map(int, parts[1::2])), lines)


def placed(error: KernelCompileError, source_map: SourceMap, own: Iterable[str] = ()) -> KernelCompileError:
    """A compiler's error with its messages in the user's source.

    A message about a header of ours is placed at the line of the user that led there. Files in ``own`` are the user's.
    """
    # Names of ours are undeclared only where their declarations have errors.
    causes = [each for each in error.diagnostics if not _FOLLOWS.search(each.message)] or error.diagnostics
    diagnostics = dict.fromkeys(_placed(diagnostic, source_map, frozenset(own)) for diagnostic in causes)
    return KernelCompileError.of(list(diagnostics), error.details)


def placed_by_reading(error: KernelCompileError, read: Sequence[Token], tokens: Sequence[Token]) -> KernelCompileError:
    """An error of a compiler that got a text which reads as ``read``, with its messages at the same ``tokens``."""
    return KernelCompileError.of([_read(diagnostic, read, tokens) for diagnostic in error.diagnostics], error.details)


def _read(diagnostic: Diagnostic, read: Sequence[Token], tokens: Sequence[Token]) -> Diagnostic:
    names = (diagnostic.file, SOURCE if diagnostic.file == _UNNAMED else None)
    places = [
        (token.column, -index)
        for index, token in enumerate(read)
        if token.line == diagnostic.line and token.column <= (diagnostic.column or 1 << 31) and token.file in names
    ]
    if not places:
        return diagnostic
    _, index = max(places) if diagnostic.column is not None else min(places)
    place = diagnostic_at(diagnostic.message, tokens[-index])
    return place if diagnostic.column is not None else replace(place, column=None)


def _placed(diagnostic: Diagnostic, source_map: SourceMap, own: frozenset[str]) -> Diagnostic:
    place = _at_source(diagnostic, source_map, own)
    notes = [note for note in (_at_source(note, source_map, own) for note in diagnostic.notes) if note is not None]
    notes.sort(key=lambda note: _LEADING.search(note.message) is None)
    if place is None and notes:
        place = replace(notes.pop(0), message=diagnostic.message)
    if place is None:
        return Diagnostic(diagnostic.message)
    others = [replace(note, notes=()) for note in notes]
    return replace(place, notes=(*place.notes, *dict.fromkeys(others))[:_MOST_NOTES])


def _at_source(diagnostic: Diagnostic, source_map: SourceMap, own: frozenset[str]) -> Diagnostic | None:
    """A message without its notes in the user's source, with a note about the macro; None if it is not about that."""
    if diagnostic.file in own:
        return replace(diagnostic, column=None, notes=())
    if diagnostic.file != TRANSLATION or diagnostic.line is None:
        return None
    if diagnostic.column is not None:
        token = source_map.token(diagnostic.line, diagnostic.column, _QUOTED.findall(diagnostic.message))
        return None if token is None else diagnostic_at(diagnostic.message, token)
    # Some messages have no column, but quote the name of what is instantiated.
    tokens = source_map.on_line(diagnostic.line)
    called = set(re.findall(r"(\w+) *[(<]", diagnostic.message))
    for token in tokens:
        if token.kind == IDENTIFIER and token.text in called:
            return diagnostic_at(diagnostic.message, token)
    if not tokens:
        return None
    first = diagnostic_at(diagnostic.message, tokens[0])
    return first if len(tokens) == 1 else replace(first, column=None)
