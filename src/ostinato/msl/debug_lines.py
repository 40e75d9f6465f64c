"""A translated text whose debug information names the user's files: every token on its own line of them.

`#line` directives do it, wherever the next line of the text is not the next line of the file. The text means the same
as before. What was made of a declaration (the entry points of kernels) stands on the line of that declaration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from .source_map import SourceMap
from .tokens import Token

_LINE = re.compile(r"[^\n]*\n|[^\n]+")

Place = tuple[str, int]
"""A path and a line of that file, from 1."""


def with_lines(program: str, source_map: SourceMap, place_of: Callable[[Token], Place | None]) -> str:
    """The program with its tokens on the lines that `place_of` gives; tokens without a place stay where they are."""
    encoded = program.encode()
    starts = source_map.starts
    written = [encoded[: starts[0] if starts else len(encoded)].decode()]
    current: Place | None = None
    for number, index in enumerate(source_map.indices):
        end = starts[number + 1] if number + 1 < len(starts) else len(encoded)
        place = place_of(source_map.tokens[max(index, ~index)])
        for line in _LINE.findall(encoded[starts[number] : end].decode()):
            if place is not None and place != current and line.strip():
                if not written[-1].endswith("\n"):
                    written.append("\n")
                written.append(f'#line {place[1]} "{_quoted(place[0])}"\n')
                current = place
            written.append(line)
            if line.endswith("\n") and current is not None:
                current = (current[0], current[1] + 1)
    return "".join(written)


def _quoted(path: str) -> str:
    """A path as the inside of a C string: whatever it contains, it cannot end the directive."""
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\?' else f"\\{byte:03o}" for byte in os.fsencode(path)
    )
