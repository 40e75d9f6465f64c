"""Graphs of the CPU backend: made ready once, replayed many times, driven below encoders and devices."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ostinato import msl
from ostinato.backends.cpu.driver import CpuBackend
from ostinato.backends.protocol import Executable, Memory, Outcome, Run
from ostinato.backends.records import pack
from ostinato.ir.command_list import CapturedNode, CommandList
from ostinato.ir.commands import (
    Barrier,
    Binding,
    BufferBinding,
    Command,
    CompiledKernel,
    Copy,
    Dispatch,
    DispatchKind,
    Fill,
    InlineBinding,
    Ordering,
    ParamBinding,
    Size3,
)
from ostinato.ir.params import Param
from ostinato.native import toolchain
from scripting import Script

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void bump(device uint *x [[buffer(0)]], uint id [[thread_position_in_grid]]) { x[id] += 1; }

kernel void sum(device const uint *in [[buffer(0)]], device uint *out [[buffer(1)]],
                uint id [[thread_position_in_grid]]) { out[id] = out[id] * 3u + in[id]; }

// The steps give other replays time to meddle.
kernel void stamp(device uint *out [[buffer(0)]], constant uint &value [[buffer(1)]], constant uint &at [[buffer(2)]],
                  constant uint &steps [[buffer(3)]]) {
    uint mixed = value;
    for (uint i = 0; i < steps; ++i) { mixed = mixed * 1664525u + 1013904223u; mixed ^= mixed >> 13; }
    out[at] = mixed == 0x12345u ? 0u : value;
}

kernel void add_vector(device float *x [[buffer(0)]], constant float4 &value [[buffer(1)]],
                       uint id [[thread_position_in_grid]]) { x[id] += value[id % 4]; }

// Long enough a group that several workers take part.
kernel void busy(device uint *x [[buffer(0)]], constant uint &steps [[buffer(1)]],
                 uint id [[thread_position_in_grid]]) {
    uint value = x[id];
    for (uint i = 0; i < steps; ++i) { value = value * 1664525u + 1013904223u; value ^= value >> 13; }
    x[id] = (x[id] + 1u) | (value == 0x12345u ? 1u << 31 : 0u);
}

kernel void poke(device uint *x [[buffer(0)]], constant ulong &where [[buffer(1)]], constant uint3 &who [[buffer(2)]],
                 uint3 at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    if (all(at == who)) x[where] = simd_sum(lane);
}

kernel void peek(device uint *x [[buffer(0)]], constant ulong &where [[buffer(1)]]) { x[0] = x[where]; }
kernel void divide(device int *x [[buffer(0)]], constant int &by [[buffer(1)]]) { x[0] = x[0] / by; }
"""

Open = Callable[[int], CpuBackend]


@pytest.fixture
def open_backend(private_environment: None) -> Iterator[Open]:
    """Opens backends with so many workers, which are closed at the end."""
    opened: list[CpuBackend] = []

    def open_one(workers: int) -> CpuBackend:
        opened.append(CpuBackend(workers=workers))
        return opened[-1]

    yield open_one
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(open_backend: Open) -> CpuBackend:
    return open_backend(2)


@pytest.fixture(scope="session")
def code(private_environment: None) -> dict[str, CompiledKernel]:
    """The kernels above, on fibers where threads meet, so that faults name the thread.

    Code belongs to the process, not to the backend that compiled it.
    """
    backend = CpuBackend(workers=1)
    with mock.patch.object(toolchain, "find_clang", return_value=None):
        kernels = dict(backend.compile(msl.parse(SOURCE), {}))
    backend.close()
    return kernels


