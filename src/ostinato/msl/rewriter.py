"""A token list with edits: replace, delete, insert before or after; and its rendering as text.

The translator never builds a tree. It notes what changes and prints the tokens again, each with a mark (`source_map`),
so that the compiler's messages can be placed in the user's files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .source_map import MARK_BACK, mark
from .tokens import Token

_MACRO_LINES = 50
"""Lines of the source that a step back may span within one line of the text."""
_LONGEST_LINE = 1000
"""Characters. g++ counts columns up to 4,096 only."""


class Rewriter:
    """Edits on ``tokens`` by index."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self._replaced: dict[int, str] = {}
        self._leading: dict[int, list[str]] = {}
        self._outermost: dict[int, list[str]] = {}
        self._before: dict[int, list[str]] = {}
        self._after: dict[int, list[str]] = {}

    def replace(self, index: int, text: str) -> None:
        """Prints ``text`` instead of the token."""
        self._replaced[index] = text

    def delete(self, begin: int, end: int | None = None) -> None:
        """Prints nothing for the token, or for the tokens from ``begin`` to ``end`` (exclusive)."""
        for index in range(begin, begin + 1 if end is None else end):
            self._replaced[index] = ""
            self._leading.pop(index, None)
            self._outermost.pop(index, None)
            self._before.pop(index, None)
            self._after.pop(index, None)

    def is_deleted(self, index: int) -> bool:
        """Whether nothing is printed for the token itself."""
        return self._replaced.get(index) == ""

    def before(self, index: int, text: str, outermost: bool = False) -> None:
        """Prints ``text`` before the token; ``outermost`` puts it before earlier insertions."""
        (self._outermost if outermost else self._before).setdefault(index, []).append(text)

    def inside(self, index: int, text: str) -> None:
        """Prints ``text`` before the token, inside of all that is inserted there as outermost."""
        self._outermost.setdefault(index, []).insert(0, text)

    def lead(self, index: int, text: str) -> None:
        """Prints ``text`` before the token and everything else that is inserted there, whenever that is."""
        self._leading.setdefault(index, []).append(text)

    @contextmanager
    def without_lead(self, index: int) -> Iterator[None]:
        """Inside this context nothing is printed before the token; afterwards its lead is back.

        That holds even if the token was deleted.
        """
        leading = self._leading.pop(index, [])
        yield
        if leading:
            self._leading[index] = leading

    def after(self, index: int, text: str) -> None:
        """Prints ``text`` after the token."""
        self._after.setdefault(index, []).append(text)

    def _pieces(self, index: int) -> Sequence[str]:
        """What is printed for the token. After a copy of other tokens the mark is that of this one again."""
        text = self._replaced.get(index, self.tokens[index].text)
        outermost = reversed(self._outermost.get(index, ()))
        pieces = [
            *self._leading.get(index, ()),
            *outermost,
            *self._before.get(index, ()),
            text,
            *self._after.get(index, ()),
        ]
        return [piece.replace(MARK_BACK, mark(index)) for piece in pieces if piece]

    def inline(self, begin: int, end: int, without: str = "") -> str:
        """The edited tokens from ``begin`` to ``end`` (exclusive) on one line, marked; without the word ``without``."""
        output: list[str] = []
        previous_text = ""
        for index in range(begin, end):
            pieces = [piece for piece in self._pieces(index) if piece != without]
            if pieces:
                separator = "" if not output or self._is_shift(previous_text, pieces[0], index) else " "
                output.append(separator + " ".join(mark(index) + piece for piece in pieces))
                previous_text = pieces[-1]
        return "".join(output) + MARK_BACK

    def _is_shift(self, before: str, text: str, index: int) -> bool:
        """Whether the token at ``index`` is the second half of a ``>>`` that shifts, which was lexed as two tokens."""
        return before == ">" and text[0] == ">" and not self.tokens[index].spaced

    def render(self) -> str:
        """The whole edited text, marked with its tokens, in lines like those of the source."""
        edited = {*self._replaced, *self._leading, *self._outermost, *self._before, *self._after}
        output: list[str] = []
        file, line, length = "", 0, 0
        previous_text = ""
        for index, token in enumerate(self.tokens):
            pieces = self._pieces(index) if index in edited else (token.text,)
            text = " ".join(pieces)
            if not text:
                continue
            # The tokens of a macro and its arguments go back and forth between their lines.
            moved = token.file != file or not 0 <= line - token.line < _MACRO_LINES
            if not moved and self._is_shift(previous_text, pieces[0], index):
                separator = ""
            elif moved or length > _LONGEST_LINE:
                separator, length = "\n\n" if token.line > line + 1 else "\n", 0
                file, line = token.file, token.line
            else:
                separator = " "
            output.append(f"{separator}{mark(index)}{text}")
            length += len(text)
            previous_text = pieces[-1]
        output.append("\n")
        return "".join(output)
