"""Whether verdicts of `compare` hold: equal kernels, kernels with a known amount of work added, idle and beside others.

- *equal*: a kernel against itself, compiled and allocated apart, ten kernels from 1 µs to 10 ms; every fifth pair
  as two programs, five processes of each in turns. FASTER and SLOWER are wrong.
- *added*: a kernel with 2 % more work (δ = 1 %) on 100 µs and more, 5 % more on 10 µs, and 0.5 % more, which is less
  than δ = 2 %, so that FASTER and SLOWER are wrong.

    python bench/compare.py [--json] [--pairs N] [--seconds S] [--added N] [--added-seconds S] [--busy 0 1]
                            [--only KERNEL] [--at-once N]

With `--busy` N, as many processes compute endlessly on the cores that this one may use. With `--at-once` N, as many
copies of this script run side by side, each on two cores of its own, and their counts are added.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from harness import Table, busy, report
from ostinato import Comparison
from ostinato.measure.programs import run_in_turns
from ostinato.profiling.analyse.units import compare_units, read_unit
from ostinato.profiling.analyse.verdicts import LEAST_UNITS

PROGRAM_SECONDS = 0.25

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void steps(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                  constant uint &count [[buffer(2)]], uint id [[thread_position_in_grid]]) {
    float value = in[id];
    for (uint i = 0; i < count; ++i) value = fma(value, 0.999f, 0.5f);
    out[id] = value;
}
kernel void add(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                uint id [[thread_position_in_grid]]) { out[id] = in[id] + 1.0f; }
kernel void row_sum(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                    uint thread_ [[thread_index_in_threadgroup]], uint row [[threadgroup_position_in_grid]]) {
    threadgroup float sums[256];
    float sum = 0;
    for (uint i = thread_; i < 4096; i += 256) sum += in[row * 4096 + i];
    sums[thread_] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_ = 128; half_ > 0; half_ /= 2) {
        if (thread_ < half_) sums[thread_] += sums[thread_ + half_];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (thread_ == 0) out[row] = sums[0];
}
"""


@dataclass(frozen=True)
class Case:
    """A kernel at a size; `steps` is its amount of work, where it has one."""

    kernel: str
    threads: int
    steps: int = 0

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.threads}" + (f" × {self.steps}" if self.steps else "")


CASES = (
    Case("steps", 256, 4),
    Case("add", 4096),
    Case("steps", 1024, 15),
    Case("steps", 1024, 45),
    Case("add", 1 << 18),
    Case("row_sum", 16 * 256),
    Case("steps", 4096, 128),
    Case("row_sum", 256 * 256),
    Case("add", 1 << 22),
    Case("steps", 16_384, 900),
)
"""From about 1 µs to 10 ms on two cores."""


def prepared(device: ost.Device, case: Case, tag: str, more: float = 0.0) -> ost.Graph:
    """The case, compiled and allocated apart from all others, with a part of work added."""
    library = device.library(METAL + f"// {tag}\n")
    size = case.threads // 256 * 4096 if case.kernel == "row_sum" else case.threads
    x = device.array(np.random.default_rng(1).random(size, dtype=np.float32))
    y = device.empty(size, np.float32)
    steps = (round(case.steps * (1 + more)),) if case.steps else ()
    return device.capture(
        lambda enc: enc.dispatch(library[case.kernel], x, y, *steps, threads=case.threads, group_size=256)
    )


# --- programs ------------------------------------------------------------------------------------------------


def compare_programs(case: Case, tag: str) -> Comparison:
    """The same case as two programs, which run in turns, five processes of each: what `ostinato compare -- …` does."""
    commands = [
        (sys.executable, __file__, "--program", json.dumps([case.kernel, case.threads, case.steps, f"{tag}{side}"]))
        for side in "ab"
    ]
    with tempfile.TemporaryDirectory() as folder:
        sides = run_in_turns(*commands, Path(folder), LEAST_UNITS)
        a, b = ([read_unit(recordings) for recordings in side] for side in sides)
    return compare_units(a, b)


def program(given: str) -> None:
    """One process of a program: some replays of a case."""
    kernel, threads, steps, tag = json.loads(given)
    run = prepared(ost.open_device("cpu"), Case(kernel, threads, steps), tag).instantiate()
    end = time.monotonic() + PROGRAM_SECONDS
    while time.monotonic() < end:
        for _ in range(10):
            submission = run.replay()
        submission.wait()


# --- figures -------------------------------------------------------------------------------------------------


