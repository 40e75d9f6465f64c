"""Recordings of runs with given times, as files: what comparisons of recordings are tested with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ostinato.profiling.recording import PlanNode, Writer

SUBMISSIONS = 12


def write_run(
    path: Path, times_ns: Mapping[str, float], device: str = "two cores", noise: float = 0.0, lost: float = 0.0
) -> Path:
    """A recording of one graph, "token", whose kernels take these times, each with a label of its own.

    `lost` is the part of the workers' time that other programs took in every run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(abs(hash(str(path))) % 2**32)
    with Writer(path) as writer:
        number = writer.device("cpu", "cpu", description=device, workers=2, timer_step_ns=1.0)
        nodes = [
            PlanNode("dispatch", kernel, f"decode/layer.3/{kernel}", threads=(256, 1, 1), group=(64, 1, 1), groups=4)
            for kernel in times_ns
        ]
        chain = np.array([(n, n + 1) for n in range(len(nodes) - 1)], np.uint32).reshape(-1, 2)
        plan = writer.plan(number, nodes, chain)
        at = 1_000_000
        for ordinal in range(1, SUBMISSIONS + 1):
            lengths = np.array(list(times_ns.values())) * np.exp(generator.normal(0, noise, len(times_ns)))
            ends = at + np.cumsum(lengths).astype(np.int64)
            starts = np.concatenate([[at], ends[:-1]])
            submission = writer.submission(
                device=number, plan=plan, ordinal=ordinal, label="token", replay=True,
                start_ns=at, end_ns=int(ends[-1]), worked_ns=int(2 * lengths.sum()),
                lost_ns=int(2 * lost * lengths.sum()), late_ns=0, joined=2,
            )  # fmt: skip
            writer.samples(submission, list(range(len(nodes))), starts, ends)
            at = int(ends[-1]) + 10_000
    return path


def write_in_turns(
    folder: Path, a: Sequence[Mapping[str, float]], b: Sequence[Mapping[str, float]], device: str = "two cores"
) -> tuple[Path, Path]:
    """The folders of A's runs and of B's, recorded A B, B A, …"""
    for number, pair in enumerate(zip(a, b, strict=True)):
        for side, times_ns in sorted(zip("AB", pair, strict=True), reverse=number % 2 == 1):
            write_run(folder / side / f"{number}.ostinato", times_ns, device)
    return folder / "A", folder / "B"


def spread_out(middle: Mapping[str, float], deviation: float, count: int, seed: int) -> list[dict[str, float]]:
    """The times of some processes that differ by a deviation of their logarithm."""
    generator = np.random.default_rng(seed)
    return [
        {name: ns * float(np.exp(generator.normal(0, deviation))) for name, ns in middle.items()} for _ in range(count)
    ]
