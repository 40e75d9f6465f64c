"""The hazard engine against a byte-by-byte oracle."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.base.order import transitive_reduction
from ostinato.ir import ordering
from ostinato.ir.commands import Access, Barrier, Command, Dispatch, DispatchKind
from ostinato.ir.hazards import HazardTracker, conflicts, edges

MEMORY = 24


@st.composite
def access_lists(draw: st.DrawFn) -> list[list[Access] | None]:
    def access() -> Access:
        begin = draw(st.integers(0, MEMORY))
        return Access(begin, draw(st.integers(begin, MEMORY)), draw(st.booleans()))

    return [
        None if draw(st.integers(0, 9)) == 0 else [access() for _ in range(draw(st.integers(0, 3)))]
        for _ in range(draw(st.integers(0, 12)))
    ]


def must_be_ordered(commands: list[list[Access] | None]) -> set[tuple[int, int]]:
    """Every pair that must be ordered, found byte by byte and closed under transitivity."""

    def meet(first: list[Access] | None, second: list[Access] | None) -> bool:
        if first is None or second is None:
            return True
        for byte in range(MEMORY):
            one = [access.write for access in first if access.begin <= byte < access.end]
            other = [access.write for access in second if access.begin <= byte < access.end]
            if one and other and (any(one) or any(other)):
                return True
        return False

    pairs = {(a, b) for b in range(len(commands)) for a in range(b) if meet(commands[a], commands[b])}
    return closure(len(commands), pairs)


def closure(count: int, pairs: set[tuple[int, int]] | list[tuple[int, int]]) -> set[tuple[int, int]]:
    before: list[set[int]] = [set() for _ in range(count)]
    for a, b in sorted(pairs, key=lambda pair: pair[1]):
        before[b] |= before[a] | {a}
    return {(a, b) for b in range(count) for a in before[b]}


@given(access_lists())
@settings(max_examples=400, deadline=None)
def test_edges_order_exactly_what_must_be_ordered(commands: list[list[Access] | None]) -> None:
    assert closure(len(commands), edges(commands)) == must_be_ordered(commands)


@given(access_lists())
@settings(max_examples=200, deadline=None)
def test_no_edge_is_implied_through_one_other_predecessor(commands: list[list[Access] | None]) -> None:
    found = edges(commands)
    before = {b: {a for a, other in found if other == b} for b in range(len(commands))}
    assert not [(a, b) for a, b in found if any(a in before[c] for c in before[b] if c != a)]


@given(access_lists())
@settings(max_examples=200, deadline=None)
def test_the_reduction_keeps_the_order_with_the_fewest_edges(commands: list[list[Access] | None]) -> None:
    found = edges(commands)
    small = transitive_reduction(len(commands), found)
    full = closure(len(commands), found)
    assert closure(len(commands), small) == full
    for edge in small:
        assert closure(len(commands), [other for other in small if other != edge]) != full


def test_ranges_that_touch_do_not_conflict() -> None:
    assert edges([[Access(0, 8, True)], [Access(8, 16, True)], [Access(0, 8, False)], [Access(8, 16, False)]]) == [
        (0, 2),
        (1, 3),
    ]


def test_two_readers_are_not_ordered() -> None:
    assert edges([[Access(0, 8, True)], [Access(0, 8, False)], [Access(0, 8, False)]]) == [(0, 1), (0, 2)]


def test_a_partial_overwrite_splits_the_range() -> None:
    commands = [[Access(0, 12, True)], [Access(4, 8, True)], [Access(0, 4, False)], [Access(4, 12, False)]]
    assert edges(commands) == [(0, 1), (0, 2), (1, 3)]


def test_an_unknown_access_is_a_fence() -> None:
    assert edges([[Access(0, 4, True)], [Access(8, 12, True)], None, [Access(90, 91, False)]]) == [
        (0, 2),
        (1, 2),
        (2, 3),
    ]


def test_a_command_does_not_wait_for_itself() -> None:
    assert edges([[Access(0, 8, False), Access(4, 12, True)]]) == []


def test_conflicts_name_kind_and_bytes() -> None:
    write, read = [Access(0, 8, True)], [Access(4, 16, False)]
    assert [(c.kind, c.begin, c.end) for c in conflicts(0, write, 1, read)] == [("RAW", 4, 8)]
    assert [(c.kind, c.begin, c.end) for c in conflicts(0, read, 1, write)] == [("WAR", 4, 8)]
    assert [(c.kind, c.begin, c.end) for c in conflicts(0, write, 1, write)] == [("WAW", 0, 8)]


def test_tracked_ranges_are_counted_and_forgotten() -> None:
    tracker = HazardTracker()
    tracker.add(0, [Access(0, 8, True), Access(16, 24, False)])
    assert len(tracker) == 2
    tracker.reset()
    assert len(tracker) == 0


def test_many_commands_over_many_buffers_take_flat_time() -> None:
    """Not a timing assertion but a guard against quadratic work, which would take minutes."""
    tracker = HazardTracker()
    started = time.monotonic()
    for node in range(100_000):
        base = node * 7919 % 10_000 * 4096
        tracker.add(
            node,
            [
                Access(base, base + 4096, False),
                Access((base + 40_960) % 40_960_000, (base + 40_960) % 40_960_000 + 4096, True),
            ],
        )
    assert len(tracker) == 10_000
    assert time.monotonic() - started < 60


def dispatch_of(kernels: ost.Library, accesses: list[Access] | None) -> Command:
    if accesses is None:
        return Barrier()
    shape = (1, 1, 1)
    return Dispatch(
        kernels["bump"]._compiled, (), DispatchKind.Threads, shape, shape, shape, (), accesses=tuple(accesses)
    )


@given(commands=access_lists())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_compiled_engine_finds_the_same_edges(
    dev: ost.Device, kernels: ost.Library, commands: list[list[Access] | None]
) -> None:
    recorded = [dispatch_of(kernels, accesses) for accesses in commands]
    order = ordering.infer(recorded)
    assert sorted(map(tuple, order.edges.tolist())) == sorted(edges(commands))
    assert order.inferred == ordering.infer_plainly(recorded).inferred


def test_the_compiled_engine_takes_an_unknown_access_for_a_fence(dev: ost.Device, kernels: ost.Library) -> None:
    shape = (1, 1, 1)
    unknown = Dispatch(kernels["bump"]._compiled, (), DispatchKind.Threads, shape, shape, shape, (), accesses=None)
    commands = [dispatch_of(kernels, [Access(n, n + 1, True)]) for n in range(3)]
    order = ordering.infer((*commands, unknown, commands[0]))
    assert order.edges.tolist() == [[0, 3], [1, 3], [2, 3], [3, 4]]


def test_independent_dispatches_really_overlap(own_dev: ost.Device) -> None:
    """Two kernels that wait for each other end only if they run at the same time."""
    meet = own_dev.library(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void meet(device atomic_uint *mine, device const uint *other, device uint *ok) {\n"
        "  atomic_store_explicit(mine, 1u, memory_order_relaxed);\n"
        "  const device volatile uint *there = other;\n"
        "  for (uint k = 0; k < 2000000000u; ++k) if (*there) { ok[0] = 1; return; }\n}"
    )["meet"]
    flags, ok = own_dev.zeros(64, np.uint32), own_dev.zeros(64, np.uint32)
    encoder = own_dev.command_encoder()
    encoder.dispatch(meet, flags[0:1], flags[32:33], ok[0:1], threads=1, reads=[])
    encoder.dispatch(meet, flags[32:33], flags[0:1], ok[32:33], threads=1, reads=[])
    assert encoder.commit().wait(timeout=60)
    assert ok.numpy()[[0, 32]].tolist() == [1, 1]
