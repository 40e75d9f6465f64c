"""A recording as the columns that the analysis reads: samples in memory, nodes counted over all plans."""

from __future__ import annotations

from dataclasses import fields, replace

from ..recording import schema
from ..recording.reader import Recording
from .columns import Columns, Commands, Device, texts
from .kernels import KernelFacts, details
from .origin import origins_of


def columns_of(recording: Recording) -> Columns:
    """Reads a whole recording. Raises `RecordingError` for a damaged one, or one too large to be held in memory.

    A recording in memory is of this process and still going on; only a file can have been cut off.
    """
    plans, samples, submissions = recording.lists(), recording.samples(), recording.submissions
    return Columns(
        devices=tuple(_device(device, recording) for device in recording.devices),
        commands=_commands(recording),
        plans=plans,
        submissions=submissions,
        samples=replace(samples, node=plans.first[submissions.plan[samples.submission]] + samples.node),
        regions=recording.regions,
        host_spans=recording.host_spans,
        drops=recording.drops,
        meta=recording.meta,
        began_ns=recording.processes[0].start_realtime_ns,
        pids=tuple(process.pid for process in recording.processes),
        origins=origins_of(recording.processes),
        thread_names=recording.threads,
        terms=recording.terms,
        values=recording.values,
        sources=recording.sources,
        missing_submissions=int(submissions.id[-1]) - len(submissions) if len(submissions) else 0,
        closed=recording.path is None or all(process.closed for process in recording.processes),
    )


def _device(device: schema.Device, recording: Recording) -> Device:
    facts = {each.name: getattr(device, each.name) for each in fields(device)}
    platform = recording.processes[device.process].meta.get("platform", "")
    driver = device.details.get("driver") or device.details.get("compiler") or platform
    return Device(**facts, driver=driver, tuned=device.details.get("tuned", ""))


def _commands(recording: Recording) -> Commands:
    commands, constants = recording.commands, recording.constants
    given: dict[int, list[tuple[str, str]]] = {}
    for command, name, value in zip(constants.command.tolist(), constants.name, constants.value, strict=True):
        given.setdefault(command, []).append((name, value))
    facts = zip(commands.kind, commands.kernel, commands.source, commands.digest, strict=True)
    kernels = [KernelFacts(*texts, tuple(given.get(row, ()))) for row, texts in enumerate(facts)]
    return Commands(**commands.by_name(), detail=texts(details(kernels)))
