"""A lock that neither a fork nor a finaliser can turn into a hang.

`fork` copies a lock in whatever state it is in; if another thread of the parent held it, the child would
wait for ever. A `ForkLock` is replaced by a fresh one in the child. And it is re-entrant, because the garbage
collector may run a user's finaliser, which may use the device, in the middle of any locked block.
"""

from __future__ import annotations

import _thread
import os
import weakref

_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock(_thread.RLock):  # type: ignore[misc]
    """A re-entrant lock, fresh and free in every forked child. Used with `with`.

    It is the interpreter's own, because every submission takes several: to take it runs no Python.
    """

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)


def _renew_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_renew_in_child)
