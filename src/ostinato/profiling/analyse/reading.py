"""A recording as the columns that the analysis reads: ids become rows, codes become words, samples come into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..recording import columns as recorded
from ..recording.columns import LEVELS, SPAN_KINDS, STATUSES, DeviceFacts, Process, position
from ..recording.reader import Recording
from .columns import (
    ABSENT,
    Columns,
    Commands,
    Device,
    Floats,
    HostSpans,
    Ints,
    Plans,
    Regions,
    Samples,
    Submissions,
    Terms,
    Texts,
    texts,
)
from .kernels import KernelFacts, details
from .origin import moment, origins_of

_MOMENTS = ("begin", "end")


def columns_of(recording: Recording) -> Columns:
    """Reads a whole recording. Raises `RecordingError` for a damaged one, or one too large to be held in memory.

    A recording in memory is of this process and still going on; only a file can have been cut off.
    """
    processes = np.array([process.id for process in recording.processes], np.int64)
    plans = _plans(recording)
    submissions = _submissions(recording, processes)
    regions, spans, submissions_found = recording.regions, recording.host_spans, recording.submissions.id
    terms, values = _terms(recording)
    thread_names = {
        (int(row), thread): name
        for ((process, thread), name) in recording.threads.items()
        for row in np.flatnonzero(processes == process)
    }
    return Columns(
        devices=tuple(_device(device, recording.processes, processes) for device in recording.devices),
        commands=_commands(recording),
        plans=plans,
        submissions=submissions,
        samples=_samples(recording, plans, submissions),
        regions=Regions(
            name=texts(regions.name),
            begin_ns=regions.begin_ns,
            end_ns=regions.end_ns,
            thread=regions.thread,
            process=position(processes, regions.process),
            parent=_rows(regions.id, regions.parent),
        ),
        host_spans=HostSpans(
            kind=_named(SPAN_KINDS, spans.kind),
            name=texts(spans.name),
            begin_ns=spans.begin_ns,
            end_ns=spans.end_ns,
            thread=spans.thread,
            submission=_rows(recording.submissions.id, spans.submission),
            process=position(processes, spans.process),
        ),
        drops=recording.drops,
        meta=recording.meta,
        pids=tuple(process.pid for process in recording.processes),
        origins=origins_of(recording.processes),
        thread_names=thread_names,
        terms=terms,
        values=values,
        missing_submissions=int(submissions_found[-1]) - len(submissions_found) if len(submissions_found) else 0,
        closed=recording.path is None or all(process.closed for process in recording.processes),
    )


def _device(facts: DeviceFacts, processes: Sequence[Process], ids: Ints) -> Device:
    process = int(position(ids, np.array(facts.process)))
    workers = facts.details.get("workers", "")
    usable = workers.isascii() and workers.isdigit() and len(workers) < 10 and int(workers) > 0
    return Device(
        name=facts.name,
        backend=facts.backend,
        description=facts.description,
        sampling=facts.sampling,
        driver=facts.details.get("driver")
        or facts.details.get("compiler")
        or processes[process].meta.get("platform", ""),
        process=process,
        clock_uncertainty_ns=float(facts.clock_uncertainty_ns),
        timer_step_ns=_amount(facts.details.get("timer_step_ns", "")),
        edges_ns=_amount(facts.details.get("edges_ns", "")) or 0.0,
        workers=int(workers) if usable else None,
        copy_bytes_per_s=facts.copy_bytes_per_s or None,
        flops_per_s=facts.flops_per_s or None,
        timestamp_cost_ns=facts.timestamp_cost_ns,
        copy_spread=_amount(facts.details.get("ceiling.copy.spread", "")),
        flops_spread=_amount(facts.details.get("ceiling.flops.spread", "")),
        copy_measured=moment(facts.details.get("ceiling.copy.measured", "")),
        flops_measured=moment(facts.details.get("ceiling.flops.measured", "")),
        sm_mhz=min(_readings(facts, "clock.sm_mhz"), default=None),
        sm_max_mhz=max(_readings(facts, "clock.sm_max_mhz"), default=None),
        held_back_by=next(filter(None, (facts.details.get(f"{at}.clock.held_back_by") for at in _MOMENTS)), "")[:200],
        other_processes=max(round(max(_readings(facts, "processes"), default=1)) - 1, 0),
        ceilings_busy="1" in (facts.details.get(f"ceiling.{figure}.busy") for figure in ("copy", "flops")),
    )


def _readings(facts: DeviceFacts, name: str) -> list[float]:
    """What a device said of itself before and after, where it said a number."""
    read = (_amount(facts.details.get(f"{at}.{name}", "")) for at in _MOMENTS)
    return [value for value in read if value is not None]


def _amount(text: str) -> float | None:
    """A share, or a short time, as it was written down; None for anything else."""
    try:
        found = float(text[:32])
    except ValueError:
        return None
    return found if 0 <= found < 1e6 else None


def _kernel_facts(commands: recorded.Commands) -> Iterator[KernelFacts]:
    facts = (commands.kind, commands.kernel, commands.source, commands.specialisation, commands.digest)
    return (KernelFacts(*(text or "" for text in row)) for row in zip(*facts, strict=True))


def _commands(recording: Recording) -> Commands:
    found = recording.commands
    return Commands(
        kind=texts(found.kind),
        label=texts(found.label),
        kernel=texts(found.kernel),
        specialisation=texts(found.specialisation),
        detail=texts(details(_kernel_facts(found))),
        op_kind=texts(found.op_kind),
        threads=found.threads,
        group=found.group,
        groups=found.groups,
        bytes_read=_amounts(found.bytes_read),
        bytes_written=_amounts(found.bytes_written),
        declared=found.bytes_declared,
        flops=_amounts(found.flops),
        place=texts(found.place),
    )


def _terms(recording: Recording) -> tuple[Terms, Floats]:
    """The terms, and the values of each submission for the parameters that they name."""
    found, given = recording.terms, recording.values
    number = {name: at for at, name in enumerate(dict.fromkeys(found.param))}
    values = np.full((len(recording.submissions), len(number)), np.nan)
    wanted = [at for at, name in enumerate(given.param) if name in number]
    owners = position(recording.submissions.id, given.submission[wanted])
    values[owners, [number[given.param[at]] for at in wanted]] = given.value[wanted]
    terms = Terms(
        command=position(recording.commands.id, found.command),
        amount=found.amount,
        param=np.array([number[name] for name in found.param], np.int64),
        factor=found.factor.astype(np.float64),
        plus=found.plus.astype(np.float64),
        upto=np.where(found.upto == ABSENT, np.inf, found.upto.astype(np.float64)),
    )
    return terms, values


def _plans(recording: Recording) -> Plans:
    ids = recording.plans.id.tolist()
    commands = [position(recording.commands.id, recording.plan_commands(plan)) for plan in ids]
    edges = [recording.edges(plan) for plan in ids]
    return Plans(
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(recording.plans.nodes, dtype=np.int64)]),
        command=np.concatenate([np.zeros(0, np.int64), *commands]),
        edges=tuple((pairs[:, 0], pairs[:, 1]) for pairs in edges),
    )


def _submissions(recording: Recording, processes: Ints) -> Submissions:
    found = recording.submissions
    devices = np.array([device.id for device in recording.devices], np.int64)
    return Submissions(
        device=position(devices, found.device),
        plan=_rows(recording.plans.id, found.plan),
        ordinal=found.ordinal,
        label=texts(found.label),
        region=_rows(recording.regions.id, found.region),
        replay=found.replay,
        sampled=(found.level == LEVELS.index("dispatches")) & ~found.unsampled_probe,
        probe=found.unsampled_probe,
        encode_begin_ns=found.encode_begin_ns,
        encode_end_ns=found.encode_end_ns,
        commit_begin_ns=found.commit_begin_ns,
        commit_end_ns=found.commit_end_ns,
        start_ns=found.start_ns,
        end_ns=found.end_ns,
        status=_named(STATUSES, found.status),
        reason=texts(found.reason),
        error=texts(found.error),
        thread=found.thread,
        process=position(processes, found.process),
        worked_ns=found.worked_ns,
        lost_ns=found.lost_ns,
        late_ns=found.late_ns,
        joined=found.joined,
    )


def _samples(recording: Recording, plans: Plans, submissions: Submissions) -> Samples:
    found = recording.samples()
    owner = _rows(recording.submissions.id, found.submission)
    return Samples(
        submission=owner,
        node=plans.first[submissions.plan[owner]] + found.node,
        start_ns=found.start_ns,
        end_ns=found.end_ns,
        status=found.status,
    )


def _rows(ids: Ints, wanted: NDArray[Any]) -> Ints:
    """Rows of ids, -1 for those not given."""
    if ids.size and int(ids[-1]) - int(ids[0]) + 1 == ids.size:
        # Ids without a hole need no search, and there may be ten million to look up.
        rows: Ints = wanted.astype(np.int64) - int(ids[0])
    else:
        rows = position(ids, wanted)
    missing = wanted == ABSENT
    return np.where(missing, -1, rows) if missing.any() else rows


def _amounts(column: Ints) -> Floats:
    return np.where(column == ABSENT, np.nan, column.astype(np.float64))


def _named(names: Sequence[str], code: NDArray[Any]) -> Texts:
    return texts(names[number] for number in code.tolist())
