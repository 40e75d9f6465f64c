"""What the timeline is given: every span once, on rows where none overlaps another, and what is left out is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.profiling.analyse import summarise
from ostinato.profiling.analyse.columns import BOUNDED, MEASURED, Columns, Device, Flags
from ostinato.profiling.analyse.kernels import named
from ostinato.profiling.report.page import timeline as module
from ostinato.profiling.report.page.choice import chosen_dispatches
from ostinato.profiling.report.page.material import material
from ostinato.profiling.report.page.timeline import timeline
from pages import unpacked
from synthetic import Synthetic, node

KERNELS = ("matvec", "norm", "top_k")


def shown(columns: Columns) -> dict[str, Any]:
    made = timeline(material(columns, summarise(columns)))
    assert made is not None
    result: dict[str, Any] = unpacked(made)
    return result


def rows(device: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in device["rows"] if row["kind"] == kind]


@st.composite
def recordings(draw: st.DrawFn) -> Synthetic:
    """Overlapping dispatches on two devices, nested labels, barriers, host spans that cross."""
    made = Synthetic(devices=[Device("cpu", workers=4), Device("gpu")])
    labels = ("", "decode", "decode/layer.0", "decode/layer.0/mlp", "decode/layer.1", "sample")
    times = st.tuples(st.integers(0, 400), st.integers(0, 60)).map(lambda t: (t[0], t[0] + t[1]))
    plans = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 6))
        nodes = [
            node(draw(st.sampled_from(KERNELS)), label=draw(st.sampled_from(labels)))
            if draw(st.integers(0, 4))
            else node("barrier", kind="barrier")
            for _ in range(size)
        ]
        pairs = [(a, b) for b in range(size) for a in range(b) if draw(st.booleans())]
        plans.append((made.plan(nodes, pairs), [n["kind"] == "barrier" for n in nodes]))
    for _ in range(draw(st.integers(1, 8))):
        plan, barriers = draw(st.sampled_from(plans))
        samples = [None if barrier else draw(st.none() | times) for barrier in barriers]
        given = {"start_ns": 0, "end_ns": 500} if not any(samples) and draw(st.booleans()) else {}
        commit = draw(times)
        made.submit(
            plan, samples, device=draw(st.integers(0, 1)), commit_begin_ns=commit[0], commit_end_ns=commit[1], **given
        )
    for _ in range(draw(st.integers(0, 6))):
        made.span(draw(st.sampled_from(("wait", "compile"))), *draw(times), thread=draw(st.integers(1, 2)), name="x")
    if draw(st.booleans()):
        made.region("token", *draw(times))
    return made


@settings(max_examples=60, deadline=None)
@given(recordings())
def test_every_span_is_on_one_row_and_rows_do_not_overlap(made: Synthetic) -> None:
    columns = made.columns()
    result = shown(columns)
    base, names = result["base"], result["names"]
    every = [*(row for device in result["devices"] for row in device["rows"])]
    every += [row for thread in result["threads"] for row in thread["rows"]]
    for row in every:
        end = row["begin"] + row["duration"]
        assert (row["begin"][1:] >= end[:-1]).all()
        assert row["begin"].min() >= 0
        assert end.max() <= result["span_ns"]
    assert not result["notes"]
    # Dispatches, with the command of each.
    subs, plans, samples = columns.submissions, columns.plans, columns.samples
    expected = sorted(
        (
            columns.devices[subs.device[s]].name,
            int(a - base),
            int(b - base),
            int(subs.ordinal[s]),
            int(plans.command[n]),
        )
        for s, n, a, b in zip(samples.submission, samples.node, samples.start_ns, samples.end_ns, strict=True)
    )
    found = []
    groups = summarise(columns).kernels
    for device in result["devices"]:
        kernels = [
            named(groups[kernel].name, groups[kernel].detail) if kernel >= 0 else names[title]
            for kernel, title in zip(device["commands"]["kernel"], device["commands"]["title"], strict=True)
        ]
        for row in rows(device, "dispatches"):
            for at, length, of, bar in zip(row["begin"], row["duration"], row["node"], row["buffer"], strict=True):
                command = device["nodes"]["command"][of]
                found.append((device["name"], at, at + length, device["buffers"]["ordinal"][bar], kernels[command]))
    assert sorted(found) == sorted((*facts, columns.commands.title(command)) for *facts, command in expected)
    # Host threads.
    spans = [(a - base, b - base) for _, _, a, b, _ in made.spans] + [
        (a - base, b - base) for _, a, b, _ in made.regions
    ]
    spans += [(s["commit_begin_ns"] - base, s["commit_end_ns"] - base) for s in made.submissions]
    drawn = [
        (begin, begin + length)
        for thread in result["threads"]
        for row in thread["rows"]
        for begin, length in zip(row["begin"], row["duration"], strict=True)
    ]
    assert sorted(drawn) == sorted(spans)


def overlapping(samples: list[tuple[int, ...]]) -> bool:
    """Whether one starts before all that started before it have ended."""
    times = sorted((start, position, end) for position, (_, _, _, start, end, _) in enumerate(samples))
    return any(start < max(end for *_, end in times[:at]) for at, (start, *_) in enumerate(times) if at)


@settings(max_examples=40, deadline=None)
@given(recordings())
def test_a_label_lasts_as_long_as_what_it_is_around(made: Synthetic) -> None:
    columns = made.columns()
    result = shown(columns)
    expected = []
    by_submission: dict[int, list[tuple[str, int, int]]] = {}
    overlap = {d: overlapping([s for s in made.samples if made.submissions[s[0]]["device"] == d]) for d in (0, 1)}
    by_time = [s for s in made.samples if not overlap[made.submissions[s[0]]["device"]]]
    by_number = [s for s in made.samples if overlap[made.submissions[s[0]]["device"]]]
    for submission, plan, number, start, end, _ in [*sorted(by_number), *sorted(by_time, key=lambda s: (s[3], s[2]))]:
        label = made.commands[made.plans[plan][0][number]]["label"]
        by_submission.setdefault(submission, []).append((label, start - result["base"], end - result["base"]))
    for dispatches in by_submission.values():
        for depth in range(3):
            open_run: list[tuple[str, int, int]] = []
            for label, start, end in [*dispatches, ("", 0, 0)]:
                parts = label.split("/") if label else []
                prefix = "/".join(parts[: depth + 1]) if len(parts) > depth else ""
                if open_run and open_run[0][0] != prefix:
                    expected.append((open_run[0][0], min(r[1] for r in open_run), max(r[2] for r in open_run)))
                    open_run = []
                if prefix:
                    open_run.append((prefix, start, end))
    found = [
        (result["names"][name], begin, begin + length)
        for device in result["devices"]
        for row in rows(device, "labels")
        for name, begin, length in zip(row["name"], row["begin"], row["duration"], strict=True)
    ]
    assert sorted(found) == sorted(expected)


@settings(max_examples=40, deadline=None)
@given(recordings())
def test_dependencies_are_those_of_the_command_lists(made: Synthetic) -> None:
    columns = made.columns()
    result = shown(columns)
    for number, device in enumerate(columns.devices):
        ran = {s for s, *_ in made.samples if made.submissions[s]["device"] == number}
        expected = sorted(
            (before, after)
            for plan in {made.submissions[s]["plan"] for s in ran}
            for before, after in made.plans[plan][1]
        )
        of_device = [found for found in result["devices"] if found["name"] == device.name]
        found = [
            (int(d["nodes"]["number"][after - back]), int(d["nodes"]["number"][after]))
            for d in of_device
            for after, back in zip(d["edges"]["after"], d["edges"]["back"], strict=True)
        ]
        assert sorted(found) == expected


def repeated(runs: int, size: int = 4, slow: int = -1) -> Synthetic:
    made = Synthetic()
    plan = made.plan([node(f"k{i}", label=f"layer.{i}") for i in range(size)])
    for run in range(runs):
        t = 100_000 * run
        length = 9000 // size * (2 if run == slow else 1)
        made.submit(plan, [(t + i * length, t + (i + 1) * length - 100) for i in range(size)], commit_end_ns=t - 500)
    return made


def choose(columns: Columns, most: int) -> Flags:
    """With each command as a kernel of its own."""
    return chosen_dispatches(columns, columns.samples, columns.plans.command[columns.samples.node], most)


def test_where_all_fit_all_are_chosen() -> None:
    columns = repeated(10).columns()
    assert choose(columns, 40).all()


@given(st.integers(1, 60), st.integers(1, 12), st.integers(12, 300))
def test_no_more_are_chosen_than_there_is_room_for(runs: int, size: int, most: int) -> None:
    columns = repeated(runs, size).columns()
    chosen = choose(columns, most)
    assert 0 < chosen.sum() <= most
    whole = np.bincount(columns.samples.submission[chosen], minlength=runs)
    if size <= most // 10:
        assert set(whole.tolist()) <= {0, size}
        assert whole[0] == size


def test_the_slowest_run_is_chosen_and_the_others_are_spread() -> None:
    columns = repeated(1000, slow=617).columns()
    chosen = np.unique(columns.samples.submission[choose(columns, 80)])
    assert 617 in chosen
    assert {0, 1, 2} <= set(chosen.tolist())
    assert np.diff(chosen).max() <= 1000 / 10


def test_the_slowest_dispatch_of_a_kernel_is_chosen() -> None:
    made = repeated(1000)
    submission, plan, number, start, end, status = made.samples[4 * 731 + 2]
    made.samples[4 * 731 + 2] = submission, plan, number, start, end + 90, status
    columns = made.columns()
    chosen = choose(columns, 80)
    assert 731 in columns.samples.submission[chosen]


def test_of_one_large_command_buffer_the_longest_are_chosen() -> None:
    made = Synthetic()
    lengths = np.random.default_rng(1).permutation(500) + 1
    starts = np.cumsum(np.append(0, lengths[:-1]))
    times = [(int(a), int(a + n)) for a, n in zip(starts, lengths, strict=True)]
    made.submit(made.plan([node() for _ in lengths]), times)
    columns = made.columns()
    chosen = choose(columns, 100)
    assert chosen.sum() == 100
    assert lengths[chosen].min() == 401


def test_command_buffers_of_the_longest_regions_are_chosen() -> None:
    made = repeated(1000)
    for run in range(1000):
        made.region("token", 100_000 * run - 10, 100_000 * run + 50_000 + (20_000 if run in (333, 701) else run % 7))
    columns = made.columns()
    chosen = set(columns.samples.submission[choose(columns, 120)].tolist())
    assert {333, 701} <= chosen


def test_what_is_left_out_is_said_and_never_looks_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_DISPATCHES", 80)
    monkeypatch.setattr(module, "MOST_BUFFERS", 100)
    monkeypatch.setattr(module, "MOST_GAPS", 50)
    monkeypatch.setattr(module, "MOST_HOST_SPANS", 30)
    made = repeated(1000)
    for run in range(100):
        made.span("wait", 1000 * run, 1000 * run + run)
    result = shown(made.columns())
    (device,) = result["devices"]
    buffers = device["buffers"]
    assert buffers["count"].sum() == 1000
    assert len(buffers["count"]) < 150
    assert (buffers["count"][buffers["shown"] > 0] == 1).all()
    (bars,) = rows(device, "buffers")
    for run in range(1000):  # every command buffer lies inside a bar
        bar = np.searchsorted(bars["begin"], 100_000 * run - result["base"] + 1, side="right") - 1
        assert bars["begin"][bar] + bars["duration"][bar] >= 100_000 * run - result["base"] + 8900
    assert sum(len(row["begin"]) for row in rows(device, "dispatches")) == 80
    assert len(rows(device, "idle")[0]["begin"]) == 50
    (thread,) = result["threads"]
    assert sorted(np.concatenate([row["duration"] for row in thread["rows"]]).tolist()) == list(range(70, 100))
    said = " ".join(result["notes"])
    assert "80 of 4,000 timed dispatches are shown, those of 20 of 1,000 command buffers" in said
    assert "1,000 command buffers are shown as" in said
    assert "Of 100 spans of host threads the 30 longest are shown" in said


def test_a_recording_in_which_nothing_has_a_time_has_no_timeline() -> None:
    made = Synthetic()
    made.submit(made.plan([node()]), [None])
    columns = made.columns()
    assert timeline(material(columns, summarise(columns))) is None


def test_more_lanes_than_rows_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 4)
    made = Synthetic()
    made.submit(made.plan([node() for _ in range(7)], []), [(i, 1000 + i) for i in range(7)])
    result = shown(made.columns())
    assert len(rows(result["devices"][0], "dispatches")) == 4
    assert "3 dispatches that did not fit on 4 rows are left out" in result["notes"][0]


def test_a_time_that_is_only_bounded_is_marked() -> None:
    made = Synthetic()
    made.submit(made.plan([node(), node()]), [(0, 100), (200, 300)], quality=[MEASURED, BOUNDED])
    (row,) = rows(shown(made.columns())["devices"][0], "dispatches")
    assert row["bounded"].tolist() == [0, 1]
    assert "bounded" not in rows(shown(repeated(2).columns())["devices"][0], "dispatches")[0]


@pytest.mark.parametrize("most", [20, 2])
def test_command_buffers_that_failed_are_never_lost_in_a_bar(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(module, "MOST_DISPATCHES", 40)
    monkeypatch.setattr(module, "MOST_BUFFERS", most)
    made = repeated(200)
    for run in (55, 57, 133):
        made.submissions[run]["error"] = "out of memory"
    result = shown(made.columns())
    buffers = result["devices"][0]["buffers"]
    assert buffers["failed"].sum() == 3
    assert buffers["count"].sum() == 200
    if most > 3:
        alone = buffers["failed"] > 0
        assert sorted(buffers["ordinal"][alone].tolist()) == [56, 58, 134]
        assert (buffers["count"][alone] == 1).all()
        assert {result["names"][number] for number in buffers["error"][alone]} == {"out of memory"}
    said = "have bars of their own" if most > 3 else "are too many for bars of their own"
    assert said in " ".join(result["notes"])


def test_spans_of_a_thread_that_do_not_fit_on_its_rows_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 4)
    made = Synthetic()
    for at in range(7):  # on rows of their own
        made.span("wait", at, 1000 + at)
    for at in range(6):  # inside each other
        made.span("compile", 3000 + at, 4000 - at)
    for at in range(4):
        made.span("wait", 100 * at, 100 * at + 50, thread=2)
    result = shown(made.columns())
    first, second = result["threads"]
    assert sum(len(row["begin"]) for row in first["rows"]) == 5
    assert len(second["rows"]) == 1
    assert result["notes"] == [
        "8 spans of host threads are left out: they did not fit on the 4 rows of their thread.",
    ]
