"""A recording as a trace that Perfetto and Chrome open (the JSON trace event format).

Host threads show regions, encoding, commits and waits; every device shows its command buffers and, below, its
dispatches inside their labels, on as many lanes as ran at the same time. Arrows lead from each commit to its start on
the device, and to each dispatch from the one whose end it waited for. Counters show the depth of the queue, how many
workers can have been busy, how many dispatches are in flight, and what those move. Dispatches carry their bytes, their
rate and their efficiency.
Readers sort events by time and keep the order of the file where times are equal, so an outer slice stands before the
inner ones that begin with it, and an arrow behind the slice that it is bound to.
Times are microseconds with three decimals since the earliest event. The file is written piece by piece, so a long
recording needs no more memory than a short one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import count
from math import isfinite
from typing import IO, Any

import numpy as np

from ..analyse.columns import ABSENT, BOUNDED, Columns, Ints, Samples, distinct, with_distinct_names
from ..analyse.lists import samples_on
from .device_tracks import Reached, bandwidth, busy_workers, in_flight, label_runs, queue_depth, reached, waited_for
from .tracks import HostSlices, buffer_title, first_moment, host_slices, lanes, nested, process_name, thread_name

_DEVICES = 1 << 30
"""Processes of devices are numbered from here, where no pid of the host is."""
_PROCESSES = 1 << 29
"""Processes of the host that cannot have their own number are numbered from here."""
_BUFFER_LANES, _DISPATCH_LANES = 1, 1 << 20
"""Where the numbers of a device's lanes begin."""
_STEP = (1 << 24) + 1
"""Tracks whose number is taken try the one this far on. It is odd, so they try all numbers before they repeat one."""
_LINES = 4096
_Tids = dict[tuple[int, int, int], int]
"""A number of its own for each lane of each host thread, by process, thread and lane."""


def write_trace(columns: Columns, target: str | os.PathLike[str] | IO[str]) -> int:
    """Writes the trace to a path or an open text file; the number of events."""
    opened = nullcontext(target) if hasattr(target, "write") else open(target, "w", encoding="utf-8")  # noqa: SIM115
    written = 0
    with opened as file:
        file.write(
            '{"displayTimeUnit":"ns","otherData":'
            + _text({"base_ns": str(first_moment(columns))})
            + ',"traceEvents":[\n'
        )
        waiting: list[str] = []
        for event in events(columns):
            waiting.append(event)
            written += 1
            if len(waiting) == _LINES:
                file.write(("" if written == len(waiting) else ",\n") + ",\n".join(waiting))
                waiting.clear()
        if waiting:
            file.write(("" if written == len(waiting) else ",\n") + ",\n".join(waiting))
        file.write("\n]}\n")
    return written


def events(columns: Columns) -> Iterator[str]:
    """Every event as one JSON object."""
    base = first_moment(columns)
    host = host_slices(columns)
    lane_of, _ = nested(host)
    tids = _lane_tids(host, lane_of)
    yield from _names(columns, tids)
    yield from _host(columns, host, lane_of, tids, base)
    flows = count(len(columns.submissions) + 1)  # up to there they are those of submissions
    for device in range(len(columns.devices)):
        yield from _command_buffers(columns, device, base)
        yield from _dispatches(columns, device, base, flows)


# --- tracks --------------------------------------------------------------------------------------------------


def _names(columns: Columns, tids: _Tids) -> Iterator[str]:
    numbers = _process_numbers(columns)
    processes: set[str] = set()
    threads: list[set[str]] = [set() for _ in numbers]
    for row, number in enumerate(numbers):
        yield _meta("process_name", number, 0, distinct(process_name(columns, row), processes))
        yield _meta("process_sort_index", number, 0, row)
    for (process, thread, lane), tid in sorted(tids.items()):
        name = thread_name(columns, process, thread)
        name = distinct(f"{name} ({lane + 1})" if lane else name, threads[process])
        yield _meta("thread_name", numbers[process], tid, name)
    for number, device in enumerate(with_distinct_names(columns)):
        yield _meta("process_name", _DEVICES + number, 0, f"device {device.name}")
        yield _meta("process_sort_index", _DEVICES + number, 0, len(columns.pids) + number)


def _process_numbers(columns: Columns) -> list[int]:
    """A number for each process: its own, unless another one (of another container, say) has it too."""
    numbers: list[int] = []
    for row, pid in enumerate(columns.pids):
        usable = 0 <= pid < _PROCESSES and pid not in numbers
        numbers.append(pid if usable else _PROCESSES + row)
    return numbers


