"""Text from strangers, made safe to show and broken into lines.

Labels and kernel names are whatever a program or a file says. `visible` cuts what is too long and writes out what a
terminal would act on or what would hide something (control codes, directions of writing, invisible characters).
`folded` breaks sentences into lines, and `cut_apart` cuts names to a width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count

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


def cut(text: str, width: int, head: int | None = None) -> str:
    """The text in at most `width` cells. If it is longer, its middle is left out: "expert_gate…bfloat16".

    `head` cells of its beginning are kept, half of the width unless given. An indent takes at most half of the width.
    """
    if cell_len(text) <= width:
        return text
    name = text.lstrip(" ")
    indent = " " * min(len(text) - len(name), width // 2)
    room = width - len(indent)
    if cell_len(name) <= room:
        return indent + name
    head = room // 2 if head is None else min(head, room - 1)
    return f"{indent}{_first(name, head)}…{_last(name, room - 1 - head)}"


def cut_apart(texts: Sequence[str], width: int) -> list[str]:
    """Names made visible, each in at most `width` cells; names that differ still differ when they are cut.

    Where leaving out the middle would make some of them alike, another part is left out of those; where no part serves,
    they end in a number.
    """
    shown = {text: cut(visible(text), width) for text in texts}
    alike: dict[str, list[str]] = {}
    for text, short in shown.items():
        alike.setdefault(short, []).append(text)
    taken = {short for short, names in alike.items() if len(names) == 1}
    for names in alike.values():
        if len(names) > 1:
            shown |= zip(names, _apart([visible(name) for name in names], width, taken), strict=True)
            taken |= {shown[name] for name in names}
    return [shown[text] for text in texts]


def _apart(names: Sequence[str], width: int, taken: set[str]) -> list[str]:
    """Names in `width` cells that differ from each other and from those that are taken."""
    begin, ends = _shared(names), max(_shared([name[::-1] for name in names]) - 1, 0)
    differing = max(cell_len(name[begin : len(name) - ends]) for name in names)
    middle = min(differing, max((width - 2) // 2, 1))
    edge = (width - 2 - middle) // 2

    def around(name: str) -> str:
        return f"{_first(name, edge)}…{cut(name[begin : len(name) - ends], middle)}…{_last(name, edge)}"

    heads = sorted(range(width), key=lambda head: abs(head - width // 2))
    ways: list[Callable[[str], str]] = [lambda name, head=head: cut(name, width, head) for head in heads]  # type: ignore[misc]
    for way in [*ways, around] if width > 4 else ways:
        shown = [way(name) for name in names]
        if len(set(shown)) == len(names) and taken.isdisjoint(shown) and max(map(cell_len, shown)) <= width:
            return shown
    numbered: list[str] = []
    numbers = count(1)
    for name in names:
        while (short := _numbered(name, next(numbers), width)) in taken:
            pass
        numbered.append(short)
    return numbered


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with."""
    columns = enumerate(zip(*names, strict=False))
    return next((at for at, characters in columns if len(set(characters)) > 1), min(map(len, names)))


def _numbered(name: str, number: int, width: int) -> str:
    ending = f"#{number}"
    return cut(name, max(width - len(ending), 1)) + ending


def _first(text: str, cells: int) -> str:
    """The beginning of a text that fits in so many cells."""
    for at, character in enumerate(text):
        cells -= cell_len(character)
        if cells < 0:
            return text[:at]
    return text


def _last(text: str, cells: int) -> str:
    return _first(text[::-1], cells)[::-1]
