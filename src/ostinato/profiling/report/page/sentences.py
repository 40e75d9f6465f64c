"""Sentences as the page has them: safe to show, and no line ends between a number and its unit."""

from __future__ import annotations

import re

from ..text import LONGEST_SENTENCE, visible

_QUANTITY = re.compile(r"(?<=\d) (?=(?:[nµm]?s|[KMGT]?B|[kMGT]?flop|%|×)(?!\w))")


def sentence(text: str) -> str:
    """A text from a recording or about it."""
    return unbroken(visible(text, LONGEST_SENTENCE))


def unbroken(text: str) -> str:
    """The same text, as long as before, with no-break spaces before units."""
    return _QUANTITY.sub("\u00a0", text)