def _lane_tids(host: HostSlices, lane_of: Ints) -> _Tids:
    """Gives every lane a number: that of its thread, as far as viewers keep it, unless another has it."""
    tids: _Tids = {}
    taken: set[tuple[int, int]] = set()
    # Up to there all numbers that a thread tries are taken.
    tried: dict[tuple[int, int], int] = {}
    # First lanes are numbered first, so that threads have their own numbers.
    for lane, process, thread in sorted(set(_rows(lane_of, host.process, host.thread))):
        own = process, thread & 0x7FFFFFFF
        tid = tried.get(own, own[1])
        while (process, tid) in taken:
            tid = (tid + _STEP) & 0x7FFFFFFF
        taken.add((process, tid))
        tids[process, thread, lane] = tried[own] = tid
    return tids


def _rows(*columns: Any) -> Iterable[Any]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _meta(what: str, pid: int, tid: int, value: str | int) -> str:
    key = "sort_index" if what.endswith("sort_index") else "name"
    return _text({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {key: value}})


# --- events --------------------------------------------------------------------------------------------------


def _host(columns: Columns, host: HostSlices, lane_of: Ints, tids: _Tids, base: int) -> Iterator[str]:
    subs, numbers, devices = columns.submissions, _process_numbers(columns), with_distinct_names(columns)
    slots = (getattr(host, column) for column in HostSlices.__slots__)
    for process, thread, begin, end, kind, name, submission, lane in _rows(*slots, lane_of):
        place = numbers[process], tids[process, thread, lane]
        facts: dict[str, Any] = {}
        if submission >= 0:
            facts["command buffer"] = int(subs.ordinal[submission])
            facts["device"] = devices[int(subs.device[submission])].name
        if kind in ("encode", "commit") and submission >= 0:
            name = buffer_title(columns, submission)
        title = name if kind == "region" else f"{kind} {name}" if name else kind
        yield _complete(title, kind, place, begin, end, base, facts)
        if kind == "commit" and submission >= 0 and _has_flow(columns, submission):
            yield _flow("s", submission + 1, place, begin, base, "submit")


def _command_buffers(columns: Columns, device: int, base: int) -> Iterator[str]:
    subs = columns.submissions
    rows = np.flatnonzero((subs.device == device) & subs.ran)
    rows = rows[np.argsort(subs.start_ns[rows], kind="stable")]
    lane_of, used = lanes(subs.start_ns[rows], subs.end_ns[rows])
    yield from _lane_names(_DEVICES + device, _BUFFER_LANES, "command buffers", used)
    for row, lane in zip(rows.tolist(), lane_of.tolist(), strict=True):
        place = _DEVICES + device, _BUFFER_LANES + lane
        start, end = int(subs.start_ns[row]), int(subs.end_ns[row])
        facts = _buffer_facts(columns, row)
        yield _complete(buffer_title(columns, row), "command buffer", place, start, end, base, facts)
        if _has_flow(columns, row):
            yield _flow("f", row + 1, place, start, base, "submit")
    if rows.size:
        yield from _buffer_counters(columns, device, rows, base)


def _buffer_counters(columns: Columns, device: int, rows: Ints, base: int) -> Iterator[str]:
    """What the command buffers in these rows make of the queue and of the workers of their device."""
    subs, pid = columns.submissions, _DEVICES + device
    start_ns, commit_ns = subs.start_ns[rows], subs.commit_end_ns[rows]
    committed_ns = np.where(commit_ns == ABSENT, start_ns, np.minimum(commit_ns, start_ns))
    at, waiting, running = queue_depth(committed_ns, start_ns, subs.end_ns[rows])
    yield from _counter(pid, _BUFFER_LANES, "queue depth", at, {"waiting": waiting, "running": running}, base)
    workers = busy_workers(columns, device)
    if workers is not None:
        at, most = workers
        yield from _counter(pid, _BUFFER_LANES, "busy workers", at, {"at most, by threadgroups": most}, base)


