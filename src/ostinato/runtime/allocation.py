"""Ownership of device memory.

Three small objects stand between a `Buffer` and its bytes:

* `Backing`: a block of device memory. It has a number that is never reused, and refers to the last submission
  that used it. A graph uses many blocks at once, which share one such reference: `SharedUse`.
* `Allocation`: one tenancy of a backing. Everything that can reach the bytes (buffers, uncommitted encoders,
  running submissions, NumPy windows) holds the allocation. When the last of them is gone the memory is released,
  to its pool if it has one. So a pool never hands out memory that anything else can still reach.
* `Lease`: the right to use an allocation, shared by a buffer and all its views. Freeing a buffer ends the
  lease at once for all of them, while running work keeps the allocation itself.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..backends.protocol import Backend, Memory
from ..base.locks import ForkLock
from ..base.ranges import Range, without
from ..errors import FaultedBuffer, KernelFault
from .fault_marks import FaultMarks
from .residency import ResidencySet

if TYPE_CHECKING:
    from .submission import Submission

_serials = itertools.count(1)
_sharing = ForkLock()

# Enough for every slice of a KV cache in use; beyond it, views get new serials.
_MAX_SERIALS = 4096
# Beyond it, a block that the host fills in pieces counts as written.
_MAX_UNWRITTEN = 1024


class SharedUse:
    """The last submission that used a set of blocks, so that a replay need not visit each block."""

    __slots__ = ("__weakref__", "last_use")

    def __init__(self) -> None:
        self.last_use: weakref.ref[Submission] | None = None


class Backing:
    """A block of device memory."""

    __slots__ = (
        "_backend",
        "_had_uses",
        "_marks",
        "_residency",
        "_shared_uses",
        "_unwritten",
        "_views",
        "address",
        "last_use",
        "memory",
        "nbytes",
        "number",
    )

    def __init__(
        self, memory: Memory, backend: Backend, residency: ResidencySet, marks: FaultMarks, written: bool = False
    ) -> None:
        self.memory = memory
        self._backend = backend
        self.address = memory.address
        self.nbytes = memory.nbytes
        self.number = memory.number
        self.last_use: weakref.ref[Submission] | None = None
        self._shared_uses: list[weakref.ref[SharedUse]] = []
        self._unwritten: list[Range] = [] if written else [(0, memory.nbytes)]
        self._had_uses = False  # of graphs that are gone
        self._views: dict[tuple[int, int, np.dtype[np.generic]], int] = {}
        self._residency = residency
        self._marks = marks
        residency.add(self.number)

    def share(self, use: SharedUse) -> None:
        """Count the submissions that `use` records as uses of this block too."""
        with _sharing:
            alive = [known for known in self._shared_uses if known() is not None]
            self._had_uses |= len(alive) < len(self._shared_uses)
            self._shared_uses = [*alive, weakref.ref(use)]

    def settle(self) -> None:
        """Wait for the last submission that uses this block; raises its error unless it was raised or read before."""
        submission = self.latest_use()
        if submission is not None:
            submission._settle()

    def latest_use(self) -> Submission | None:
        """The last submission that uses this block; None when there was none or it is gone."""
        latest = None
        shared = (use() for use in self._shared_uses)
        for last_use in (self.last_use, *(use.last_use for use in shared if use is not None)):
            submission = None if last_use is None else last_use()
            if submission is not None and (latest is None or submission.ordinal > latest.ordinal):
                latest = submission
        return latest

    @property
    def was_used(self) -> bool:
        """Whether a submission may have used this block."""
        uses = (self, *(use() for use in self._shared_uses))
        return self._had_uses or any(use is None or use.last_use is not None for use in uses)

    @property
    def unwritten(self) -> list[Range]:
        """The bytes that the host has not written since the block was allocated. Kernels may have written them."""
        return self._unwritten

    def fault_at(self, offset: int, nbytes: int) -> KernelFault | None:
        """The fault that left some of these bytes with undefined contents; None if there is none."""
        begin = self.address + offset
        return self._marks.at(begin, begin + nbytes)

    def check_contents(self, offset: int, nbytes: int, what: object) -> None:
        """Raise if a fault left some of these bytes with undefined contents; `what` names the buffer."""
        fault = self.fault_at(offset, nbytes)
        if fault is not None:
            fault.note_told()
            raise FaultedBuffer(
                f"{what}: a fault left its contents undefined ({fault}); overwrite all of it (write, fill or copy), or"
                " call accept() to use them as they are",
                fault,
            )

    def accept(self, offset: int, nbytes: int) -> None:
        """Clear the fault marks of these bytes. No running work may use them."""
        begin = self.address + offset
        self._marks.remove(begin, begin + nbytes)
        self._note_written(offset, nbytes)

    def give_back(self) -> None:
        """Drop the fault marks of memory that nothing can reach any more."""
        self._marks.give_back(self.address, self.address + self.nbytes)

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """A copy of these bytes. No running work may write to them."""
        self.check_contents(offset, nbytes, self)
        contents = np.empty(nbytes, np.uint8)
        if nbytes:
            self._backend.read(self.memory, offset, contents)
        return contents

    def write(self, offset: int, values: np.ndarray) -> None:
        """Overwrite bytes with those of an array. No running work may use them."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if flat.nbytes:
            self._backend.write(self.memory, offset, flat)
            self.accept(offset, flat.nbytes)

    def clear(self, offset: int, nbytes: int) -> None:
        """Set bytes to zero. No running work may use them."""
        if nbytes:
            self._backend.clear(self.memory, offset, nbytes)
            self.accept(offset, nbytes)

    def expose(self, offset: int, nbytes: int) -> None:
        """Note that the host has a window on these bytes."""
        self._backend.expose(self.memory, offset, nbytes)
        self._note_written(offset, nbytes)

    def _note_written(self, offset: int, nbytes: int) -> None:
        if self._unwritten:
            left = without(self._unwritten, [(offset, offset + nbytes)])
            self._unwritten = left if len(left) <= _MAX_UNWRITTEN else []

    def serial(self, offset: int, nbytes: int, dtype: np.dtype[np.generic]) -> int:
        """A number for this range and dtype: the same for equal views, different for all others.

        Encoders memoise by it. Equal views share it, so that new slices for each dispatch, and pool buffers taken
        for each token, still hit the memo.
        """
        key = (offset, nbytes, dtype)
        serial = self._views.get(key)
        if serial is None:
            if len(self._views) >= _MAX_SERIALS:
                self._views.clear()
            serial = self._views.setdefault(key, next(_serials))
        return serial

    def __del__(self) -> None:
        self._residency.remove(self.number)

    def __repr__(self) -> str:
        return f"Backing({self.number}, {self.nbytes} bytes at {self.address:#x})"


