"""A graph with one of everything, and what of a graph must survive a file. For the tests of saved graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from ostinato.ir.commands import Dispatch

LENGTH = 64
SPECIAL = """
#include <metal_stdlib>
using namespace metal;
constant uint add [[function_constant(0)]];
constant float by [[function_constant(1)]];
constant bool negate [[function_constant(2)]];
kernel void special(device const float *in [[buffer(0)]], device float *out [[buffer(1)]],
                    uint id [[thread_position_in_grid]]) {
    const float value = (in[id] + float(add)) * by;
    out[id] = negate ? -value : value;
}
"""


def described(graph: ost.Graph) -> dict[str, Any]:
    """All of a graph that must survive, with memory by position and byte instead of address."""
    position = {number: at for at, number in enumerate(graph.memories)}

    def where(begin: int, end: int) -> set[tuple[int, int, int]]:
        return {
            (position[one.number], begin - one.address, end - begin)
            for one in graph.memories.values()
            if one.address <= begin and end <= one.address + one.nbytes
        }

    def binding(one: Any) -> tuple[Any, ...]:
        if hasattr(one, "allocation"):
            return (one.index, position[one.allocation], one.offset, one.nbytes, one.writes, one.address % 4096)
        return (one.index, one.data) if hasattr(one, "data") else (one.index, one.name, one.nbytes)

    def node(one: ost.CapturedNode) -> tuple[Any, ...]:
        command = one.command
        place = None if one.place is None else (Path(one.place.file).name, one.place.line)
        found: tuple[Any, ...] = (one.kind, one.label, place, one.origin, [binding(each) for each in one.buffers])
        found += (None if one.accesses is None else [(where(a.begin, a.end), a.write) for a in one.accesses],)
        if isinstance(command, Dispatch):
            kernel = command.kernel
            arguments = [str(argument) for argument in kernel.signature.arguments]
            found += (kernel.name, arguments, kernel.max_threads_per_group, kernel.threadgroup_bytes)
            found += (kernel.argument_bytes, kernel.argument_alignments, kernel.signature.line)
            assert kernel.origin is not None
            found += (kernel.origin.module.text_key, dict(kernel.origin.constants))
            found += ([binding(each) for each in command.bindings], command.kind, command.threads, command.groups)
            found += (command.group_size, command.shared, command.op_kind)
            found += (command.bytes_read, command.bytes_written, command.flops)
        return (*found, getattr(command, "pattern", None))

    return {
        "nodes": [node(one) for one in graph],
        "edges": graph.edges.tolist(),
        "ordering": graph.ordering,
        "memories": [one.nbytes for one in graph.memories.values()],
        "params": dict(graph.params),
        "names": [
            (one.name, position[one.memory], where(one.begin, one.end), one.dtype, one.shape)
            for one in graph.names.values()
        ],
        "outputs": None if graph.outputs is None else [where(*one) for one in graph.outputs],
        "dropped": [where(*one) for one in graph.dropped],
        "splits": graph.splits,
        "reports": [str(one) for one in graph.reports],
        "label": graph.label,
    }


def named_contents(graph: ost.Graph, name: str) -> bytes:
    return graph.buffer(name).numpy().tobytes()


def saved(graph: ost.Graph, folder: Path, contents: bool = True) -> Path:
    path = folder / "case.graph"
    graph.save(path, contents)
    return path


def same_after(graph: ost.Graph, loaded: ost.Graph, dev: ost.Device, **values: Any) -> None:
    """Replays of both leave the same bytes behind."""
    theirs = loaded.instantiate(dev)
    mine = graph.instantiate()
    for run in (mine, theirs):
        for _ in range(2):
            run.replay(**values).wait()
    for name in graph.names:
        assert named_contents(theirs.graph, name) == named_contents(graph, name), name


def four_rows(dev: ost.Device) -> list[ost.Buffer]:
    values = np.random.default_rng(7).standard_normal((4, LENGTH)).astype(np.float32)
    return [dev.array(row) for row in values]


def one_of_everything(dev: ost.Device, kernels: ost.Library, buffers: list[ost.Buffer]) -> ost.Graph:
    """One of everything."""
    a, b, c, d = buffers
    special = dev.library(SPECIAL, {0: 3, "by": 0.1, 2: True})["special"]

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("first"), enc.scope("of \x1b[31m two"):
            enc.dispatch(kernels["scale"], a, b, ost.param("factor", np.float32), threads=LENGTH, flops=LENGTH)
            enc.dispatch(kernels["scale"], b, c, 0.1, threads=(LENGTH,), op_kind=ost.CapturedOpKind.ElemMul)
        enc.dispatch(special, c, d, groups=2, group_size=32, bytes_read=256, bytes_written=256)
        enc.memory_barrier()
        enc.copy(a[:16], d[16:32])
        enc.fill(c[8:24], -0.0)
        enc.dispatch(kernels["reverse_group"], a, groups=1, group_size=LENGTH, shared={0: 256, 1: 250})
        enc.dispatch(kernels["inc_one"], b, c, threads=7, reads=[b], writes=[c[:7], d])
        enc.dispatch(kernels["bump"], a, threads=3, reads=ost.UNKNOWN)
        enc.dispatch(kernels["use_params"], d, np.array([5, 0x3FC00000], np.uint32), threads=8)

    return dev.capture(encode, "a token").named(a=a, b=b, c=c, d=d).with_outputs(c[2:4], d)
