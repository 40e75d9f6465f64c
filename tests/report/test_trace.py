"""Traces are what Perfetto and Chrome read: tracks, slices, arrows."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampled import HOSTILE, decoder, hostile
from trace_format import Event, validate

import ostinato as ost
from keep_recording import KEPT
from ostinato import demo
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.columns import Columns, Device, usable
from ostinato.profiling.recording import open_recording
from ostinato.profiling.report import trace, write_trace
from synthetic import Synthetic, node


def written(made_or_columns: Synthetic | Columns) -> list[Event]:
    columns = made_or_columns if isinstance(made_or_columns, Columns) else made_or_columns.columns()
    out = io.StringIO()
    count = write_trace(columns, out)
    events = validate(out.getvalue())
    assert len(events) == count
    return events


def slices(events: list[Event], category: str) -> list[Event]:
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def flows(events: list[Event], category: str) -> list[Event]:
    return [e for e in events if e["ph"] in "sf" and e["cat"] == category]


def counted(events: list[Event], name: str) -> list[tuple[Any, ...]]:
    return [(e["ts"], *e["args"].values()) for e in events if e["ph"] == "C" and e["name"] == name]


def test_processes_threads_and_devices_have_names() -> None:
    events = written(decoder())
    names = {(e["name"], e["args"].get("name")) for e in events if e["ph"] == "M"}
    assert {("process_name", "device cpu"), ("thread_name", "command buffers"), ("thread_name", "dispatches")} <= names
    assert any(name == "process_name" and value.startswith("host process") for name, value in names if value)


def test_every_dispatch_is_a_slice_with_its_facts() -> None:
    events = slices(written(decoder()), "dispatch")
    assert len(events) == 8 * 13
    last = events[-1]
    assert (last["name"], last["dur"]) == ("top_k", Decimal("200.000"))
    assert last["args"]["node"] == 12
    assert last["args"]["label"] == "decode/top_k"
    assert last["args"]["group"] == [32, 1, 1]
    assert last["args"]["bytes read, at most"] == 128_000
    assert last["args"]["GB/s, at most"] == Decimal("0.640")
    assert last["args"]["efficiency, %, at most"] == Decimal("3.20")
    assert (last["args"]["source"], last["args"]["execution"]) == ("topk.metal:7", "loop: its threads never meet")
    first = events[0]["args"]
    assert (first["bytes read"], first["GB/s"], first["efficiency, %"]) == (1_400_000, 14, 70)
    assert "flops" not in first


spans = st.tuples(st.integers(0, 40), st.integers(1, 20)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(spans, min_size=1, max_size=15))
def test_counters_say_what_is_in_flight_and_what_it_moves(times: list[tuple[int, int]]) -> None:
    made = Synthetic()
    made.submit(made.plan([node(bytes_read=1000, declared=True) for _ in times], edges=[]), times)
    events = written(made)
    zero = min(begin for begin, _ in times)
    running = counted(events, "dispatches")
    for at, value in running:
        at = int(at * 1000) + zero
        assert value == sum(begin <= at < end for begin, end in times)
    assert {int(at * 1000) + zero for at, _ in running} == {moment for span in times for moment in span}
    moved = sum(
        float(rate) * 1e9 * float(end - begin) * 1e-6
        for (begin, rate), (end, _) in pairwise(counted(events, "bandwidth"))
    )
    np.testing.assert_allclose(moved, 1000 * len(times), rtol=1e-3)
    assert counted(events, "bandwidth")[-1][1] == running[-1][1] == 0


def test_the_queue_is_as_deep_as_command_buffers_wait_and_run() -> None:
    made = Synthetic()
    for begin in (0, 10):
        made.submit(made.plan([node()]), [(100 + begin, 110 + begin)], commit_begin_ns=begin, commit_end_ns=begin + 5)
    made.submit(made.plan([node()]), [(130, 140)], commit_begin_ns=135, commit_end_ns=136)  # clocks are a little off
    depth = [(int(at * 1000), waiting, running) for at, waiting, running in counted(written(made), "queue depth")]
    assert depth == [(5, 1, 0), (15, 2, 0), (100, 1, 1), (110, 0, 1), (120, 0, 0), (130, 0, 1), (140, 0, 0)]


@given(st.lists(st.tuples(st.integers(0, 6), spans), min_size=1, max_size=10), st.integers(1, 5))
def test_no_more_workers_are_busy_than_have_a_threadgroup(
    work: list[tuple[int, tuple[int, int]]], workers: int
) -> None:
    made = Synthetic(devices=[Device("cpu", workers=workers)])
    nodes = [node(groups=groups) if groups else node("copy", kind="copy", groups=0) for groups, _ in work]
    made.submit(made.plan(nodes, edges=[]), [times for _, times in work])
    zero = min(begin for _, (begin, _) in work)
    busy = counted(written(made), "busy workers")
    assert busy[-1][1] == 0
    for at, value in busy:
        running = [groups for groups, (begin, end) in work if begin <= int(at * 1000) + zero < end]
        assert value == min(workers, sum(groups or workers for groups in running))


def test_command_buffers_without_times_of_dispatches_may_keep_all_workers_busy() -> None:
    made = Synthetic(devices=[Device("cpu", workers=3)])
    plan = made.plan([node(groups=1), node(groups=1)])
    made.submit(plan, [(0, 10), (20, 30)])
    made.submit(plan, [None, None], probe=True, start_ns=40, end_ns=50)
    made.submit(plan, [(60, 70), (70, 80)], quality=[0, 2])
    busy = [(int(at * 1000), value) for at, value in counted(written(made), "busy workers")]
    assert busy == [(0, 1), (10, 0), (20, 1), (30, 0), (40, 3), (50, 0), (60, 3), (70, 3), (80, 0)]


def test_a_device_of_unknown_size_has_no_busy_workers() -> None:
    made = Synthetic(devices=[Device("gpu")])
    made.submit(made.plan([node()]), [(0, 10)])
    assert counted(written(made), "busy workers") == []


def test_a_command_buffer_carries_what_is_known_of_its_workers_and_its_wait() -> None:
    made = Synthetic()
    token = made.region("token", 0, 200_000)
    times = {"commit_begin_ns": 500, "commit_end_ns": 900}
    workers = {"worked_ns": 170_000, "lost_ns": 20_000, "late_ns": 0, "joined": 2}
    made.submit(made.plan([node(), node()]), [(2000, 52_000), (52_000, 102_000)], region=token, **times, **workers)
    (buffer,) = slices(written(made), "command buffer")
    assert buffer["args"] == {
        "command buffer": 1,
        "replay": True,
        "commands": 2,
        "region": "token",
        "queued, µs": Decimal("1.1"),
        "workers that took part": 2,
        "busy workers, mean": Decimal("1.5"),
    }


labels = st.lists(st.sampled_from("abc"), max_size=3).map("/".join)


@given(st.lists(st.tuples(labels, spans), min_size=1, max_size=15))
def test_dispatches_lie_inside_their_labels(steps: list[tuple[str, tuple[int, int]]]) -> None:
    made = Synthetic()
    made.submit(made.plan([node(label=label) for label, _ in steps], edges=[]), [times for _, times in steps])
    events = written(made)
    for dispatch in slices(events, "dispatch"):
        begin, end = dispatch["ts"], dispatch["ts"] + dispatch["dur"]
        around = [
            e
            for e in slices(events, "label")
            if e["tid"] == dispatch["tid"] and e["ts"] <= begin and end <= e["ts"] + e["dur"]
        ]
        around.sort(key=lambda e: e["args"]["label"].count("/"))
        assert "/".join(e["name"] for e in around) == dispatch["args"].get("label", "")


@given(st.data())
def test_an_arrow_leads_to_each_dispatch_from_the_one_it_waited_for(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    barriers = data.draw(st.sets(st.integers(0, size - 1), max_size=3))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    made = Synthetic()
    plan = made.plan([node(kind="barrier" if n in barriers else "dispatch") for n in range(size)], edges)
    expected = set()
    for turn in range(2):
        # Every end is another, and what comes later in the list starts later.
        times = [None if n in barriers else (1000 * turn + 20 * n, 1000 * turn + 20 * n + 15) for n in range(size)]
        times = [t and (t[0], t[1] + data.draw(st.integers(0, 3)) * 20) for t in times]
        made.submit(plan, times, ordinal=turn + 1)

        def sources(n: int, times: list[Any] = times) -> Iterator[int]:
            for a, b in edges:
                if b == n:
                    yield from [a] if times[a] else sources(a)

        for n in range(size):
            found = list(sources(n)) if times[n] else []
            if found:
                expected.add((turn + 1, max(found, key=lambda a: ((times[a] or (0, 0))[1], -a)), n))
    events = written(made)
    at = {(e["tid"], e["ts"]): (e["args"]["command buffer"], e["args"]["node"]) for e in slices(events, "dispatch")}
    arrows: dict[Any, dict[str, Any]] = {}
    for event in flows(events, "dependency"):
        arrows.setdefault(event["id"], {})[event["ph"]] = at[event["tid"], event["ts"]]
    drawn = {(pair["s"][0], pair["s"][1], pair["f"][1]) for pair in arrows.values()}
    assert all(pair["s"][0] == pair["f"][0] for pair in arrows.values())
    ends = {(e["args"]["command buffer"], e["args"]["node"]): e["ts"] + e["dur"] for e in slices(events, "dispatch")}
    # Of several that end at the same moment, any will do.
    assert {(turn, ends[turn, a], b) for turn, a, b in drawn} == {(turn, ends[turn, a], b) for turn, a, b in expected}


def test_an_arrow_leads_from_each_commit_to_its_start() -> None:
    events = written(decoder())
    begins = {e["id"]: e for e in flows(events, "submit") if e["ph"] == "s"}
    ends = {e["id"]: e for e in flows(events, "submit") if e["ph"] == "f"}
    assert set(begins) == set(ends)
    assert len(begins) == 8
    commits = slices(events, "commit")
    for number, begin in begins.items():
        assert any(
            c["ts"] <= begin["ts"] <= c["ts"] + c["dur"] and (c["pid"], c["tid"]) == (begin["pid"], begin["tid"])
            for c in commits
        )
        end = ends[number]
        assert end["bp"] == "e"
        assert end["ts"] - begin["ts"] == Decimal("40.000")
        buffers = [b for b in slices(events, "command buffer") if b["ts"] == end["ts"]]
        assert [(b["pid"], b["tid"]) for b in buffers] == [(end["pid"], end["tid"])]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=20))
def test_slices_of_one_lane_never_overlap(pairs: list[tuple[int, int]]) -> None:
    made = Synthetic()
    made.submit(made.plan([node() for _ in pairs], edges=[]), [(a, a + d) for a, d in pairs])
    lanes = defaultdict(list)
    for event in slices(written(made), "dispatch"):
        lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for lane in lanes.values():
        lane.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(lane))


moments = st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda pair: (pair[0], sum(pair)))


@given(
    st.lists(moments, max_size=6),
    st.lists(st.tuples(st.sampled_from(["wait", "compile", "setup"]), moments), max_size=6),
    st.lists(st.tuples(moments, moments, moments), max_size=6),
)
def test_whatever_overlaps_on_a_host_thread_the_trace_is_valid(
    regions: list[tuple[int, int]],
    spans: list[tuple[str, tuple[int, int]]],
    submissions: list[tuple[tuple[int, int], tuple[int, int], tuple[int, int]]],
) -> None:
    made = Synthetic()
    for number, (begin, end) in enumerate(regions):
        made.region(f"region {number}", begin, end)
    for kind, (begin, end) in spans:
        made.span(kind, begin, end)
    plan = made.plan([node()])
    for encode, commit, run in submissions:
        times = {"encode_begin_ns": encode[0], "encode_end_ns": encode[1]}
        times |= {"commit_begin_ns": commit[0], "commit_end_ns": commit[1]}
        made.submit(plan, [run], **times)
    events = written(made)
    assert len(slices(events, "region")) == len(regions)
    assert len(slices(events, "commit")) == len(submissions)
    arrows = [e for e in flows(events, "submit") if e["ph"] == "s"]
    assert len(arrows) == sum(run[0] >= commit[0] for _, commit, run in submissions)


def test_encoders_that_take_turns_on_one_thread_get_a_line_each() -> None:
    made = Synthetic()
    plan = made.plan([node()])
    for begin, end in ((0, 50), (10, 70)):
        commit = {"commit_begin_ns": end, "commit_end_ns": end + 5}
        made.submit(plan, [(100 + begin, 105 + begin)], encode_begin_ns=begin, encode_end_ns=end, **commit)
    events = written(made)
    assert len({e["tid"] for e in slices(events, "encode")}) == 2
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} >= {"thread 1", "thread 1 (2)"}


def test_tasks_that_wait_at_the_same_time_get_a_line_each_however_many_they_are() -> None:
    made = Synthetic()
    for number in range(300):
        made.span("wait", number, 1000 + number)
    events = written(made)
    assert len({e["tid"] for e in slices(events, "wait")}) == 300


def test_threads_of_one_name_or_number_stay_apart() -> None:
    made = Synthetic()
    for thread in (5, 6, 5 + (1 << 31)):  # viewers keep 31 bits
        made.span("wait", 10, 20, thread)
    named = replace(made.columns(), thread_names={(0, 5): "worker", (0, 6): "worker", (0, 5 + (1 << 31)): "worker"})
    events = written(named)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names[e["tid"]] for e in slices(events, "wait")) == ["worker", "worker #2", "worker #3"]


def test_an_outer_slice_stands_before_an_inner_one_that_begins_with_it() -> None:
    made = Synthetic()
    made.span("wait", 10, 20)
    times = {"commit_begin_ns": 10, "commit_end_ns": 30}
    made.submit(made.plan([node()]), [(40, 50)], **times)
    made.region("token", 10, 60)
    events = written(made)
    assert [e["cat"] for e in events if e["ph"] == "X"][:3] == ["region", "commit", "wait"]


# --- any recording -------------------------------------------------------------------------------------------

names = st.sampled_from(["", "a", "a/b", "a/c", "b"])
times = st.tuples(st.integers(0, 30), st.integers(0, 15)).map(lambda pair: (pair[0], sum(pair)))


@st.composite
def recordings(draw: st.DrawFn) -> Columns:
    """Devices, processes and threads of equal names, gaps in what was timed, clocks that disagree, open regions."""
    workers = st.none() | st.integers(1, 3)
    made = Synthetic(devices=[Device("cpu", workers=draw(workers)) for _ in range(draw(st.integers(1, 2)))])
    plans = []
    for _ in range(draw(st.integers(1, 2))):
        kinds = draw(st.lists(st.sampled_from(["dispatch", "dispatch", "copy", "barrier"]), min_size=1, max_size=5))
        pairs = [(a, b) for b in range(len(kinds)) for a in range(b)]
        edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
        commands = [node(kind=kind, label=draw(names), groups=draw(st.integers(0, 4)), bytes_read=8) for kind in kinds]
        plans.append((made.plan(commands, edges), kinds))
    for name, (begin, end) in draw(st.lists(st.tuples(names, times), max_size=3)):
        made.region(name, begin, draw(st.sampled_from([end, -1])))
    for kind, (begin, end), thread in draw(
        st.lists(st.tuples(st.sampled_from(["wait", "compile"]), times, st.integers(1, 2)), max_size=4)
    ):
        made.span(kind, begin, end, thread)
    for _ in range(draw(st.integers(0, 5))):
        plan, kinds = draw(st.sampled_from(plans))
        ran = [None if kind == "barrier" else draw(st.none() | times) for kind in kinds]
        host = dict.fromkeys(("encode_begin_ns", "encode_end_ns", "commit_begin_ns", "commit_end_ns"))
        for what in ("encode", "commit"):
            span = draw(st.none() | times)
            if span is not None:
                host |= {f"{what}_begin_ns": span[0], f"{what}_end_ns": span[1]}
        made.submit(
            plan,
            ran,
            quality=[draw(st.integers(0, 2)) for _ in kinds],
            device=draw(st.integers(0, len(made.devices) - 1)),
            process=draw(st.integers(0, 1)),
            thread=draw(st.integers(1, 2)),
            probe=draw(st.booleans()),
            label=draw(names),
            **host,
        )
    return replace(
        made.columns(), pids=draw(st.sampled_from([(7, 7), (7, 8)])), thread_names={(0, 1): "worker", (0, 2): "worker"}
    )


@given(recordings())
def test_whatever_a_recording_holds_its_trace_is_valid_and_complete(columns: Columns) -> None:
    events = written(columns)
    subs, regions = columns.submissions, columns.regions
    assert len(slices(events, "dispatch")) == (columns.samples.status != 2).sum()
    assert len(slices(events, "command buffer")) == subs.ran.sum()
    assert len(slices(events, "commit")) == (subs.commit_begin_ns >= 0).sum()
    assert len(slices(events, "region")) == (regions.end_ns >= 0).sum()


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.ostinato")), ids=lambda path: path.stem)
def test_the_trace_of_a_kept_recording_is_valid(path: Path) -> None:
    with open_recording(path) as recording:
        columns = columns_of(recording)
    events = written(columns)
    assert len(slices(events, "command buffer")) == len(columns.submissions) > 0
    assert len(slices(events, "dispatch")) > 0


def test_the_trace_of_the_demonstration_is_valid(demo_recording: Path) -> None:
    with open_recording(demo_recording) as recording:
        columns = columns_of(recording)
    events = written(columns)
    assert len(slices(events, "dispatch")) == len(usable(columns.samples))
    assert len([e for e in slices(events, "region") if e["name"] == "token"]) == demo.TOKENS
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert counters == {"queue depth", "busy workers", "dispatches", "bandwidth"}
    arrows = flows(events, "dependency")
    assert len(arrows) > len(slices(events, "dispatch"))  # nearly every dispatch waits for another
    facts = slices(events, "dispatch")[0]["args"].keys()
    assert {"kernel", "label", "place", "threads", "group", "threadgroups", "node", "command buffer"} <= facts


# --- the validator -------------------------------------------------------------------------------------------


def first(events: list[Any], phase: str, **facts: Any) -> Any:
    return next(e for e in events if e["ph"] == phase and all(e[key] == value for key, value in facts.items()))


def last_of_a_counter(events: list[Any]) -> Any:
    return [e for e in events if e["ph"] == "C" and e["name"] == "dispatches"][-1]


def inner_first(events: list[Any]) -> None:
    label = first(events, "X", cat="label")
    events.remove(label)
    events.append(label)


BREAKAGES: dict[str, Callable[[list[Any]], object]] = {
    "a flow without its end": lambda events: events.remove(first(events, "f")),
    "a flow that begins twice": lambda events: events.append(first(events, "s")),
    "a flow that ends before it begins": lambda events: first(events, "s").update(first(events, "f") | {"ph": "s"}),
    "a flow beside its slice": lambda events: first(events, "s", cat="submit").update(ts=0),
    "a flow of another name": lambda events: first(events, "s").update(name="other"),
    "a flow that binds to what comes next": lambda events: first(events, "f").pop("bp"),
    "a dependency of a label": lambda events: first(events, "X", cat="dispatch").update(cat="label"),
    "a slice that outlasts the one around it": lambda events: first(events, "X", cat="dispatch").update(dur=10**6),
    "an inner slice before the outer one": inner_first,
    "a slice without a duration": lambda events: first(events, "X").pop("dur"),
    "a slice of negative length": lambda events: first(events, "X").update(dur=-1),
    "a time that is a text": lambda events: first(events, "X").update(ts="1"),
    "a time that is no number": lambda events: first(events, "X").update(ts=float("nan")),
    "a part of a nanosecond": lambda events: first(events, "X").update(ts=0.00005),
    "a process beyond 32 bits": lambda events: first(events, "X").update(pid=1 << 40),
    "a thread without a name": lambda events: events.remove(first(events, "M", name="thread_name")),
    "a name that comes too late": lambda events: events.append(events.pop(0)),
    "a track that is named twice": lambda events: events.insert(0, dict(events[0])),
    "two threads of one name": lambda events: [
        e["args"].update(name="same") for e in events if e["name"] == "thread_name"
    ],
    "a counter that stays open": lambda events: last_of_a_counter(events)["args"].update({"in flight": 1}),
    "a counter that is a text": lambda events: last_of_a_counter(events)["args"].update({"in flight": "0"}),
    "a counter below zero": lambda events: last_of_a_counter(events)["args"].update({"in flight": -1}),
    "a counter that goes back in time": lambda events: last_of_a_counter(events).update(ts=0),
    "a counter whose series change": lambda events: last_of_a_counter(events).update(args={"other": 0}),
    "an unknown kind of event": lambda events: first(events, "X").update(ph="Z"),
    "a key that means nothing": lambda events: first(events, "X").update(colour="red"),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_the_validator_notices(breakage: Callable[[list[Any]], object]) -> None:
    out = io.StringIO()
    write_trace(decoder(tokens=2).columns(), out)
    whole = json.loads(out.getvalue())
    validate(json.dumps(whole))
    breakage(whole["traceEvents"])
    with pytest.raises(AssertionError):
        validate(json.dumps(whole))


# --- a real run ----------------------------------------------------------------------------------------------


def test_the_trace_of_a_real_run_is_valid(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(64, np.float32)
    run = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=64), label="token").instantiate()

    async def several() -> None:
        await asyncio.gather(*(asyncio.to_thread(run.replay) for _ in range(3)), run.replay(), run.replay())

    with ost.profile() as prof:
        first, second = dev.command_encoder(), dev.command_encoder(label="second")
        for enc in (first, second, first):
            enc.dispatch(kernels["bump"], x, threads=64)
        for enc in (first, second):
            enc.commit()
        with ost.region("token"):
            threads = [threading.Thread(target=run.replay) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            asyncio.run(several())
    events = written(columns_of(prof.recording()))
    assert len(slices(events, "dispatch")) == 3 + 3 + 5
    assert len([e for e in flows(events, "submit") if e["ph"] == "s"]) == 2 + 3 + 5
    assert len(flows(events, "dependency")) == 2  # the first encoder's second dispatch waited for its first


def test_processes_of_one_number_stay_apart() -> None:
    columns = decoder().columns()
    twice = replace(columns, pids=(7, 7))
    names = [e for e in written(twice) if e["name"] == "process_name" and "host" in e["args"]["name"]]
    assert len({e["pid"] for e in names}) == len(names) == 2


def test_nanoseconds_survive_long_recordings() -> None:
    made = Synthetic()
    day = 86_400 * 10**9
    plan = made.plan([node()])
    made.submit(plan, [(1, 2)])
    made.submit(plan, [(30 * day + 1, 30 * day + 8)])
    last = slices(written(made), "dispatch")[-1]
    assert (last["ts"], last["dur"]) == (Decimal(30 * day) / 1000, Decimal("0.007"))


def test_hostile_names_stay_strings() -> None:
    events = written(hostile())
    assert {e["name"] for e in slices(events, "dispatch")} == set(HOSTILE)


def test_an_empty_recording_is_an_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(Synthetic(devices=[]).columns(), path)
    assert all(e["ph"] == "M" for e in json.loads(path.read_text())["traceEvents"])


def test_the_file_is_written_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_LINES", 5)
    assert len(slices(written(decoder()), "dispatch")) == 8 * 13
