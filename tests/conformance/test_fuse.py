"""Fusion: what it does, and every reason for which it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import ops
from ostinato.ir import hazards
from ostinato.ir.commands import Barrier, Dispatch, Ordering
from ostinato.passes import FusedSide, FusionRule, Geometry, KernelName, Report, fuse, reorder, verify
from ostinato.passes.building import joined_labels
from small_graphs import dispatches

ROWS, WIDTH = 3, 40
SHAPE = (ROWS, WIDTH)

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void twice(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                  constant uint &count [[buffer(2)]], uint at [[thread_position_in_grid]]) {
    if (at < count) out[at] = in[at] * 2.0f;
}
kernel void plus(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                 constant uint &count [[buffer(2)]], constant float &more [[buffer(3)]],
                 uint at [[thread_position_in_grid]]) {
    if (at < count) out[at] = in[at] + more;
}
kernel void twice_plus(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                       constant uint &count [[buffer(2)]], constant float &more [[buffer(3)]],
                       uint at [[thread_position_in_grid]]) {
    if (at < count) { const float doubled = in[at] * 2.0f; out[at] = doubled + more; }
}
[[max_total_threads_per_threadgroup(64)]]
kernel void small_twice_plus(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                             constant uint &count [[buffer(2)]], constant float &more [[buffer(3)]],
                             uint at [[thread_position_in_grid]]) {
    if (at < count) { const float doubled = in[at] * 2.0f; out[at] = doubled + more; }
}
kernel void twice_plus_twice(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                             constant uint &count [[buffer(2)]], constant float &more [[buffer(3)]],
                             uint at [[thread_position_in_grid]]) {
    if (at < count) { const float doubled = in[at] * 2.0f; const float added = doubled + more; out[at] = added * 2.0f; }
}
"""


def elements(dispatch: Dispatch) -> int:
    return dispatch.threads[0] * 4


RULE = FusionRule(
    name="twice plus",
    first=FusedSide(KernelName(SOURCE, "twice"), 1, elements, overwrites=(1,)),
    second=FusedSide(KernelName(SOURCE, "plus"), 0, elements, overwrites=(1,)),
    fused=KernelName(SOURCE, "twice_plus"),
    arguments={0: ("first", 0), 1: ("second", 1), 2: ("second", 2), 3: ("second", 3)},
    geometry="second",
    equal=((2, 2),),
    in_place=((1, 0),),
)


class Bench:
    """A device with a few rows of numbers, and the ways to use them."""

    def __init__(self, dev: ost.Device) -> None:
        rng = np.random.default_rng(0)
        self.dev = dev
        self.weight = dev.array(rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))
        for name in ("x", "y", "z", "gate"):
            setattr(self, name, dev.array(rng.uniform(-1, 1, SHAPE).astype(np.float32)))
        for name in ("t", "u", "out"):
            setattr(self, name, dev.zeros(SHAPE, np.float32))

    x: ost.Buffer
    y: ost.Buffer
    z: ost.Buffer
    gate: ost.Buffer
    t: ost.Buffer
    u: ost.Buffer
    out: ost.Buffer

    def norm_mul(self, enc: ost.CommandEncoder, **between: Any) -> None:
        """out = rms_norm(x) * gate, by way of t, which nobody wants."""
        ops.rms_norm(enc, self.x, self.weight, self.t)
        ops.mul(enc, self.t, self.gate, self.out)

    def add_norm(self, enc: ost.CommandEncoder) -> None:
        """x += y, out = rms_norm(x)."""
        ops.add(enc, self.x, self.y, self.x)
        ops.rms_norm(enc, self.x, self.weight, self.out)


@pytest.fixture
def bench(dev: ost.Device) -> Bench:
    return Bench(dev)


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def names(graph: ost.Graph) -> list[str]:
    return [node.name for node in graph]


def applied(graph: ost.Graph, **options: Any) -> tuple[ost.Graph, Report]:
    """Fuse, and let nothing pass that is not the same bit for bit over three replays."""
    found, report = fuse(graph, **options)
    verify(graph, found, repeats=3).check()
    assert report.nodes_after == len(found)
    return found, report


def refused(graph: ost.Graph, reason: str, **options: Any) -> None:
    """Nothing is fused, and the report says why."""
    found, report = applied(graph, **options)
    assert found is graph
    assert report.changes == ()
    assert any(reason in str(note) for note in report.refusals), str(report)


