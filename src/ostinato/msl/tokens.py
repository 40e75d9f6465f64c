"""Turns source text into tokens, each knowing the file, line and column it came from.

The lexer follows C++'s translation phases as far as they matter here: lines ending in a backslash are joined, comments
become a space, and what remains is cut into preprocessing tokens line by line. Nothing is interpreted; the
preprocessor and the parser do that. ``>>`` stays two tokens, since only the parser knows whether it closes two template
lists or shifts; the second one then has ``spaced`` false. The work is linear in the number of characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import Diagnostic, KernelCompileError

IDENTIFIER = "identifier"
NUMBER = "number"
STRING = "string"
CHARACTER = "character"
PUNCTUATION = "punctuation"
PRAGMA = "pragma"
STRAY = "stray"
"""A character that begins no token. It is an error only if it is left after preprocessing."""

MAX_TOKENS = 1_000_000
_NOTHING: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Token:
    """One preprocessing token.

    ``spaced`` is whether white space precedes it (which stringising and macro definitions need); ``hidden``
    holds the names of the macros this token came out of, which must not expand again. ``column`` counts characters
    from 1; it is 0 for a token that stands in no text. A token out of a macro has the place where the macro was used,
    and ``defined`` is the token of the macro's definition; a macro's argument keeps its own place. ``unroll`` is the
    pragma, if any, that tells a compiler how often to repeat the loop that the token begins.
    """

    kind: str
    text: str
    file: str
    line: int
    spaced: bool = False
    hidden: frozenset[str] = _NOTHING
    column: int = 0
    defined: Token | None = None
    unroll: str = ""

    def out_of(self, use: Token, hidden: frozenset[str]) -> Token:
        """This token of a macro's definition, placed where the macro was used."""
        return Token(self.kind, self.text, use.file, use.line, self.spaced, hidden, use.column, self.defined or self)

    def hiding(self, hidden: frozenset[str]) -> Token:
        """A copy of this argument of a macro, with more names hidden."""
        hidden = self.hidden | hidden
        return Token(self.kind, self.text, self.file, self.line, self.spaced, hidden, self.column, self.defined)


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
    """The tokens of a text without comments that stands in no file at this place: they have no columns."""
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "space":
            spaced = True
            continue
        if kind is None or kind in ("newline", "comment", "open", STRAY):
            raise unexpected(Token(STRAY, match.group(), file, line))
        tokens.append(Token(kind, match.group(), file, line, spaced))
        spaced = False
    return tokens


def unexpected(token: Token) -> KernelCompileError:
    """An error about a character that begins no token."""
    return fail(f"unexpected character {token.text[0]!r}", token)


def diagnostic_at(message: str, token: Token) -> Diagnostic:
    """A message about ``token``: where it stands, and where the macro it came out of is defined."""
    defined = token.defined
    place = Diagnostic(message, token.file, token.line, token.column or None)
    if defined is None:
        return place
    return replace(
        place, notes=(Diagnostic("in the definition of this macro", defined.file, defined.line, defined.column),)
    )


def fail(message: str, token: Token, kind: type[KernelCompileError] = KernelCompileError) -> KernelCompileError:
    """An error at ``token``."""
    return kind.of([diagnostic_at(message, token)])


def lex(text: str, file: str) -> Iterator[list[Token]]:
    """Yields the tokens of each non-empty logical line."""
    text, cuts = _joined(text)
    cuts.append(len(text) + 1)
    cut = 0
    line = 1
    line_start = 0
    tokens: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        start = match.start()
        while start >= cuts[cut]:
            line += 1
            line_start = max(line_start, cuts[cut])
            cut += 1
        if kind == "space":
            spaced = True
        elif kind == "newline":
            blank = match.group()
            line += blank.count("\n")
            line_start = start + blank.rindex("\n") + 1
            if tokens:
                yield tokens
                tokens = []
            spaced = blank[-1] != "\n"
        elif kind == "comment":
            broken = match.group().count("\n")
            if broken:
                line += broken
                line_start = start + match.group().rindex("\n") + 1
            spaced = True
        elif kind == "open":
            raise fail("this comment is never closed", Token(STRAY, "/*", file, line, column=start - line_start + 1))
        else:
            assert kind is not None
            tokens.append(Token(kind, match.group(), file, line, spaced, _NOTHING, start - line_start + 1))
            spaced = False
            if len(tokens) > MAX_TOKENS:
                raise fail(f"this line has more than {MAX_TOKENS:,} tokens", tokens[-1])
    if tokens:
        yield tokens
