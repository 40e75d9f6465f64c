"""Paths that callers give."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, OstinatoError


def checked_path(path: Any, what: str, refusal: type[OstinatoError]) -> Path:
    """A path, for the call named `what`; a name that no file can have is refused with an error of that kind."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise ArgumentError(f"{what}: a path is a str or a Path, not {path!r}")
    if "\0" in os.fspath(path) or not os.fspath(path):
        raise refusal(f"{what}: {os.fspath(path)!r} is no name of a file")
    return Path(path)
