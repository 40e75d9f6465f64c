"""Text from strangers, made safe to show.

Labels and kernel names are whatever a program or a file says. `visible` cuts what is too long and writes out what a
terminal would act on or what would hide something (control codes, directions of writing, invisible characters);
`for_html` adds what HTML needs.
"""

from __future__ import annotations

import html

from ..printable import printable

_LONGEST = 300


def visible(text: str, longest: int = _LONGEST) -> str:
    """The text with everything invisible written out (`\\x1b`, `\\u202e`), and cut in the middle when too long."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return printable(text)


def for_html(text: str, longest: int = _LONGEST) -> str:
    """For HTML, in text and in attributes."""
    return html.escape(visible(text, longest), quote=True)
