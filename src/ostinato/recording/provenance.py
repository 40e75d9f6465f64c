"""Where a recording comes from: facts about the process, the machine, the user's project, and its clocks.

Nothing here waits for long or runs anything, except `git_state`, which asks git whether the work tree differs from the
revision and is meant for a thread of its own. The name of the host, of the user and of folders stay out of it.
"""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from .. import settings
from ..version import __version__

_GIT_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_REVISION = re.compile(r"[0-9a-f]{40,64}")


class ClockPair(NamedTuple):
    """One moment on two clocks of the host, and how far apart the two readings may be."""

    monotonic_ns: int
    realtime_ns: int
    uncertainty_ns: int


def clock_pair() -> ClockPair:
    """The moment on both clocks: the tightest of a few readings."""
    best: ClockPair | None = None
    for _ in range(5):
        before = time.monotonic_ns()
        realtime = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < 2 * best.uncertainty_ns:
            best = ClockPair((before + after) // 2, realtime, (after - before + 1) // 2)
    assert best is not None
    return best


def clock_facts(which: str) -> Iterator[tuple[str, str]]:
    """A pair of clocks and the load of the host, under `which` ('start' or 'end')."""
    for name, value in clock_pair()._asdict().items():
        yield f"clock.{which}.{name}", str(value)
    if hasattr(os, "getloadavg"):
        yield f"load.{which}", " ".join(f"{load:.2f}" for load in os.getloadavg())


def start_facts() -> Iterator[tuple[str, str]]:
    """What is known at once when a recording begins."""
    yield "created", datetime.now(UTC).isoformat(timespec="milliseconds")
    yield "ostinato", __version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "platform", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "sqlite", sqlite3.sqlite_version
    yield "program", Path(sys.argv[0] if getattr(sys, "argv", None) else "").name
    yield "processor", _processor()
    yield "cores", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    governor = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")).strip()
    if governor:
        yield "cpu_governor", governor
    clock = time.get_clock_info("monotonic")
    yield "clock.source", clock.implementation
    yield "clock.resolution_ns", str(max(round(clock.resolution * 1e9), 1))
    yield "clock.boot", boot()
    yield "clock.namespace", _time_namespace()
    yield from clock_facts("start")
    for gate in settings.GATES.values():
        for variable in (gate.variable, *(alias for alias, _ in gate.aliases)):
            if value := os.environ.get(variable):
                yield f"setting.{variable}", "(set)" if gate.name in ("cache_dir", "profile_file") else value


def project_folder() -> Path:
    """The folder of the script that runs, else the current one."""
    script = Path(sys.argv[0]) if getattr(sys, "argv", None) and sys.argv[0] not in ("", "-c", "-m") else None
    try:
        return script.resolve().parent if script is not None and script.is_file() else Path.cwd()
    except OSError:
        return Path()


def git_revision(folder: Path) -> tuple[Path, str] | None:
    """The work tree around a folder and the revision checked out there, from the files of git alone."""
    for tree in (folder, *folder.parents):
        entry = tree / ".git"
        if not entry.exists():
            continue
        if entry.is_file():  # a linked work tree or a submodule
            pointed = _read(entry).strip()
            if not pointed.startswith("gitdir: "):
                return None
            entry = (tree / pointed[len("gitdir: ") :]).resolve()
        common = (entry / (_read(entry / "commondir").strip() or ".")).resolve()
        head = _read(entry / "HEAD").strip()
        if head.startswith("ref: "):
            reference = head[len("ref: ") :]
            head = _read(entry / reference).strip() or _read(common / reference).strip()
            if not head:
                packed = (line.split(" ", 1) for line in _read(common / "packed-refs").splitlines() if " " in line)
                head = next((revision for revision, name in packed if name == reference), "")
        return (tree, head) if _REVISION.fullmatch(head) else None
    return None


def git_state(tree: Path) -> str:
    """Whether tracked files differ from the revision: 'clean', 'changed', or 'unknown'."""
    command = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks", "status", "--porcelain", "-uno")
    try:
        result = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=_GIT_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return "changed" if result.stdout.strip() else "clean"


def _read(path: Path) -> str:
    """The beginning of a small file; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _processor() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def boot() -> str:
    """What tells one start of one machine from all others: the monotonic clock means nothing beyond it."""
    boot = _read(Path("/proc/sys/kernel/random/boot_id")).strip()
    if not boot and sys.platform == "darwin":
        command = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
        try:
            boot = subprocess.run(command, capture_output=True, text=True, timeout=1, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            boot = ""
    return boot or "unknown"


def _time_namespace() -> str:
    """Containers may shift the monotonic clock; those that share a namespace share it."""
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""
