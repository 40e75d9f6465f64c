"""Checks of what a measurement is asked for, before it begins."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ..errors import ArgumentError


def check_share(name: str, value: float) -> None:
    """Raises for anything but a part between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ArgumentError(f"{name}={value!r} is not a part between 0 and 1, such as 0.02 for 2 %")


def check_seconds(value: float, name: str = "seconds") -> None:
    """Raises for anything but a positive time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ArgumentError(f"{name}={value!r} is not a positive time")


def check_new_file(name: str, path: str | os.PathLike[str]) -> None:
    """Raises for a file that exists, or in a folder that does not."""
    if Path(path).exists():
        raise ArgumentError(f"{name}: {os.fspath(path)!r} exists already; name another file")
    if not Path(path).parent.is_dir():
        raise ArgumentError(f"{name}: there is no folder {str(Path(path).parent)!r}")
