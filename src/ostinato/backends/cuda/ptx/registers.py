"""Registers of a function in PTX that nothing uses yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_DECLARED = re.compile(r"(?P<declared>\s*\.reg \.b32\s+%r<)(?P<count>\d+)>;")


class FreshRegisters:
    """New 32-bit registers. `declared` adds their declaration, and the code of `once`, to the function."""

    def __init__(self, lines: Sequence[str]) -> None:
        found = next((found for found in map(_DECLARED.fullmatch, lines) if found), None)
        self._count = int(found["count"]) if found is not None else 0
        self._kept: dict[str, str] = {}
        self._first: list[str] = []

    def take(self) -> str:
        self._count += 1
        return f"%r{self._count - 1}"

    def once(self, expression: str, thread_to: Callable[[str, str], list[str]]) -> str:
        """A register computed once, from the thread's number; `thread_to(thread, to)` writes that code."""
        if expression not in self._kept:
            thread, self._kept[expression] = self.take(), self.take()
            self._first += [f"\tmov.u32 {thread}, %tid.x;", *thread_to(thread, self._kept[expression])]
        return self._kept[expression]

    def declared(self, lines: Sequence[str]) -> list[str]:
        result = []
        for line in lines:
            found = _DECLARED.fullmatch(line)
            # Calls declare registers too, but this declaration stands before all code of the function.
            result += [line] if found is None else [f"{found['declared']}{self._count}>;", *self._first]
        return result
