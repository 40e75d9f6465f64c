"""Findings that a source calls benign: ``// ostinato: benign KIND: reason``, at the line or in comments right above it.

The same goes for the lines of a program, after ``#``. Comments without a reason or with an unknown kind do not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

_COMMENT = re.compile(r"(?://|#)\s*ostinato:\s*benign\s+(.*)")
_MOST_LINES = 16
"""Comment lines above a line that are read."""


def benign(lines: Sequence[str], kind: str) -> str | None:
    """The reason why a finding of this kind at the last of the lines is benign; "" if a comment gives none."""
    for text in _texts(lines):
        if _is_of(text, kind):
            return text.removeprefix(kind).strip(" \t:,;.-–—*/")
    return None


def unknown_kind(lines: Sequence[str], kinds: Collection[str]) -> str | None:
    """What a comment at the last of the lines calls benign, if that is none of the kinds."""
    for text in _texts(lines):
        if not any(_is_of(text, kind) for kind in kinds):
            return text.partition(":")[0].strip()
    return None


def _texts(lines: Sequence[str]) -> Iterator[str]:
    """What comments have behind ``ostinato: benign``."""
    for line in (*lines[-1:], *_comments_above(lines)):
        comment = _COMMENT.search(line)
        if comment is not None:
            yield comment[1]


def _is_of(text: str, kind: str) -> bool:
    return re.match(rf"{re.escape(kind)}(?!\w)", text) is not None


def _comments_above(lines: Sequence[str]) -> list[str]:
    above: list[str] = []
    for line in reversed(lines[:-1]):
        if not line.lstrip().startswith(("//", "#")) or len(above) == _MOST_LINES:
            break
        above.append(line)
    return above
