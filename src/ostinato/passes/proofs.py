"""The proofs behind a fusion. Each looks at one thing that could go wrong and gives the reason to refuse, or None.
A reason that is about a third node comes with that node's place.

Those about the two dispatches alone come first; then, whether one of them may move to the other's place; then, whether
anybody can see that the bytes between them are not written any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..base.ranges import Range, common, merged, overlap, without
from ..graph.graph import Graph
from ..ir.command_list import CapturedNode
from ..ir.commands import Access, Barrier, Binding, BufferBinding, Dispatch, InlineBinding, Ordering
from ..ir.hazards import accesses_of, conflicts
from .liveness import Uses
from .rules import FusionRule, binding_range

REACH = 64
"""How far apart two dispatches may be. It also bounds what has to be looked at, so that a pass stays linear."""
_MOST_LOOKED_AT = 4 * REACH

Reason = str | tuple[int, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two dispatches that a rule matches, and what would no longer be written if they were one."""

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
    for name, half, dispatch in (("first", rule.first, first), ("second", rule.second, second)):
        covered = half.covers(dispatch)
        if covered is None:
            return f"how much of the intermediate the {name} covers cannot be told from its grid and its values"
        if covered != made[1] - made[0]:
            return f"the {name} covers {covered} bytes of an intermediate of {made[1] - made[0]}"
    return None


def known_accesses(first: Dispatch, second: Dispatch) -> str | None:
    """Both use the memory that their arguments say, which is what the rule speaks of."""
    for name, one in (("first", first), ("second", second)):
        if one.accesses is None:
            return f"the memory that the {name} uses is not known"
        if not uses_its_arguments(one):
            return f"the {name} was declared to use other memory than its arguments say"
    return None


def equal_values(rule: FusionRule, first: Dispatch, second: Dispatch) -> str | None:
    """Arguments that the rule wants to be the same are."""
    for one, other in rule.equal:
        if not _same(_binding(first, one), _binding(second, other)):
            return f"argument {one} of the first and argument {other} of the second must be the same, and are not"
    return None


def own_condition(rule: FusionRule, first: Dispatch, second: Dispatch) -> str | None:
    """What the rule asks for besides."""
    return None if rule.check is None else rule.check(first, second)


def no_aliasing(rule: FusionRule, first: Dispatch, second: Dispatch, fused: Sequence[Binding]) -> str | None:
    """Nothing that the fused kernel reads changes under it, and the second depends on the first in one way only."""
    intermediate, gone = rule.second.intermediate, rule.second.overwrites
    theirs = [one for one in second.bindings if isinstance(one, BufferBinding)]
    for made in first.bindings:
        if isinstance(made, BufferBinding) and made.writes:
            for used in theirs:
                if used.index != intermediate and used.index not in gone and _overlapping(made, used):
                    return f"the second uses what the first writes as its argument {used.index} too"
    buffers = [one for one in fused if isinstance(one, BufferBinding)]
    for one in buffers:
        for other in buffers if one.writes else ():
            if one.index == other.index or not _overlapping(one, other):
                continue
            same = (one.address, one.nbytes) == (other.address, other.nbytes)
            pairs = ((one.index, other.index), (other.index, one.index))
            if not (same and any(pair in rule.in_place for pair in pairs)):
                part = "" if same else " in part"
                return f"the fused kernel would write its argument {one.index} over its argument {other.index}{part}"
    return None


def _overlapping(one: BufferBinding, other: BufferBinding) -> bool:
    return one.address < other.address + other.nbytes and other.address < one.address + one.nbytes


def unwritten(rule: FusionRule, second: Dispatch) -> tuple[Range, ...]:
    """The bytes of the intermediate that the fused kernel leaves alone."""
    if ("first", rule.first.intermediate) in rule.arguments.values():
        return ()
    made = binding_range(second, rule.second.intermediate)
    assert made is not None
    covered = rule.second.covers(second)
    gone = merged(_range(one) for one in overwritten(second, rule.second.overwrites, covered))
    return tuple(without([made], gone))


def uses_its_arguments(dispatch: Dispatch) -> bool:
    """Whether its accesses are those of its signature and bindings, and not the caller's own."""
    if dispatch.accesses is None:
        return False
    expected = {
        (one.address, one.address + one.nbytes, one.writes)
        for one in dispatch.bindings
        if isinstance(one, BufferBinding)
    }
    return {(one.begin, one.end, one.write) for one in dispatch.accesses} == expected


