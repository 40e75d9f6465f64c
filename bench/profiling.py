"""What profiling costs: to the work itself on the device, and to the host for each submission.

Replayed chains of dispatches that each take about 10, 1 and 0.1 µs, with the profile off, at command buffers, and at
dispatches. The levels take turns in one run; "off" is measured twice, which shows the noise of the machine.

    python bench/profiling.py [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from functools import partial

import numpy as np

import ostinato
from harness import Table, interleaved, median, ratio, report
from sources import STEPS

LEVELS = {"off": None, "off again": None, "command buffers": "command_buffers", "dispatches": "dispatches"}
SETTLING_S, MEASURED_S = 0.4, 0.2


class Work:
    """A chain of dispatches of a chosen length, replayed."""

    def __init__(self, device: ostinato.Device, kernel: ostinato.Kernel, steps: int, count: int) -> None:
        x = device.zeros(1, np.uint32)

        def encode(encoder: ostinato.CommandEncoder) -> None:
            for _ in range(count):
                encoder.dispatch(kernel, x, steps, threads=1)

        self.graph = device.capture(encode).instantiate()

    def once(self) -> tuple[float, float]:
        """Seconds on the device, and seconds of host time beyond that."""
        start = time.perf_counter()
        submission = self.graph.replay()
        submission.wait()
        wall = time.perf_counter() - start
        times = submission.gpu_time
        assert times is not None
        spent = (times[1] - times[0]) / 1e9
        return spent, wall - spent


def stretch(work: Work, level: str | None) -> tuple[float, float]:
    """Medians of the two in a stretch of it, after a start in which a recording is set up."""
    with nullcontext() if level is None else ostinato.profile(level=level):
        start = time.perf_counter()
        while time.perf_counter() - start < SETTLING_S:
            work.once()
        found = []
        while time.perf_counter() - start < SETTLING_S + MEASURED_S:
            found.append(work.once())
    return median([device for device, _ in found]), median([host for _, host in found])


class Live:
    """A list of dispatches that is encoded anew each time, with other values in none, one or all of them."""

    COUNT = 1_000

    def __init__(self, device: ostinato.Device, kernel: ostinato.Kernel, changed: int) -> None:
        self.device, self.kernel, self.changed = device, kernel, changed
        self.buffers = [device.zeros(1, np.uint32) for _ in range(self.COUNT)]
        self.turn = 0

    def once(self) -> float:
        """Seconds of host time to commit it and to see it done."""
        self.turn = self.turn % 4_000 + 1
        encoder = self.device.command_encoder()
        for number, buffer in enumerate(self.buffers):
            encoder.dispatch(self.kernel, buffer, self.turn if number < self.changed else 1, threads=1)
        start = time.perf_counter()
        submission = encoder.commit()
        submission.wait()
        wall = time.perf_counter() - start
        times = submission.gpu_time
        assert times is not None
        return wall - (times[1] - times[0]) / 1e9


def live_stretch(work: Live, level: str | None) -> float:
    """The least of some of them: whatever else the machine does only makes it longer."""
    with nullcontext() if level is None else ostinato.profile(level=level):
        return min([work.once() for _ in range(25)][5:])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument("--rounds", type=int, default=9, help="measurements of each cell (default 9)")
    arguments = options.parse_args()
    device = ostinato.open_device("cpu")
    kernel = device.library(STEPS)["steps"]
    rows = []
    for steps, count in ((6_000, 200), (600, 1_000), (60, 5_000)):
        work = Work(device, kernel, steps, count)
        host: dict[str, list[float]] = {level: [] for level in LEVELS}

        def turn(level: str, work: Work = work, host: dict[str, list[float]] = host) -> float:
            spent, beyond = stretch(work, LEVELS[level])
            host[level].append(beyond)
            return spent

        found = interleaved({level: partial(turn, level) for level in LEVELS}, arguments.rounds)
        each = median(found["off"]) * 1e6 / count
        shares = [f"{ratio(found[level], found['off']) - 1:+.2%}" for level in list(LEVELS)[1:]]
        beyond = [round((median(host[level][1:]) - median(host["off"][1:])) * 1e6, 1) for level in list(LEVELS)[2:]]
        rows.append((round(each, 2), count, *shares, *beyond))
    columns = (
        "µs a dispatch",
        "dispatches",
        "off again",
        "command buffers",
        "dispatches sampled",
        "host µs a submission, command buffers",
        "host µs a submission, dispatches",
    )
    live_rows = []
    for name, changed in (("none", 0), ("one", 1), ("all", Live.COUNT)):
        live = Live(device, kernel, changed)
        turns = {level: partial(live_stretch, live, LEVELS[level]) for level in LEVELS}
        found = interleaved(turns, arguments.rounds)
        added = [(median(found[level]) - median(found["off"])) * 1e6 / Live.COUNT for level in list(LEVELS)[1:]]
        live_rows.append((name, *(round(one, 2) for one in added)))
    live_columns = ("new values in", "off again", "command buffers", "dispatches")
    report(
        [
            Table("What profiling adds", columns, rows),
            Table("Live lists of 1,000: host µs a dispatch more, to commit and see done", live_columns, live_rows),
        ],
        arguments.json,
    )


if __name__ == "__main__":
    main()
