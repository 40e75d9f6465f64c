"""What a program ran on and with: devices, drivers, versions, settings, clocks, load, and where two sides differ in it.

A comparison lists the differences first, because any of them can be the reason for what it measures. The program itself
(its arguments, its revision) is what is compared and does not count. Texts are what files say and not escaped; whoever
shows them does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .columns import ABSENT, Columns, Device
from .formatting import percent

_OWN_SETTINGS = ("setting.OSTINATO_PROFILE", "setting.OSTINATO_PROFILE_FILE")
"""Set by whoever records; the work is the same either way."""
_FACTS = {
    "ostinato": "ostinato",
    "python": "Python",
    "platform": "system",
    "processor": "processor",
    "cpu_governor": "CPU governor",
}
"""Facts of a process by their key in `meta`, with the name that sentences use."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A figure of which small differences are normal."""

    name: str
    differ: Callable[[float, float], bool]
    shown: Callable[[float], str]


_NUMBERS = (
    _Number("lowest clock", lambda a, b: abs(b - a) > 0.01 * max(a, b), lambda mhz: f"{mhz:,.0f} MHz"),
    _Number("load average per core", lambda a, b: abs(b - a) > 0.25, lambda load: f"{load:.2f}"),
    _Number("workers' time taken by other programs", lambda a, b: abs(b - a) > 0.02, percent),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one recording says about its machine."""

    devices: tuple[str, ...]
    """What tells kinds of devices apart, 'AMD EPYC (cpu, 2 workers)'; sorted."""
    facts: Mapping[str, str]
    """By name, in the order in which differences are listed: 'Python' is 'CPython 3.11.7'."""
    numbers: Mapping[str, float]
    """By name; what is not known is not there."""


def surroundings(columns: Columns) -> Surroundings:
    """What a recording says about its machine, over all its devices and processes."""
    devices, origins, meta = columns.devices, columns.origins, columns.meta
    facts = {"driver or compiler": _joined(device.driver for device in devices)}
    for key in sorted({key for device in devices for key in device.details}):
        text = _joined(device.details.get(key, "") for device in devices)
        if text not in facts.values():  # the driver is one of the details
            facts[f"device's {key}"] = text
    facts["host"] = _joined(origin.host for origin in origins)
    facts["cores"] = _joined(str(cores) for origin in origins for cores in origin.cores if cores is not None)
    facts |= {name: meta.get(key, "") for key, name in _FACTS.items()}
    settings = sorted(key for key in meta if key.startswith("setting.") and key not in _OWN_SETTINGS)
    facts |= {key.removeprefix("setting."): meta[key] for key in settings}
    facts["clock held back by"] = _joined(device.held_back_by for device in devices)
    facts["other programs on the device"] = "yes" if any(device.other_processes for device in devices) else ""
    return Surroundings(
        devices=tuple(sorted({_kind(device) for device in devices})),
        facts={name: text for name, text in facts.items() if text},
        numbers=dict(_numbers(columns)),
    )


def differences(a: Sequence[Surroundings], b: Sequence[Surroundings], names: tuple[str, str] = ("A", "B")) -> list[str]:
    """Where two sides differ, a line each: "Python: A CPython 3.11.7, B CPython 3.12.1". Devices are first."""

    def line(name: str, values: Sequence[Sequence[str]]) -> str:
        shown = (f"{side} {' and '.join(each)}" for side, each in zip(names, values, strict=True))
        return f"{name}: {', '.join(shown)}"

    sides = (a, b)
    lines = []
    devices = [_values(_joined(each.devices) for each in side) for side in sides]
    if devices[0] != devices[1]:
        lines.append(line("device", devices))
    for name in dict.fromkeys(name for each in (*a, *b) for name in each.facts):
        values = [_values(each.facts.get(name, "none") for each in side) for side in sides]
        if values[0] != values[1]:
            lines.append(line(name, values))
    for number in _NUMBERS:
        known = [[each.numbers[number.name] for each in side if number.name in each.numbers] for side in sides]
        if all(known):
            first, second = (float(np.median(each)) for each in known)
            if number.differ(first, second):
                lines.append(line(number.name, [[number.shown(first)], [number.shown(second)]]))
    return lines


def _numbers(columns: Columns) -> Iterable[tuple[str, float]]:
    clocks = [device.sm_mhz for device in columns.devices if device.sm_mhz is not None]
    loads = [
        load / cores
        for origin in columns.origins
        for load, cores in zip(origin.load, origin.cores, strict=True)
        if load is not None and cores
    ]
    subs = columns.submissions
    known = (subs.worked_ns != ABSENT) & (subs.lost_ns != ABSENT)
    worked_ns, lost_ns = int(subs.worked_ns[known].sum()), int(subs.lost_ns[known].sum())
    clock, load, lost = (number.name for number in _NUMBERS)
    if clocks:
        yield clock, min(clocks)
    if loads:
        yield load, float(np.mean(loads))
    if worked_ns:
        yield lost, lost_ns / worked_ns


def _kind(device: Device) -> str:
    workers = "" if device.workers is None else f", {device.workers} workers"
    return f"{device.description or device.name} ({device.backend}{workers})"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(filter(None, texts))))


def _values(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts))
