"""Preprocessed tokens as one text that reads back as the same tokens, with no other file and no defines.

Tokens stand on their own lines, and `#line` says where a line came from whenever that jumps, so that errors and
signatures of the text name the lines a person wrote. Files go by their base names: a text that is sent to somebody does
not tell where its sender keeps files. White space is kept where it tells tokens apart; comments and macros are gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from .tokens import IDENTIFIER, PUNCTUATION, Token

_BRACKETS = frozenset("()[]{};,")
_MAX_EMPTY_LINES = 8


def base_name(file: str) -> str:
    """The last part of a path of any system, with nothing in it that a `#line` could not hold."""
    name = re.split(r"[/\\]", file)[-1]
    return "".join(one if one.isprintable() and one != '"' else "?" for one in name) or "?"


def line_marker(line: int, file: str) -> str:
    """The directive that gives the line after it this place."""
    return f'#line {line} "{base_name(file)}"\n'


def single_text(tokens: Sequence[Token], defined: Collection[str]) -> str:
    """The text. `defined` are the macros that its reader knows from the start, and leaves alone in it."""
    kept = sorted({token.text for token in tokens if token.kind == IDENTIFIER} & set(defined))
    # A macro that stands for its own name expands to itself and no further.
    output = ["#include <metal_stdlib>\n", *(f"#define {name} {name}\n" for name in kept)]
    previous: Token | None = None
    for token in tokens:
        if previous is None or token.file != previous.file or not 0 <= token.line - previous.line <= _MAX_EMPTY_LINES:
            output.append(("" if previous is None else "\n") + line_marker(token.line, token.file))
            output.append(" " if token.spaced else "")
        elif token.line != previous.line:
            output.append("\n" * (token.line - previous.line) + (" " if token.spaced else ""))
        elif token.spaced or not _stay_apart(previous, token):
            output.append(" ")
        output.append(token.text)
        previous = token
    output.append("\n")
    return "".join(output)


def _stay_apart(first: Token, second: Token) -> bool:
    """Whether two tokens are read as two without white space between them."""
    if first.text in _BRACKETS or second.text in _BRACKETS:
        return True
    if first.text == ">" and second.text[0] == ">":
        return True
    return {first.kind, second.kind} == {IDENTIFIER, PUNCTUATION}
