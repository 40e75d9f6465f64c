"""Fusion: two dispatches become one, where a rule says how and a proof says that the result is the same.

Fusion runs in rounds. A round finds pairs by rule, looking back over `REACH` nodes, and proves for each: the second
reads exactly what the first wrote; both use the memory that their arguments name; the fused kernel reads nothing that
it writes; nothing else reads the bytes between them, not even the next replay; and one of the two can move to the
other's place past everything in between. A round proves this for the list that it began with. Firsts that move down to
their seconds keep their order relative to each other and to the other nodes, so any number of them can move in a round;
a second moves up only over nodes that nothing in the round has moved to or from. Barriers stay where they are. Rounds
end when nothing is left to do, so a fused dispatch can be fused again.
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
from .rules import FusedSide, FusionRule, KernelKey, ResolvedRule, binding_range, default_rules, kernel_key, resolved

_Sources = tuple[int, ...]


@overload
def fuse(graph: Graph, *, rules: Sequence[FusionRule] | None = None) -> tuple[Graph, Report]: ...


@overload
def fuse(graph: None = None, *, rules: Sequence[FusionRule] | None = None) -> Pass: ...


def fuse(graph: Graph | None = None, *, rules: Sequence[FusionRule] | None = None) -> tuple[Graph, Report] | Pass:
    """Replace two dispatches by one, by `rules` or `default_rules()`, where that is proved to be sound.

    Without a graph it returns the pass with these rules, for `graph.optimise([fuse(rules=mine), reorder])`.
    """
    if graph is not None and not isinstance(graph, Graph):
        raise ArgumentError(f"fuse: expected a Graph, got {graph!r}; pass rules as rules=[...]")
    table = _Table(default_rules() if rules is None else rules)
    if graph is None:
        return lambda captured: _fuse(captured, table)
    return _fuse(graph, table)


class _Table:
    """The rules, by the kernels that they begin and end with."""

    def __init__(self, rules: Sequence[FusionRule]) -> None:
        self._firsts: dict[KernelKey, list[ResolvedRule]] = {}
        self._seconds: dict[KernelKey, list[ResolvedRule]] = {}
        for rule in map(resolved, rules):
            self._firsts.setdefault(rule.first, []).append(rule)
            self._seconds.setdefault(rule.second, []).append(rule)

    def roles(self, kernel: CompiledKernel) -> _Roles | None:
        """The rules that a kernel takes part in; None when there are none."""
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
        sides = [rule.rule.first for rule in firsts] + [rule.rule.second for rule in seconds]
        # Rules that say the same about the kernel are kept once.
        self.sides: list[FusedSide] = list({(side.covers, side.overwrites): side for side in sides}.values())


def _fuse(graph: Graph, table: _Table) -> tuple[Graph, Report]:
    started_ns = time.perf_counter_ns()
    if not graph.on_device:
        summary = "nothing done: the graph is on no device, which a fused kernel needs; call graph.to(device) first"
        return graph, Report("fuse", len(graph), len(graph), summary)
    work = _Work(graph, table)
    rounds = 0
    while work.round():
        rounds += 1
    fused = len(work.changes)
    result = graph
    if fused:
        result = graph.with_nodes(
            work.nodes,
            dropped=tuple(merged([*graph.dropped, *work.dropped])),
            splits=work.splits(),
        )
    report = Report(
        "fuse",
        len(graph),
        len(result),
        f"{fused} pair{'' if fused == 1 else 's'} fused" if fused else "no pair could be fused",
        tuple(work.changes),
        (*work.taken, *work.refusals),
        {"fused": fused, "rounds": rounds, "bytes_not_written": size(merged(work.dropped))},
        time.perf_counter_ns() - started_ns,
    )
    return result, report


class _Work:
    """The state of a graph between rounds."""

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
        """Find pairs in the current list and fuse them; False when there was nothing to fuse."""
        self.refusals = []
        pairs = self._pairs()
        if not pairs:
            return False
        uses = self._uses([span for pair, _, _ in pairs for span in pair.unwritten])
        order = Order(self.nodes, self._graph.ordering)
        placed: dict[int, CapturedNode] = {}  # fused nodes by their place
        taken: dict[int, FusionRule] = {}
        removed: set[int] = set()
        sources: dict[int, _Sources] = {}
        busy_to = -1  # last place that a fusion of this round touches
        for pair, rule, bound in pairs:
            holder = taken.get(pair.before) or taken.get(pair.after)
            if holder is not None:
                self.taken.append(self._note(pair, f"one of them is already fused by the rule {holder}"))
                continue
            span = order.span(pair)
            reason: Reason | None = noticed(pair, self._graph, len(self.nodes), uses)
            place, hole = pair.after, pair.before
            if reason is None:
                reason = order.obstacle_down(pair)
                if reason is not None and order.obstacle_up(pair) is None:
                    if span[0] <= busy_to:
                        continue  # it would pass a node that has moved; left for the next round
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
        """The pairs that match a rule and are sound by themselves, by the place of the second."""
        pairs: list[tuple[Pair, ResolvedRule, tuple[Binding, ...]]] = []
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
                    candidates = (at for at, maker, made in reversed(recent) if maker is rule and overlap(made, used))
                    before = next(candidates, None)
                if before is not None:
                    self._consider(rule, before, place, command, pairs)
            for rule in roles.firsts:
                made_here = binding_range(command, rule.rule.first.intermediate)
                if made_here is not None:
                    recent.append((place, rule, made_here))
                    newest[id(rule), made_here] = place
        return pairs

    def _consider(
        self,
        resolved: ResolvedRule,
        before: int,
        after: int,
        second: Dispatch,
        pairs: list[tuple[Pair, ResolvedRule, tuple[Binding, ...]]],
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
            pairs.append((pair, resolved, bound))
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
        """Which nodes read and overwrite these ranges."""
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
                read, gone = (
                    [(access.begin, access.end) for access in node.accesses or () if not access.write],
                    [target],
                )
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
        """What a dispatch may read or leave unchanged, and what it is known to overwrite."""
        gone: list[BufferBinding] = []
        roles = self._roles_of(dispatch.kernel)
        if roles is not None and uses_its_arguments(dispatch):
            for side in roles.sides:
                gone += overwritten(dispatch, side.overwrites, side.covers(dispatch))
        if not gone:
            return [(access.begin, access.end) for access in dispatch.accesses or ()], []
        buffers = [binding for binding in dispatch.bindings if isinstance(binding, BufferBinding)]
        return (
            [(binding.address, binding.address + binding.nbytes) for binding in buffers if binding not in gone],
            [(binding.address, binding.address + binding.nbytes) for binding in gone],
        )

    # --- making ---------------------------------------------------------------------------------------------------

    def _apply(self, placed: dict[int, CapturedNode], removed: set[int], joined: dict[int, _Sources]) -> None:
        nodes: list[CapturedNode] = []
        sources: list[_Sources] = []
        for place, node in enumerate(self.nodes):
            if place in removed or (not nodes and isinstance(node.command, Barrier)):
                continue  # a barrier at the start orders nothing, and encoders record none there
            nodes.append(placed.get(place, node))
            sources.append(joined.get(place, self._sources[place]))
        self.nodes, self._sources = nodes, sources

    def splits(self) -> tuple[int, ...]:
        """The new starts of submissions: the first node that was behind each split."""
        starts = []
        for split in self._graph.splits:
            place = next((at for at, sources in enumerate(self._sources) if max(sources) >= split), len(self._sources))
            if 0 < place < len(self._sources):
                starts.append(place)
        return tuple(sorted(set(starts)))

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
        gain = f"{saved} bytes fewer written and read" if saved else "the intermediate is no longer read from memory"
        return f"{gain}; runs in place of the {'second' if place == pair.after else 'first'}"
