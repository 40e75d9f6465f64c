"""Points under the roofline: sums over the dispatches of a kernel, apart where different things are known of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse.columns import Device
from ostinato.profiling.analyse.points import Point
from ostinato.profiling.analyse.summary import summarise
from synthetic import Synthetic, node

COPY, PEAK = 10e9, 100e9
CALIBRATED = Device("cpu", workers=4, clock_uncertainty_ns=50.0, copy_bytes_per_s=COPY, flops_per_s=PEAK)
DECLARED: dict[str, Any] = {"bytes_read": 3_000, "bytes_written": 1_000, "declared": True}


def points(nodes: list[tuple[dict[str, Any], int]], device: Device = CALIBRATED, runs: int = 9) -> tuple[Point, ...]:
    """The points of a list of commands with their times, one after another."""
    made = Synthetic(devices=[device])
    plan = made.plan([command for command, _ in nodes])
    for run in range(runs):
        times, at = [], 10_000_000 * run
        for _, length in nodes:
            times.append((at, at + length))
            at += length
        made.submit(plan, times)
    return summarise(made.columns()).points


def test_a_point_has_the_rates_of_its_dispatches_and_the_nearer_ceiling() -> None:
    (point,) = points([(node("k", **DECLARED, flops=8_000), 1_000)])
    assert (point.kernel, point.runs, point.mean_ns, point.share) == ("k", 9, 1_000, 1.0)
    assert point.bytes_per_s == pytest.approx(4e9)
    assert point.flops_per_s == pytest.approx(8e9)
    assert point.flops_per_byte == pytest.approx(2)
    assert point.nearer == "copy"
    assert point.efficiency == pytest.approx(0.4)
    assert not point.bytes_are_bound
    assert point.grids == ("16384×1×1 / 256×1×1",)


def test_many_flops_make_the_peak_the_nearer_ceiling() -> None:
    (point,) = points([(node("k", **DECLARED, flops=80_000), 1_000)])
    assert point.nearer == "flops"
    assert point.efficiency == pytest.approx(0.8)


def test_without_ceilings_there_are_rates_and_no_efficiency() -> None:
    (point,) = points([(node("k", **DECLARED, flops=8_000), 1_000)], Device("cpu", workers=4))
    assert point.flops_per_s == pytest.approx(8e9)
    assert (point.nearer, point.efficiency) == ("", None)


def test_what_is_known_differently_is_not_mixed() -> None:
    bound, declared, neither = points(
        [
            (node("k", bytes_read=4_000, flops=8_000), 3_000),
            (node("k", **DECLARED, flops=8_000), 2_000),
            (node("k"), 1_000),
        ]
    )
    assert bound.bytes_are_bound
    assert not declared.bytes_are_bound
    assert (neither.bytes_per_s, neither.flops_per_s, neither.flops_per_byte) == (None, None, None)


def test_a_refuted_bound_is_not_known() -> None:
    (point,) = points([(node("k", bytes_read=10**9), 1_000)])
    assert point.bytes_refuted
    assert point.bytes_per_s is None
    assert point.efficiency is None


@pytest.mark.parametrize(("second_ns", "count"), [(1_500, 1), (3_000, 2)])
def test_grids_are_apart_where_their_rates_are(second_ns: int, count: int) -> None:
    nodes = [(node("k", **DECLARED, groups=64), 1_000), (node("k", **DECLARED, groups=32), second_ns)]
    made = points(nodes)
    assert len(made) == count
    assert sum(len(point.grids) for point in made) == 2


def test_grids_with_little_time_are_taken_together() -> None:
    nodes = [(node("k", **DECLARED, groups=64), 40_000), (node("k", **DECLARED, groups=32), 10_000)]
    nodes += [(node("k", **DECLARED, groups=2 + number), 100) for number in range(5)]
    assert [len(point.grids) for point in points(nodes)] == [1, 1, 5]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.integers(1, 3),
            st.integers(100, 100_000),
            st.one_of(st.none(), st.integers(1, 10_000)),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_points_add_up_to_all_dispatches(given: list[tuple[str, int, int, int | None, bool]]) -> None:
    nodes = [
        (node(kernel, groups=groups, flops=flops, **(DECLARED if declared else {})), length)
        for kernel, groups, length, flops, declared in given
    ]
    made = points(nodes, runs=3)
    assert sum(point.runs for point in made) == 3 * len(nodes)
    assert sum(point.total_ns for point in made) == pytest.approx(3 * sum(length for _, length in nodes))
    assert sum(point.share or 0.0 for point in made) == pytest.approx(1)
    for kernel in "abc":
        mine = [each for each in given if each[0] == kernel]
        flops = sum(each[3] for each in mine if each[3] is not None)
        assert sum((point.flops or 0) * point.runs for point in made if point.kernel == kernel) == pytest.approx(
            3 * flops
        )
        moved = sum(4_000 for each in mine if each[4])
        assert sum((point.bytes_moved or 0) * point.runs for point in made if point.kernel == kernel) == pytest.approx(
            3 * moved
        )
