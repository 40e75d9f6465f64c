"""Registers of a function in PTX that nothing uses yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_DECLARED = re.compile(r"(?P<declared>\s*\.reg \.b32\s+%r<)(?P<count>\d+)>;")


class FreshRegisters:
    """Of 32 bits. `declared` makes them known to the function, and begins it with what they all need."""

    def __init__(self, lines: Sequence[str]) -> None:
        found = next((found for found in map(_DECLARED.fullmatch, lines) if found), None)
        self._count = int(found["count"]) if found is not None else 0
        self._kept: dict[str, str] = {}
        self._first: list[str] = []

    def take(self) -> str:
        self._count += 1
        return f"%r{self._count - 1}"

    def once(self, expression: str, thread_to: Callable[[str, str], list[str]]) -> str:
        """A register with an expression of the thread's number; `thread_to` writes the code from one to the other."""
        if expression not in self._kept:
            thread, self._kept[expression] = self.take(), self.take()
            self._first += [f"\tmov.u32 {thread}, %tid.x;", *thread_to(thread, self._kept[expression])]
        return self._kept[expression]

    def declared(self, lines: Sequence[str]) -> list[str]:
        result = [_DECLARED.sub(lambda found: f"{found['declared']}{self._count}>;", line) for line in lines]
        place = max((at for at, line in enumerate(result) if line.lstrip().startswith(".reg")), default=0)
        return [*result[: place + 1], *self._first, *result[place + 1 :]]