# --- what it does ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("swapped", [False, True])
def test_rms_norm_and_multiply_become_one(dev: ost.Device, dtype: str, swapped: bool) -> None:
    x, gate = (dev.array(np.linspace(-1, 1, 120).reshape(SHAPE).astype(dtype)) for _ in range(2))
    weight = dev.array(np.linspace(0.5, 1.5, WIDTH).astype(dtype))
    t, out = dev.zeros(SHAPE, dtype), dev.zeros(SHAPE, dtype)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, x, weight, t)
        ops.mul(enc, *((gate, t) if swapped else (t, gate)), out)

    graph = dev.capture(encode).with_outputs(out)
    found, report = applied(graph)
    assert len(found) == 1
    assert names(found)[0].startswith("rms_norm_mul_")
    assert report.numbers["fused"] == 1
    assert found[0].origin == (0, 1)
    assert found.dropped == ((t_begin := graph[0].buffers[2].address, t_begin + t.nbytes),)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_residual_add_and_rms_norm_become_one_and_the_sum_stays(dev: ost.Device, dtype: str) -> None:
    hidden, delta = (dev.array(np.linspace(-1, 1, 120).reshape(SHAPE).astype(dtype)) for _ in range(2))
    weight, out = dev.array(np.linspace(0.5, 1.5, WIDTH).astype(dtype)), dev.zeros(SHAPE, dtype)
    later = dev.zeros(SHAPE, dtype)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, hidden, delta, hidden)
        ops.rms_norm(enc, hidden, weight, out)
        ops.add(enc, hidden, out, later)

    graph = dev.capture(encode)  # nobody said what is read later, and nothing has to be known of it
    found, _ = applied(graph)
    assert len(found) == 2
    assert names(found)[0].startswith("add_rms_norm_")
    assert found.dropped == ()


def test_no_test_ever_called_fuse_reorder_replay(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        bench.norm_mul(enc)
        ops.add(enc, bench.y, bench.out, bench.y)
        ops.mul(enc, bench.z, bench.gate, bench.u)
        ops.add(enc, bench.u, bench.gate, bench.u)

    graph = bench.dev.capture(encode).with_outputs(bench.out, bench.y, bench.u)
    plain, optimised = graph.instantiate(), graph.optimise()
    before = bench.y.numpy()
    plain.replay().wait()
    expected = [one.numpy() for one in (bench.out, bench.y, bench.u)]
    bench.y.write(before)
    run = optimised.instantiate()
    run.replay().wait()
    for one, values in zip((bench.out, bench.y, bench.u), expected, strict=True):
        assert one.numpy().tobytes() == values.tobytes()
    assert names(optimised) == ["rms_norm_mul_float", "mul_float", "add_float", "add_float"]  # the free one moved up
    assert [report.name for report in optimised.reports] == ["fuse", "reorder", "split"]


def whole(amount: object) -> int:
    assert isinstance(amount, int)
    return amount


def test_the_fused_node_says_what_it_stands_for(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("block"), enc.scope("norm"):
            ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        with enc.scope("block"), enc.scope("gate"):
            ops.mul(enc, bench.t, bench.gate, bench.out)

    graph = bench.dev.capture(encode).with_outputs(bench.out)
    found, report = applied(graph)
    node, (first, second) = found[0], dispatches(graph)
    assert node.label == "block/norm+gate"
    assert node.place is not None
    assert node.place.file == __file__
    assert node.op_kind is ost.CapturedOpKind.RmsNorm
    size = bench.t.nbytes
    assert isinstance(node.command, Dispatch)
    assert node.command.bytes_read == whole(first.bytes_read) + whole(second.bytes_read) - size
    assert node.command.bytes_written == whole(first.bytes_written) + whole(second.bytes_written) - size
    assert node.command.flops == whole(first.flops) + whole(second.flops)
    assert "block/norm/rms_norm_float (test_fuse.py:" in str(report)
    assert report.changes[0].nodes == (0, 1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, None),
        ("a", None, "a"),
        (None, "b", "b"),
        ("a", "a", "a"),
        ("a", "b", "a+b"),
        ("l/a", "l/b", "l/a+b"),
        ("l", "l/b", "l/b"),
        ("l/m/a", "l/b", "l/m/a+b"),
    ],
)
def test_labels_are_joined_behind_what_they_share(first: str | None, second: str | None, expected: str | None) -> None:
    assert joined_labels(first, second) == expected


def test_in_the_default_chain_nodes_are_taken_greedily_and_the_report_says_so(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, bench.x, bench.y, bench.x)
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        ops.mul(enc, bench.t, bench.gate, bench.out)

    found, report = applied(bench.dev.capture(encode).with_outputs(bench.out, bench.x))
    assert names(found) == ["add_rms_norm_float", "mul_float"]
    assert "one of them is already fused by the rule add + RMS norm" in str(report)


def test_many_pairs_side_by_side_are_fused_in_one_round(bench: Bench) -> None:
    middles = [bench.dev.zeros(SHAPE, np.float32) for _ in range(8)]
    outs = [bench.dev.zeros(SHAPE, np.float32) for _ in range(8)]

    def encode(enc: ost.CommandEncoder) -> None:
        for t in middles:
            ops.rms_norm(enc, bench.x, bench.weight, t)
        for t, out in zip(middles, outs, strict=True):
            ops.mul(enc, t, bench.gate, out)

    found, report = applied(bench.dev.capture(encode).with_outputs(*outs))
    assert names(found) == ["rms_norm_mul_float"] * 8
    assert report.numbers["rounds"] == 1


