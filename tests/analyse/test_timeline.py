"""Busy time, spans and bubbles."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.profiling.analyse import timeline
from ostinato.profiling.analyse.columns import ABSENT
from synthetic import Synthetic, node

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda t: (t[0], t[0] + t[1])), min_size=1, max_size=25
)


def instants(pairs: list[tuple[int, int]]) -> list[int]:
    """How many intervals run at each instant [t, t + 1)."""
    return [sum(a <= t < b for a, b in pairs) for t in range(80)]


@pytest.fixture(params=[3, timeline._PIECE], autouse=True, scope="module")
def _walked_in_pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    before, timeline._PIECE = timeline._PIECE, request.param
    yield
    timeline._PIECE = before


@given(intervals)
def test_busy_is_what_counting_instants_says(pairs: list[tuple[int, int]]) -> None:
    start, end = np.array(pairs).T
    line = timeline.line_of(start, end, np.arange(len(pairs)))
    running = instants(pairs)
    assert line.busy_ns == sum(1 for n in running if n)
    assert line.sum_ns == sum(running)
    assert line.span_ns == max(end) - min(start)
    assert int((line.gap_end_ns - line.gap_begin_ns).sum()) == line.span_ns - line.busy_ns
    for after, before, begin, stop in zip(
        line.gap_after, line.gap_before, line.gap_begin_ns, line.gap_end_ns, strict=True
    ):
        assert (end[after], start[before]) == (begin, stop)
        assert not any(running[begin:stop])


@given(intervals)
def test_gaps_of_one_owner_are_added_up_and_the_longest_kept(pairs: list[tuple[int, int]]) -> None:
    start, end = np.array(pairs).T
    line = timeline.line_of(start, end, np.zeros(len(pairs), int))
    assert line.inside_ns == line.span_ns - line.busy_ns
    assert len(line.gap_begin_ns) <= line.inside_count


@given(intervals)
def test_shares_divide_every_busy_instant_among_those_who_run(pairs: list[tuple[int, int]]) -> None:
    start, end = np.array(pairs).T
    running = instants(pairs)
    expected = [sum(1 / running[t] for t in range(a, b)) for a, b in pairs]
    assert timeline.busy_share(start, end) == pytest.approx(expected)


@given(st.lists(intervals, min_size=1, max_size=6), st.randoms())
def test_every_command_buffer_has_its_own_sum_and_span(buffers: list[list[tuple[int, int]]], random: Random) -> None:
    made = Synthetic()
    for pairs in buffers:
        made.submit(made.plan([node() for _ in pairs]), pairs)
    random.shuffle(made.samples)
    found = timeline.submission_times(made.columns())
    for row, pairs in enumerate(buffers):
        running = instants(pairs)
        assert found.sum_ns[row] == sum(running)
        assert found.span_ns[row] == max(b for _, b in pairs) - min(a for a, _ in pairs)


def test_times_that_were_not_measured_are_absent() -> None:
    made = Synthetic()
    plan = made.plan([node()])
    made.submit(plan, [None])
    made.submit(plan, [(0, 0)], quality=2, start_ns=5, end_ns=9, commit_end_ns=7)
    found = timeline.submission_times(made.columns())
    assert found.interval_ns.tolist() == [ABSENT, 4]
    assert found.span_ns.tolist() == [ABSENT, ABSENT]
    assert found.queue_delay_ns.tolist() == [ABSENT, 0]
    assert found.encode_ns.tolist() == [ABSENT, ABSENT]


def two_buffers(**second: Any) -> Synthetic:
    made = Synthetic()
    plan = made.plan([node("a"), node("b")])
    made.submit(plan, [(1000, 1100), (1110, 1200)], commit_end_ns=900)
    made.submit(plan, [(2000, 2100), (2110, 2200)], **second)
    return made


def causes(made: Synthetic) -> dict[str, int]:
    (device,) = timeline.device_times(made.columns())
    assert sum(c.total_ns for c in device.causes) == device.idle_ns
    return {c.what: c.total_ns for c in device.causes}


def test_gaps_inside_a_command_buffer_are_launch_or_dependency() -> None:
    assert causes(two_buffers(commit_end_ns=1150))[timeline.LAUNCH] == 20


def test_work_committed_in_time_waited_in_the_queue() -> None:
    assert causes(two_buffers(commit_end_ns=1150)) == {timeline.QUEUE: 800, timeline.LAUNCH: 20}


def test_a_late_commit_is_split_by_what_the_host_did() -> None:
    made = two_buffers(commit_end_ns=1900, encode_begin_ns=1600, encode_end_ns=1800)
    made.span("wait", 1100, 1500)
    made.span("commit", 1850, 1900)
    made.span("wait", 1200, 1900, thread=2)  # somebody else's
    assert causes(made) == {
        "host-bound (the next commit came late; the host was waiting)": 300,
        "host-bound (the next commit came late; the host was encoding)": 200,
        "host-bound (the commit itself)": 50,
        timeline.ELSEWHERE: 150,
        timeline.QUEUE: 100,
        timeline.LAUNCH: 20,
    }


def test_idle_time_between_two_regions_is_named() -> None:
    made = two_buffers(commit_end_ns=2000, region=1)
    made.region("token", 800, 1300), made.region("token", 1700, 2300)
    made.submissions[0]["region"] = 0
    assert causes(made)[timeline.BETWEEN_REGIONS] == 800


def test_without_a_recorded_commit_the_cause_is_not_guessed() -> None:
    assert causes(two_buffers())[timeline.UNKNOWN] == 800


def test_the_longest_bubble_says_what_stood_on_both_sides() -> None:
    made = two_buffers(commit_end_ns=1150, label="token 2")
    (device,) = timeline.device_times(made.columns())
    longest = device.bubbles[0]
    assert (longest.length_ns, longest.cause) == (800, timeline.QUEUE)
    assert longest.after == "b in command buffer 1"
    assert longest.before == "a in command buffer 2 (token 2)"


def test_all_gaps_have_the_causes_of_the_summary() -> None:
    made = two_buffers(commit_end_ns=1900)
    made.span("wait", 1100, 1700)
    made.submit(0, [(2500, 2600), (2600, 2700)], commit_end_ns=2150)
    made.submit(0, [None, None], start_ns=2800, end_ns=2900)
    columns = made.columns()
    (gaps,) = timeline.device_gaps(columns).values()
    (device,) = timeline.device_times(columns)
    assert gaps.begin_ns.tolist() == [1100, 1200, 2100, 2200, 2700]
    assert gaps.end_ns.tolist() == [1110, 2000, 2110, 2500, 2800]
    assert gaps.inside.tolist() == [0, -1, 1, -1, -1]
    waiting = "host-bound (the next commit came late; the host was waiting)"
    expected = [timeline.LAUNCH, waiting, timeline.LAUNCH, timeline.QUEUE, timeline.UNKNOWN]
    assert [timeline.CAUSES[cause] for cause in gaps.cause] == expected
    assert (gaps.end_ns - gaps.begin_ns).sum() == device.idle_ns


def test_a_command_buffer_without_samples_counts_as_a_whole() -> None:
    made = two_buffers(commit_end_ns=1150)
    made.submit(0, [None, None], start_ns=2300, end_ns=2600, commit_end_ns=2000)
    (device,) = timeline.device_times(made.columns())
    assert device.basis == "dispatches and command buffers"
    assert device.busy_ns == 380 + 300
    assert device.span_ns == 1600


def test_devices_do_not_mix() -> None:
    made = two_buffers(commit_end_ns=1150)
    made.devices.append(made.devices[0].__class__("other"))
    made.submissions[1]["device"] = 1
    assert [(d.device, d.idle_ns) for d in timeline.device_times(made.columns())] == [("cpu", 10), ("other", 10)]


@given(intervals, st.lists(st.integers(-5, 90), min_size=1, max_size=10))
def test_coverage_before_an_instant_is_what_counting_says(pairs: list[tuple[int, int]], at: list[int]) -> None:
    begin, end = np.array(pairs).T
    running = instants(pairs)
    expected = [sum(1 for n in running[: max(t, 0)] if n) for t in at]
    assert timeline._covered(begin, end, np.array(at)).tolist() == expected
