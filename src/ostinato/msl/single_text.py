"""Preprocessed tokens as one text that reads back as the same tokens, without other files or defines.

Tokens stay on their lines, and `#line` marks every jump, so that errors and signatures of the text name the original
lines. Files are named by their base names, so that the text does not reveal folders. White space is kept where it
separates tokens; comments and macros are gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from .tokens import IDENTIFIER, PUNCTUATION, Token

_BRACKETS = frozenset("()[]{};,")
_MAX_EMPTY_LINES = 8


def base_name(file: str) -> str:
    """The last part of a path of any system, without characters that a `#line` cannot hold."""
    name = re.split(r"[/\\]", file)[-1]
    return "".join(character if character.isprintable() and character != '"' else "?" for character in name) or "?"


def line_marker(line: int, file: str) -> str:
    """The `#line` directive for this place."""
    return f'#line {line} "{base_name(file)}"\n'


def single_text(tokens: Sequence[Token], defined: Collection[str]) -> str:
    """The text. `defined` are the predefined macros of its reader, which must not expand in it."""
    kept = sorted({token.text for token in tokens if token.kind == IDENTIFIER} & set(defined))
    # A macro that is defined as its own name expands to itself.
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
        output.append(f'_Pragma("{token.unroll}") {token.text}' if token.unroll else token.text)
        previous = token
    output.append("\n")
    return "".join(output)


def _stay_apart(first: Token, second: Token) -> bool:
    """Whether two tokens stay two tokens without white space between them."""
    if first.text in _BRACKETS or second.text in _BRACKETS:
        return True
    if first.text == ">" and second.text[0] == ">":
        return True
    return {first.kind, second.kind} == {IDENTIFIER, PUNCTUATION}