def test_a_buffer_used_again_and_again_between_pairs_is_no_obstacle(bench: Bench) -> None:
    outs = [bench.dev.zeros(SHAPE, np.float32) for _ in range(4)]

    def encode(enc: ost.CommandEncoder) -> None:
        for out in outs:
            ops.rms_norm(enc, bench.x, bench.weight, bench.t)
            ops.mul(enc, bench.t, bench.gate, out)

    found, _ = applied(bench.dev.capture(encode).with_outputs(*outs))
    assert names(found) == ["rms_norm_mul_float"] * 4
    # Without outputs, only the last writer of t can be seen from outside, and it stays.
    found, _ = applied(bench.dev.capture(encode))
    assert names(found) == ["rms_norm_mul_float"] * 3 + ["rms_norm_float", "mul_float"]


def test_parameters_are_carried_over(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t, ost.param("eps", np.float32))
        ops.mul(enc, bench.t, bench.gate, bench.out)

    graph = bench.dev.capture(encode).with_outputs(bench.out)
    found, _ = fuse(graph)
    assert names(found) == ["rms_norm_mul_float"]
    assert verify(graph, found, params={"eps": 0.25}).ok
    with pytest.raises(ost.GraphError, match="no value for parameter 'eps'"):
        found.instantiate().replay()


