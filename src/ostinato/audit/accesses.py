"""Declared against actual access: each dispatch runs alone, and what it changed is compared with what it declares.

Declared memory keeps its contents. Undeclared memory, bound or near bound memory, is filled with one pattern and then
with another. Bytes that differ from the pattern afterwards were written. If the declared output depends on the pattern,
the dispatch read there. Memory far from anything bound is compared once, after the last command.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..base.ranges import Range, common, without
from ..ir.commands import BufferBinding, Dispatch, bound
from ..ir.hazards import accesses_of
from .differences import changes, joined, merged
from .findings import ERROR, NOTE, Finding, argument_name, element_at, finding_about
from .replica import Replica
from .runner import Runner

PATTERNS = (0x00, 0x3F)
"""Two bytes that differ. As floating-point numbers: zero, and a value of ordinary size in any format."""

_NEIGHBOURHOOD_BYTES = 1 << 20
_SHOWN_CHANGES = 3
_SHOWN_BYTES = 8


@dataclass(slots=True)
class Step:
    """The result of running one command alone."""

    findings: list[Finding] = field(default_factory=list)
    fault: str = ""
    """The signal that it ended with, if it crashed."""
    took_ns: int = 0
    compared: bool = False
    """Whether its accesses were compared with its declaration."""
    writes_known: bool = False
    """Whether the replica knows which bytes it wrote that nobody had written before."""
    changed: list[Range] = field(default_factory=list)
    """Where the replica may hold new contents, to be accepted once the old contents are no longer needed."""


def run_alone(replica: Replica, index: int, runner: Runner, limit_s: float) -> Step:
    """Run a command on what the commands before it left, and compare its accesses with its declaration.

    Raises `TookTooLong` if it does not end, by itself or because undeclared memory was overwritten. The replica is then
    still in use.
    """
    step = Step()
    command = replica.commands[index]
    declared = accesses_of(command)
    spans = [(binding.address, binding.address + binding.nbytes) for binding in bound(command)]
    spans += [(access.begin, access.end) for access in declared or ()]
    windows = merged(replica.around(span, _NEIGHBOURHOOD_BYTES) for span in merged(spans))
    step.findings += _strays(replica, index, windows)
    if not _run(replica, index, runner, limit_s, step):
        return step
    step.changed = replica.blocks() if declared is None else windows
    if isinstance(command, Dispatch) and declared is not None:
        _Comparison(replica, index, runner, limit_s, step, windows).judge()
        step.compared = True
    return step


def run_plainly(replica: Replica, index: int, runner: Runner, limit_s: float) -> Step:
    """Run a command on what the commands before it left, without comparing its accesses."""
    step = Step()
    command = replica.commands[index]
    declared = accesses_of(command)
    if _run(replica, index, runner, limit_s, step):
        spans = [(access.begin, access.end) for access in declared or ()]
        spans += [(binding.address, binding.address + binding.nbytes) for binding in bound(command)]
        step.changed = replica.blocks() if declared is None else merged(spans)
    return step


def strays_after(replica: Replica) -> list[Finding]:
    """Changes far from anything bound, after all commands have run."""
    return _strays(replica, len(replica.commands), replica.blocks())


def _run(replica: Replica, index: int, runner: Runner, limit_s: float, step: Step) -> bool:
    """Run a command from the shadow's state; False if it crashes."""
    begin_ns = time.monotonic_ns()
    status = replica.run_in_turn(runner, index, limit_s)
    if status.failed:
        replica.restore(replica.blocks())
        step.fault = f"signal {status.signal} at address {status.address:#x}"
        return False
    step.took_ns = time.monotonic_ns() - begin_ns
    return True


def _strays(replica: Replica, index: int, windows: list[Range]) -> list[Finding]:
    changed = [change for span in windows for change in changes(replica.live(span), replica.shadow(span), span[0])]
    if not changed:
        return []
    why = f"a command before node {index} wrote {_described(replica, changed)}, far from anything bound to it"
    replica.restore(windows)
    advice = 'check its indices; open_device("cpu", checked=True) stops at such an access'
    return [finding_about(replica.graph, ERROR, "undeclared write", (), why, advice)]


