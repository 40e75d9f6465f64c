"""Audits: barriers by structure against brute force, and each thing that kernels do wrong made real."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from audit_cases import KERNELS, N, audited, floats, only
from ostinato.audit.barriers import missing_pairs, redundant_barriers
from ostinato.audit.differences import merged
from ostinato.audit.guards import Arena, Room
from ostinato.audit.races import opposite_order
from ostinato.audit.table import grouped
from ostinato.base.ranges import common, without
from ostinato.graph.file import load_graph
from ostinato.graph.graph import Graph
from ostinato.ir.command_list import CapturedNode, CommandList
from ostinato.ir.commands import Access, Barrier, Command, Dispatch, Ordering
from ostinato.ir.hazards import edges
from scripting import Script


@pytest.fixture(scope="module")
def lib(dev: ost.Device) -> ost.Library:
    return dev.library(KERNELS)


# --- barriers, by structure ------------------------------------------------------------------------------------------


def test_structure_needs_no_device_and_no_compiler(
    dev: ost.Device, lib: ost.Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, z = floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["inc"], y, z, threads=N)

    dev.capture(encode, barriers="manual").save(tmp_path / "list.graph", contents=True)
    loaded = load_graph(tmp_path / "list.graph")
    assert not loaded.on_device
    with monkeypatch.context() as patch:
        patch.setattr("ostinato.backends.cpu.driver.CpuBackend.__init__", None)
        assert only(loaded.audit(), "missing barrier").nodes == (0, 1)
    ran = loaded.audit(run=True)
    assert {finding.kind for finding in ran.errors} == {"missing barrier", "race"}
    assert not loaded.on_device


MEMORY = 4
Commands = list[list[Access] | str | None]

access = st.builds(
    lambda begin, nbytes, write: Access(begin, min(begin + nbytes, MEMORY), write),
    st.integers(0, MEMORY - 1),
    st.sampled_from((1, 1, 0, 2, 3)),
    st.sampled_from((True, True, False)),
)
command = st.one_of(st.just("barrier"), st.lists(access, max_size=3), st.none())
# Lists of many conflicts need every barrier and tell little, so most commands of the longer ones use one thing.
small = st.one_of(st.just("barrier"), *(st.just([Access(at, at + 1, True)]) for at in range(3)))
lists = st.one_of(st.lists(command, max_size=12), st.lists(st.one_of(small, small, small, command), min_size=8))


def conflicting(first: list[Access] | None, second: list[Access] | None) -> bool:
    if first is None or second is None:
        return True
    return any(
        {*range(one.begin, one.end)} & {*range(other.begin, other.end)} and (one.write or other.write)
        for one in first
        for other in second
    )


def unordered(commands: Commands, barriers: set[int]) -> set[tuple[int, int]]:
    """Every pair that conflicts with no barrier between, found by looking at all of them."""
    work = [index for index, command in enumerate(commands) if command != "barrier"]
    return {
        (a, b)
        for b in work
        for a in work
        if a < b and conflicting(commands[a], commands[b]) and not any(a < barrier < b for barrier in barriers)  # type: ignore[arg-type]
    }


@pytest.fixture(scope="module")
def some_dispatch(dev: ost.Device, lib: ost.Library) -> Dispatch:
    x = floats(dev)
    command = dev.capture(lambda enc: enc.dispatch(lib["clear"], x, threads=N)).commands[0]
    assert isinstance(command, Dispatch)
    return command


def graph_of(commands: Commands, template: Dispatch, ordering: Ordering) -> Graph:
    def command(one: list[Access] | str | None) -> Command:
        if isinstance(one, str):
            return Barrier()
        return replace(template, accesses=None if one is None else tuple(one))

    nodes = tuple(CapturedNode(command(one)) for one in commands)
    return Graph(CommandList(nodes, ordering), {}, {})


property_test = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(commands=lists)
@property_test
def test_no_pair_is_missed_and_none_is_made_up(some_dispatch: Dispatch, commands: Commands) -> None:
    barriers = {index for index, command in enumerate(commands) if command == "barrier"}
    truth = unordered(commands, barriers)
    found = missing_pairs(graph_of(commands, some_dispatch, Ordering.BARRIERS))
    assert set(found) <= truth
    before: dict[int, set[int]] = {}
    for a, b in sorted(found, key=lambda pair: pair[1]):
        before.setdefault(b, set()).update({a} | before.get(a, set()))
    assert all(a in before[b] for a, b in truth)


@given(commands=lists)
@property_test
def test_redundant_barriers_can_all_go_and_no_other(some_dispatch: Dispatch, commands: Commands) -> None:
    barriers = {index for index, command in enumerate(commands) if command == "barrier"}
    kept = barriers - set(redundant_barriers(graph_of(commands, some_dispatch, Ordering.BARRIERS)))
    truth = unordered(commands, barriers)
    assert unordered(commands, kept) == truth
    for barrier in kept:
        assert unordered(commands, kept - {barrier}) > truth


@given(commands=lists, inferred=st.booleans())
@property_test
def test_the_opposite_order_is_one_that_the_list_allows(
    some_dispatch: Dispatch, commands: Commands, inferred: bool
) -> None:
    graph = graph_of(commands, some_dispatch, Ordering.INFERRED if inferred else Ordering.BARRIERS)
    order = opposite_order(graph)
    assert sorted(order) == list(range(len(commands)))
    position = {node: at for at, node in enumerate(order)}
    for index, command in enumerate(commands):
        if command == "barrier":
            assert position[index] == index
            assert {*order[:index]} == {*range(index)}
    if inferred:
        known = [None if isinstance(command, str) else command for command in commands]
        assert all(position[a] < position[b] for a, b in edges(known))


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted).map(tuple), max_size=6)


@given(spans, spans)
def test_sets_of_addresses_are_sets(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    def members(listed: list[tuple[int, int]]) -> list[int]:
        return [address for begin, end in listed for address in range(begin, end)]

    one, other = merged(first), merged(second)
    for made, truth in (
        (one, {*members(first)}),
        (without(one, other), {*members(first)} - {*members(second)}),
        (common(one, other), {*members(first)} & {*members(second)}),
    ):
        assert members(made) == sorted(truth)


# --- what kernels really do ------------------------------------------------------------------------------------------


def test_an_unsigned_index_below_zero_ends_in_a_guard_too(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)
    finding = only(audited(dev, lambda enc: enc.dispatch(lib["before_zero"], x, y, threads=N)), "out of bounds")
    assert "thread 0 of group 0 reads byte 17179869180 of argument 0" in finding.why
    assert "unsigned" in finding.advice


def test_the_thread_of_a_kernel_with_barriers_is_known_too(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["reversed"], x, y, groups=(2, 2), group_size=32, shared={0: 128})

    assert "thread (63, 1) of group (1, 1) writes byte 256" in only(audited(dev, encode), "out of bounds").why


def test_reading_past_inline_bytes_is_out_of_bounds(dev: ost.Device, lib: ost.Library) -> None:
    y, table = floats(dev), np.arange(6, dtype=np.float32)
    audit = audited(dev, lambda enc: enc.dispatch(lib["lookup"], table, y, np.uint32(3), threads=1))
    assert "byte 28 of argument 0 'table', which has 24 bytes" in only(audit, "out of bounds").why


def test_a_neighbouring_view_is_out_of_bounds_and_an_undeclared_write(dev: ost.Device, lib: ost.Library) -> None:
    both = floats(dev, 2 * N)
    audit = audited(dev, lambda enc: enc.dispatch(lib["store"], both[:N], 1, threads=N))
    assert {finding.kind for finding in audit.errors} == {"out of bounds", "undeclared write"}
    assert "[256:260]" in only(audit, "undeclared write").why
    assert "no bound argument covers it" in only(audit, "undeclared write").why


def test_memory_used_in_larger_units_than_its_type_is_no_finding(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev, 7), floats(dev, 5)
    audit = audited(dev, lambda enc: enc.dispatch(lib["wide"], x, y, threads=1))
    assert not audit.findings, str(audit)
    assert audit.coverage.checked == 1


def test_different_things_about_one_dispatch_are_different_rows(dev: ost.Device, lib: ost.Library) -> None:
    x, y, a, b = (floats(dev) for _ in range(4))
    audit = audited(dev, lambda enc: enc.dispatch(lib["both_sides"], x, y, threads=N))
    assert [finding.kind for finding, _ in grouped(audit.findings)] == ["out of bounds"]  # it ends the run
    assert "times)" not in str(audit)
    audit = audited(dev, lambda enc: enc.dispatch(lib["inc"], x, y, threads=N, writes=[y, a, b]))
    assert [finding.kind for finding, _ in grouped(audit.findings)] == ["declared but not written"] * 2


def test_the_same_finding_about_the_same_line_is_one_row(dev: ost.Device, lib: ost.Library) -> None:
    y = floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        for by in (1, 2):
            enc.dispatch(lib["store"], y, by, threads=N)

    findings = [one for one in audited(dev, encode).findings if one.kind == "out of bounds"]
    assert len(findings) == 2
    assert [count for _, count in grouped(findings)] == [2]


def test_a_dispatch_that_declares_nothing_does_not_count_as_compared(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["inc"], x, y, threads=N)
        enc.dispatch(lib["clear"], x, threads=N, writes=ost.UNKNOWN)

    cover = audited(dev, encode).coverage
    assert (cover.alone, cover.checked) == (1, 2)
    assert cover.unchecked == ("accesses of clear: it does not declare its accesses",)


def test_a_write_through_a_const_argument_is_undeclared(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)
    finding = only(audited(dev, lambda enc: enc.dispatch(lib["cast_away"], x, y, threads=N)), "undeclared write")
    assert "argument 0 'in'" in finding.why
    assert "without const" in finding.advice


def test_reading_what_is_not_declared_is_found_by_what_comes_out(dev: ost.Device, lib: ost.Library) -> None:
    x, factor, y = floats(dev), dev.array(np.array([2], np.float32)), floats(dev)
    audit = audited(dev, lambda enc: enc.dispatch(lib["scale"], x, factor, y, threads=N, reads=[x], writes=[y]))
    assert "depends on 'factor'" in only(audit, "undeclared read").why


def test_declared_but_never_written_is_a_note(dev: ost.Device, lib: ost.Library) -> None:
    x, y, z = floats(dev), floats(dev), dev.zeros(N, np.float32)
    audit = audited(dev, lambda enc: enc.dispatch(lib["inc"], x, y, threads=N, writes=[y, z]))
    assert audit.ok
    assert only(audit, "declared but not written").kind == "declared but not written"
    same = audited(dev, lambda enc: enc.dispatch(lib["clear"], z, threads=N))
    assert not same.findings  # zeros over zeros are written all the same
    zeros = dev.zeros(N, np.float32)
    onto_itself = audited(dev, lambda enc: enc.dispatch(lib["scale"], zeros, zeros[:1], zeros, threads=N))
    assert {finding.kind for finding in onto_itself.findings} == {"race"}  # all read what the first thread writes


def test_a_race_shows_on_all_cores_as_well(dev: ost.Device, lib: ost.Library, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["slow_then_store"], x, 20_000_000, threads=1)
        enc.dispatch(lib["halve"], x, y, threads=1)

    monkeypatch.setattr("ostinato.audit.races.opposite_order", lambda graph: list(range(len(graph))))
    assert "on all cores" in only(audited(dev, encode, "manual"), "race").why


def test_a_race_hidden_by_a_declaration_is_found_in_an_inferred_list(dev: ost.Device, lib: ost.Library) -> None:
    x, y, count, z = floats(dev), floats(dev), floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["two_outputs"], x, y, count, threads=N, reads=[x], writes=[y])
        enc.memory_barrier()
        enc.dispatch(lib["inc"], count, z, threads=N)

    def without(enc: ost.CommandEncoder) -> None:
        enc.dispatch(lib["two_outputs"], x, y, count, threads=N, reads=[x], writes=[y])
        enc.dispatch(lib["inc"], count, z, threads=N)

    assert {finding.kind for finding in audited(dev, without).errors} == {"undeclared write", "race"}
    held = audited(dev, encode)
    assert {finding.kind for finding in held.findings} == {"undeclared write"}  # the barrier is not called redundant


@pytest.mark.parametrize("limit_s", ["x", None, -1, 0, float("nan"), True])
def test_a_limit_is_a_number_of_seconds(dev: ost.Device, lib: ost.Library, limit_s: object) -> None:
    y = floats(dev)
    graph = dev.capture(lambda enc: enc.dispatch(lib["clear"], y, threads=N))
    with pytest.raises(ost.ArgumentError, match="limit_s"):
        graph.audit(limit_s=limit_s)
    assert graph.audit(run=True, limit_s=float("inf")).ok


def test_atomics_and_divisions_by_zero_and_large_private_arrays(dev: ost.Device, lib: ost.Library) -> None:
    total, ints, zeros = dev.zeros(1, np.uint32), dev.zeros(4, np.int32), dev.zeros(4, np.int32)
    audit = audited(dev, lambda enc: enc.dispatch(lib["add_up"], total, threads=1000))
    assert not audit.findings
    audit = audited(dev, lambda enc: enc.dispatch(lib["divide"], zeros, ints, threads=1))
    assert "7 is divided by zero" in only(audit, "division by zero").why
    # 80 KB do not fit on a fiber's stack, but the kernel is right: it is said that it was not checked.
    out = floats(dev)
    audit = audited(dev, lambda enc: enc.dispatch(lib["own_stack"], out, 3, threads=1))
    assert not audit.findings, str(audit)
    assert "accesses of own_stack" in audit.coverage.unchecked[0]


def test_work_that_does_not_end_is_left_behind(dev: ost.Device, lib: ost.Library) -> None:
    steps, out = dev.array(np.array([3], np.uint32)), dev.zeros(1, np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:  # overwritten, what it does not declare keeps it busy for a second
        enc.dispatch(lib["wait_for"], steps, out, threads=1, reads=[], writes=[out])

    audit = audited(dev, encode, limit_s=0.05)
    assert "did not end within 0.05 s" in audit.coverage.unchecked[0]
    assert audited(dev, lambda enc: enc.dispatch(lib["wait_for"], steps, out, threads=1)).ok


FOREVER = """
import signal, time
dev = ost.open_device("cpu")
lib = dev.library('''
#include <metal_stdlib>
using namespace metal;
kernel void forever(device atomic_uint *go [[buffer(0)]]) {
    while (atomic_load_explicit(go, memory_order_relaxed) == 0) {}
}
kernel void set(device uint *x [[buffer(0)]], constant uint &value [[buffer(1)]]) { x[0] = value; }
''')
go, other = dev.zeros(1, np.uint32), dev.zeros(1, np.uint32)
def encode(enc):
    enc.dispatch(lib["set"], other, 1, threads=1)
    enc.dispatch(lib["forever"], go, threads=1)
