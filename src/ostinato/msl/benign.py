"""Findings that a source calls benign: ``// ostinato: benign KIND: reason``, at the line or in comments right above it.

The same goes for the lines of a program, after ``#``. A comment without a reason does not count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_COMMENT = re.compile(r"(?://|#)\s*ostinato:\s*benign\s+(.*)")
_MOST_LINES = 16
"""Comment lines above a line that are read."""


def benign(lines: Sequence[str], kind: str) -> str | None:
    """The reason why a finding of this kind at the last of the lines is benign; "" if a comment gives none."""
    for line in (*lines[-1:], *_comments_above(lines)):
        comment = _COMMENT.search(line)
        if comment is not None and re.match(rf"{re.escape(kind)}(?!\w)", comment[1]):
            return comment[1].removeprefix(kind).strip(" \t:,;.-–—*/")
    return None


def _comments_above(lines: Sequence[str]) -> list[str]:
    above: list[str] = []
    for line in reversed(lines[:-1]):
        if not line.lstrip().startswith(("//", "#")) or len(above) == _MOST_LINES:
            break
        above.append(line)
    return above
