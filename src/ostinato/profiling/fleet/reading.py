"""A recording as rows of a store: its runs, its kernels, its samples.

A run is what one process did on one device. A process is known by its machine, its number and the moment at which it
began to record, which `merge` keeps; a recording by a digest of those and of what it holds, which a copy, another name
or `--tables` does not change. Kernels go by name and specialisation: digests change with every revision, and revisions
are what is compared. Texts are kept as they are, except that what looks like a credential is hidden.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordingError
from ..analyse import columns_of, machine, validity
from ..analyse.columns import UNAVAILABLE, Columns, Device, Ints
from ..analyse.lists import warm_ups
from ..analyse.statistics import order_of
from ..analyse.timeline import submission_times
from ..recording import Recording, open_recording, opening
from ..recording.declaring import Codes
from ..recording.schema import Process
from .places import without_secrets

MOST_SAMPLES = 20_000_000
"""Of one recording: all of it is in memory once."""
_EPOCH = "1970-01-01"
_LATEST_NS = 1 << 62
_LONGEST_PROGRAM = 2_000


@dataclass(frozen=True, slots=True)
class Run:
    """The work of a process on a device: the row of `runs`, the rows of `kernels`, and the columns of `samples`."""

    facts: dict[str, Any]
    names: list[str]
    """Kernels, sorted."""
    ends: Ints
    """Where the samples of each kernel end: they stand kernel after kernel, those of one in order of time."""
    start_ns: Ints
    """On the wall clock."""
    duration_ns: Ints
    status: Codes
    kernels: dict[str, Any]
    """Columns of `kernels`, a row per name."""

    @property
    def partition(self) -> tuple[str, str]:
        return self.facts["day"], self.facts["device"]


@dataclass(frozen=True, slots=True)
class Contents:
    """A recording, read."""

    digest: str
    processes: tuple[int, ...]
    runs: tuple[Run, ...]

    @property
    def samples(self) -> int:
        return sum(len(run.start_ns) for run in self.runs)


def read(path: Path) -> Contents:
    """Everything of a recording that a store holds. `RecordingError` says why it cannot be taken."""
    with open_recording(path, pages=False) as recording:
        writer = recording.live_writer()
        if writer is not None:
            raise RecordingError(f"process {writer} is still recording into it; add it when that has ended")
        if recording.sample_count > MOST_SAMPLES:
            raise RecordingError(f"{recording.sample_count:,} samples are more than one may have ({MOST_SAMPLES:,})")
        with opening.reading(path):
            return _contents(recording, path)


def _contents(recording: Recording, path: Path) -> Contents:
    columns = columns_of(recording)
    digest = _digest(recording)
    keys = tuple(_process_key(process, digest, row) for row, process in enumerate(recording.processes))
    checks = _checks(columns)
    about = {"recording": digest, "file": path.name, **checks}
    runs = [
        _run(columns, recording.processes[process], process, device, keys[process], about)
        for process, device in _pairs(columns)
    ]
    return Contents(digest, keys, tuple(runs))


def _pairs(columns: Columns) -> Iterator[tuple[int, int]]:
    """Each process with each of its devices; -1 for one that had none."""
    for process in range(len(columns.pids)):
        devices = [row for row, device in enumerate(columns.devices) if device.process == process]
        yield from ((process, device) for device in devices or [-1])


def key_of(*facts: object) -> int:
    """63 bits that stand for some facts."""
    digest = hashlib.sha256(json.dumps(facts, ensure_ascii=True).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _process_key(process: Process, digest: str, row: int) -> int:
    facts = (process.pid, process.boot, process.start_realtime_ns, process.start_monotonic_ns)
    known = None not in facts and process.boot not in ("", "unknown")
    return key_of(*facts) if known else key_of(digest, row)


def _digest(recording: Recording) -> str:
    """Of what a recording holds, and not of the bytes in which it does."""
    hashed = hashlib.sha256()
    for process in recording.processes:
        facts = (process.pid, process.host, process.boot, process.start_realtime_ns, process.start_monotonic_ns)
        hashed.update(json.dumps(facts).encode())
    chunks = recording.columns("sample_chunks")
    for column in (chunks["samples"], chunks["crc"], recording.submissions.start_ns, recording.submissions.end_ns):
        hashed.update(np.ascontiguousarray(column, "<i8").tobytes())
        hashed.update(b"|")
    return hashed.hexdigest()[:32]


def _checks(columns: Columns) -> dict[str, Any]:
    """What the checks of a report say of the whole recording, and what it lost."""
    times, first = submission_times(columns), warm_ups(columns)
    made = (
        validity.drift(columns, times, first).check,
        validity.perturbation(columns, times, first).check,
        machine.check(columns, machine.disturbance(columns, times, first)),
        validity.host_cost(columns),
        validity.drops(columns),
        validity.clock(columns),
        validity.repetitions(columns),
        validity.measured(columns, times),
    )
    by_status = {
        status: [f"{check.name}: {without_secrets(check.sentence)}"[:500] for check in made if check.status is status]
        for status in (validity.Status.ERROR, validity.Status.NOTED)
    }
    return {
        "failed": json.dumps(by_status[validity.Status.ERROR]),
        "noted": json.dumps(by_status[validity.Status.NOTED]),
        "lost": sum(drop.count for drop in columns.drops) + validity.uncounted_submissions(columns),
        "losses": json.dumps({without_secrets(drop.where)[:200]: drop.count for drop in columns.drops[:20]}),
    }


def _run(columns: Columns, process: Process, row: int, device: int, process_key: int, about: dict[str, Any]) -> Run:
    here = columns.devices[device] if device >= 0 else None
    chosen = columns.submissions.device[columns.samples.submission] == device
    samples = columns.samples if chosen.all() else columns.samples.where(chosen)
    command = columns.plans.command[samples.node]
    names, of_command = _names(columns)
    timed = samples.status != UNAVAILABLE
    unavailable = int((~timed & (of_command[command] >= 0)).sum()) if not timed.all() else 0
    timed &= of_command[command] >= 0
    if not timed.all():
        samples, command = samples.where(timed), command[timed]
    code, names = _used(of_command[command], names)
    duration = samples.end_ns - samples.start_ns
    order = order_of(code, len(names))
    facts = {
        **_process_facts(process, columns.closed),
        **_device_facts(here),
        **about,
        "run": key_of(process_key, device if here is None else here.name, device),
        "process": process_key,
        "submissions": int((columns.submissions.device == device).sum()),
        "samples": len(code),
        "unavailable": unavailable,
        "device_ns": int(duration.sum()),
    }
    return Run(
        facts,
        names,
        np.cumsum(np.bincount(code, minlength=len(names))),
        samples.start_ns[order] + _to_wall(process),
        duration[order],
        samples.status[order],
        _kernels(code, duration, len(names)),
    )


def _names(columns: Columns) -> tuple[list[str], Ints]:
    """Kernels of the whole recording, sorted, and the row of each command's; -1 for what does no work."""
    commands = columns.commands
    texts = []
    for kind, kernel, special in zip(commands.kind, commands.kernel, commands.specialisation, strict=True):
        name = f"{kernel} [{special}]" if special else str(kernel)
        texts.append("" if kind == "barrier" else name if kind == "dispatch" else f"({kind})")
    names = sorted(set(texts) - {""})
    row = {name: number for number, name in enumerate(names)} | {"": -1}
    return names, np.array([row[text] for text in texts], np.int64)


