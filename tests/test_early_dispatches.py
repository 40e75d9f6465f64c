"""Which dispatches of a list may read arguments before they wait: those whose arguments nobody in the list writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ostinato as ost
from ostinato.ir.early_reads import early_dispatches

SOURCE = """
#include <metal_stdlib>
#include <ostinato>
using namespace metal;
kernel void scale(device const float *weight [[buffer(0)]], device const float *x [[buffer(1)]],
                  device float *out [[buffer(2)]], constant float &by [[buffer(3)]],
                  uint i [[thread_position_in_grid]]) {
    const float w = weight[i];
    ostinato::wait_for_all_but(weight);
    out[i] = w * x[i] * by;
}
kernel void patient(device const float *weight [[buffer(0)]], device const float *x [[buffer(1)]],
                    device float *out [[buffer(2)]], constant float &by [[buffer(3)]],
                    uint i [[thread_position_in_grid]]) { out[i] = weight[i] * x[i] * by; }
"""
N = 64


@pytest.fixture(scope="module")
def device() -> Iterator[ost.Device]:
    with ost.open_device("cpu") as opened:
        yield opened


class Case:
    """Buffers and the kernels that use them."""

    def __init__(self, device: ost.Device) -> None:
        self.library = device.library(SOURCE)
        self.weight, self.x, self.y, self.z = (device.zeros(2 * N, np.float32) for _ in range(4))
        self.device = device

    def early(self, encode: Callable[[ost.CommandEncoder], None]) -> list[int]:
        graph = self.device.capture(encode)
        return sorted(early_dispatches(graph.command_list.commands))

    def scale(self, encoder: ost.CommandEncoder, *buffers: ost.Buffer, by: object = 2.0, name: str = "scale") -> None:
        encoder.dispatch(self.library[name], *buffers, by, threads=N)


@pytest.fixture
def case(device: ost.Device) -> Case:
    return Case(device)


def test_what_nobody_writes_may_be_read_early(case: Case) -> None:
    def encode(encoder: ost.CommandEncoder) -> None:
        case.scale(encoder, case.weight[:N], case.x[:N], case.y[:N])
        case.scale(encoder, case.weight[N:], case.y[:N], case.x[:N], name="patient")
        encoder.memory_barrier()
        case.scale(encoder, case.weight[N:], case.y[:N], case.z[:N], by=ost.param("by", np.float32))

    assert case.early(encode) == [0, 3]


def test_what_any_dispatch_writes_is_not(case: Case) -> None:
    def encode(encoder: ost.CommandEncoder) -> None:
        case.scale(encoder, case.weight[:N], case.x[:N], case.y[:N])
        case.scale(encoder, case.x[:N], case.y[:N], case.weight[N - 1 : 2 * N - 1])  # writes one element of the first
        case.scale(encoder, case.z[:N], case.y[:N], case.z[N:])

    assert case.early(encode) == [1, 2]


def test_what_a_copy_or_a_fill_writes_is_not(case: Case) -> None:
    def encode(encoder: ost.CommandEncoder) -> None:
        case.scale(encoder, case.weight[:N], case.x[:N], case.y[:N])
        case.scale(encoder, case.z[:N], case.x[:N], case.y[:N])
        encoder.copy(case.x[:N], case.weight[:N])
        encoder.fill(case.z[:N], 0)

    assert case.early(encode) == []


def test_a_value_from_memory_is_read_when_the_kernel_begins(case: Case) -> None:
    def encode(encoder: ost.CommandEncoder, by: ost.Buffer) -> None:
        case.scale(encoder, case.weight[:N], case.x[:N], case.y[:N], by=by)

    assert case.early(lambda encoder: encode(encoder, case.z[:1])) == [0]
    assert case.early(lambda encoder: encode(encoder, case.y[:1])) == []


def test_nothing_is_read_early_beside_a_dispatch_that_may_write_anything(case: Case) -> None:
    def encode(encoder: ost.CommandEncoder) -> None:
        case.scale(encoder, case.weight[:N], case.x[:N], case.y[:N])
        encoder.dispatch(case.library["patient"], case.z, case.z, case.z, 1.0, threads=N, writes=ost.UNKNOWN)

    assert case.early(encode) == []
