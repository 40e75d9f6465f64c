"""Turns source text into tokens, each knowing the file and line it came from.

The lexer follows C++'s translation phases as far as they matter here: lines ending in a backslash are joined, comments
become a space, and what remains is cut into preprocessing tokens line by line. Nothing is interpreted; the
preprocessor and the parser do that. ``>>`` stays two tokens, since only the parser knows whether it closes two template
lists or shifts; the second one then has ``spaced`` false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import KernelCompileError

IDENTIFIER = "identifier"
NUMBER = "number"
STRING = "string"
CHARACTER = "character"
PUNCTUATION = "punctuation"
PRAGMA = "pragma"


@dataclass(slots=True, eq=False)
class Token:
    """One preprocessing token.

    ``spaced`` says whether white space stood before it (stringising and macro definitions need to know); ``hidden``
    holds the names of the macros this token came out of, which must not expand again.
    """

    kind: str
    text: str
    file: str
    line: int
    spaced: bool = False
    hidden: frozenset[str] = frozenset()

    def at(self, file: str, line: int, hidden: frozenset[str]) -> Token:
        """The same token placed where a macro was used."""
        return Token(self.kind, self.text, file, line, self.spaced, hidden)


_SPLICE_OR_COMMENT = re.compile(
    r"""\\[ \t]*\r?\n
      | //(?:\\[ \t]*\r?\n|[^\n])*
      | /\*(?:[^*]|\*(?!/))*(?:\*/)?
      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
      | \r?\n""",
    re.VERBOSE,
)

_TOKEN = re.compile(
    r"""(?P<space>[ \t\f\v\r]+)
      | (?P<identifier>(?:[^\W\d]|\$)[\w$]*)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[0-9A-Za-z_.])*)
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<character>'(?:\\.|[^'\\])+')
      | (?P<punctuation><<=|\.\.\.|->\*|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#
                      |[][(){}<>;:,.?~!%^&*\-=+|/\#])
    """,
    re.VERBOSE,
)


def _logical_lines(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yields (first physical line, text) with continuations joined and comments turned into a space."""
    pieces: list[str] = []
    blank = True
    line = first = 1
    position = 0
    for found in _SPLICE_OR_COMMENT.finditer(text):
        between = text[position : found.start()]
        pieces.append(between)
        blank = blank and not between.strip()
        position = found.end()
        piece = found.group()
        if piece[0] in "\"'":
            pieces.append(piece)
            blank = False
        elif piece[0] in "\r\n":
            yield first, "".join(pieces)
            pieces.clear()
            blank = True
            line += 1
            first = line
        else:
            if piece.startswith("/*") and not piece.endswith("*/"):
                raise KernelCompileError("this comment is never closed", file=file, line=line)
            line += piece.count("\n")
            if piece[0] == "/":
                pieces.append(" ")
            if blank:
                # Nothing but a comment so far: what follows it stands on its own physical line.
                first = line
    pieces.append(text[position:])
    yield first, "".join(pieces)


def lex_line(text: str, file: str, line: int) -> list[Token]:
    """The tokens of one logical line."""
    tokens: list[Token] = []
    spaced = False
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise KernelCompileError(f"unexpected character {text[position]!r}", file=file, line=line)
        position = found.end()
        kind = found.lastgroup
        assert kind is not None
        if kind == "space":
            spaced = True
            continue
        tokens.append(Token(kind, found.group(), file, line, spaced))
        spaced = False
    return tokens


def lex(text: str, file: str) -> Iterator[list[Token]]:
    """Yields the tokens of each non-empty logical line."""
    for line, content in _logical_lines(text, file):
        if content and not content.isspace():
            yield lex_line(content, file, line)