def overwritten(dispatch: Dispatch, indices: Iterable[int], covered: int | None) -> list[BufferBinding]:
    """The bindings of which a kernel overwrites every byte, by what a rule says of it."""
    return [
        one
        for one in dispatch.bindings
        if isinstance(one, BufferBinding) and one.index in indices and one.nbytes == covered
    ]


def _range(binding: BufferBinding) -> Range:
    return binding.address, binding.address + binding.nbytes


def _binding(dispatch: Dispatch, index: int) -> Binding | None:
    return next((one for one in dispatch.bindings if one.index == index), None)


def _same(one: Binding | None, other: Binding | None) -> bool:
    if isinstance(one, BufferBinding) and isinstance(other, BufferBinding):
        return (one.address, one.nbytes) == (other.address, other.nbytes)
    if isinstance(one, InlineBinding) and isinstance(other, InlineBinding):
        return one.data == other.data
    if one is None or other is None or isinstance(one, BufferBinding | InlineBinding):
        return False
    return not isinstance(other, BufferBinding | InlineBinding) and one.name == other.name


# --- moving one to the other's place -----------------------------------------------------------------------------


class Order:
    """The list of nodes, and which of them a move would pass or come to run beside."""

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
        """Why the first cannot run where the second does."""
        if not self._by_barriers:
            return self._obstacle(pair, "first", range(pair.before + 1, pair.after))
        start, end = self._interval[pair.before], self._interval[pair.after]
        if start == end:
            return "no barrier orders the second after the first"
        return self._obstacle(pair, "first", range(self._starts[start + 1], self._starts[end + 1]))

    def obstacle_up(self, pair: Pair) -> Reason | None:
        """Why the second cannot run where the first does."""
        if not self._by_barriers:
            return self._obstacle(pair, "second", range(pair.before + 1, pair.after))
        start, end = self._interval[pair.before], self._interval[pair.after]
        if start == end:
            return "no barrier orders the second after the first"
        return self._obstacle(pair, "second", range(self._starts[start], self._starts[end]))

    def span(self, pair: Pair) -> tuple[int, int]:
        """The first and last place that a move of either half has to do with."""
        if not self._by_barriers:
            return pair.before, pair.after
        return self._starts[self._interval[pair.before]], self._starts[self._interval[pair.after] + 1] - 1

    def _obstacle(self, pair: Pair, moving: str, places: range) -> Reason | None:
        if len(places) > _MOST_LOOKED_AT:
            return f"{len(places)} nodes would have to be looked at; {_MOST_LOOKED_AT} are the most"
        mine = pair.first.accesses if moving == "first" else pair.second.accesses
        assert mine is not None
        for place in places:
            if place in (pair.before, pair.after):
                continue
            command = self._nodes[place].command
            if isinstance(command, Barrier):
                continue  # it stays where it is, and orders what it ordered
            theirs = accesses_of(command)
            if theirs is None:
                return place, "lies between, and may touch anything"
            if _meet(mine, theirs):
                found = conflicts(0, mine, 1, theirs)[0]
                return place, f"lies between and uses the same memory as the {moving} ({found.kind})"
        return None


def _meet(mine: tuple[Access, ...], theirs: tuple[Access, ...]) -> bool:
    for one in mine:
        for other in theirs:
            if (one.write or other.write) and one.overlaps(other):
                return True
    return False


# --- who would notice --------------------------------------------------------------------------------------------


def noticed(pair: Pair, graph: Graph, count: int, uses: Uses) -> Reason | None:
    """Why the intermediate must be written: somebody reads it, now or at the next replay."""
    for begin, end in pair.unwritten:
        for one in graph.names.values():
            if overlap((begin, end), (one.begin, one.end)):
                return f"the intermediate is part of the buffer named {one.name!r}, which can be bound anew"
        for piece in uses.pieces(begin, end):
            between = uses.first_read(piece, pair.before, pair.after)
            if between is not None:
                return between, "reads the intermediate too"
            later, gone = uses.first_read(piece, pair.after, count), uses.first_overwrite(piece, pair.after, count)
            if later is not None and (gone is None or later <= gone):
                return later, "reads the intermediate later"
            if gone is not None:
                continue
            if graph.outputs is None:
                return (
                    "the intermediate is still there at the end, and the graph does not say what is read then;"
                    " graph.with_outputs(...) says so"
                )
            if common([uses.bounds(piece)], merged(graph.outputs)):
                return "the intermediate is an output of the graph"
            again, gone = uses.first_read(piece, -1, pair.before + 1), uses.first_overwrite(piece, -1, pair.before + 1)
            if again is not None and (gone is None or again <= gone):
                return again, "reads at the next replay what this one left in the intermediate"
    return None
