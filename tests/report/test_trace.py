"""Traces are what Perfetto and Chrome read: tracks, slices, arrows."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from sampled import HOSTILE, decoder, hostile

from ostinato.analyse.columns import Columns
from ostinato.report import trace, write_trace
from synthetic import Synthetic, node


def written(made_or_columns):
    columns = made_or_columns if isinstance(made_or_columns, Columns) else made_or_columns.columns()
    out = io.StringIO()
    count = write_trace(columns, out)
    events = json.loads(out.getvalue(), parse_float=Decimal)["traceEvents"]
    assert len(events) == count
    return events


def slices(events, category):
    return [e for e in events if e["ph"] == "X" and e["cat"] == category]


def test_processes_threads_and_devices_have_names():
    events = written(decoder())
    names = {(e["name"], e["args"].get("name")) for e in events if e["ph"] == "M"}
    assert {("process_name", "device cpu"), ("thread_name", "command buffers"), ("thread_name", "dispatches")} <= names
    assert any(name == "process_name" and value.startswith("host process") for name, value in names if value)


def test_every_dispatch_is_a_slice_with_its_facts():
    events = slices(written(decoder()), "dispatch")
    assert len(events) == 8 * 13
    last = events[-1]
    assert (last["name"], last["dur"]) == ("top_k", Decimal("200.000"))
    assert last["args"]["node"] == 12
    assert last["args"]["label"] == "decode/top_k"
    assert last["args"]["group"] == [32, 1, 1]


def test_an_arrow_leads_from_each_commit_to_its_start():
    events = written(decoder())
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
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
def test_slices_of_one_lane_never_overlap(pairs):
    made = Synthetic()
    made.submit(made.plan([node() for _ in pairs], edges=[]), [(a, a + d) for a, d in pairs])
    lanes = defaultdict(list)
    for event in slices(written(made), "dispatch"):
        lanes[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for lane in lanes.values():
        lane.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(lane))


def test_nanoseconds_survive_long_recordings():
    made = Synthetic()
    day = 86_400 * 10**9
    plan = made.plan([node()])
    made.submit(plan, [(1, 2)])
    made.submit(plan, [(30 * day + 1, 30 * day + 8)])
    last = slices(written(made), "dispatch")[-1]
    assert (last["ts"], last["dur"]) == (Decimal(30 * day) / 1000, Decimal("0.007"))


def test_hostile_names_stay_strings():
    events = written(hostile())
    assert {e["name"] for e in slices(events, "dispatch")} == set(HOSTILE)


def test_an_empty_recording_is_an_empty_trace(tmp_path):
    path = tmp_path / "trace.json"
    write_trace(Synthetic(devices=[]).columns(), path)
    assert all(e["ph"] == "M" for e in json.loads(path.read_text())["traceEvents"])


def test_the_file_is_written_piece_by_piece(monkeypatch):
    monkeypatch.setattr(trace, "_LINES", 5)
    assert len(slices(written(decoder()), "dispatch")) == 8 * 13
