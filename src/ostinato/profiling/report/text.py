"""Text from strangers, made safe to show and broken into lines.

Labels and kernel names are whatever a program or a file says. `visible` cuts what is too long and writes out what a
terminal would act on or what would hide something (control codes, directions of writing, invisible characters).
`folded` breaks what is shown into lines.
"""

from __future__ import annotations

import re

from rich.cells import cell_len

from ...base.printable import LONGEST_NAME, LONGEST_SENTENCE, visible

__all__ = ["LONGEST_NAME", "LONGEST_SENTENCE", "folded", "visible"]

_PIECE = re.compile(r"[^_./,:<>()×+-]*[_./,:<>()×+-]*")
"""A part of a name, with the punctuation that ends it."""


def folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, each indented as the first.

    It is broken at blanks; a word that is wider than a line is broken between its parts ("decode/", "layer.", "top_"),
    and a part that is wider than that, anywhere.
    """
    words = text.split(" ")
    indent = ""
    while len(words) > 1 and not words[0]:
        indent += words.pop(0) + " "
    width = max(width - len(indent), 1)
    lines = [""]
    for position, word in enumerate(words):
        blank = " " if position else ""
        if cell_len(lines[-1] + blank + word) <= width:
            lines[-1] += blank + word
            continue
        if lines[-1]:
            lines.append("")
        for piece in _pieces(word, width):
            if cell_len(lines[-1] + piece) <= width:
                lines[-1] += piece
            else:
                lines.append(piece)
    return [indent + line for line in lines]


def _pieces(word: str, width: int) -> list[str]:
    if cell_len(word) <= width:
        return [word]
    pieces = []
    for piece in _PIECE.findall(word):
        begin = 0
        for end in range(1, len(piece) + 1):
            if cell_len(piece[begin:end]) > width and end - 1 > begin:
                pieces.append(piece[begin : end - 1])
                begin = end - 1
        pieces.append(piece[begin:])
    return pieces
