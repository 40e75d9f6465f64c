"""Lists whose dispatches take turns at being timed: what is said of them is true of all of them, or not said."""

from __future__ import annotations

import numpy as np
import pytest

from ostinato.profiling.analyse import timeline, validity
from ostinato.profiling.analyse.columns import MEASURED, UNAVAILABLE, Columns, Device, partly_timed
from ostinato.profiling.analyse.groups import command_times
from ostinato.profiling.analyse.lists import warm_ups
from ostinato.profiling.analyse.summary import look_first, summarise
from ostinato.profiling.analyse.validity import Drift, Status
from ostinato.profiling.report import tables
from synthetic import Synthetic, node

KERNELS = ("long", "wide", "wide", "wide", "short")
LENGTHS = (400, 300, 300, 300, 100)
RUN_NS = sum(LENGTHS) * 1_000


def recorded(runs: int = 12, late_ns: int = 0, first_whole: bool = True) -> Synthetic:
    """Replays of which the first has all times, and the others that of one group: of the wide one, one of its three."""
    made = Synthetic()
    plan = made.plan([node(kernel) for kernel in KERNELS])
    starts = [1_000 * sum(LENGTHS[:at]) for at in range(len(LENGTHS))]
    for run in range(runs):
        begin = run * 10 * RUN_NS + 1
        timed = {0: (0,), 1: (1 + run // 3 % 3,), 2: (4,)}[run % 3]
        if run == 0 and first_whole:
            timed = tuple(range(5))
        times = [
            (begin + late_ns + at, begin + late_ns + at + 1_000 * n) for at, n in zip(starts, LENGTHS, strict=True)
        ]
        quality = [MEASURED if at in timed else UNAVAILABLE for at in range(5)]
        times = [time if at in timed else (0, 0) for at, time in enumerate(times)]
        made.submit(plan, times, quality, start_ns=begin, end_ns=begin + RUN_NS)
    return made


def drift_of(columns: Columns) -> Drift:
    return validity.drift(columns, timeline.submission_times(columns), warm_ups(columns))


def test_those_are_known() -> None:
    assert partly_timed(recorded().columns()).tolist() == [False] + [True] * 11


def test_what_lies_between_the_times_is_not_idle() -> None:
    found = timeline.device_times(recorded(runs=3).columns())[0]
    assert found.busy_ns == 3 * RUN_NS
    assert found.dispatches == 7
    assert found.basis == "dispatches and command buffers"


def test_shares_stand_for_all_that_ran() -> None:
    shares = {group.name: group.share for group in summarise(recorded(runs=13).columns()).kernels}
    assert shares == {
        "long": pytest.approx(400 / 1400), "wide": pytest.approx(900 / 1400), "short": pytest.approx(100 / 1400)
    }  # fmt: skip


def test_devices_that_share_commands_have_their_own_turns() -> None:
    """The same list on a device that times all of it: neither device's times stand for the other's runs."""
    made, runs = recorded(runs=13), 4
    made.devices.append(Device("other", clock_uncertainty_ns=50.0, workers=4))
    for run in range(runs):
        ends = [run * 10 * RUN_NS + 1 + 1_000 * sum(LENGTHS[: at + 1]) for at in range(len(LENGTHS))]
        made.submit(0, [(end - 1_000 * n, end) for end, n in zip(ends, LENGTHS, strict=True)], device=1)
    lengths_ns = 1_000 * np.array(LENGTHS)
    assert command_times(made.columns()).device_busy_ns == pytest.approx(np.array([13 * lengths_ns, runs * lengths_ns]))


def test_the_largest_share_comes_first() -> None:
    """The long one was timed as often as the three wide ones together, so its total is larger."""
    found = summarise(recorded(runs=13, first_whole=False).columns()).kernels
    assert [group.name for group in found] == ["wide", "long", "short"]
    assert found[1].total_ns > found[0].total_ns


def test_the_table_says_that_they_take_turns() -> None:
    summary = summarise(recorded(runs=100).columns())
    assert any("take turns" in note for note in tables.kernels(summary).notes)
    assert "in the timed ones" in look_first(summary)


def test_neighbouring_runs_that_have_all_times_together_count_as_one_run() -> None:
    few, many = (summarise(recorded(runs=runs).columns()).verdict for runs in (60, 100))
    assert few is not None
    assert many is not None
    assert (few.runs, few.enough) == (6, False)
    assert (many.runs, many.enough) == (11, True)
    assert many.named[0].kernel == "wide"


def test_a_part_is_not_held_against_the_whole() -> None:
    found = drift_of(recorded().columns())
    assert found.check.status is Status.NOT_JUDGED
    assert "only partly timed" in found.check.sentence
    assert "no timed dispatch lies outside" in found.check.sentence


def test_a_part_outside_of_its_command_buffer_is_an_error() -> None:
    found = drift_of(recorded(late_ns=2 * RUN_NS).columns())
    assert found.check.status is Status.ERROR
    assert "clocks" in found.check.sentence
