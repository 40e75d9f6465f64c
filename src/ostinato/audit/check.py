"""Running a program and auditing what it submits: the work behind `ostinato check`.

The program runs in this process, as its own main module. Each list that an encoder is about to commit, and each graph
that is about to be replayed, is audited once. Lists that differ only in the values passed to kernels count as the same.
When such a list comes again with new values for a dispatch, only that dispatch is run again, in the checked build. The
queue is idle meanwhile, so the audit sees the memory that the commands will see. The audit's own submissions run on
private devices and are not counted.

A list that writes out of bounds could corrupt this process. So the program is stopped before it runs a list with an
out-of-bounds write, or with a command that did not end within its time limit. Not checked, and no reason to stop:

* lists beyond `max_lists`, values beyond `max_values` or beyond their time limit, and dispatches that are too slow to
  run in the checked build: they are counted, in `Coverage.unchecked`;
* a list that comes again with the same values but other contents of its memory.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from .. import program
from ..errors import OstinatoError
from ..graph import hooks
from ..graph.graph import Graph
from ..ir.commands import Access, Dispatch, InlineBinding, ParamBinding, bound
from . import audit
from .checked import NOTHING_MORE, Requested
from .dynamic import TOO_LONG, Progress, run_again
from .findings import Coverage, Finding, Ignored, InferredBarrier
from .known import Entry, apart, by_table
from .unwritten import Fresh, WrittenRecord

Values = Mapping[int, tuple[bytes, ...]]
"""The inline values and parameters that each node passes to its kernel."""


@dataclass(frozen=True, slots=True)
class Options:
    """Which checks to make, and their limits."""

    run: bool = True
    repeats: int = 5
    max_lists: int = 64
    max_values: int = 256
    """How often one list is checked again because of new values."""
    values_s: float = 10.0
    """Time limit for these repeated checks of one list."""
    limit_s: float = 30.0
    """Time limit for a single command."""
    limits: str | None = None
    """The GPU family whose limits apply too."""
    ignore: tuple[Entry, ...] = ()
    """Known findings."""
    requested: Requested = NOTHING_MORE
    """What is looked for on request only."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking a program."""

    findings: tuple[Finding, ...]
    inferred: tuple[InferredBarrier, ...]
    coverage: Coverage
    submitted: int
    """Lists that were committed or replayed."""
    distinct: int
    """Different lists that were checked."""
    with_other_values: int
    """How often one of these was checked again, with other values passed to its kernels."""
    status: int
    """The program's own exit status."""
    stopped: str = ""
    """Why the program was stopped, if it was."""
    ignored: tuple[Ignored, ...] = ()
    """Findings that comments in sources, or the table of known findings, say to ignore."""
    unmatched: tuple[str, ...] = ()
    """Entries of the table that match no finding."""

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not any(finding.is_error for finding in self.findings)


@dataclass(slots=True)
class _Known:
    """What was checked of one list."""

    values: set[tuple[int, tuple[bytes, ...]]]
    """Values that were checked, with their node."""
    again: int = 0
    spent_s: float = 0.0


