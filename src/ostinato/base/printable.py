"""Text from outside made fit for a terminal: what could move the cursor, or not be encoded, is shown as an escape."""

from __future__ import annotations


def printable(text: str, most: int | None = None) -> str:
    """The text with escapes for all that is not printable, at most `most` characters of it."""
    if most is not None and len(text) > most:
        text = text[: max(most - 1, 0)] + "…"  # before escaping, so that a long text costs no more than a short one
    if not text.isprintable():
        text = "".join(one if one.isprintable() else _escape(one) for one in text)
    return text if most is None or len(text) <= most else text[: max(most - 1, 0)] + "…"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
