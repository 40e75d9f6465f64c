"""Splitting: by rule, and by measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.passes import Report, restored, search_split, split, split_by_rule


def chain(dev: ost.Device, kernels: ost.Library, dispatches: int, **options: Any) -> tuple[ost.Graph, ost.Buffer]:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for index in range(dispatches):
            enc.dispatch(kernels["bump"], x, threads=4)
            if index % 50 == 49:
                enc.memory_barrier()

    return dev.capture(encode, **options), x


@pytest.mark.parametrize(("dispatches", "first"), [(65, 64), (640, 64), (641, 65), (1000, 100)])
def test_the_first_submission_has_64_dispatches_or_a_tenth(
    dev: ost.Device, kernels: ost.Library, dispatches: int, first: int
) -> None:
    graph, _ = chain(dev, kernels, dispatches)
    found, report = split_by_rule(graph)
    (start,) = found.splits
    assert sum(node.kind == "dispatch" for node in found.nodes[:start]) == first
    assert found[start].kind == "dispatch"
    assert report.numbers == {"submissions": 2}


def test_a_short_graph_stays_one_submission(dev: ost.Device, kernels: ost.Library) -> None:
    graph, _ = chain(dev, kernels, 64)
    found, report = split_by_rule(graph)
    assert found is graph
    assert "64 dispatches fit into the first submission" in str(report)


@pytest.mark.parametrize("barriers", ["auto", "manual", "serial"])
def test_a_split_graph_does_the_same_work_in_more_submissions(
    dev: ost.Device, kernels: ost.Library, barriers: str
) -> None:
    x = dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(200):
            enc.dispatch(kernels["bump"], x, threads=4)
            enc.memory_barrier()

    graph, _ = split_by_rule(dev.capture(encode, barriers=barriers))
    run = graph.instantiate()
    with ost.counters.scope() as counts:
        run.replay().wait()
        run.replay().wait()
    assert x.numpy().tolist() == [400.0] * 4
    assert counts.command_buffers == 4
    assert counts.dispatches == 400


def test_where_a_replay_encodes_nothing_there_is_no_reason_to_split(dev: ost.Device, kernels: ost.Library) -> None:
    if dev.capabilities.encodes_at_replay:
        pytest.skip(f"a replay on device {dev.name!r} encodes every dispatch anew")
    graph, _ = chain(dev, kernels, 200)
    found, report = split(graph)
    assert found is graph
    assert "nothing done" in str(report)
    assert "one call" in str(graph.optimise().reports[-1])


def test_a_graph_on_no_device_is_left_alone(dev: ost.Device, kernels: ost.Library) -> None:
    graph = replace(chain(dev, kernels, 200)[0], _queue=None)
    assert split(graph)[0] is graph


# --- searching ---------------------------------------------------------------------------------------------------


def test_searching_leaves_memory_and_counters_as_they_were(dev: ost.Device, kernels: ost.Library) -> None:
    graph, x = chain(dev, kernels, 200)
    with ost.counters.scope() as counts:
        found, report = search_split(graph, candidates=[50, 100], rounds=5)
    assert x.numpy().tolist() == [0.0] * 4
    assert (counts.dispatches, counts.command_buffers, counts.syncs) == (0, 0, 0)
    assert found.splits in ((), tuple(range(51, 203, 51)), (102,))
    assert set(report.numbers) == {"all at once, µs", "every 50 dispatches, µs", "every 100 dispatches, µs"}
    assert all(value > 0 for value in report.numbers.values())
    found.instantiate().replay().wait()
    assert x.numpy().tolist() == [200.0] * 4


def test_every_measured_replay_begins_with_the_same_memory(own_dev: ost.Device) -> None:
    """A count that is kept in memory must not run on from one replay to the next: here it would divide by zero."""
    step = own_dev.library("""
        kernel void step(device uint *left [[buffer(0)]], device uint *out [[buffer(1)]]) {
            out[0] += 64 / left[0];
            left[0] -= 1;
        }""")["step"]
    left, out = own_dev.array(np.array([16], np.uint32)), own_dev.zeros(1, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(16):
            enc.dispatch(step, left, out, threads=1)

    search_split(own_dev.capture(encode), candidates=[4], rounds=5)
    assert left.numpy().tolist() == [16]
    assert out.numpy().tolist() == [0]


def test_searching_takes_parameters_and_buffers(dev: ost.Device, kernels: ost.Library) -> None:
    x, y, other = dev.array(np.ones(4, np.float32)), dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["scale"], x, y, ost.param("factor", np.float32), threads=4)
        enc.dispatch(kernels["bump"], y, threads=4)

    graph = dev.capture(encode).named(result=y)
    found, _ = search_split(graph, params={"factor": 2.0, "result": other}, candidates=[1], rounds=5)
    assert not other.numpy().any()
    assert not y.numpy().any()
    assert set(found.names) == {"result"}
    with pytest.raises(ost.GraphError, match="no value for parameter 'factor'"):
        search_split(graph, rounds=5)


def test_the_default_candidates_are_halves_and_the_rule(dev: ost.Device, kernels: ost.Library) -> None:
    graph, _ = chain(dev, kernels, 200)
    _, report = search_split(graph, rounds=5)
    names = [name.removesuffix(", µs") for name in report.numbers]
    assert names[:5] == ["all at once", *(f"every {size} dispatches" for size in (100, 50, 25, 12))]
    assert names[-1] == "64 dispatches, then the rest"


@pytest.mark.parametrize("options", [{"rounds": 3}, {"candidates": [0]}, {"candidates": [True]}])
def test_bad_arguments_are_refused(dev: ost.Device, kernels: ost.Library, options: dict[str, Any]) -> None:
    with pytest.raises(ost.ArgumentError, match="search_split"):
        search_split(chain(dev, kernels, 10)[0], **options)


def rounds(level: float, noise: float, seed: int, count: int = 20) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, noise, count))


# --- saving and putting back -------------------------------------------------------------------------------------


def test_what_a_graph_writes_is_put_back_even_after_an_error(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(8, np.float32), dev.zeros(8, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], x[0:4], y[2:6], threads=4))
    run = graph.instantiate()

    def fail() -> None:
        with restored(graph):
            run.replay()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail()
    assert not y.numpy().any()
    with restored(graph):
        run.replay().wait()
        assert y.numpy().tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
        y[6:].write([7, 7])  # not written by the graph, so none of its business
    assert y.numpy().tolist() == [0, 0, 0, 0, 0, 0, 7, 7]


def test_bytes_bound_for_writing_are_saved_though_a_declaration_leaves_them_out(
    dev: ost.Device, kernels: ost.Library
) -> None:
    x = dev.zeros(8, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=8, writes=[x[:2]], reads=[x[:2]]))
    with restored(graph):
        graph.instantiate().replay().wait()
    assert not x.numpy().any()


def test_what_may_write_anything_has_all_of_the_graphs_memory_saved(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y[:2], threads=2)
        enc.dispatch(kernels["bump"], y[:2], threads=2, writes=ost.UNKNOWN)

    with restored(dev.capture(encode)):
        y.write([5, 5, 5, 5])
        x.write([6, 6, 6, 6])
    assert not x.numpy().any()
    assert not y.numpy().any()


def test_a_report_is_made_of_sentences(dev: ost.Device, kernels: ost.Library) -> None:
    report = split_by_rule(chain(dev, kernels, 100)[0])[1]
    assert isinstance(report, Report)
    assert report.changed
    assert "a submission of 64 dispatches and one of 36: by rule" in str(report)