def test_submissions_begin_at_the_same_work_as_before(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        bench.norm_mul(enc)
        ops.add(enc, bench.y, bench.out, bench.y)
        ops.add(enc, bench.z, bench.out, bench.z)

    graph = bench.dev.capture(encode).with_outputs(bench.out, bench.y, bench.z)
    assert applied(replace(graph, splits=(3,)))[0].splits == (2,)
    assert applied(replace(graph, splits=(1,)))[0].splits == ()
    assert applied(replace(graph, splits=(1, 2)))[0].splits == (1,)


def test_kernels_are_known_by_their_source_after_preprocessing(bench: Bench) -> None:
    text = (ops.compiled.FOLDER / "rms_norm_plain.metal").read_text()
    kernel = bench.dev.library("// the same, in other words\n" + text)["rms_norm_float"]
    other = bench.dev.library(text.replace("value * value", "value * 2.0f"))["rms_norm_float"]

    def encode(enc: ost.CommandEncoder, kernel: ost.Kernel) -> None:
        enc.dispatch(kernel, bench.x, bench.weight, bench.t, WIDTH, 1e-6, groups=ROWS, group_size=32)
        ops.mul(enc, bench.t, bench.gate, bench.out)

    assert len(applied(bench.dev.capture(lambda enc: encode(enc, kernel)).with_outputs(bench.out))[0]) == 1
    assert len(applied(bench.dev.capture(lambda enc: encode(enc, other)).with_outputs(bench.out))[0]) == 2


def test_a_graph_on_no_device_is_left_alone(bench: Bench) -> None:
    graph = replace(bench.dev.capture(bench.norm_mul).with_outputs(bench.out), _queue=None)
    found, report = fuse(graph)
    assert found is graph
    assert "on no device" in str(report)


# --- who would notice --------------------------------------------------------------------------------------------


def test_fusion_without_a_liveness_check(bench: Bench) -> None:
    graph = bench.dev.capture(bench.norm_mul)
    refused(graph, "live at the end")
    refused(graph.with_outputs(bench.out, bench.t), "is an output of the graph")
    refused(graph.with_outputs(bench.out, bench.t[1:2]), "is an output of the graph")
    assert len(applied(graph.with_outputs(bench.out))[0]) == 1


@pytest.mark.parametrize("place", ["between", "later"])
def test_an_intermediate_with_two_readers_stays(bench: Bench, place: str) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        if place == "between":
            enc.copy(bench.t[2], bench.u[2])
        ops.mul(enc, bench.t, bench.gate, bench.out)
        if place == "later":
            ops.add(enc, bench.t, bench.y, bench.u)

    refused(bench.dev.capture(encode).with_outputs(bench.out, bench.u), "reads the intermediate")


def test_an_intermediate_read_at_the_next_replay_stays(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, bench.y, bench.t, bench.y)  # what the replay before left
        bench.norm_mul(enc)

    refused(
        bench.dev.capture(encode).with_outputs(bench.out, bench.y), "reads the intermediate of this replay in the next"
    )


def test_an_intermediate_overwritten_before_the_next_replay_reads_it_can_go(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        enc.fill(bench.t, 1.0)
        ops.add(enc, bench.y, bench.t, bench.y)
        bench.norm_mul(enc)

    assert "rms_norm_mul_float" in names(applied(bench.dev.capture(encode).with_outputs(bench.out, bench.y))[0])


def test_what_the_first_reads_of_its_own_output_counts_as_the_next_replay_reading_it(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.x)
        ops.mul(enc, bench.x, bench.gate, bench.out)

    refused(bench.dev.capture(encode).with_outputs(bench.out), "reads the intermediate of this replay in the next")


def test_only_a_whole_overwrite_ends_a_life(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder, overwritten: ost.Buffer) -> None:
        bench.norm_mul(enc)
        enc.fill(overwritten, 3.0)

    refused(bench.dev.capture(lambda enc: encode(enc, bench.t[: ROWS - 1])), "live at the end")
    assert len(applied(bench.dev.capture(lambda enc: encode(enc, bench.t)))[0]) == 2


def test_a_kernel_that_no_rule_knows_may_read_what_it_writes(bench: Bench, kernels: ost.Library) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        bench.norm_mul(enc)
        enc.dispatch(kernels["bump"], bench.t, threads=bench.t.size)

    refused(bench.dev.capture(encode).with_outputs(bench.out), "reads the intermediate later")


def test_a_dispatch_that_may_touch_anything_reads_the_intermediate(bench: Bench, kernels: ost.Library) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        bench.norm_mul(enc)
        enc.dispatch(kernels["bump"], bench.u, threads=4, reads=ost.UNKNOWN)

    refused(bench.dev.capture(encode).with_outputs(bench.out), "reads the intermediate later")


def test_an_intermediate_that_can_be_bound_anew_stays(bench: Bench) -> None:
    graph = bench.dev.capture(bench.norm_mul).with_outputs(bench.out)
    refused(graph.named(middle=bench.t), "part of the buffer named 'middle'")


def test_a_second_that_writes_over_the_intermediate_keeps_it(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        ops.mul(enc, bench.t, bench.gate, bench.t)

    found, _ = applied(bench.dev.capture(encode))
    assert names(found) == ["rms_norm_mul_float"]
    assert found.dropped == ()


# --- the same bytes, all of them ---------------------------------------------------------------------------------


def test_fusion_ignored_buffer_offsets(bench: Bench) -> None:
    tall = bench.dev.zeros((ROWS + 1, WIDTH), np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, tall[:ROWS])
        ops.mul(enc, tall[1:], bench.gate, bench.out)

    refused(bench.dev.capture(encode).with_outputs(bench.out), f"from byte +{WIDTH * 4} of what the first writes")


def test_a_second_that_reads_a_part_is_refused(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        ops.mul(enc, bench.t[:2], bench.gate[:2], bench.out[:2])

    refused(bench.dev.capture(encode).with_outputs(bench.out), "is bound to 320 of them")


@pytest.mark.parametrize(("rows", "threads"), [(ROWS - 1, ROWS * WIDTH), (ROWS, ROWS * WIDTH - 1)])
def test_grids_that_do_not_cover_the_intermediate_are_refused(bench: Bench, rows: int, threads: int) -> None:
    norm = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("rms_norm"), "rms_norm_float")
    mul = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("elementwise"), "mul_float")

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(norm, bench.x, bench.weight, bench.t, WIDTH, 1e-6, groups=rows, group_size=32)
        enc.dispatch(mul, bench.t, bench.gate, bench.out, threads=threads)

    refused(bench.dev.capture(encode).with_outputs(bench.out), "bytes of an intermediate of 480")


def test_an_extent_that_comes_with_each_replay_is_refused(bench: Bench) -> None:
    norm = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("rms_norm"), "rms_norm_float")

    def encode(enc: ost.CommandEncoder) -> None:
        width = ost.param("width", np.uint32)
        enc.dispatch(norm, bench.x, bench.weight, bench.t, width, 1e-6, groups=ROWS, group_size=32)
        ops.mul(enc, bench.t, bench.gate, bench.out)

    found, report = fuse(bench.dev.capture(encode).with_outputs(bench.out))
    assert len(found) == 2
    assert "does not follow from" in str(report)


@pytest.mark.parametrize("side", ["first", "second"])
def test_declared_accesses_that_differ_from_the_arguments_are_refused(bench: Bench, side: str) -> None:
    norm = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("rms_norm"), "rms_norm_float")
    mul = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("elementwise"), "mul_float")
    declared: dict[str, Any] = {side: {"reads": [bench.x, bench.weight, bench.t, bench.gate, bench.z]}}

    def encode(enc: ost.CommandEncoder) -> None:
        arguments = (bench.x, bench.weight, bench.t, WIDTH, 1e-6)
        enc.dispatch(norm, *arguments, groups=ROWS, group_size=32, **declared.get("first", {}))
        enc.dispatch(mul, bench.t, bench.gate, bench.out, threads=bench.t.size, **declared.get("second", {}))

    refused(bench.dev.capture(encode).with_outputs(bench.out), f"the {side} was declared to use other memory")


