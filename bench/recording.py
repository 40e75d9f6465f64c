"""What recording costs: samples a second beside a busy Python thread, reading them all back, bytes a sample.

The program's thread never rests: it runs a pure Python loop (the busy share of its time is in the table) and takes down
a submission of dispatch samples after each turn. The time counts until everything is in the file. "read" opens the file
and reads all samples as NumPy columns; "expand" fills the plain tables.

    python bench/recording.py [--json] [--samples N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from harness import Table, median, report, seconds
from ostinato.profiling.recording import PlanNode, Writer, expand, open_recording

NODES = 1_000
BUSY_STEPS = (0, 5_000, 20_000)


def busy(steps: int) -> int:
    """Pure Python work, which gives up the interpreter only when it has to."""
    value = 1
    for step in range(steps):
        value = (value * 31 + step) & 0xFFFF
    return value


def times(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts (from 0) and ends of dispatches that look like those of a decoder: a few to some hundred µs each."""
    random = np.random.default_rng(1)
    durations = (random.lognormal(9.5, 1.0, count) + 500).astype(np.int64)
    gaps = random.integers(500, 3_000, count)
    starts = np.cumsum(durations + gaps) - durations
    return starts, starts + durations


def record(path: Path, samples: int, steps: int, dispatches: int) -> list[object]:
    """One recording; the row of the table."""
    starts, ends = times(dispatches)
    with Writer(path) as writer:
        device = writer.device("bench", "cpu")
        plan = writer.plan(device, [PlanNode("dispatch", f"kernel_{node % 20}") for node in range(dispatches)])
        busy_s, producing_s = 0.0, []
        begin = time.perf_counter()
        for ordinal in range(1, samples // dispatches + 1):
            before = time.perf_counter()
            busy(steps)
            now = time.monotonic_ns()
            after = time.perf_counter()
            submission = writer.submission(
                device=device, plan=plan, ordinal=ordinal, start_ns=now, end_ns=now + int(ends[-1]), replay=True
            )
            writer.samples(submission, 0, now + starts, now + ends)
            producing_s.append(time.perf_counter() - after)
            busy_s += after - before
        given = time.perf_counter() - begin
        writer.flush()
        total = time.perf_counter() - begin
        lost = sum(count for where, count in writer.dropped.items() if where.startswith("samples"))
    kept = samples // dispatches * dispatches - lost
    return [f"{busy_s / given:.0%}", dispatches, kept / total, median(producing_s) * 1e6, lost]


def sizes(path: Path) -> list[Sequence[object]]:
    """Bytes a sample and seconds to read, before and after expansion."""
    rows: list[Sequence[object]] = []
    for state in ("chunks only", "expanded"):
        expand_s = f"{seconds(lambda: expand(path)):.3g}" if state == "expanded" else ""
        begin = time.perf_counter()
        with open_recording(path) as recording:
            samples = len(recording.samples())
        rows.append([state, samples, path.stat().st_size / samples, time.perf_counter() - begin, expand_s])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--samples", type=int, default=2_000_000, help="samples of each recording (default 2,000,000)")
    parser.add_argument("--folder", type=Path, default=None, help="where the files go (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "bench.ostinato"
        columns = ["busy", "samples a submission", "samples a second", "µs to take down a submission", "dropped"]
        rates = [record(path, options.samples, steps, NODES) for steps in BUSY_STEPS]
        rates.append(record(path, options.samples // 10, 1_000, 10))
        record(path, options.samples, BUSY_STEPS[1], NODES)
        tables = [
            Table("Recording while the program's thread is busy", columns, rates),
            Table(
                f"Reading {options.samples:,} samples",
                ["file", "samples", "bytes a sample", "read s", "expand s"],
                sizes(path),
            ),
        ]
    report(tables, options.json)


if __name__ == "__main__":
    main()