class Watcher:
    """Audits what is submitted while it is installed."""

    def __init__(self, options: Options, busy: Callable[[], AbstractContextManager[Progress]]) -> None:
        self.options = options
        self.findings: list[Finding] = []
        self.ignored: list[Ignored] = []
        self.inferred: list[InferredBarrier] = []
        self.coverages: list[Coverage] = []
        self.submitted = 0
        self.with_other_values = 0
        self.crash: BaseException | None = None
        """An unexpected error in the audit itself."""
        self.stopped = ""
        self._busy = busy
        self._known: dict[Hashable, _Known] = {}
        self._written = WrittenRecord()
        self._left_out: Counter[str] = Counter()
        self._values_left_out = self._lost = 0
        self._lock = threading.RLock()
        self._at_work = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Watch encoders and replays for the length of a block."""
        hooks.watchers.append(self.submitting)
        try:
            yield
        finally:
            hooks.watchers.remove(self.submitting)

    def submitting(self, graph: Graph, params: Mapping[str, Any]) -> None:
        """Called before a list is committed or replayed, with the values of its parameters."""
        with self._lock:  # one audit at a time, whichever thread submits
            if self.stopped:
                raise program.Stop
            if self._at_work or self.crash is not None or not len(graph):
                return
            self._at_work = True
            try:
                self._look(graph, params)
            except Exception as error:
                # The program might catch it; it is kept, so that it is reported in any case.
                self.crash = error
            finally:
                self._at_work = False
            if self.stopped:
                raise program.Stop

    def _look(self, graph: Graph, params: Mapping[str, Any]) -> None:
        self.submitted += 1
        options = self.options
        fresh = self._written.before(graph)
        key = identity(graph)
        known = self._known.get(key)
        if known is not None:
            if options.run:
                self._look_again(graph, params, known, fresh)
            return
        if len(self._known) >= options.max_lists:
            self._left_out[f"beyond the first {options.max_lists} lists (--max-lists)"] += 1
            return
        if not _idle(graph):
            return  # the device is lost; the commit is about to raise that
        self._known[key] = _Known(set(values_of(graph, params).items()))
        try:
            with self._busy() as progress:
                result = audit(
                    graph,
                    run=options.run,
                    params=params,
                    repeats=options.repeats,
                    limit_s=options.limit_s,
                    limits=options.limits,
                    progress=progress,
                    fresh=fresh,
                    **asdict(options.requested),
                )
        except OstinatoError as error:
            self._could_not_run(graph, error)
            result = audit(graph, limits=options.limits)
        else:
            if options.run:
                self._written.after(graph, fresh)
        self.inferred += result.inferred
        self.coverages.append(result.coverage)
        self.ignored += result.ignored
        self._judge(result.findings)

    def _look_again(self, graph: Graph, params: Mapping[str, Any], known: _Known, fresh: Fresh) -> None:
        """Check a known list again, if it comes with new values."""
        options = self.options
        new = {
            index: values for index, values in values_of(graph, params).items() if (index, values) not in known.values
        }
        if not new:
            return
        if known.again >= options.max_values or known.spent_s >= options.values_s:
            self._values_left_out += 1
            return
        if not _idle(graph):
            return
        started_s = time.monotonic()
        left_s = options.values_s - known.spent_s
        try:
            with self._busy() as progress:
                result = run_again(graph, params, new, options.limit_s, left_s, progress, options.requested, fresh)
        except OstinatoError as error:
            self._could_not_run(graph, error)
        else:
            self._written.after(graph, fresh)
            self._left_out.update(result.unchecked)
            self._lost += result.lost
            kept, ignored = apart(graph, result.findings)
            self.ignored += ignored
            self._judge(kept)
            self.with_other_values += bool(result.nodes)
            known.values.update((index, new[index]) for index in result.nodes)
        known.again += 1
        known.spent_s += time.monotonic() - started_s

    def _could_not_run(self, graph: Graph, error: OstinatoError) -> None:
        self._left_out[f"running {graph.label or 'a list'} of {len(graph)} commands: {error}"] += 1

    def _judge(self, findings: Iterable[Finding]) -> None:
        """Add findings, and decide whether the program may continue."""
        kept, ignored = by_table(findings, self.options.ignore)
        self.ignored += ignored
        for finding in kept:
            self.findings.append(finding)
            if finding.kind == "out of bounds" and finding.access != "read":
                self.stopped = f"it was about to run {finding.where[0]}, which writes out of bounds"
            elif finding.kind == TOO_LONG and not self.stopped:
                limit_s = self.options.limit_s
                self.stopped = f"it was about to run {finding.where[0]}, which did not end within {limit_s:g} s"

    def result(self, status: int) -> Checked:
        """The combined result of all audits."""
        unchecked = Counter(reason for coverage in self.coverages for reason in coverage.unchecked)
        if not self.options.run:
            unchecked["actual accesses of kernels, and races (--structure-only)"] = 1
        unchecked.update(self._left_out)
        if self._values_left_out:
            lists = f"{self._values_left_out} list{'s' if self._values_left_out > 1 else ''}"
            most = f"at most {self.options.max_values} of each list, for {self.options.values_s:g} s"
            unchecked[f"{lists} with other values ({most}: --max-values)"] = 1
        total = Coverage(
            nodes=sum(coverage.nodes for coverage in self.coverages),
            dispatches=sum(coverage.dispatches for coverage in self.coverages),
            alone=sum(coverage.alone for coverage in self.coverages),
            checked=sum(coverage.checked for coverage in self.coverages),
            orders=sum(coverage.orders for coverage in self.coverages),
            unchecked=tuple(
                f"{reason} ({count} times)" if count > 1 else reason for reason, count in unchecked.items()
            ),
            lost=self._lost + sum(coverage.lost for coverage in self.coverages),
        )
        findings = sorted(self.findings, key=lambda finding: not finding.is_error)
        counts = (self.submitted, len(self.coverages), self.with_other_values)
        matched = {name for each in self.ignored for name in each.by}
        unmatched = tuple(str(entry) for entry in self.options.ignore if entry.name not in matched)
        ignored = tuple(self.ignored)
        inferred = tuple(self.inferred)
        return Checked(tuple(findings), inferred, total, *counts, status, self.stopped, ignored, unmatched)


def identity(graph: Graph) -> Hashable:
    """The identity of a list: everything but the values passed to kernels and the addresses of memory."""
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
        spans = tuple(
            (binding.index, ordinal(binding.allocation), binding.offset, binding.nbytes) for binding in bound(command)
        )
        if isinstance(command, Dispatch):
            origin = command.kernel.origin
            source = origin and (origin.module.text_key, repr(sorted(origin.constants.items(), key=repr)))
            accesses = None if command.accesses is None else tuple(declared(access) for access in command.accesses)
            geometry = (command.threads, command.group_size, command.shared)
            parts.append((node.place, command.kernel.name, source, geometry, spans, accesses))
        else:
            parts.append((node.place, node.kind, spans))
    return tuple(parts)


def values_of(graph: Graph, params: Mapping[str, Any]) -> Values:
    """The inline values and parameters that the graph passes to its kernels, by node."""
    encoded = {name: param.encode(params[name]) for name, param in graph.params.items()}

    def passed(command: Dispatch) -> tuple[bytes, ...]:
        return tuple(
            binding.data if isinstance(binding, InlineBinding) else encoded[binding.name]
            for binding in command.bindings
            if isinstance(binding, InlineBinding | ParamBinding)
        )

    dispatches = ((index, node.command) for index, node in enumerate(graph.nodes) if isinstance(node.command, Dispatch))
    return {index: values for index, command in dispatches if (values := passed(command))}


def _idle(graph: Graph) -> bool:
    """Wait for earlier submissions; False if the device is lost."""
    queue = graph.queue
    while queue.usable and queue.in_flight_count:
        with suppress(IndexError):  # another thread may have waited for it
            queue._in_flight[-1]._wait_until(None)
    return queue.usable
