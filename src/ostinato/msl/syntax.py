"""Tokens with their brackets matched, and the questions both parser and translator ask of them.

Where an attribute, a template argument list, a declaration or a statement ends is found by matching brackets, so every
answer is linear in the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Diagnostic, KernelCompileError
from .tokens import IDENTIFIER, Token

_ASSIGNING = frozenset("= += -= *= /= %= &= |= ^= <<= ++ --".split())
ADDRESS_SPACES = frozenset(
    {"device", "constant", "thread", "threadgroup", "threadgroup_imageblock", "ray_data", "object_data"}
)
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
BEFORE_EXPRESSIONS = frozenset("return else do case and or not xor bitand bitor compl".split())
"""Words after which an expression begins."""


@dataclass(slots=True)
class Attribute:
    """``[[name(arguments)]]``."""

    name: str
    arguments: list[Token]


def fail(message: str, token: Token) -> KernelCompileError:
    """An error at ``token``."""
    place = Diagnostic(message, token.file, token.line, near=((token.text,), 0) if token.text else None)
    return KernelCompileError.of([place])


class Syntax:
    """Tokens with their brackets matched, and the questions both parser and translator ask of them."""

    def __init__(self, tokens: list[Token]) -> None:
        self.count = len(tokens)
        # A few empty tokens at the end, so that looking ahead needs no bounds check.
        last = tokens[-1] if tokens else Token("end", "", "", 1)
        self.tokens = tokens + [Token("end", "", last.file, last.line)] * 8
        self.texts = [token.text for token in self.tokens]
        self.match = self._match_brackets()

    def _match_brackets(self) -> list[int]:
        match = [-1] * len(self.tokens)
        open_at: list[int] = []
        for index, text in enumerate(self.texts):
            if text in _BRACKETS:
                open_at.append(index)
            elif text in (")", "]", "}"):
                if not open_at or _BRACKETS[self.texts[open_at[-1]]] != text:
                    raise fail(f"unmatched {text!r}", self.tokens[index])
                match[index] = open_at.pop()
                match[match[index]] = index
        if open_at:
            raise fail(f"{self.texts[open_at[-1]]!r} is never closed", self.tokens[open_at[-1]])
        return match

    def assigns(self, index: int) -> bool:
        """Whether an assigning operator begins at ``index``; ``>>=`` was lexed as two tokens."""
        shift = self.texts[index] == ">" and self.texts[index + 1] == ">=" and not self.tokens[index + 1].spaced
        return shift or self.texts[index] in _ASSIGNING

    def is_attribute(self, index: int) -> bool:
        """Whether ``[[`` begins at ``index``."""
        return (
            self.texts[index] == "["
            and index + 1 < len(self.texts)
            and self.texts[index + 1] == "["
            and self.match[index + 1] + 1 == self.match[index]
        )

    def attributes_at(self, index: int) -> list[Attribute]:
        """The attributes of the ``[[…]]`` at ``index``."""
        found = []
        for part in self.split(index + 2, self.match[index + 1]):
            names = [i for i in range(*part) if self.tokens[i].kind == IDENTIFIER]
            if not names:
                continue
            name_at = names[0]
            while name_at + 2 < part[1] and self.texts[name_at + 1] == "::":
                name_at += 2
            inside: list[Token] = []
            if name_at + 1 < part[1] and self.texts[name_at + 1] == "(":
                inside = self.tokens[name_at + 2 : self.match[name_at + 1]]
            name = "".join(self.texts[names[0] : name_at + 1])
            found.append(Attribute(name, inside))
        return found

    def angle_end(self, index: int, end: int | None = None, in_expression: bool = False) -> int | None:
        """The index of the ``>`` that closes the ``<`` at ``index``, or None if it is a comparison.

        In a declaration ``&&`` may stand in a template argument; in an expression it ends a comparison.
        """
        end = self.count if end is None else end
        level = 0
        while index < end:
            text = self.texts[index]
            if text in _BRACKETS:
                index = self.match[index]
            elif text == "<" and (level == 0 or self.tokens[index - 1].kind == IDENTIFIER):
                level += 1
            elif text == ">":
                level -= 1
            elif text in (";", "}", ")", "]") or (in_expression and text in ("&&", "||")):
                return None
            if level <= 0:
                return index
            index += 1
        return None

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """Splits tokens ``start`` to ``end`` (exclusive) at commas outside all brackets, angles included."""
        if start >= end:
            return []
        parts = []
        begin = index = start
        while index < end:
            text = self.texts[index]
            if text in _BRACKETS:
                index = self.match[index]
            elif text == "<":
                index = self.angle_end(index, end) or index
            elif text == ",":
                parts.append((begin, index))
                begin = index + 1
            index += 1
        parts.append((begin, end))
        return parts

    def statement_end(self, index: int, end: int) -> int:
        """The index of the ``;`` that ends the declaration at ``index``."""
        while index < end:
            if self.texts[index] in _BRACKETS:
                index = self.match[index]
            elif self.texts[index] == ";":
                return index
            index += 1
        raise fail("this declaration is never ended by ';'", self.tokens[min(index, self.count) - 1])

    def after_statement(self, index: int) -> int:
        """The index after the statement that begins at ``index``."""
        texts, match = self.texts, self.match
        end = self.count
        while index < end:
            text = texts[index]
            if text == "{":
                return match[index] + 1
            if text in ("for", "while", "switch", "if") and index + 1 < end:
                index += 2 if texts[index + 1] == "constexpr" else 1
                index = match[index] + 1 if index < end and texts[index] == "(" else index
                if text == "if":
                    index = self.after_statement(index)
                    if index < end and texts[index] == "else":
                        index += 1
                        continue
                    return index
                continue
            if text == "do":
                index = self.after_statement(index + 1)
                if index + 1 < end and texts[index] == "while":
                    index = match[index + 1] + 1
                return min(index + 1, end)
            while index < end and texts[index] != ";":
                if match[index] > index:
                    index = match[index]
                elif texts[index] in (")", "]", "}"):
                    return index
                index += 1
            return min(index + 1, end)
        return end

    def postfix_start(self, index: int) -> int:
        """Where the expression `a.b<c>::name` that ends at ``index`` begins."""
        texts, tokens, match = self.texts, self.tokens, self.match
        while index > 0:
            before = texts[index - 1]
            if before == "template":
                index -= 1
            elif before in (".", "->", "::"):
                index -= 1
                if index == 0:
                    break
                if texts[index - 1] == ">":
                    index = self.angle_start(index - 1)
                while texts[index - 1] in (")", "]"):
                    index = match[index - 1]
                if index > 0 and (tokens[index - 1].kind == IDENTIFIER and texts[index - 1] not in BEFORE_EXPRESSIONS):
                    index -= 1
                elif before == "::":
                    break
            else:
                break
        return index

    def angle_start(self, closing: int) -> int:
        """The ``<`` that the ``>`` at ``closing`` closes; ``closing`` itself when there is none."""
        level = 0
        for index in range(closing, -1, -1):
            if self.texts[index] == ">":
                level += 1
            elif self.texts[index] == "<":
                level -= 1
                if level == 0:
                    return index
            elif self.texts[index] in (";", "{", "}"):
                break
        return closing


def text_of(tokens: Sequence[Token]) -> str:
    """Tokens as readable text."""
    return "".join((" " if index and token.spaced else "") + token.text for index, token in enumerate(tokens))
