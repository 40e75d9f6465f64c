"""The command types: what an encoder records, a backend lowers and runs.

Commands are plain frozen records. They name memory by allocation number, address and exact byte range, and
never own it: whoever keeps a command (an encoder, a submission) keeps the allocations beside it. That lets
commands be memoised without keeping any buffer alive.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from .costs import Amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.source_lines import Place
    from ..errors import Diagnostic
    from ..msl import Definition, Execution, LogSite, Module, Signature


class DispatchKind(Enum):
    """How the size of a dispatch was given."""

    Threads = "threads"
    """A grid in threads; the last groups are clipped to it."""
    ThreadGroups = "thread_groups"
    """A grid in whole groups."""


class CapturedOpKind(Enum):
    """What a dispatch computes, for passes that may move or fuse it."""

    RmsNorm = "RmsNorm"
    ElemMul = "ElemMul"
    ElemAdd = "ElemAdd"
    Sdpa = "Sdpa"
    Softmax = "Softmax"
    Other = "Other"

    # Members are unique, and the encoder looks them up with every dispatch; the inherited hash is slow.
    __hash__ = object.__hash__

    def is_reorderable(self) -> bool:
        """Whether a reorder pass may look past such a dispatch; attention and softmax stop it."""
        return self not in (CapturedOpKind.Sdpa, CapturedOpKind.Softmax)


Size3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class KernelOrigin:
    """The source of a kernel, and the function constants it was specialised with."""

    module: Module
    constants: Mapping[int | str, Any]
    file: str = ""
    """The file that the source was read from; "" if it was passed as text."""
    defines: Mapping[str, str | int] = field(default_factory=dict)
    """The macros that it was compiled with."""
    digest: str = field(init=False)
    """Hexadecimal: the same for kernels of the same name exactly when source and constants are the same."""
    values: tuple[tuple[str, str], ...] = field(init=False)
    """Constants and macros with their values, as text."""
    specialisation: str = field(init=False)
    """The same in words, 'N=4,T=float'."""
    _definitions: dict[str, Definition | None] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        constants = sorted(self.module.given_constants(self.constants).items())
        digest = hashlib.blake2b(self.module.text_key + repr(constants).encode(), digest_size=8).hexdigest()
        settings = [*constants, *sorted(self.defines.items())]
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "values", tuple((str(name), str(value)) for name, value in settings))
        object.__setattr__(self, "specialisation", ",".join(f"{name}={value}" for name, value in self.values))

    def definition(self, kernel: str) -> Definition | None:
        """Where the function of a kernel stands; None if that is not known.

        Its file is named as the source's file was passed: a file that it includes is relative where that was, and
        relative to the current folder where the source was a text.
        """
        if kernel not in self._definitions:
            written = self.module.definition(kernel)
            named = None if written is None else replace(written, file=self._as_passed(written.file))
            self._definitions[kernel] = named
        return self._definitions[kernel]

    def _as_passed(self, file: str) -> str:
        if not file:
            return ""
        try:
            if not self.file:
                return os.path.relpath(file)
            root = self.module.files[0]
            inside = os.path.relpath(file, os.path.dirname(root))
            return self.file if file == root else os.path.normpath(os.path.join(os.path.dirname(self.file), inside))
        except (OSError, ValueError):  # the current folder is gone, or another drive
            return os.path.basename(file)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledKernel:
    """One kernel as a backend compiled it, with the limits and layouts that binding checks need."""

    name: str
    signature: Signature
    max_threads_per_group: int
    threadgroup_bytes: int
    """Threadgroup memory declared in the body."""
    argument_bytes: tuple[int, ...]
    """Size of the element type of each buffer argument; 0 when the type has no size (void)."""
    argument_alignments: tuple[int, ...]
    code: Any = field(repr=False)
    """What the backend needs to run it, opaque to all others. None in a graph that is on no device."""
    origin: KernelOrigin | None = field(default=None, repr=False)
    """What it was compiled from; set by the library."""
    execution: Execution | None = None
    """How the backend runs its threads; None where the hardware decides."""
    log_sites: tuple[LogSite, ...] = field(default=(), repr=False)
    """What it may print, by the numbers in its log records; empty if it prints nothing."""
    arena_bytes: int = 0
    """The same as `threadgroup_bytes`, and the red zones between variables, where kernels are checked."""
    warnings: tuple[Diagnostic, ...] = field(default=(), repr=False)
    """What the compiler suspects in the library of a checked kernel."""


class Unknown(Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN
"""For `reads=` or `writes=` of a dispatch that may touch anything: it runs after all commands before it, and before all
commands after it."""


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """Addresses `begin` to `end` (exclusive), as the device sees them, read or written."""

    begin: int
    end: int
    write: bool

    def overlaps(self, other: Access) -> bool:
        """Whether they share at least one byte."""
        return self.begin < other.end and other.begin < self.end


def packed(accesses: Sequence[Access] | None) -> bytes | None:
    """Accesses for native code: begin and end, 8 bytes each; the top bit of begin marks a write."""
    if accesses is None:
        return None
    words = [word for access in accesses for word in (access.begin | access.write << 63, access.end)]
    return struct.pack(f"={len(words)}Q", *words)


@dataclass(frozen=True, slots=True)
class BufferBinding:
    """A byte range of an allocation bound to a buffer index."""

    index: int
    allocation: int
    """Number of the allocation; numbers are never reused."""
    address: int
    """Where the range starts, as the device sees it."""
    offset: int
    """Where the range starts, counted from the start of the allocation."""
    nbytes: int
    writes: bool

    def access(self, write: bool) -> Access:
        """The whole range, read or written."""
        return Access(self.address, self.address + self.nbytes, write)


@dataclass(frozen=True, slots=True)
class InlineBinding:
    """Bytes copied into the command when it was encoded."""

    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ParamBinding:
    """Bytes whose value is passed to each replay of a captured graph."""

    index: int
    name: str
    """The parameter's name; all bindings of one name get the same bytes."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class UnboundBinding:
    """Nothing, for an argument that the kernel does not use."""

    index: int
    nbytes: int
    """Zeros that stand for a value that is passed by reference; 0 for a pointer, which is null."""


