"""A profile in a notebook: the page in a frame, and the tables for viewers that show no frames."""

from __future__ import annotations

from ...base import fragments
from ..analyse.columns import Columns
from ..analyse.summary import Summary
from .html import fragment, report_body
from .page import page_text

_MOST_CHARACTERS = 8_000_000
_HEIGHT = 760


def embedded(columns: Columns, summary: Summary) -> str:
    """The page, and below it the tables, which a click opens.

    Sites that show notebooks of strangers remove frames and scripts, and keep the tables. The page becomes a part of
    the notebook's file, so a very large one is left out, and the tables are all there is.
    """
    text = page_text(columns, summary)
    if len(text) > _MOST_CHARACTERS:
        return fragment(summary)
    return fragments.fragment(
        fragments.page(text, "Profile", _HEIGHT),
        fragments.folded("The profile as tables", report_body(summary)),
    )
