"""Probes: small work that tests what a device supports. Each returns what is wrong, or "" when nothing is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DeviceUnavailable
from ...ir.command_list import CommandList
from ...ir.commands import BufferBinding, Fill, Ordering
from ..protocol import Memory, Run
from .runs import MetalRun
from .sampling import Boundary, Sampler

if TYPE_CHECKING:
    from .driver import MetalBackend

_PATIENCE_NS = 10_000_000_000
_SLACK_NS = 1_000_000


def times(backend: MetalBackend) -> str:
    """Probe the times of a command buffer; raises if the device does not work at all."""
    memory, fill = _fill(backend)
    started: list[Run] = []
    before_ns = time.monotonic_ns()
    backend.submit(fill, started)
    reason, after_ns = _ended(started[0])
    if not reason and not _is_filled(backend, memory):
        reason = "a probe, a fill, did not run"
    if reason:
        raise DeviceUnavailable(f"metal: {reason}")
    measured = started[0].times()
    if measured is None:
        return "its command buffers have no times"
    if measured[0] < before_ns - _SLACK_NS or measured[1] > after_ns + _SLACK_NS:
        return "times of its command buffers are not those of the host's clock"
    return ""


def boundary(backend: MetalBackend, sampler: Sampler, uncertainty_ns: float) -> None:
    """Set the sampler to the first boundary where a sample can be taken; if there is none, set its `reason`."""
    if backend.no_times:
        sampler.reason = backend.no_times
        return
    reasons = []
    for candidate in sampler.candidates():
        sampler.boundary = candidate
        reason = _samples(backend, sampler, uncertainty_ns)
        if not reason:
            return
        reasons.append(f"{candidate.value} {reason}")
    sampler.boundary = Boundary.NONE
    if reasons:
        sampler.reason = "; ".join(reasons)


def _samples(backend: MetalBackend, sampler: Sampler, uncertainty_ns: float) -> str:
    """Probe counter samples around a fill."""
    memory, fill = _fill(backend)
    started: list[Run] = []
    before_ns = time.monotonic_ns()
    try:
        backend.submit(fill, started, sample=True)
    except Exception as error:
        return _not_encoded(error)
    reason, after_ns = _ended(started[0])
    if reason:
        return reason
    samples = started[0].samples()
    if samples is None or not samples.all() or not _is_filled(backend, memory):
        refused = sampler.buffers.refused
        return f"no buffer for samples could be made: {refused}" if refused else "the probe's samples were zero"
    slack_ns = _SLACK_NS + 10 * uncertainty_ns
    if samples[0, 0] < before_ns - slack_ns or samples[0, 1] > after_ns + slack_ns:
        return "the probe's samples were not at the time it ran"
    return ""


def indirect(backend: MetalBackend) -> str:
    """Probe an indirect command buffer with a fill."""
    memory, fill = _fill(backend)
    started: list[Run] = []
    try:
        graph = backend.instantiate(fill)
        backend.replay(graph, b"", False, started)
    except Exception as error:
        return _not_encoded(error)
    reason, _ = _ended(started[0])
    if not reason and (graph.indirect is None or not _is_filled(backend, memory)):
        reason = "a probe did not run"
    return reason


def _not_encoded(error: Exception) -> str:
    """The reason text for any error of Metal or PyObjC; a failed assertion is raised."""
    if isinstance(error, AssertionError):
        raise error
    return f"a probe could not be encoded: {error}"


def _fill(backend: MetalBackend) -> tuple[Memory, CommandList]:
    memory = backend.allocate(64)
    backend.clear(memory, 0, memory.nbytes)
    fill = Fill(BufferBinding(0, memory.number, memory.address, 0, memory.nbytes, True), b"\1")
    return memory, CommandList.of([fill], Ordering.SERIAL, backend.lower)


def _is_filled(backend: MetalBackend, memory: Memory) -> bool:
    contents = np.empty(memory.nbytes, np.uint8)
    backend.read(memory, 0, contents)
    return bool((contents == 1).all())


def _ended(run: Run) -> tuple[str, int]:
    """The error of a probe, "" if there was none, and the time at which it was known to be done."""
    assert isinstance(run, MetalRun)
    if not run.wait(_PATIENCE_NS):
        return "a probe did not end", 0
    after_ns = time.monotonic_ns()
    return "" if run.error is None else f"a probe failed: {run.error}", after_ns
