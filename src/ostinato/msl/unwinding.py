"""Recursion without Python's stack, so that the nesting of a source is not limited by the interpreter.

A recursive function is written as a generator that yields its recursive calls and is sent their results. An exception
in a call ends all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")
Steps = Generator["Steps[Any]", Any, Result]
"""A function that is written this way and returns a ``Result``."""


def unwound(call: Steps[Result]) -> Result:
    """Runs the call and returns its result."""
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
