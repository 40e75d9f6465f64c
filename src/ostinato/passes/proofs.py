"""The proofs behind a fusion. Each checks one condition and returns the reason to refuse, or None.
A reason that is about a third node comes with that node's place.

First come the conditions on the two dispatches alone; then whether one of them may move to the other's place; then
whether any reader would miss the bytes between them, which are no longer written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..base.ranges import Range, common, merged, overlap, without
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import (
    Access,
    Barrier,
    Binding,
    BufferBinding,
    Dispatch,
    InlineBinding,
    Ordering,
    ParamBinding,
    UnboundBinding,
)
from ..ir.hazards import accesses_of, conflicts
from .liveness import Uses
from .rules import FusionRule, binding_range

REACH = 64
"""How many nodes apart two dispatches may be. The bound keeps the pass linear."""
_MOST_LOOKED_AT = 4 * REACH

Reason = str | tuple[int, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two dispatches that a rule matches, and the bytes that their fused dispatch would not write."""

    rule: FusionRule
    before: int
    """Place of the first in the list of nodes."""
    after: int
    """Place of the second."""
    first: Dispatch
    second: Dispatch
    unwritten: tuple[Range, ...]


# --- the two alone -----------------------------------------------------------------------------------------------


def same_intermediate(rule: FusionRule, first: Dispatch, second: Dispatch) -> str | None:
    """The second reads exactly what the first wrote: the same bytes, all of them covered by both."""
    made, used = binding_range(first, rule.first.intermediate), binding_range(second, rule.second.intermediate)
    if made is None or used is None:
        return "the intermediate is no buffer"
    if made[0] != used[0]:
        return f"the second reads from byte {used[0] - made[0]:+d} of what the first writes"
    if made != used:
        return f"the first writes {made[1] - made[0]} bytes, the second is bound to {used[1] - used[0]} of them"
    for name, side, dispatch in (("first", rule.first, first), ("second", rule.second, second)):
        covered = side.covers(dispatch)
        if covered is None:
            return f"how much of the intermediate the {name} covers does not follow from its grid and its values"
        if covered != made[1] - made[0]:
            return f"the {name} covers {covered} bytes of an intermediate of {made[1] - made[0]}"
    return None


def known_accesses(first: Dispatch, second: Dispatch) -> str | None:
    """Both use exactly the memory that their arguments name, which is what the rule describes."""
    for name, dispatch in (("first", first), ("second", second)):
        if dispatch.accesses is None:
            return f"the memory that the {name} uses is not known"
        if not uses_its_arguments(dispatch):
            return f"the {name} was declared to use other memory than its arguments name"
    return None


def equal_values(rule: FusionRule, first: Dispatch, second: Dispatch) -> str | None:
    """Arguments that the rule requires to be equal are equal."""
    for ours, theirs in rule.equal:
        if not _same(_binding(first, ours), _binding(second, theirs)):
            return f"argument {ours} of the first and argument {theirs} of the second must be equal, but differ"
    return None


def own_condition(rule: FusionRule, first: Dispatch, second: Dispatch) -> str | None:
    """The rule's own condition, if it has one."""
    return None if rule.check is None else rule.check(first, second)


def no_aliasing(rule: FusionRule, first: Dispatch, second: Dispatch, fused: Sequence[Binding]) -> str | None:
    """The fused kernel overwrites none of its inputs; the second depends on the first only by the intermediate."""
    intermediate, gone = rule.second.intermediate, rule.second.overwrites
    theirs = [binding for binding in second.bindings if isinstance(binding, BufferBinding)]
    for made in first.bindings:
        if isinstance(made, BufferBinding) and made.writes:
            for used in theirs:
                if used.index != intermediate and used.index not in gone and _overlapping(made, used):
                    return f"the second also uses what the first writes as its argument {used.index}"
    buffers = [binding for binding in fused if isinstance(binding, BufferBinding)]
    for target in buffers:
        for source in buffers if target.writes else ():
            if target.index == source.index or not _overlapping(target, source):
                continue
            same = (target.address, target.nbytes) == (source.address, source.nbytes)
            pairs = ((target.index, source.index), (source.index, target.index))
            if not (same and any(pair in rule.in_place for pair in pairs)):
                part = "" if same else " in part"
                places = f"argument {target.index} over its argument {source.index}{part}"
                return f"the fused kernel would write its {places}"
    return None


def _overlapping(left: BufferBinding, right: BufferBinding) -> bool:
    return left.address < right.address + right.nbytes and right.address < left.address + left.nbytes


def unwritten(rule: FusionRule, second: Dispatch) -> tuple[Range, ...]:
    """The bytes of the intermediate that the fused kernel does not write."""
    if ("first", rule.first.intermediate) in rule.arguments.values():
        return ()
    made = binding_range(second, rule.second.intermediate)
    assert made is not None
    covered = rule.second.covers(second)
    gone = merged(_range(binding) for binding in overwritten(second, rule.second.overwrites, covered))
    return tuple(without([made], gone))


def uses_its_arguments(dispatch: Dispatch) -> bool:
    """Whether its accesses follow from its signature and bindings, rather than from a declaration of the caller."""
    if dispatch.accesses is None:
        return False
    expected = {
        (binding.address, binding.address + binding.nbytes, binding.writes)
        for binding in dispatch.bindings
        if isinstance(binding, BufferBinding)
    }
    return {(access.begin, access.end, access.write) for access in dispatch.accesses} == expected


