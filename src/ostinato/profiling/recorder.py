"""From traces to a recording: what a submission was and when it ran, in the words of the recording.

A `Recorder` listens on behalf of one profile. It names things (kernels, grids, bytes) once per plan and hands
everything else to the recording's writer, which never waits.
"""

from __future__ import annotations

import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..backends.conditions import Conditions
from ..backends.protocol import Level
from ..base.source_lines import Place
from ..errors import OstinatoError
from ..ir.command_list import CommandList
from ..ir.commands import Barrier, BufferBinding, Command, Copy, Dispatch
from ..ir.costs import Amount
from ..runtime.tracing import HostSpan, Region, Trace, thread_name
from . import ceilings
from .recording import AMOUNTS, BOUNDED, MEASURED, UNAVAILABLE, PlanNode, PlanTerm, Writer

# Waits name submissions that have just been taken down, never old ones.
_RECENT = 4096
_DESCRIBED = 65_536


class Recorder:
    """Listens, and writes down."""

    def __init__(self, writer: Writer, level: Level, with_source: bool = False) -> None:
        self._writer = writer
        self._level = level
        self._with_source = with_source
        self._devices: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._conditions: weakref.WeakKeyDictionary[Any, Conditions] = weakref.WeakKeyDictionary()
        self._unmeasured: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._plans: weakref.WeakKeyDictionary[CommandList, int] = weakref.WeakKeyDictionary()
        self.host_ns = 0
        """Time of the program's threads that writing down took."""
        # Work reports after the region it was committed in has ended, so those that ended lately are kept too.
        self._open_regions: dict[int, int] = {}
        self._ended_regions: OrderedDict[int, int] = OrderedDict()
        self._expected: weakref.WeakSet[Any] = weakref.WeakSet()
        # By the command's identity; the command is kept too, so that no other can have it.
        self._described: OrderedDict[int, tuple[Command, PlanNode]] = OrderedDict()
        self._recent: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._threads: set[int] = set()

    @property
    def level(self) -> Level:
        """What it wants to know."""
        return self._level

    @property
    def probes(self) -> bool:
        """Yes, where dispatches are timed."""
        return self._level is Level.DISPATCHES

    def expects(self, device: Any) -> None:
        """Remember who may still report."""
        self._expected.add(device)

    def expected(self) -> list[Any]:
        """The queues that something was committed to."""
        return list(self._expected)

    def device(self, queue: Any) -> int:
        """The number of a device in the recording."""
        number = self._devices.get(queue)
        if number is None:
            capabilities = queue.backend.capabilities
            known = ceilings.known(queue)
            conditions = self._conditions[queue] = _conditions(queue)
            number = self._devices[queue] = self._writer.device(
                capabilities.name,
                capabilities.backend,
                description=capabilities.description,
                sampling=capabilities.sampling.name.lower(),
                clock_uncertainty_ns=capabilities.clock_uncertainty_ns,
                timer_step_ns=capabilities.timer_step_ns,
                edges_ns=capabilities.edges_ns,
                workers=capabilities.workers,
                first_come=capabilities.first_come,
                details=_details(queue),
                **({} if known is None else known.columns()),
                **_worst([conditions]),
            )
            if known is None or known.busy:
                self._unmeasured[queue] = number
        return number

    def write_conditions(self) -> None:
        """Write down what the devices say of themselves now, together with what they said at the beginning."""
        for queue, number in list(self._devices.items()):
            self._writer.device_facts(number, **_worst([self._conditions[queue], _conditions(queue)]))

    def take_unmeasured(self) -> list[tuple[Any, int]]:
        """The queues without ceilings to rely on that are still there, with their numbers; each once."""
        taken = list(self._unmeasured.items())
        self._unmeasured.clear()
        return taken

    def submission(self, trace: Trace) -> None:
        """Write down a submission that is done."""
        begin_ns = time.perf_counter_ns()
        self._write(trace)
        self.host_ns += time.perf_counter_ns() - begin_ns

    def _write(self, trace: Trace) -> None:
        writer = self._writer
        device = self.device(trace.device)
        commands = trace.commands
        plan = self._plans.get(commands)
        if plan is None:
            plan = self._plans[commands] = writer.plan_to_come(
                device, len(commands), lambda: (self._nodes(commands), commands.order.edges)
            )
        ran = trace.start_ns is not None and trace.end_ns is not None
        sampled = trace.samples is not None and self._level is Level.DISPATCHES
        number = writer.submission(
            device=device,
            plan=plan,
            ordinal=trace.ordinal,
            label=trace.label,
            region=self._region(trace.region),
            replay=trace.replay,
            probe=trace.probe and self.probes,
            level="dispatches" if sampled else "command_buffers",
            encode_begin_ns=trace.encode_begin_ns,
            encode_end_ns=trace.commit_begin_ns if trace.encode_begin_ns else None,
            commit_begin_ns=trace.commit_begin_ns,
            commit_end_ns=trace.commit_end_ns,
            start_ns=trace.start_ns,
            end_ns=trace.end_ns,
            status="measured" if ran else "unavailable",
            executed=ran or bool(trace.reason),
            reason=trace.reason or (None if ran else "it did not run"),
            error=trace.error,
            thread=self._thread(trace.thread),
            values=trace.values,
            **({} if trace.worker_time is None else trace.worker_time._asdict()),
        )
        self._recent[id(trace.device), trace.ordinal] = number
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if sampled and trace.samples is not None:
            starts, ends = trace.samples[:, 0], trace.samples[:, 1]
            writer.samples(number, 0, starts, ends, _statuses(starts, ends, trace))

    def _nodes(self, commands: CommandList) -> list[PlanNode]:
        """The nodes of a list, as a recording describes them. Lists that change a little each time share most.

        Called by the thread that writes, so that nobody waits for it who submits.
        """
        nodes = []
        for node in commands.nodes:
            command = node.command
            if node.origin:
                nodes.append(_node(command, node.place, self._with_source, ",".join(map(str, node.origin))))
                continue
            known = self._described.get(id(command))
            if known is None:
                place = command.place if isinstance(command, Dispatch) else None
                known = self._described[id(command)] = (command, _node(command, place, self._with_source))
                if len(self._described) > _DESCRIBED:
                    self._described.popitem(last=False)
            nodes.append(known[1])
        return nodes

    def host_span(self, span: HostSpan) -> None:
        """Write down what the program did."""
        submission = None
        if span.submission is not None:
            queue, ordinal = span.submission
            submission = self._recent.get((id(queue), ordinal))
        self._writer.host_span(
            span.kind,
            span.begin_ns,
            span.end_ns,
            name=span.name or None,
            thread=self._thread(span.thread),
            submission=submission,
            region=self._region(span.region),
        )

    def region_begins(self, region: Region) -> None:
        """Write down that a region was entered."""
        parent = self._region(region.parent)
        self._open_regions[region.number] = self._writer.begin_region(
            region.name, region.begin_ns, thread=self._thread(region.thread), parent=parent
        )

    def region_ends(self, region: Region, end_ns: int) -> None:
        """Write down that it was left."""
        number = self._open_regions.pop(region.number, 0)
        self._writer.end_region(number, end_ns)
        self._ended_regions[region.number] = number
        if len(self._ended_regions) > _RECENT:
            self._ended_regions.popitem(last=False)

    def _thread(self, number: int) -> int:
        """The number of a thread, whose name is written down the first time."""
        if number not in self._threads:
            self._threads.add(number)
            if name := thread_name(number):
                self._writer.name_thread(number, name)
        return number

    def _region(self, number: int | None) -> int | None:
        """The id in the recording of a region that is open or ended lately; None if there is none."""
        if number is None:
            return None
        return self._open_regions.get(number) or self._ended_regions.get(number)


