"""The instances of a region: when their command buffers ran, and which kernel made the slow ones slow."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.columns import ABSENT
from ostinato.profiling.analyse.instances import Instances, instances, kernel_excess, outline
from ostinato.profiling.analyse.timeline import submission_times
from synthetic import Synthetic, node


def tokens(made: Synthetic) -> Instances:
    columns = made.columns()
    return instances(columns, "token", submission_times(columns).sum_ns)


Intervals = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda at: (at[0], at[0] + at[1]))


@given(st.lists(st.tuples(Intervals, st.lists(Intervals, max_size=4)), min_size=1, max_size=5))
def test_running_time_is_the_union_of_command_buffers_inside_the_instance(
    regions: list[tuple[tuple[int, int], list[tuple[int, int]]]],
) -> None:
    made = Synthetic()
    plan = made.plan([node("k")])
    for (begin, end), buffers in regions:
        region = made.region("token", begin, end)
        inner = made.region("step", begin, end, parent=region)
        for interval in buffers:
            made.submit(plan, [interval], region=inner)
    each = tokens(made)
    assert len(each) == len(regions)
    for at, row in enumerate(each.row.tolist()):
        (begin, end), buffers = regions[row // 2]
        covered = {moment for low, high in buffers for moment in range(low, high)} & set(range(begin, end))
        assert each.running_ns[at] == len(covered)
        assert each.submissions[at] == len(buffers)
        assert each.wall_ns[at] == end - begin
        assert each.dispatch_ns[at] == (sum(high - low for low, high in buffers) if buffers else ABSENT)
    assert (np.diff(each.begin_ns) >= 0).all()


def test_an_instance_with_an_untimed_command_buffer_has_no_times_of_the_device() -> None:
    made = Synthetic()
    plan = made.plan([node("k")])
    for begin in (0, 100):
        region = made.region("token", begin, begin + 50)
        made.submit(plan, [(begin, begin + 10)], region=region)
    made.submit(plan, [None], region=1)
    each = tokens(made)
    assert each.dispatch_ns.tolist() == [10, ABSENT]
    assert each.running_ns.tolist() == [10, ABSENT]


def test_the_kernel_that_took_longer_is_named() -> None:
    made = Synthetic()
    plan = made.plan([node("steady"), node("slow")])
    for number in range(10):
        begin, extra = 1000 * number, 300 if number == 7 else 0
        region = made.region("token", begin, begin + 500)
        made.submit(plan, [(begin, begin + 50), (begin + 50, begin + 100 + extra)], region=region)
    columns, each = made.columns(), tokens(made)
    excess = kernel_excess(columns, each, "token", np.array([0, 1]), np.array([7, 0]), 2)
    assert excess.tolist() == [[0.0, 270.0], [0.0, -30.0]]


@given(st.lists(st.integers(0, 1000), max_size=300), st.integers(2, 40))
def test_an_outline_keeps_the_extremes(values: list[int], most: int) -> None:
    given = np.array(values, np.int64)
    kept = np.arange(given.size)[-1:]
    chosen = outline(given, most, kept)
    assert len(chosen) == len(values) if len(values) <= most else len(chosen) <= most + 1
    assert set(kept.tolist()) <= set(chosen.tolist())
    assert (np.diff(chosen) > 0).all()
    if values:
        assert given[chosen].min() == given.min()
        assert given[chosen].max() == given.max()
