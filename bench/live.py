"""What `ostinato live` costs: time of a core at two refreshes a second, and whether the program beside it gets slower.

    python bench/live.py [--json] [--seconds N] [--runs N]

A program replays a list of dispatches, one command buffer after the other, in a region each, and is recorded. The view
runs on a terminal of its own, of 100 by 40 characters. Its time of a core is read from Linux after its start. Then runs
of the program with and without a view take turns, as `ostinato compare` makes them; SAME is within 1 %.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

import ostinato as ost
from harness import Table, report
from ostinato.measure.programs import run_in_turns
from ostinato.profiling.analyse.units import compare_units, read_unit
from ostinato.profiling.recording import SUFFIX, open_recording
from sources import STEPS

DELTA = 0.01
FIRST_PICTURES = 4
"""Measured from here on: the first ones read what was recorded before."""
CASES = {
    "50 of 100 µs": (50, 60_000),
    "100 of 10 µs": (100, 6_000),
    "1,000 of 1 µs": (1_000, 600),
    "1 of 10 µs": (1, 6_000),
}
"""Dispatches in a list and about how long each takes: their number and steps."""


def program(case: str, seconds: float, watched: bool) -> None:
    """Replays a list; with a view of its own recording if it is to be watched."""
    count, steps = CASES[case]
    with ost.open_device("cpu", workers=1) as device:
        kernel, x = device.library(STEPS)["steps"], device.zeros(1, np.uint32)

        def encode(encoder: ost.CommandEncoder) -> None:
            for _ in range(count):
                encoder.dispatch(kernel, x, steps, threads=1)

        run = device.capture(encode, label="steps").instantiate()
        run.replay().wait()
        recording = Path(os.environ["OSTINATO_PROFILE_FILE"].replace("{pid}", str(os.getpid())))
        end = time.monotonic() + seconds
        with viewing(recording) if watched else nullcontext():
            while time.monotonic() < end:
                with ost.region("token"):
                    run.replay().wait()


@contextmanager
def viewing(recording: Path) -> Iterator[tuple[int, threading.Event]]:
    """A view on a terminal whose output is read and thrown away: its pid, and what is set when it has begun to draw."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OSTINATO_PROFILE")}
    view = subprocess.Popen(
        [sys.executable, "-m", "ostinato", "live", str(recording), "--refresh", "0.5"],
        env=kept | {"TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    drawing = threading.Event()
    threading.Thread(target=drain, args=(master, drawing), daemon=True).start()
    try:
        yield view.pid, drawing
    finally:
        view.terminate()
        view.wait()


def drain(terminal: int, drawing: threading.Event) -> None:
    pictures = 0
    try:
        while printed := os.read(terminal, 1 << 16):
            pictures += printed.count(b"\x1b[J")
            if pictures >= FIRST_PICTURES:
                drawing.set()
    except OSError:  # nobody has the other end any more
        pass


def core_seconds(pid: int) -> float:
    """How long the threads of a process have run on a core."""
    times = (int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(times) / 1e9


def viewer(case: str, seconds: float) -> tuple[object, ...]:
    """The share of a core that a view takes, and how much is recorded meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / f"run{SUFFIX}"
        arguments = [sys.executable, __file__, "--program", case, "--seconds", "600"]
        environment = os.environ | {"OSTINATO_PROFILE": "dispatches", "OSTINATO_PROFILE_FILE": str(recording)}
        recorded = subprocess.Popen(arguments, env=environment, stderr=subprocess.DEVNULL)
        while not recording.exists():
            time.sleep(0.1)
        with viewing(recording) as (pid, drawing):
            drawing.wait()
            begin, before = time.monotonic(), core_seconds(pid)
            time.sleep(seconds)
            spent, took = core_seconds(pid) - before, time.monotonic() - begin
        recorded.terminate()
        recorded.wait()
        with open_recording(recording) as made:
            last_s = (int(made.submissions.end_ns.max()) - int(made.submissions.start_ns.min())) / 1e9
            figures = made.sample_count / last_s, len(made.submissions) / last_s
    return (case, round(figures[0]), round(figures[1]), 100 * spent / took)


def beside(case: str, seconds: float, runs: int) -> tuple[object, ...]:
    """Whether the program is slower with a view."""
    command = [sys.executable, __file__, "--program", case, "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        sides = run_in_turns(command, [*command, "--watched"], Path(folder), runs)
        a, b = ([read_unit(recordings) for recordings in side] for side in sides)
    (row,) = [row for row in compare_units(a, b, delta=DELTA).rows if row.key.kind == "graph"]
    reach = "–" if row.ratio is None else f"{row.ratio.estimate:.4f} ({row.ratio.low:.4f} to {row.ratio.high:.4f})"
    return (case, row.a.median_ns / 1e3, row.b.median_ns / 1e3, reach, row.verdict.value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each view and of each run")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--program", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        program(options.program, options.seconds, options.watched)
        return
    cases = options.case or list(CASES)
    views = [viewer(case, options.seconds) for case in cases]
    columns = ("list", "dispatches/s", "command buffers/s", "% of a core")
    tables = [Table("A view at two refreshes a second", columns, views)]
    if options.runs:
        columns = ("list", "alone µs", "watched µs", "ratio (95 %)", "verdict at 1 %")
        rows = [beside(case, options.seconds, options.runs) for case in cases[:2]]
        tables.append(Table("The program with a view beside it", columns, rows))
    report(tables, options.json)


if __name__ == "__main__":
    main()
