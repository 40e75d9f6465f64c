"""What Chrome and Perfetto ask of a trace, checked strictly: the JSON trace event format.

Events of the kinds that we write: M (metadata), X (complete slices), s and f (the two ends of a flow), C (counters). A
reader drops or misplaces, often without a word, what breaks one of these rules:

- every event has a phase, a process and a thread, both integers of 32 bits, a name, and the keys of its phase alone;
- times are finite, not negative and whole nanoseconds; slices have a start and a duration, a category and arguments;
- metadata names something known, once, with the argument that it needs; processes, and the threads of a process, have
  different names; a name comes before whatever happens on its track;
- events are read by time, those of one time in the order of the file. The slices of one thread then nest: what begins
  inside of another ends inside of it;
- a flow is one s and then one f with the same id, name and category. Each binds to the slice that its thread began
  last, which must not be over: a submission leads from a commit to its command buffer, a dependency from one dispatch
  to another of the same command buffer;
- a counter is of a process that has a name, has the same series every time, numbers that are not negative, and times
  that rise; all of ours count or add up what is open, so they end at zero.
"""

from __future__ import annotations

import json
from collections import defaultdict
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
ARROWS = {"submit": ("commit", "command buffer"), "dependency": ("dispatch", "dispatch")}
"""The categories of the slices that a flow leads from and to."""

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
    _check_names(events)
    _check_flows(_check_nesting(events))
    _check_counters(events)
    return events


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _check(event: Event) -> None:
    phase = event["ph"]
    assert phase in PHASES, event
    assert set(event) == PHASES[phase], event
    assert isinstance(event["name"], str)
    for key in ("pid", "tid"):
        assert type(event[key]) is int
        assert 0 <= event[key] < 1 << 31
    for key in ("ts", "dur"):
        if key in event:
            assert type(event[key]) in (int, Decimal)
            assert event[key] >= 0
            assert event[key] * 1000 % 1 == 0, "not whole nanoseconds"
    if phase == "M":
        assert event["name"] in METADATA, event
        key, kind = METADATA[event["name"]]
        assert set(event["args"]) == {key}
        assert type(event["args"][key]) is kind
    elif phase == "C":
        assert event["args"]
        assert all(type(value) in (int, Decimal) and value >= 0 for value in event["args"].values()), event
    else:
        assert event["cat"]
    if phase == "X":
        assert isinstance(event["args"], dict)
    if phase in "sf":
        assert type(event["id"]) is int
    if phase == "f":
        assert event["bp"] == "e"


def _check_names(events: list[Event]) -> None:
    said: set[tuple[str, int, int]] = set()
    processes: set[int] = set()
    process_names: list[str] = []
    thread_names: dict[int, list[str]] = defaultdict(list)
    for event in events:
        pid, tid = event["pid"], event["tid"]
        if event["ph"] != "M":
            assert pid in processes, "an event of a process without a name"
            assert ("thread_name", pid, tid) in said, "an event of a thread without a name"
            continue
        about = event["name"], pid, 0 if event["name"].startswith("process") else tid
        assert about not in said, "named twice: it depends on the reader which name it gets"
        said.add(about)
        if event["name"] == "process_name":
            processes.add(pid)
            process_names.append(event["args"]["name"])
        elif event["name"] == "thread_name":
            thread_names[pid].append(event["args"]["name"])
    for names in (process_names, *thread_names.values()):
        assert len(set(names)) == len(names), f"a name that two have: {names}"


def _end(event: Event) -> Any:
    return event["ts"] + event["dur"]


def _check_nesting(events: list[Event]) -> list[tuple[Event, Event]]:
    """The ends of flows in the order in which they are read, each with the slice that a reader binds it to."""
    open_slices: dict[Track, list[Event]] = defaultdict(list)
    bound = []
    for event in sorted((event for event in events if event["ph"] in "Xsf"), key=lambda event: event["ts"]):
        stack = open_slices[event["pid"], event["tid"]]
        if event["ph"] == "X":
            while stack and _end(stack[-1]) <= event["ts"]:
                stack.pop()
            assert not stack or _end(event) <= _end(stack[-1]), f"{event} overlaps {stack[-1]} and does not nest"
            stack.append(event)
        else:
            assert stack, "a flow that binds to no slice"
            assert event["ts"] <= _end(stack[-1]), "a flow that binds to a slice that is over"
            bound.append((event, stack[-1]))
    return bound


def _check_flows(bound: list[tuple[Event, Event]]) -> None:
    flows = defaultdict(list)
    for event, slice_ in bound:
        flows[event["id"]].append((event, slice_))
    for ends in flows.values():
        assert [event["ph"] for event, _ in ends] == ["s", "f"], "a flow that does not lead from one place to one other"
        (start, from_slice), (end, to_slice) = ends
        assert (start["name"], start["cat"]) == (end["name"], end["cat"])
        assert (from_slice["cat"], to_slice["cat"]) == ARROWS.get(start["cat"])
        assert from_slice["args"]["command buffer"] == to_slice["args"]["command buffer"]
        assert from_slice is not to_slice


def _check_counters(events: list[Event]) -> None:
    counters: dict[tuple[int, str], Event] = {}
    for event in events:
        if event["ph"] == "C":
            before = counters.get((event["pid"], event["name"]))
            if before is not None:
                assert event["ts"] > before["ts"], "a counter that goes back in time"
                assert set(event["args"]) == set(before["args"]), "a counter whose series change"
            counters[event["pid"], event["name"]] = event
    for last in counters.values():
        assert not any(last["args"].values()), f"a counter that does not end at zero: {last}"
