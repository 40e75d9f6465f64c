"""Fair turns of the interpreter while a recording is written.

A thread that waits for Python's interpreter asks for it after the switch interval, 5 ms unless changed; but the wait
begins anew whenever the running thread lets go of it for a moment, as NumPy and every foreign call do. Beside a program
that does so every millisecond a waiting thread starves: measured, not one turn in a second. And each turn it does get
may hold up the program for 5 ms. A shorter interval makes both rarer, at no cost to a program that has one busy thread.
So it is lowered while any writer holds `ShortTurns`, and put back after the last one.

What remains (a program that lets go every 20 to 500 µs, for less time than it takes to wake a thread) is for the
program's own calls: `give_way` pauses long enough for a thread to wake, and seldom enough to cost little.
"""

from __future__ import annotations

import sys
import time

from ...base.locks import ForkLock

INTERVAL_S = 5e-4
_PAUSE_S = 5e-5
_BETWEEN_PAUSES_NS = 2_000_000

_lock = ForkLock()
_holders: set[int] = set()
_before_s = 0.0
_paused_ns = 0


class ShortTurns:
    """What a writer holds while the interval shall be short. Ending it more than once is harmless."""

    def __init__(self) -> None:
        global _before_s
        with _lock:
            if not _holders:
                _before_s = sys.getswitchinterval()
            _holders.add(id(self))
            if len(_holders) == 1:
                sys.setswitchinterval(min(_before_s, INTERVAL_S))

    def end(self) -> None:
        """If the program has chosen an interval of its own meanwhile, that one stays."""
        with _lock:
            if id(self) in _holders:
                _holders.discard(id(self))
                if not _holders and abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6:
                    sys.setswitchinterval(_before_s)

    def __del__(self) -> None:
        self.end()


def give_way(now_ns: int) -> None:
    """Let a starving thread have a turn, unless one was let just before: at most a twentieth of the time goes there."""
    global _paused_ns
    if now_ns - _paused_ns > _BETWEEN_PAUSES_NS:
        _paused_ns = now_ns
        time.sleep(_PAUSE_S)
