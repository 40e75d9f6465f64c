"""Recordings that are kept: written into a folder beside their place, and moved there when they are complete.

A process that is killed leaves the folder beside. It is removed when something is kept there a day later.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_UNFINISHED = ".unfinished-"
_STALE_S = 24 * 3600


@contextlib.contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A new folder in `place` to write into, and to move what is complete out of; removed afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > _STALE_S:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place) as folder:
        yield Path(folder)


def folder_name(text: str) -> str:
    """A name for the folder of what has this name: readable, and different for different texts."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[-80:]
    return f"{readable}-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
