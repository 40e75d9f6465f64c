"""Which dispatches are timed in which run of a list."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ostinato.backends.metal.encoding import Encoded, Group, Step, groups_of
from ostinato.backends.metal.turns import SPARSE, Turns, sampled, subsets_of

ONE = Encoded(1, True, (1, 1, 1), (1, 1, 1), (1, 1, 1), ((0, 7, 0, True),), (), ())
LISTS = st.lists(st.integers(1, 5), min_size=1, max_size=80)


def listed(sizes: list[int]) -> list[Step]:
    """Steps in groups of these sizes."""
    firsts = [(group, place) for group, size in enumerate(sizes) for place in range(size)]
    return [Step(node, group > 0 and place == 0, ONE) for node, (group, place) in enumerate(firsts)]


def timed(groups: list[Group]) -> list[int]:
    return [step.node for group in groups if group.sampled for step in group.steps]


@given(LISTS, st.integers(0, 300), st.booleans())
def test_every_run_has_every_dispatch_once_and_keeps_barriers(sizes: list[int], number: int, costly: bool) -> None:
    groups = groups_of(listed(sizes), serial=False)
    found = sampled(groups, number, subsets_of(len(groups), costly))
    nodes = [step.node for group in found for step in group.steps]
    assert sorted(nodes) == list(range(sum(sizes)))
    at = 0
    for size in sizes:  # what was between two barriers still is, and nothing else
        inside: list[int] = []
        assert found[at].barrier == (at > 0)
        while len(inside) < size:
            inside += [step.node for step in found[at].steps]
            at += 1
        assert sorted(inside) == list(range(min(inside), min(inside) + size))


@given(LISTS)
def test_the_first_run_times_everything(sizes: list[int]) -> None:
    groups = groups_of(listed(sizes), serial=False)
    assert timed(sampled(groups, 0, subsets_of(len(groups), True))) == list(range(sum(sizes)))


@given(LISTS, st.booleans())
def test_a_run_times_few_and_in_a_round_every_group_has_its_turn(sizes: list[int], costly: bool) -> None:
    groups = groups_of(listed(sizes), serial=False)
    subsets = subsets_of(len(groups), costly)
    most = -(-len(groups) // SPARSE) if costly else len(groups)
    widest, counts = max(sizes), Counter[int]()
    for number in range(1, 1 + subsets * 60):  # 60 rounds: all turns of groups of 1 to 5
        nodes = timed(sampled(groups, number, subsets))
        assert len(nodes) <= most
        assert nodes
        counts.update(nodes)
        if number == subsets * widest:
            assert len(counts) == sum(sizes)
    first = 0
    for size in sizes:
        assert [counts[node] for node in range(first, first + size)] == [60 // size] * size
        first += size


def test_two_lists_that_share_their_turns_are_both_timed_in_full() -> None:
    groups = groups_of(listed([2] * 64), serial=False)
    even, odd = set[int](), set[int]()
    for number in range(1, 2000):
        (odd if number % 2 else even).update(timed(sampled(groups, number, 32)))
    assert even == odd == set(range(128))


def test_lists_are_told_apart_by_kernels_memory_and_barriers_and_not_by_values() -> None:
    turns, steps = Turns(), listed([1, 2])
    other = [
        Step(0, False, ONE._replace(pipeline=2)),
        Step(0, False, ONE._replace(buffers=((0, 8, 0, True),))),
        Step(0, True, ONE),
        Step(0, False, ONE._replace(threads=(2, 1, 1))),
    ]
    same = [
        Step(0, False, ONE._replace(values=((1, b"x"),))),
        Step(0, False, ONE._replace(buffers=((0, 7, 64, True),))),
    ]
    assert [turns.next(steps), turns.next(steps)] == [0, 1]
    assert [turns.next([one, *steps[1:]]) for one in other] == [0] * 4
    assert [turns.next([one, *steps[1:]]) for one in same] == [2, 3]