def test_a_pair_with_unknown_accesses_is_refused(bench: Bench) -> None:
    mul = ops.compiled.kernel(bench.dev._queue, ops.compiled.module("elementwise"), "mul_float")

    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.dispatch(mul, bench.t, bench.gate, bench.out, threads=bench.t.size, reads=ost.UNKNOWN)

    refused(bench.dev.capture(encode).with_outputs(bench.out), "memory that the second uses is not known")


# --- one kernel where there were two -----------------------------------------------------------------------------


def test_an_output_over_what_all_groups_read_is_refused(bench: Bench) -> None:
    """The first is done with its weights before the second writes over them; one kernel would not be."""
    wide = bench.dev.zeros(ROWS * WIDTH, np.float32)
    wide.write(np.linspace(0.5, 1.5, ROWS * WIDTH).astype(np.float32))

    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, wide[:WIDTH], bench.t)
        ops.mul(enc, bench.t, bench.gate, wide)

    refused(bench.dev.capture(encode).with_outputs(wide), "would write its argument 3 over its argument 1 in part")


def test_an_output_that_reaches_into_an_input_is_refused_but_the_same_range_is_not(bench: Bench) -> None:
    tall = bench.dev.array(np.linspace(-1, 1, (ROWS + 1) * WIDTH).astype(np.float32).reshape(ROWS + 1, WIDTH))

    def encode(enc: ost.CommandEncoder, out: ost.Buffer) -> None:
        ops.rms_norm(enc, tall[:ROWS], bench.weight, bench.t)
        ops.mul(enc, bench.t, bench.gate, out)

    refused(bench.dev.capture(lambda enc: encode(enc, tall[1:])).with_outputs(tall), "over its argument 0 in part")
    assert len(applied(bench.dev.capture(lambda enc: encode(enc, tall[:ROWS])).with_outputs(tall))[0]) == 1


