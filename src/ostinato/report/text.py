"""Text from strangers, made safe to show.

Labels and kernel names are whatever a program or a file says. `visible` replaces what a terminal would act on or what
would hide something (control codes, directions of writing, invisible characters) by its escape; `for_markup` and
`for_html` add what rich and HTML need.
"""

from __future__ import annotations

import html
import unicodedata

from rich.markup import escape

_LONGEST = 300
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, longest: int = _LONGEST) -> str:
    """The text with everything invisible written out (`\\x1b`, `\\u202e`), and cut in the middle when too long."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def _escaped(character: str) -> str:
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def for_markup(text: str) -> str:
    """For rich: visible, and no markup."""
    return escape(visible(text))


def for_html(text: str, longest: int = _LONGEST) -> str:
    """For HTML, in text and in attributes."""
    return html.escape(visible(text, longest), quote=True)
