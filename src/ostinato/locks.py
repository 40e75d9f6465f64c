"""A lock that neither a fork nor a finaliser can turn into a hang.

`fork` copies a lock in whatever state it is in; if another thread of the parent held it, the child would
wait for ever. A `ForkLock` is replaced by a fresh one in the child. And it is re-entrant, because the garbage
collector may run a user's finaliser, which may use the device, in the middle of any locked block.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock:
    """A re-entrant lock, fresh and free in every forked child. Used with `with`."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __repr__(self) -> str:
        return f"ForkLock({self._lock!r})"


def _renew_in_child() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_in_child)
