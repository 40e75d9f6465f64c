"""The texts that were read, as they were written: the lines of messages, and where the functions of kernels stand.

Tokens carry the places that `#line` directives claim, which are the places to show in messages. To show the text
itself, its line in the file is needed: `Moved` keeps what each directive changed, so that it can be undone.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..errors import Diagnostic, KernelCompileError

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


class WrittenTexts:
    """The texts that were read, by the file and line that their lines claim."""

    def __init__(self, texts: Mapping[str, bytes], moved: Iterable[Moved] = ()) -> None:
        self._texts = texts
        self._claims: dict[str, list[Moved]] = {file: [Moved(file, 0, file, 0)] for file in texts}
        for each in moved:
            self._claims.setdefault(each.file, []).append(each)
        self._begins: dict[str, list[int]] = {}
        for listed in self._claims.values():
            listed.sort(key=_first)
            for claim in listed:
                self._begins.setdefault(claim.text, []).append(claim.first - claim.ahead)
        for begins in self._begins.values():
            begins.sort()
        self._digests: dict[str, str] = {}

    def definition(self, claimed_file: str, claimed_line: int) -> Definition | None:
        """Where a line was written; None if that is not known."""
        place = self.place(claimed_file, claimed_line)
        if place is None:
            return None
        file, line = place
        if file not in self._digests:
            self._digests[file] = hashlib.sha256(self._texts[file]).hexdigest()
        return Definition("" if file == SOURCE else file, line, self._texts[file], self._digests[file])

    def lines_to(self, claimed_file: str, claimed_line: int) -> list[str]:
        """The lines of a text up to this one; none if it is not known."""
        place = self.place(claimed_file, claimed_line)
        return [] if place is None else as_lines(self._texts[place[0]])[: max(place[1], 0)]

    def show_lines(self, error: KernelCompileError) -> None:
        """Give each message of an error its line of the source. Of the notes, those without one are dropped."""
        lines: dict[str, list[str]] = {}

        def shown(diagnostic: Diagnostic) -> Diagnostic:
            written = self._all_written(diagnostic.file or "", diagnostic.line or 0)
            if len(written) != 1:
                return replace(diagnostic, notes=())
            ((file, line),) = written
            if file not in lines:
                lines[file] = as_lines(self._texts[file])
            text = lines[file][line - 1] if 1 <= line <= len(lines[file]) else ""
            notes = tuple(note for note in map(shown, diagnostic.notes) if note.source_line is not None)
            return replace(diagnostic, source_line=text if text.strip() else None, notes=notes)

        error.diagnostics = tuple(map(shown, error.diagnostics))

    def _all_written(self, file: str, line: int) -> set[tuple[str, int]]:
        """All lines of texts that claim this place: more than one if `#line` directives repeat themselves."""
        places = set()
        for claim in self._claims.get(file, []):
            at, begins = line - claim.ahead, self._begins[claim.text]
            # A claim ends at the next directive of its text.
            if claim.first <= line and begins[bisect_right(begins, at) - 1] == claim.first - claim.ahead:
                places.add((claim.text, at))
        return places

    def place(self, file: str, line: int) -> tuple[str, int] | None:
        """The file and line of a text; of several that claim this place, the nearest claim before it counts."""
        claims = self._claims.get(file, [])
        nearest = bisect_right(claims, line, key=_first) - 1
        return None if nearest < 0 else (claims[nearest].text, line - claims[nearest].ahead)


@contextmanager
def lines_shown(texts: Mapping[str, bytes], moved: Iterable[Moved]) -> Iterator[None]:
    """Errors that are raised in the block get their lines of these texts."""
    try:
        yield
    except KernelCompileError as error:
        WrittenTexts(texts, moved).show_lines(error)
        raise


def as_lines(text: bytes) -> list[str]:
    """The lines of a text, as tokens count them."""
    return text.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _first(moved: Moved) -> int:
    return moved.first
