"""The report as JSON: documented, versioned, plain types only.

`version` rises when a key changes its meaning or goes; new keys may come at any time. Times are nanoseconds in keys
that end in `_ns`, shares are between 0 and 1, and what was not measured is null, never 0. docs/json.md describes every
field. Keys:

    format, version        "ostinato.report", 1
    processes              the processes that recorded, a row each: name (a short one), program (with arguments), began
                           (UTC), duration_ns, host, pid, rank, local_rank, world_size, version, revision, changed
                           (whether files differed from the revision), cores and load (each at the start and at the
                           end), profile_ns (profiling overhead on its threads)
    devices                the devices, with measured ceilings; `process` is a row of processes
    submissions, dispatched, timed
    timed_in_part          whether dispatches took turns at being timed: shares then cover all that ran
    timeline               per device: span, busy (union), sum, idle, causes of idle time, the longest bubbles
    kernels, labels, label_patterns, op_kinds, shapes
                           groups: name, detail, depth, dispatched, count, bounded, total_ns, mean_ns, p50_ns, p90_ns,
                           p99_ns, min_ns, max_ns, share (of busy time), per_instance_ns, place (of live work: of the
                           first dispatch that was equal in everything else), source and line (of the kernel's
                           function), source_digest (SHA-256 of that file or text), execution (how its threads run)
    by_rank, by_host, by_process
                           the same groups for each rank, host or process, with its kernels
    repeated_region        the region of per_instance_ns: the one with most instances, or the one asked for
    outside_region         command buffers outside of any instance of it, and how many of them were committed while
                           one was open, by another thread or task
    regions                host regions: instances, wall and device time, the slowest instances
    command_buffers        by label: count, times, queue delay, encode time
    suspects               ranked, with the saving, the efficiency and the reasons; `measure` says relative to what
    verdict                where to look first, with its confidence; null without suspects
    what_if_total_ns       what savings are parts of: the time of a typical undisturbed run of each list, times its runs
    what_if                kernels twice as fast; null where it is not known: they compete for a full device, and no
                           replay reproduces the measured times
    replay_residue         how far those replays are from the measured time, as a part of it; null without any
    critical_paths         of the command lists that take most time: nodes on the path, slack of every node
    drift, perturbation, machine, drops
                           the validity checks that have figures; `status` is fine, noted, error or not judged
    checks                 all validity checks: name, status, sentence
    look_first             the closing line
    meta                   where the recording comes from
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np

from ..analyse.columns import Device
from ..analyse.groups import Group, Times
from ..analyse.machine import WANTED_RUNS
from ..analyse.origin import moment
from ..analyse.slowest import SlowInstance
from ..analyse.statistics import Interval
from ..analyse.summary import PlanPath, Summary, Verdict, look_first
from ..analyse.timeline import DeviceTime

VERSION = 1
_MAX_NODES = 5000


def as_json(summary: Summary, indent: int | None = 2) -> str:
    """The report as text; ASCII only, so that nothing in it can act on a terminal."""
    return json.dumps(as_dict(summary), indent=indent, ensure_ascii=True, allow_nan=False)


def as_dict(summary: Summary) -> dict[str, Any]:
    """The report as a dictionary of plain types."""
    drops = next(check for check in summary.checks if check.name == "drops")
    made = {
        "format": "ostinato.report",
        "version": VERSION,
        "processes": [_fields(origin) for origin in summary.origins],
        "devices": [_device(device) for device in summary.devices],
        "submissions": summary.submissions,
        "dispatched": summary.dispatched,
        "timed": summary.timed,
        "timed_in_part": summary.in_part,
        "timeline": [_timeline(device) for device in summary.device_times],
        "kernels": _groups(summary.kernels),
        "labels": _groups(summary.labels),
        "label_patterns": _groups(summary.label_patterns),
        "op_kinds": _groups(summary.op_kinds),
        "shapes": _groups(summary.shapes),
        **{
            f"by_{part}": [{**_group(each.whole), "kernels": _groups(each.kernels)} for each in parts]
            for part, parts in summary.parts.items()
        },
        "repeated_region": summary.repeated,
        "outside_region": None if summary.outside is None else _fields(summary.outside),
        "regions": [
            {
                "name": r.name,
                "instances": r.instances,
                "wall": _times(r.wall),
                "median_ns": _interval(r.median_ns),
                "submissions": r.submissions,
                "dispatches": r.dispatches,
                "device": _times(r.device_sum),
                "slowest": [_slow(slow) for slow in summary.slowest.get(r.name, ())],
            }
            for r in summary.regions
        ],
        "command_buffers": [
            {
                "name": b.name,
                "count": b.count,
                "measured": b.measured,
                **_times(b.times),
                "queue_delay": _times(b.queue_delay),
                "encode": _times(b.encode),
            }
            for b in summary.command_buffers
        ],
        "suspects": [{**_fields(s), "measure": device.measure} for device in summary.suspects for s in device.ranked],
        "verdict": None if summary.verdict is None else _verdict(summary.verdict),
        "what_if_total_ns": summary.what_if_total_ns or None,
        "what_if": [_fields(w) for w in summary.what_ifs],
        "replay_residue": summary.replay_residue,
        "critical_paths": [_path(path) for path in summary.critical_paths],
        "drift": {
            **_fields(summary.drift.check),
            **{k: v for k, v in _fields(summary.drift).items() if k != "check"},
        },
        "perturbation": {
            **_fields(summary.perturbation.check),
            "ratio": _interval(summary.perturbation.ratio),
            "probes": summary.perturbation.probes,
            "sampled": summary.perturbation.sampled,
            "estimate": summary.perturbation.estimate,
        },
        "machine": {
            **_fields(next(check for check in summary.checks if check.name == "machine")),
            **_fields(summary.machine),
        },
        "drops": {
            **_fields(drops),
            "total": sum(count for _, count in summary.drops),
            "where": [{"where": where, "count": count} for where, count in summary.drops],
        },
        "checks": [_fields(check) for check in summary.checks],
        "look_first": look_first(summary),
        "meta": dict(summary.meta),
    }
    report: dict[str, Any] = plain(made)
    return report


def _device(device: Device) -> dict[str, Any]:
    facts = {field.name: getattr(device, field.name) for field in dataclasses.fields(device)}
    for name in ("copy_measured", "flops_measured"):
        facts[name] = moment(facts.pop(f"{name}_ns"))
    return {name: value for name, value in facts.items() if name not in ("id", "details")}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "named": [{"kernel": s.kernel, "detail": s.detail, "device_row": s.device_row} for s in verdict.named],
        "sure": verdict.sure,
        "confidence": verdict.confidence,
        "undisturbed_runs": verdict.runs,
        "needed_runs": WANTED_RUNS,
        "command_list": verdict.list_label or None,
        "enough_runs": verdict.enough,
    }


def _slow(slow: SlowInstance) -> dict[str, Any]:
    return {name: value for name, value in _fields(slow).items() if name != "begin_ns"}


def _groups(groups: tuple[Group, ...]) -> list[dict[str, Any]]:
    return [_group(group) for group in groups]


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "detail": group.detail,
        "depth": group.depth,
        "dispatched": group.dispatched,
        "count": group.count,
        "bounded": group.bounded,
        **_times(group.times),
        "share": group.share,
        "per_instance_ns": group.per_instance_ns,
        "place": group.place or None,
        "source": group.file or None,
        "line": group.line,
        "source_digest": group.source_digest or None,
        "execution": group.execution or None,
    }


def _times(times: Times | None) -> dict[str, Any]:
    return {name: None if times is None else getattr(times, name) for name in Times.__slots__}


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    return None if interval is None else _fields(interval)


def _timeline(device: DeviceTime) -> dict[str, Any]:
    return {
        **{k: v for k, v in _fields(device).items() if k not in ("causes", "bubbles")},
        "idle_ns": device.idle_ns,
        "causes": [_fields(cause) for cause in device.causes],
        "bubbles": [_fields(bubble) for bubble in device.bubbles],
    }


def _path(listed: PlanPath) -> dict[str, Any]:
    """The first few thousand nodes of a command list; `nodes` says how many there are."""
    schedule, path = listed.schedule, listed.path
    on_path = set(path.nodes)
    return {
        "device": listed.device,
        "label": listed.label,
        "submissions": schedule.submissions,
        "wall_ns": schedule.wall_ns,
        "runs": listed.runs,
        "execution_ns": path.execution_ns,
        "gap_ns": path.gap_ns,
        "nodes": len(listed.kernel),
        "dispatches": [
            {
                "node": node,
                "kernel": listed.kernel[node],
                "label": listed.node_label[node],
                "start_ns": schedule.start_ns[node] if schedule.measured[node] else None,
                "duration_ns": schedule.duration_ns[node] if schedule.measured[node] else None,
                "slack_ns": path.slack_ns[node],
                "on_path": node in on_path,
            }
            for node in range(min(len(listed.kernel), _MAX_NODES))
        ],
    }


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__slots__}


def plain(value: Any) -> Any:
    """Only dict, list, str, int, float, bool and None; what is no number becomes None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, str) else value
