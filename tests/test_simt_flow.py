"""The lane pass' view of flow, on graphs made by hand and at random, against what follows from paths alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ostinato.backends.cpu.simt.code import EXIT, Refused, parse_function
from ostinato.backends.cpu.simt.flow import Flow, Region

Graph = Mapping[str, Sequence[str]]


def flow_of(edges: Graph) -> Flow:
    """The flow of a function with these blocks, of which those without successors return."""
    lines = ["define void @f(i1 %c) {"]
    for name, successors in edges.items():
        lines.append(f"{name}:")
        labels = ", ".join(f"label %{successor}" for successor in successors)
        lines.append(f"  br {'i1 %c, ' if len(successors) > 1 else ''}{labels}" if successors else "  ret void")
    return Flow(parse_function("\n".join([*lines, "}"])))


def reached(flow: Flow, start: str, without: str | None = None) -> set[str]:
    """The blocks on all paths from one, itself included, that avoid another."""
    found: set[str] = set()
    queue = [start] if start != without else []
    while queue:
        at = queue.pop()
        if at not in found:
            found.add(at)
            queue += [name for name in flow.successors[at] if name != without]
    return found


def dominates(flow: Flow, above: str, below: str) -> bool:
    return above == below or below not in reached(flow, flow.entry, without=above)


def postdominates(flow: Flow, below: str, above: str) -> bool:
    return above == below or EXIT not in reached(flow, above, without=below)


@st.composite
def graphs(draw: st.DrawFn) -> Flow:
    """Blocks with one or two successors, from all of which the exit can be reached; loops have one way in."""
    names = [f"b{number}" for number in range(draw(st.integers(2, 9)))]
    edges: dict[str, list[str]] = {}
    for number, name in enumerate(names):
        onward = names[number + 1 :][:3]
        edges[name] = [draw(st.sampled_from(onward))] if onward else []
        branches = draw(st.booleans())
        if onward and branches:
            edges[name].append(draw(st.sampled_from(names[1:])))
    try:
        return flow_of(edges)
    except Refused as refused:
        assume("two ways in" not in str(refused))
        raise


def flat(items: Sequence[object]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            assert isinstance(item, list)
            yield from flat(item)


@given(graphs())
def test_dominators_are_on_every_path(flow: Flow) -> None:
    for name in flow.order:
        above = {other for other in flow.order if dominates(flow, other, name)}
        assert above == {other for other in flow.order if flow.dominates(other, name)}
        closest = flow.dominator[name]
        assert (closest is None) == (name == flow.entry)
        assert closest is None or {o for o in flow.order if dominates(flow, o, closest)} == above - {name}
        below = {other for other in flow.order if postdominates(flow, other, name)}
        following = flow.postdominator[name]
        assert (following is None) == (name == EXIT)
        assert following is None or {o for o in flow.order if postdominates(flow, o, following)} == below - {name}


@given(graphs())
def test_loops_are_the_blocks_that_come_back_to_their_header(flow: Flow) -> None:
    closing = [(a, b) for a in flow.order for b in flow.successors[a] if dominates(flow, b, a)]
    assert {loop.header for loop in flow.loops} == {header for _, header in closing}
    for loop in flow.loops:
        latches = {source for source, header in closing if header == loop.header}
        body = {loop.header} | {
            name
            for name in flow.order
            if dominates(flow, loop.header, name) and latches & (reached(flow, name, without=loop.header) | {name})
        }
        assert loop.blocks == body
    for name in flow.order:
        sizes = [len(loop.blocks) for loop in flow.loops_of[name]]
        assert sizes == sorted(sizes, reverse=True)
        assert {loop.header for loop in flow.loops_of[name]} == {
            each.header for each in flow.loops if name in each.blocks
        }


def check_region(flow: Flow, region: Region) -> None:
    inside = region.blocks
    assert region.head not in inside
    assert region.end not in inside
    for name in inside:
        assert set(flow.predecessors[name]) <= inside | {region.head}
        assert set(flow.successors[name]) <= inside | {region.end}
        assert postdominates(flow, region.end, name)
    place = {name: at for at, name in enumerate(flat(region.items))}
    assert set(place) == inside
    assert len(list(flat(region.items))) == len(inside)
    for source in inside:
        for target in flow.successors[source]:
            closes = dominates(flow, target, source)
            assert target == region.end or closes or place[source] < place[target]
    for loop in flow.loops:
        if loop.blocks <= inside:
            places = sorted(place[name] for name in loop.blocks)
            assert places == list(range(places[0], places[0] + len(places)))


@given(graphs(), st.data())
@settings(max_examples=300)
def test_regions_cover_what_lanes_do_apart_and_have_one_way_in(flow: Flow, data: st.DataObject) -> None:
    branching = [name for name in flow.order if len(flow.successors[name]) > 1]
    divergent = data.draw(st.lists(st.sampled_from(branching), unique=True) if branching else st.just([]))
    try:
        regions = flow.regions(divergent)
    except Refused:
        return
    for number, region in enumerate(regions):
        check_region(flow, region)
        for other in regions[number + 1 :]:
            assert not (region.blocks | {region.head}) & (other.blocks | {other.head})
    for block in divergent:
        end = next(name for name in [flow.postdominator[block]] if name is not None)
        apart = reached(flow, block, without=end) - {block}
        assert any(apart | {block} <= region.blocks | {region.head} for region in regions)


DIAMOND: Graph = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
LOOP: Graph = {"a": ["b"], "b": ["c", "d"], "c": ["b"], "d": []}
BREAK: Graph = {"a": ["b"], "b": ["c", "e"], "c": ["d", "e"], "d": ["b"], "e": []}


def test_a_branch_is_a_region_from_its_block_to_where_its_ways_join() -> None:
    (region,) = flow_of(DIAMOND).regions(["%a"])
    assert (region.head, region.end, set(region.blocks)) == ("%a", "%d", {"%b", "%c"})


def test_a_loop_that_lanes_leave_apart_is_a_region_with_the_loop_in_one_piece() -> None:
    for edges, blocks in ((LOOP, {"%b", "%c"}), (BREAK, {"%b", "%c", "%d"})):
        flow = flow_of(edges)
        (region,) = flow.regions([name for name in ("%b", "%c") if len(flow.successors[name]) > 1])
        assert (region.head, region.end, set(region.blocks)) == ("%a", "%d" if edges is LOOP else "%e", blocks)
        assert len(region.items) == 1


def test_two_branches_one_after_the_other_are_two_regions() -> None:
    flow = flow_of({"a": ["b", "c"], "b": ["c"], "c": ["d", "e"], "d": ["e"], "e": []})
    assert [(r.head, r.end, set(r.blocks)) for r in flow.regions(["%a", "%c"])] == [
        ("%a", "%c", {"%b"}),
        ("%c", "%e", {"%d"}),
    ]


@pytest.mark.parametrize(
    ("edges", "reason"),
    [
        ({"a": ["b", "c"], "b": ["c", "d"], "c": ["b"], "d": []}, "a loop with two ways in"),
        ({"a": ["b", "c"], "b": ["b"], "c": []}, "a loop that never ends"),
        ({"a": ["b"], "b": ["a"]}, "it never ends"),
    ],
)
def test_flow_that_cannot_be_ordered_is_refused(edges: Graph, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        flow_of(edges)
