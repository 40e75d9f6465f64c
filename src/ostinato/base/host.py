"""The host: its processor, and counters of the operating system for time that this process did not get.

Linux counts for every thread how long it was ready to run but waited for a core, and how often it was preempted, and
for the machine how much time the hypervisor gave to other guests (steal time). On other systems there are no counters.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_WORKER = re.compile(rb"ostinato-\d+")


@lru_cache(maxsize=1)
def processor() -> str:
    """The name of the processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def cache_bytes() -> int:
    """The size of all last-level caches together; 0 where the system does not say."""
    sizes: dict[str, int] = {}
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cache"):
        with suppress(OSError, ValueError):
            last = max(folder.glob("index[0-9]*"), key=lambda index: int((index / "level").read_text()), default=None)
            if last is not None:
                size = (last / "size").read_text().strip()
                sizes[(last / "shared_cpu_list").read_text()] = int(size.rstrip("KM")) << (20 if "M" in size else 10)
    return sum(sizes.values())


def free_bytes() -> int:
    """Memory that is available without swapping, or all memory where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def counters() -> dict[str, int]:
    """The available counters by name: of the workers of all CPU devices of this process, and of the machine."""
    values: dict[str, int] = {}
    workers = list(_workers())
    with suppress(OSError, ValueError, IndexError):
        values["run_delay_ns"] = sum(int((task / "schedstat").read_text().split()[1]) for task in workers)
    with suppress(OSError, ValueError, StopIteration):
        values["involuntary_switches"] = sum(_status(task, "nonvoluntary_ctxt_switches") for task in workers)
    with suppress(OSError, ValueError, IndexError):
        first, *_ = Path("/proc/stat").read_text().splitlines()
        values["steal_ns"] = int(first.split()[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return values


def since(before: dict[str, int]) -> dict[str, int]:
    """How much the counters have risen since `before`; at least 0, since the counters of ended workers disappear."""
    return {name: max(value - before[name], 0) for name, value in counters().items() if name in before}


def _workers() -> Iterator[Path]:
    for task in Path("/proc/self/task").glob("*"):
        with suppress(OSError):
            name = (task / "comm").read_bytes().strip()  # bytes, since the system may cut a name within a character
            if _WORKER.fullmatch(name):
                yield task


def _status(task: Path, name: str) -> int:
    lines = (task / "status").read_text(errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).partition(":")[2])