def _details(queue: Any) -> dict[str, str]:
    """What is known of a device beside its columns: what its backend says, and the tuned choices it was opened with."""
    details = dict(queue.backend.capabilities.details)
    if queue.tuned is not None and queue.tuned.description:
        details["tuned"] = queue.tuned.description
    return details


def _conditions(queue: Any) -> Conditions:
    """What a device says of itself now; one that is lost or closed says nothing."""
    with suppress(OstinatoError):
        conditions: Conditions = queue.backend.conditions()
        return conditions
    return Conditions()


def _worst(readings: Sequence[Conditions]) -> dict[str, Any]:
    """What was seen at any of several moments, as columns of the table of devices."""

    def told(name: str) -> list[float]:
        values = (getattr(reading, name) for reading in readings)
        return [value for value in values if value is not None]

    return {
        "sm_mhz": min(told("sm_mhz"), default=None),
        "sm_max_mhz": max(told("sm_max_mhz"), default=None),
        "held_back_by": next((reading.held_back_by for reading in readings if reading.held_back_by), "")[:200],
        "other_processes": max(max(told("processes"), default=1) - 1, 0),
    }


def _node(command: Command, place: Place | None, with_source: bool, origin: str | None = None) -> PlanNode:
    where = None if place is None else str(place)
    if isinstance(command, Dispatch):
        return _dispatch_node(command, where, with_source, origin)
    if isinstance(command, Barrier):
        return PlanNode("barrier", "barrier", place=where, origin=origin)
    read = command.source.nbytes if isinstance(command, Copy) else 0
    kind = "copy" if isinstance(command, Copy) else "fill"
    return PlanNode(
        kind,
        kind,
        command.label,
        bytes_read=read,
        bytes_written=command.target.nbytes,
        bytes_declared=True,
        place=where,
        origin=origin,
    )


