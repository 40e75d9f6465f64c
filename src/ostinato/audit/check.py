"""Running a program and auditing what it submits: the work behind `ostinato check`.

The program runs in this process, as its own main module. Each list that an encoder is about to commit, and each graph
that is about to be replayed, is audited once: lists that differ only in the values passed to kernels are the same. The
queue is idle meanwhile, so the contents of memory are those that the commands will see. What the audit itself submits
is on devices of its own and is not counted.

A list that writes outside of its buffers would write into this process, and nothing could be relied on from then on; so
the program is stopped before it runs such a list.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .. import encoder, program, replay
from ..commands import Access, Dispatch
from ..errors import OstinatoError
from ..graph import Graph, bound
from . import audit
from .findings import Coverage, Finding, InferredBarrier

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How closely to look."""

    run: bool = True
    repeats: int = 5
    max_lists: int = 64


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of a program."""

    findings: tuple[Finding, ...]
    inferred: tuple[InferredBarrier, ...]
    coverage: Coverage
    submitted: int
    """Lists that were committed or replayed."""
    distinct: int
    """Lists that were looked at."""
    status: int
    """The exit status that the program itself ended with."""
    stopped: str = ""
    """Why it was not let run to its end."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.is_error for finding in self.findings)


class Watcher:
    """Audits what is submitted while it is installed."""

    def __init__(self, options: Options, busy: Callable[[], AbstractContextManager[Progress]]) -> None:
        self.options = options
        self.findings: list[Finding] = []
        self.inferred: list[InferredBarrier] = []
        self.coverages: list[Coverage] = []
        self.submitted = 0
        self.crash: BaseException | None = None
        """What went wrong in the audit itself."""
        self.stopped = ""
        self._busy = busy
        self._seen: set[Hashable] = set()
        self._left_out: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._at_work = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch encoders and replays for the length of a block."""
        encoder.watchers.append(self.encoded)
        replay.watchers.append(self.replayed)
        try:
            yield
        finally:
            encoder.watchers.remove(self.encoded)
            replay.watchers.remove(self.replayed)

    def encoded(self, graph: Graph) -> None:
        """An encoder is about to submit this."""
        self.replayed(graph, {})

    def replayed(self, graph: Graph, params: Mapping[str, Any]) -> None:
        """This is about to be replayed with these values."""
        with self._lock:  # one audit at a time, whichever thread submits
            if self.stopped:
                raise program.Stop
            if self._at_work or self.crash is not None or not len(graph):
                return
            self._at_work = True
            try:
                self._look(graph, params)
            except Exception as error:
                # The program may catch what it does not expect; this must come out all the same.
                self.crash = error
            finally:
                self._at_work = False
            if self.stopped:
                raise program.Stop

    def _look(self, graph: Graph, params: Mapping[str, Any]) -> None:
        self.submitted += 1
        key = identity(graph)
        if key in self._seen:
            return
        if len(self._seen) >= self.options.max_lists:
            self._left_out[f"beyond the first {self.options.max_lists} lists (--max-lists)"] += 1
            return
        self._seen.add(key)
        if not _idle(graph):
            return  # the device is lost; the program is about to be told
        try:
            with self._busy() as progress:
                run, repeats = self.options.run, self.options.repeats
                result = audit(graph, run=run, params=params, repeats=repeats, progress=progress)
        except OstinatoError as error:
            self._left_out[f"running {graph.label or 'a list'} of {len(graph)} commands: {error}"] += 1
            result = audit(graph)
        self.findings += result.findings
        self.inferred += result.inferred
        self.coverages.append(result.coverage)
        for finding in result.errors:
            if finding.kind == "out of bounds" and finding.access != "read":
                self.stopped = f"it was about to run {finding.where[0]}, which writes outside of its buffers"

    def result(self, status: int) -> Checked:
        """All that was found."""
        unchecked = Counter(reason for coverage in self.coverages for reason in coverage.unchecked)
        if not self.options.run:
            unchecked["what kernels really access, and races (--structure-only)"] = 1
        unchecked.update(self._left_out)
        total = Coverage(
            nodes=sum(one.nodes for one in self.coverages),
            dispatches=sum(one.dispatches for one in self.coverages),
            alone=sum(one.alone for one in self.coverages),
            guarded=sum(one.guarded for one in self.coverages),
            orders=sum(one.orders for one in self.coverages),
            unchecked=tuple(
                f"{reason} ({count} times)" if count > 1 else reason for reason, count in unchecked.items()
            ),
        )
        findings = sorted(self.findings, key=lambda finding: not finding.is_error)
        lists = (self.submitted, len(self.coverages))
        return Checked(tuple(findings), tuple(self.inferred), total, *lists, status, self.stopped)


def identity(graph: Graph) -> Hashable:
    """What makes a list the same as another: all but the values passed to kernels, and where memory happens to be."""
    numbers: dict[int | None, int] = {}

    def ordinal(memory: int | None) -> int:
        return numbers.setdefault(memory, len(numbers))

    def declared(access: Access) -> Hashable:
        memory = graph.memory_at(access.begin, access.end)
        start = access.begin - memory.address if memory is not None else access.begin
        return ordinal(None if memory is None else memory.number), start, access.end - access.begin, access.write

    parts: list[Hashable] = [graph.ordering, graph.splits]
    for node in graph.nodes:
        command = node.command
        spans = tuple((one.index, ordinal(one.allocation), one.offset, one.nbytes) for one in bound(command))
        if isinstance(command, Dispatch):
            origin = command.kernel.origin
            source = origin and (origin.module.text_key, repr(sorted(origin.constants.items(), key=repr)))
            accesses = None if command.accesses is None else tuple(declared(one) for one in command.accesses)
            geometry = (command.threads, command.group_size, command.shared)
            parts.append((node.place, command.kernel.name, source, geometry, spans, accesses))
        else:
            parts.append((node.place, node.kind, spans))
    return tuple(parts)


def _idle(graph: Graph) -> bool:
    """Wait for what was submitted before; False when the device cannot be used any more."""
    queue = graph.queue
    while queue.usable and queue.in_flight_count:
        with suppress(IndexError):  # another thread may have seen the end of it
            queue._in_flight[-1]._wait_until(None)
    return queue.usable
