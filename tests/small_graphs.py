"""Small graphs that tests of profiles replay."""

from __future__ import annotations

import numpy as np

import ostinato as ost
from ostinato.ir.commands import Dispatch


def dispatches(graph: ost.Graph) -> list[Dispatch]:
    """The commands of a graph that consists of dispatches."""
    assert all(isinstance(command, Dispatch) for command in graph.commands)
    return [command for command in graph.commands if isinstance(command, Dispatch)]


def bumps(dev: ost.Device, kernels: ost.Library, count: int = 3) -> ost.Graph:
    """A chain of dispatches, each in a scope of its own, that says what it reads, writes and computes."""
    x = dev.zeros(1, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("decode"):
            for layer in range(count):
                with enc.scope(f"layer.{layer}"):
                    enc.dispatch(kernels["bump"], x, threads=1, bytes_read=4, bytes_written=4, flops=1)

    return dev.capture(encode, label="token")
