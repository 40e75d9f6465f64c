"""Fusion: two dispatches become one, where a rule says how and a proof says that nobody can tell.

The list is gone through in rounds. A round finds pairs by rule, looking back over `REACH` nodes, and proves for each:
the second reads exactly what the first wrote; both use the memory that their arguments say; the fused kernel reads
nothing that it writes; nobody else reads the bytes between them, not even the next replay; and one of the two can move
to the other's place past everything in between. What a round proves, it proves of the list that the round began with:
firsts that move down to their seconds keep their order among each other and with what stays, so any number of them go
together; a second moves up only over nodes that nothing in the round has moved to or from. Barriers stay where they
are. Rounds end when there is nothing left to do, so what was fused can be fused again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import overload

from ..base.ranges import Range, merged, overlap, size
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Barrier, Binding, BufferBinding, CompiledKernel, Copy, Dispatch, Fill
from .building import bound_to, built, fused_kernel
from .liveness import Uses
from .proofs import (
    REACH,
    Order,
    Pair,
    Reason,
    equal_values,
    known_accesses,
    no_aliasing,
    noticed,
    overwritten,
    own_condition,
    same_intermediate,
    unwritten,
    uses_its_arguments,
)
from .report import Note, Pass, Report, described
from .rules import FusionRule, Half, KernelKey, ResolvedRule, binding_range, default_rules, kernel_key, resolved

_Sources = tuple[int, ...]


@overload
def fuse(graph: Graph, *, rules: Sequence[FusionRule] | None = None) -> tuple[Graph, Report]: ...


@overload
def fuse(graph: None = None, *, rules: Sequence[FusionRule] | None = None) -> Pass: ...


def fuse(graph: Graph | None = None, *, rules: Sequence[FusionRule] | None = None) -> tuple[Graph, Report] | Pass:
    """Put one dispatch in the place of two, by the rules given or `default_rules()`, where it can be proved sound.

    Without a graph it gives the pass with these rules, for `graph.optimise([fuse(rules=mine), reorder])`.
    """
    if graph is not None and not isinstance(graph, Graph):
        raise ArgumentError(f"fuse: expected a Graph, got {graph!r}; rules are given as rules=[...]")
    table = _Table(default_rules() if rules is None else rules)
    if graph is None:
        return lambda one: _fuse(one, table)
    return _fuse(graph, table)


class _Table:
    """The rules, by the kernels that they begin and end with."""

    def __init__(self, rules: Sequence[FusionRule]) -> None:
        self._firsts: dict[KernelKey, list[ResolvedRule]] = {}
        self._seconds: dict[KernelKey, list[ResolvedRule]] = {}
        for one in map(resolved, rules):
            self._firsts.setdefault(one.first, []).append(one)
            self._seconds.setdefault(one.second, []).append(one)

    def roles(self, kernel: CompiledKernel) -> _Roles | None:
        """What the rules say of a kernel; None when they do not know it."""
        if kernel.origin is None:
            return None
        key = kernel_key(kernel.origin.module, kernel.name, kernel.origin.constants)
        firsts, seconds = self._firsts.get(key, []), self._seconds.get(key, [])
        return _Roles(firsts, seconds) if firsts or seconds else None


class _Roles:
    """The rules that a kernel is the first or the second of."""

    def __init__(self, firsts: list[ResolvedRule], seconds: list[ResolvedRule]) -> None:
        self.firsts = firsts
        self.seconds = seconds
        halves = [one.rule.first for one in firsts] + [one.rule.second for one in seconds]
        # One that stands for all rules which say the same.
        self.halves: list[Half] = list({(one.covers, one.overwrites): one for one in halves}.values())


def _fuse(graph: Graph, table: _Table) -> tuple[Graph, Report]:
    started_ns = time.perf_counter_ns()
    if not graph.on_device:
        summary = "nothing done: the graph is on no device that could compile a fused kernel; graph.to(device) first"
        return graph, Report("fuse", len(graph), len(graph), summary)
    work = _Work(graph, table)
    rounds = 0
    while work.round():
        rounds += 1
    fused = len(work.changes)
    found = graph
    if fused:
        found = graph.with_nodes(
            work.nodes,
            dropped=tuple(merged([*graph.dropped, *work.dropped])),
            splits=work.splits(),
        )
    report = Report(
        "fuse",
        len(graph),
        len(found),
        f"{fused} pair{'' if fused == 1 else 's'} fused" if fused else "no pair could be fused",
        tuple(work.changes),
        (*work.taken, *work.refusals),
        {"fused": fused, "rounds": rounds, "bytes_not_written": size(merged(work.dropped))},
        time.perf_counter_ns() - started_ns,
    )
    return found, report


class _Work:
    """A graph on its way through the rounds."""

    def __init__(self, graph: Graph, table: _Table) -> None:
        self.nodes: list[CapturedNode] = list(graph.nodes)
        self.changes: list[Note] = []
        self.taken: list[Note] = []
        self.refusals: list[Note] = []
        self.dropped: list[Range] = []
        self._graph = graph
        self._table = table
        self._roles: dict[CompiledKernel, _Roles | None] = {}
        self._kernels: dict[ResolvedRule, CompiledKernel] = {}
        self._touched: dict[Dispatch, tuple[list[Range], list[Range]]] = {}
        self._sources: list[_Sources] = [(place,) for place in range(len(graph))]

    def round(self) -> bool:
        """Find and apply what can be done to the list as it is; False when that is nothing."""
        self.refusals = []
        pairs = self._pairs()
        if not pairs:
            return False
        uses = self._uses([one for pair, _, _ in pairs for one in pair.unwritten])
        order = Order(self.nodes, self._graph.ordering)
        placed: dict[int, CapturedNode] = {}  # by the place that the fused node takes
        taken: dict[int, FusionRule] = {}
        removed: set[int] = set()
        sources: dict[int, _Sources] = {}
        busy_to = -1  # how far what was fused in this round reaches
        for pair, rule, bound in pairs:
            holder = taken.get(pair.before) or taken.get(pair.after)
            if holder is not None:
                self.taken.append(self._note(pair, f"one of them was fused already, as {holder}"))
                continue
            span = order.span(pair)
            reason: Reason | None = noticed(pair, self._graph, len(self.nodes), uses)
            place, hole = pair.after, pair.before
            if reason is None:
                reason = order.obstacle_down(pair)
                if reason is not None and order.obstacle_up(pair) is None:
                    if span[0] <= busy_to:
                        continue  # it would pass what has moved; another round
                    reason, place, hole = None, pair.before, pair.after
            if reason is None:
                command = built(pair, self._kernel_of(rule), bound, self._graph.queue)
                if isinstance(command, str):
                    reason = command
                else:
                    origin = {*self.nodes[pair.before].origin, *self.nodes[pair.after].origin}
                    placed[place] = CapturedNode(command, self.nodes[place].place, tuple(sorted(origin)))
                    sources[place] = (*self._sources[pair.before], *self._sources[pair.after])
                    removed.add(hole)
                    taken[pair.before] = taken[pair.after] = pair.rule
                    busy_to = max(busy_to, span[1])
                    self.changes.append(self._note(pair, self._gain(pair, place)))
                    self.dropped += pair.unwritten
                    continue
            self.refusals.append(self._note(pair, self._named(reason)))
        if not placed:
            return False
        self._apply(placed, removed, sources)
        return True

    # --- finding --------------------------------------------------------------------------------------------------

    def _pairs(self) -> list[tuple[Pair, ResolvedRule, tuple[Binding, ...]]]:
        """The pairs that rules match and that are sound by themselves, by the place of the second."""
        found: list[tuple[Pair, ResolvedRule, tuple[Binding, ...]]] = []
        recent: deque[tuple[int, ResolvedRule, Range]] = deque()
        newest: dict[tuple[int, Range], int] = {}
        for place, node in enumerate(self.nodes):
            command = node.command
            if not isinstance(command, Dispatch):
                continue
            roles = self._roles_of(command.kernel)
            if roles is None:
                continue
            while recent and recent[0][0] < place - REACH:
                old, rule, made = recent.popleft()
                if newest.get((id(rule), made)) == old:
                    del newest[id(rule), made]
            for rule in roles.seconds:
                used = binding_range(command, rule.rule.second.intermediate)
                before = None if used is None else newest.get((id(rule), used))
                if before is None and used is not None:
                    candidates = (at for at, one, made in reversed(recent) if one is rule and overlap(made, used))
                    before = next(candidates, None)
                if before is not None:
                    self._consider(rule, before, place, command, found)
            for rule in roles.firsts:
                made_here = binding_range(command, rule.rule.first.intermediate)
                if made_here is not None:
                    recent.append((place, rule, made_here))
                    newest[id(rule), made_here] = place
        return found

    def _consider(
        self,
        resolved: ResolvedRule,
        before: int,
        after: int,
        second: Dispatch,
        found: list[tuple[Pair, ResolvedRule, tuple[Binding, ...]]],
    ) -> None:
        rule = resolved.rule
        first = self.nodes[before].command
        assert isinstance(first, Dispatch)
        reason = (
            known_accesses(first, second)
            or same_intermediate(rule, first, second)
            or equal_values(rule, first, second)
            or own_condition(rule, first, second)
        )
        bound: tuple[Binding, ...] = ()
        if reason is None:
            bound = bound_to(resolved, first, second)
            reason = no_aliasing(rule, first, second, bound)
        pair = Pair(rule, before, after, first, second, () if reason else unwritten(rule, second))
        if reason is None:
            found.append((pair, resolved, bound))
        else:
            self.refusals.append(self._note(pair, reason))

    def _kernel_of(self, rule: ResolvedRule) -> CompiledKernel:
        if rule not in self._kernels:
            self._kernels[rule] = fused_kernel(rule, self._graph.queue)
        return self._kernels[rule]

    def _roles_of(self, kernel: CompiledKernel) -> _Roles | None:
        if kernel not in self._roles:
            self._roles[kernel] = self._table.roles(kernel)
        return self._roles[kernel]

    def _uses(self, ranges: Sequence[Range]) -> Uses:
        """Who reads and overwrites these ranges."""
        uses = Uses(ranges)
        if not ranges:
            return uses
        lowest, highest = min(begin for begin, _ in ranges), max(end for _, end in ranges)
        for place, node in enumerate(self.nodes):
            command = node.command
            if isinstance(command, Barrier):
                continue
            if isinstance(command, Copy | Fill):
                target = (command.target.address, command.target.address + command.target.nbytes)
                read, gone = [(one.begin, one.end) for one in node.accesses or () if not one.write], [target]
            elif command.accesses is None:
                read, gone = [(lowest, highest)], []
            elif command in self._touched:
                read, gone = self._touched[command]
            else:
                read, gone = self._touched[command] = self._read_and_overwritten(command)
            for begin, end in read:
                if begin < highest and lowest < end:
                    uses.note(place, begin, end, False)
            for begin, end in gone:
                if begin < highest and lowest < end:
                    uses.note(place, begin, end, True)
        return uses

    def _read_and_overwritten(self, dispatch: Dispatch) -> tuple[list[Range], list[Range]]:
        """What a dispatch may read or leave as it was, and what it is known to overwrite."""
        gone: list[BufferBinding] = []
        roles = self._roles_of(dispatch.kernel)
        if roles is not None and uses_its_arguments(dispatch):
            for half in roles.halves:
                gone += overwritten(dispatch, half.overwrites, half.covers(dispatch))
        if not gone:
            return [(one.begin, one.end) for one in dispatch.accesses or ()], []
        buffers = [one for one in dispatch.bindings if isinstance(one, BufferBinding)]
        return (
            [(one.address, one.address + one.nbytes) for one in buffers if one not in gone],
            [(one.address, one.address + one.nbytes) for one in gone],
        )

    # --- making ---------------------------------------------------------------------------------------------------

    def _apply(self, placed: dict[int, CapturedNode], removed: set[int], joined: dict[int, _Sources]) -> None:
        nodes: list[CapturedNode] = []
        sources: list[_Sources] = []
        for place, node in enumerate(self.nodes):
            if place in removed or (not nodes and isinstance(node.command, Barrier)):
                continue  # a barrier that has come to stand first has nothing to order, and encoders record none there
            nodes.append(placed.get(place, node))
            sources.append(joined.get(place, self._sources[place]))
        self.nodes, self._sources = nodes, sources

    def splits(self) -> tuple[int, ...]:
        """Where the submissions of the graph begin now: before the first node that was behind the split."""
        found = []
        for split in self._graph.splits:
            place = next((at for at, one in enumerate(self._sources) if max(one) >= split), len(self._sources))
            if 0 < place < len(self._sources):
                found.append(place)
        return tuple(sorted(set(found)))

    # --- saying ---------------------------------------------------------------------------------------------------

    def _note(self, pair: Pair, reason: str) -> Note:
        sources = (*self._sources[pair.before], *self._sources[pair.after])
        named = tuple((self._sources[place][-1], self.nodes[place]) for place in (pair.before, pair.after))
        return Note(sources, str(pair.rule), reason, named)

    def _named(self, reason: Reason) -> str:
        return (
            reason
            if isinstance(reason, str)
            else f"{described(self._sources[reason[0]][-1], self.nodes[reason[0]])} {reason[1]}"
        )

    def _gain(self, pair: Pair, place: int) -> str:
        saved = size(pair.unwritten)
        gain = f"{saved} bytes less written and read" if saved else "what was between them is read from memory no more"
        return f"{gain}; in the place of the {'second' if place == pair.after else 'first'}"
