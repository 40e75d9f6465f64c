"""A fleet of which the truth is known: adding, size, queries, memory, regressions dated, and false alarms.

Three fleets are made, added, merged and reported on: one, one of another seed, and one with twice the noise. Each has
regressions of 3 % at known revisions, 3 slow hosts, a drift of 1 % a month, and 5 % of its runs slowed by 10 to 50 %.
The rate of adding is measured apart, on recordings of 100,000 samples as programs write them.

    python bench/fleet.py [--json] [--full] [--folder DIR]

By default a fleet has 1,200 recordings with 12 million samples. With --full it has 10,000 with 100 million: about
1.5 GB of disk at a time, and on 2 idle cores some minutes for each of the three.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from harness import Table, median, report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_recordings import World
from ostinato.profiling import fleet
from ostinato.profiling.recording import PlanNode, Writer

LARGE = 100_000
QUERY = (
    "SELECT device, revision, median(duration_ns) FROM samples JOIN runs USING (run)"
    " WHERE kernel = 'kernel_007' GROUP BY ALL"
)


def record(path: Path, samples: int, nodes: int, seed: int) -> None:
    """A recording as a program writes it."""
    random = np.random.default_rng(seed)
    with Writer(path) as writer:
        device = writer.device("cpu", "cpu", description="bench", timer_step_ns=1.0)
        plan = writer.plan(device, [PlanNode("dispatch", f"kernel_{number % 100:03d}") for number in range(nodes)])
        for ordinal in range(1, samples // nodes + 1):
            durations = (random.lognormal(9.5, 0.3, nodes) + 500).astype(np.int64)
            starts = np.cumsum(durations + random.integers(500, 3_000, nodes)) - durations
            now = time.monotonic_ns() + ordinal * 10**8
            end = now + int(starts[-1] + durations[-1])
            number = writer.submission(device=device, plan=plan, ordinal=ordinal, start_ns=now, end_ns=end, replay=True)
            writer.samples(number, 0, now + starts, now + starts + durations)


def rates(folder: Path) -> list[list[object]]:
    """Samples a second of processor time, and milliseconds a file, by size of the recordings."""
    rows: list[list[object]] = []
    for samples, nodes, count in ((LARGE, 1_000, 20), (1_000, 100, 60)):
        paths = [folder / f"{samples}-{number}.ostinato" for number in range(count)]
        for number, path in enumerate(paths):
            record(path, samples, nodes, number)
        spent = []
        for turn in range(4):  # the first loads PyArrow
            with fleet.engine("local") as engine:
                begin = time.process_time()
                added = fleet.add(paths, folder / f"{samples}-store-{turn}", engine)
            assert added.recordings == count
            spent.append(time.process_time() - begin)
        used = median(spent[1:])
        rows.append([samples, count, samples * count / used / 1e6, used / count * 1e3])
    return rows


def measured(folder: Path) -> dict[str, float]:
    """Add, merge and ask; in a process of its own, so that its memory is known."""
    store = folder / "store"
    with fleet.engine("local") as engine:
        begin, used = time.perf_counter(), time.process_time()
        added = fleet.add([folder / "runs"], store, engine)
        add_s, add_cpu_s = time.perf_counter() - begin, time.process_time() - used
        begin = time.perf_counter()
        fleet.compact(store, engine)
        compact_s = time.perf_counter() - begin
        parts = fleet.open_store(store).state().parts
        queries = []
        for _ in range(6):
            begin = time.perf_counter()
            fleet.query(fleet.open_store(store), QUERY)
            queries.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        made = fleet.report(store, engine)
        report_s = time.perf_counter() - begin
    (folder / "report.json").write_text(json.dumps([asdict(change) for change in made.changes]))
    (folder / "hosts.json").write_text(json.dumps(sorted({slow.name for slow in made.slow_hosts})))
    return {
        "samples": added.samples,
        "recordings": added.recordings,
        "add_s": add_s,
        "add_cpu_s": add_cpu_s,
        "compact_s": compact_s,
        "files": len(parts),
        "bytes_a_sample": sum(part.bytes for part in parts) / added.samples,
        "query_s": median(queries[1:]),
        "report_s": report_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def of_world(world: World, folder: Path) -> tuple[dict[str, float], list[object]]:
    """What adding and asking cost, and how much of the truth was found."""
    (folder / "runs").mkdir(parents=True)
    for _ in world.write(folder / "runs"):
        pass
    command = [sys.executable, __file__, "--measure", str(folder)]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = {
        (each["device"], each["kernel"]): each["version"] for each in json.loads((folder / "report.json").read_text())
    }
    right = sum(found.get(key) == world.revision(at) for key, at in world.steps.items())
    near = sum(key in found for key in world.steps) - right
    alarms = sum(key not in world.steps for key in found)
    quiet = len(world.devices) * world.kernels - len(world.steps)
    hosts = json.loads((folder / "hosts.json").read_text())
    shutil.rmtree(folder)
    wrong_hosts = len(set(hosts) - set(world.slow_names))
    return figures, [
        *(world.seed, f"{world.noise:.0%}", len(world.steps), right, near, alarms, 100 * alarms / quiet),
        *(f"{len(set(hosts) & set(world.slow_names))} of {world.slow_hosts}", wrong_hosts),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--full", action="store_true", help="10,000 recordings with 100 million samples each time")
    parser.add_argument("--folder", type=Path, default=None, help="where the files go (default: a temporary folder)")
    parser.add_argument("--measure", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measured(options.measure)))
        return
    size = {"revisions": 100, "runs": 100, "injected": 40} if options.full else {"revisions": 30, "runs": 40}
    worlds = [World(**size), World(seed=2, **size), World(seed=3, noise=0.04, **size)]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        adding = rates(folder)
        done = [of_world(world, folder / str(world.seed)) for world in worlds]
    costs = [[key, *(figures[key] for figures, _ in done)] for key in done[0][0]]
    tables = [
        Table("Adding, by size of recordings", ["samples", "recordings", "M samples/s a core", "ms a file"], adding),
        Table("A fleet", ["", *(f"seed {world.seed}, noise {world.noise:.0%}" for world in worlds)], costs),
        Table(
            "What was found of the truth",
            [
                *("seed", "noise", "injected", "dated right", "dated wrong", "false alarms"),
                *("false alarms in 100 kernels", "slow hosts found", "others named"),
            ],
            [row for _, row in done],
        ),
    ]
    report(tables, options.json)


if __name__ == "__main__":
    main()
