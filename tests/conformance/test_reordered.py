"""Reordered graphs, replayed."""

from __future__ import annotations

import numpy as np

import ostinato as ost
from ostinato.passes import reorder, verify


def order(graph: ost.Graph) -> list[int]:
    return [node.origin[0] for node in graph]


def test_a_reordered_graph_replays_to_the_same_bits(dev: ost.Device, kernels: ost.Library) -> None:
    chains = [dev.zeros(64, np.float32) for _ in range(4)]

    def encode(enc: ost.CommandEncoder) -> None:
        for number, x in enumerate(chains):
            with enc.scope(f"chain {number}"):
                enc.fill(x, float(number))
                for _ in range(5):
                    enc.dispatch(kernels["bump"], x, threads=64)
                    enc.dispatch(kernels["scale"], x, x, 1.5, threads=64)

    graph = dev.capture(encode)
    found, report = reorder(graph)
    assert report.numbers["barriers_before"] == 40
    assert report.numbers["barriers_after"] == 10
    assert verify(graph, found).ok
    assert "chain 1/fill" in str(report)
    lowered = graph.command_list.lowered
    assert found.command_list.lowered == [lowered[index] for index in order(found)]


def test_barriers_are_counted_as_the_device_counts_them(dev: ost.Device, kernels: ost.Library) -> None:
    chains = [dev.zeros(64, np.float32) for _ in range(3)]

    def encode(enc: ost.CommandEncoder) -> None:
        for x in chains:
            enc.dispatch(kernels["bump"], x, threads=64)
            enc.dispatch(kernels["bump"], x, threads=64)
        enc.memory_barrier()
        enc.dispatch(kernels["bump"], chains[0], threads=64, reads=ost.UNKNOWN)
        enc.dispatch(kernels["bump"], chains[1], threads=64)

    graph = dev.capture(encode)
    found, report = reorder(graph)
    for one, name in ((graph, "barriers_before"), (found, "barriers_after")):
        run = one.instantiate()
        with ost.counters.scope() as counts:
            run.replay().wait()
        assert counts.auto_barriers == report.numbers[name]
