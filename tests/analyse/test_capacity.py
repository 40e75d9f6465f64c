"""Replays on a device of limited capacity, against workers that take one threadgroup after another."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse import capacity
from ostinato.profiling.analyse.capacity import Contention, Sharing

# What one group of each node costs, groups per node, edges, workers.
Workload = tuple[list[float], list[int], list[tuple[int, int]], int]


def run_by_groups(
    cost: list[float], groups: list[int], edges: list[tuple[int, int]], workers: int
) -> tuple[np.ndarray, np.ndarray]:
    """The oracle: every worker takes groups of the node it is at, then a node that waits, then helps the oldest one.

    Start and end of each node. `cost` is what one group takes.
    """
    size = len(cost)
    before = [{a for a, b in edges if b == node} for node in range(size)]
    unclaimed, unfinished = list(groups), list(groups)
    start: list[float | None] = [None] * size
    end: list[float | None] = [None] * size
    started: list[int] = []
    done: set[int] = set()
    busy: list[tuple[float, int, int]] = []  # (until, worker, node)
    idle = list(range(workers))
    at: dict[int, int] = {}
    now = 0.0
    while len(done) < size:
        for worker in sorted(idle):
            node = at.get(worker)
            if node is None or not unclaimed[node]:
                waiting = [n for n in range(size) if start[n] is None and before[n] <= done]
                helped = [n for n in started if unclaimed[n]]
                node = waiting[0] if waiting else helped[0] if helped else None
            if node is None:
                continue
            if start[node] is None:
                start[node] = now
                started.append(node)
            at[worker] = node
            unclaimed[node] -= 1
            idle.remove(worker)
            heapq.heappush(busy, (now + cost[node], worker, node))
        now = busy[0][0]
        while busy and busy[0][0] <= now + 1e-9:
            _, worker, node = heapq.heappop(busy)
            idle.append(worker)
            unfinished[node] -= 1
            if not unfinished[node]:
                end[node] = now
                done.add(node)
    return np.array(start), np.array(end)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Nodes of many groups each, so that the last groups matter little."""
    size = draw(st.integers(2, 5))
    workers = draw(st.integers(2, 4))
    groups = [draw(st.sampled_from([1, 120, 240])) for _ in range(size)]
    cost = [draw(st.integers(1, 4)) * (60.0 if groups[n] == 1 else 1.0) for n in range(size)]
    edges = [(a, b) for b in range(size) for a in range(b) if draw(st.integers(0, 3)) == 0]
    return cost, groups, edges, workers


def calibrated(
    before: list[tuple[int, ...]], useful: np.ndarray, workers: int, sharing: Sharing, start: Any, duration: Any
) -> Contention:
    nodes = tuple(range(len(before)))
    made = Contention(nodes, tuple(before), tuple(np.array(useful).tolist()), workers, sharing)
    return capacity.calibrated(made, np.array(start), np.array(duration))


def contention_of(
    cost: list[float], groups: list[int], edges: list[tuple[int, int]], workers: int
) -> tuple[Contention, list[int], float]:
    start, end = run_by_groups(cost, groups, edges, workers)
    order = np.lexsort((np.arange(len(cost)), start)).tolist()
    place = {node: number for number, node in enumerate(order)}
    before = [tuple(sorted(place[a] for a, b in edges if b == node)) for node in order]
    useful = np.minimum(np.array(groups), workers).astype(float)[order]
    made = calibrated(before, useful, workers, Sharing.FIRST, start[None, order], (end - start)[None, order])
    return made, order, float(end.max())


@given(workloads())
def test_the_work_that_is_read_off_adds_up_to_the_work_that_was_done(workload: Workload) -> None:
    cost, groups, _, _ = workload
    contention, _, wall = contention_of(*workload)
    assert contention.wall_ns == pytest.approx(wall)
    assert contention.work_ns.sum() == pytest.approx(np.dot(cost, groups), rel=0.1)


@given(workloads(), st.integers(0, 4))
def test_half_the_work_is_what_workers_would_make_of_it(workload: Workload, chosen: int) -> None:
    cost, groups, edges, workers = workload
    chosen %= len(cost)
    contention, order, wall = contention_of(*workload)
    if contention.residue > capacity.FITS:
        return  # then nothing is claimed
    halved = [c / 2 if n == chosen else c for n, c in enumerate(cost)]
    truth = float(run_by_groups(halved, groups, edges, workers)[1].max())
    factors = np.where(np.array(order) == chosen, 0.5, 1.0)
    found = capacity.replay(contention, contention.work_ns * factors).wall_ns
    assert found == pytest.approx(truth, abs=0.12 * wall)


