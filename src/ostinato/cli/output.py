"""Output files of commands. An existing recording is replaced only with --force."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from ..errors import ArgumentError, RecordingError
from ..profiling.recording import SUFFIX

FORCE_HELP = "Replace an existing recording."
_HEADER = b"SQLite format 3\0"


def refuse_existing(path: Path, force: bool) -> None:
    """Raises `RecordingError` if the file exists, unless `force` is set."""
    if path.exists() and not force:
        raise RecordingError(f"{path} exists already; replace it with --force, or name another file")


def replace_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside this one, which takes its place when it is complete."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ostinato-") as folder:
        complete = Path(folder) / path.name
        write(complete)
        complete.replace(path)


def refuse_recording(path: Path) -> None:
    """Raises `RecordingError` if the file is a recording, which another kind of file must not replace."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_HEADER)) == _HEADER:
                raise RecordingError(f"{path} is a recording and will not be overwritten; name another file")


def refuse_page(path: Path) -> None:
    """Raises an error if a page cannot be written there, before any work is done for it."""
    refuse_recording(path)
    folder = Path(os.path.realpath(path)).parent
    if (path.is_file() or not path.exists()) and not os.access(folder, os.W_OK | os.X_OK):
        state = "cannot be written to" if folder.is_dir() else "does not exist"
        raise ArgumentError(f"{path} cannot be written: the folder {folder} {state}")


def recording_to_make(requested: Path | None, name: str, force: bool) -> Path:
    """The requested file, or NAME.ostinato in the current folder: NAME-2.ostinato if that exists, and so on.

    Raises `RecordingError` if the requested file exists, unless `force` is set.
    """
    if requested is not None:
        refuse_existing(requested, force)
        return requested
    path = Path(name + SUFFIX)
    numbers = count(2)
    while path.exists() and not force:
        path = Path(f"{name}-{next(numbers)}{SUFFIX}")
    return path
