"""What the runs of a fleet say together: which kernels changed when, which hosts and ranks are slow, what is missing.

Everything is compared with the same work: the same program, version, device and kernel. Times are compared as
logarithms of each run's median, since the runs, not their samples, are independent of each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analyse.columns import Floats, Ints
from ..analyse.statistics import Interval, median_interval, medians_by
from .changes import LEAST_RUNS, Level, Step, level, steps
from .gathering import Runs

SLOW_RATE = 0.01
"""The probability that any host (or rank) of a fleet of equals is called slow."""
SLOW_LEAST = 0.02
"""A host that is slower by less is not named."""
_DAY_NS = 86_400e9
_JOB_NS = 3_600_000_000_000
"""Ranks of one job begin within this time."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel on a device at a version: the typical run's median and 99th percentile, with intervals over runs."""

    kernel: str
    device: str
    work: str
    version: str
    runs: int
    samples: int
    total_ns: int
    p50: Interval | None
    p99: Interval | None


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel became slower or faster at a version."""

    kernel: str
    device: str
    work: str
    version: str
    before: str
    """The version before it."""
    step: Step
    series: tuple[tuple[str, float, float], ...]
    """The versions around it: each with the typical time in ns and its error as a part."""
    at: int
    """Where in the series it begins."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A host or a rank whose runs take longer than others' on the same work."""

    name: str
    device: str
    work: str
    slower: Interval
    """As a part."""
    runs: int
    hosts: tuple[str, ...] = ()
    """Of a rank: where it ran."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Ranks of a job that no recording is of."""

    work: str
    version: str
    began_ns: int
    world_size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A recording whose checks say not to rely on it."""

    file: str
    host: str
    pid: int
    began_ns: int | None
    checks: tuple[str, ...]


def residuals(runs: Runs) -> tuple[Ints, Floats]:
    """Of each row: the number of its work (program, version, device and kernel), and by how much it is off that."""
    group, _ = runs.codes("work", "version", "device")
    code = group[runs.run] * max(len(runs.names), 1) + runs.kernel
    _, same = np.unique(code, return_inverse=True)
    logs = np.log(np.maximum(runs.p50_ns, 1.0))
    size = int(same.max(initial=-1)) + 1
    # A kernel that only few runs have says nothing about any of them.
    alone = np.bincount(same, minlength=size)[same] < LEAST_RUNS
    return same, np.where(alone, np.nan, logs - medians_by(same, logs, size)[same])


def run_effects(runs: Runs, off: Floats) -> Floats:
    """By how much each run is off, over its kernels; NaN where nothing can be compared."""
    known = ~np.isnan(off)
    return medians_by(runs.run[known], off[known], len(runs.facts))


def slow_hosts(runs: Runs, effects: Floats) -> list[Slow]:
    """Hosts that are slower than their peers."""
    return [slow for slow in _slow(runs, effects, "host") if slow.name]


def slow_ranks(runs: Runs, effects: Floats) -> list[Slow]:
    """Ranks that are slower than their peers."""
    ranked = np.array([run["rank"] is not None for run in runs.facts], bool)
    return _slow(runs, np.where(ranked, effects, np.nan), "rank")


def _slow(runs: Runs, effects: Floats, what: str) -> list[Slow]:
    """Members of which more runs are slow than chance explains, by a binomial test: busy moments hit every host.

    A run counts as slow if it is off the others' median by `SLOW_LEAST`; the part of the others' runs that are slow is
    what chance gives.
    """
    code, keys = runs.codes("work", "device", what)
    peers, groups = runs.codes("work", "device")
    found = []
    for group in range(len(groups)):
        mine = (peers == group) & ~np.isnan(effects)
        members = np.unique(code[mine])
        for member in members.tolist() if members.size > 1 else ():
            values, others = effects[(code == member) & mine], effects[(code != member) & mine]
            usual = float(np.median(others))
            part = (float((others > usual + SLOW_LEAST).sum()) + 1) / (others.size + 2)
            slow = int((values > usual + SLOW_LEAST).sum())
            if 2 * slow <= values.size or _tail(slow, values.size, part) > SLOW_RATE / members.size:
                continue
            interval = median_interval(values) or Interval(float(np.median(values)), math.nan, math.nan)
            ends = (interval.estimate, interval.low, interval.high)
            work, device, name = keys[member]
            hosts = tuple(sorted({runs.facts[row]["host"] for row in np.flatnonzero((code == member) & mine)}))
            found.append(
                Slow(
                    *(f"rank {name}" if what == "rank" else str(name), device, work),
                    Interval(*(math.expm1(end - usual) for end in ends)),
                    int(values.size),
                    hosts if what == "rank" else (),
                )
            )
    return sorted(found, key=lambda slow: -slow.slower.estimate)


def _tail(least: int, count: int, part: float) -> float:
    """The probability that at least so many of `count` are slow, if each is with probability `part`."""
    return sum(math.comb(count, k) * part**k * (1 - part) ** (count - k) for k in range(least, count + 1))


def changes(runs: Runs, hosts: list[Slow], same: Ints) -> tuple[list[Change], int]:
    """Where kernels became slower or faster, largest first, and how many series were looked at."""
    known = {(slow.work, slow.device, slow.name): math.log1p(slow.slower.estimate) for slow in hosts}
    offsets = np.array([known.get((run["work"], run["device"], run["host"]), 0.0) for run in runs.facts])
    logs = np.log(np.maximum(runs.p50_ns, 1.0)) - offsets[runs.run]
    began = np.array([run["began_ns"] or 0 for run in runs.facts], np.float64)
    found: list[Change] = []
    looked = 0
    for work, device, kernel, versions in _series(runs, same):
        levels: list[Level] = []
        days, names = [], []
        for version, rows in versions:
            if len(rows) >= LEAST_RUNS:
                levels.append(level(logs[rows]))
                days.append(float(began[runs.run[rows]].min()) / _DAY_NS)
                names.append(version)
        if len(levels) < 2:
            continue
        looked += 1
        for step in steps(levels, np.array(days)):
            shown = tuple(
                (name, math.exp(each.mean), math.sqrt(each.variance / each.runs))
                for name, each in zip(names, levels, strict=True)
            )
            found.append(Change(kernel, device, work, names[step.at], names[step.at - 1], step, shown, step.at))
    return sorted(found, key=lambda change: -abs(change.step.change)), looked


def _series(runs: Runs, same: Ints) -> Iterator[tuple[str, str, str, list[tuple[str, Ints]]]]:
    """Each kernel of a program on a device, with the rows of its versions in the order in which these began."""
    began = np.array([run["began_ns"] or 0 for run in runs.facts], np.float64)
    order = np.argsort(same, kind="stable")
    ends = np.flatnonzero(np.diff(same[order], append=-1)) + 1
    together: dict[tuple[str, str, str], list[tuple[float, str, Ints]]] = {}
    for rows in np.split(order, ends[:-1]) if order.size else []:
        run = runs.facts[int(runs.run[rows[0]])]
        key = (run["work"], run["device"], runs.names[int(runs.kernel[rows[0]])])
        together.setdefault(key, []).append((float(began[runs.run[rows]].min()), run["version"], rows))
    for (work, device, kernel), versions in sorted(together.items()):
        versions.sort(key=lambda each: each[:2])
        yield work, device, kernel, [(version, rows) for _, version, rows in versions]


def kernel_rows(runs: Runs, same: Ints, most_kernels: int, most_versions: int) -> tuple[list[KernelRow], int]:
    """The kernels that take most time, each at its latest versions; and how many rows were left out."""
    series = list(_series(runs, same))
    spent = [sum(int(runs.total_ns[rows].sum()) for _, rows in versions) for *_, versions in series]
    made: list[KernelRow] = []
    total = sum(len(versions) for *_, versions in series)
    for place in np.argsort(-np.array(spent, np.int64), kind="stable")[:most_kernels].tolist():
        work, device, kernel, versions = series[place]
        for version, rows in versions[-most_versions:]:
            made.append(
                KernelRow(
                    *(kernel, device, work, version, len(rows)),
                    *(int(runs.samples[rows].sum()), int(runs.total_ns[rows].sum())),
                    *(_middle(column[rows]) for column in (runs.p50_ns, runs.p99_ns)),
                )
            )
    return made, total - len(made)


def _middle(values: Floats) -> Interval:
    interval = median_interval(values)
    return Interval(float(values[0]), math.nan, math.nan) if interval is None else interval


def missing(runs: Runs) -> list[Missing]:
    """Jobs that lack ranks: processes of one program, version and number of ranks that began at about the same time."""
    jobs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for run in runs.facts:
        if run["rank"] is not None and run["world_size"] and run["began_ns"] is not None:
            jobs.setdefault((run["work"], run["version"], run["world_size"]), []).append(run)
    found = []
    for (work, version, size), members in jobs.items():
        for job in _jobs(members):
            there = {run["rank"] for run in job}
            if size <= 1 << 20 and len(there) < size:
                lacking = tuple(rank for rank in range(size) if rank not in there)
                found.append(Missing(work, version, job[0]["began_ns"], size, lacking))
    return sorted(found, key=lambda each: each.began_ns)


def _jobs(members: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Runs in groups that began together and have each rank once."""
    job: list[dict[str, Any]] = []
    for run in sorted(members, key=lambda run: run["began_ns"]):
        others = {(each["rank"], each["process"]) for each in job}
        again = any(rank == run["rank"] and process != run["process"] for rank, process in others)
        if job and (again or run["began_ns"] - job[0]["began_ns"] > _JOB_NS):
            yield job
            job = []
        job.append(run)
    if job:
        yield job


def failed(runs: Runs) -> list[Failed]:
    """Recordings whose checks failed, latest first."""
    found: dict[tuple[str, int], Failed] = {}
    for run in runs.facts:
        checks = json.loads(run["failed"])
        if checks:
            key = (run["recording"], run["process"])
            found[key] = Failed(run["file"], run["host"], run["pid"], run["began_ns"], tuple(map(str, checks)))
    return sorted(found.values(), key=lambda each: -(each.began_ns or 0))