def overwritten(dispatch: Dispatch, indices: Iterable[int], covered: int | None) -> list[BufferBinding]:
    """The bindings of which a kernel overwrites every byte, according to a rule."""
    return [
        binding
        for binding in dispatch.bindings
        if isinstance(binding, BufferBinding) and binding.index in indices and binding.nbytes == covered
    ]


def _range(binding: BufferBinding) -> Range:
    return binding.address, binding.address + binding.nbytes


def _binding(dispatch: Dispatch, index: int) -> Binding | None:
    return next((binding for binding in dispatch.bindings if binding.index == index), None)


def _same(left: Binding | None, right: Binding | None) -> bool:
    if isinstance(left, BufferBinding) and isinstance(right, BufferBinding):
        return (left.address, left.nbytes) == (right.address, right.nbytes)
    if isinstance(left, InlineBinding) and isinstance(right, InlineBinding):
        return left.data == right.data
    if isinstance(left, ParamBinding) and isinstance(right, ParamBinding):
        return left.name == right.name
    return isinstance(left, UnboundBinding) and isinstance(right, UnboundBinding)


# --- moving one to the other's place -----------------------------------------------------------------------------


class Order:
    """The list of nodes, and which of them a moved node would pass or run concurrently with."""

    def __init__(self, nodes: Sequence[CapturedNode], ordering: Ordering) -> None:
        self._nodes = nodes
        self._by_barriers = ordering is Ordering.BARRIERS
        self._interval: list[int] = []
        self._starts = [0]
        if self._by_barriers:
            for place, node in enumerate(nodes):
                if isinstance(node.command, Barrier):
                    self._starts.append(place)
                self._interval.append(len(self._starts) - 1)
            self._starts.append(len(nodes))

    def obstacle_down(self, pair: Pair) -> Reason | None:
        """Why the first cannot move to the place of the second, or None."""
        if not self._by_barriers:
            return self._obstacle(pair, "first", range(pair.before + 1, pair.after))
        start, end = self._interval[pair.before], self._interval[pair.after]
        if start == end:
            return "no barrier orders the second after the first"
        return self._obstacle(pair, "first", range(self._starts[start + 1], self._starts[end + 1]))

    def obstacle_up(self, pair: Pair) -> Reason | None:
        """Why the second cannot move to the place of the first, or None."""
        if not self._by_barriers:
            return self._obstacle(pair, "second", range(pair.before + 1, pair.after))
        start, end = self._interval[pair.before], self._interval[pair.after]
        if start == end:
            return "no barrier orders the second after the first"
        return self._obstacle(pair, "second", range(self._starts[start], self._starts[end]))

    def span(self, pair: Pair) -> tuple[int, int]:
        """The first and last place that a move of either dispatch affects."""
        if not self._by_barriers:
            return pair.before, pair.after
        return self._starts[self._interval[pair.before]], self._starts[self._interval[pair.after] + 1] - 1

    def _obstacle(self, pair: Pair, moving: str, places: range) -> Reason | None:
        if len(places) > _MOST_LOOKED_AT:
            return f"{len(places)} nodes lie between; at most {_MOST_LOOKED_AT} are examined"
        mine = pair.first.accesses if moving == "first" else pair.second.accesses
        assert mine is not None
        for place in places:
            if place in (pair.before, pair.after):
                continue
            command = self._nodes[place].command
            if isinstance(command, Barrier):
                continue  # it stays where it is, and orders the same nodes
            theirs = accesses_of(command)
            if theirs is None:
                return place, "lies between and may access any memory"
            if _meet(mine, theirs):
                hazard = conflicts(0, mine, 1, theirs)[0]
                return place, f"lies between and uses the same memory as the {moving} ({hazard.kind})"
        return None


def _meet(mine: tuple[Access, ...], theirs: tuple[Access, ...]) -> bool:
    for left in mine:
        for right in theirs:
            if (left.write or right.write) and left.overlaps(right):
                return True
    return False


# --- who would notice --------------------------------------------------------------------------------------------


def noticed(pair: Pair, graph: Graph, count: int, uses: Uses) -> Reason | None:
    """Why the intermediate must be written: something reads it, in this replay or the next."""
    for begin, end in pair.unwritten:
        for buffer in graph.names.values():
            if overlap((begin, end), (buffer.begin, buffer.end)):
                return f"the intermediate is part of the buffer named {buffer.name!r}, which can be rebound"
        for piece in uses.pieces(begin, end):
            between = uses.first_read(piece, pair.before, pair.after)
            if between is not None:
                return between, "also reads the intermediate"
            later, gone = uses.first_read(piece, pair.after, count), uses.first_overwrite(piece, pair.after, count)
            if later is not None and (gone is None or later <= gone):
                return later, "reads the intermediate later"
            if gone is not None:
                continue
            if graph.outputs is None:
                return (
                    "the intermediate is live at the end, since the graph has no declared outputs;"
                    " declare them with graph.with_outputs(...)"
                )
            if common([uses.bounds(piece)], merged(graph.outputs)):
                return "the intermediate is an output of the graph"
            again, gone = uses.first_read(piece, -1, pair.before + 1), uses.first_overwrite(piece, -1, pair.before + 1)
            if again is not None and (gone is None or again <= gone):
                return again, "reads the intermediate of this replay in the next"
    return None
