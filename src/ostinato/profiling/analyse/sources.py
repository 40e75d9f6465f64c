"""The source text of a kernel, for reports to show beside its times.

It comes from the recording, if the program was recorded with its sources; else from the file that the recording names,
if that is on this machine and still has the recorded digest. A recording may come from a stranger and name any file. So
a file is opened only if it is called like a Metal source or header, is a regular file (a pipe or a device may never
end, or do something when it is read) and is not larger than a text that would be recorded. What is shown has the
digest of the recording, so its maker knew the text already. With `OSTINATO_PROFILE_SOURCE=0` no file is opened.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ... import settings
from ..recording.schema import MAX_SOURCE_BYTES
from .columns import ABSENT, Columns

SUFFIXES = (".metal", ".msl", ".h", ".hpp", ".inc")
"""How the files are called that kernels are written in, with what they include."""
_PACKAGE = Path(__file__).parents[2]
_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\[^\n]|[^"\\\n])*+"?|'(?:\\[^\n]|[^'\\\n])*+'?|[{};]""", re.DOTALL
)
"""What begins and ends a function, and what must be skipped for that: comments and literals. A literal that is not
closed ends with its line; were it no token, the search would begin anew at each quote in it."""
_BELONGS_ABOVE = ("//", "template", "[[")
"""How the lines begin that stand above a function and belong to it."""
_LONGEST_FUNCTION = 400
_MOST_ABOVE = 20


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text that a kernel was compiled from."""

    text: str
    """As it was written; lines end in a line feed."""
    line: int
    """The line of the kernel's function, from 1; it lies in the text."""
    file: str
    """As the program named it; "" if it passed a text."""
    origin: Literal["recording", "file"]
    """Where the text comes from."""


def source_of(columns: Columns, command: int) -> SourceText | None:
    """The source of the kernel of a command, which is given by its row; None if it is not to be had."""
    commands = columns.commands
    file, digest = str(commands.file[command]), str(commands.source_digest[command])
    recorded = columns.sources.get(digest)
    text = recorded.text if recorded is not None and not recorded.left_out else None
    origin: Literal["recording", "file"] = "recording"
    if text is None:
        text, origin = _local(file, digest)[0], "file"
    if text is None:
        return None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    line = min(max(int(commands.line[command]), 1), text.count("\n") + 1)
    return SourceText(text, line, file, origin)


def why_missing(columns: Columns, command: int) -> str:
    """Why `source_of` has no text, as a sentence."""
    commands = columns.commands
    file, digest = str(commands.file[command]), str(commands.source_digest[command])
    recorded = columns.sources.get(digest)
    if not digest:
        return "The recording does not say where the source of this kernel is."
    if recorded is not None and recorded.left_out:
        return f"The source was not recorded: {recorded.left_out}."
    if not file:
        return "The program passed the source as text, and the recording does not contain it (--with-source)."
    where = f"{file}:{commands.line[command]}" if commands.line[command] != ABSENT else file
    return f"{where} {_local(file, digest)[1]}, and the recording does not contain it (--with-source)."


def function_lines(text: str, line: int) -> range:
    """The lines, from 1, of the function that begins at a line, with the comment above it.

    It ends where its braces are balanced, or where a declaration ends; of a very long one the beginning is taken.
    """
    lines = text.split("\n")
    first, inside = line, False
    while first > 1 and line - first < _MOST_ABOVE:
        above = lines[first - 2].strip()
        inside = inside or above.endswith("*/")
        if not inside and not above.startswith(_BELONGS_ABOVE):
            break
        inside = inside and "/*" not in above
        first -= 1
    body = "\n".join(lines[line - 1 : line + _LONGEST_FUNCTION])
    end, depth = 0, 0
    for token in _TOKEN.finditer(body):
        end = token.end()
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth <= 0 and token[0] in "};":
            break
    else:
        if len(lines) > line + _LONGEST_FUNCTION:
            end = len(body)
    return range(first, line + body.count("\n", 0, end) + 1)


def _local(file: str, digest: str) -> tuple[str | None, str]:
    """The text of a local file that has this digest; or None, and why it is not shown."""
    if not digest or not file.endswith(SUFFIXES):
        return None, f"is not opened (its name does not end in {', '.join(SUFFIXES)})"
    if settings.get("profile_source") is False:
        return None, "is not opened (OSTINATO_PROFILE_SOURCE=0)"
    # The kernels of this package are named from the package on.
    path = _PACKAGE.parent / file if file.startswith(f"{_PACKAGE.name}/") else Path(file)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None, "is not a regular file"
        if status.st_size > MAX_SOURCE_BYTES:
            return None, f"is larger than {MAX_SOURCE_BYTES >> 20} MiB"
        contents = _read(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None, "is not here"
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    if hashlib.sha256(contents).hexdigest() != digest:
        return None, "has changed since"
    try:
        return contents.decode(), ""
    except UnicodeDecodeError:
        return None, "is not UTF-8"


def _read(path: Path) -> bytes:
    """The beginning of a file. It does not wait, should the file have become a pipe meanwhile."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as opened:
        return opened.read(MAX_SOURCE_BYTES)
