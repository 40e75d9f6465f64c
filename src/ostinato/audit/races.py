"""Concurrent against serial: the whole list again and again from the same memory, and what it leaves compared.

One run at a time, in the order of the program, says what the result is. It is compared with runs in which only the
list's own ordering holds: several on all cores, and one that takes commands in the opposite order wherever nothing
orders them, which finds what the timing of this machine happens to hide.
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
from .findings import ERROR, NOTE, Finding, element_at, found
from .replica import Replica
from .runner import Runner

_SHOWN_BYTES = 8


def compare_orders(replica: Replica, runner: Runner, repeats: int, limit_s: float) -> tuple[list[Finding], int]:
    """What the runs came to, and how many there were. The replica's shadow holds what the list starts from.

    A command may take `limit_s`, and a concurrent run that or ten times as long as a serial one. `TookTooLong`, when
    that was not enough: the replica is then still in use.
    """
    graph = replica.graph
    written = _written(replica)
    order = list(range(len(replica.commands)))
    started_s = time.monotonic()
    if _crashes_one_by_one(replica, runner, order, written, limit_s):
        return [], 0  # each command alone is what says why
    list_limit_s = max(limit_s, 10 * (time.monotonic() - started_s))
    expected = [replica.live(span).copy() for span in written]
    _crashes_one_by_one(replica, runner, order, written, limit_s)
    again = _first_difference(replica, written, expected)
    if again is not None:
        why = f"two runs of it, one command at a time, differ at {replica.place_of(again)}"
        advice = "nothing, if that is meant; races in it cannot be told from it"
        return [found(graph, NOTE, "not deterministic", _writers(replica, again), why, advice)], 2
    concurrent = partial(_crashes, replica, runner, written, list_limit_s)
    runs = [(f"run {number + 1} of {repeats} on all cores", concurrent) for number in range(repeats)]
    opposite = opposite_order(graph)
    if opposite != order:
        against = partial(_crashes_one_by_one, replica, runner, opposite, written, limit_s)
        runs.insert(0, ("a run in the opposite order", against))
    for number, (what, crashes) in enumerate(runs, 1):
        if crashes():
            why = f"{what} crashed, which one command at a time does not"
            return [found(graph, ERROR, "race", (), why, _ADVICE)], number
        different = _first_difference(replica, written, expected)
        if different is not None:
            why = f"{what} left {_compared(replica, different, written, expected)}"
            return [found(graph, ERROR, "race", _writers(replica, different), why, _ADVICE)], number
    return [], len(runs)


_ADVICE = "order the commands: a missing barrier, or an access that is not declared"


def opposite_order(graph: Graph) -> list[int]:
    """The nodes in an order that the graph allows and that goes against the program's wherever it can."""
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
    """Run all commands from what the shadow holds, with nothing but the list's own ordering."""
    replica.restore(written)
    graph = replica.graph
    return any(
        runner.run(replica.command_list.part(first, end), limit_s).failed
        for first, end in pairwise((0, *graph.splits, len(graph)))
    )


def _crashes_one_by_one(
    replica: Replica, runner: Runner, order: list[int], written: list[Range], limit_s: float
) -> bool:
    """Run all commands from what the shadow holds, each after the one before."""
    replica.restore(written)
    run = replica.run_in_turn if order == sorted(order) else replica.run
    barriers = {index for index in order if isinstance(replica.commands[index], Barrier)}
    return any(run(runner, index, limit_s).failed for index in order if index not in barriers)


def _written(replica: Replica) -> list[Range]:
    """All memory that any command may write: the whole blocks, so that writes beside the declared ones count too."""
    spans: list[Range] = []
    for command in replica.commands:
        accesses = accesses_of(command)
        if accesses is None and not isinstance(command, Barrier):
            return replica.blocks()
        spans += [(one.begin, one.end) for one in accesses or () if one.write]
        spans += [(one.address, one.address + one.nbytes) for one in bound(command) if one.writes]
    return merged(replica.around(span, 1 << 62) for span in merged(spans))


def _first_difference(replica: Replica, written: list[Range], expected: list[np.ndarray]) -> Range | None:
    for span, contents in zip(written, expected, strict=True):
        for change in changes(replica.live(span), contents, span[0]):
            return change
    return None


def _compared(replica: Replica, different: Range, written: list[Range], expected: list[np.ndarray]) -> str:
    """The first difference in words: as a number where the type is known, else as bytes."""
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
    return f"{left} {replica.place_of(span)}; one command at a time leaves {serial}"


def _writers(replica: Replica, span: Range) -> list[int]:
    """The commands that declare to write there."""
    return [
        index
        for index, command in enumerate(replica.commands)
        if any(one.write and one.begin < span[1] and span[0] < one.end for one in accesses_of(command) or ())
    ]
