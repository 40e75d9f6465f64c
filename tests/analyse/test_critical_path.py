"""Longest paths, slack and what-ifs, against every path enumerated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse import capacity
from ostinato.profiling.analyse import critical_path as cp
from ostinato.profiling.analyse.capacity import Sharing
from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.schedules import schedules
from synthetic import Synthetic, node, wandering

# Nodes, edges, and the start and duration of each node.
Ran = tuple[int, list[tuple[int, int]], np.ndarray, np.ndarray]


@st.composite
def graphs(draw: st.DrawFn) -> Ran:
    """A plan that ran as it should: every node a gap after its predecessors."""
    size = draw(st.integers(1, 8))
    edges = [(a, b) for b in range(size) for a in range(b) if draw(st.booleans())]
    duration = np.array([draw(st.integers(0, 50)) for _ in range(size)], float)
    gap = np.array([draw(st.integers(0, 9)) for _ in range(size)], float)
    start = np.zeros(size)
    for b in range(size):
        start[b] = max((start[a] + duration[a] for a, after in edges if after == b), default=0.0) + gap[b]
    return size, edges, start, duration


def made(size: int, edges: list[tuple[int, int]], start: np.ndarray, duration: np.ndarray, **rest: Any) -> cp.Schedule:
    pairs = np.array(edges, np.int64).reshape(-1, 2).T
    return cp.schedule(0, 1, start, duration, float((start + duration).max()), (pairs[0], pairs[1]), **rest)


def paths(size: int, edges: list[tuple[int, int]]) -> list[list[int]]:
    """Every path from a node without predecessors to any node."""
    before = {b: [a for a, after in edges if after == b] for b in range(size)}

    def ending_in(n: int) -> list[list[int]]:
        return [[n]] if not before[n] else [[*path, n] for a in before[n] for path in ending_in(a)]

    return [path for n in range(size) for path in ending_in(n)]


@given(graphs())
def test_the_critical_path_is_the_longest_of_all_paths(graph: Ran) -> None:
    size, edges, start, duration = graph
    plan = made(*graph)
    cost = plan.gap_ns + duration
    lengths = [(cost[path].sum(), path) for path in paths(size, edges)]
    found = cp.critical_path(plan)
    assert cost[list(found.nodes)].sum() == pytest.approx(max(lengths)[0])
    assert list(found.nodes) in [path for _, path in lengths]
    assert cp.ends_of(plan, duration) == pytest.approx(start + duration)


@given(graphs())
def test_slack_is_how_much_longer_a_node_may_take(graph: Ran) -> None:
    size, _, _, duration = graph
    plan = made(*graph)
    slack = cp.critical_path(plan).slack_ns
    for n in range(size):
        for extra, grows in ((slack[n], 0.0), (slack[n] + 3, 3.0)):
            longer = duration.copy()
            longer[n] += extra
            assert cp.wall_savings(plan, longer) == pytest.approx(-grows)


@given(graphs(), st.integers(0, 7))
def test_a_what_if_is_the_longest_path_with_the_new_durations(graph: Ran, chosen: int) -> None:
    size, edges, _, duration = graph
    plan = made(*graph)
    halved = np.where(np.arange(size) == chosen % size, duration / 2, duration)
    before, after = (max((plan.gap_ns + d)[path].sum() for path in paths(size, edges)) for d in (duration, halved))
    both = cp.wall_savings(plan, np.stack([duration, halved], axis=1))
    assert both == pytest.approx([0.0, before - after])


def test_a_kernel_off_the_path_saves_nothing() -> None:
    plan = made(3, [(0, 2), (1, 2)], np.array([0.0, 0.0, 105.0]), np.array([100.0, 40.0, 10.0]))
    assert cp.wall_savings(plan, np.array([100.0, 20.0, 10.0])) == 0.0
    assert cp.wall_savings(plan, np.array([50.0, 40.0, 10.0])) == 50.0
    assert cp.critical_path(plan).slack_ns.tolist() == [0.0, 60.0, 0.0]


def test_launch_gaps_stay_as_measured() -> None:
    chain = made(3, [(0, 1), (1, 2)], np.array([5.0, 25.0, 55.0]), np.array([10.0, 10.0, 10.0]))
    assert chain.gap_ns.tolist() == [5.0, 10.0, 20.0]
    assert cp.wall_savings(chain, np.zeros(3)) == 30.0
    assert cp.critical_path(chain).gap_ns == 35.0


def test_on_a_full_device_independent_kernels_wait_for_each_other() -> None:
    times = np.array([0.0, 98.0]), np.array([100.0, 100.0])
    free = made(2, [], *times)
    full = made(2, [], *times, workers=cp.Workers(4, np.array([4.0, 4.0]), Sharing.PROPORTIONAL))
    halved = np.array([50.0, 100.0])
    assert cp.wall_savings(free, halved) == 0.0
    assert cp.wall_savings(full, halved) == pytest.approx(50.0, abs=1.5)
    assert cp.critical_path(full).nodes == (0, 1)
    roomy = made(2, [], *times, workers=cp.Workers(4, np.array([1.0, 3.0])))
    assert not roomy.contention
    assert cp.wall_savings(roomy, halved) == 0.0


def test_contention_between_two_others_moves_what_follows() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    start, duration = np.array([0.0, 15.0, 15.0, 120.0]), np.array([10.0, 100.0, 100.0, 20.0])
    plan = made(4, edges, start, duration, workers=cp.Workers(2, np.full(4, 2.0)))
    (stretch,) = plan.contention
    assert stretch.nodes == (1, 2)
    assert cp.ends_of(plan, duration) == pytest.approx(start + duration)
    columns = duration[:, None] * np.array([[0.5, 1, 1, 1], [1, 0.5, 1, 1], [1, 0.5, 0.5, 1], [1, 1, 1, 0.5]]).T
    assert cp.wall_savings(plan, columns) == pytest.approx([5.0, 25.0, 50.0, 10.0])
    found = cp.critical_path(plan)
    assert found.nodes[0] == 0
    assert found.nodes[-1] == 3
    assert found.slack_ns == pytest.approx(np.zeros(4), abs=0.2)


def test_a_node_without_a_time_passes_its_predecessors_on() -> None:
    start, duration = np.array([0.0, np.nan, 30.0]), np.array([10.0, np.nan, 5.0])
    plan = made(3, [(0, 1), (1, 2)], np.nan_to_num(start), np.nan_to_num(duration))
    plan = cp.schedule(0, 1, start, duration, 35.0, (np.array([0, 1]), np.array([1, 2])))
    assert cp.ends_of(plan, plan.duration_ns).tolist() == [10.0, 10.0, 35.0]
    assert cp.critical_path(plan).nodes == (0, 1, 2)


def test_medians_that_contradict_each_other_leave_no_negative_gap_and_no_node_out() -> None:
    chain = [(0, 1), (1, 2)]
    plan = made(3, chain, np.array([0.0, 8.0, 8.5]), np.array([10.0, 1.0, 0.0]))
    assert plan.gap_ns.tolist() == [0.0, 0.0, 0.0]
    found = cp.critical_path(plan)
    assert found.nodes == (0, 1, 2)
    assert found.gap_ns == 0.0
    assert cp.wall_savings(plan, np.array([5.0, 1.0, 0.0])) == 5.0


def test_slack_under_contention_is_what_idle_workers_can_take_up() -> None:
    # One group runs for 100; beside it three workers do 60 of work each and are idle afterwards.
    edges, times = [(0, 2), (1, 2)], (np.array([0.0, 0.0, 100.0]), np.array([100.0, 60.0, 10.0]))
    plan = made(3, edges, *times, workers=cp.Workers(4, np.array([1.0, 4.0, 4.0])))
    assert cp.critical_path(plan).slack_ns == pytest.approx([0.0, 40.0, 0.0], abs=0.2)
    assert cp.wall_savings(plan, np.array([100.0, 30.0, 10.0])) == 0.0
    assert cp.wall_savings(plan, np.array([50.0, 60.0, 10.0])) == pytest.approx(42.5)


def test_where_no_replay_fits_nothing_is_claimed() -> None:
    columns = wandering().columns()
    (plan,) = schedules(columns, 0, warm_ups(columns)).plans
    assert not plan.contention
    assert plan.unknown is not None
    assert plan.unknown.tolist() == [True, True, True, False]
    assert np.isnan(cp.critical_path(plan).slack_ns).tolist() == [True, True, True, False]


def repeated(count: int) -> Synthetic:
    made = Synthetic()
    plan = made.plan([node("a"), node(kind="barrier", kernel="barrier"), node("b")])
    for i in range(count):
        t = 10_000 * i
        extra = 5000 if i == 0 else i % 3
        made.submit(plan, [(t, t + 100 + extra), None, (t + 120 + extra, t + 200 + extra)])
    return made


def test_the_schedule_of_a_plan_is_the_median_without_the_warm_up() -> None:
    columns = repeated(7).columns()
    warm = warm_ups(columns)
    assert warm.tolist() == [True] + [False] * 6
    found = schedules(columns, 0, warm)
    (plan,) = found.plans
    assert plan.submissions == 7
    assert plan.duration_ns.tolist() == [101.0, 0.0, 80.0]
    assert plan.wall_ns == 201.0
    (savings,) = found.savings(lambda run: run.duration_ns[:, None] * np.array([[0.5, 1], [1, 1], [1, 0.5]]))
    assert (savings.submissions, savings.undisturbed) == (7, 6)
    assert savings.saved_ns.tolist() == [[50.5, 40.0]]


def test_two_submissions_are_too_few_to_set_one_aside() -> None:
    assert not warm_ups(repeated(2).columns()).any()


def test_samples_out_of_order_and_missing_are_put_right() -> None:
    made = repeated(5)
    made.samples = [s for s in reversed(made.samples) if (s[0], s[2]) != (2, 2)]
    columns = made.columns()
    (plan,) = schedules(columns, 0, warm_ups(columns)).plans
    assert plan.duration_ns[2] == 80.0


def test_a_plan_that_was_never_sampled_is_left_out() -> None:
    made = Synthetic()
    made.submit(made.plan([node()]), [None], start_ns=0, end_ns=9)
    columns = made.columns()
    assert schedules(columns, 0, warm_ups(columns)).plans == ()


def test_a_thousand_nodes_and_ten_what_ifs_take_no_time() -> None:
    size = 1000
    start = np.arange(size) * 10.0
    plan = made(size, [(i, i + 1) for i in range(size - 1)], start, np.full(size, 8.0))
    many = np.repeat(plan.duration_ns[:, None], 10, axis=1) / 2
    assert cp.wall_savings(plan, many) == pytest.approx(np.full(10, 4.0 * size))


def test_one_of_many_stretches_may_be_off_where_all_together_fit() -> None:
    made, generator = Synthetic(), np.random.default_rng(3)
    layers = 40
    edges = [edge for n in range(0, 3 * layers, 3) for edge in ((n, n + 1), (n, n + 2), (n + 1, n + 3), (n + 2, n + 3))]
    plan = made.plan([node("k") for _ in range(3 * layers + 1)], edges)
    for run in range(9):
        at, times = 10**9 * run, []
        for _ in range(layers):
            times.append((at, at + 5000))
            lengths = generator.integers(8_500, 11_500, 2)
            times += [(at + 5000, at + 5000 + int(one)) for one in lengths]
            at += 5000 + int(lengths.max())
        made.submit(plan, [*times, (at, at + 5000)])
    columns = made.columns()
    found = schedules(columns, 0, warm_ups(columns))
    (schedule,) = found.plans
    residues = [stretch.residue for stretch in schedule.contention]
    assert len(residues) == layers
    assert found.residue == pytest.approx(np.mean(residues), rel=0.05)
    assert found.residue is not None
    assert max(residues) > found.residue
    assert found.residue < capacity.FITS


def beside(late: bool, runs: int = 12, workers: int = 2) -> Synthetic:
    """A long kernel beside a short one, and one that waits for both; a late worker leaves both to the other."""
    made = Synthetic(devices=[Device("cpu", "cpu", clock_uncertainty_ns=50.0, workers=workers, first_come=True)])
    small = {"groups": 1, "bytes_read": 4, "declared": True}
    plan = made.plan([node("long", **small), node("short", **small), node("join", **small)], [(0, 2), (1, 2)])
    for run in range(runs):
        t = 10_000_000 * run
        short = (t + 751_000, t + 826_000) if late else (t, t + 75_000)
        joined = max(short[1], t + 750_000)
        made.submit(plan, [(t, t + 750_000), short, (joined, joined + 1_000)])
    return made


@pytest.mark.parametrize("late", [True, False])
def test_a_worker_that_came_late_does_not_make_a_schedule_that_must_be(late: bool) -> None:
    """The short one started when the long one ended, and would start earlier if that ended earlier."""
    columns = beside(late).columns()
    found = schedules(columns, 0, warm_ups(columns))
    (savings,) = found.savings(lambda run: run.duration_ns[:, None] * np.array([[0.5, 1], [1, 0.5], [1, 1]]))
    long, short = savings.saved_ns.mean(axis=0)
    assert long == pytest.approx(375_000, rel=0.01)
    assert short == pytest.approx(37_500 if late else 0, rel=0.01)
    (plan,) = found.plans
    assert plan.predecessors[1] == ((0,) if late else ())


def test_a_short_launch_latency_is_no_wait_for_a_worker() -> None:
    made = Synthetic(devices=[Device("cpu", "cpu", clock_uncertainty_ns=50.0, workers=2, first_come=True)])
    small = {"groups": 1, "bytes_read": 4, "declared": True}
    plan = made.plan([node("a", **small), node("b", **small), node("c", **small)], [(0, 2)])
    made.submit(plan, [(0, 100_000), (0, 101_000), (102_000, 200_000)])
    columns = made.columns()
    (found,) = schedules(columns, 0, warm_ups(columns)).plans
    assert found.predecessors[2] == (0,)