def test_a_second_that_uses_the_intermediate_twice_is_refused(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        ops.mul(enc, bench.t, bench.t, bench.out)

    refused(
        bench.dev.capture(encode).with_outputs(bench.out), "the second also uses what the first writes as its argument"
    )


def test_groups_larger_than_the_fused_kernel_allows_are_refused(dev: ost.Device, library: ost.Library) -> None:
    rule = replace(RULE, fused=KernelName(SOURCE, "small_twice_plus"))
    graph = twice_then_plus(dev, library, group_size=128)
    refused(graph, "the kernel allows 64", rules=[rule])
    assert len(applied(twice_then_plus(dev, library, group_size=64), rules=[rule])[0]) == 1


# --- the order of others -----------------------------------------------------------------------------------------


def test_a_first_whose_input_changes_in_between_stays(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.fill(bench.x, 1.0)
        enc.copy(bench.x, bench.gate)  # so the second cannot come first either
        ops.mul(enc, bench.t, bench.gate, bench.out)

    refused(bench.dev.capture(encode).with_outputs(bench.out, bench.x), "lies between and uses the same memory")


def test_the_second_goes_to_the_place_of_the_first_where_that_is_the_only_way(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.fill(bench.x, 1.0)
        ops.mul(enc, bench.t, bench.gate, bench.out)

    found, report = applied(bench.dev.capture(encode).with_outputs(bench.out, bench.x))
    assert names(found) == ["rms_norm_mul_float", "fill"]
    assert "in place of the first" in str(report)


def test_a_reader_of_the_sum_before_the_norm_is_served(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, bench.x, bench.y, bench.x)
        enc.copy(bench.x, bench.u)
        ops.rms_norm(enc, bench.x, bench.weight, bench.out)

    found, _ = applied(bench.dev.capture(encode))
    assert names(found) == ["add_rms_norm_float", "copy"]


def test_a_second_that_moves_up_does_not_cross_a_first_that_moves_down(bench: Bench) -> None:
    """Each move is sound by itself; together they would let a read what b has written."""
    s, o = bench.dev.zeros(SHAPE, np.float32), bench.dev.zeros(SHAPE, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)  # first of a
        ops.rms_norm(enc, bench.y, bench.weight, s)  # first of b
        ops.mul(enc, bench.t, bench.gate, bench.out)  # second of a: its first can move down
        enc.fill(bench.y, 0.5)  # so b's first cannot move down; its second must move up
        ops.mul(enc, s, bench.gate, bench.x)  # second of b, over what the first of a reads
        enc.copy(bench.x, o)

    graph = bench.dev.capture(encode).with_outputs(bench.out, bench.x, bench.y, o)
    found, _ = applied(graph)
    assert names(found) == ["rms_norm_float", "rms_norm_mul_float", "fill", "mul_float", "copy"]


def test_what_may_touch_anything_is_not_passed(bench: Bench, kernels: ost.Library) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, bench.x, bench.y, bench.z)
        enc.dispatch(kernels["bump"], bench.u, threads=4, writes=ost.UNKNOWN)
        ops.rms_norm(enc, bench.z, bench.weight, bench.out)

    refused(bench.dev.capture(encode), "may access any memory")


def test_pairs_too_far_apart_are_not_looked_for(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder, between: int) -> None:
        ops.add(enc, bench.x, bench.y, bench.z)
        for _ in range(between):
            enc.fill(bench.u, 1.0)
        ops.rms_norm(enc, bench.z, bench.weight, bench.out)

    assert len(applied(bench.dev.capture(lambda enc: encode(enc, 63)))[0]) == 64
    assert len(applied(bench.dev.capture(lambda enc: encode(enc, 64)))[0]) == 66


def test_fusion_deleted_barriers_that_ordered_other_work(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.mul(enc, bench.y, bench.gate, bench.u)
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.memory_barrier()  # for both of them
        ops.mul(enc, bench.t, bench.gate, bench.out)
        ops.add(enc, bench.u, bench.y, bench.z)

    graph = bench.dev.capture(encode, barriers="manual").with_outputs(bench.out, bench.z, bench.u)
    found, _ = applied(graph)
    assert names(found) == ["mul_float", "barrier", "rms_norm_mul_float", "add_float"]
    assert races(found) == []


def test_a_barrier_that_comes_to_stand_first_goes(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.memory_barrier()
        ops.mul(enc, bench.t, bench.gate, bench.out)

    found, _ = applied(bench.dev.capture(encode, barriers="manual").with_outputs(bench.out))
    assert names(found) == ["rms_norm_mul_float"]


def test_between_barriers_a_moved_half_meets_nobody_it_was_ordered_against(bench: Bench) -> None:
    def encode(enc: ost.CommandEncoder, up_too: bool) -> None:
        if up_too:
            ops.add(enc, bench.y, bench.z, bench.out)  # beside the first: writes what the second writes
        ops.rms_norm(enc, bench.x, bench.weight, bench.t)
        enc.memory_barrier()
        ops.mul(enc, bench.t, bench.gate, bench.out)
        enc.fill(bench.x, 2.0)  # beside the second, behind it in the list: writes what the first reads

    def captured(up_too: bool) -> ost.Graph:
        graph = bench.dev.capture(lambda enc: encode(enc, up_too), barriers="manual")
        return graph.with_outputs(bench.out, bench.x)

    assert races(captured(True)) == []
    refused(captured(True), "lies between and uses the same memory as the first (WAR)")
    found, _ = applied(captured(False))
    assert names(found) == ["rms_norm_mul_float", "barrier", "fill"]
    assert races(found) == []


def test_a_pair_that_no_barrier_orders_is_refused(bench: Bench) -> None:
    graph = bench.dev.capture(bench.norm_mul, barriers="manual").with_outputs(bench.out)
    found, report = fuse(graph)
    assert found is graph
    assert "no barrier orders the second after the first" in str(report)


def test_a_serial_graph_is_fused_too(bench: Bench) -> None:
    graph = bench.dev.capture(bench.norm_mul, barriers="serial").with_outputs(bench.out)
    assert len(applied(graph)[0]) == 1


# --- rules of one's own ------------------------------------------------------------------------------------------


def twice_then_plus(
    dev: ost.Device, library: ost.Library, counts: tuple[Any, Any] = (256, 256), group_size: int = 64
) -> ost.Graph:
    x, t, out = dev.array(np.arange(256, dtype=np.float32)), dev.zeros(256, np.float32), dev.zeros(256, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["twice"], x, t, counts[0], threads=256, group_size=group_size)
        enc.dispatch(library["plus"], t, out, counts[1], 1.0, threads=256, group_size=group_size)

    return dev.capture(encode).with_outputs(out)


def test_a_rule_of_ones_own_is_applied(dev: ost.Device, library: ost.Library) -> None:
    graph = twice_then_plus(dev, library)
    assert names(applied(graph, rules=[RULE])[0]) == ["twice_plus"]
    assert names(graph.optimise([fuse(rules=[RULE]), reorder])) == ["twice_plus"]
    assert len(applied(graph)[0]) == 2  # no rule of ours


def test_values_that_must_be_equal_are_compared_by_their_bytes_or_names(dev: ost.Device, library: ost.Library) -> None:
    refused(twice_then_plus(dev, library, (256, 255)), "must be equal, but differ", rules=[RULE])
    count, other = ost.param("count", np.uint32), ost.param("other", np.uint32)
    assert len(fuse(twice_then_plus(dev, library, (count, count)), rules=[RULE])[0]) == 1
    assert len(fuse(twice_then_plus(dev, library, (count, other)), rules=[RULE])[0]) == 2
    assert len(fuse(twice_then_plus(dev, library, (count, 256)), rules=[RULE])[0]) == 2


def test_a_rule_may_have_a_condition_and_a_geometry(dev: ost.Device, library: ost.Library) -> None:
    graph = twice_then_plus(dev, library)
    refused(graph, "not today", rules=[replace(RULE, check=lambda first, second: "not today")])
    rule = replace(RULE, geometry=lambda first, second: Geometry(threads=first.threads, group_size=32))
    (command,) = dispatches(applied(graph, rules=[rule])[0])
    assert command.group_size == (32, 1, 1)


def test_what_was_fused_can_be_fused_again(dev: ost.Device, library: ost.Library) -> None:
    again = FusionRule(
        name="twice plus twice",
        first=FusedSide(KernelName(SOURCE, "twice_plus"), 1, elements, overwrites=(1,)),
        second=FusedSide(KernelName(SOURCE, "twice"), 0, elements, overwrites=(1,)),
        fused=KernelName(SOURCE, "twice_plus_twice"),
        arguments={0: ("first", 0), 1: ("second", 1), 2: ("second", 2), 3: ("first", 3)},
        geometry="second",
        equal=((2, 2),),
    )
    x, out = dev.array(np.arange(256, dtype=np.float32)), dev.zeros(256, np.float32)
    t, u = dev.zeros(256, np.float32), dev.zeros(256, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["twice"], x, t, 256, threads=256)
        enc.dispatch(library["plus"], t, u, 256, 1.0, threads=256)
        enc.dispatch(library["twice"], u, out, 256, threads=256)

    found, report = applied(dev.capture(encode).with_outputs(out), rules=[RULE, again])
    assert names(found) == ["twice_plus_twice"]
    assert found[0].origin == (0, 1, 2)
    assert report.numbers == {"fused": 2, "rounds": 2, "bytes_not_written": 2048}


def test_constants_are_part_of_a_kernels_name(dev: ost.Device) -> None:
    source = """
    #include <metal_stdlib>
    using namespace metal;
    constant float factor [[function_constant(0)]];
    kernel void scaled(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                       uint at [[thread_position_in_grid]]) { out[at] = in[at] * factor; }
    kernel void scaled_twice(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                             uint at [[thread_position_in_grid]]) { out[at] = in[at] * factor * factor; }
    """
    three: dict[int | str, float] = {"factor": 3.0}
    rule = FusionRule(
        name="thrice thrice",
        first=FusedSide(KernelName(source, "scaled", three), 1, elements, overwrites=(1,)),
        second=FusedSide(KernelName(source, "scaled", three), 0, elements, overwrites=(1,)),
        fused=KernelName(source, "scaled_twice", three),
        arguments={0: ("first", 0), 1: ("second", 1)},
        geometry="first",
    )
    x, t, out = dev.array(np.ones(8, np.float32)), dev.zeros(8, np.float32), dev.zeros(8, np.float32)

    def encode(enc: ost.CommandEncoder, kernel: ost.Kernel) -> None:
        enc.dispatch(kernel, x, t, threads=8)
        enc.dispatch(kernel, t, out, threads=8)

    by_index, other = (dev.library(source, {0: value})["scaled"] for value in (3.0, 2.0))
    assert len(applied(dev.capture(lambda enc: encode(enc, by_index)).with_outputs(out), rules=[rule])[0]) == 1
    assert len(applied(dev.capture(lambda enc: encode(enc, other)).with_outputs(out), rules=[rule])[0]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rule: "rule", "a rule is a FusionRule"),
        (lambda rule: replace(rule, fused=KernelName(SOURCE, "none")), "its source has no kernel 'none'"),
        (lambda rule: replace(rule, arguments={0: ("first", 0)}), r"the rule maps arguments \[0\]"),
        (
            lambda rule: replace(rule, arguments={**rule.arguments, 0: ("second", 2)}),
            "cannot take the second's 2: count uint",
        ),
        (lambda rule: replace(rule, arguments={**rule.arguments, 1: ("first", 0)}), "only reads"),
        (
            lambda rule: replace(rule, arguments={**rule.arguments, 1: ("first", 1)}),
            "does not write what 'plus' writes",
        ),
        (lambda rule: replace(rule, first=replace(rule.first, overwrites=())), "must overwrite its argument 1"),
        (lambda rule: replace(rule, first=replace(rule.first, intermediate=9)), "has no argument 9"),
        (
            lambda rule: replace(rule, second=replace(rule.second, intermediate=2)),
            "'twice' makes float, 'plus' takes uint",
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_an_error(change: Callable[[FusionRule], Any], message: str) -> None:
    with pytest.raises((ost.ArgumentError, ost.KernelNotFound), match=message):
        fuse(rules=[change(RULE)])


def test_rules_in_the_place_of_the_graph_are_an_error() -> None:
    with pytest.raises(ost.ArgumentError, match="pass rules as"):
        fuse([RULE])  # type: ignore[call-overload]


# --- all of it at once -------------------------------------------------------------------------------------------


def races(graph: ost.Graph) -> list[tuple[int, int]]:
    """Pairs of nodes that conflict and that no barrier orders."""
    found: list[tuple[int, int]] = []
    interval: list[int] = []
    for index, node in enumerate(graph):
        if isinstance(node.command, Barrier):
            interval = []
            continue
        for other in interval:
            if hazards.conflicts(other, graph[other].accesses or (), index, node.accesses or ()):
                found.append((other, index))
        interval.append(index)
    return found


buffers = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("add"), buffers, buffers, buffers),
    st.tuples(st.just("mul"), buffers, buffers, buffers),
    st.tuples(st.just("norm"), buffers, buffers),
    st.tuples(st.just("norm_mul"), buffers, buffers, buffers, buffers),
    st.tuples(st.just("add_norm"), buffers, buffers, buffers, buffers),
    st.tuples(st.just("norm_copy_mul"), buffers, buffers, buffers, buffers, buffers),
    st.tuples(st.just("copy"), buffers, buffers),
    st.tuples(st.just("fill"), buffers),
    st.tuples(st.just("barrier")),
)


def encode_steps(
    enc: ost.CommandEncoder, wanted: list[tuple[Any, ...]], memory: list[ost.Buffer], w: ost.Buffer
) -> None:
    for name, *places in wanted:
        one = [memory[place] for place in places]
        if name == "add" and sound(one[2:], one[:2]):
            ops.add(enc, *one)
        elif name == "mul" and sound(one[2:], one[:2]):
            ops.mul(enc, *one)
        elif name == "norm" and sound(one[1:], one[:1]):
            ops.rms_norm(enc, one[0], w, one[1])
        elif name == "norm_mul" and sound(one[1:2], one[:1]) and sound(one[3:], one[1:3]):
            ops.rms_norm(enc, one[0], w, one[1])
            ops.mul(enc, one[1], one[2], one[3])
        elif name == "norm_copy_mul" and sound(one[1:2], one[:1]) and sound(one[3:4], one[1:3]):
            ops.rms_norm(enc, one[0], w, one[1])
            if places[4] != places[0] and sound(one[:1], one[4:]):
                enc.copy(one[4], one[0])
            ops.mul(enc, one[1], one[2], one[3])
        elif name == "add_norm" and sound(one[2:3], one[:2]) and sound(one[3:], one[2:3]):
            ops.add(enc, one[0], one[1], one[2])
            ops.rms_norm(enc, one[2], w, one[3])
        elif name == "copy" and places[0] != places[1] and sound(one[1:], one[:1]):
            enc.copy(*one)
        elif name == "fill":
            enc.fill(one[0], 0.75)
        elif name == "barrier":
            enc.memory_barrier()


def sound(written: list[ost.Buffer], read: list[ost.Buffer]) -> bool:
    """Whether a dispatch of these does not race with itself: what it writes is what it reads, or apart from it."""
    return all(abs(one.byte_offset - other.byte_offset) in (0, *range(64, 1000)) for one in written for other in read)


def fresh(dev: ost.Device) -> tuple[list[ost.Buffer], ost.Buffer]:
    rng = np.random.default_rng(1)
    block = dev.array(rng.uniform(-1, 1, (13, 8)).astype(np.float32))
    # The last two overlap others in part.
    rows = [*(block[at : at + 2] for at in range(0, 12, 2)), block[1:3], block[11:13]]
    return rows, dev.array(rng.uniform(0.5, 1.5, 8).astype(np.float32))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(steps, min_size=2, max_size=10),
    st.none() | st.sets(buffers, max_size=3),
    st.sampled_from(["auto", "serial"]),
)
def test_whatever_is_fused_nobody_can_tell(
    dev: ost.Device, wanted: list[tuple[Any, ...]], outputs: set[int] | None, barriers: str
) -> None:
    memory, weight = fresh(dev)
    graph = dev.capture(lambda enc: encode_steps(enc, wanted, memory, weight), barriers=barriers)
    if not len(graph):
        return
    if outputs is not None:
        graph = graph.with_outputs(*(memory[place] for place in outputs))
    found, _ = fuse(graph)
    assert np.isfinite(memory[0].numpy()).all()
    check = verify(graph, found, repeats=3)
    assert check.ok, f"{check}\n{[str(node) for node in graph]}\n{[str(node) for node in found]}"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=2, max_size=10), st.sets(buffers, max_size=3))
def test_between_barriers_fusion_makes_no_race(
    dev: ost.Device, wanted: list[tuple[Any, ...]], outputs: set[int]
) -> None:
    memory, weight = fresh(dev)
    automatic = dev.capture(lambda enc: encode_steps(enc, wanted, memory, weight))
    nodes = []
    for node in automatic:  # a barrier wherever one is needed, and where the steps have one
        nodes.append(node)
        if races(automatic.with_nodes(nodes)):
            nodes[-1:] = [ost.CapturedNode(Barrier()), node]
    if not nodes:
        return
    nodes = [node._replace(origin=(index,)) for index, node in enumerate(nodes)]
    graph = automatic.with_nodes(nodes, ordering=Ordering.BARRIERS)
    graph = graph.with_outputs(*(memory[place] for place in outputs))
    found, _ = fuse(graph)
    assert races(found) == []
    assert verify(graph, found, repeats=3).ok
