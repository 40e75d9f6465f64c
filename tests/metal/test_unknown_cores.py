"""A device that does not tell how many cores it has: large products are spread over many all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import metal_sim
from metal_sim import PROFILES
from ostinato import ops
from ostinato.backends.metal import MetalBackend
from ostinato.device import Device
from small_graphs import dispatches

ROWS, WIDTH = 4096, 64


def device(cores: int | None) -> Device:
    return Device(MetalBackend(framework=replace(metal_sim.framework(PROFILES["apple"]), cores=lambda: cores)))


@pytest.mark.parametrize(("cores", "groups"), [(None, 64), (2, 64), (40, 120)])
def test_a_product_of_many_rows_runs_in_many_groups(private_environment: None, cores: int | None, groups: int) -> None:
    dev = device(cores)
    weight = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) % 7
    w, x, out = dev.array(weight), dev.array(np.ones(WIDTH, np.float32)), dev.zeros(ROWS, np.float32)
    graph = dev.capture(lambda enc: ops.matvec(enc, w, x, out))
    assert [dispatch.groups for dispatch in dispatches(graph)] == [(groups, 1, 1)]
    graph.instantiate().replay().wait()
    assert np.array_equal(out.numpy(), weight.sum(axis=1))


def test_slots_share_the_groups(private_environment: None) -> None:
    dev = device(None)
    weight, x = dev.zeros((2, ROWS, WIDTH), np.float32), dev.zeros((1, WIDTH), np.float32)
    chosen, out = dev.array(np.array([[1, 0]], np.uint32)), dev.zeros((1, 2, ROWS), np.float32)
    graph = dev.capture(lambda enc: ops.expert_matvec(enc, weight, x, chosen, out))
    assert [dispatch.groups for dispatch in dispatches(graph)] == [(32, 2, 1)]
