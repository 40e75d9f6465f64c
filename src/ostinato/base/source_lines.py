"""The line of a program that encoded something: that of the innermost frame outside this library."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

# Asked for every captured dispatch, so whether a file is the library's is cached.
_MAX_FILES = 4096
_own: dict[str, bool] = {}

_PROGRAMS = frozenset(str(Path(__file__).parents[1] / name) for name in ("demo.py", "models/decoder.py"))
"""Files of the library that count as user programs."""

_LIBRARY = str(Path(__file__).parents[1]) + os.sep


class Place(NamedTuple):
    """A line of a source file or of a notebook's cell."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_cell(self.file) or os.path.basename(self.file)}:{self.line}"


def _cell(file: str) -> str:
    """The cell of a notebook that a file name stands for, "In[3]"; empty outside of notebooks."""
    # The module may be half imported by another thread, and then lacks the function.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # The name of a cell's code is a hash; IPython knows the number, as its tracebacks show it.
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    return named[1] if named else ""


def caller() -> Place | None:
    """The current line of the user's program; None if the whole stack is the library's."""
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
