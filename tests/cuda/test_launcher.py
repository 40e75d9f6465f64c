"""launcher.cpp against a stand-in for the driver's library."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fake_driver import Fake
from ostinato.backends import records
from ostinato.backends.cuda import launches
from ostinato.backends.cuda.kernels import Functions
from ostinato.backends.cuda.launchers import _FEW_ROWS, FULL, STAGED_BYTES, NativeLauncher, Reading, Started
from ostinato.backends.cuda.rings import SLOT_BYTES, RingFields
from ostinato.backends.cuda.updates import AddedNode, Nodes, Rows
from ostinato.native.building import host_library

FUNCTIONS = Functions(101, 202)
ENTRY = ctypes.addressof(FUNCTIONS)


class Bench:
    """A launcher, the library it calls, and the word that says what is done."""

    def __init__(self) -> None:
        library = host_library("fake-libcuda", [Path(__file__).with_name("fake_libcuda.cpp")])
        self.fake = Fake.in_dll(library, "fake")
        ctypes.memset(ctypes.addressof(self.fake), 0, ctypes.sizeof(self.fake))
        self.done = ctypes.c_uint32(0)
        at = ctypes.addressof(self.done)
        self.launcher = NativeLauncher(1, 2, at, at, library._name)
        self.started = Started()

    def submit(self, *lowered: bytes, reading: Reading | None = None, starts: np.ndarray | None = None) -> int:
        self.started = Started()
        address = None if reading is None else ctypes.addressof(reading)
        numbers = None if starts is None else starts.ctypes.data
        out = ctypes.addressof(self.started)
        return self.launcher.submit(b"".join(lowered), len(lowered), address, numbers, 3, 4, out)


@pytest.fixture
def bench(private_environment: None) -> Iterator[Bench]:
    made = Bench()
    yield made
    assert made.fake.pushed == made.fake.popped


def record(groups: tuple[int, int, int] = (2, 3, 1), size: tuple[int, int, int] = (8, 4, 2)) -> bytes:
    threads = (groups[0] * size[0], groups[1] * size[1], groups[2] * size[2])
    params = bytearray(112)
    launches.HEAD.pack_into(params, 0, *threads, *size, *groups, launches.ONE_ROW, 0, 0, 0, 0, 0)
    params[104:112] = b"argument"
    return launches.record(ENTRY, threads, size, groups, 0, params)


def test_a_list_is_launched_in_order_and_gets_a_number(bench: Bench) -> None:
    assert bench.submit(record(), records.barrier(), record((5, 1, 1))) == 0
    assert (bench.started.number, bench.started.launched, bench.done.value) == (1, 2, 1)
    assert list(bench.fake.blocks[:2]) == [6, 5]
    assert list(bench.fake.threads[:2]) == [64, 64]
    assert list(bench.fake.functions[:2]) == [101, 101]
    assert bytes(bench.fake.params[0])[104:112] == b"argument"
    assert bench.submit(record()) == 0
    assert bench.started.number == 2


def test_a_sampled_list_takes_its_times_where_it_is_told(bench: Bench) -> None:
    lowered = (record((2, 1, 1), (33, 1, 1)), record((5000, 1, 1), (32, 1, 1)))
    starts, missing = bench.launcher.slots(b"".join(lowered), lowered)
    assert (missing, starts.tolist()) == (0, [0, 4, 4100])
    reading = Reading(303, 5, 0x1000, 6, 77, 256, 2)
    before = b"".join(lowered)
    assert bench.submit(*lowered, reading=reading, starts=starts) == 0
    assert b"".join(lowered) == before  # records are shared by all submissions of the list
    found = [launches.HEAD.unpack_from(bytes(bench.fake.params[at])) for at in range(2)]
    assert [one[9] for one in found] == [launches.ONE_ROW | launches.OWN_SLOTS, launches.ONE_ROW]
    assert [one[12:14] for one in found] == [(2**32 - 1, 0x1000), (4095, 0x1000 + 16 * 4)]
    assert list(bench.fake.functions[:3]) == [202, 202, 303]
    assert struct.unpack("=Q", bytes(bench.fake.params[2])[:8]) == (5,)


def test_what_failed_half_way_is_waited_for_and_has_no_number(bench: Bench) -> None:
    bench.fake.fail_at = 3
    assert bench.submit(*[record()] * 4) == 1
    assert (bench.started.launched, bench.started.number, bench.fake.synchronized) == (2, 0, 1)
    bench.fake.fail_at = 0
    assert bench.submit(record()) == 0
    assert bench.started.number == 1


def test_more_blocks_than_a_launch_takes_are_refused_and_not_wrapped(bench: Bench) -> None:
    assert bench.submit(record((65537, 65536, 1), (1, 1, 1))) == 1
    assert bench.fake.launches == 0


class Replays:
    """A graph's ring of four slots."""

    def __init__(self, bench: Bench) -> None:
        self.launcher = bench.launcher
        self.slots = ctypes.create_string_buffer(4 * 64)
        self.ring = RingFields(ctypes.addressof(self.slots), 3, 64, 16)
        self.started = Started()

    def start(self, values: bytes, result: int = 0) -> int:
        self.started = Started()
        return self.launcher.replay(ctypes.addressof(self.ring), 9, values, result, ctypes.addressof(self.started))

    def values(self, turn: int) -> bytes:
        return ctypes.string_at(ctypes.addressof(self.ring.slot(turn)) + SLOT_BYTES, 16)


