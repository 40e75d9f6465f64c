"""Capturing: what becomes a graph, what it remembers, and what an encoder refuses meanwhile."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import ostinato as ost
from ostinato.errors import EncoderError
from ostinato.graph import hooks


def floats(dev: ost.Device, *values: float) -> ost.Buffer:
    return dev.array(np.array(values, np.float32))


def test_capture_records_and_runs_nothing(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2), floats(dev, 0, 0)
    with ost.counters.scope() as counts:
        graph = dev.capture(lambda enc: enc.dispatch(kernels["inc_one"], x, y, threads=2))
    assert len(graph) == 1
    assert counts == ost.Counts()
    assert y.numpy().tolist() == [0, 0]


def test_nodes_carry_labels_kinds_accesses_and_the_line_that_encoded_them(
    dev: ost.Device, kernels: ost.Library
) -> None:
    x, y = floats(dev, 1, 2), floats(dev, 0, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("layer"), enc.scope("norm"):
            enc.dispatch(kernels["inc_one"], x, y, threads=2, op_kind=ost.CapturedOpKind.RmsNorm)
        enc.memory_barrier()
        enc.copy(y, x)
        enc.fill(y, 3.0)

    graph = dev.capture(encode)
    assert [node.kind for node in graph] == ["dispatch", "barrier", "copy", "fill"]
    first = graph[0]
    assert (first.name, first.label, first.op_kind) == ("inc_one", "layer/norm", ost.CapturedOpKind.RmsNorm)
    assert first.accesses is not None
    assert [(one.end - one.begin, one.write) for one in first.accesses] == [(8, True), (8, False)]
    lines = [node.place.line for node in graph if node.place]
    start = encode.__code__.co_firstlineno
    assert lines == [start + 2, start + 3, start + 4, start + 5]
    assert all(node.place and node.place.file == __file__ for node in graph)


def test_an_encoder_captures_the_end_of_its_list_and_commits_the_rest(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    enc = dev.command_encoder()
    enc.dispatch(kernels["bump"], x, threads=1)
    assert enc.take_capture() is None
    assert not enc.is_capturing()
    enc.start_capture()
    assert enc.is_capturing()
    enc.dispatch(kernels["bump"], x, threads=1)
    enc.memory_barrier()
    enc.dispatch(kernels["bump"], x, threads=1)
    graph = enc.take_capture()
    assert graph is not None
    assert len(graph) == 3
    assert not enc.is_capturing()
    with ost.counters.scope() as counts:
        enc.commit_and_wait()
    assert (counts.dispatches, counts.barriers) == (1, 0)
    assert x.numpy().tolist() == [1]
    graph.instantiate().replay().wait()
    assert x.numpy().tolist() == [3]


def test_capturing_twice_or_committing_meanwhile_is_an_error(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    enc = dev.command_encoder()
    enc.start_capture()
    enc.dispatch(kernels["bump"], x, threads=1)
    with pytest.raises(EncoderError, match="already capturing"):
        enc.start_capture()
    with pytest.raises(EncoderError, match=r"take_capture\(\) must come before"):
        enc.commit()
    assert len(enc.take_capture() or ()) == 1


def test_a_barrier_that_opens_a_capture_orders_nothing_and_is_left_out(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    enc = dev.command_encoder()
    enc.dispatch(kernels["bump"], x, threads=1)
    enc.start_capture()
    enc.memory_barrier()
    enc.dispatch(kernels["bump"], x, threads=1)
    assert [node.kind for node in enc.take_capture() or ()] == ["dispatch"]
    enc.commit_and_wait()


def test_an_exception_in_the_captured_function_ends_the_capture_and_comes_through(dev: ost.Device) -> None:
    class Oops(Exception):
        pass

    def encode(enc: ost.CommandEncoder) -> None:
        raise Oops

    with pytest.raises(Oops):
        dev.capture(encode)


def test_a_capturing_encoder_that_is_dropped_says_so(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    enc = dev.command_encoder()
    enc.start_capture()
    enc.dispatch(kernels["bump"], x, threads=1)
    with pytest.warns(ost.UncommittedWork, match="take_capture"):
        del enc


def test_a_graph_keeps_its_buffers_alive(dev: ost.Device, kernels: ost.Library) -> None:
    def capture(x: ost.Buffer) -> ost.Graph:
        return dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1))

    x = floats(dev, 41)
    allocation = weakref.ref(x._lease.allocation)
    graph = capture(x)
    x.free()
    del x
    gc.collect()
    assert allocation() is not None
    graph.instantiate().replay().wait()
    del graph
    gc.collect()
    dev.command_encoder().commit_and_wait()
    gc.collect()
    assert allocation() is None


def test_edges_join_only_what_must_wait(dev: ost.Device, kernels: ost.Library) -> None:
    x, y, z = floats(dev, 1), floats(dev, 0), floats(dev, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["inc_one"], x, y, threads=1)
        enc.dispatch(kernels["inc_one"], x, z, threads=1)
        enc.dispatch(kernels["inc_one"], y, x, threads=1)

    graph = dev.capture(encode).named(x=x, y=y)
    assert graph.edges.tolist() == [[0, 2], [1, 2]]
    assert [str(reason) for reason in graph.reasons(0, 2)] == ["RAW on y[0:4]", "WAR on x[0:4]"]
    assert [str(reason) for reason in graph.reasons(1, 2)] == ["WAR on x[0:4]"]
    assert graph.reasons(0, 1) == []


def test_a_dispatch_that_says_unknown_fences_everything(dev: ost.Device, kernels: ost.Library) -> None:
    x, y, z = floats(dev, 1), floats(dev, 0), floats(dev, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.dispatch(kernels["bump"], y, threads=1, writes=ost.UNKNOWN)
        enc.dispatch(kernels["bump"], z, threads=1)

    assert dev.capture(encode).edges.tolist() == [[0, 1], [1, 2]]


def test_names_must_be_new_used_and_whole(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = floats(dev, 1, 2, 3, 4), floats(dev, 0)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=4))
    with pytest.raises(ost.GraphError, match="does not use"):
        graph.named(y=y)
    with pytest.raises(ost.GraphError, match="outside the buffer named 'half'"):
        graph.named(half=x[:2])
    with pytest.raises(ost.GraphError, match="already the name of"):
        graph.named(x=x).named(x=x)
    with pytest.raises(ost.GraphError, match="overlap"):
        graph.named(x=x, same=x)
    with pytest.raises(ost.ArgumentError, match="replay has an argument named"):
        graph.named(label=x)
    with pytest.raises(ost.ArgumentError, match="identifier"):
        graph.named(**{"two words": x})


def test_a_graph_cannot_be_pickled_or_copied(dev: ost.Device, kernels: ost.Library) -> None:
    import copy
    import pickle

    x = floats(dev, 1)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1))
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ost.CopyError):
            attempt(graph)


def test_capture_wants_a_function(dev: ost.Device) -> None:
    with pytest.raises(ost.ArgumentError, match="a function that takes an encoder"):
        dev.capture("enc")  # type: ignore[arg-type]


def test_what_is_said_in_a_capture_stays_in_it(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    enc = dev.command_encoder()
    enc.dispatch(kernels["bump"], x, threads=1)
    enc.start_capture()
    assert enc.tracked_ranges == 0
    enc.set_op_kind(ost.CapturedOpKind.Sdpa)
    enc.take_capture()
    enc.dispatch(kernels["bump"], x, threads=1)
    assert [node.op_kind for node in enc._nodes] == [ost.CapturedOpKind.Other] * 2
    enc.commit_and_wait()


def test_instantiating_on_its_own_device_uses_its_own_memory(dev: ost.Device, kernels: ost.Library) -> None:
    x = floats(dev, 0)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=1))
    graph.instantiate(dev).replay()
    assert x.numpy().tolist() == [1]
    copy = graph.to(dev).named()
    copy.instantiate().replay().wait()
    assert x.numpy().tolist() == [1]  # `to` is the way to have memory of its own


def test_named_buffers_can_be_had_back(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x[1], threads=3)).named(row=x[1])
    assert graph.buffer("row").numpy().tolist() == [3, 4, 5]
    with pytest.raises(ost.GraphError, match="names: row"):
        graph.buffer("x")


def test_every_node_of_watched_work_has_an_origin(dev: ost.Device, kernels: ost.Library) -> None:
    """Also those that were recorded before anybody watched."""
    seen: list[ost.Graph] = []
    x, enc = dev.zeros(1, np.float32), dev.command_encoder()
    enc.dispatch(kernels["bump"], x, threads=1)
    hooks.watchers.append(lambda graph, values: seen.append(graph))
    try:
        enc.start_capture()
        enc.dispatch(kernels["bump"], x, threads=1)
        assert [node.origin for node in enc.take_capture() or ()] == [(0,)]
        enc.dispatch(kernels["bump"], x, threads=1)
        enc.commit_and_wait()
    finally:
        hooks.watchers.pop()
    assert [node.origin for graph in seen for node in graph] == [(0,), (1,)]