def test_the_replays_of_ordinary_workloads_fit() -> None:
    generator = np.random.default_rng(1)
    residues, errors = [], []
    for _ in range(200):
        size, workers = int(generator.integers(2, 6)), int(generator.integers(2, 5))
        groups = generator.choice([1, 120, 240], size).tolist()
        cost = [float(generator.integers(1, 5)) * (60.0 if g == 1 else 1.0) for g in groups]
        edges = [(a, b) for b in range(size) for a in range(b) if generator.random() < 0.25]
        contention, order, wall = contention_of(cost, groups, edges, workers)
        residues.append(contention.residue)
        chosen = int(generator.integers(size))
        truth = run_by_groups([c / 2 if n == chosen else c for n, c in enumerate(cost)], groups, edges, workers)[1]
        found = capacity.replay(contention, contention.work_ns * np.where(np.array(order) == chosen, 0.5, 1.0)).wall_ns
        errors.append(abs(found - float(truth.max())) / wall)
    assert np.median(residues) < 0.005
    assert np.mean(np.array(residues) > capacity.FITS) < 0.05
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.05


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=6),
    st.integers(1, 8),
    st.sampled_from(list(Sharing)),
)
def test_no_worker_is_idle_that_somebody_could_use(wanted: list[int], workers: int, sharing: Sharing) -> None:
    useful = [float(min(one, workers)) for one in wanted]
    had = capacity.shares(range(len(useful)), useful, workers, sharing)
    assert sum(had) == pytest.approx(min(sum(useful), workers))
    assert all(0 < one <= most + 1e-9 for one, most in zip(had, useful, strict=True))
    if sharing is Sharing.FIRST and len(useful) <= workers:
        assert min(had) >= 1


@given(workloads())
def test_slack_is_what_a_node_can_take_longer(workload: Workload) -> None:
    contention, _, _ = contention_of(*workload)
    wall = capacity.replay(contention, contention.work_ns).wall_ns
    durations = capacity.replay(contention, contention.work_ns)
    slack = capacity.slack_of(contention, durations.end_ns - durations.start_ns)
    for node, spare in enumerate(slack.tolist()):
        pace = contention.work_ns[node] / (durations.end_ns - durations.start_ns)[node]
        longer = contention.work_ns.copy()
        longer[node] += spare * pace
        assert capacity.replay(contention, longer).wall_ns <= wall * 1.001
        longer[node] = contention.work_ns[node] + (wall + spare) * 2 * contention.workers
        assert capacity.replay(contention, longer).wall_ns > wall


@given(workloads())
def test_a_contended_stretch_is_separate_from_everything_else(workload: Workload) -> None:
    cost, groups, edges, workers = workload
    size = len(cost)
    before = [[a for a, b in edges if b == node] for node in range(size)]
    reach = np.eye(size, dtype=bool)
    for a, b in edges:
        reach[a, b] = True
    for middle in range(size):
        reach |= reach[:, [middle]] & reach[[middle], :]
    useful = np.minimum(groups, workers).astype(float)
    found = capacity.contended(range(size), before, useful, workers)
    inside = {node for nodes in found for node in nodes}
    for nodes in found:
        assert useful[nodes].sum() > workers
        for node in nodes:
            for other in set(range(size)) - set(nodes):
                assert reach[node, other] or reach[other, node]
    for node in set(range(size)) - inside:
        beside = [other for other in range(size) if not (reach[node, other] or reach[other, node])]
        assert useful[[node, *beside]].sum() <= workers or not beside


def test_workers_that_were_not_there_are_not_handed_out() -> None:
    # One after the other, although there are two workers and nobody waits for anybody.
    times = np.array([[0.0, 30.0, 100.0]]), np.array([[30.0, 70.0, 150.0]])
    contention = calibrated([(), (), ()], np.full(3, 2.0), 2, Sharing.FIRST, *times)
    run = capacity.replay(contention, contention.work_ns)
    assert run.start_ns == pytest.approx([0.0, 30.0, 100.0])
    assert run.end_ns == pytest.approx([30.0, 100.0, 250.0])
    assert run.cause == (-1, 0, 1)


def test_a_launch_holds_the_worker_that_it_waits_on() -> None:
    # The second worker takes 20 to wake up; until then the first node has only one.
    contention = calibrated(
        [(), ()], np.array([2.0, 2.0]), 2, Sharing.FIRST, np.array([[0.0, 20.0]]), np.array([[100.0, 80.0]])
    )
    assert contention.work_ns.tolist() == [100.0, 80.0]
    assert contention.gap_ns.tolist() == [0.0, 20.0]
    assert contention.residue == pytest.approx(0.0)


def test_who_was_seen_to_start_on_a_full_device_does_not_wait() -> None:
    times = np.array([[0.0, 30.0]]), np.array([[100.0, 40.0]])
    contention = calibrated([(), ()], np.array([4.0, 4.0]), 4, Sharing.PROPORTIONAL, *times)
    assert contention.joins.tolist() == [False, True]
    run = capacity.replay(contention, contention.work_ns)
    assert run.start_ns == pytest.approx([0.0, 30.0])
    assert run.end_ns == pytest.approx([100.0, 70.0])


def test_what_has_no_time_takes_none_and_passes_on() -> None:
    start, duration = np.array([[0.0, 0.0, np.nan, 50.0]]), np.array([[50.0, 50.0, np.nan, 10.0]])
    useful = np.array([2.0, 2.0, 0.0, 2.0])
    contention = calibrated([(), (), (0, 1), (2,)], useful, 2, Sharing.FIRST, start, duration)
    run = capacity.replay(contention, contention.work_ns)
    assert run.end_ns == pytest.approx([50.0, 50.0, 50.0, 60.0])
    assert run.cause[3] == 2
