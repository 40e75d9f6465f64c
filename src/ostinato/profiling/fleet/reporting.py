"""The report on a store: everything that its runs say, as one value and as JSON."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from typing import Any

from .changes import ALARM_RATE
from .engines import Engine
from .findings import (
    SLOW_RATE,
    Change,
    Failed,
    KernelRow,
    Missing,
    Slow,
    changes,
    failed,
    kernel_rows,
    missing,
    residuals,
    run_effects,
    slow_hosts,
    slow_ranks,
)
from .gathering import Runs, gather
from .querying import Wanted
from .store import SetAside, State, Store, open_store

FORMAT = "ostinato.fleet_report"
_MOST_KERNELS = 50
_MOST_VERSIONS = 5
_ALL = 10_000


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What a store says about the runs that were asked about."""

    store: str
    recordings: int
    runs: int
    samples: int
    hosts: int
    devices: tuple[str, ...]
    versions: int
    days: tuple[str, str]
    lost: int
    unclosed: int
    kernels: tuple[KernelRow, ...]
    kernels_left_out: int
    changes: tuple[Change, ...]
    series: int
    """Kernels that were searched for changes."""
    alarm_rate: float
    """Of each of them: the probability that a change is reported though there is none."""
    slow_hosts: tuple[Slow, ...]
    slow_ranks: tuple[Slow, ...]
    slow_rate: float
    missing: tuple[Missing, ...]
    failed: tuple[Failed, ...]
    aside: tuple[SetAside, ...]


def report(url: str | os.PathLike[str], engine: Engine, wanted: Wanted | None = None) -> FleetReport:
    """The report on a store, or on the runs of it that are wanted."""
    store, chosen = open_store(url), wanted or Wanted()
    return store.consistently(lambda state: _report(store, state, gather(store, url, state, chosen, engine), chosen))


def _report(store: Store, state: State, runs: Runs, wanted: Wanted) -> FleetReport:
    same, off = residuals(runs)
    effects = run_effects(runs, off)
    hosts = slow_hosts(runs, effects)
    changed, series = changes(runs, hosts, same)
    one = wanted.kernel is not None
    kernels, left_out = kernel_rows(runs, same, _MOST_KERNELS, _ALL if one else _MOST_VERSIONS)
    facts = runs.facts
    days = sorted({run["day"] for run in facts}) or ["", ""]
    return FleetReport(
        store=store.place.shown,
        recordings=len({run["recording"] for run in facts}),
        runs=len(facts),
        samples=int(runs.samples.sum()) if one else sum(run["samples"] for run in facts),
        hosts=len({run["host"] for run in facts}),
        devices=tuple(sorted({run["device"] for run in facts if run["device"]})),
        versions=len({run["version"] for run in facts}),
        days=(days[0], days[-1]),
        lost=sum(run["lost"] for run in {run["recording"]: run for run in facts}.values()),
        unclosed=len({run["recording"] for run in facts if not run["closed"]}),
        kernels=tuple(kernels),
        kernels_left_out=left_out,
        changes=tuple(changed),
        series=series,
        alarm_rate=ALARM_RATE,
        slow_hosts=tuple(hosts),
        slow_ranks=tuple(slow_ranks(runs, effects)),
        slow_rate=SLOW_RATE,
        missing=tuple(missing(runs)),
        failed=tuple(failed(runs)),
        aside=state.aside,
    )


def as_json(report: FleetReport) -> str:
    """The report as JSON; what is not known is null."""
    return json.dumps({"format": FORMAT, "version": 1, **_finite(asdict(report))}, indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