def _buffer_facts(columns: Columns, row: int) -> dict[str, Any]:
    """What is known about a command buffer, beside its times."""
    subs = columns.submissions
    facts: dict[str, Any] = {"command buffer": int(subs.ordinal[row]), "replay": bool(subs.replay[row])}
    if subs.plan[row] != ABSENT:
        nodes = columns.plans.nodes(int(subs.plan[row]))
        facts["commands"] = nodes.stop - nodes.start
    if subs.region[row] != ABSENT:
        facts["region"] = str(columns.regions.name[subs.region[row]])
    if _has_flow(columns, row):
        facts["queued, µs"] = round(max(int(subs.start_ns[row] - subs.commit_end_ns[row]), 0) / 1e3, 3)
    took_ns = int(subs.end_ns[row] - subs.start_ns[row])
    if subs.worked_ns[row] != ABSENT and subs.lost_ns[row] != ABSENT and took_ns:
        facts["workers that took part"] = int(subs.joined[row])
        facts["busy workers, mean"] = round(int(subs.worked_ns[row] - subs.lost_ns[row]) / took_ns, 3)
    if subs.probe[row]:
        facts["sampling"] = "left out on purpose, to measure its cost"
    if subs.status[row] != "measured":
        facts["status"] = str(subs.status[row])
    for key, value in (("reason", subs.reason[row]), ("error", subs.error[row])):
        if value:
            facts[key] = str(value)
    return facts


def _dispatches(columns: Columns, device: int, base: int, flows: Iterator[int]) -> Iterator[str]:
    subs, plans, commands = columns.submissions, columns.plans, columns.commands
    chosen = samples_on(columns, device)
    chosen = chosen.where(np.argsort(chosen.start_ns, kind="stable"))
    lane_of, used = lanes(chosen.start_ns, chosen.end_ns)
    by_lane = np.argsort(lane_of, kind="stable")
    chosen, lane_of = chosen.where(by_lane), lane_of[by_lane]
    pid = _DEVICES + device
    yield from _lane_names(pid, _DISPATCH_LANES, "dispatches", used)
    # Text is made once per command: a recording has few of them and millions of samples.
    heads = [_head(columns, command) for command in range(len(commands))]
    node = chosen.node - plans.first[subs.plan[chosen.submission]] if len(chosen) else chosen.node
    command = plans.command[chosen.node]
    facts = reached(columns, device, chosen)
    labels, label = label_runs(columns, chosen, lane_of), 0
    for begin in range(0, len(chosen), _LINES):
        piece = slice(begin, begin + _LINES)
        for row, (c, n, s, e, q, owner, lane) in enumerate(
            zip(
                command[piece].tolist(),
                node[piece].tolist(),
                chosen.start_ns[piece].tolist(),
                chosen.end_ns[piece].tolist(),
                chosen.status[piece].tolist(),
                chosen.submission[piece].tolist(),
                lane_of[piece].tolist(),
                strict=True,
            ),
            begin,
        ):
            while label < len(labels) and labels.first[label] == row:
                path = labels.prefixes[labels.prefix[label]]
                place = pid, _DISPATCH_LANES + lane
                name, until = path.rpartition("/")[2] or path, int(chosen.end_ns[labels.last[label]])
                yield _complete(name, "label", place, s, until, base, {"label": path})
                label += 1
            bound = ',"status":"bounded"' if q == BOUNDED else ""
            yield (
                f'{heads[c]},"node":{n},"command buffer":{int(subs.ordinal[owner])}{bound}{_rates(facts, row)}}},'
                f'"pid":{pid},"tid":{_DISPATCH_LANES + lane},"ts":{_micro(s - base)},"dur":{_micro(e - s)}}}'
            )
    yield from _dependencies(columns, chosen, pid, lane_of, base, flows)
    if len(chosen):
        at, running = in_flight(chosen.start_ns, chosen.end_ns)
        yield from _counter(pid, _DISPATCH_LANES, "dispatches", at, {"in flight": running}, base)
        at, rate = bandwidth(chosen.start_ns, chosen.end_ns, facts.bytes_per_s)
        unit = "GB/s, at most" if facts.at_most.any() else "GB/s"
        yield from _counter(pid, _DISPATCH_LANES, "bandwidth", at, {unit: np.round(rate / 1e9, 3)}, base)


def _rates(facts: Reached, row: int) -> str:
    """What a dispatch moved, computed and reached, as far as it is known, as more of its facts."""
    most = ", at most" if facts.at_most[row] else ""
    shown = (
        ("bytes read" + most, facts.bytes_read[row], 1, 0),
        ("bytes written" + most, facts.bytes_written[row], 1, 0),
        ("flops", facts.flops[row], 1, 0),
        ("GB/s" + most, facts.bytes_per_s[row], 1e9, 3),
        ("Gflop/s", facts.flops_per_s[row], 1e9, 3),
        ("efficiency, %" + most, facts.efficiency[row], 1e-2, 2),
    )
    return "".join(f',"{key}":{value / unit:.{digits}f}' for key, value, unit, digits in shown if isfinite(value))