class Block:
    """Memory of a backend as an array, and ranges of it as bindings."""

    def __init__(self, backend: CpuBackend, count: int, dtype: type = np.uint32) -> None:
        self.memory: Memory = backend.allocate(count * np.dtype(dtype).itemsize)
        raw = (ctypes.c_uint8 * self.memory.nbytes).from_address(self.memory.address)
        self.array: np.ndarray = np.frombuffer(memoryview(raw), np.dtype(dtype))
        self.array[:] = 0

    def bind(self, index: int, start: int = 0, count: int | None = None, writes: bool = True) -> BufferBinding:
        size = self.array.itemsize
        nbytes = (len(self.array) - start if count is None else count) * size
        return BufferBinding(index, 1, self.memory.address + start * size, start * size, nbytes, writes)


def size_of(extent: Sequence[int]) -> Size3:
    x, y, z = (*extent, 1, 1)[:3]
    return x, y, z


def dispatch(
    kernel: CompiledKernel, *bindings: Binding, threads: Sequence[int] = (1,), group: Sequence[int] = (1,)
) -> Dispatch:
    grid, size = size_of(threads), size_of(group)
    groups = size_of([-(-n // of) for n, of in zip(grid, size, strict=True)])
    accesses = tuple(one.access(one.writes) for one in bindings if isinstance(one, BufferBinding))
    return Dispatch(kernel, bindings, DispatchKind.Threads, grid, groups, size, (), accesses=accesses)


def inline(index: int, value: np.generic | int) -> InlineBinding:
    return InlineBinding(index, np.asarray(value, np.uint32 if isinstance(value, int) else None).tobytes())


def instantiate(
    backend: CpuBackend, commands: Sequence[Command], ordering: Ordering = Ordering.INFERRED, **sizes: int
) -> Executable:
    """With the sizes of its parameters, which stand in the block of values in this order, 16 bytes apart."""
    listed = replace(
        CommandList.of(commands, ordering, backend.lower),
        params={name: Param(name, np.dtype(np.uint8), (nbytes,)) for name, nbytes in sizes.items()},
    )
    return backend.instantiate(listed)


def start(backend: CpuBackend, graph: Executable, values: bytes = b"", sample: bool = False) -> Run:
    started: list[Run] = []
    backend.replay(graph, values, sample, started)
    (submission,) = started
    return submission


def finish(backend: CpuBackend, *submissions: Run) -> None:
    for submission in submissions:
        assert submission.wait(60 * 10**9)
        assert submission.status().outcome is Outcome.DONE
        submission.release()


def replay(backend: CpuBackend, graph: Executable, values: bytes = b"", times: int = 1) -> None:
    for _ in range(times):
        finish(backend, start(backend, graph, values))


# --- what a replay does --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20])
def test_addresses_change_in_a_graph_that_rests_and_in_a_copy_of_one_that_runs(
    backend: CpuBackend, code: dict[str, CompiledKernel], count: int
) -> None:
    blocks = [Block(backend, 1) for _ in range(5)]
    bumps = [dispatch(code["bump"], blocks[0].bind(0)) for _ in range(count)]
    slow = dispatch(code["busy"], Block(backend, 1).bind(0), inline(1, 30_000_000))
    graph = backend.instantiate_movable(CommandList.of([slow, *bumps], Ordering.SERIAL, backend.lower))
    places = np.arange(1, count + 1), np.zeros(count, np.int64)

    def to(block: Block) -> list[int] | np.ndarray:
        given = [block.memory.address] * count
        return given if count == 1 else np.array(given, np.uint64)

    runs, native = [], list(graph.pointer)
    finish(backend, start(backend, graph))
    changed = backend.moved(graph, *places, to(blocks[1]))
    assert changed is not None
    assert changed.pointer == native
    runs.append(start(backend, changed))
    copied = backend.moved(changed, *places, to(blocks[2]))  # the replay before it has not ended
    assert copied is not None
    assert copied.pointer != native
    runs.append(start(backend, copied))
    finish(backend, *runs)
    for executable, block in ((copied, blocks[3]), (changed, blocks[4])):
        again = backend.moved(executable, *places, to(block))
        assert again is executable
        replay(backend, again)
    assert [int(block.array[0]) for block in blocks] == [count] * 5


def test_changing_a_few_addresses_lets_no_other_thread_in(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block, turns, ends = Block(backend, 1), [0], threading.Event()
    bump = dispatch(code["bump"], block.bind(0))
    graph = backend.instantiate_movable(CommandList.of([bump], Ordering.SERIAL, backend.lower))
    places = np.zeros(1, np.int64), np.zeros(1, np.int64)

    def take_turns() -> None:
        while not ends.is_set():
            turns[0] += 1
            time.sleep(0)  # gives the interpreter away, and waits for it

    other = threading.Thread(target=take_turns)
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        other.start()
        for _ in range(200):
            time.sleep(0)
            seen = turns[0]
            assert backend.moved(graph, *places, [block.memory.address]) is graph
            assert turns[0] == seen
    finally:
        ends.set()
        sys.setswitchinterval(before)
        other.join()


def test_a_replay_does_what_a_submission_does(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    def run(once: Callable[[list[Command]], None]) -> list[int]:
        block = Block(backend, 16)
        once(
            [
                dispatch(code["bump"], block.bind(0, 0, 8), threads=(8,), group=(3,)),
                Copy(block.bind(0, 0, 4, writes=False), block.bind(0, 8, 4)),
                Barrier(),
                dispatch(code["sum"], block.bind(0, 8, 4, writes=False), block.bind(1, 0, 4), threads=(4,)),
                Fill(block.bind(0, 12, 4), (7).to_bytes(4, "little")),
            ]
        )
        return [int(value) for value in block.array]

    def submitted(commands: list[Command]) -> None:
        for _ in range(5):
            started: list[Run] = []
            backend.submit(CommandList.of(commands, Ordering.INFERRED, backend.lower), started)
            finish(backend, *started)

    def replayed(commands: list[Command]) -> None:
        replay(backend, instantiate(backend, commands), times=5)

    assert run(replayed) == run(submitted)


def test_lists_of_any_length_follow_each_other(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    """The memory of a list is used again for the next: nothing of the one before stays in it, and longer ones fit."""
    target, other = Block(backend, 4), Block(backend, 4)
    bump = dispatch(code["bump"], target.bind(0), threads=(4,))
    pair: list[Command] = [bump, Fill(other.bind(0), b"\7\0\0\0", None)]
    records = {command: pack(command) for command in pair}
    expected = 0
    for count in (1, 300, 2, 40_000, 3, 0, 300):  # the longest takes more memory than is kept
        commands = [pair[at % 2] for at in range(count)]
        started: list[Run] = []
        backend.submit(CommandList.of(commands, Ordering.INFERRED, records.get), started)
        finish(backend, *started)
        expected += commands.count(bump)
        assert target.array.tolist() == [expected] * 4
    assert other.array.tolist() == [7] * 4


@pytest.mark.parametrize("ordering", [Ordering.SERIAL, Ordering.BARRIERS, Ordering.INFERRED])
def test_every_ordering_can_be_replayed(
    backend: CpuBackend, code: dict[str, CompiledKernel], ordering: Ordering
) -> None:
    block = Block(backend, 4)
    bump = dispatch(code["bump"], block.bind(0), threads=(4,))
    graph = instantiate(backend, [bump, Barrier(), bump, Barrier(), Barrier(), bump], ordering)
    replay(backend, graph, times=10)
    assert block.array.tolist() == [30] * 4


def test_an_empty_graph_can_be_replayed(backend: CpuBackend) -> None:
    graph = instantiate(backend, [])
    submission = start(backend, graph, sample=True)
    assert submission.wait(10**10)
    samples = submission.samples()
    assert samples is not None
    assert samples.shape == (0, 2)
    finish(backend, submission)
    replay(backend, graph, times=3)


def test_instantiating_runs_nothing_and_says_what_was_inferred(
    backend: CpuBackend, code: dict[str, CompiledKernel]
) -> None:
    block = Block(backend, 4)
    commands = [dispatch(code["bump"], block.bind(0, n // 2, 1)) for n in range(8)]
    listed = CommandList.of(commands, Ordering.INFERRED, backend.lower)
    backend.instantiate(listed)
    assert listed.order.inferred == (4, 4, 4)
    assert block.array.tolist() == [0] * 4


# --- parameters ----------------------------------------------------------------------------------------------------


def test_queued_replays_each_see_their_own_values(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block = Block(backend, 50)
    params = (ParamBinding(1, "value", 4), ParamBinding(2, "at", 4))
    graph = instantiate(backend, [dispatch(code["stamp"], block.bind(0), *params, inline(3, 200_000))], at=4, value=4)
    values = [np.array([n, 0, 0, 0, 1000 + n * n], np.uint32).tobytes() for n in range(50)]
    submissions = [start(backend, graph, block_of_values) for block_of_values in values]
    finish(backend, *submissions)
    assert block.array.tolist() == [1000 + n * n for n in range(50)]


def test_one_value_reaches_every_dispatch_that_uses_it(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block = Block(backend, 64)
    graph = instantiate(
        backend,
        [
            dispatch(code["stamp"], block.bind(0, n, 1), ParamBinding(1, "value", 4), inline(2, 0), inline(3, 0))
            for n in range(64)
        ],
        value=4,
    )
    for value in (5, 6, 7):
        replay(backend, graph, np.uint32(value).tobytes())
        assert block.array.tolist() == [value] * 64


def test_a_value_is_aligned_for_its_type_wherever_it_stands_in_the_block(
    backend: CpuBackend, code: dict[str, CompiledKernel]
) -> None:
    block = Block(backend, 8, np.float32)
    graph = instantiate(
        backend, [dispatch(code["add_vector"], block.bind(0), ParamBinding(1, "v", 16), threads=(8,))], odd=3, v=16
    )
    replay(backend, graph, b"abc".ljust(16) + np.array([1, 2, 3, 4], np.float32).tobytes(), times=2)
    assert block.array.tolist() == [2, 4, 6, 8] * 2


def test_uses_of_parameters_are_found_with_their_place_in_the_block(code: dict[str, CompiledKernel]) -> None:
    binding = BufferBinding(0, 1, 4096, 0, 4, True)
    command = dispatch(code["stamp"], binding, ParamBinding(1, "a", 4), inline(2, 0), ParamBinding(3, "b", 8))
    params = {name: Param(name, np.dtype(np.uint32), (n,)) for name, n in (("b", 2), ("unused", 5), ("a", 1))}
    listed = CommandList((CapturedNode(Barrier()), CapturedNode(command)), Ordering.SERIAL, params)
    assert listed.param_uses == ((1, 1, 48, 4), (1, 3, 0, 8))
    assert listed.value_bytes == 52


def test_too_short_a_block_of_values_is_refused(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block = Block(backend, 1)
    command = dispatch(code["stamp"], block.bind(0), ParamBinding(1, "v", 4), inline(2, 0), inline(3, 0))
    graph = instantiate(backend, [command], other=8, v=4)
    started: list[Run] = []
    with pytest.raises(ValueError, match="takes 20 bytes"):
        backend.replay(graph, bytes(19), False, started)
    assert started == []


def test_a_graph_of_another_device_is_refused(open_backend: Open) -> None:
    graph = instantiate(open_backend(1), [])
    with pytest.raises(ValueError, match="made for"):
        open_backend(1).replay(graph, b"", False, [])


@pytest.mark.parametrize(
    ("params", "use", "good"),
    [
        ([(0, 4)], (0, 1, 0), True),
        ([(0, 4)], (2, 1, 0), False),  # no such node
        ([(0, 4)], (1, 0, 0), False),  # a barrier has no arguments
        ([(0, 4)], (0, 4, 0), False),  # no such argument
        ([(0, 4)], (0, 0, 0), False),  # a buffer, no bytes
        ([(0, 4)], (0, 1, 1), False),  # no such parameter
        ([(5, 4)], (0, 1, 0), False),  # beyond the values
        ([(2**32 - 1, 2**32 - 1)], (0, 1, 0), False),
    ],
)
def test_uses_of_parameters_that_make_no_sense_are_refused(
    backend: CpuBackend,
    code: dict[str, CompiledKernel],
    params: list[tuple[int, int]],
    use: tuple[int, int, int],
    good: bool,
) -> None:
    block = Block(backend, 1)
    command = dispatch(code["stamp"], block.bind(0), ParamBinding(1, "v", 4), inline(2, 0), inline(3, 0))
    records = pack(command) + pack(Barrier())
    table, uses = np.array(params, np.uint32), np.array([use], np.uint32)
    call = (backend._device, records, len(records), 2, 0, None, 0, table.ctypes.data, 1, uses.ctypes.data, 1, 8)
    made = backend._runtime.ost_graph_make(*call)
    assert bool(made) is good
    if made:
        backend._runtime.ost_graph_release(made)


# --- order, over and over ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_a_wide_graph_is_right_every_time(open_backend: Open, code: dict[str, CompiledKernel], workers: int) -> None:
    """Many roots, one node that waits for all, and many that wait for it."""
    backend = open_backend(workers)
    width = 300
    block = Block(backend, 2 * width)
    half = width // 2
    commands: list[Command] = [dispatch(code["bump"], block.bind(0, n, 1)) for n in range(width)]
    commands.append(
        dispatch(
            code["sum"],
            block.bind(0, 0, width, writes=False),
            block.bind(1, width, width),
            threads=(width,),
            group=(16,),
        )
    )
    commands += [dispatch(code["bump"], block.bind(0, width + n, 1)) for n in range(half)]
    graph = instantiate(backend, commands)
    times = 300
    submissions = [start(backend, graph) for _ in range(times)]
    finish(backend, *submissions)
    assert block.array[:width].tolist() == [times] * width
    first, second = 0, 0
    for n in range(1, times + 1):
        first, second = (first * 3 + n + 1) % 2**32, (second * 3 + n) % 2**32
    assert block.array[width:].tolist() == [first] * half + [second] * half


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_shared_nodes_run_each_group_once_in_every_replay(
    open_backend: Open, code: dict[str, CompiledKernel], workers: int
) -> None:
    backend = open_backend(workers)
    block = Block(backend, 4 * 64)
    commands: list[Command] = [
        dispatch(code["busy"], block.bind(0, n % 4 * 64, 64), inline(1, 1000), threads=(64,), group=(1,))
        for n in range(6)
    ]
    graph = instantiate(backend, commands)
    times = 200
    for batch in range(4):  # in flight together, and one after another
        submissions = [start(backend, graph) for _ in range(times // 5)]
        finish(backend, *submissions)
        replay(backend, graph, times=times // 20)
        assert block.array.max() == 2 * (batch + 1) * times // 4
    assert block.array.tolist() == [2 * times] * 128 + [times] * 128


@pytest.mark.parametrize("workers", [2, 8])
def test_two_graphs_and_submissions_take_turns(
    open_backend: Open, code: dict[str, CompiledKernel], workers: int
) -> None:
    backend = open_backend(workers)
    block = Block(backend, 256)
    busy = [dispatch(code["busy"], block.bind(0), inline(1, 200), threads=(256,), group=(4,))]
    graphs = [instantiate(backend, busy), instantiate(backend, [*busy, Barrier(), *busy])]
    submissions: list[Run] = []
    started: list[Run] = []
    for n in range(120):
        if n % 3 < 2:
            submissions.append(start(backend, graphs[n % 3]))
        else:
            backend.submit(CommandList.of(busy[:1], Ordering.SERIAL, backend.lower), started)
            submissions.append(started.pop())
    finish(backend, *submissions)
    assert block.array.tolist() == [160] * 256


PROGRAMS = st.lists(
    st.tuples(
        st.sampled_from(["bump", "sum", "busy", "copy", "fill", "barrier", "stamp"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=24,
)


@pytest.fixture(scope="module")
def crowd(private_environment: None) -> Iterator[CpuBackend]:
    """More workers than there are cores, which is when they get into each other's way."""
    backend = CpuBackend(workers=5)
    yield backend
    backend.close()


@given(program=PROGRAMS, times=st.integers(1, 12))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_graph_replayed_gives_what_serial_submissions_give(
    crowd: CpuBackend, code: dict[str, CompiledKernel], program: list[tuple[str, int, int]], times: int
) -> None:
    tile = 32

    def commands_on(block: Block, value: Binding) -> Iterator[Command]:
        for what, source, target in program:
            read, write = block.bind(0, source * tile, tile, writes=False), block.bind(0, target * tile, tile)
            if what == "barrier":
                yield Barrier()
            elif what == "bump":
                yield dispatch(code["bump"], write, threads=(tile,), group=(5,))
            elif what == "busy":
                yield dispatch(code["busy"], write, inline(1, 300), threads=(tile,), group=(1,))
            elif what == "fill":
                yield Fill(write, source.to_bytes(4, "little"))
            elif what == "stamp":
                yield dispatch(code["stamp"], write, value, inline(2, source), inline(3, 0))
            elif source != target and what == "copy":
                yield Copy(read, write)
            elif source != target:
                yield dispatch(code["sum"], read, block.bind(1, target * tile, tile), threads=(tile,), group=(8,))

    serial, replayed = Block(crowd, 8 * tile), Block(crowd, 8 * tile)
    for n in range(times):
        started: list[Run] = []
        crowd.submit(CommandList.of(commands_on(serial, inline(1, n)), Ordering.SERIAL, crowd.lower), started)
        finish(crowd, *started)
    graph = instantiate(crowd, list(commands_on(replayed, ParamBinding(1, "n", 4))), n=4)
    finish(crowd, *[start(crowd, graph, np.uint32(n).tobytes()) for n in range(times)])
    np.testing.assert_array_equal(replayed.array, serial.array)


# --- samples -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", [Ordering.SERIAL, Ordering.INFERRED])
@pytest.mark.parametrize("native", [True, False], ids=["replayed", "submitted"])
def test_samples_tell_when_every_command_ran(
    backend: CpuBackend, code: dict[str, CompiledKernel], ordering: Ordering, native: bool
) -> None:
    block = Block(backend, 8 * 64)
    commands: list[Command] = []
    for n in range(24):
        commands.append(
            dispatch(code["busy"], block.bind(0, n % 8 * 64, 64), inline(1, 500), threads=(64,), group=(2,))
        )
        if n % 10 == 9:
            commands += [Barrier(), Fill(block.bind(0, 0, 64), b"\1"), Copy(block.bind(0, 0, 8), block.bind(1, 8, 8))]
    listed = CommandList.of(commands, ordering, backend.lower)
    pairs = listed.order.edges
    assert pairs.shape[1] == 2
    graph = instantiate(backend, commands, ordering)
    before = 0
    for _ in range(20):
        started: list[Run] = []
        if native:
            backend.replay(graph, b"", True, started)
        else:
            backend.submit(listed, started, sample=True)
        (submission,) = started
        assert submission.wait(10**10)
        samples = submission.samples()
        times = submission.times()
        finish(backend, submission)
        assert samples is not None
        assert times is not None
        assert samples.shape == (len(commands), 2)
        starts, ends = samples[:, 0], samples[:, 1]
        assert (starts <= ends).all()
        assert before < times[0] <= starts.min()
        assert ends.max() <= times[1] <= time.monotonic_ns()
        assert (ends[pairs[:, 0]] <= starts[pairs[:, 1]]).all()
        before = times[1]


def test_without_sampling_there_are_no_samples(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block = Block(backend, 1)
    graph = instantiate(backend, [dispatch(code["bump"], block.bind(0))])
    for sample in (True, False, True):
        submission = start(backend, graph, sample=sample)
        assert submission.wait(10**10)
        assert (submission.samples() is not None) is sample
        finish(backend, submission)


# --- the life of a graph -------------------------------------------------------------------------------------------


def test_a_graph_may_be_dropped_while_it_runs(backend: CpuBackend, code: dict[str, CompiledKernel]) -> None:
    block = Block(backend, 64)
    for _ in range(20):
        commands = [dispatch(code["busy"], block.bind(0), inline(1, 2000), threads=(64,))] * 3
        graph = instantiate(backend, commands)
        submissions = [start(backend, graph, sample=n % 2 == 0) for n in range(5)]
        del graph
        gc.collect()
        finish(backend, *submissions)
    assert block.array.tolist() == [300] * 64


def test_a_graph_may_outlive_its_backend(code: dict[str, CompiledKernel]) -> None:
    backend = CpuBackend(workers=2)
    block = Block(backend, 64)
    graph = instantiate(backend, [dispatch(code["busy"], block.bind(0), inline(1, 2000), threads=(64,))])
    submissions = [start(backend, graph) for _ in range(5)]
    backend.close()
    assert block.array.tolist() == [5] * 64
    finish(backend, *submissions)
    with pytest.raises(ValueError, match="made for"):
        backend.replay(graph, b"", False, [])


def test_a_process_may_end_with_replays_in_flight(script: Script) -> None:
    result = script(
        """
        from ostinato.ir.command_list import CommandList
        from ostinato.ir.commands import Ordering
        device = ost.open_device("cpu", workers=2)
        kernel = device.library(KERNELS)["spin"]
        encoder = device.command_encoder()
        encoder.dispatch(kernel, device.zeros(1, np.uint32), 1_000_000, threads=1)
        backend = device._queue.backend
        graph = backend.instantiate(CommandList(tuple(encoder._nodes), Ordering.SERIAL))
        encoder.commit_and_wait()
        started = []
        for _ in range(20):
            backend.replay(graph, b"", True, started)
        print(len(started))
        """
    )
    assert (result.stdout, result.stderr, result.returncode) == ("20\n", "", 0)


# --- faults --------------------------------------------------------------------------------------------------------

NOWHERE = 4 * 16
SAYS_WHAT_WAS_ATTEMPTED = sys.platform == "linux"


def wild_index(block: Block) -> np.uint64:
    """The index, from a block of uint32, at which no memory is: on the first page of all."""
    return np.uint64((NOWHERE - block.memory.address) % 2**64 // 4)


def test_a_fault_in_a_replay_names_node_thread_and_access(open_backend: Open, code: dict[str, CompiledKernel]) -> None:
    backend = open_backend(2)
    block = Block(backend, 64)
    fine = dispatch(code["bump"], block.bind(0, 1, 1))
    who = InlineBinding(2, np.array([33, 5, 2, 0], np.uint32).tobytes())
    poke = dispatch(code["poke"], block.bind(0), ParamBinding(1, "where", 8), who, threads=(40, 7, 3), group=(16, 2, 2))
    graph = instantiate(backend, [fine, poke, fine], where=8)
    replay(backend, graph, np.uint64(0).tobytes(), times=3)
    assert block.array[1] == 6

    bad, behind = (start(backend, graph, wild_index(block).tobytes(), sample=True) for _ in range(2))
    assert bad.wait(10**10)
    assert not behind.wait(10**7), "it is held back until somebody has looked at the fault"
    backend.resume([behind])
    assert behind.wait(10**10)
    status = bad.status()
    assert (status.outcome, status.node, status.signal) == (Outcome.FAULTED, 1, int(signal.SIGSEGV))
    assert (status.thread, status.access) == ((33, 5, 2), "write" if SAYS_WHAT_WAS_ATTEMPTED else "")
    assert status.address == NOWHERE
    assert behind.status().outcome is Outcome.NOT_RUN
    samples = behind.samples()
    assert samples is not None
    assert not samples.any()

    after = start(backend, graph, np.uint64(0).tobytes())
    assert after.wait(10**10)
    assert after.status().outcome is Outcome.DONE
    assert block.array[1] == 9  # two for each good replay, one for the dispatch before the fault
    for submission in (bad, behind, after):
        submission.release()


@pytest.mark.parametrize(
    ("kernel", "number", "access"), [("peek", signal.SIGSEGV, "read"), ("divide", signal.SIGFPE, "")]
)
def test_a_fault_of_a_plain_kernel_has_no_thread(
    open_backend: Open,
    code: dict[str, CompiledKernel],
    kernel: str,
    number: signal.Signals,
    access: str,
) -> None:
    backend = open_backend(1)
    block = Block(backend, 4)
    fibers = dispatch(
        code["poke"], block.bind(0), inline(1, np.uint64(0)), InlineBinding(2, bytes(16)), threads=(8,), group=(8,)
    )
    value = wild_index(block) if kernel == "peek" else np.int32(0)
    graph = instantiate(backend, [fibers, dispatch(code[kernel], block.bind(0), inline(1, value))])
    submission = start(backend, graph)
    assert submission.wait(10**10)
    status = submission.status()
    submission.release()
    assert (status.outcome, status.node, status.signal) == (Outcome.FAULTED, 1, int(number))
    assert (status.thread, status.access) == (None, access if SAYS_WHAT_WAS_ATTEMPTED else "")


@pytest.mark.parametrize("workers", [1, 4])
def test_a_fault_in_a_shared_node_ends_its_replay_and_no_other(
    open_backend: Open, code: dict[str, CompiledKernel], workers: int
) -> None:
    backend = open_backend(workers)
    block = Block(backend, 256)
    graph = instantiate(
        backend,
        [
            dispatch(code["busy"], block.bind(0), inline(1, 500), threads=(256,), group=(2,)),
            dispatch(
                code["poke"],
                block.bind(0),
                ParamBinding(1, "where", 8),
                InlineBinding(2, np.array([200, 0, 0, 0], np.uint32).tobytes()),
                threads=(256,),
                group=(1,),
            ),
        ],
        where=8,
    )
    wheres = [np.uint64(0), np.uint64(0), wild_index(block), np.uint64(0)]
    for _ in range(20):  # the nodes are as good as new after each
        submissions = [start(backend, graph, where.tobytes()) for where in wheres]
        assert submissions[2].wait(10**10)
        backend.resume(())
        assert submissions[-1].wait(10**10)
        statuses = [one.status() for one in submissions]
        assert [one.failed for one in statuses] == [False, False, True, False]
        assert (statuses[2].node, statuses[2].thread) == (1, (200, 0, 0))
        for submission in submissions:
            submission.release()


def test_a_device_closes_with_work_held_back_by_a_fault(open_backend: Open, code: dict[str, CompiledKernel]) -> None:
    backend = open_backend(2)
    block = Block(backend, 64)
    who = InlineBinding(2, bytes(16))
    poke = dispatch(code["poke"], block.bind(0), inline(1, wild_index(block)), who, threads=(8,), group=(8,))
    bad = start(backend, instantiate(backend, [poke]))
    behind = start(backend, instantiate(backend, [dispatch(code["bump"], block.bind(0, 1, 1))]))
    assert bad.wait(10**10)
    backend.close()
    assert block.array[1] == 1
    bad.release()
    behind.release()


# --- cost ----------------------------------------------------------------------------------------------------------


def test_replaying_takes_the_caller_no_longer_for_a_longer_list(
    backend: CpuBackend, code: dict[str, CompiledKernel]
) -> None:
    """A guard against work per node in the calling thread: that would cost milliseconds here, not microseconds."""
    block = Block(backend, 1)
    graph = instantiate(backend, [dispatch(code["bump"], block.bind(0))] * 100_000, Ordering.SERIAL)
    replay(backend, graph)
    best = min(_seconds_to_start(backend, graph) for _ in range(10))
    assert best < 500e-6


def _seconds_to_start(backend: CpuBackend, graph: Executable) -> float:
    began = time.perf_counter()
    submission = start(backend, graph)
    taken = time.perf_counter() - began
    finish(backend, submission)
    return taken
