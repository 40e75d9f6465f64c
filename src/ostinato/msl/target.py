"""What a target is given to translate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .convergence import Convergence
from .declarations import Declarations
from .kernels import KernelInstance
from .syntax import Syntax


@dataclass(frozen=True, slots=True)
class Execution:
    """How the threads of a kernel run on a device, and why."""

    way: str
    """On the CPU "loop" (one loop over all threads), "split" (a loop between each two barriers) or "fibers" (a stack
    for each thread); "native" where the device has threads of its own."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}" if self.reason else self.way


NATIVE = Execution("native")


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
    executions: Mapping[str, Execution] = field(default_factory=dict)
    """How each kernel runs; of what is missing, as threads of the device."""
