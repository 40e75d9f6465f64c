"""Who owns memory, and until when.

Three small objects stand between a `Buffer` and its bytes:

* `Backing`: a block of device memory. It has a number that is never used twice, and remembers the last
  submission that touched it. A graph uses many blocks at once, so they share one memory of that: `SharedUse`.
* `Allocation`: one tenancy of a backing. Everything that can reach the bytes (buffers, uncommitted encoders,
  running submissions, NumPy windows) holds the allocation; when the last of them is gone the memory is given
  back, to its pool if it has one. So a pool cannot give out memory that anything else can still reach.
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
from ..errors import FaultedBuffer
from .fault_marks import FaultMarks
from .residency import ResidencySet

if TYPE_CHECKING:
    from .submission import Submission

_serials = itertools.count(1)
_sharing = ForkLock()

# Enough for every slice of a KV cache in use; beyond it, serials are given out anew.
_MAX_SERIALS = 4096


class SharedUse:
    """The last submission of something that uses many blocks: a replay need not visit each of them."""

    __slots__ = ("__weakref__", "last_use")

    def __init__(self) -> None:
        self.last_use: weakref.ref[Submission] | None = None


class Backing:
    """A block of device memory."""

    __slots__ = (
        "_backend",
        "_marks",
        "_residency",
        "_shared_uses",
        "_views",
        "address",
        "last_use",
        "memory",
        "nbytes",
        "number",
    )

    def __init__(self, memory: Memory, backend: Backend, residency: ResidencySet, marks: FaultMarks) -> None:
        self.memory = memory
        self._backend = backend
        self.address = memory.address
        self.nbytes = memory.nbytes
        self.number = memory.number
        self.last_use: weakref.ref[Submission] | None = None
        self._shared_uses: list[weakref.ref[SharedUse]] = []
        self._views: dict[tuple[int, int, np.dtype[np.generic]], int] = {}
        self._residency = residency
        self._marks = marks
        residency.add(self.number)

    def share(self, use: SharedUse) -> None:
        """From now on, what `use` remembers counts as a use of this block too."""
        with _sharing:
            self._shared_uses = [*(one for one in self._shared_uses if one() is not None), weakref.ref(use)]

    def settle(self) -> None:
        """Wait for the last submission that uses this block; its error surfaces here unless somebody has seen it."""
        submission = self.latest_use()
        if submission is not None:
            submission._settle()

    def latest_use(self) -> Submission | None:
        """The last submission that uses this block, unless it is gone."""
        found = None
        shared = (use() for use in self._shared_uses)
        for last_use in (self.last_use, *(use.last_use for use in shared if use is not None)):
            submission = None if last_use is None else last_use()
            if submission is not None and (found is None or submission.ordinal > found.ordinal):
                found = submission
        return found

    def check_contents(self, offset: int, nbytes: int, what: object) -> None:
        """Raise if a fault has left some of these bytes behind; `what` names them."""
        begin = self.address + offset
        fault = self._marks.at(begin, begin + nbytes)
        if fault is not None:
            fault.note_told()
            raise FaultedBuffer(
                f"{what}: a fault left its contents behind ({fault}); write all of it (write, fill or copy), or call"
                " accept() if they are wanted as they are",
                fault,
            )

    def accept(self, offset: int, nbytes: int) -> None:
        """Bytes that nothing that runs uses are from now on what they should be."""
        begin = self.address + offset
        self._marks.remove(begin, begin + nbytes)

    def give_back(self) -> None:
        """Nothing can reach these contents any more."""
        self._marks.give_back(self.address, self.address + self.nbytes)

    def read(self, offset: int, nbytes: int) -> np.ndarray:
        """A copy of bytes that nothing that runs writes to."""
        self.check_contents(offset, nbytes, self)
        found = np.empty(nbytes, np.uint8)
        if nbytes:
            self._backend.read(self.memory, offset, found)
        return found

    def write(self, offset: int, values: np.ndarray) -> None:
        """Replace bytes that nothing that runs uses by those of an array."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if flat.nbytes:
            self._backend.write(self.memory, offset, flat)
            self.accept(offset, flat.nbytes)

    def clear(self, offset: int, nbytes: int) -> None:
        """Set bytes that nothing that runs uses to zero."""
        if nbytes:
            self._backend.clear(self.memory, offset, nbytes)
            self.accept(offset, nbytes)

    def serial(self, offset: int, nbytes: int, dtype: np.dtype[np.generic]) -> int:
        """A number for this range and dtype: the same for equal views, and never that of another view.

        Encoders memoise by it. Equal views share it, so that slices made anew for each dispatch, and pool
        buffers taken anew for each token, still find what was memoised for them.
        """
        key = (offset, nbytes, dtype)
        found = self._views.get(key)
        if found is None:
            if len(self._views) >= _MAX_SERIALS:
                self._views.clear()
            found = self._views.setdefault(key, next(_serials))
        return found

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