def _used(code: Ints, names: Sequence[str]) -> tuple[Ints, list[str]]:
    """The names that occur, and the codes among them."""
    counts = np.bincount(code, minlength=len(names))
    if (counts > 0).all():
        return code, list(names)
    return (np.cumsum(counts > 0) - 1)[code], [name for name, count in zip(names, counts, strict=True) if count]


def _kernels(code: Ints, duration_ns: Ints, size: int) -> dict[str, Any]:
    """What is known of each kernel of a run: how often, and the distribution of its times."""
    counts = np.bincount(code, minlength=size).astype(np.int64)
    first = np.cumsum(counts) - counts
    # One sort of plain integers for all kernels: the kernel is in the upper bits, the time in the others.
    bits = 63 - max(size, 1).bit_length()
    longest = (1 << bits) - 1
    ordered = np.sort((code << bits) | np.minimum(duration_ns, longest)) & longest

    def quantile(part: float) -> Any:
        place = (counts - 1) * part
        below = place.astype(np.int64)
        low, high = ordered[first + below], ordered[first + np.minimum(below + 1, counts - 1)]
        return low + (high - low) * (place - below)

    if not size:
        none: dict[str, Any] = {name: np.zeros(0) for name in ("p50_ns", "p99_ns")}
        return none | {name: np.zeros(0, np.int64) for name in ("samples", "min_ns", "max_ns", "total_ns")}
    return {
        "samples": counts,
        "p50_ns": quantile(0.5),
        "p99_ns": quantile(0.99),
        "min_ns": ordered[first],
        "max_ns": ordered[first + counts - 1],
        "total_ns": np.add.reduceat(ordered, first),
    }


def _to_wall(process: Process) -> int:
    """What makes a time of the recording one of the wall clock; 0 where that is not known."""
    if process.start_realtime_ns is None or process.start_monotonic_ns is None:
        return 0
    offset = process.start_realtime_ns - process.start_monotonic_ns - process.clock_offset_ns
    return offset if abs(offset) < _LATEST_NS else 0


def day_of(realtime_ns: int | None) -> str:
    """The day of a moment in UTC; the first of all days where it is not known."""
    try:
        return _EPOCH if realtime_ns is None else datetime.fromtimestamp(realtime_ns // 10**9, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return _EPOCH


def _process_facts(process: Process, closed: bool) -> dict[str, Any]:
    meta = process.meta
    settings = {
        key.removeprefix("setting."): without_secrets(value)[:500]
        for key, value in meta.items()
        if key.startswith("setting.")
    }
    start, end = process.start_monotonic_ns, process.end_monotonic_ns
    return {
        "day": day_of(process.start_realtime_ns),
        "host": process.host,
        "rank": process.rank,
        "local_rank": process.local_rank,
        "world_size": process.world_size,
        "pid": process.pid,
        "program": without_secrets(meta.get("program", ""))[:_LONGEST_PROGRAM],
        "revision": meta.get("git.revision", ""),
        "changed": process.git_changed,
        "ostinato": meta.get("ostinato", ""),
        "python": meta.get("python", ""),
        "platform": meta.get("platform", ""),
        "processor": meta.get("processor", ""),
        "settings": json.dumps(settings, sort_keys=True),
        "began_ns": process.start_realtime_ns,
        "wall_ns": None if start is None or end is None else max(end - start, 0),
        "load": process.start_load,
        "closed": closed,
    }


def _device_facts(device: Device | None) -> dict[str, Any]:
    """A device goes by its description ("NVIDIA H200"), as its name ("cuda:0") is a place in its machine."""
    if device is None:
        return {"device": "", "device_name": "", "backend": "", "driver": "", "tuned": ""}
    return {
        "device": device.description or device.name,
        "device_name": device.name,
        "backend": device.backend,
        "driver": device.driver,
        "tuned": Path(device.tuned).name,
    }
