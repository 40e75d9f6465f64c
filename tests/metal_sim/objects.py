"""What everything of Objective-C has in common, as PyObjC shows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

from .rules import require


class Size(NamedTuple):
    """MTLSize."""

    width: int
    height: int
    depth: int


class Object:
    """An object; it can be labelled."""

    def __init__(self) -> None:
        self._label = ""

    @classmethod
    def alloc(cls) -> type[Self]:
        return cls

    @classmethod
    def init(cls) -> Self:
        return cls()

    def setLabel_(self, label: str) -> None:
        assert isinstance(label, str)
        self._label = label

    def label(self) -> str:
        return self._label


class Description(Object):
    """An object that only carries properties: `PROPERTIES` says which, with what they are at first."""

    PROPERTIES: dict[str, Any] = {}

    def __init__(self) -> None:
        super().__init__()
        self.values = dict(self.PROPERTIES)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set") and name.endswith("_"):
            key = name[3].lower() + name[4:-1]
            if key in self.PROPERTIES:
                return lambda value: self.values.__setitem__(key, value)
        raise AttributeError(f"{type(self).__name__} has no {name}")


class Error:
    """NSError."""

    def __init__(self, text: str) -> None:
        self._text = text

    def localizedDescription(self) -> str:
        return self._text


journal: list[tuple[str, ...]] | None = None
"""What was encoded and committed, for tests that look at it; None: nobody does."""


def note(*what: str) -> None:
    """Write into the journal."""
    if journal is not None:
        journal.append(what)


class _Pools(threading.local):
    """Autorelease pools that are open in this thread."""

    count = 0


_pools = _Pools()


@contextmanager
def autorelease_pool() -> Iterator[None]:
    _pools.count += 1
    try:
        yield
    finally:
        _pools.count -= 1


def autoreleased(what: str) -> None:
    """Said of an object that a pool releases: without one it would stay for ever."""
    require(_pools.count, f"{what} is made outside of an autorelease pool, and never released")
