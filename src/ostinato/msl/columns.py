"""Columns of compile errors in the user's source.

The compiler reads translated text: tokens are spaced differently, some are added, some removed. A message's column is
therefore mapped to a token of the translated line (`near_token`), and that token to its column in the user's line
(`find_places`). If that is ambiguous or impossible (the token came out of a macro), there is no column.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import Diagnostic, KernelCompileError

_LEXEME = re.compile(
    r"""//.* | /\*.*?(?:\*/|$) | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+'
      | [^\W\d][\w$]* | \.?\d(?:[eEpP][+-]|[\w.'])*
      | <<=|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S""",
    re.VERBOSE,
)
_LINE_DIRECTIVE = re.compile(r'[ \t]*#[ \t]*line[ \t]+(\d{1,9})(?:[ \t]+"((?:\\.|[^"\\])*)")?')
_MOST_TOKENS = 400
_MOST_BYTES = 1 << 24
_LONGEST_SHOWN = 160

Near = tuple[tuple[str, ...], int]
"""The tokens of a line, and the index of the one that a message is about."""


class SourceTexts:
    """The lines of a source by file and line, as its `#line` directives count; included files are read when needed."""

    def __init__(self, source: str | Path, include_dirs: Sequence[Path] = ()) -> None:
        self._source = source
        folders = [*include_dirs, source.parent] if isinstance(source, Path) else include_dirs
        self._folders = tuple(os.path.realpath(folder) for folder in folders)
        self._tables: dict[str, dict[tuple[str, int], list[str]]] = {}

    def line(self, file: str, number: int) -> str | None:
        """The text of a line; None if it is unknown or ambiguous."""
        if isinstance(self._source, Path):
            name, text = str(self._source), None
        else:
            name, text = "<source>", self._source
        own = self._table(name, text)
        meant = name if file == os.path.basename(name) else file  # Metal's compiler gets base names
        lines = own.get((file, number)) or own.get((meant, number)) or self._table(file, None).get((file, number), [])
        return lines[0] if len(lines) == 1 else None

    def _table(self, name: str, text: str | None) -> dict[tuple[str, int], list[str]]:
        if name not in self._tables:
            self._tables[name] = line_table(self._read(name) if text is None else text, name)
        return self._tables[name]

    def _read(self, name: str) -> str:
        # A `#line` may name any file of this machine; only those that an include could have read are opened.
        try:
            path = os.path.realpath(name)
            allowed = any(os.path.commonpath((folder, path)) == folder for folder in self._folders)
            if not allowed or not os.path.isfile(path):
                return ""
            with open(path, "rb") as file:
                return file.read(_MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""


def line_table(text: str, name: str) -> dict[tuple[str, int], list[str]]:
    """The physical lines of a text by what `#line` says they are."""
    table: dict[tuple[str, int], list[str]] = {}
    file, number = name, 1
    for line in text.split("\n"):
        directive = _LINE_DIRECTIVE.match(line)
        if directive is None:
            table.setdefault((file, number), []).append(line.rstrip("\r"))
            number += 1
            continue
        number = int(directive[1])
        if directive[2] is not None:
            file = re.sub(r"\\(.)", r"\1", directive[2])
    return table


def near_token(line: str, column: int) -> Near | None:
    """The tokens of a line, and the one that begins at a column (counted from 1)."""
    if not line.isascii():  # compilers count bytes, characters or cells
        return None
    lexemes = _lexemes(line)
    index = next((at for at, (_, begin) in enumerate(lexemes) if begin == column - 1), None)
    return None if index is None else (tuple(text for text, _ in lexemes), index)


def follow_columns(error: KernelCompileError, translated: str) -> None:
    """Turn columns of a translated text, as its compiler counts them, into tokens of its lines."""
    table = line_table(translated, "")
    error.diagnostics = tuple(_followed(diagnostic, table) for diagnostic in error.diagnostics)


def _followed(diagnostic: Diagnostic, table: dict[tuple[str, int], list[str]]) -> Diagnostic:
    if diagnostic.column is None or diagnostic.file is None or diagnostic.line is None:
        return diagnostic
    lines = table.get((diagnostic.file, diagnostic.line), [])
    tokens = [near for near in (near_token(line, diagnostic.column) for line in lines) if near is not None]
    # A line may have been split into several; the token that the message names tells which of them is meant.
    named = [near for near in tokens if f"'{near[0][near[1]]}'" in diagnostic.message]
    tokens = list(dict.fromkeys(named or tokens))
    return replace(diagnostic, column=None, near=tokens[0] if len(tokens) == 1 else None)


def find_places(error: KernelCompileError, texts: SourceTexts) -> None:
    """Give each message of an error its line of the source, and its column where that is certain."""
    error.diagnostics = tuple(_placed(diagnostic, texts) for diagnostic in error.diagnostics)
    if error.diagnostics:
        error.column = error.diagnostics[0].column


def _placed(diagnostic: Diagnostic, texts: SourceTexts) -> Diagnostic:
    if diagnostic.file is None or diagnostic.line is None:
        return diagnostic
    line = texts.line(diagnostic.file, diagnostic.line)
    if line is None or not line.strip() or len(line) > _LONGEST_SHOWN:
        return replace(diagnostic, near=None)
    column = None if diagnostic.near is None else _column(diagnostic.near, line)
    # Of the same length, so that the caret is in the right place; control characters of a source are not printed.
    shown = "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in line)
    return replace(diagnostic, column=column, source_line=shown, near=None)


def _column(near: Near, line: str) -> int | None:
    """The offset of the token in the user's line, if all longest matchings of the two lines agree on it."""
    tokens, index = near
    lexemes = _lexemes(line)
    if len(tokens) > _MOST_TOKENS or len(lexemes) > _MOST_TOKENS:
        return None
    texts = [text for text, _ in lexemes]
    before, after = _matched(tokens, texts), _matched(tokens[::-1], texts[::-1])
    most = before[-1][-1]

    def pairs(i: int, j: int) -> bool:
        rest = after[len(tokens) - i - 1][len(texts) - j - 1]
        return tokens[i] == texts[j] and before[i][j] + 1 + rest == most

    places = [at for at in range(len(texts)) if pairs(index, at)]
    if len(places) != 1 or sum(pairs(at, places[0]) for at in range(len(tokens))) != 1:
        return None
    return lexemes[places[0]][1] + 1


def _matched(first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
    """Length of the longest common subsequence of each pair of prefixes."""
    rows = [[0] * (len(second) + 1)]
    for mine in first:
        above, row = rows[-1], [0]
        for at, theirs in enumerate(second):
            row.append(above[at] + 1 if mine == theirs else max(above[at + 1], row[at]))
        rows.append(row)
    return rows


def _lexemes(line: str) -> list[tuple[str, int]]:
    """The tokens of a line with their offsets, without comments."""
    return [
        (match.group(), match.start()) for match in _LEXEME.finditer(line) if not match.group().startswith(("//", "/*"))
    ]
