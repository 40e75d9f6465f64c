"""Untrusted text made safe to show: control characters and what cannot be encoded become escapes."""

from __future__ import annotations

LONGEST_NAME = 300
LONGEST_SENTENCE = 2000


def printable(text: str, most: int | None = None) -> str:
    """The text with escapes for characters that are not printable, cut to `most` characters."""
    if most is not None and len(text) > most:
        text = text[: max(most - 1, 0)] + "…"  # before escaping, so that a long text does not cost more
    if not text.isprintable():
        text = "".join(character if character.isprintable() else _escape(character) for character in text)
    return text if most is None or len(text) <= most else text[: max(most - 1, 0)] + "…"


def visible(text: str, longest: int = LONGEST_NAME) -> str:
    """The text with everything invisible written out (`\\x1b`, `\\u202e`), and cut in the middle when too long."""
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return printable(text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
