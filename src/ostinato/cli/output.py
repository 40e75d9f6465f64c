"""Where a command puts what it makes: never over a recording that nobody asked to replace."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from ..errors import RecordingError
from ..profiling.recording import SUFFIX

FORCE_HELP = "Replace an older recording of that name."
_HEADER = b"SQLite format 3\0"


def refuse_existing(path: Path, force: bool) -> None:
    """Raises `RecordingError` for a file that is there, unless `force` allows to replace it."""
    if path.exists() and not force:
        raise RecordingError(f"{path} is there already; --force replaces it, or name another file with -o")


def refuse_recording(path: Path) -> None:
    """Raises `RecordingError` for a file that is a recording, where something else is to be written."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_HEADER)) == _HEADER:
                raise RecordingError(f"{path} is a recording, and not replaced by something else; name another file")


def recording_to_make(given: Path | None, name: str, force: bool) -> Path:
    """The file that was asked for, or NAME.ostinato in the current folder: NAME-2.ostinato if that is there, and so on.

    Raises `RecordingError` where the one that was asked for is there, unless `force` allows to replace it.
    """
    if given is not None:
        refuse_existing(given, force)
        return given
    path = Path(name + SUFFIX)
    numbers = count(2)
    while path.exists() and not force:
        path = Path(f"{name}-{next(numbers)}{SUFFIX}")
    return path
