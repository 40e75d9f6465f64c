"""Putting functions in the place of those of another library, and back.

An `Installation` replaces attributes of modules until `undo()` or the end of its `with` block. Nothing else changes: a
function that a module took by name (`from mlx.core.fast import metal_kernel`) before stays what it was, which is why
`install` warns of modules that hold one.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType

from ..errors import OstinatoWarning

Replacement = tuple[ModuleType, str, object]
"""A module, the name of an attribute, and what it becomes."""


class Installation:
    """Attributes that were replaced. As a context manager it undoes itself at the end of the block."""

    def __init__(self, replacements: Sequence[Replacement]) -> None:
        self._before: list[Replacement] = [(module, name, getattr(module, name)) for module, name, _ in replacements]
        for module, name, value in replacements:
            setattr(module, name, value)

    def undo(self) -> None:
        """Give the attributes the values they had; doing it again does nothing."""
        for module, name, value in self._before:
            setattr(module, name, value)
        self._before = []

    def __enter__(self) -> Installation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def warn_of_holders(is_held: Callable[[object], bool], owner: str, what: str) -> None:
    """Warn of modules, other than those of `owner`, that already hold `what` under a name of their own."""
    held = []
    for module_name, module in list(sys.modules.items()):
        if module is None or module_name.partition(".")[0] in (owner, "ostinato"):
            continue
        held += [f"{module_name}.{name}" for name, value in list(vars(module).items()) if is_held(value)]
    if held:
        warnings.warn(
            f"install: {what} was already taken by {', '.join(sorted(held))}, which still raises where there is no"
            " Metal; call install() before these modules are imported",
            OstinatoWarning,
            stacklevel=3,
        )
