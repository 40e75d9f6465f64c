"""Recordings of a fleet that never was, made quickly: facts and samples of one real recording are replaced.

`Template.write` makes a recording of given facts and times. `World` makes all recordings of a fleet of which the truth
is known: which revisions made which kernels slower, and which hosts are slow.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ostinato.profiling.recording import PlanNode, Writer, chunks

DAY_NS = 86_400 * 10**9
BEGAN_NS = 1_790_000_000 * 10**9
_GAP_NS = 2_000


@dataclass(frozen=True)
class Facts:
    """Where a recording says that it comes from."""

    host: str = "node1"
    pid: int = 100
    began_ns: int = BEGAN_NS
    revision: str = "a" * 40
    device: str = "two cores"
    program: str = "serve.py"
    rank: int | None = None
    world_size: int | None = None


class Template:
    """Recordings of one plan with these kernels, which is submitted a number of times."""

    def __init__(self, kernels: Sequence[str], submissions: int) -> None:
        self.kernels, self.submissions = list(kernels), submissions
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "template.ostinato"
            with Writer(path) as writer:
                device = writer.device("cpu", "cpu", description="DEVICE", workers=2, timer_step_ns=1.0)
                plan = writer.plan(device, [PlanNode("dispatch", kernel) for kernel in kernels])
                for ordinal in range(1, submissions + 1):
                    writer.submission(device=device, plan=plan, ordinal=ordinal, start_ns=1, end_ns=2, replay=True)
                writer.meta("git.revision", "")
                writer.meta("program", "")
            connection = sqlite3.connect(path, isolation_level=None)
            for table in ("dispatches", "plan_nodes", "plan_edges"):
                connection.execute(f"DELETE FROM {table}")
            connection.execute("UPDATE processes SET expanded = 0")
            connection.execute("VACUUM")
            connection.close()
            self._bytes = path.read_bytes()

    def write(self, path: Path, facts: Facts, durations_ns: NDArray[np.int64]) -> Path:
        """A recording whose dispatches take these times: a row per submission, a column per kernel."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.deserialize(self._bytes)
        begin = 1_000_000_000
        ends = begin + np.cumsum(durations_ns.ravel() + _GAP_NS) - _GAP_NS
        starts = ends - durations_ns.ravel()
        size = len(self.kernels)
        runs = [
            chunks.Run(
                number + 1, size, size, 0,
                starts[number * size : (number + 1) * size].tobytes(),
                ends[number * size : (number + 1) * size].tobytes(), None,
            )
            for number in range(self.submissions)
        ]  # fmt: skip
        for chunk in chunks.encode(runs).chunks:
            names = ", ".join(chunk._fields)
            connection.execute(f"INSERT INTO sample_chunks ({names}) VALUES (?, ?, ?, ?, ?, ?)", chunk)
        connection.executemany(
            "UPDATE submissions SET start_ns = ?, end_ns = ? WHERE id = ?",
            list(zip(starts[::size].tolist(), ends[size - 1 :: size].tolist(), range(1, len(runs) + 1), strict=True)),
        )
        connection.execute(
            "UPDATE processes SET host = ?, pid = ?, rank = ?, world_size = ?, boot = ?, start_realtime_ns = ?,"
            " end_realtime_ns = ?, start_monotonic_ns = ?, end_monotonic_ns = ?, git_changed = 0",
            (
                *(facts.host, facts.pid, facts.rank, facts.world_size, f"boot of {facts.host}"),
                *(facts.began_ns, facts.began_ns + int(ends[-1]), begin, begin + int(ends[-1])),
            ),
        )
        for key, value in (("git.revision", facts.revision), ("program", facts.program)):
            connection.execute("UPDATE meta SET value = ? WHERE key = ?", (value, key))
        connection.execute("UPDATE strings SET text = ? WHERE text = 'DEVICE'", (facts.device,))
        path.write_bytes(connection.serialize())
        connection.close()
        return path

    def steady(self, middle_ns: float, seed: int = 0, spread: float = 0.05) -> NDArray[np.int64]:
        """Times around a middle, for `write`."""
        random = np.random.default_rng(seed)
        shape = (self.submissions, len(self.kernels))
        return (middle_ns * np.exp(random.normal(0, spread, shape))).astype(np.int64)


@dataclass(frozen=True)
class World:
    """A fleet of which the truth is known."""

    seed: int = 1
    noise: float = 0.02
    """Deviation of the logarithm of a kernel's time from run to run."""
    kernels: int = 100
    devices: tuple[str, ...] = ("NVIDIA H200", "AMD EPYC")
    revisions: int = 50
    runs: int = 100
    """Of each revision, on all devices together."""
    submissions: int = 100
    days: int = 60
    hosts: int = 40
    slow_hosts: int = 3
    slow: float = 0.08
    busy: float = 0.05
    """The part of the runs that are slowed by 10 to 50 %, as on a busy machine."""
    drift: float = 0.01
    """A month, the logarithm."""
    regression: float = 0.03
    injected: int = 20
    """Kernels that become slower at one revision."""
    steps: dict[tuple[str, str], int] = field(init=False)
    """By device and kernel: the number of the revision at which it became slower."""

    def __post_init__(self) -> None:
        random = np.random.default_rng([self.seed, 1])
        pairs = [(device, name) for device in self.devices for name in self.names]
        chosen = random.choice(len(pairs), self.injected, replace=False)
        edge = max(self.revisions // 10, 2)
        steps = {pairs[at]: int(random.integers(edge, self.revisions - edge)) for at in chosen}
        object.__setattr__(self, "steps", steps)

    @property
    def names(self) -> list[str]:
        return [f"kernel_{number:03d}" for number in range(self.kernels)]

    @property
    def slow_names(self) -> list[str]:
        return [f"node{number:03d}" for number in range(self.slow_hosts)]

    def revision(self, number: int) -> str:
        return f"{self.seed:02x}{number:06x}".ljust(40, "0")

    @property
    def recordings(self) -> int:
        return self.revisions * self.runs

    @property
    def samples(self) -> int:
        return self.recordings * self.submissions * self.kernels

    def write(self, folder: Path, first: int = 0, last: int | None = None) -> Iterator[Path]:
        """The recordings with these numbers, one after another."""
        template = Template(self.names, self.submissions)
        middles = np.random.default_rng([self.seed, 2]).uniform(5_000, 200_000, self.kernels)
        for number in range(first, self.recordings if last is None else last):
            revision, random = number // self.runs, np.random.default_rng([self.seed, 3, number])
            device = self.devices[number % len(self.devices)]
            host = int(random.integers(self.hosts))
            part = number / self.recordings
            logs = np.log(middles * (1.0 + 0.5 * self.devices.index(device)))
            logs = logs + random.normal(0, self.noise, self.kernels) + self.drift * part * self.days / 30
            logs += self.slow if host < self.slow_hosts else 0.0
            logs += np.log(random.uniform(1.1, 1.5)) if random.random() < self.busy else 0.0
            begins = [self.steps.get((device, name), self.revisions) for name in self.names]
            logs += np.log1p(self.regression) * (revision >= np.array(begins))
            times = np.exp(logs + random.normal(0, 0.05, (self.submissions, self.kernels)))
            facts = Facts(
                host=f"node{host:03d}", pid=1000 + number, began_ns=BEGAN_NS + int(part * self.days * DAY_NS) + number,
                revision=self.revision(revision), device=device,
            )  # fmt: skip
            yield template.write(folder / f"{number:06d}.ostinato", facts, times.astype(np.int64))
