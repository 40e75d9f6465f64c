"""Untrusted text made safe for a terminal: control characters and what cannot be encoded become escapes."""

from __future__ import annotations


def printable(text: str, most: int | None = None) -> str:
    """The text with escapes for characters that are not printable, cut to `most` characters."""
    if most is not None and len(text) > most:
        text = text[: max(most - 1, 0)] + "…"  # before escaping, so that a long text does not cost more
    if not text.isprintable():
        text = "".join(character if character.isprintable() else _escape(character) for character in text)
    return text if most is None or len(text) <= most else text[: max(most - 1, 0)] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
