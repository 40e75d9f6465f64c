"""What could not be written, said in the file although the disk has no room for another byte.

A recording is made with one row of the table `unwritten`, already as long as it can become. When the disk refuses, the
text of that row is overwritten in place, past SQLite: bytes that a file has can be written when no new ones can. This
is safe because no statement ever touches the row. Its page is therefore never in SQLite's log, which would hide what
is written here, and SQLite never writes it back. (A file system that copies on write may refuse even this.)

The text is a JSON object: what was lost, and why, with how much of it and since when.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from ...errors import RecordingError
from . import schema, statements
from .declaring import MAX_TIME_NS

NOTE_BYTES = 2048
_NOTHING = "{}".ljust(NOTE_BYTES)
_MOST_PLACES = 12
_PLACE_CHARACTERS = 100


def reserve(connection: sqlite3.Connection, process: int) -> None:
    """Make the row, which says that nothing was lost."""
    connection.execute(statements.insert(schema.TABLES["unwritten"]), (process, _NOTHING))


def read(text: str) -> dict[str, tuple[int, int]]:
    """What a row says: how much was lost and since when, by what and why. Anything else is refused."""
    lost = json.loads(text) if len(text) <= NOTE_BYTES else None
    if not isinstance(lost, dict) or not all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) is int and 0 <= number < MAX_TIME_NS for number in pair)
        for pair in lost.values()
    ):
        raise RecordingError("does not say properly what could not be written")
    return {place: (count, since_ns) for place, (count, since_ns) in lost.items()}


class Note:
    """The place of the row in a new file.

    Open it before SQLite opens the file and close it after: closing any descriptor of a file ends the locks that the
    process holds on it.
    """

    __slots__ = ("_descriptor", "_offset", "_said")

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR)
        self._said = _NOTHING
        try:
            self._offset = path.read_bytes().index(_NOTHING.encode())
        except BaseException:
            self.close()
            raise

    def tell(self, lost: Mapping[str, tuple[int, int]]) -> None:
        """Say what was lost so far, if anything; where not even this can be written, nothing can be said."""
        largest = sorted(lost.items(), key=lambda entry: -entry[1][0])[:_MOST_PLACES]
        text = json.dumps({place[:_PLACE_CHARACTERS]: list(pair) for place, pair in largest})
        while len(text) > NOTE_BYTES:  # of places with many characters that JSON escapes
            largest.pop()
            text = json.dumps({place[:_PLACE_CHARACTERS]: list(pair) for place, pair in largest})
        text = text.ljust(NOTE_BYTES)
        if text == self._said:
            return
        try:
            os.pwrite(self._descriptor, text.encode(), self._offset)
            self._said = text
        except OSError:
            pass

    def close(self) -> None:
        """Let go of the file; more than once is harmless."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
