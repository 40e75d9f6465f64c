"""What the checks of a device found while kernels ran, as data; `audit.kernels` makes findings for people of it."""

from __future__ import annotations

import os
from dataclasses import dataclass

KINDS = (
    "race",
    "relies on lockstep",
    "uninitialised",
    "out of bounds",
    "misaligned",
    "divergent barrier",
    "divergent simdgroup function",
    "not a number",
    "division by zero",
    "shift out of range",
    "signed overflow",
    "conversion out of range",
    "not written",
    "inactive lane",
)
"""The kinds of findings, in the order of `FindingKind` in `cpu/runtime/checks.h`."""

MEMORIES = ("", "device", "threadgroup", "thread")
"""The address spaces, in the order of `MemoryKind` in `cpu/runtime/findings.h`."""

NOTES = frozenset({"relies on lockstep", "shift out of range", "not written", "inactive lane"})
"""The kinds that are no errors."""


@dataclass(frozen=True, slots=True)
class KernelPlace:
    """A place in a kernel's source, as the user wrote it."""

    file: str
    line: int
    column: int | None
    """Counted from 1; None if only the line is known."""

    def __str__(self) -> str:
        file = os.path.basename(self.file)
        return ":".join(str(part) for part in (file, self.line, self.column) if part is not None)


@dataclass(frozen=True, slots=True)
class KernelAccess:
    """What one thread did: an access to memory, or something else at a place of the source."""

    what: str
    """One of "read", "write", "atomic read", "atomic write"; "" if it is not an access to memory."""
    thread: tuple[int, int, int]
    """Position in the grid."""
    group: tuple[int, int, int]
    """Position of its threadgroup."""
    lane: int
    """Index in its threadgroup."""
    place: KernelPlace | None

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place is not None else ""
        return f"{self.what or 'thread'}{where} by thread {self.thread} of group {self.group}"


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """The memory that a finding is about."""

    kind: str
    """One of `MEMORIES`; "" if it is about none, or about memory that is nothing to the kernel."""
    address: int
    nbytes: int
    name: str | None
    """The variable there, or before it; None if that is not known."""
    offset: int
    """Of the address in the variable, or in threadgroup memory."""


@dataclass(frozen=True, slots=True)
class KernelFinding:
    """One finding about a kernel, at one pair of places."""

    kind: str
    """One of `KINDS`."""
    node: int
    """Index of the command in its list."""
    accesses: tuple[KernelAccess, ...]
    """The one or two accesses that it is about; the last is the one at which it was noticed."""
    memory: KernelMemory
    value: int
    """What the finding says more, by its kind; 0 if nothing."""
    count: int
    """How often it happened; the first is described."""
    type_name: str = ""
    """The type that a finding about numbers or indices is about, by Metal's name."""

    @property
    def is_error(self) -> bool:
        """Whether it is an error rather than a note."""
        return self.kind not in NOTES
