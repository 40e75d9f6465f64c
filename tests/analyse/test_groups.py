"""Dispatch times by kernel, label, op kind, shape and region."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.errors import ArgumentError
from ostinato.profiling.analyse import groups, regions, summarise
from ostinato.profiling.analyse.columns import ABSENT, Columns
from ostinato.profiling.analyse.timeline import submission_times
from synthetic import Synthetic, node

labels = st.sampled_from(["", "decode", "decode/layer.0", "decode/layer.1/attn", "decode/layer.1/mlp", "prefill/x"])
nodes = st.lists(st.tuples(st.sampled_from("abc"), labels), min_size=1, max_size=8)


@st.composite
def recordings(draw: st.DrawFn) -> Synthetic:
    made = Synthetic()
    for listed in draw(st.lists(nodes, min_size=1, max_size=3)):
        plan = made.plan([node(kernel, label=label) for kernel, label in listed])
        for _ in range(draw(st.integers(0, 4))):
            times = [(a, a + d) for a, d in (draw(st.tuples(st.integers(0, 999), st.integers(0, 99))) for _ in listed)]
            made.submit(plan, times, quality=[draw(st.sampled_from([0, 0, 0, 1, 2])) for _ in listed])
    return made


def one_by_one(made: Synthetic, key: Callable[[dict[str, Any]], Iterable[str]]) -> dict[str, list[int]]:
    """The same sums in a loop over samples."""
    found = defaultdict(list)
    for _, plan, number, start, end, status in made.samples:
        command = made.commands[made.plans[plan][0][number]]
        for name in key(command):
            if status != 2:
                found[name].append(end - start)
    return found


def prefixes(command: dict[str, Any]) -> list[str]:
    parts = command["label"].split("/") if command["label"] else []
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


@given(recordings())
def test_groups_are_what_a_loop_over_samples_says(made: Synthetic) -> None:
    columns = made.columns()
    spent = groups.command_times(columns)
    for found, key in (
        (groups.by_kernel(columns, spent), lambda c: [c["kernel"]]),
        (groups.by_label(columns, spent), prefixes),
    ):
        expected = one_by_one(made, key)
        assert {g.name for g in found if g.count} == {name for name, values in expected.items() if values}
        for group in found:
            values = expected[group.name]
            assert group.count == len(values)
            if not values:
                assert group.times is None
                continue
            t = group.times
            assert t is not None
            assert (t.total_ns, t.min_ns, t.max_ns) == (sum(values), min(values), max(values))
            assert t.mean_ns == pytest.approx(np.mean(values))
            assert [t.p50_ns, t.p90_ns, t.p99_ns] == pytest.approx(list(np.percentile(values, [50, 90, 99])))


@given(recordings())
def test_shares_of_busy_time_add_up_to_all_of_it(made: Synthetic) -> None:
    columns = made.columns()
    found = groups.by_kernel(columns, groups.command_times(columns))
    shares = [g.share for g in found if g.share is not None]
    assert not shares or math.isclose(sum(shares), 1.0)


def test_a_label_holds_everything_below_it_at_any_depth() -> None:
    made = Synthetic()
    paths = ["decode/layer.0/attn/sdpa", "decode/layer.0/mlp/up", "decode/layer.1/attn/sdpa", "decode/head"]
    made.submit(made.plan([node(label=p) for p in paths]), [(0, 10), (10, 30), (30, 70), (70, 150)])
    columns = made.columns()
    spent = groups.command_times(columns)
    totals = {(g.depth, g.name): g.total_ns for g in groups.by_label(columns, spent)}
    assert totals[1, "decode"] == 150
    assert totals[2, "decode/layer.0"] == 30
    assert totals[3, "decode/layer.0/attn"] == 10
    assert totals[4, "decode/layer.1/attn/sdpa"] == 40
    folded = {(g.depth, g.name): g.total_ns for g in groups.by_label(columns, spent, fold=True)}
    assert folded[4, "decode/layer.*/attn/sdpa"] == 50


def test_specialisations_of_a_kernel_are_told_apart() -> None:
    made = Synthetic()
    plan = made.plan([node("gemv", constants=(("N", "32"),)), node("gemv", constants=(("N", "64"),))])
    made.submit(plan, [(0, 10), (10, 15)])
    columns = made.columns()
    found = groups.by_kernel(columns, groups.command_times(columns))
    assert [(g.name, g.detail, g.total_ns) for g in found] == [("gemv", "[N=32]", 10), ("gemv", "[N=64]", 5)]


def test_what_ran_unsampled_is_counted_and_has_no_time() -> None:
    made = Synthetic()
    plan = made.plan([node("a"), node(kind="barrier", kernel="barrier"), node("b")])
    made.submit(plan, [(0, 5), None, None])
    made.submit(plan, [None, None, None], start_ns=9, end_ns=20, probe=True)
    made.submit(plan, [None, None, None], error="the kernel crashed")
    columns = made.columns()
    found = {g.name: g for g in groups.by_kernel(columns, groups.command_times(columns))}
    assert set(found) == {"a", "b"}
    assert (found["a"].dispatched, found["a"].count) == (2, 1)
    assert (found["b"].dispatched, found["b"].count, found["b"].times, found["b"].share) == (2, 0, None, None)


def test_shapes_and_op_kinds() -> None:
    made = Synthetic()
    small, large = node("a", groups=1, op_kind="RmsNorm"), node("a", groups=9, op_kind="RmsNorm")
    made.submit(made.plan([small, large]), [(0, 1), (1, 5)])
    columns = made.columns()
    spent = groups.command_times(columns)
    assert [(g.name, g.total_ns) for g in groups.by_op_kind(columns, spent)] == [("RmsNorm", 5)]
    assert [(g.name, g.detail) for g in groups.by_shape(columns, spent)] == [
        ("a", "threads 2304×1×1, group 256×1×1"),
        ("a", "threads 256×1×1, group 256×1×1"),
    ]


def tokens(count: int) -> Columns:
    return token_loop(count).columns()


def token_loop(count: int) -> Synthetic:
    made = Synthetic()
    plan = made.plan([node("a"), node("b")])
    outer = made.region("run", 0, 1000 * count)
    for i in range(count):
        token = made.region("token", 1000 * i, 1000 * i + 900, parent=outer)
        inner = made.region("head", 1000 * i, 1000 * i + 300, parent=token)
        made.submit(plan, [(1000 * i + 10, 1000 * i + 110), (1000 * i + 110, 1000 * i + 140)], region=inner)
        made.submit(plan, [(1000 * i + 400, 1000 * i + 500), (1000 * i + 500, 1000 * i + 530)], region=token)
    made.submit(plan, [(10**6, 10**6 + 7), (10**6 + 7, 10**6 + 9)])
    return made


def test_work_is_counted_per_token_however_deep_it_was_committed() -> None:
    columns = tokens(4)
    assert regions.repeated_region(columns) == "token"
    spent = groups.command_times(columns, regions.instances_of(columns, "token"))
    assert {g.name: g.per_instance_ns for g in groups.by_kernel(columns, spent)} == {"a": 200.0, "b": 60.0}


def test_figures_count_by_the_region_that_is_asked_for() -> None:
    columns = tokens(4)
    figures = {}
    for name in ("token", "head", "run"):
        found = summarise(columns, per=name)
        assert found.repeated == name
        figures[name] = {k.name: k.per_instance_ns or 0.0 for k in found.kernels}
    assert figures["head"]["a"] == pytest.approx(figures["token"]["a"] / 2)
    assert figures["run"]["a"] == pytest.approx(figures["token"]["a"] * 4)
    assert summarise(columns).repeated == "token"


def test_a_region_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ArgumentError, match=r"no region named 'layer' .*'token'"):
        summarise(tokens(4), per="layer")
    with pytest.raises(ArgumentError, match="there are: none"):
        summarise(Synthetic().columns(), per="layer")


def test_what_was_committed_beside_an_open_region_is_counted() -> None:
    made = token_loop(4)
    made.submit(0, [None, None], commit_begin_ns=450)  # in a token, by a thread that was not
    made.submit(0, [None, None], commit_begin_ns=950)  # between two of them
    made.submit(0, [None, None])  # nobody knows
    columns = made.columns()
    found = regions.outside(columns, "token", regions.instances_of(columns, "token"))
    assert (found.submissions, found.while_open) == (4, 1)
    made.region("token", 10**9, ABSENT)
    made.submit(0, [None, None], commit_begin_ns=2 * 10**9)
    columns = made.columns()
    assert regions.outside(columns, "token", regions.instances_of(columns, "token")).while_open == 2


def test_a_region_has_wall_time_and_device_time_per_instance() -> None:
    columns = tokens(4)
    times = submission_times(columns)
    found = {r.name: r for r in regions.by_region(columns, times.sum_ns)}
    token = found["token"]
    assert (token.instances, token.wall.p50_ns, token.submissions, token.dispatches) == (4, 900, 2, 4)
    assert token.device_sum is not None
    assert token.device_sum.p50_ns == 260
    assert found["run"].instances == 1
    head = found["head"].device_sum
    assert head is not None
    assert head.p50_ns == 130


def test_replays_left_unsampled_do_not_lower_the_figures_per_token() -> None:
    made = Synthetic()
    plan = made.plan([node("a"), node(kind="barrier", kernel="barrier"), node("b", label="x"), node("c")])
    for i in range(16):
        t = 1000 * i
        token = made.region("token", t, t + 900)
        times = [(t, t + 100), None, (t + 100, t + 140), (t + 140, t + 150)]
        if i == 5:
            made.submit(plan, [None] * 4, start_ns=t, end_ns=t + 150, probe=True, region=token)
        else:
            made.submit(plan, times, region=token)
    made.samples.remove((9, plan, 3, 9140, 9150, 0))  # lost: that token is not whole
    columns = made.columns()
    spent = groups.command_times(columns, regions.instances_of(columns, "token"))
    assert spent.instances == 14
    assert {g.name: g.per_instance_ns for g in groups.by_kernel(columns, spent)} == {"a": 100, "b": 40, "c": 10}
    assert [g.per_instance_ns for g in groups.by_label(columns, spent)] == [40]
    (region,) = regions.by_region(columns, submission_times(columns).sum_ns)
    assert region.device_sum is not None
    assert (region.instances, region.dispatches, region.device_sum.p50_ns) == (16, 3.0, 150)


def test_dispatches_that_never_ran_are_not_counted_as_ran() -> None:
    made = Synthetic()
    plan = made.plan([node("a"), node("b")])
    made.submit(plan, [(0, 5), (0, 0)], quality=[0, 2], error="b crashed")
    made.submit(plan, [None, None], status="unavailable", reason="it did not run", executed=False)
    made.submit(plan, [None, None], status="unavailable", reason="the device has no clock")
    columns = made.columns()
    found = {g.name: g.dispatched for g in groups.by_kernel(columns, groups.command_times(columns))}
    assert found == {"a": 2, "b": 1}


def test_a_region_that_was_still_open_has_no_time() -> None:
    made = Synthetic()
    made.region("token", 0, ABSENT)
    columns = made.columns()
    times = submission_times(columns)
    assert regions.by_region(columns, times.sum_ns) == []


def test_command_buffers_are_grouped_by_label() -> None:
    made = Synthetic()
    plan = made.plan([node()])
    made.submit(plan, [(0, 10)], label="x", commit_end_ns=0, encode_begin_ns=0, encode_end_ns=4)
    made.submit(plan, [(20, 50)], label="x", commit_end_ns=5)
    made.submit(plan, [None], label="y", status="unavailable", reason="no timestamps")
    columns = made.columns()
    t = submission_times(columns)
    x, y = groups.by_command_buffer(columns, t.interval_ns, t.queue_delay_ns, t.encode_ns)
    assert x.times is not None
    assert x.queue_delay is not None
    assert x.encode is not None
    assert (x.name, x.count, x.times.total_ns, x.queue_delay.max_ns, x.encode.total_ns) == ("x", 2, 40, 15, 4)
    assert (y.name, y.count, y.measured, y.times) == ("y", 1, 0, None)


def test_a_recording_of_nothing_has_no_groups() -> None:
    columns = Synthetic().columns()
    spent = groups.command_times(columns)
    assert groups.by_kernel(columns, spent) == groups.by_label(columns, spent) == groups.by_shape(columns, spent) == []


def test_a_hostile_label_costs_no_more_than_its_first_components() -> None:
    made = Synthetic()
    made.submit(made.plan([node(label="/" * 50_000)]), [(0, 1)])
    columns = made.columns()
    assert len(groups.by_label(columns, groups.command_times(columns))) == 16


def test_a_group_says_what_all_its_commands_share() -> None:
    made = Synthetic()
    where = {"file": "a.metal", "line": 3, "source_digest": "ab", "execution": "loop: its threads never meet"}
    plan = made.plan(
        [
            node("a", place="x.py:1", **where),
            node("b", **where),
            node("a", place="x.py:1", **where | {"execution": "native"}),
            node("b", **where | {"line": 4, "file": "b.metal"}),
            node("c"),
        ]
    )
    made.submit(plan, [(at, at + 10) for at in range(0, 50, 10)])
    columns = made.columns()
    kernels = {group.name: group for group in groups.by_kernel(columns, groups.command_times(columns))}
    shared = {
        name: (group.place, group.file, group.line, group.source_digest, group.execution)
        for name, group in kernels.items()
    }
    assert shared == {
        "a": ("x.py:1", "a.metal", 3, "ab", ""),
        "b": ("", "", None, "ab", "loop: its threads never meet"),
        "c": ("", "", None, "", ""),
    }
