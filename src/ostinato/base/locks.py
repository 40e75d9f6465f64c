"""A lock that does not deadlock after a fork or in a finaliser.

`fork` copies a lock in its current state; if another thread of the parent held it, the child would wait forever. A
`ForkLock` is released in the child. It is re-entrant, because the garbage collector may run a user's finaliser, which
may use the device, inside any locked block.
"""

from __future__ import annotations

import _thread
import os
import weakref

_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock(_thread.RLock):  # type: ignore[misc]
    """A re-entrant lock that is free in every forked child. Use it with `with`.

    It derives from the interpreter's own lock: every submission takes several, and taking it runs no Python code.
    """

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)


def _renew_in_child() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_renew_in_child)
