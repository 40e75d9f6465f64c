"""The residency set: which allocations the device keeps resident.

Allocating and freeing only stage changes; the next commit flushes all of them to the backend in one call, if there are
any. While OSTINATO_NO_RESIDENCY is on the set is empty. Staging never takes a lock, because the garbage collector also
frees memory, at any moment and in any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from .. import settings


class ResidencySet:
    """Staged adds and removes of allocations, flushed at most once per commit."""

    __slots__ = ("_flush_count", "_live", "_resident", "_staged", "_suspended", "_update")

    def __init__(self, update: Callable[[Sequence[int], Sequence[int]], None]) -> None:
        self._update = update
        self._staged: deque[tuple[bool, int]] = deque()
        self._live: set[int] = set()
        self._resident: set[int] = set()
        self._suspended = False
        self._flush_count = 0

    def add(self, allocation: int) -> None:
        """Stage an allocation (by number) to become resident."""
        self._staged.append((True, allocation))

    def remove(self, allocation: int) -> None:
        """Stage an allocation to leave the set."""
        self._staged.append((False, allocation))

    def flush(self) -> bool:
        """Apply staged changes to the device; False when there were none. Called by commit."""
        suspended = settings.is_on("no_residency")
        if not self._staged and suspended == self._suspended:
            return False
        self._suspended = suspended
        while self._staged:
            resident, allocation = self._staged.popleft()
            (self._live.add if resident else self._live.discard)(allocation)
        wanted = set() if suspended else self._live
        added = sorted(wanted - self._resident)
        removed = sorted(self._resident - wanted)
        if not added and not removed:
            return False
        self._update(added, removed)
        self._resident = set(wanted)
        self._flush_count += 1
        return True

    @property
    def staged_count(self) -> int:
        """Changes waiting for the next commit."""
        return len(self._staged)

    @property
    def flush_count(self) -> int:
        """Calls made to the device so far."""
        return self._flush_count

    def __len__(self) -> int:
        return len(self._resident)

    def __contains__(self, allocation: int) -> bool:
        return allocation in self._resident

    def __repr__(self) -> str:
        return f"ResidencySet({len(self)} resident, {self.staged_count} staged, {self.flush_count} flushes)"
