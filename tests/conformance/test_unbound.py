"""Arguments that a kernel does not use may stay unbound, and constants that it does not use may be left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from graph_cases import saved
from ostinato.graph.file import load_graph

SOURCE = """
#include <metal_stdlib>
using namespace metal;
constant bool shifted [[function_constant(0)]];
constant float scale [[function_constant(1)]];
constant float inverse = 1.0f / scale;

template <typename T, bool biased>
struct Sum {
  static void run(device const T *x, device T *y, device const T *bias, constant T &weight, uint i) {
    y[i] = x[i];
    if (biased) {
      y[i] += weight * bias[i];
    }
  }
};

template <typename T, bool biased>
kernel void sum(device const T *x [[buffer(0)]], device const T *bias [[buffer(1)]], constant T &weight [[buffer(2)]],
                device T *log [[buffer(3)]], device T *y [[buffer(5)]], threadgroup T *scratch [[threadgroup(0)]],
                uint i [[thread_position_in_grid]]) {
  using sum_of = Sum<T, biased>;
  (void)scratch;
  if (biased) {
    log[i] = weight;
  }
  sum_of::run(x, y, bias, weight, i);
}
template [[host_name("plain")]] kernel void sum<float, false>(
    device const float *, device const float *, constant float &, device float *, device float *, threadgroup float *,
    uint);
template [[host_name("biased")]] kernel void sum<float, true>(
    device const float *, device const float *, constant float &, device float *, device float *, threadgroup float *,
    uint);

kernel void scaled(device float *x [[buffer(0)]], constant float &shift [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  x[i] *= inverse;
  if (shifted) x[i] += shift;
}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE, constants={"shifted": False})


def row(dev: ost.Device, first: float = 0) -> ost.Buffer:
    return dev.array(np.arange(first, first + 4, dtype=np.float32))


def test_none_and_nothing_stand_for_unused_arguments(dev: ost.Device, library: ost.Library) -> None:
    x, y, z = row(dev, 1), dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["plain"], x, None, None, None, y, threads=4)
    encoder.dispatch(library["plain"], {0: x, 5: z}, threads=4)
    encoder.commit_and_wait()
    assert y.numpy().tolist() == z.numpy().tolist() == [1, 2, 3, 4]


def test_unused_arguments_at_the_end_may_be_left_out(dev: ost.Device) -> None:
    kernel = dev.library(SOURCE, constants={0: False, 1: 4.0})["scaled"]
    x = row(dev, 4)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, x, threads=4)
    encoder.commit_and_wait()
    assert x.numpy().tolist() == [1, 1.25, 1.5, 1.75]


def test_unused_arguments_may_still_be_bound(dev: ost.Device, library: ost.Library) -> None:
    x, y = row(dev), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["plain"], x, x, 2.0, y, y, shared={0: 16}, threads=4)
    encoder.commit_and_wait()
    assert y.numpy().tolist() == [0, 1, 2, 3]


def test_a_used_argument_without_a_value_is_named(dev: ost.Device, library: ost.Library) -> None:
    x = row(dev)
    encoder = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match=r"argument 1 'bias' .*None"):
        encoder.dispatch(library["biased"], x, None, 1.0, x, x, threads=4)
    with pytest.raises(ost.ArgumentError, match=r"nothing for 5 'y'"):
        encoder.dispatch(library["plain"], x, None, None, None, threads=4)
    with pytest.raises(ost.ArgumentError, match=r"nothing for 1 'bias' .* 2 'weight'"):
        encoder.dispatch(library["biased"], {0: x, 3: x, 5: x}, threads=4)
    assert not library["plain"].signature.arguments[1].used
    assert library["biased"].signature.arguments[1].used


def test_a_constant_is_needed_by_the_kernels_that_use_it(dev: ost.Device, library: ost.Library) -> None:
    assert "plain" in repr(library["plain"])
    with pytest.raises(ost.ConstantError, match=r"'scaled' .*scale \(index 1, float32\)"):
        library["scaled"]
    with pytest.raises(ost.ConstantError, match=r"'scaled' .*shifted .*scale"):
        dev.library("constant uint rows [[function_constant(7)]];\n" + SOURCE, constants={"rows": 3})["scaled"]


def test_a_library_in_which_every_kernel_lacks_a_constant_is_refused(dev: ost.Device) -> None:
    source = "constant uint n [[function_constant(3)]]; kernel void k(device uint *x) { x[0] = n; }"
    with pytest.raises(ost.ConstantError, match=r"'k' .*n \(index 3, uint32\)"):
        dev.library(source)


def test_an_unbound_argument_touches_nothing(dev: ost.Device, library: ost.Library) -> None:
    x, y, z = row(dev, 1), dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(library["plain"], x, None, None, None, y, threads=4)
        encoder.dispatch(library["plain"], x, None, None, None, z, threads=4)

    graph = dev.capture(encode)
    assert [len(node.buffers) for node in graph.nodes] == [2, 2]
    assert not len(graph.edges)
    assert "unbound" in str(graph)


def test_graphs_replay_rebind_and_come_back_from_files(dev: ost.Device, library: ost.Library, tmp_path: Path) -> None:
    x, y = row(dev, 1), dev.zeros(4, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(library["plain"], x, None, None, None, y, threads=4)).named(x=x, y=y)
    run = graph.instantiate()
    run.replay().wait()
    assert y.numpy().tolist() == [1, 2, 3, 4]
    other = dev.zeros(4, np.float32)
    run.replay(y=other).wait()
    assert other.numpy().tolist() == [1, 2, 3, 4]
    loaded = load_graph(saved(graph, tmp_path)).to(dev)
    loaded.instantiate().replay().wait()
    assert loaded.buffer("y").numpy().tolist() == [1, 2, 3, 4]


def test_optimised_and_audited_graphs_keep_arguments_unbound(dev: ost.Device, library: ost.Library) -> None:
    x, y, z = row(dev, 1), dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(encoder: ost.CommandEncoder) -> None:
        encoder.dispatch(library["plain"], x, None, None, None, y, threads=4)
        encoder.dispatch(library["plain"], y, None, None, None, z, threads=4)

    graph = dev.capture(encode)
    assert graph.audit().ok
    graph.optimise().instantiate().replay().wait()
    assert z.numpy().tolist() == [1, 2, 3, 4]
