"""Races: the whole list runs several times from the same memory, concurrently and serially; the results are compared.

The serial run, in program order, gives the expected result. It is compared with runs that keep only the list's own
ordering: several on all cores, and one that runs commands in the opposite order wherever nothing orders them. The
latter finds races that the timing of this machine hides.
"""

from __future__ import annotations

import heapq
import time
from functools import partial
from itertools import pairwise

import numpy as np

from ..base.ranges import Range
from ..graph.graph import Graph
from ..ir.commands import Barrier, Ordering, bound
from ..ir.hazards import accesses_of
from .differences import changes, merged
from .findings import ERROR, NOTE, Finding, element_at, finding_about
from .replica import Replica
from .runner import Runner

_SHOWN_BYTES = 8


def compare_orders(replica: Replica, runner: Runner, repeats: int, limit_s: float) -> tuple[list[Finding], int]:
    """The findings, and the number of runs. The list starts from the state of the replica's shadow.

    A command may take `limit_s`; a concurrent run may take that or ten times as long as a serial run, if that is more.
    Raises `TookTooLong` if that was not enough; the replica is then still in use.
    """
    graph = replica.graph
    written = _written(replica)
    order = list(range(len(replica.commands)))
    started_s = time.monotonic()
    if _crashes_one_by_one(replica, runner, order, written, limit_s):
        return [], 0  # the run of each command alone finds the cause
    list_limit_s = max(limit_s, 10 * (time.monotonic() - started_s))
    expected = [replica.live(span).copy() for span in written]
    _crashes_one_by_one(replica, runner, order, written, limit_s)
    again = _first_difference(replica, written, expected)
    if again is not None:
        why = f"two serial runs differ at {replica.place_of(again)}"
        advice = "nothing, if that is intended; races cannot be detected in this list"
        return [finding_about(graph, NOTE, "not deterministic", _writers(replica, again), why, advice)], 2
    concurrent = partial(_crashes, replica, runner, written, list_limit_s)
    runs = [(f"run {number + 1} of {repeats} on all cores", concurrent) for number in range(repeats)]
    opposite = opposite_order(graph)
    if opposite != order:
        against = partial(_crashes_one_by_one, replica, runner, opposite, written, limit_s)
        runs.insert(0, ("a run in the opposite order", against))
    for number, (what, crashes) in enumerate(runs, 1):
        if crashes():
            why = f"{what} crashed; a serial run does not"
            return [finding_about(graph, ERROR, "race", (), why, _ADVICE)], number
        different = _first_difference(replica, written, expected)
        if different is not None:
            why = f"{what} left {_compared(replica, different, written, expected)}"
            return [finding_about(graph, ERROR, "race", _writers(replica, different), why, _ADVICE)], number
    return [], len(runs)


_ADVICE = "order the commands: a missing barrier, or an access that is not declared"


def opposite_order(graph: Graph) -> list[int]:
    """An order of the nodes that the graph allows, as close to the reverse of program order as possible."""
    count = len(graph.nodes)
    waits: list[set[int]] = [set() for _ in range(count)]
    if graph.ordering is Ordering.SERIAL:
        return list(range(count))
    if graph.ordering is Ordering.INFERRED:
        for before, after in graph.edges.tolist():
            waits[after].add(before)
    followers: list[list[int]] = [[] for _ in range(count)]
    for after, befores in enumerate(waits):
        for before in befores:
            followers[before].append(after)
    # Barriers and the starts of submissions cut the list into stretches that keep their order.
    order: list[int] = []
    stretch: list[int] = []

    def flush() -> None:
        members = set(stretch)
        blocked = {node: len(waits[node] & members) for node in stretch}
        ready = [-node for node in stretch if not blocked[node]]
        heapq.heapify(ready)
        while ready:
            node = -heapq.heappop(ready)
            order.append(node)
            for follower in followers[node]:
                if follower in members:
                    blocked[follower] -= 1
                    if not blocked[follower]:
                        heapq.heappush(ready, -follower)
        stretch.clear()

    splits = frozenset(graph.splits)
    for index, node in enumerate(graph.nodes):
        if isinstance(node.command, Barrier) or index in splits:
            flush()
        if isinstance(node.command, Barrier):
            order.append(index)
        else:
            stretch.append(index)
    flush()
    return order


def _crashes(replica: Replica, runner: Runner, written: list[Range], limit_s: float) -> bool:
    """Run all commands from the shadow's state, with only the list's own ordering; True if that crashes."""
    replica.restore(written)
    graph = replica.graph
    return any(
        runner.run(replica.command_list.part(first, end), limit_s).failed
        for first, end in pairwise((0, *graph.splits, len(graph)))
    )


def _crashes_one_by_one(
    replica: Replica, runner: Runner, order: list[int], written: list[Range], limit_s: float
) -> bool:
    """Run all commands from the shadow's state serially, in this order; True if that crashes."""
    replica.restore(written)
    run = replica.run_in_turn if order == sorted(order) else replica.run
    barriers = {index for index in order if isinstance(replica.commands[index], Barrier)}
    return any(run(runner, index, limit_s).failed for index in order if index not in barriers)


def _written(replica: Replica) -> list[Range]:
    """All memory that any command may write: whole blocks, so that undeclared writes count too."""
    spans: list[Range] = []
    for command in replica.commands:
        accesses = accesses_of(command)
        if accesses is None and not isinstance(command, Barrier):
            return replica.blocks()
        spans += [(access.begin, access.end) for access in accesses or () if access.write]
        spans += [(binding.address, binding.address + binding.nbytes) for binding in bound(command) if binding.writes]
    return merged(replica.around(span, 1 << 62) for span in merged(spans))


def _first_difference(replica: Replica, written: list[Range], expected: list[np.ndarray]) -> Range | None:
    for span, contents in zip(written, expected, strict=True):
        for change in changes(replica.live(span), contents, span[0]):
            return change
    return None


def _compared(replica: Replica, different: Range, written: list[Range], expected: list[np.ndarray]) -> str:
    """The first difference as text: as a number where the type is known, else as bytes."""
    position = next(index for index, (begin, end) in enumerate(written) if begin <= different[0] < end)
    span, what, dtype = (different[0], min(different[1], different[0] + _SHOWN_BYTES)), "", None
    for writer in _writers(replica, different):
        element = element_at(replica.commands[writer], different[0])
        if element is not None:
            what, begin, dtype = element
            span = (begin, begin + dtype.itemsize)
            break
    first = span[0] - written[position][0]
    wrong, right = replica.live(span), expected[position][first : first + span[1] - span[0]]
    if dtype is not None:
        left, serial = f"{what} = {wrong.copy().view(dtype)[0]} in", str(right.copy().view(dtype)[0])
    else:
        left, serial = f"{wrong.tobytes().hex(' ')} at", right.tobytes().hex(" ")
    return f"{left} {replica.place_of(span)}; a serial run leaves {serial}"


def _writers(replica: Replica, span: Range) -> list[int]:
    """The commands that declare a write to this range."""
    return [
        index
        for index, command in enumerate(replica.commands)
        if any(
            access.write and access.begin < span[1] and span[0] < access.end for access in accesses_of(command) or ()
        )
    ]