def test_a_replay_finds_its_values_in_the_next_slot(bench: Bench) -> None:
    replays = Replays(bench)
    assert bench.submit(record()) == 0
    assert replays.start(b"0123456789abcdef", 0x7F00_1234_5678) == 0
    assert (replays.started.number, replays.started.turn, replays.started.launched, bench.fake.graphs) == (2, 0, 1, 1)
    assert replays.start(b"another of these") == 0
    assert (replays.started.number, replays.started.turn) == (3, 1)
    first, second = replays.ring.slot(0), replays.ring.slot(1)
    assert (first.turn, first.number, first.result, first.begin, first.end) == (0, 2, 0x7F00_1234_5678, 0, 0)
    assert (second.turn, second.number, second.result) == (1, 3, 0)
    assert (replays.values(0), replays.values(1)) == (b"0123456789abcdef", b"another of these")
    assert bench.done.value == 1  # a replay ends by itself


def test_a_slot_is_not_used_again_before_its_times_were_taken(bench: Bench) -> None:
    replays = Replays(bench)
    replays.ring.turn = replays.ring.settled = 2**32 - 2
    for number in range(4):
        assert replays.start(b"%016d" % number) == 0
    assert replays.start(b"%016d" % 4) == FULL
    assert (replays.started.launched, bench.fake.graphs, replays.values(2**32 - 2)) == (0, 4, b"%016d" % 0)
    replays.ring.settled += 1
    assert replays.start(b"%016d" % 4) == 0
    assert (replays.started.turn, replays.started.number, replays.values(2)) == (2, 5, b"%016d" % 4)


def test_a_graph_that_is_not_launched_moves_no_count(bench: Bench) -> None:
    replays = Replays(bench)
    bench.fake.fail_graph = 2
    assert replays.start(bytes(16)) == 2
    assert (replays.started.number, replays.ring.turn, bench.fake.synchronized) == (0, 0, 1)
    bench.fake.fail_graph = 0
    assert replays.start(bytes(16)) == 0
    assert (replays.started.number, replays.ring.turn) == (1, 1)


def test_only_changed_nodes_get_new_parameters(bench: Bench) -> None:
    added = [AddedNode(at, 10 + at, 101, 2 + at, 32, 64 * at, bytes(80 + 8 * 2)) for at in range(12)]
    nodes = Nodes(None, 7, added, 12)
    told = []

    def update(graph: int, node: int, at: int) -> int:
        function, blocks, _, _, threads, _, _, shared = struct.unpack("=Q7I", ctypes.string_at(at, 36))
        block = ctypes.c_uint64.from_address(struct.unpack("=Q", ctypes.string_at(at + 40, 8))[0]).value
        arguments = struct.unpack("=2Q", ctypes.string_at(block + 80, 16))
        told.append((graph, node, function, blocks, threads, shared, *arguments))
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_size_t,) * 3)(update)
    bench.fake.on_update = ctypes.cast(callback, ctypes.c_void_p)
    places = (np.array([1, 1, 3]), np.array([0, 1, 1]), np.array([1000, 2000, 3000], np.uint64))
    assert bench.launcher.update(nodes, nodes.change(*places)) == 0
    assert told == [(7, 11, 101, 3, 32, 64, 1000, 2000), (7, 13, 101, 5, 32, 192, 0, 3000)]
    assert nodes.arguments(3, 96) == struct.pack("=2Q", 0, 3000)
    few = (np.array([2]), np.array([1]), [4000])
    assert bench.launcher.update(nodes, nodes.change(*few)) == 0
    assert told[2:] == [(7, 12, 101, 4, 32, 128, 0, 4000)]
    many = Rows.of(np.arange(12), np.repeat(2, 20))
    assert many.total == 12 > _FEW_ROWS  # beyond that, the interpreter runs other threads meanwhile
    assert bench.launcher.update(nodes, many) == 0
    assert [node for _, node, *_ in told[3:]] == list(range(10, 22))
    bench.fake.fail_update = bench.fake.updates + 2
    assert bench.launcher.update(nodes, many) == 1
    assert len(told) == 16


def test_small_reads_go_through_pieces_of_pinned_memory(bench: Bench) -> None:
    memory, to = np.arange(2048, dtype=np.uint32), np.zeros(2048, np.uint32)
    staged = np.zeros(STAGED_BYTES, np.uint8)
    library, at = bench.launcher._library, bench.launcher._at
    read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)(
        ctypes.cast(library.ost_quick_read, ctypes.c_void_p).value or 0
    )
    *_, before = bench.launcher.quick_calls() or ()
    bench.launcher.read_through(5, staged.ctypes.data)
    *_, after = bench.launcher.quick_calls() or ()
    assert not before
    assert after
    for _ in range(20):  # every piece comes back
        assert read(at, memory.ctypes.data + 40, to.ctypes.data, 4096) == 0
    assert to[:1024].tolist() == list(range(10, 1034))
    assert read(at, memory.ctypes.data, to.ctypes.data, 4097) != 0  # more than a piece
    bench.fake.query = 700
    assert read(at, memory.ctypes.data, to.ctypes.data, 4) == 700
    bench.fake.query = 0
    bench.launcher._fields.taken = 0xFF
    assert read(at, memory.ctypes.data, to.ctypes.data, 4) != 0  # all are taken
    bench.launcher._fields.taken = 0
    assert read(at, memory.ctypes.data, to.ctypes.data, 4) == 0


def test_waiting_looks_at_the_word_over_the_end_of_its_numbers(bench: Bench) -> None:
    bench.fake.query = 600
    bench.done.value = 5
    assert bench.launcher.wait(5, 0) == 1
    assert bench.launcher.wait(2**32 - 1, 0) == 1
    assert bench.launcher.wait(6, 0) == 0
    assert bench.launcher.wait(6, 2_000_000) == 0
    bench.done.value = 2**32 - 1
    assert bench.launcher.wait(1, 0) == 0


def test_an_error_of_the_driver_ends_a_wait(bench: Bench) -> None:
    bench.fake.query = 700
    assert bench.launcher.wait(1, 0) == -700
