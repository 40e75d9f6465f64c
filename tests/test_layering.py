"""Command lists as nested boxes in levels: no node is lost, and edges are exactly those of the nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.label_tree import Kind, LabelTree, label_tree
from ostinato.profiling.analyse.layering import layers, lifted, reduced, without_hidden

CommandList = tuple[list[str], list[int], np.ndarray]
"""Labels, kernels and edges; those lead forward."""
parts = st.sampled_from(["", "a", "b", "layer.0", "layer.1", "layer.2", "x1y2", "x3y4", "٣", "*"])
labels = st.lists(st.lists(parts, max_size=4).map("/".join), max_size=20)


@st.composite
def lists(draw: st.DrawFn) -> CommandList:
    chosen = draw(labels)
    count = len(chosen)
    kernels = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    pairs = st.tuples(st.integers(0, max(count - 2, 0)), st.integers(1, max(count - 1, 1)))
    edges = draw(st.sets(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=40)) if count > 1 else set()
    return chosen, kernels, np.array(sorted(edges), np.int64).reshape(-1, 2)


def nodes_in(tree: LabelTree, count: int) -> dict[int, list[int]]:
    """The nodes of every box, by walking up from each; -1 for all."""
    inside: dict[int, list[int]] = {-1: []}
    for node in range(count):
        box = node
        while box >= 0:
            inside.setdefault(box, []).append(node)
            assert tree.parent[box] < 0 or tree.parent[box] >= count
            box = tree.parent[box]
        inside[-1].append(node)
    return inside


def children(tree: LabelTree) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for box, parent in enumerate(tree.parent):
        made.setdefault(parent, []).append(box)
    return made


@given(lists(), st.integers(2, 6))
def test_folding_loses_no_node_and_no_group_is_empty_or_too_large(given_list: CommandList, most: int) -> None:
    chosen, kernels, _ = given_list
    tree = label_tree(chosen, kernels, most)
    inside = nodes_in(tree, len(chosen))
    assert set(inside) - {-1} == set(range(len(tree)))
    assert tree.kind[: len(chosen)] == (Kind.NODE,) * len(chosen)
    assert Kind.NODE not in tree.kind[len(chosen) :]
    for parent, boxes in children(tree).items():
        assert len(boxes) <= most
        assert parent < 0 or len(boxes) > 1 or tree.kind[boxes[0]] is Kind.ALIKE
    assert all(parent < box for box, parent in enumerate(tree.parent) if box >= len(chosen))


@given(lists())
def test_names_from_the_top_make_up_the_label(given_list: CommandList) -> None:
    chosen, kernels, _ = given_list
    tree = label_tree(chosen, kernels, most=1000)
    for node, label in enumerate(chosen):
        names, box = [], node
        while box >= 0:
            if tree.kind[box] is not Kind.ALIKE and tree.name[box]:
                names.append(tree.name[box])
            box = tree.parent[box]
        expected = "/".join(part or "(no name)" for part in label.split("/")) if label else ""
        assert "/".join(reversed(names)) == expected


@given(lists())
def test_what_is_folded_has_the_same_kernels_in_the_same_order(given_list: CommandList) -> None:
    chosen, kernels, _ = given_list
    tree = label_tree(chosen, kernels, most=1000)
    inside = nodes_in(tree, len(chosen))
    for parent, boxes in children(tree).items():
        if parent >= 0 and tree.kind[parent] is Kind.ALIKE:
            assert len({tuple(kernels[node] for node in inside[box]) for box in boxes}) == 1
            assert len({tree.name[box] for box in boxes}) == len(boxes)


def test_layers_that_are_alike_are_one_box_and_others_stand_alone() -> None:
    layer = [("norm", 0), ("attn/qkv", 1), ("attn/out", 1), ("mlp", 2)]
    nodes = [("embed", 3)]
    for number in range(6):
        nodes += [(f"decode/layer.{number}/{name}", kernel) for name, kernel in layer]
        if number == 2:
            nodes.append(("decode/layer.2/extra", 4))
    tree = label_tree([name for name, _ in nodes], [kernel for _, kernel in nodes])
    top = [tree.name[box] for box in children(tree)[-1]]
    decode = tree.name.index("decode")
    assert top == ["embed", "decode"]
    assert [(tree.name[box], tree.kind[box]) for box in children(tree)[decode]] == [
        ("layer.* (0–1, 3–5)", Kind.ALIKE),
        ("layer.2", Kind.LABEL),
    ]
    folded = children(tree)[decode][0]
    assert [tree.name[box] for box in children(tree)[folded]] == [f"layer.{n}" for n in (0, 1, 3, 4, 5)]


def test_two_kinds_of_layers_are_named_by_their_numbers() -> None:
    nodes = [(f"layer.{n}/{name}", n in (3, 7)) for n in range(8) for name in ("a", "b")]
    tree = label_tree([name for name, _ in nodes], [int(kernel) for _, kernel in nodes])
    assert [tree.name[box] for box in children(tree)[-1]] == ["layer.* (0–2, 4–6)", "layer.* (3, 7)"]


def test_thousands_of_nodes_without_labels_are_stretches() -> None:
    tree = label_tree([""] * 5000, [0] * 5000)
    top = children(tree)[-1]
    assert len(top) == 18
    assert tree.name[top[1]] == "279–556 of 5,000"
    within = children(tree)[top[1]]
    assert tree.name[within[0]] == "279–295 of 5,000"
    assert children(tree)[within[0]] == list(range(278, 295))


@given(lists())
def test_edges_between_boxes_are_exactly_those_of_their_nodes(given_list: CommandList) -> None:
    chosen, kernels, edges = given_list
    tree = label_tree(chosen, kernels, most=4)
    inside = {box: set(nodes) for box, nodes in nodes_in(tree, len(chosen)).items()}
    drawn = layers(tree, (edges[:, 0], edges[:, 1]))
    expected: Counter[tuple[int, int]] = Counter()
    for boxes in children(tree).values():
        for a in boxes:
            for b in boxes:
                count = sum(u in inside[a] and v in inside[b] for u, v in edges.tolist()) if a != b else 0
                if count:
                    expected[a, b] = count
    pairs = list(zip(drawn.before.tolist(), drawn.after.tolist(), strict=True))
    assert dict(zip(pairs, drawn.count.tolist(), strict=True)) == expected
    assert sum(expected.values()) == len(edges)


@given(lists())
def test_levels_go_down_along_every_edge_that_does_not_lead_back(given_list: CommandList) -> None:
    chosen, kernels, edges = given_list
    tree = label_tree(chosen, kernels, most=4)
    inside = nodes_in(tree, len(chosen))
    drawn = layers(tree, (edges[:, 0], edges[:, 1]))
    reached = set()
    for a, b, back in zip(drawn.before.tolist(), drawn.after.tolist(), drawn.back.tolist(), strict=True):
        assert back == (inside[a][0] > inside[b][0])
        if not back:
            assert drawn.level[a] < drawn.level[b]
            reached.add((b, int(drawn.level[b]) - int(drawn.level[a])))
    # No level is deeper than it must be.
    assert all(drawn.level[box] == 0 or (box, 1) in reached for box in range(len(tree)))
    for boxes in children(tree).values():
        by_level: dict[int, list[int]] = {}
        for box in boxes:
            by_level.setdefault(int(drawn.level[box]), []).append(int(drawn.place[box]))
        assert all(sorted(places) == list(range(len(places))) for places in by_level.values())


def test_groups_that_wait_for_each_other_are_drawn_with_an_edge_that_leads_back() -> None:
    tree = label_tree(["norm/a", "attn/a", "attn/b", "norm/b"], [0, 1, 1, 0])
    drawn = layers(tree, (np.array([0, 1, 2]), np.array([1, 2, 3])))
    norm, attn = tree.name.index("norm"), tree.name.index("attn")
    edges = {(a, b): back for a, b, back in zip(drawn.before, drawn.after, drawn.back, strict=True)}
    assert edges[norm, attn] == np.False_
    assert edges[attn, norm] == np.True_
    assert (drawn.level[norm], drawn.level[attn]) == (0, 1)


def test_boxes_of_a_level_are_ordered_to_keep_edges_short() -> None:
    # 0 → 5, 1 → 4, 2 → 3: as encoded, all three would cross.
    drawn = layers(label_tree([""] * 6, [0] * 6), (np.array([0, 1, 2]), np.array([5, 4, 3])))
    assert [int(drawn.place[node]) for node in (5, 4, 3)] == [int(drawn.place[node]) for node in (0, 1, 2)]


def reachable(count: int, pairs: list[tuple[int, int]]) -> set[tuple[int, int]]:
    below = {node: {b for a, b in pairs if a == node} for node in range(count)}
    for node in reversed(range(count)):
        below[node] |= {deep for direct in below[node] for deep in below[direct]}
    return {(a, b) for a in below for b in below[a]}


@given(lists())
def test_reduced_edges_are_the_fewest_with_the_same_order(given_list: CommandList) -> None:
    chosen, _, edges = given_list
    pairs = [(int(a), int(b)) for a, b in edges]
    before, after = reduced(len(chosen), (edges[:, 0], edges[:, 1]))
    kept = list(zip(before.tolist(), after.tolist(), strict=True))
    everything = reachable(len(chosen), pairs)
    assert set(kept) <= set(pairs)
    assert reachable(len(chosen), kept) == everything
    assert all(not any((a, m) in everything and (m, b) in everything for m in range(a, b)) for a, b in kept)


@given(lists(), st.data())
def test_edges_lead_past_hidden_nodes(given_list: CommandList, data: st.DataObject) -> None:
    chosen, _, edges = given_list
    count = len(chosen)
    hidden = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), bool)
    still, (before, after) = without_hidden(hidden, (edges[:, 0], edges[:, 1]))
    assert (still == hidden).all()
    kept = set(zip(before.tolist(), after.tolist(), strict=True))
    assert not any(hidden[a] or hidden[b] for a, b in kept)
    shown = {(a, b) for a, b in reachable(count, edges.tolist()) if not hidden[a] and not hidden[b]}
    assert reachable(count, sorted(kept)) == shown


def test_a_hidden_node_between_very_many_stays_with_its_own_edges() -> None:
    wide = 100
    edges = [(n, wide) for n in range(wide)] + [(wide, wide + 1 + n) for n in range(wide)]
    hidden = np.zeros(2 * wide + 1, bool)
    hidden[wide] = True
    still, (before, _) = without_hidden(hidden, (np.array(edges)[:, 0], np.array(edges)[:, 1]))
    assert not still.any()
    assert before.size == 2 * wide


def test_an_edge_between_neighbours_in_one_group_stays_there() -> None:
    tree = label_tree(["a/x", "a/y", "b/x"], [0, 1, 0])
    before, after = lifted(tree, (np.array([0, 1]), np.array([1, 2])))
    assert (before.tolist(), after.tolist()) == ([0, tree.name.index("a")], [1, 2])