def _dependencies(
    columns: Columns, chosen: Samples, pid: int, lanes: Ints, base: int, flows: Iterator[int]
) -> Iterator[str]:
    """An arrow to each dispatch from the one whose end it waited for."""
    # Both ends lie at the start of their slice: at its end, a reader may take the next one on the lane for it.
    earlier = waited_for(columns, chosen)
    lasts = chosen.end_ns > chosen.start_ns
    drawn = (earlier >= 0) & lasts & lasts[earlier] & (chosen.start_ns[earlier] <= chosen.start_ns)
    for row in np.flatnonzero(drawn).tolist():
        number = next(flows)
        for phase, at in (("s", int(earlier[row])), ("f", row)):
            place = pid, _DISPATCH_LANES + int(lanes[at])
            yield _flow(phase, number, place, int(chosen.start_ns[at]), base, "dependency")


def _counter(pid: int, tid: int, name: str, at: Ints, series: dict[str, Any], base: int) -> Iterator[str]:
    """A counter with one value of each series from each moment on. Perfetto names a series by both names."""
    # One format for all events of a counter, which are the most numerous of a trace.
    opening = _text({"ph": "C", "name": name, "pid": pid, "tid": tid})[:-1].replace("%", "%%")
    values = ",".join(_text(key).replace("%", "%%") + ":%s" for key in series)
    event = f'{opening},"ts":%d.%03d,"args":{{{values}}}}}'
    columns = (*np.divmod(at - base, 1000), *series.values())
    return map(event.__mod__, zip(*(column.tolist() for column in columns), strict=True))


def _head(columns: Columns, command: int) -> str:
    """The start of a dispatch's event, up to the facts that differ from sample to sample."""
    commands = columns.commands
    file, line = commands.file[command] or commands.source[command], commands.line[command]
    facts: dict[str, Any] = {"kernel": str(commands.kernel[command])}
    for key, value in (
        ("label", commands.label[command]),
        ("specialisation", commands.specialisation[command]),
        ("op kind", commands.op_kind[command]),
        ("place", commands.place[command]),
        ("source", f"{file}:{line}" if file and line != ABSENT else file),
        ("execution", commands.execution[command]),
    ):
        if value:
            facts[key] = str(value)
    if commands.kind[command] == "dispatch":
        facts["threads"] = commands.threads[command].tolist()
        facts["group"] = commands.group[command].tolist()
        facts["threadgroups"] = int(commands.groups[command])
    opening = _text({"ph": "X", "name": commands.title(command), "cat": "dispatch"})
    return f'{opening[:-1]},"args":{_text(facts)[:-1]}'


def _lane_names(pid: int, first: int, name: str, count: int) -> Iterable[str]:
    for lane in range(count):
        yield _meta("thread_name", pid, first + lane, name if lane == 0 else f"{name} {lane + 1}")
        yield _meta("thread_sort_index", pid, first + lane, first + lane)


def _has_flow(columns: Columns, row: int) -> bool:
    """Whether an arrow leads to its start: both ends are known, and clocks that are a little off do not turn it."""
    subs = columns.submissions
    committed = subs.commit_begin_ns[row] != ABSENT and subs.commit_end_ns[row] != ABSENT
    return bool(committed and subs.ran[row] and subs.start_ns[row] >= subs.commit_begin_ns[row])


def _flow(phase: str, number: int, place: tuple[int, int], at: int, base: int, kind: str) -> str:
    end = ',"bp":"e"' if phase == "f" else ""
    return (
        f'{{"ph":"{phase}","name":"{kind}","cat":"{kind}","id":{number},"pid":{place[0]},"tid":{place[1]},'
        f'"ts":{_micro(at - base)}{end}}}'
    )


def _complete(
    name: str, kind: str, place: tuple[int, int], begin: int, end: int, base: int, facts: dict[str, Any]
) -> str:
    opening = _text({"ph": "X", "name": name, "cat": kind, "pid": place[0], "tid": place[1], "args": facts})
    return f'{opening[:-1]},"ts":{_micro(begin - base)},"dur":{_micro(end - begin)}}}'


def _micro(ns: int) -> str:
    """Exact microseconds: a float would lose nanoseconds in long recordings."""
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
