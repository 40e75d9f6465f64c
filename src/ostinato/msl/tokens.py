"""Turns source text into tokens, each knowing the file and line it came from.

The lexer follows C++'s translation phases as far as they matter here: lines ending in a backslash are joined, comments
become a space, and what remains is cut into preprocessing tokens line by line. Nothing is interpreted; the
preprocessor and the parser do that. ``>>`` stays two tokens, since only the parser knows whether it closes two template
lists or shifts; the second one then has ``spaced`` false. The work is linear in the number of characters.
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
STRAY = "stray"
"""A character that begins no token. It is an error only if it is left after preprocessing."""

MAX_TOKENS = 1_000_000


@dataclass(slots=True, eq=False)
class Token:
    """One preprocessing token.

    ``spaced`` is whether white space precedes it (which stringising and macro definitions need); ``hidden``
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


_SPLICE = re.compile(r"\\[ \t]*+\n")

# Possessive throughout: a literal or comment that is not closed must not be scanned twice. A quote that is never closed
# includes the rest of its line. Literals hold no control characters, which compilers treat differently.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\f\v]++)
      | (?P<identifier>(?:[^\W\d]|\$)[\w$]*+)
      | (?P<newline>\n[ \t\f\v\n]*+)
      | (?P<comment>//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)
      | (?P<open>/\*)
      | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z]|[0-9A-Za-z_.])*+)
      | (?P<punctuation><<=|\.\.\.|->\*|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#
                      |[][(){}<>;:,.?~!%^&*\-=+|/\#])
      | (?P<string>"(?:[^"\\\x00-\x08\n-\x1f\x7f]++|\\[^\x00-\x1f\x7f])*+")
      | (?P<character>'(?:[^'\\\x00-\x08\n-\x1f\x7f]++|\\[^\x00-\x1f\x7f])++')
      | (?P<stray>["'][^\n]*+|.)
    """,
    re.VERBOSE,
)


def _joined(text: str) -> tuple[str, list[int]]:
    """The text with continued lines joined, and where in it each line ended."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    cuts: list[int] = []
    pieces: list[str] = []
    position = length = 0
    for splice in _SPLICE.finditer(text):
        pieces.append(text[position : splice.start()])
        length += splice.start() - position
        position = splice.end()
        cuts.append(length)
    return ("".join(pieces) + text[position:] if cuts else text), cuts


def lex_line(text: str, file: str, line: int) -> list[Token]:
    """The tokens of one line that has no comments."""
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            spaced = True
            continue
        if kind is None or kind in ("newline", "comment", "open", STRAY):
            raise unexpected(match.group(), file, line)
        tokens.append(Token(kind, match.group(), file, line, spaced))
        spaced = False
    return tokens


def unexpected(text: str, file: str, line: int) -> KernelCompileError:
    """An error about a character that begins no token."""
    return KernelCompileError(f"unexpected character {text[0]!r}", file=file, line=line)


def lex(text: str, file: str) -> Iterator[list[Token]]:
    """Yields the tokens of each non-empty logical line."""
    text, cuts = _joined(text)
    cuts.append(len(text) + 1)
    cut = 0
    line = 1
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        while match.start() >= cuts[cut]:
            line += 1
            cut += 1
        if kind == "space":
            spaced = True
        elif kind == "newline":
            blank = match.group()
            line += blank.count("\n")
            if tokens:
                yield tokens
                tokens = []
            spaced = blank[-1] != "\n"
        elif kind == "comment":
            line += match.group().count("\n")
            spaced = True
        elif kind == "open":
            raise KernelCompileError("this comment is never closed", file=file, line=line)
        else:
            assert kind is not None
            tokens.append(Token(kind, match.group(), file, line, spaced))
            spaced = False
            if len(tokens) > MAX_TOKENS:
                raise KernelCompileError(f"this line has more than {MAX_TOKENS:,} tokens", file=file, line=line)
    if tokens:
        yield tokens
