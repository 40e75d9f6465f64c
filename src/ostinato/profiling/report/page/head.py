"""The head of the page: what it is of, the main figures, where to look first, and the validity checks."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ....base.printable import printable
from ...analyse import formatting
from ...analyse.kernels import named
from ...analyse.summary import Summary, look_first
from ...analyse.timeline import DeviceTime
from ...analyse.validity import Check, Status
from ..tables import overview
from ..text import LONGEST_SENTENCE, visible
from .material import Material, kernel_rows
from .sentences import sentence, unbroken

_OPENING = "Look first at "
_MOST_DEVICES = 2
"""That have a figure of their own."""


def head(material: Material) -> dict[str, Any]:
    """What stands above the tabs."""
    summary = material.summary
    look_at = visible(look_first(summary), LONGEST_SENTENCE)
    return {
        "overview": [visible(line, LONGEST_SENTENCE) for line in overview(summary)],
        "figures": [{"name": unbroken(name), "value": unbroken(value)} for name, value in _figures(summary)],
        "look_first": unbroken(look_at),
        "named": _named(summary, look_at),
        "sure": summary.verdict is not None and summary.verdict.sure,
        "doubt": _doubt(summary),
        "checks_title": _checks_title(summary),
        "checks": [_check(check) for check in summary.checks],
    }


def _figures(summary: Summary) -> list[tuple[str, str]]:
    """The few figures that people ask for first."""
    figures = []
    if summary.device_times:
        # Times of all devices are on one clock, also those of recordings that were merged.
        last_ns = max(device.begin_ns + device.span_ns for device in summary.device_times)
        first_ns = min(device.begin_ns for device in summary.device_times)
        figures.append(("from first to last work", formatting.time(last_ns - first_ns)))
        busy = [(device, device.busy_ns / device.span_ns) for device in summary.device_times if device.span_ns]
        for device, part in busy[:_MOST_DEVICES]:
            name = visible(device.device) if len(summary.device_times) > 1 else "device"
            figures.append((f"{name} busy{_idle(device)}", formatting.percent(part)))
        others = sorted(part for _, part in busy[_MOST_DEVICES:])
        if others:
            reach = " to ".join(dict.fromkeys(formatting.percent(part) for part in (others[0], others[-1])))
            figures.append((f"{formatting.count(len(others), 'other device')} busy", reach))
    repeated = next((region for region in summary.regions if region.name == summary.repeated), None)
    if repeated is not None:
        median = formatting.time(repeated.wall.p50_ns)
        figures.append((f"per {visible(repeated.name)}, median of {repeated.instances:,}", median))
    if summary.dispatched:
        figures.append(("dispatches", f"{summary.dispatched:,}"))
        figures.append(("kernels", f"{len(summary.kernels):,}"))
    return figures


def _idle(device: DeviceTime) -> str:
    """What most of the idle time of a device was spent on, in short."""
    if not device.causes:
        return ""
    spent: Counter[str] = Counter()
    for cause in device.causes:
        spent[cause.what.partition(" (")[0]] += cause.total_ns
    ((what, ns),) = spent.most_common(1)
    idle, part = formatting.time(device.idle_ns), formatting.whole_percent(ns / device.idle_ns)
    return f"; idle {idle}: {part} {what}"


def _named(summary: Summary, look_at: str) -> list[dict[str, Any]]:
    """The kernels that the sentence tells to look at: the number of each, and where its name stands in the sentence."""
    places, begin, rows = [], len(_OPENING), kernel_rows(summary)
    for suspect in summary.verdict.named if summary.verdict is not None else ():
        name = printable(named(suspect.kernel, suspect.detail))
        at = look_at.find(name, begin)
        row = rows.get((suspect.kernel, suspect.detail))
        if at >= 0 and row is not None:
            # JavaScript counts the characters beyond the first 65,536 twice.
            first, length = (len(text.encode("utf-16-le")) // 2 for text in (look_at[:at], name))
            places.append({"kernel": row, "begin": first, "end": first + length})
            begin = at + len(name)
    return places


def _check(check: Check) -> dict[str, str]:
    return {"name": check.name, "status": str(check.status), "sentence": sentence(check.sentence)}


def _doubt(summary: Summary) -> dict[str, str] | None:
    """The check to read before any figure: the first error, or that other programs disturbed the measurement."""
    errors = [check for check in summary.checks if check.status is Status.ERROR]
    disturbed = [check for check in summary.checks if check.name == "machine" and check.status is Status.NOTED]
    return next(map(_check, errors + disturbed), None)


def _checks_title(summary: Summary) -> str:
    worth_a_look = [check.name for check in summary.checks if check.status in (Status.NOTED, Status.ERROR)]
    if worth_a_look:
        return f"{len(worth_a_look)} of {len(summary.checks)} checks to look at: {', '.join(worth_a_look)}"
    open_ones = sum(check.status is Status.NOT_JUDGED for check in summary.checks)
    fine = f"{formatting.count(len(summary.checks) - open_ones, 'check')} fine"
    return f"{fine}, {open_ones} not judged" if open_ones else fine