def equal(device: ost.Device, cases: Sequence[Case], pairs: int, seconds: float, beside: int) -> Table:
    """A kernel against itself, again and again."""
    rows, total, live, apart = [], Counter[str](), Counter[str](), Counter[str]()
    for case in cases:
        verdicts, times, took, reached = Counter[str](), [], [], []
        for number in range(pairs):
            begin = time.monotonic()
            if number % 5 == 4:
                comparison = compare_programs(case, f"{number}")
            else:
                a, b = (prepared(device, case, f"{number}{side}") for side in "ab")
                comparison = ost.compare(a, b, seconds=seconds)
            took.append(time.monotonic() - begin)
            whole = comparison.whole
            assert whole is not None
            verdicts[whole.verdict.name] += 1
            (apart if number % 5 == 4 else live)[whole.verdict.name] += 1
            times.append(whole.a.median_ns)
            if whole.ratio is not None:
                reached.append((whole.ratio.high - whole.ratio.low) / 2)
        total += verdicts
        rows.append(row(case.name, times, verdicts, reached, took))
        progress(str(rows[-1]))
    rows += [row(name, [], each, [], []) for name, each in (("all", total), ("live", live), ("programs", apart))]
    title = f"A kernel against itself, {'idle' if not beside else f'beside {beside} busy process'}"
    return Table(title, COLUMNS, rows)


def added(device: ost.Device, pairs: int, seconds: float, beside: int) -> Table:
    """A kernel with more work, against the kernel without."""
    rows = []
    for case, more, delta in (
        (Case("steps", 512, 400), 0.02, 0.01),
        (Case("steps", 8192, 400), 0.02, 0.01),
        (Case("steps", 64, 160), 0.05, 0.02),
        (Case("steps", 1024, 1600), 0.005, 0.02),
    ):
        verdicts, times, took, reached = Counter[str](), [], [], []
        for number in range(pairs):
            begin = time.monotonic()
            a, b = prepared(device, case, f"{number}a"), prepared(device, case, f"{number}b", more)
            whole = ost.compare(a, b, seconds=seconds, delta=delta).whole
            took.append(time.monotonic() - begin)
            assert whole is not None
            verdicts[whole.verdict.name] += 1
            times.append(whole.a.median_ns)
            if whole.ratio is not None:
                reached.append((whole.ratio.high - whole.ratio.low) / 2)
        name = f"{case.name}, {100 * more:g} % more, δ = {100 * delta:g} %"
        rows.append(row(name, times, verdicts, reached, took))
        progress(str(rows[-1]))
    return Table(f"Work added{f', beside {beside} busy process' if beside else ''}", COLUMNS, rows)


COUNTS = ("FASTER", "SLOWER", "SAME", "CANNOT TELL")
COLUMNS = ("kernel", "µs", *COUNTS, "interval ± %", "seconds")


def row(
    name: str, times: list[float], verdicts: Counter[str], reached: list[float], took: list[float]
) -> tuple[object, ...]:
    return (
        name,
        round(float(np.median(times)) / 1e3, 1) if times else "",
        *(verdicts[verdict] for verdict in ("FASTER", "SLOWER", "SAME", "CANNOT_TELL")),
        round(100 * float(np.median(reached)), 2) if reached else "",
        round(float(np.median(took)), 1) if took else "",
    )


def at_once(count: int, arguments: list[str]) -> list[Table]:
    """The tables of copies of this script that run side by side, on two cores each: counts added, else medians."""
    cores = sorted(os.sched_getaffinity(0))
    if 2 * count > len(cores):
        raise SystemExit(f"--at-once {count} needs {2 * count} cores; there are {len(cores)}")
    command = (sys.executable, __file__, "--json", *arguments)
    copies = [
        subprocess.Popen((*command, "--cores", *map(str, cores[2 * n : 2 * n + 2])), stdout=subprocess.PIPE)
        for n in range(count)
    ]
    printed = [copy.communicate()[0] for copy in copies]
    if any(copy.returncode for copy in copies):
        raise SystemExit("a copy failed; its message stands above")
    tables = zip(*(json.loads(each)["tables"] for each in printed), strict=True)
    return [
        Table(same[0]["title"], COLUMNS, [added_up(rows) for rows in zip(*(t["rows"] for t in same), strict=True)])
        for same in tables
    ]


def added_up(rows: Sequence[dict[str, Any]]) -> tuple[object, ...]:
    """One row of the rows of all copies."""

    def cell(column: str) -> object:
        values = [row[column] for row in rows if row[column] != ""]
        if column in COUNTS:
            return sum(values)
        return values[0] if column == "kernel" else round(statistics.median(values), 2) if values else ""

    return tuple(cell(column) for column in COLUMNS)


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int, default=100, help="comparisons of each of ten kernels")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--added", type=int, default=100, help="comparisons of each kernel with work added")
    parser.add_argument("--added-seconds", type=float, default=20.0)
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--only", default="", help="of the equal kernels, only those with this in their name")
    parser.add_argument("--at-once", type=int, default=1, help="copies of this script that run side by side")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        program(options.program)
        return
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    elif options.at_once > 1:
        report(at_once(options.at_once, [each for each in sys.argv[1:] if each != "--json"]), options.json)
        return
    device = ost.open_device("cpu")
    tables = []
    for beside in options.busy:
        with busy(beside):
            if options.pairs:
                cases = [case for case in CASES if options.only in case.name]
                tables.append(equal(device, cases, options.pairs, options.seconds, beside))
            if options.added:
                tables.append(added(device, options.added, options.added_seconds, beside))
    report(tables, options.json)


if __name__ == "__main__":
    main()
