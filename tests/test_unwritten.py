"""Device memory that nobody has written, in audits of graphs and of programs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest

import ostinato as ost
from ostinato import counters
from ostinato.audit.check import Options, Watcher
from ostinato.audit.findings import Finding

SOURCE = """
kernel void copy(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) { y[i] = x[i]; }

struct Padded { float number; uchar kind; };
kernel void members(device Padded *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    x[i].number = float(i);
    x[i].kind = 3;
}
kernel void objects(device const Padded *x [[buffer(0)]], device Padded *y [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
"""
ZEROS = np.zeros(64, np.float32)


def uninitialised(graph: ost.Graph) -> list[Finding]:
    audit = graph.audit(run=True, repeats=1)
    assert all(finding.kind == "uninitialised" for finding in audit.errors)
    return list(audit.errors)


def replay(dev: ost.Device, x: ost.Buffer) -> None:
    dev.capture(lambda enc: enc.fill(x, 1.0)).instantiate().replay().wait()


def commit(dev: ost.Device, x: ost.Buffer) -> None:
    enc = dev.command_encoder()
    enc.fill(x, 1.0)
    enc.commit_and_wait()


@pytest.mark.parametrize(
    ("prepare", "unwritten"),
    [
        (lambda dev, x: None, 64),
        (lambda dev, x: x.write(ZEROS), 0),
        (lambda dev, x: x[8:32].write(ZEROS[:24]), 40),
        (lambda dev, x: x[:32].as_numpy(), 32),
        (lambda dev, x: np.from_dlpack(x), 0),
        (lambda dev, x: x.accept(), 0),
        (replay, 0),  # what it wrote is not followed without a watcher
        (commit, 0),
    ],
)
def test_an_audit_finds_reads_of_memory_that_nobody_wrote(
    dev: ost.Device, prepare: Callable[[ost.Device, ost.Buffer], None], unwritten: int
) -> None:
    x, y, z = (dev.empty(64, np.float32) for _ in range(3))
    kernel = dev.library(SOURCE)["copy"]
    prepare(dev, x)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernel, x, y, threads=64)
        enc.dispatch(kernel, y, z, threads=64)  # a kernel has written it

    found = uninitialised(dev.capture(encode))
    assert [finding.count for finding in found] == [unwritten] * bool(unwritten)
    assert all(finding.argument.startswith("x[") for finding in found)


def test_a_copy_is_as_unwritten_as_its_source(dev: ost.Device) -> None:
    x, y, z = (dev.empty(64, np.float32) for _ in range(3))
    kernel = dev.library(SOURCE)["copy"]
    x[:16].write(ZEROS[:16])

    def encode(enc: ost.CommandEncoder) -> None:
        enc.copy(x, y)
        enc.dispatch(kernel, y, z, threads=64)

    (finding,) = uninitialised(dev.capture(encode))
    assert (finding.count, finding.argument) == (48, "x[16]")


@pytest.mark.parametrize("written", [64, 48])
def test_padding_of_a_written_object_is_not_memory_that_nobody_wrote(dev: ost.Device, written: int) -> None:
    x, y = (dev.empty(64 * 8, np.uint8) for _ in range(2))
    library = dev.library(SOURCE)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(library["members"], x, threads=written)
        enc.dispatch(library["objects"], x, y, threads=64)

    assert [finding.count for finding in uninitialised(dev.capture(encode))] == [64 - written] * (written < 64)


def test_zeros_arrays_pools_and_shared_memory(dev: ost.Device) -> None:
    kernel = dev.library(SOURCE)["copy"]
    pool = ost.BufferPool(dev)
    used = pool.take(64, np.float32)
    commit(dev, used)
    used.free()
    shared = np.zeros(64, np.float32)
    sources = (dev.zeros(64, np.float32), dev.array(ZEROS), pool.take(64, np.float32), dev.from_dlpack(shared))

    def encode(enc: ost.CommandEncoder) -> None:
        for x in sources:
            enc.dispatch(kernel, x, dev.empty(64, np.float32), threads=64)

    assert not uninitialised(dev.capture(encode))


def test_named_buffers_are_bound_by_replays(dev: ost.Device) -> None:
    x, y, kernel = dev.empty(64, np.float32), dev.empty(64, np.float32), dev.library(SOURCE)["copy"]
    graph = dev.capture(lambda enc: enc.dispatch(kernel, x, y, threads=64))
    assert uninitialised(graph)
    assert not uninitialised(graph.named(x=x))


def fill_cache(dev: ost.Device, rows: int, unseen: int = 0) -> tuple[ost.Kernel, ost.Buffer]:
    cache, row = dev.empty((4, 16), np.float32), dev.array(np.ones(16, np.float32))
    kernel = dev.library(SOURCE)["copy"]

    def fill(rows: range) -> None:
        for number in rows:
            enc = dev.command_encoder()
            enc.dispatch(kernel, row, cache[number], threads=16)
            enc.commit_and_wait()

    fill(range(rows))
    with counters.uncounted():
        fill(range(rows, rows + unseen))
    return kernel, cache


@pytest.mark.parametrize(("rows", "unseen", "unwritten"), [(3, 0, 16), (4, 0, 0), (3, 1, 0), (2, 1, 0), (0, 0, 64)])
def test_a_program_s_lists_are_followed_one_after_another(
    dev: ost.Device, rows: int, unseen: int, unwritten: int
) -> None:
    watcher = Watcher(Options(repeats=1), lambda: nullcontext(lambda what: None))
    with watcher.installed():
        kernel, cache = fill_cache(dev, rows, unseen)
        for _ in range(2):  # the second time the list is known, and runs unchecked
            enc = dev.command_encoder()
            enc.dispatch(kernel, cache, dev.empty(64, np.float32), threads=64)
            enc.commit_and_wait()
    assert watcher.crash is None
    errors = [finding for finding in watcher.findings if finding.is_error]
    # What was submitted unseen may have written anything.
    assert [(finding.kind, finding.count) for finding in errors] == [("uninitialised", unwritten)] * bool(unwritten)
