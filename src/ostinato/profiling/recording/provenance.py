"""Where a recording comes from: facts about the process, the machine, the user's project, and its clocks.

Nothing here waits for long or runs anything, except `git_changed`, which asks git whether the work tree differs from
the revision and is meant for a thread of its own. The names of the user and of the program's folder stay out of it.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ... import settings
from ...base import host
from ...version import __version__

_GIT_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20
_REVISION = re.compile(r"[0-9a-f]{40,64}")
_MOST_COMMAND_CHARACTERS = 2_000
_SECRET = re.compile(
    r"--?(.*[-_])?((api|access|secret|private)[-_]?key|token|secret|passwd|password|credentials?)", re.IGNORECASE
)
_HIDDEN = "(hidden)"

_LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun, Ray Train, Accelerate, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)
"""Where launchers say a process's rank, its rank on its host, and how many processes there are."""


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


def moment(which: str) -> dict[str, Any]:
    """The clocks, the cores and the load of the host now, as columns of `processes` ('start_…' or 'end_…')."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        f"{which}_{name}": value for name, value in (clock_pair()._asdict() | {"cores": cores, "load": load}).items()
    }


def of_process() -> dict[str, Any]:
    """The machine of this process, its clock, and its place in a job, as columns of `processes`."""
    ranked = zip(("rank", "local_rank", "world_size"), ranks(), strict=True)
    return {"host": platform.node(), "boot": boot(), "time_namespace": _time_namespace(), **dict(ranked)}


def start_facts() -> Iterator[tuple[str, str]]:
    """What is known at once when a recording begins, for people."""
    yield "ostinato", __version__
    yield "python", f"{platform.python_implementation()} {platform.python_version()}"
    yield "platform", f"{platform.system()} {platform.release()} {platform.machine()}"
    yield "sqlite", sqlite3.sqlite_version
    yield "program", _program(getattr(sys, "argv", None) or [""])
    yield "processor", host.processor()
    governor = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")).strip()
    if governor:
        yield "cpu_governor", governor
    clock = time.get_clock_info("monotonic")
    yield "clock.source", clock.implementation
    yield "clock.resolution_ns", str(max(round(clock.resolution * 1e9), 1))
    for gate in settings.GATES.values():
        for variable in (gate.variable, *(alias for alias, _ in gate.aliases)):
            if value := os.environ.get(variable):
                yield f"setting.{variable}", "(set)" if gate.name in ("cache_dir", "profile_file") else value


def ranks() -> tuple[int | None, int | None, int | None]:
    """The rank of this process, its rank on its host, and how many processes there are, as the launcher says.

    A launcher is believed that gives both a rank and a number of processes.
    """
    for names in _LAUNCHERS:
        rank, local, size = (_number(os.environ.get(name, "")) for name in names)
        if rank is not None and size is not None and rank < size:
            return rank, local, size
    return None, None, None


def file_name(file: str, process: int) -> str:
    """The name of a recording with `{host}`, `{rank}` and `{pid}` filled in; the rank is "none" without a launcher."""
    rank = ranks()[0]
    # One part of a path, whatever the machine is called.
    name = re.sub(r"[^\w.-]", "_", platform.node()).lstrip(".") or "unknown"
    file = file.replace("{host}", name).replace("{rank}", "none" if rank is None else str(rank))
    return file.replace("{pid}", str(process))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _program(arguments: Sequence[str]) -> str:
    """The command line; in a notebook, the name of the notebook, which Jupyter's server tells."""
    if Path(arguments[0]).name == "ipykernel_launcher.py":
        return Path(os.environ.get("JPY_SESSION_NAME", "")).name[:_MOST_COMMAND_CHARACTERS] or "notebook"
    return command_line(arguments)


def command_line(arguments: Sequence[str]) -> str:
    """A program without its folder, and its arguments, as a shell takes them; of bounded length.

    The value of an option that is named like a secret is hidden, as recordings are passed on.
    """
    program, *rest = arguments
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    is_module = spec is not None and getattr(main, "__file__", None) == program
    shown = ["-m", spec.name.removesuffix(".__main__")] if spec is not None and is_module else [Path(program).name]
    hide = False
    for argument in rest:
        option, equals, _ = argument.partition("=")
        secret = _SECRET.fullmatch(option) is not None
        if secret and equals:
            shown.append(f"{option}={_HIDDEN}")
        else:
            shown.append(_HIDDEN if hide and not argument.startswith("-") else argument)
        hide = secret and not equals
    text = shlex.join(shown)
    return text if len(text) <= _MOST_COMMAND_CHARACTERS else text[: _MOST_COMMAND_CHARACTERS - 1] + "…"


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


def git_changed(tree: Path) -> bool | None:
    """Whether tracked files differ from the revision; None where git does not say."""
    command = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks", "status", "--porcelain", "-uno")
    try:
        result = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=_GIT_TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return bool(result.stdout.strip())


def _read(path: Path) -> str:
    """The beginning of a small file; nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


@lru_cache(maxsize=1)
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
