"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file beside `path`, then rename it: a reader sees the old file or the new one, never a part.

    A link stays, and the file it leads to is replaced. The new file has the mode of the old one. What is there and not
    a regular file (a pipe, /dev/stdout) is written to as it is.
    """
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(path).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        Path(path).write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
        if mode is not None:
            beside.chmod(stat.S_IMODE(mode))
        beside.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