Binding = BufferBinding | InlineBinding | ParamBinding | UnboundBinding


class Ordering(Enum):
    """What makes one command of a list wait for another."""

    SERIAL = "each waits for the one before"
    BARRIERS = "only barriers order them"
    INFERRED = "each waits for those whose memory it uses, and for barriers"

    # Members are unique, and every commit looks one up; the inherited hash is slow.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One run of a kernel over a grid."""

    kernel: CompiledKernel
    bindings: tuple[Binding, ...]
    """One for each buffer argument, by ascending index."""
    kind: DispatchKind
    threads: Size3
    """Threads in the grid."""
    groups: Size3
    group_size: Size3
    shared: tuple[int, ...]
    """Bytes for each threadgroup argument, by ascending index."""
    op_kind: CapturedOpKind = CapturedOpKind.Other
    label: str | None = None
    """The scopes it was encoded in, joined by '/'."""
    accesses: tuple[Access, ...] | None = ()
    """The memory it uses: what its signature says of the bindings, or what the caller declared. None: unknown."""
    bytes_read: int | Amount | None = None
    bytes_written: int | Amount | None = None
    flops: int | Amount | None = None
    place: Place | None = None
    """The line that first encoded this dispatch. Later equal dispatches reuse the record, and may be on other lines."""
    spans: bytes | None = field(init=False, repr=False)
    """Its accesses in the form that native code reads, see `packed`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", packed(self.accesses))

    @property
    def counted(self) -> frozenset[str]:
        """The parameters that its bytes and flops depend on."""
        amounts = (self.bytes_read, self.bytes_written, self.flops)
        return frozenset().union(*(amount.params for amount in amounts if isinstance(amount, Amount)))


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything before it is finished and visible before anything after it starts."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies bytes from one range to another that does not overlap it."""

    source: BufferBinding
    target: BufferBinding
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Fill:
    """Repeats a pattern of 1, 2, 4 or 8 bytes over a range."""

    target: BufferBinding
    pattern: bytes
    label: str | None = None


Command = Dispatch | Barrier | Copy | Fill


def bound(command: Command) -> tuple[BufferBinding, ...]:
    """The ranges of memory that are bound to a command."""
    if isinstance(command, Dispatch):
        return tuple(binding for binding in command.bindings if isinstance(binding, BufferBinding))
    if isinstance(command, Copy):
        return (command.source, command.target)
    return () if isinstance(command, Barrier) else (command.target,)