def _dispatch_node(command: Dispatch, place: str | None, with_source: bool, origin: str | None) -> PlanNode:
    read, written = command.bytes_read, command.bytes_written
    declared = read is not None or written is not None
    if not declared:
        read = written = 0
        for binding in command.bindings:
            if isinstance(binding, BufferBinding):
                if binding.writes:
                    written += binding.nbytes
                else:
                    read += binding.nbytes
    kernel = command.kernel
    compiled_from = kernel.origin
    definition = None if compiled_from is None else compiled_from.definition(kernel.name)
    return PlanNode(
        kind="dispatch",
        kernel=kernel.name,
        label=command.label,
        specialisation="" if compiled_from is None else compiled_from.specialisation,
        op_kind=command.op_kind.value,
        threads=command.threads,
        group=command.group_size,
        groups=command.groups[0] * command.groups[1] * command.groups[2],
        bytes_read=_base(read) or 0,
        bytes_written=_base(written) or 0,
        bytes_declared=declared,
        flops=_base(command.flops),
        place=place,
        origin=origin,
        source=None if compiled_from is None else compiled_from.file or None,
        digest=None if compiled_from is None else compiled_from.digest,
        file=None if definition is None else definition.file or None,
        line=None if definition is None else definition.line,
        source_digest=None if definition is None else definition.digest,
        execution=None if kernel.execution is None else str(kernel.execution),
        text=definition.text if with_source and definition is not None else None,
        constants=() if compiled_from is None else compiled_from.values,
        terms=tuple(
            PlanTerm(name, term.param, term.factor, term.plus, term.upto)
            for name, amount in zip(AMOUNTS, (read, written, command.flops), strict=True)
            if isinstance(amount, Amount)
            for term in amount.terms
        ),
    )


def _base(amount: int | Amount | None) -> int | None:
    """The part that no parameter changes."""
    return amount.base if isinstance(amount, Amount) else amount


def _statuses(starts: np.ndarray, ends: np.ndarray, trace: Trace) -> np.ndarray | None:
    """Zero is no time: it was not run, or not to its end. What is shorter than the clock can tell, and
    what the device says is so, is only bounded.

    None when all are measured.
    """
    step_ns = int(max(trace.device.backend.capabilities.timer_step_ns, 0))
    reported = trace.bounded
    if not len(starts) or (reported is None and starts.min() and (ends - starts).view(np.int64).min() >= step_ns):
        return None
    statuses = np.full(len(starts), MEASURED, np.int8)
    statuses[ends < starts + np.uint64(step_ns)] = BOUNDED
    if reported is not None:
        statuses[reported] = BOUNDED
    statuses[(starts == 0) | (ends == 0)] = UNAVAILABLE
    return statuses
