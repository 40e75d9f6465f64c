"""What `explain` says a graph's time consists of. Nothing here depends on how long anything takes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from calibrations import chain
from ostinato.errors import ArgumentError, GraphError
from ostinato.passes import split_by_rule
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.calibration import explain
from ostinato.profiling.explaining import Breakdown, Explanation, KernelCost, break_down
from small_kernels import KERNELS, SLOW_STEPS


def taken_apart(times: list[tuple[float, float]], edges: list[tuple[int, int]], span: float) -> Breakdown:
    start, end = np.array(times, np.float64).reshape(-1, 2).T
    return break_down(start, end, np.array(edges, np.int64).reshape(-1, 2), span)


def test_a_chain_is_its_kernels_and_what_lies_between() -> None:
    found = taken_apart([(5, 20), (22, 40), (45, 60)], [(0, 1), (1, 2)], 70)
    assert found == Breakdown((0, 1, 2), kernel_ns=48, contention_ns=0, dispatch_ns=7, ends_ns=15)
    assert found.total_ns == 70


def test_what_runs_beside_the_path_is_not_on_it() -> None:
    """The short one waits for nobody and nobody but the last waits for it."""
    found = taken_apart([(0, 100), (0, 20), (101, 110)], [(0, 2), (1, 2)], 110)
    assert found == Breakdown((0, 2), kernel_ns=109, contention_ns=0, dispatch_ns=1, ends_ns=0)


def test_a_dispatch_that_was_ready_and_found_no_room_waited_for_the_one_that_made_room() -> None:
    found = taken_apart([(0, 50), (51, 60)], [], 60)
    assert found == Breakdown((0, 1), kernel_ns=59, contention_ns=50, dispatch_ns=1, ends_ns=0)


def test_a_kernel_that_goes_on_running_elsewhere_is_no_contention() -> None:
    """The gaps of the chain are its own; that something else ran meanwhile does not make them less."""
    found = taken_apart([(0, 15), (1, 10), (14, 30), (34, 50)], [(1, 2), (2, 3)], 50)
    assert found == Breakdown((1, 2, 3), kernel_ns=41, contention_ns=0, dispatch_ns=8, ends_ns=1)


def test_an_end_that_happens_to_lie_before_a_start_is_not_what_was_waited_for() -> None:
    """Node 2 was ready at 100 and started at 110; that another ended at 102 explains the smaller part of the wait."""
    found = taken_apart([(0, 100), (50, 102), (110, 120)], [(0, 2)], 120)
    assert found.path == (0, 2)


def test_nodes_without_a_time_leave_it_to_the_overhead() -> None:
    nan = float("nan")
    found = taken_apart([(0, 10), (nan, nan), (15, 20)], [(0, 1), (1, 2)], 20)
    assert found == Breakdown((0, 2), kernel_ns=15, contention_ns=0, dispatch_ns=5, ends_ns=0)
    assert taken_apart([], [], 8) == Breakdown((), 0, 0, 0, 8)


Work = tuple[list[tuple[float, float]], list[tuple[int, int]], float]


@st.composite
def schedules(draw: st.DrawFn) -> Work:
    """Nodes that start when what they wait for has ended, or later."""
    times: list[tuple[float, float]] = []
    edges: list[tuple[int, int]] = []
    for node in range(draw(st.integers(0, 12))):
        waits_for = draw(st.sets(st.integers(0, node - 1), max_size=3)) if node else set()
        edges += [(one, node) for one in sorted(waits_for)]
        start = max((times[one][1] for one in waits_for), default=0) + draw(st.integers(0, 20))
        times.append((start, start + draw(st.integers(0, 20))))
    return times, edges, max((end for _, end in times), default=0) + draw(st.integers(0, 5))


@given(schedules())
def test_the_parts_add_up_whatever_ran_when(work: Work) -> None:
    times, edges, span = work
    found = taken_apart(times, edges, span)
    assert found.total_ns == span
    assert min(found.kernel_ns, found.dispatch_ns, found.ends_ns, found.contention_ns) >= 0
    assert found.contention_ns <= found.kernel_ns
    on_path = [times[node] for node in found.path]
    assert found.kernel_ns == sum(end - start for start, end in on_path)
    assert all(before[1] <= after[0] for before, after in pairwise(on_path))
    assert not times or on_path[-1][1] == max(end for _, end in times)


# --- on a device ----------------------------------------------------------------------------------------------


def test_a_graph_is_explained_by_the_costs_of_its_own_kernels(dev: ost.Device) -> None:
    library = dev.library(KERNELS)
    slow, x = dev.zeros(1, np.uint32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["bump"], x, threads=4)
        enc.dispatch(library["spin"], slow, SLOW_STEPS // 10, threads=1, reads=[slow, x], writes=[slow])
        enc.memory_barrier()
        enc.dispatch(library["bump"], x, threads=4)

    steps: list[tuple[int, int]] = []
    found = explain(dev.capture(encode), repetitions=3, progress=lambda what, done, total: steps.append((done, total)))
    assert (found.dispatches, found.replays, found.untimed, found.work_ns) == (3, 3, 0, None)
    assert found.breakdown is not None
    assert found.residue_ns is not None
    assert found.breakdown.path == (0, 1, 3)
    assert [(cost.kernel, cost.dispatches) for cost in found.kernels] == [("spin", 1), ("bump", 2)]
    assert sum(cost.total_ns for cost in found.kernels) == pytest.approx(found.breakdown.kernel_ns)
    assert found.breakdown.total_ns + found.residue_ns == pytest.approx(found.device_ns.estimate)
    assert found.host_ns > 0
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_split_graph_is_explained_as_a_whole(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(70):
            enc.dispatch(kernels["bump"], x, threads=4)

    graph, _ = split_by_rule(dev.capture(encode))
    assert len(graph.splits) == 1
    found = explain(graph, repetitions=2)
    assert found.breakdown is not None
    assert found.breakdown.path == tuple(range(70))


def test_where_dispatches_have_no_times_only_the_whole_is_explained() -> None:
    device = ost.open_device("cpu", sampling="command_buffers")
    x = device.zeros(4, np.float32)
    library = device.library(KERNELS)
    found = explain(device.capture(lambda enc: enc.dispatch(library["bump"], x, threads=4)), repetitions=2)
    assert (found.breakdown, found.kernels, found.residue_ns) == (None, (), None)
    assert "cannot time dispatches" in str(found)


def test_what_explain_is_not_given_right_is_refused(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    graph = chain(dev, kernels, x, y)
    for repetitions in (0, -1, True, 2.0):
        with pytest.raises(ArgumentError, match="repetitions"):
            explain(graph, params={"factor": 1.0}, repetitions=repetitions)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="factor"):
        explain(graph)


def test_the_text_names_every_part_and_the_residue() -> None:
    parts = Breakdown((0, 1, 2), kernel_ns=330_000, contention_ns=20_000, dispatch_ns=40_000, ends_ns=7_000)
    costs = tuple(KernelCost(f"k{number}", 1, 10_000.0) for number in range(7))
    took, wall = Interval(397_000, 391_000, 402_000), Interval(412_000, 400_000, 420_000)
    assert str(Explanation(50, 15, took, wall, parts, costs, 2, 1_000.0)).splitlines() == [
        "397 µs on the device (391 µs … 402 µs, median of 15 replays) for 50 dispatches",
        "  kernels on the critical path (3 dispatches): 330 µs (83%)",
        *(f"    k{number}, 1 ×: 10.0 µs (3%)" for number in range(5)),
        "    2 more kernels: 20.0 µs (5%)",
        "    while the next dispatch was ready (contention): 20.0 µs (5%)",
        "  dispatch overhead on the critical path, includes 2 dispatches without a time: 40.0 µs (10%)",
        "  start and end of the command buffer: 7.00 µs (2%)",
        "  residue (unexplained): 20.0 µs (5%)",
        "  host overhead (the call and waking up): 15.0 µs",
        "  all dispatches at the device's ceilings, data from memory: 1.00 µs",
    ]
