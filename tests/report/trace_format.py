"""What Chrome and Perfetto ask of a trace, checked strictly: the JSON trace event format.

Events of the kinds that we write: M (metadata), X (complete slices), s and f (the two ends of a flow), C (counters). A
reader drops or misplaces, often without a word, what breaks one of these rules:

- every event has a phase, a process and a thread, both integers of 32 bits, and a name;
- slices have a start and a duration, neither negative, a category and arguments;
- the slices of one thread nest: of two that overlap, one contains the other;
- metadata names something known, with the argument that it needs, before or after but once;
- both ends of a flow have the same id, name and category; there are two of each, the end is not before the start, and
  each lies in a slice of its thread, to which it binds (the end by "bp": "e"); a dependency binds to the slices of two
  dispatches, at their starts;
- a counter is of a process that has a name, has one series, which is a number and not negative, and its times rise.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}
PHASES = {
    "M": {"ph", "name", "pid", "tid", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "s": {"ph", "name", "cat", "id", "pid", "tid", "ts"},
    "f": {"ph", "name", "cat", "id", "pid", "tid", "ts", "bp"},
    "C": {"ph", "name", "pid", "tid", "ts", "args"},
}

Event = dict[str, Any]
Track = tuple[int, int]  # process and thread


def validate(text: str) -> list[Event]:
    """Raises an `AssertionError` for the first rule that the text of a trace breaks; gives its events."""
    whole = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    assert set(whole) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert whole["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in whole["otherData"].values())
    events: list[Event] = whole["traceEvents"]
    for event in events:
        _check(event)
    named = Counter((e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M")
    assert max(named.values(), default=1) == 1, "one name for a track, or it depends on the reader which it gets"
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
            assert ("process_name", event["pid"]) in {(name, pid) for name, pid, _ in named}
            assert ("thread_name", event["pid"], event["tid"]) in named
    for track, slices in tracks.items():
        _check_nesting(track, slices)
    _check_flows(events, tracks)
    _check_counters([event for event in events if event["ph"] == "C"], named)
    return events


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _check(event: Event) -> None:
    phase = event["ph"]
    assert set(event) == PHASES[phase], event
    assert isinstance(event["name"], str)
    for key in ("pid", "tid"):
        assert type(event[key]) is int
        assert 0 <= event[key] < 1 << 31
    for key in ("ts", "dur"):
        if key in event:
            assert type(event[key]) in (int, Decimal)
            assert event[key] >= 0
    if phase == "M":
        key, kind = METADATA[event["name"]]
        assert set(event["args"]) == {key}
        assert type(event["args"][key]) is kind
    elif phase != "C":
        assert event["cat"]
    if phase == "X":
        assert isinstance(event["args"], dict)
    if phase == "f":
        assert event["bp"] == "e"


def _check_nesting(track: Track, slices: list[tuple[Any, Any]]) -> None:
    open_until: list[Any] = []
    for begin, end in sorted(slices, key=lambda one: (one[0], -one[1])):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1], f"slices of {track} overlap and do not nest"
        open_until.append(end)


def _check_counters(events: list[Event], named: Counter[tuple[str, int, int]]) -> None:
    latest: dict[tuple[int, str], Any] = {}
    series: dict[tuple[int, str], str] = {}
    for event in events:
        assert ("thread_name", event["pid"], event["tid"]) in named
        key = event["pid"], event["name"]
        ((unit, value),) = event["args"].items()
        assert series.setdefault(key, unit) == unit
        assert type(value) in (int, Decimal)
        assert value >= 0
        assert event["ts"] > latest.get(key, -1)
        latest[key] = event["ts"]


def _check_flows(events: list[Event], tracks: dict[Track, list[tuple[Any, Any]]]) -> None:
    dispatches = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X" and e["cat"] == "dispatch"}
    ends = defaultdict(list)
    for event in events:
        if event["ph"] in ("s", "f"):
            ends[event["id"]].append(event)
            around = tracks[event["pid"], event["tid"]]
            assert any(begin <= event["ts"] <= end for begin, end in around), "a flow that binds to no slice"
    for pair in ends.values():
        start, end = sorted(pair, key=lambda one: one["ph"], reverse=True)
        assert (start["ph"], end["ph"], len(pair)) == ("s", "f", 2)
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert start["ts"] <= end["ts"]
        if start["cat"] == "dependency":
            assert {(one["pid"], one["tid"], one["ts"]) for one in pair} <= dispatches
