"""What the benchmarks share: the machine's description, interleaved repetition, and printing as table or JSON.

Figures are medians over rounds in which all contenders take turns, after one round that is thrown away; a ratio is the
median of the ratios of neighbouring measurements, so that a slow moment of the machine hits both sides.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


def machine() -> dict[str, object]:
    """The machine in words: processor, cores, system, versions."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "load_average": load,
    }


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Runs every contender once a round, in alternating order, and gives each one's measurements."""
    results: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(rounds + 1):
        for name in names if turn % 2 else reversed(names):
            value = contenders[name]()
            if turn:
                results[name].append(value)
    return results


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Ours over theirs, round by round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def seconds(work: Callable[[], object]) -> float:
    """How long ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes compute endlessly for the length of a block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Table:
    """Measurements: a title, the names of the columns, the rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def report(tables: Sequence[Table], as_json: bool) -> None:
    """Prints Markdown tables, or one JSON object."""
    here = machine()
    if as_json:
        records = [
            {"title": table.title, "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
            for table in tables
        ]
        json.dump({"machine": here, "tables": records}, sys.stdout, indent=2)
        print()
        return
    print(f"{here['processor']}, {here['cores']} cores, {here['system']}, Python {here['python']}, {here['date']}\n")
    for table in tables:
        print(f"## {table.title}\n")
        print("| " + " | ".join(table.columns) + " |")
        print("|" + "|".join("---" if index == 0 else "---:" for index in range(len(table.columns))) + "|")
        for row in table.rows:
            print("| " + " | ".join(f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row) + " |")
        print()
