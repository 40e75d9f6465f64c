"""Where in a program something was encoded: the innermost frame that is not this library's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

# Capturing asks for every dispatch, so which files are the library's is looked up rather than worked out.
_MAX_FILES = 4096
_own: dict[str, bool] = {}

_PROGRAMS = frozenset(str(Path(__file__).parents[1] / name) for name in ("demo.py", "models/decoder.py"))
"""Files of the library that are programs, and use the rest as any other would."""

_LIBRARY = str(Path(__file__).parents[1]) + os.sep


class Place(NamedTuple):
    """A line of a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"


def caller() -> Place | None:
    """The line of the user's program that is being run; None when all of the stack is the library's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        own = _own.get(file)
        if own is None:
            if len(_own) >= _MAX_FILES:
                _own.clear()
            own = _own[file] = file.startswith(_LIBRARY) and file not in _PROGRAMS
        if not own:
            return Place(file, frame.f_lineno)
        frame = frame.f_back
    return None
