"""A token list with edits: replace, delete, insert before or after; and its rendering as text with line directives.

The translator never builds a tree. It marks what changes and prints the tokens again, so the compiler's messages
keep pointing at the user's files and lines.
"""

from __future__ import annotations

from .tokens import Token


class Rewriter:
    """Edits on ``tokens`` by index."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self._replaced: dict[int, str] = {}
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
            self._outermost.pop(index, None)
            self._before.pop(index, None)
            self._after.pop(index, None)

    def is_deleted(self, index: int) -> bool:
        """Whether nothing is printed for the token itself."""
        return self._replaced.get(index) == ""

    def before(self, index: int, text: str, outermost: bool = False) -> None:
        """Prints ``text`` before the token; ``outermost`` puts it before earlier insertions."""
        (self._outermost if outermost else self._before).setdefault(index, []).append(text)

    def after(self, index: int, text: str) -> None:
        """Prints ``text`` after the token."""
        self._after.setdefault(index, []).append(text)

    def _pieces(self, index: int) -> list[str]:
        token = self.tokens[index]
        text = self._replaced.get(index, token.text)
        outermost = reversed(self._outermost.get(index, ()))
        pieces = [*outermost, *self._before.get(index, ()), text, *self._after.get(index, ())]
        return [piece for piece in pieces if piece]

    def inline(self, begin: int, end: int) -> str:
        """The edited tokens from ``begin`` to ``end`` (exclusive) on one line."""
        return " ".join(piece for index in range(begin, end) for piece in self._pieces(index))

    def render(self) -> str:
        """The whole edited text, with ``#line`` wherever the source position jumps."""
        output: list[str] = []
        file, line = "", 0
        previous_text = ""
        for index, token in enumerate(self.tokens):
            pieces = self._pieces(index)
            if not pieces:
                continue
            if token.file != file or not 0 <= token.line - line <= 8:
                name = "".join(letter if letter.isprintable() else "?" for letter in token.file)
                name = name.replace("\\", "\\\\").replace('"', '\\"')
                output.append(f'\n#line {token.line} "{name}"\n')
            elif token.line != line:
                output.append("\n" * (token.line - line))
            elif not (previous_text == ">" and pieces[0][0] == ">" and not token.spaced):
                # A `>>` that shifts was lexed as two tokens; every other pair may stand apart.
                output.append(" ")
            file, line = token.file, token.line
            output.append(" ".join(pieces))
            previous_text = pieces[-1]
        output.append("\n")
        return "".join(output)
