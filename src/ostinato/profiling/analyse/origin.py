"""What a recording is of: which program ran when and where, at which revision, on how busy a machine.

Texts are what a file says and not escaped; whoever shows them does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..recording.schema import Process


@dataclass(frozen=True, slots=True)
class Origin:
    """One process that recorded. "" and None stand for what is not known."""

    name: str
    """What tells it from the others in the fewest words: 'rank 3', 'pid 411', 'node7 pid 411'."""
    program: str
    """With its arguments."""
    began: str
    """In UTC, as ISO 8601 writes it."""
    duration_ns: int | None
    """From the first moment of the recording to its last word."""
    host: str
    pid: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    version: str
    """Of ostinato."""
    revision: str
    """Of the folder that the program lies in."""
    changed: bool | None
    """Whether files there differed from the revision."""
    cores: tuple[int | None, int | None]
    """That it could use, at the start and at the end."""
    load: tuple[float | None, float | None]
    """Average number of running programs on the host over a minute, at the start and at the end."""
    profile_ns: int | None
    """Time of the program's own threads that the profile took."""
    run_delay_ns: int | None = None
    """How long its workers waited for a core."""
    involuntary_switches: int | None = None
    steal_ns: int | None = None
    """Time that the hypervisor gave to others."""


def origins_of(processes: Sequence[Process]) -> tuple[Origin, ...]:
    """What is known about the processes of a recording."""
    return tuple(_origin(process, name) for process, name in zip(processes, _names(processes), strict=True))


def _origin(process: Process, name: str) -> Origin:
    start, end = process.start_monotonic_ns, process.end_monotonic_ns
    return Origin(
        name=name,
        program=process.meta.get("program", ""),
        began=moment(process.start_realtime_ns),
        duration_ns=None if start is None or end is None or end < start else end - start,
        host=process.host,
        pid=process.pid,
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        version=process.meta.get("ostinato", ""),
        revision=process.meta.get("git.revision", ""),
        changed=process.git_changed,
        cores=(process.start_cores, process.end_cores),
        load=(process.start_load, process.end_load),
        profile_ns=process.overhead_ns,
        run_delay_ns=process.run_delay_ns,
        involuntary_switches=process.involuntary_switches,
        steal_ns=process.steal_ns,
    )


def _names(processes: Sequence[Process]) -> list[str]:
    several_hosts = len({process.host for process in processes}) > 1
    by_rank = ["" if process.rank is None else f"rank {process.rank}" for process in processes]
    by_pid = [f"{process.host} pid {process.pid}" if several_hosts else f"pid {process.pid}" for process in processes]
    for names in (by_rank, by_pid):
        if "" not in names and len(set(names)) == len(names):
            return names
    return [f"{name} #{number}" for number, name in enumerate(by_pid, 1)]


def moment(realtime_ns: int | None) -> str:
    """A time of the wall clock in UTC, as ISO 8601 writes it; "" for one that cannot be."""
    try:
        return "" if realtime_ns is None else datetime.fromtimestamp(realtime_ns // 10**9, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return ""
