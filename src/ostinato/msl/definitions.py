"""Where the functions of kernels stand in the files that were read, as their authors wrote them.

Tokens carry the places that `#line` directives claim, which are the places to show in messages. To show the function
itself, its line in the text is needed: `Moved` keeps what each directive changed, so that it can be undone.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .tokens import Token

SOURCE = "<source>"
"""The file of tokens of a source that was passed as text."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The lines of a text after a `#line`: what they are called, and where they stand."""

    file: str
    first: int
    """The line that the directive names."""
    text: str
    """The file that was read."""
    ahead: int
    """The line that is claimed minus the line of the text."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The place of a kernel's function, and the text around it."""

    file: str
    """The file that was read, an absolute path; "" for a source that was passed as text."""
    line: int
    """That of the function's name."""
    text: bytes = field(repr=False)
    """The whole file, or the source in UTF-8."""
    digest: str
    """SHA-256 of the text, hexadecimal."""


class Definitions:
    """The definitions of the kernels of a source. Of the texts that were read, those without a kernel are not kept."""

    def __init__(
        self, texts: Mapping[str, bytes], moved: Iterable[Moved], kernels: Iterable[tuple[str, Token]]
    ) -> None:
        claims: dict[str, list[Moved]] = {file: [Moved(file, 0, file, 0)] for file in texts}
        for each in moved:
            claims.setdefault(each.file, []).append(each)
        for listed in claims.values():
            listed.sort(key=_first)
        self._places = {name: _written(token, claims.get(token.file, [])) for name, token in kernels}
        self._texts = {place[0]: texts[place[0]] for place in self._places.values() if place is not None}
        self._digests: dict[str, str] = {}

    def get(self, kernel: str) -> Definition | None:
        """The definition of a kernel; None if its place in the texts is not known."""
        place = self._places.get(kernel)
        if place is None:
            return None
        file, line = place
        if file not in self._digests:
            self._digests[file] = hashlib.sha256(self._texts[file]).hexdigest()
        return Definition("" if file == SOURCE else file, line, self._texts[file], self._digests[file])


def _first(moved: Moved) -> int:
    return moved.first


def _written(token: Token, claims: Sequence[Moved]) -> tuple[str, int] | None:
    """The file and line in which a token was written. A claim ends at the next one: the nearest before it counts."""
    nearest = bisect_right(claims, token.line, key=_first) - 1
    return None if nearest < 0 else (claims[nearest].text, token.line - claims[nearest].ahead)