class _Comparison:
    """The comparison of one dispatch, which has run once from the shadow's state, with its declaration."""

    def __init__(
        self, replica: Replica, index: int, runner: Runner, limit_s: float, step: Step, windows: list[Range]
    ) -> None:
        self.replica, self.index, self.runner, self.limit_s, self.step = replica, index, runner, limit_s, step
        self.windows = windows
        command = replica.commands[index]
        assert isinstance(command, Dispatch)
        assert command.accesses is not None
        self.command = command
        self.each_written = [
            (access.begin, access.end) for access in command.accesses if access.write and access.begin < access.end
        ]
        self.written = merged(self.each_written)
        self.read = merged((access.begin, access.end) for access in command.accesses if not access.write)
        self.undeclared = without(windows, merged([*self.written, *self.read]))
        changeable = [
            (binding.address, binding.address + binding.nbytes) for binding in bound(command) if binding.writes
        ]
        # Bound without const but declared as read-only: it keeps its contents, so a write of equal bytes may not show.
        self.doubtful = without(common(merged(changeable), self.read), self.written)

    def judge(self) -> None:
        """Add the findings to the step; the live memory is then as the dispatch alone left it."""
        replica = self.replica
        changed = [
            change
            for span in without(self.windows, self.written)
            for change in changes(replica.live(span), replica.shadow(span), span[0])
        ]
        idle = [span for span in self.each_written if np.array_equal(replica.live(span), replica.shadow(span))]
        if self.undeclared or self.doubtful or idle:
            after = [replica.live(span).copy() for span in self.windows]
            if self.undeclared:
                changed += self._over_undeclared()
            if self.doubtful:
                changed += self._over(self.doubtful)
            if idle:
                idle = self._over_idle(idle)
            for span, contents in zip(self.windows, after, strict=True):
                replica.live(span)[:] = contents
        if changed:
            self._report_writes(joined(changed))
        for span in idle:
            self._note_idle(span)

    def _over_undeclared(self) -> list[Range]:
        """Changes of undeclared memory; undeclared reads are reported here."""
        replica = self.replica
        after = {span: replica.live(span).copy() for span in self.written}
        changed: list[Range] = []
        reads = False
        for pattern in PATTERNS:
            if not self._run_over(self.undeclared, pattern):
                reads = True  # it did not crash with the original contents
                continue
            for span in self.undeclared:
                changed += changes(replica.live(span), pattern, span[0])
            reads |= any(not np.array_equal(replica.live(span), contents) for span, contents in after.items())
        if reads:
            self._report_reads(after)
        return changed

    def _over(self, filled: list[Range]) -> list[Range]:
        """Changes of memory that was filled with patterns."""
        return [
            change
            for pattern in PATTERNS
            if self._run_over(filled, pattern)
            for span in filled
            for change in changes(self.replica.live(span), pattern, span[0])
        ]

    def _over_idle(self, idle: list[Range]) -> list[Range]:
        """The ranges that are declared as written and keep whatever contents they have."""
        for pattern in PATTERNS:
            if not self._run_over(merged(idle), pattern):
                return []
            idle = [span for span in idle if bool((self.replica.live(span) == pattern).all())]
        return idle

    def _run_over(self, filled: list[Range], pattern: int | None) -> bool:
        """Run the dispatch from the shadow's state with some memory filled; False if it crashes."""
        self.replica.restore(self.windows)
        for span in filled if pattern is not None else ():
            self.replica.live(span).fill(pattern)
        return not self.replica.run(self.runner, self.index, self.limit_s).failed

    def _report_writes(self, changed: list[Range]) -> None:
        changed = merged(self._whole_elements(span) for span in changed)
        held = dict.fromkeys(name for span in changed for name in self._arguments(span))
        arguments = ", ".join(held)
        what = arguments or "no bound argument covers it"
        why = f"it writes {_described(self.replica, changed)}, not declared as written: {what}"
        advice = "name it in writes=" if held else "correct its indices, or bind and declare what it writes"
        if any(self._is_const(span) for span in changed):
            advice = "declare the argument without const, so that other commands wait for the write"
        self._add(ERROR, "undeclared write", why, advice, arguments)

    def _report_reads(self, after: dict[Range, np.ndarray]) -> None:
        def differs() -> bool:
            return any(not np.array_equal(self.replica.live(span), contents) for span, contents in after.items())

        if self._run_over([], None) and differs():
            self._add(
                NOTE,
                "not deterministic",
                "two runs from the same memory wrote different bytes, so what it reads was not checked",
                "nothing, if that is intended",
            )
            return
        suspects = []
        for binding in self.command.bindings:
            if isinstance(binding, BufferBinding):
                own = common([(binding.address, binding.address + binding.nbytes)], self.undeclared)
                if own and any(not self._run_over(own, pattern) or differs() for pattern in PATTERNS):
                    suspects.append(argument_name(self.command, binding.index))
        arguments = ", ".join(suspects)
        what = arguments or "memory next to what is bound to it"
        advice = "name it in reads=" if suspects else "correct its indices"
        why = f"what it writes depends on {what}, not declared as read"
        self._add(ERROR, "undeclared read", why, advice, arguments)

    def _note_idle(self, span: Range) -> None:
        names, place = ", ".join(self._arguments(span)), self.replica.place_of(span)
        self._add(
            NOTE,
            "declared but not written",
            f"{names or 'what is declared'}: nothing of {place} changed",
            "leave it out of writes=, or make it const; then other commands need not wait for it",
            names or place,
        )

    def _add(self, severity: str, kind: str, why: str, advice: str, argument: str = "") -> None:
        finding = finding_about(self.replica.graph, severity, kind, (self.index,), why, advice, argument=argument)
        self.step.findings.append(finding)

    def _whole_elements(self, span: Range) -> Range:
        """The range widened to whole elements, since a number rarely changes in all of its bytes."""
        first, last = element_at(self.command, span[0]), element_at(self.command, span[1] - 1)
        return first[1] if first else span[0], last[1] + last[2].itemsize if last else span[1]

    def _arguments(self, span: Range) -> Iterator[str]:
        for binding in bound(self.command):
            if binding.address < span[1] and span[0] < binding.address + binding.nbytes:
                yield f"argument {binding.index} {argument_name(self.command, binding.index)}"

    def _is_const(self, span: Range) -> bool:
        meeting = [
            binding
            for binding in bound(self.command)
            if binding.address < span[1] and span[0] < binding.address + binding.nbytes
        ]
        return bool(meeting) and not any(binding.writes for binding in meeting)


def _described(replica: Replica, changed: list[Range]) -> str:
    shown = []
    for begin, end in changed[:_SHOWN_CHANGES]:
        data = replica.live((begin, min(end, begin + _SHOWN_BYTES))).tobytes()
        more = " …" if end - begin > _SHOWN_BYTES else ""
        shown.append(f"{replica.place_of((begin, end))} ({data.hex(' ')}{more})")
    if len(changed) > _SHOWN_CHANGES:
        shown.append(f"and {len(changed) - _SHOWN_CHANGES} more ranges")
    return ", ".join(shown)
