"""Putting functions in the place of those of another library, and back.

An `Installation` replaces attributes of modules until `undo()` or the end of its `with` block. Nothing else changes: a
function that a module took by name (`from mlx.core.fast import metal_kernel`) before stays what it was, which is why
`install` warns of modules that hold one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType, TracebackType

from ..errors import OstinatoWarning

Replacement = tuple[ModuleType, str, object]
"""A module, the name of an attribute, and what it becomes."""


_originals: dict[tuple[ModuleType, str], object] = {}
"""What replaced attributes were before."""
_active: list[Installation] = []


class Installation:
    """Attributes that were replaced. As a context manager it undoes itself at the end of the block."""

    def __init__(self, owner: str, replacements: Sequence[Replacement]) -> None:
        self.owner = owner
        """The library whose attributes these are."""
        self._values = {(module, name): value for module, name, value in replacements}
        for module, name in self._values:
            _originals.setdefault((module, name), getattr(module, name))
        _active.append(self)
        _apply(self._values)

    def undo(self) -> None:
        """Give the attributes the values they have without it; doing it again does nothing."""
        if self in _active:
            _active.remove(self)
            _apply(self._values)

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def undo_all(owner: str) -> None:
    """Undo every installation into a library."""
    for installation in [each for each in _active if each.owner == owner]:
        installation.undo()


def _apply(places: Iterable[tuple[ModuleType, str]]) -> None:
    """Give attributes the value of the last installation that replaces them, or their own."""
    for module, name in places:
        values = [each._values[module, name] for each in _active if (module, name) in each._values]
        setattr(module, name, values[-1] if values else _originals.pop((module, name)))


def warn_of_holders(is_held: Callable[[object], bool], owner: str, what: str) -> None:
    """Warn of modules, other than those of `owner`, that already hold `what` under a name of their own."""
    held = []
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] in (owner, "ostinato"):
            continue
        held += [
            f"{module_name}.{name}" for name, value in list(getattr(module, "__dict__", {}).items()) if is_held(value)
        ]
    if held:
        warnings.warn(
            f"install: {what} was already taken by {', '.join(sorted(held))}, which still raises where there is no"
            " Metal; call install() before these modules are imported",
            OstinatoWarning,
            stacklevel=3,
        )
