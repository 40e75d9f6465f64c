"""Reordering: fewer barriers, and nothing else changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.ir import hazards
from ostinato.ir.commands import Access, Barrier, Dispatch, Ordering
from ostinato.passes import reorder

Kind = ost.CapturedOpKind


@pytest.fixture(scope="module")
def template(dev: ost.Device, kernels: ost.Library) -> ost.Graph:
    """A graph of one node, from which others are made."""
    x = dev.zeros(4, np.float32)
    return dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=4))


def graph_of(template: ost.Graph, nodes: list[Any]) -> ost.Graph:
    """A graph on no device of nodes given by accesses (None: not known), op kinds or "barrier"."""
    command = template[0].command
    assert isinstance(command, Dispatch)
    made = []
    for index, one in enumerate(nodes):
        accesses, kind = one if isinstance(one, tuple) else (one, Kind.Other)
        if one == "barrier":
            made.append(ost.CapturedNode(Barrier(), None, (index,)))
            continue
        listed = None if accesses is None else tuple(Access(*access) for access in accesses)
        made.append(ost.CapturedNode(replace(command, accesses=listed, op_kind=kind), None, (index,)))
    return replace(template.with_nodes(made), _queue=None)


def chain(*parts: int) -> list[list[tuple[int, int, bool]]]:
    """Nodes that write one byte each, so that nodes with the same number must keep their order."""
    return [[(part, part + 1, True)] for part in parts]


def order(graph: ost.Graph) -> list[int]:
    return [node.origin[0] for node in graph]


def test_independent_chains_are_laid_side_by_side(template: ost.Graph) -> None:
    graph = graph_of(template, chain(1, 1, 1, 2, 2, 2))
    found, report = reorder(graph)
    assert order(found) == [0, 3, 1, 4, 2, 5]
    assert report.numbers == {"moved": 2, "barriers_before": 4, "barriers_after": 2}


def test_reordered_counted_shifted_indices_not_moved_nodes(template: ost.Graph) -> None:
    """One node is pulled over five others: they are shifted, it is moved."""
    graph = graph_of(template, chain(1, 1, 1, 1, 1, 2, 2))
    found, report = reorder(graph)
    assert order(found) == [0, 5, 1, 6, 2, 3, 4]
    shifted = sum(place != index for place, index in enumerate(order(found)))
    assert shifted == 6
    assert report.numbers["moved"] == 2
    assert [note.nodes for note in report.changes] == [(5,), (6,)]


def test_a_dispatch_without_declared_ranges_was_free_to_move(template: ost.Graph) -> None:
    graph = graph_of(template, [*chain(1, 1), None, *chain(2, 2, 3, 3)])
    found, report = reorder(graph)
    assert order(found)[:3] == [0, 1, 2]
    assert order(found) == [0, 1, 2, 3, 5, 4, 6]
    assert report.numbers["moved"] == 1


def test_deliberate_fences_stay_fences(template: ost.Graph) -> None:
    graph = graph_of(template, [*chain(1, 1, 2, 2), "barrier", *chain(3, 3, 4, 4)])
    found, _ = reorder(graph)
    assert order(found) == [0, 2, 1, 3, 4, 5, 7, 6, 8]


@pytest.mark.parametrize("kind", [Kind.Sdpa, Kind.Softmax])
def test_attention_and_softmax_are_not_passed(template: ost.Graph, kind: ost.CapturedOpKind) -> None:
    nodes = [*chain(1, 1), (chain(1)[0], kind), *chain(2, 2, 3, 3)]
    found, report = reorder(graph_of(template, nodes))
    # Attention waits for the chain before it and takes its own turn; what follows goes beside it, not before it.
    assert order(found) == [0, 1, 2, 3, 5, 4, 6]
    assert report.numbers == {"moved": 1, "barriers_before": 4, "barriers_after": 3}
    plain, _ = reorder(graph_of(template, [one[0] if isinstance(one, tuple) else one for one in nodes]))
    assert order(plain) == [0, 3, 5, 1, 4, 6, 2]


def test_attention_is_not_pulled_ahead(template: ost.Graph) -> None:
    found, _ = reorder(graph_of(template, [*chain(1, 1, 1), (chain(2)[0], Kind.Sdpa), *chain(2, 2)]))
    assert order(found) == [0, 1, 2, 3, 4, 5]


def test_the_look_ahead_ends_after_64_nodes(template: ost.Graph) -> None:
    def far(distance: int) -> ost.Graph:
        return graph_of(template, [*chain(*[1] * distance), *chain(2, 2)])

    # Counted from the first node that is still to be placed: node 1, once node 0 is.
    assert order(reorder(far(64))[0])[:2] == [0, 64]
    assert order(reorder(far(65))[0])[:2] == [0, 1]
    assert order(reorder(far(65), look_ahead=65)[0])[:2] == [0, 65]


def test_a_node_waits_for_all_that_it_needs(template: ost.Graph) -> None:
    nodes = [
        [(1, 2, True)],
        [(1, 2, False), (2, 3, True)],
        [(2, 3, False), (3, 4, True)],
        [(1, 2, False), (3, 4, False), (4, 5, True)],  # of the first, and of the third
        *chain(9, 9),
    ]
    found, report = reorder(graph_of(template, nodes))
    assert order(found) == [0, 4, 1, 5, 2, 3]
    assert report.numbers == {"moved": 2, "barriers_before": 4, "barriers_after": 3}


def test_an_order_that_saves_nothing_is_kept(template: ost.Graph) -> None:
    graph = graph_of(template, chain(1, 1, 2))
    found, report = reorder(graph)
    assert found is graph
    assert report.numbers == {"moved": 0, "barriers_before": 1, "barriers_after": 1}
    assert "order kept" in str(report)


@pytest.mark.parametrize(("ordering", "why"), [(Ordering.BARRIERS, "by hand"), (Ordering.SERIAL, "the previous one")])
def test_an_order_that_is_not_inferred_is_not_touched(template: ost.Graph, ordering: Ordering, why: str) -> None:
    graph = graph_of(template, chain(1, 1, 2, 2)).with_nodes(graph_of(template, chain(1, 1, 2, 2)), ordering=ordering)
    found, report = reorder(graph)
    assert found is graph
    assert why in str(report)


def test_bad_arguments_are_refused(template: ost.Graph) -> None:
    with pytest.raises(ost.ArgumentError, match="expected a Graph"):
        reorder("graph")  # type: ignore[arg-type]
    with pytest.raises(ost.ArgumentError, match="look_ahead"):
        reorder(template, look_ahead=0)


# --- for all graphs ----------------------------------------------------------------------------------------------

access = st.tuples(st.integers(0, 12), st.integers(1, 3), st.booleans()).map(
    lambda one: (one[0], one[0] + one[1], one[2])
)
kinds = st.sampled_from([Kind.Other, Kind.Other, Kind.Other, Kind.Sdpa, Kind.Softmax, Kind.ElemAdd])
commands = st.tuples(st.lists(access, min_size=1, max_size=3), kinds)
anything = st.one_of(commands, commands, commands, commands, st.none(), st.just("barrier"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(anything, min_size=1, max_size=30), st.integers(1, 12))
def test_every_conflict_keeps_its_order_and_no_barrier_is_added(
    template: ost.Graph, nodes: list[Any], look_ahead: int
) -> None:
    graph = graph_of(template, nodes)
    found, report = reorder(graph, look_ahead=look_ahead)
    placed = order(found)
    place = {index: at for at, index in enumerate(placed)}
    assert sorted(placed) == list(range(len(nodes)))
    for before in range(len(nodes)):
        for after in range(before + 1, len(nodes)):
            first, second = graph[before].accesses, graph[after].accesses
            if first is None or second is None or hazards.conflicts(before, first, after, second):
                assert place[before] < place[after]
            if not graph[before].op_kind.is_reorderable():
                assert place[before] < place[after]  # nothing passes it
    assert report.numbers["barriers_after"] <= report.numbers["barriers_before"]
    assert report.numbers["barriers_after"] == needed_barriers(found)
    assert report.numbers["barriers_before"] == needed_barriers(graph)
    pulled = {index for at, index in enumerate(placed) if any(earlier < index for earlier in placed[at + 1 :])}
    assert report.numbers["moved"] == len(pulled)
    for index in pulled:
        assert index - min(placed[place[index] :]) < max(look_ahead, 1)


def needed_barriers(graph: ost.Graph) -> int:
    """By looking at every pair of nodes since the last barrier."""
    count = 0
    group: list[Any] = []
    for node in graph:
        if isinstance(node.command, Barrier):
            group = []
            continue
        assert isinstance(node.command, Dispatch)
        mine = node.accesses
        if any(mine is None or one is None or hazards.conflicts(0, one, 1, mine) for one in group):
            count += 1
            group = []
        group.append(mine)
    return count
