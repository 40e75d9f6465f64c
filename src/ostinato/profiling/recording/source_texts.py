"""The source texts of a recording: each different one once, by its digest, within limits that a reader checks.

A text that is too large, or for which there is no room, keeps its row, which says why the text is left out. A text is
believed only if it has the digest under which it stands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ...errors import RecordingError
from .schema import MAX_SOURCE_BYTES, MAX_SOURCES, MAX_SOURCES_BYTES, NO_ROOM, NOT_TEXT, TOO_LARGE, Source


class SourceRows:
    """Makes the rows of the table `sources`."""

    def __init__(self) -> None:
        self._digests: set[str] = set()
        self._bytes = 0

    def row(self, digest: str, text: bytes) -> dict[str, Any] | None:
        """The columns of a text; None if it has a row already, or if there are too many."""
        if digest in self._digests or len(self._digests) >= MAX_SOURCES:
            return None
        self._digests.add(digest)
        left_out = self._why_not(text)
        if left_out is None:
            self._bytes += len(text)
        kept = b"" if left_out else text
        return {
            "id": len(self._digests), "digest": digest, "size_bytes": len(text), "left_out": left_out, "text": kept,
        }  # fmt: skip

    def row_of(self, source: Source) -> dict[str, Any] | None:
        """The same for a row of another recording."""
        row = self.row(source.digest, source.text.encode())
        return row if row is None or not source.left_out else row | {
            "size_bytes": source.size_bytes, "left_out": source.left_out,
        }  # fmt: skip

    def _why_not(self, text: bytes) -> str | None:
        if len(text) > MAX_SOURCE_BYTES:
            return TOO_LARGE
        if self._bytes + len(text) > MAX_SOURCES_BYTES:
            return NO_ROOM
        try:
            text.decode()
        except UnicodeDecodeError:
            return NOT_TEXT
        return None


def together(sources: Iterable[Source]) -> Iterator[Source]:
    """Those of several recordings, each once: with its text if any of them has it."""
    kept: dict[str, Source] = {}
    for source in sources:
        if source.digest not in kept or kept[source.digest].left_out:
            kept[source.digest] = source
    yield from kept.values()


def checked(source: Source, text: bytes) -> Source:
    """A row with its text; raises `RecordingError` if they do not belong together."""
    if len(text) != source.size_bytes:
        raise RecordingError(f"source text {source.id} is not as long as it says")
    if len(text) > MAX_SOURCE_BYTES:
        raise RecordingError(f"source text {source.id} is larger than {MAX_SOURCE_BYTES} bytes")
    if hashlib.sha256(text).hexdigest() != source.digest:
        raise RecordingError(f"source text {source.id} does not match its digest")
    try:
        return replace(source, text=text.decode())
    except UnicodeDecodeError:
        raise RecordingError(f"source text {source.id} is not text") from None
