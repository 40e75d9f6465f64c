"""Audits of graphs of any device: their structure, and what their kernels do in a replica on the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ostinato as ost
from audit_cases import KERNELS, N, audited, floats, only


@pytest.fixture(scope="module")
def lib(dev: ost.Device) -> ost.Library:
    return dev.library(KERNELS)


# --- barriers, by structure ------------------------------------------------------------------------------------------


def test_a_missing_barrier_is_named_with_the_pair_the_bytes_and_both_lines(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z = floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["inc"], y[16:32], z[16:32], threads=16)

    graph = dev.capture(encode, barriers="manual").named(y=y)
    finding = only(graph.audit(), "missing barrier")
    assert finding.is_error
    assert finding.nodes == (0, 1)
    assert [str(reason) for reason in finding.reasons] == ["RAW on y[64:128]"]
    first = encode.__code__.co_firstlineno
    assert [place and place.line for place in finding.places] == [first + 1, first + 2]
    assert "'out'" in finding.why
    assert "'in'" in finding.why
    assert f"test_audited_graphs.py:{first + 2}" in finding.advice
    assert not graph.audit().ok


def test_at_least_four_missing_barrier_bugs_shipped(dev: ost.Device, lib: ost.Library) -> None:
    """Four ways to forget one, in one list: read after write, write after read, write after write, copy after write."""
    a, b, c, d = (floats(dev) for _ in range(4))

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], a, b, threads=N)
        enc.dispatch(lib["inc"], b, c, threads=N)
        enc.memory_barrier()
        enc.dispatch(lib["inc"], a, b, threads=N)
        enc.dispatch(lib["clear"], a, threads=N)
        enc.memory_barrier()
        enc.dispatch(lib["clear"], c, threads=N)
        enc.fill(c, 3)
        enc.memory_barrier()
        enc.dispatch(lib["inc"], a, b, threads=N)
        enc.copy(b, d)

    audit = dev.capture(encode, barriers="manual").audit()
    missing = [finding for finding in audit.findings if finding.kind == "missing barrier"]
    assert [(finding.nodes, finding.reasons[0].kind) for finding in missing] == [
        ((0, 1), "RAW"),
        ((3, 4), "WAR"),
        ((6, 7), "WAW"),
        ((9, 10), "RAW"),
    ]
    # The lines that the findings ask for are the cure.
    cured = dev.capture(encode, barriers="auto")
    assert not [finding for finding in cured.audit().findings if finding.is_error]


def test_a_dispatch_of_unknown_accesses_conflicts_with_all_around_it(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z = floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["clear"], z, threads=N, writes=ost.UNKNOWN)
        enc.dispatch(lib["inc"], x, y, threads=N)

    audit = dev.capture(encode, barriers="manual").audit()
    assert [finding.nodes for finding in audit.errors] == [(0, 1), (1, 2)]
    assert "not known" in audit.errors[0].why


def test_redundant_barriers_are_notes(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z = floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.memory_barrier()  # 1: x is read again, which needs none
        enc.dispatch(lib["inc"], x, z, threads=N)
        enc.memory_barrier()  # 3: orders 0 before 4
        enc.dispatch(lib["clear"], y, threads=N)
        enc.memory_barrier()  # 5: the end of a list orders it before the next

    audit = dev.capture(encode, barriers="manual").audit()
    assert audit.ok
    assert [finding.nodes for finding in audit.findings if finding.kind == "redundant barrier"] == [(1,), (5,)]
    automatic = dev.capture(encode).audit()
    assert [finding.nodes for finding in automatic.findings] == [(1,), (3,), (5,)]
    assert not dev.capture(encode, barriers="serial").audit().findings


def test_inferred_barriers_come_with_their_reasons(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z = floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["inc"], x, z, threads=N)
        enc.dispatch(lib["inc"], y, x, threads=N)

    graph = dev.capture(encode).named(x=x, y=y)
    audit = graph.audit()
    assert not audit.findings
    (barrier,) = audit.inferred
    assert (barrier.node, barrier.after) == (2, (0, 1))
    assert {str(reason) for reason in barrier.reasons} == {"RAW on y[0:256]", "WAR on x[0:256]"}
    assert "inferred before" in str(audit)
    with ost.counters.scope() as counts:
        graph.instantiate().replay().wait()
    assert counts.auto_barriers == len(audit.inferred)


def test_the_start_of_a_submission_orders_like_a_barrier(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.memory_barrier()
        enc.dispatch(lib["inc"], y, x, threads=N)

    split = replace(dev.capture(encode, barriers="manual"), splits=(1,))
    assert split.audit().ok
    assert [finding.nodes for finding in split.audit().findings] == [(1,)]
    assert not replace(dev.capture(encode), splits=(2,)).audit().inferred


# --- what kernels really do ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cpu_beside")
def test_a_clean_list_is_clean_and_the_audit_says_what_it_looked_at(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z, big = floats(dev), floats(dev), floats(dev), floats(dev, 4 * N)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["scale"], y, big[5:6], z, threads=N)
        enc.dispatch(lib["reversed"], z, big[N : 2 * N], threads=N, group_size=32, shared={0: 128})
        enc.dispatch(lib["lookup"], np.arange(6, dtype=np.float32), x[3:4], np.uint32(2), threads=1)
        enc.copy(x, y)
        enc.fill(z, 1)

    audit = audited(dev, encode)
    assert not audit.findings, str(audit)
    assert audit.ok
    cover = audit.coverage
    assert (cover.dispatches, cover.alone, cover.checked, cover.unchecked) == (4, 4, 4, ())
    assert cover.orders == 6
    assert "4 dispatches checked; 4 run alone, 4 in the checked build" in str(audit)


@pytest.mark.usefixtures("cpu_beside")
def test_the_users_memory_device_and_counters_are_not_touched(own_dev: ost.Device) -> None:
    lib = own_dev.library(KERNELS)
    x, y = floats(own_dev), floats(own_dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["store"], x, 1 << 20, threads=N)
        enc.copy(x, y)

    graph = own_dev.capture(encode)
    with ost.counters.scope() as counts:
        audit = graph.audit(run=True)
    assert not audit.ok
    assert (counts.dispatches, counts.command_buffers, counts.syncs) == (0, 0, 0)
    assert x.numpy().tolist() == list(range(N))
    encoder = own_dev.command_encoder()
    encoder.dispatch(lib["inc"], x, y, threads=N)
    encoder.commit_and_wait()
    assert y.numpy()[0] == 1


@pytest.mark.parametrize(
    ("kernel", "by", "thread", "what"),
    [
        ("shift", 1, "thread 63", "reads byte 256 of argument 0 'in', which has 256 bytes: right past its end"),
        ("shift", -1, "thread 0", "reads byte -4 of argument 0 'in', which has 256 bytes: 4 bytes before its start"),
        ("shift", 1 << 20, "thread 0", "4194048 bytes past its end"),
        ("store", 1, "thread 63", "writes byte 256 of argument 0 'out', which has 256 bytes: right past its end"),
        ("store", -2, "thread 0", "writes byte -8 of argument 0 'out', which has 256 bytes: 8 bytes before its start"),
    ],
)
@pytest.mark.usefixtures("cpu_beside")
def test_out_of_bounds_names_thread_access_argument_and_distance(
    dev: ost.Device, lib: ost.Library, kernel: str, by: int, thread: str, what: str
) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib[kernel], *((x, y) if kernel == "shift" else (y,)), by, threads=N)
        enc.dispatch(lib["inc"], x, y, threads=N)

    audit = audited(dev, encode)
    finding = only(audit, "out of bounds")
    assert finding.why.startswith(thread)
    assert what in finding.why
    assert finding.names == (kernel,)
    assert audit.coverage.checked == 2  # the fault did not end the audit


@pytest.mark.usefixtures("cpu_beside")
def test_ranges_declared_by_hand_were_never_checked_against_the_bindings(dev: ost.Device, lib: ost.Library) -> None:
    x, y, count = floats(dev), floats(dev), dev.zeros(N, np.float32)

    def lying(enc: ost.CommandEncoder) -> None:  # zeros over zeros: only the patterns show it
        enc.dispatch(lib["two_outputs"], x, y, count, threads=N, writes=[y])

    finding = only(audited(dev, lying), "undeclared write")
    assert "argument 2 'count'" in finding.why
    assert "[0:256]" in finding.why
    assert "writes=" in finding.advice

    def short(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N, reads=[x], writes=[y[:60]])

    assert "[240:256]" in only(audited(dev, short), "undeclared write").why

    def honest(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["two_outputs"], x, y, count, threads=N, reads=[x], writes=[y, count])

    assert not audited(dev, honest).findings


@pytest.mark.usefixtures("cpu_beside")
def test_identical_outputs_five_times_were_deterministic_garbage(dev: ost.Device, lib: ost.Library) -> None:
    """The reader overtakes the slow writer every time: five equal results, all of them wrong."""
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["slow_then_store"], x, 20_000_000, threads=1)
        enc.dispatch(lib["halve"], x, y, threads=1)

    graph = dev.capture(encode, barriers="manual").named(y=y)
    finding = only(graph.audit(run=True), "race")
    assert finding.is_error
    assert finding.names == ("halve",)
    assert "left out[0] = 0.5 in y[0:4]; a serial run leaves 2.5" in finding.why
    assert not [one for one in dev.capture(encode).audit(run=True).findings if one.kind == "race"]


@pytest.mark.usefixtures("cpu_beside")
def test_parameters_need_values(dev: ost.Device, lib: ost.Library) -> None:
    y = floats(dev)
    graph = dev.capture(lambda enc: enc.dispatch(lib["store"], y, ost.param("by", np.int32), threads=N))
    assert graph.audit().ok
    with pytest.raises(ost.GraphError, match="by"):
        graph.audit(run=True)
    with pytest.raises(ost.GraphError, match="nonsense"):
        graph.audit(run=True, params={"by": 0, "nonsense": 1})
    assert graph.audit(run=True, params={"by": 0}).ok
    assert not graph.audit(run=True, params={"by": 1}).ok
    with pytest.raises(ost.ArgumentError, match="repeats"):
        graph.audit(repeats=0)
