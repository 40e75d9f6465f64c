"""What `ostinato compare` of two programs costs beyond their runs, and its verdicts of a program against itself.

    python bench/programs.py [--json] [--comparisons N] [--runs N]

The cost is the time of the whole command, its start included, over the time of the runs that it makes. Programs replay
a list of three dispatches, for about a tenth of a second and about a second. FASTER and SLOWER are wrong.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from harness import Table, median, report, seconds
from ostinato.cli.group import main as ostinato
from ostinato.measure import programs

PROGRAM = """
import sys
import numpy as np
import ostinato as ost

with ost.open_device("cpu") as dev:
    scale = dev.library(
        "kernel void scale(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] *= 0.5f; }"
    )["scale"]
    x = dev.zeros(1 << 16, np.float32)
    def encode(enc):
        for _ in range(3):
            enc.dispatch(scale, x, threads=1 << 16)
    run = dev.capture(encode, label="scale").instantiate()
    for _ in range(int(sys.argv[1])):
        run.replay().wait()
"""


def compared(script: Path, replays: int, runs: int) -> tuple[float, float, dict[str, Any]]:
    """The seconds of a comparison, those of its runs, and its report."""
    spent = 0.0
    recorded = programs.recorded

    def timed(command: programs.Command, folder: Path) -> programs.Recordings:
        nonlocal spent
        begin = time.perf_counter()
        try:
            return recorded(command, folder)
        finally:
            spent += time.perf_counter() - begin

    command = ("--", sys.executable, str(script), str(replays))
    printed = io.StringIO()

    def whole() -> None:
        with redirect_stdout(printed), suppress(SystemExit):
            ostinato(["compare", "--json", "--runs", str(runs), *command, *command])

    programs.recorded = timed
    try:
        took = seconds(whole)
    finally:
        programs.recorded = recorded
    return took, spent, json.loads(printed.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--comparisons", type=int, default=5)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(PROGRAM)
        start = [sys.executable, "-c", "import ostinato.cli.compare"]
        starts = [seconds(lambda: subprocess.run(start, check=True)) for _ in range(3)]
        for replays in (2_000, 20_000):
            verdicts: Counter[str] = Counter()
            costs, spans, sees = [], [], []
            for _ in range(options.comparisons):
                took, spent, result = compared(script, replays, options.runs)
                costs.append((took + median(starts)) / spent)
                spans.append(spent / (2 * options.runs))
                verdicts.update(row["verdict"] for row in result["rows"])
                sees += [row["smallest_change"] for row in result["rows"] if row["smallest_change"] is not None]
            rows.append(
                (
                    f"{replays:,} replays",
                    f"{median(spans):.2f}",
                    f"{median(costs):.3f}",
                    f"{max(costs):.3f}",
                    *(verdicts[verdict] for verdict in ("faster", "slower", "same", "cannot tell")),
                    f"{100 * median(sees):.1f}" if sees else "",
                )
            )
    columns = ("program", "s per run", "cost", "worst", "FASTER", "SLOWER", "SAME", "CANNOT TELL", "detectable %")
    report([Table(f"A program against itself, {options.runs} runs of each", columns, rows)], options.json)


if __name__ == "__main__":
    main()
