"""What the operating system says of the time that this process did not get: counters that only rise.

Linux tells, for every thread, how long it was ready to run and waited for a core, and how often it was made to give
one up; and for the whole machine, how much time the hypervisor gave to others. Elsewhere there is nothing to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_WORKER = re.compile(rb"ostinato-\d+")


def counters() -> dict[str, int]:
    """What can be read now, by name: of the workers of all CPU devices of this process, and of the machine."""
    found: dict[str, int] = {}
    workers = list(_workers())
    with suppress(OSError, ValueError, IndexError):
        found["run_delay_ns"] = sum(int((task / "schedstat").read_text().split()[1]) for task in workers)
    with suppress(OSError, ValueError, StopIteration):
        found["involuntary_switches"] = sum(_status(task, "nonvoluntary_ctxt_switches") for task in workers)
    with suppress(OSError, ValueError, IndexError):
        first, *_ = Path("/proc/stat").read_text().splitlines()
        found["steal_ns"] = int(first.split()[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return found


def since(before: dict[str, int]) -> dict[str, int]:
    """By how much the counters have risen. A worker that has ended since takes its own with it; then it is 0."""
    return {name: max(value - before[name], 0) for name, value in counters().items() if name in before}


def _workers() -> Iterator[Path]:
    for task in Path("/proc/self/task").glob("*"):
        with suppress(OSError):
            if _WORKER.fullmatch((task / "comm").read_bytes().strip()):  # the system cuts names in mid-character
                yield task


def _status(task: Path, name: str) -> int:
    lines = (task / "status").read_text(errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).partition(":")[2])
