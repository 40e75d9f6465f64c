"""What a recording is of: which program ran when and where, at which revision, on how busy a machine.

The facts are what a file says, which may be anything: each is taken if it has the form it should have, and left out
otherwise. Texts are not escaped; whoever shows them does that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ..recording.columns import Process

_MAX_SECONDS = 1e9


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


def origins_of(processes: Sequence[Process]) -> tuple[Origin, ...]:
    """What is known about the processes of a recording."""
    return tuple(_origin(process, name) for process, name in zip(processes, _names(processes), strict=True))


def _origin(process: Process, name: str) -> Origin:
    meta = process.meta
    start, end = (whole(meta.get(f"clock.{which}.monotonic_ns", "")) for which in ("start", "end"))
    known = start is not None and end is not None and 0 <= end - start < _MAX_SECONDS * 1e9
    return Origin(
        name=name,
        program=meta.get("program", ""),
        began=moment(meta.get("created", "")),
        duration_ns=end - start if known and start is not None and end is not None else None,
        host=process.host,
        pid=process.pid,
        rank=process.rank,
        local_rank=process.local_rank,
        world_size=process.world_size,
        version=meta.get("ostinato", ""),
        revision=meta.get("git.revision", ""),
        changed={"clean": False, "changed": True}.get(meta.get("git.state", "")),
        cores=(whole(meta.get("cores.start", "")), whole(meta.get("cores.end", ""))),
        load=(_load(meta.get("load.start", "")), _load(meta.get("load.end", ""))),
        profile_ns=whole(meta.get("profile.host_ns", "")),
    )


def _names(processes: Sequence[Process]) -> list[str]:
    several_hosts = len({process.host for process in processes}) > 1
    by_rank = ["" if process.rank is None else f"rank {process.rank}" for process in processes]
    by_pid = [f"{process.host} pid {process.pid}" if several_hosts else f"pid {process.pid}" for process in processes]
    for names in (by_rank, by_pid):
        if "" not in names and len(set(names)) == len(names):
            return names
    return [f"{name} #{number}" for number, name in enumerate(by_pid, 1)]


def whole(text: str) -> int | None:
    """A count as it was written down; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _load(text: str) -> float | None:
    """The first of three averages."""
    try:
        found = float(text[:64].split()[0])
    except (ValueError, IndexError):
        return None
    return found if math.isfinite(found) and found >= 0 else None


def moment(text: str) -> str:
    """A time as it was written down, in UTC; "" for anything else."""
    try:
        found = datetime.fromisoformat(text[:40])
        return found.astimezone(UTC).isoformat(timespec="seconds") if found.tzinfo else ""
    except (ValueError, OverflowError):
        return ""
