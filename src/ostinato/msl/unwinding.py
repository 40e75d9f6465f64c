"""Recursion without Python's stack: how deep a source nests is for the source to say, not for the interpreter.

A recursive function is written as a generator that yields the calls it makes of itself and its kin, and is sent their
results. What a call raises ends them all.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Steps = Generator["Steps[Any]", Any, Result]
"""A function that is written this way and gives a ``Result``."""


def unwound(call: Steps[Result]) -> Result:
    """What the call returns."""
    waiting: list[Steps[Any]] = [call]
    value: Any = None
    while waiting:
        try:
            inner = waiting[-1].send(value)
        except StopIteration as done:
            waiting.pop()
            value = done.value
        else:
            waiting.append(inner)
            value = None
    result: Result = value
    return result
