"""Verification: it finds what differs, says where it began, and leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import ops
from ostinato.ir.commands import BufferBinding, Dispatch, InlineBinding
from ostinato.passes import FusedSide, FusionRule, KernelName, fuse, reorder, verify

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void scaled(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                   constant float &factor [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    out[at] = in[at] * factor;
}
kernel void plus_one(device float *x [[buffer(0)]], uint at [[thread_position_in_grid]]) { x[at] += 1.0f; }
kernel void count(device uint *x [[buffer(0)]], uint at [[thread_position_in_grid]]) { x[at] += 1; }
kernel void scaled_astray(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                          device float *also [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    also[at] = in[at];
    out[at] = in[at];
}
kernel void scaled_scaled(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                          constant float &factor [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    out[at] = in[at] * factor;
}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


class Chain:
    """A graph of ten steps from one buffer to the next, of which one can be spoiled."""

    def __init__(self, dev: ost.Device, library: ost.Library) -> None:
        self.buffers = [dev.array(np.arange(1, 9, dtype=np.float32)) for _ in range(11)]

        def encode(enc: ost.CommandEncoder) -> None:
            for step in range(10):
                with enc.scope(f"step {step}"):
                    enc.dispatch(library["scaled"], *self.buffers[step : step + 2], 1.5, threads=8)

        self.graph = dev.capture(encode)

    def spoiled(self, step: int, factor: float) -> ost.Graph:
        """The graph with another factor in one step."""
        nodes = list(self.graph)
        command = nodes[step].command
        assert isinstance(command, Dispatch)
        bindings = (*command.bindings[:2], InlineBinding(2, np.float32(factor).tobytes()))
        nodes[step] = nodes[step]._replace(command=replace(command, bindings=bindings))
        return self.graph.with_nodes(nodes)


@pytest.fixture
def chain(dev: ost.Device, library: ost.Library) -> Chain:
    return Chain(dev, library)


def test_a_graph_is_the_same_as_itself(chain: Chain) -> None:
    check = verify(chain.graph, chain.graph)
    assert check.ok
    assert check.compared_bytes == 10 * 32
    assert check.check() is check
    assert "the same, 320 bytes compared bit for bit after each of 2 replays" in str(check)


@pytest.mark.parametrize("step", range(10))
def test_the_first_diverging_dispatch_is_found(chain: Chain, step: int) -> None:
    check = verify(chain.graph, chain.spoiled(step, 1.25))
    assert not check.ok
    assert check.first_diverging == step
    assert f"step {step}/scaled (test_verify.py:" in check.where
    assert len(check.differences) == 10 - step
    assert check.differences[-1].dtype == "float32"
    with pytest.raises(ost.GraphError, match="DIFFERENT"):
        check.check()


def test_a_divergence_that_is_overwritten_later_is_still_one_if_an_output_shows_it(
    dev: ost.Device, library: ost.Library, chain: Chain
) -> None:
    only_last = chain.graph.with_outputs(chain.buffers[10])
    check = verify(only_last, chain.spoiled(4, 2.0))
    assert check.compared_bytes == 32
    assert check.first_diverging == 4


def test_memory_and_counters_are_left_as_they_were(chain: Chain) -> None:
    before = [one.numpy() for one in chain.buffers]
    with ost.counters.scope() as counts:
        verify(chain.graph, chain.spoiled(3, 9.0))
    assert (counts.dispatches, counts.command_buffers, counts.syncs) == (0, 0, 0)
    for one, values in zip(chain.buffers, before, strict=True):
        assert one.numpy().tobytes() == values.tobytes()


def test_memory_is_left_as_it_was_when_a_replay_cannot_be_made(dev: ost.Device, library: ost.Library) -> None:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["scaled"], x, x, ost.param("factor", np.float32), threads=4)

    graph = dev.capture(encode)
    with pytest.raises(ost.GraphError, match="no value for parameter 'factor'"):
        verify(graph, graph)
    assert not x.numpy().any()
    assert verify(graph, graph, params={"factor": 2.0}).ok


def test_a_tolerance_is_for_numbers_not_for_bytes(chain: Chain) -> None:
    other = chain.spoiled(9, 1.5 * (1 + 1e-5))
    assert not verify(chain.graph, other).ok
    assert not verify(chain.graph, other, tolerance=1e-6).ok
    assert verify(chain.graph, other, tolerance=1e-4).ok
    assert verify(chain.graph, other, tolerance={"float32": 1e-4}).ok
    assert not verify(chain.graph, other, tolerance={"float16": 1e-4}).ok
    assert verify(chain.graph, chain.spoiled(2, 1.51), tolerance=1e-4).first_diverging == 2


def test_integers_are_compared_exactly_whatever_the_tolerance(dev: ost.Device, library: ost.Library) -> None:
    x = dev.zeros(4, np.uint32)

    def count_twice(enc: ost.CommandEncoder) -> None:
        for _ in range(2):
            enc.dispatch(library["count"], x, threads=4)

    graph = dev.capture(count_twice)
    assert not verify(graph, graph.with_nodes(graph.nodes[:1]), tolerance=10.0).ok


def test_what_only_copies_wrote_has_the_type_of_its_readers(
    dev: ost.Device, library: ost.Library, chain: Chain
) -> None:
    copied = dev.zeros(8, np.float32)
    last = chain.buffers[10]

    def encode(enc: ost.CommandEncoder, factor: float) -> None:
        enc.dispatch(library["scaled"], chain.buffers[0], last, factor, threads=8)
        enc.copy(last, copied)
        enc.dispatch(library["scaled"], copied, last, 1.0, threads=8)

    one, other = (dev.capture(partial(encode, factor=factor)) for factor in (1.0, 1.0 + 1e-6))
    assert not verify(one, other).ok
    assert verify(one, other, tolerance=1e-4).ok


def test_nan_is_the_same_as_nan(dev: ost.Device, library: ost.Library) -> None:
    x, y = dev.array(np.full(8, np.nan, np.float32)), dev.zeros(8, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(library["scaled"], x, y, -1.0, threads=8))
    other = dev.capture(lambda enc: enc.dispatch(library["scaled"], x, y, 1.0, threads=8))
    assert verify(graph, other, tolerance=1e-6).ok


def test_bytes_that_only_the_second_writes_are_a_difference(dev: ost.Device, library: ost.Library) -> None:
    x, y, stray = dev.zeros(4, np.float32), dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(library["plus_one"], x, threads=4)).with_outputs(x)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["plus_one"], x, threads=4)
        enc.dispatch(library["plus_one"], stray, threads=4)

    other = dev.capture(encode)
    with_stray = replace(graph, memories={**graph.memories, **other.memories})
    check = verify(with_stray, other)
    assert not check.ok
    assert check.differences[0].expected == 0.0
    assert check.differences[0].found == 1.0
    assert not stray.numpy().any()
    assert not y.numpy().any()


def test_a_node_that_writes_more_than_it_should_is_found(dev: ost.Device, library: ost.Library) -> None:
    a, b, stray = (dev.array(np.ones(4, np.float32)) for _ in range(3))

    def encode(enc: ost.CommandEncoder, also: ost.Buffer | None) -> None:
        enc.dispatch(library["scaled"], a, b, 2.0, threads=4)
        enc.dispatch(library["scaled_astray"], b, a, a if also is None else also, threads=4)
        enc.dispatch(library["scaled"], a, b, 0.5, threads=4)

    graph, other = (dev.capture(partial(encode, also=also)) for also in (None, stray))
    check = verify(replace(graph, memories={**graph.memories, **other.memories}), other)
    assert [one.count for one in check.differences] == [8]
    assert check.first_diverging == 1


def test_a_difference_that_only_the_second_replay_shows_is_found(dev: ost.Device) -> None:
    """A store that only the next replay reads is dropped."""
    shape = (1, 32)
    x, t, y, out = (dev.array(np.full(shape, value, np.float32)) for value in (1, 2, 3, 4))
    weight = dev.array(np.ones(32, np.float32))

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("reader"):
            ops.add(enc, y, t, y)
        with enc.scope("pair"):
            ops.rms_norm(enc, x, weight, t)
            ops.mul(enc, t, x, out)

    graph = dev.capture(encode).with_outputs(out, y)
    pair = dev.capture(lambda enc: ops.rms_norm_mul(enc, x, weight, x, out))[0]
    other = graph.with_nodes([graph[0], pair._replace(origin=(1, 2))])
    assert verify(graph, other, repeats=1).ok
    check = verify(graph, other)
    assert check.first_diverging == 0
    assert "reader/add_float" in check.where
    assert "in replay 2" in check.where


def test_a_fused_node_that_spares_itself_an_output_is_named(dev: ost.Device) -> None:
    shape = (1, 32)
    x, t, out = (dev.array(np.full(shape, value, np.float32)) for value in (1, 2, 3))
    weight = dev.array(np.ones(32, np.float32))

    def norm_and_mul(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, x, weight, t)
        ops.mul(enc, t, x, out)

    graph = dev.capture(norm_and_mul)
    pair = dev.capture(lambda enc: ops.rms_norm_mul(enc, x, weight, x, out))[0]
    check = verify(graph, graph.with_nodes([pair._replace(origin=(0, 1))]))
    assert check.first_diverging == 0
    assert "does not write what it replaces" in check.where


def test_a_wrong_rule_is_found_out_and_its_node_named(dev: ost.Device, library: ost.Library) -> None:
    def covers(dispatch: Dispatch) -> int:
        return dispatch.threads[0] * 4

    wrong = FusionRule(
        name="forgets one factor",
        first=FusedSide(KernelName(SOURCE, "scaled"), 1, covers, overwrites=(1,)),
        second=FusedSide(KernelName(SOURCE, "scaled"), 0, covers, overwrites=(1,)),
        fused=KernelName(SOURCE, "scaled_scaled"),
        arguments={0: ("first", 0), 1: ("second", 1), 2: ("second", 2)},
        geometry="first",
    )
    a, b, c, d, t = (dev.array(np.arange(1, 9, dtype=np.float32)) for _ in range(5))

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["scaled"], a, b, 2.0, threads=8)
        enc.dispatch(library["plus_one"], b, threads=8)
        enc.dispatch(library["scaled"], b, t, 3.0, threads=8)
        enc.dispatch(library["scaled"], t, c, 5.0, threads=8)
        enc.dispatch(library["plus_one"], c, threads=8)
        enc.dispatch(library["scaled"], c, d, 1.0, threads=8)

    graph = dev.capture(encode).with_outputs(d)
    found, _ = reorder(fuse(graph, rules=[wrong])[0])
    check = verify(graph, found)
    assert check.first_diverging == 2
    assert "scaled_scaled" in check.where


def test_bytes_that_were_promised_not_to_be_read_are_not_compared(dev: ost.Device) -> None:
    shape = (1, 32)
    x, t, out = (dev.array(np.full(shape, value, np.float32)) for value in (1, 2, 3))
    weight = dev.array(np.ones(32, np.float32))

    def norm_and_mul(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, x, weight, t)
        ops.mul(enc, t, x, out)

    graph = dev.capture(norm_and_mul)
    optimised = graph.with_outputs(out).optimise()
    assert len(optimised) == 1
    assert verify(graph, optimised).ok
    assert verify(graph, optimised).compared_bytes == out.nbytes
    assert not verify(graph, replace(optimised, outputs=None)).ok  # no promise, no excuse


def test_buffers_can_be_bound_for_verification(dev: ost.Device, library: ost.Library) -> None:
    x, y, other = (dev.array(np.full(4, value, np.float32)) for value in (1, 2, 3))
    graph = dev.capture(lambda enc: enc.dispatch(library["scaled"], x, y, 2.0, threads=4)).named(out=y)
    assert verify(graph, graph, params={"out": other}).ok
    assert other.numpy().tolist() == [3.0] * 4
    assert y.numpy().tolist() == [2.0] * 4
    with pytest.raises(ost.GraphError, match="no buffer named 'wrong'"):
        verify(graph, graph, params={"wrong": other})


# --- between devices ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["another of its kind", "the CPU"])
def oracle(request: pytest.FixtureRequest, open_another: Callable[[], ost.Device]) -> ost.Device:
    """A device to compare with."""
    if request.param != "the CPU":
        return open_another()
    request.getfixturevalue("cpu_beside")
    return ost.open_device("cpu")


def test_a_graph_is_compared_with_itself_on_another_device(dev: ost.Device, oracle: ost.Device, chain: Chain) -> None:
    with oracle:
        copy = chain.graph.to(oracle)
        chain.buffers[0].write(np.arange(8, dtype=np.float32))  # what was moved is not what is there now
        check = verify(chain.graph, copy)
        assert check.ok
        assert check.compared_bytes == 320
        assert verify(copy, chain.graph).ok
        assert verify(copy, copy).ok
        optimised = chain.graph.to(oracle).optimise()
        assert verify(chain.graph, optimised).ok
        assert verify(optimised, copy).ok  # two that were moved from one


def test_a_divergence_between_devices_is_bisected(dev: ost.Device, oracle: ost.Device, chain: Chain) -> None:
    with oracle:
        other = chain.spoiled(6, 1.75).to(oracle)
        memory = [memory.allocation for memory in other.memories.values()]
        check = verify(chain.graph, other)
        assert check.first_diverging == 6
        assert memory


def test_graphs_that_share_no_memory_are_refused(dev: ost.Device, library: ost.Library, chain: Chain) -> None:
    x = dev.zeros(4, np.float32)
    other = dev.capture(lambda enc: enc.dispatch(library["plus_one"], x, threads=4))
    with pytest.raises(ost.GraphError, match="do not use the same memory"):
        verify(chain.graph, other)


def test_a_graph_on_no_device_cannot_be_verified(chain: Chain) -> None:
    with pytest.raises(ost.GraphError, match="on no device"):
        verify(replace(chain.graph, _queue=None), chain.graph)


@pytest.mark.parametrize(
    "options",
    [{"repeats": 0}, {"repeats": True}, {"tolerance": -1}, {"tolerance": "1"}, {"tolerance": {"int32": 1.0}}],
)
def test_bad_arguments_are_refused(chain: Chain, options: dict[str, Any]) -> None:
    with pytest.raises(ost.ArgumentError, match="verify"):
        verify(chain.graph, chain.graph, **options)
    with pytest.raises(ost.ArgumentError, match="expected a Graph"):
        verify(chain.graph, "graph")  # type: ignore[arg-type]


# --- for many graphs ---------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_spoiled_node_of_a_reordered_graph_is_found(
    dev: ost.Device, library: ost.Library, data: st.DataObject
) -> None:
    memory = [dev.array(np.full(4, 1 + index, np.float32)) for index in range(4)]
    steps = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))

    def encode(enc: ost.CommandEncoder) -> None:
        for source, target in steps:
            enc.dispatch(library["scaled"], memory[source], memory[target], 1.5, threads=4)

    graph = dev.capture(encode)
    found, _ = reorder(graph)
    at = data.draw(st.integers(0, len(steps) - 1))
    command = found[at].command
    assert isinstance(command, Dispatch)
    assert isinstance(command.bindings[1], BufferBinding)
    spoiled = (*command.bindings[:2], InlineBinding(2, np.float32(-3).tobytes()))
    nodes = [*found.nodes[:at], found[at]._replace(command=replace(command, bindings=spoiled)), *found.nodes[at + 1 :]]
    check = verify(graph, found.with_nodes(nodes), repeats=1)
    if not check.ok:  # somebody may have overwritten it
        assert check.first_diverging == at