"""


@pytest.mark.parametrize("barriers", ["auto", "manual", "serial"])
def test_a_kernel_that_never_ends_holds_up_neither_the_audit_nor_the_end_of_the_process(
    script: Script, barriers: str
) -> None:
    text = f"audit = dev.capture(encode, barriers={barriers!r}).audit(run=True, limit_s=0.5)\n"
    text += "print([(one.kind, one.names) for one in audit.findings], audit.coverage.unchecked)"
    result = script(FOREVER + text, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "[('took too long', ('forever',))]" in result.stdout
    assert "the rest of the list: it did not end within 0.5 s" in result.stdout


def test_an_interrupted_audit_ends_at_once(script: Script) -> None:
    interrupted = """
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
graph = dev.capture(encode)
signal.setitimer(signal.ITIMER_REAL, 3)
try:
    graph.audit(run=True)
except KeyboardInterrupt:
    print("interrupted")
    """
    result = script(FOREVER + interrupted, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "interrupted" in result.stdout


def test_a_checked_device_is_an_option_of_the_cpu(lib: ost.Library) -> None:
    with pytest.raises(ost.DeviceUnavailable, match="checked"):
        ost.open_device("cpu", checked=1)
    device = ost.open_device("cpu", checked=True, workers=1)
    x = device.zeros(4, np.float32)
    encoder = device.command_encoder()
    encoder.dispatch(device.library(KERNELS)["inc"], x, x, threads=4)
    encoder.commit_and_wait()
    assert x.numpy().tolist() == [1, 1, 1, 1]


def test_a_buffer_of_no_bytes_may_be_bound_but_not_used(dev: ost.Device, lib: ost.Library) -> None:
    nothing, y = dev.empty(0, np.float32), floats(dev)
    audit = audited(dev, lambda enc: enc.dispatch(lib["inc"], nothing, y, threads=1))
    assert "which has 0 bytes" in only(audit, "out of bounds").why


def test_names_of_programs_cannot_draw_on_the_terminal(dev: ost.Device, lib: ost.Library) -> None:
    x, y = floats(dev), floats(dev)

    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("[red]x[/red]\x1b[2J"):
            enc.dispatch(lib["inc"], x, y, threads=N)
            enc.dispatch(lib["inc"], y, x, threads=N)

    text = str(dev.capture(encode, barriers="manual").audit())
    assert "\x1b" not in text
    assert "[red]x[/red]\\x1b" in text.replace("\n", "")


# --- guards ----------------------------------------------------------------------------------------------------------


def test_blocks_are_aligned_as_asked_for() -> None:
    with Arena([Room(10, 4), Room(0), Room(5000, 16, 4)], at_end=True) as arena:
        for room, size in ((0, 10), (2, 5000)):
            arena.block(room).fill(1)
            assert arena.block(room).size == size
        assert arena.addresses[0] % 4 == 0
        assert arena.addresses[2] % 16 == 4


BRANCHES = """
kernel void either(device float *x [[buffer(0)]], device float *y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    threadgroup float t[4];
    t[1] = t[2] = 1;
    if (i < 32) {
        if (i < 16) t[0] = 1;
        else if (i < 20) t[0] = 2;
        else y[i] = t[0];
    }
}
kernel void one_after_the_other(device float *x [[buffer(0)]], device float *y [[buffer(1)]],
                                uint i [[thread_position_in_grid]]) {
    threadgroup float t[4];
    if (i < 16) t[0] = 1;
    if (i >= 16) y[i] = t[0];
    for (uint turn = 0; turn < 2; ++turn)
        if ((i + turn) % 2) t[1] = turn; else y[i] = turn ? t[1] : 0;
}
"""


@pytest.mark.parametrize(("name", "kinds"), [("either", {"race"}), ("one_after_the_other", {"relies on lockstep"})])
def test_lockstep_orders_what_lanes_run_together_and_not_exclusive_branches(
    dev: ost.Device, name: str, kinds: set[str]
) -> None:
    kernel, x, y = dev.library(BRANCHES)[name], dev.zeros(32, np.float32), dev.zeros(32, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(kernel, x, y, threads=32, group_size=32, writes=(y,)))
    found = [finding for finding in graph.audit(run=True, repeats=1).findings if finding.accesses]
    assert {finding.kind for finding in found if finding.kind != "uninitialised"} == kinds
