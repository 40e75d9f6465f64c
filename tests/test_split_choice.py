"""Whether to split, given measurements and capabilities."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.passes import split
from ostinato.passes.search import chosen


def chain(dev: ost.Device, kernels: ost.Library, dispatches: int, **options: Any) -> tuple[ost.Graph, ost.Buffer]:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for index in range(dispatches):
            enc.dispatch(kernels["bump"], x, threads=4)
            if index % 50 == 49:
                enc.memory_barrier()

    return dev.capture(encode, **options), x


def test_where_a_replay_encodes_the_rule_is_applied(
    dev: ost.Device, kernels: ost.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = chain(dev, kernels, 200)
    monkeypatch.setattr(graph.queue.backend, "capabilities", SimpleNamespace(name="cpu", encodes_at_replay=True))
    assert len(split(graph)[0].splits) == 1


def rounds(level: float, noise: float, seed: int, count: int = 20) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, noise, count))


def test_a_candidate_that_is_really_faster_is_chosen() -> None:
    assert chosen([rounds(100, 2, 1), rounds(101, 2, 2), rounds(90, 2, 3)]) == 2


def test_the_best_of_many_alike_is_not_chosen() -> None:
    wrong = sum(chosen([rounds(100, 3, 100 * trial + at) for at in range(8)]) != 0 for trial in range(200))
    assert wrong <= 4


def test_noise_decides_nothing() -> None:
    assert chosen([rounds(100, 30, 1), rounds(99, 30, 2)]) == 0
    assert chosen([[100.0] * 20, [99.9] * 20]) == 0  # real, and not worth it
    assert chosen([[100.0] * 20, [90.0] * 20]) == 1
