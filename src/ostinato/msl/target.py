"""The input and output of a translation for a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .convergence import Convergence
from .counted_lines import Counter
from .declarations import Declarations
from .kernels import KernelInstance
from .log_calls import LogCall
from .syntax import Syntax

CPP17, CPP20 = "c++17", "c++20"


@dataclass(frozen=True, slots=True)
class Execution:
    """How the threads of a kernel run on a device, and why."""

    way: str
    """On the CPU "loop" (one loop over all threads), "split" (a loop between each two barriers), "vector" (the lanes of
    a simdgroup in vector registers) or "fibers" (a stack for each thread); "native" where the device has hardware
    threads."""
    reason: str = ""
    note: str = ""
    """What this way may change in the results, or why it is not a faster one."""

    as_vectors: str = ""
    """Why it is to run with the lanes of a simdgroup in vector registers, although its threads never meet."""

    @property
    def explanation(self) -> str:
        """Reason and note."""
        return "; ".join(part for part in (self.reason, self.note) if part)

    def __str__(self) -> str:
        return f"{self.way}: {self.explanation}" if self.explanation else self.way


NATIVE = Execution("native")


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed source with the values of its function constants, and the kernels to translate."""

    syntax: Syntax
    declarations: Declarations
    """A private copy, since translation edits it."""
    convergence: Convergence
    instances: Sequence[KernelInstance]
    constants: Mapping[str, str | None]
    """Function constants as C++ expressions; None for one without a value."""
    absent: Callable[[str], bool]
    """Whether an argument's function constant removes it."""
    meets: Callable[[KernelInstance], bool]
    """Whether a kernel's threads may meet."""
    native: str
    """Source in the target's own language for some of the kernels, or nothing."""
    fibers: bool
    """Whether the threads of every kernel must run one by one, if the target has a choice."""
    log_calls: Sequence[LogCall]
    active: frozenset[int]
    """The numbers of the calls that log; the others are compiled to nothing."""
    prints: Callable[[KernelInstance], bool]
    """Whether a kernel may reach one of these."""
    multiplies_bytes: Callable[[KernelInstance], bool]
    """Whether a kernel may call `ostinato::dot_add`."""
    debug: bool = False
    """Whether somebody steps through the kernels: they run as fibers, and entry points have the names of kernels."""
    counted: bool = False
    """Whether kernels count how often their statements run, if they run as fibers."""
    checked: bool = False
    """Whether local memory is declared to the runtime, for its checks."""


@dataclass(frozen=True, slots=True)
class TargetText:
    """The translation of a source for a target."""

    head: str
    """The target's own includes, and native source that was passed for it."""
    program: str
    """The translated source."""
    executions: Mapping[str, Execution] = field(default_factory=dict)
    """How each kernel runs; kernels that are missing here run on hardware threads."""
    begin: str = ""
    """What has to stand before the program, after the head."""
    end: str = ""
    """What has to follow the program."""
    counters: Sequence[Counter] = ()
    """The statements that are counted, in the order of the table of counts, from its second entry on."""
    standard: str = CPP17
    """The version of C++ that it is."""
