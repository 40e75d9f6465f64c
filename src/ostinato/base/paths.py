"""The check of paths that callers pass."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, OstinatoError


def checked_path(path: Any, what: str, refusal: type[OstinatoError]) -> Path:
    """The path as a `Path`, for the call named `what`; raises `refusal` for a name that no file can have."""
    if not isinstance(path, str | os.PathLike) or isinstance(os.fspath(path), bytes):
        raise ArgumentError(f"{what}: a path is a str or a Path, not {path!r}")
    if "\0" in os.fspath(path) or not os.fspath(path):
        raise refusal(f"{what}: {os.fspath(path)!r} is not a valid file name")
    return Path(path)