class Allocation:
    """One tenancy of a backing."""

    __slots__ = ("__weakref__", "_recycle", "backing")

    def __init__(self, backing: Backing, recycle: Callable[[Backing], None] | None = None) -> None:
        self.backing = backing
        self._recycle = recycle

    def __del__(self) -> None:
        self.backing.give_back()
        if self._recycle is not None:
            self._recycle(self.backing)

    def __repr__(self) -> str:
        return f"Allocation({self.backing!r})"


class Lease:
    """The right to use an allocation; None once it has ended."""

    __slots__ = ("allocation",)

    def __init__(self, allocation: Allocation) -> None:
        self.allocation: Allocation | None = allocation

    def __repr__(self) -> str:
        return "Lease(ended)" if self.allocation is None else f"Lease({self.allocation!r})"


class Window:
    """Bytes of an allocation, offered to NumPy; arrays made from it keep the allocation."""

    __slots__ = ("__array_interface__", "allocation")

    def __init__(self, allocation: Allocation, offset: int, nbytes: int) -> None:
        self.allocation = allocation
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (allocation.backing.address + offset, False),
        }

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> np.ndarray:
        """The bytes as an array of that shape and dtype, without a copy."""
        return np.asarray(self).view(dtype).reshape(shape)

    def __repr__(self) -> str:
        return f"Window({self.allocation!r})"
