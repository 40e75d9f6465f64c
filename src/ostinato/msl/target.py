"""What a target is given to translate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .convergence import Convergence
from .declarations import Declarations
from .kernels import KernelInstance
from .syntax import Syntax


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed source with the values of its function constants, and the kernels wanted of it."""

    syntax: Syntax
    declarations: Declarations
    """A copy of its own: translation edits it."""
    convergence: Convergence
    instances: Sequence[KernelInstance]
    constants: Mapping[str, str | None]
    """Function constants as C++ expressions; None for one without a value."""
    absent: Callable[[str], bool]
    """Whether an argument's guard leaves it out."""
    meets: Callable[[KernelInstance], bool]
    """Whether a kernel's threads may meet."""
    native: str
    """Source in the target's own language for some of the kernels, or nothing."""
    fibers: bool
    """Whether every kernel's threads must run one by one, where a target has a choice."""


@dataclass(frozen=True, slots=True)
class TargetText:
    """What a target makes of a source."""

    head: str
    """What comes with the target, and source in its own language that was given for it."""
    program: str
    """What was made of the source."""
