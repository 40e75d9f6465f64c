"""Neighbouring fields that each lane reads from a record of its own, read at once by the lane pass."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.backends.cpu.simt.code import Types, parse_function
from ostinato.backends.cpu.simt.flow import Flow
from ostinato.backends.cpu.simt.private import Private
from ostinato.backends.cpu.simt.records import WORD, Record, find_records
from ostinato.backends.cpu.simt.shapes import Shapes
from ostinato.native import toolchain

# -- what is read at once ----------------------------------------------------------------------------------------------


def records_of(body: str) -> list[Record]:
    """The records of a function that has a pointer and two numbers."""
    function = parse_function(f"define void @f(ptr %p, i64 %a, i64 %b) {{\nstart:\n{body}\n  ret void\n}}")
    types, flow = Types({}), Flow(function)
    private = Private(function, types)
    found = find_records(function, Shapes(function, flow, types, private, {}), types, private)
    return list({id(record): record for record in found.values()}.values())


LANE = "%lane = call i32 @__ost_lane()\n%wide = zext i32 %lane to i64\n"


def reads(fields: Sequence[tuple[int, str]], stride: int, between: str = "") -> str:
    """Reads of fields, by place and type, from records that are so many bytes apart."""
    lines = [LANE, f"%record = getelementptr [{stride} x i8], ptr %p, i64 %wide"]
    for number, (at, type_) in enumerate(fields):
        lines.append(f"%at{number} = getelementptr i8, ptr %record, i64 {at}")
        lines.append(f"%v{number} = load {type_}, ptr %at{number}, align 1")
        if number == 0 and between:
            lines.append(between)
    return "\n".join(lines)


SIZES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "<2 x half>": 4, "<4 x float>": 16, "i64": 8}


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(sorted(SIZES))), min_size=1, max_size=12))
def test_only_bytes_that_the_lane_reads_are_read(fields: list[tuple[int, str]]) -> None:
    read = {byte for at, type_ in fields for byte in range(at, at + SIZES[type_])}
    for record in records_of(reads(fields, 96)):
        chunks = {
            place + byte - record.start + fields[int(record.loads[0].result[2:])][0]
            for place, words in record.chunks
            for byte in range(words * WORD)
        }
        assert chunks <= read
        for load, parts in zip(record.loads, record.fields, strict=True):
            at, type_ = fields[int(load.result[2:])]
            assert sum(part.size for part in parts) == SIZES[type_]
            assert set(range(at, at + SIZES[type_])) <= chunks


def chunks_of(body: str) -> list[list[tuple[int, int]]]:
    return [record.chunks for record in records_of(body)]


def test_words_in_a_row_are_read_at_once_up_to_eight() -> None:
    floats = [(4 * place, "float") for place in range(11)]
    assert chunks_of(reads(floats, 64)) == [[(0, 8), (32, 2)]]
    assert chunks_of(reads(floats[:2], 64)) == [[(0, 2)]]


def test_a_word_alone_is_only_read_for_several_fields() -> None:
    assert chunks_of(reads([(0, "float"), (8, "float")], 64)) == []
    assert chunks_of(reads([(0, "i16"), (2, "i8"), (3, "i8")], 64)) == [[(0, 1)]]


def test_fields_across_words_and_bytes_that_nobody_reads_are_left_out() -> None:
    assert chunks_of(reads([(0, "half"), (2, "float"), (6, "float"), (10, "half")], 18)) == [[(2, 2)]]
    assert chunks_of(reads([(0, "i16"), (3, "i8")], 18)) == []


@pytest.mark.parametrize(
    "between",
    [
        "store i8 0, ptr %p",
        "fence seq_cst",
        "%old = atomicrmw add ptr %p, i32 1 seq_cst",
        "call void @__ost_meet()",
        "call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 9, i1 false)",
        "%other = load volatile i8, ptr %p",
    ],
)
def test_what_may_write_parts_reads(between: str) -> None:
    floats = [(0, "float"), (4, "float")]
    assert chunks_of(reads(floats, 64)) == [[(0, 2)]]
    assert chunks_of(reads(floats, 64, between)) == []
    assert chunks_of(reads([*floats, (8, "float")], 64, between)) == [[(4, 2)]]


def test_addresses_that_differ_by_more_than_a_constant_are_apart() -> None:
    for index in ("%a", "%wide"):
        body = f"{LANE}%x = getelementptr [64 x i8], ptr %p, i64 %wide\n%y = getelementptr float, ptr %x, i64 {index}\n"
        body += "%v0 = load float, ptr %x\n%v1 = load float, ptr %y\n"
        assert chunks_of(body) == []


@pytest.mark.parametrize(("second", "chunks"), [(512, [[(16, 2)], [(512, 2)]]), (24, [[(16, 4)]])])
def test_records_from_two_places_of_an_array_are_told_apart(second: int, chunks: list[list[tuple[int, int]]]) -> None:
    body = LANE
    for name, at in (("x", 16), ("y", second)):
        body += f"%{name} = getelementptr i8, ptr %p, i64 {at}\n"
        body += f"%{name}0 = getelementptr [64 x i8], ptr %{name}, i64 %wide\n"
        body += f"%{name}1 = getelementptr i8, ptr %{name}0, i64 4\n"
        body += f"%{name}v0 = load float, ptr %{name}0\n%{name}v1 = load float, ptr %{name}1\n"
    every = {chunk for record in records_of(body) for chunk in record.chunks}
    assert every == {chunk for record in chunks for chunk in record}


def test_an_address_from_a_loop_that_lanes_left_one_by_one_is_taken_as_it_is() -> None:
    body = f"""{LANE}
  %first = getelementptr [32 x i8], ptr %p, i64 %wide
  br label %loop
loop:
  %at = phi ptr [ %first, %start ], [ %next, %loop ]
  %one = getelementptr i8, ptr %at, i64 4
  %two = getelementptr i8, ptr %at, i64 8
  %x = load i32, ptr %one
  %next = getelementptr i8, ptr %at, i64 4096
  %more = icmp ult i32 %x, 5
  br i1 %more, label %loop, label %done
done:
  %u = load i32, ptr %one
  %three = getelementptr i8, ptr %two, i64 4
  %v = load i32, ptr %three"""
    assert [record for record in records_of(body) if len(record.loads) > 1] == []


def test_neighbours_of_lanes_are_read_as_they_lie() -> None:
    assert chunks_of(reads([(0, "float"), (4, "float")], 4)) == []


# -- what the lanes get ------------------------------------------------------------------------------------------------

needs_clang = pytest.mark.skipif(toolchain.find_clang() is None, reason="no clang for kernels as vectors")
KERNELS = max(12, int(os.environ.get("SIMT_PROGRAMS", 0)))
PER_LIBRARY = 24
TYPES = {
    "uchar": np.uint8, "char": np.int8, "ushort": np.uint16, "short": np.int16, "uint": np.uint32, "half": np.float16,
    "float": np.float32, "ulong": np.uint64,
}  # fmt: skip
MEMORY = 1 << 16
WAYS = ("known", "known", "pairs", "turned", "stride", "table")
"""How the record of a thread is found."""
WHERE = {
    "everywhere": "true",
    "a branch": "lane % 3 != 1",
    "a loop": "turn <= lane % 4",
}


@dataclass(frozen=True)
class Reading:
    """A kernel whose threads sum up the bits of some fields of their records, in some order."""

    number: int
    stride: int
    fields: tuple[tuple[int, str, int], ...]
    """Place, type, and components."""
    way: str
    where: str
    threads: int

    @property
    def source(self) -> str:
        at = {
            "known": f"lane * {self.stride}", "pairs": f"lane / 2 * {self.stride}",
            "turned": f"(31 - lane) * {self.stride}", "stride": "id * stride", "table": "table[id]",
        }[self.way]  # fmt: skip
        lines = []
        for place, type_, count in self.fields:
            for part in range(count):
                bits = {"half": "as_type<ushort>", "float": "as_type<uint>"}.get(type_, "uint")
                value = f"((device const packed_{type_}{count} *)(p + {place}))[0][{part}]"
                if count == 1:
                    value = f"((device const {type_} *)(p + {place}))[0]"
                lines.append(f"sum = sum * 31 + uint({bits}({value}));")
        return (
            f"kernel void k{self.number}(device const uchar *memory, device uint *out, device const uint *table,"
            " constant uint &stride, constant uint &turns, uint id [[thread_position_in_grid]],"
            " uint lane [[thread_index_in_simdgroup]]) {\n  uint sum = simd_sum(0u);\n"
            f"  for (uint turn = 0; turn < turns; ++turn)\n    if ({WHERE[self.where]}) {{\n"
            f"      device const uchar *p = memory + turn * 3 + ({at});\n      "
            + "\n      ".join(lines)
            + "\n    }\n  out[id] = sum;\n}\n"
        )

    def expected(self, memory: np.ndarray, table: np.ndarray, stride: int, turns: int) -> np.ndarray:
        ids = np.arange(self.threads)
        lane = ids % 32
        at = {
            "known": lane * self.stride, "pairs": lane // 2 * self.stride, "turned": (31 - lane) * self.stride,
            "stride": ids * stride, "table": table[: self.threads],
        }[self.way].astype(np.int64)  # fmt: skip
        total = np.zeros(self.threads, np.uint32)
        for turn in range(turns):
            there = {"everywhere": lane >= 0, "a branch": lane % 3 != 1, "a loop": turn <= lane % 4}[self.where]
            sums = total.copy()
            for place, type_, count in self.fields:
                dtype = np.dtype(TYPES[type_])
                for part in range(count):
                    begin = at + 3 * turn + place + part * dtype.itemsize
                    raw = memory[begin[:, None] + np.arange(dtype.itemsize)].reshape(-1)
                    bits = {"half": np.uint16, "float": np.uint32}.get(type_, dtype)
                    sums = sums * np.uint32(31) + raw.view(bits).astype(np.int64).astype(np.uint32)
            total = np.where(there, sums, total)
        return total


def reading(number: int) -> Reading:
    """A random kernel."""
    random = np.random.default_rng(number)
    fields: list[tuple[int, str, int]] = []
    at = 0
    while len(fields) < random.integers(2, 12):
        type_ = str(random.choice(sorted(TYPES)))
        size = np.dtype(TYPES[type_]).itemsize
        count = int(random.choice([1, 1, 2, 4])) if type_ != "ulong" else 1
        at += int(random.choice([0, 0, 0, 0, 1, 2, 4]))
        fields.append((at, type_, count))
        at += size * count
    stride = at + int(random.choice([0, 0, 2, 5, 32]))
    random.shuffle(fields)
    threads = int(random.choice([32, 64, 64, 50]))
    return Reading(number, stride, tuple(fields), str(random.choice(WAYS)), str(random.choice(sorted(WHERE))), threads)


@needs_clang
def test_lanes_read_records_of_two_arrays(dev: ost.Device) -> None:
    library = dev.library("""#include <metal_stdlib>
        using namespace metal;
        kernel void k(device const float *x, device float *out, uint lane [[thread_index_in_simdgroup]]) {
            threadgroup float a[128], b[128];
            for (uint i = 0; i < 4; ++i) a[lane * 4 + i] = x[lane * 4 + i];
            for (uint i = 0; i < 4; ++i) b[lane * 4 + i] = x[lane * 4 + i + 128];
            simdgroup_barrier(mem_flags::mem_threadgroup);
            threadgroup const float *c = a + 1, *d = b + 2;
            float first = c[lane * 4] + 10 * c[lane * 4 + 1], second = d[lane * 4] + 10 * d[lane * 4 + 1];
            out[lane] = first + 100 * second + simd_max(c[lane * 4 + 2]) + simd_max(d[lane * 4 + 1]);
        }""")
    x = np.arange(256, dtype=np.float32)
    out = dev.zeros(32, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["k"], dev.array(x), out, threads=32, group_size=32)
    encoder.commit_and_wait()
    a, b = x.reshape(2, 32, 4)
    sums = (a[:, 1] + 10 * a[:, 2]) + 100 * (b[:, 2] + 10 * b[:, 3])
    np.testing.assert_array_equal(out.numpy(), sums + a[:, 3].max() + b[:, 3].max())


@needs_clang
@pytest.mark.parametrize("first", range(0, KERNELS, PER_LIBRARY))
def test_lanes_read_the_fields_of_their_records(dev: ost.Device, first: int) -> None:
    kernels = [reading(number) for number in range(first, min(first + PER_LIBRARY, KERNELS))]
    random = np.random.default_rng(first)
    memory = random.integers(0, 256, MEMORY, dtype=np.uint8)
    table = random.integers(0, MEMORY - 1024, 64, dtype=np.uint32)
    text = "".join(kernel.source for kernel in kernels)
    library = dev.library(f"#include <metal_stdlib>\nusing namespace metal;\n{text}")
    for kernel in kernels:
        compiled = library[f"k{kernel.number}"]
        assert compiled.execution.way == "vector", compiled.execution
        out = dev.zeros(64, np.uint32)
        encoder = dev.command_encoder()
        arguments = (dev.array(memory), out, dev.array(table), np.uint32(211), np.uint32(3))
        encoder.dispatch(compiled, *arguments, threads=kernel.threads, group_size=64)
        encoder.commit_and_wait()
        expected = kernel.expected(memory, table, 211, 3)
        np.testing.assert_array_equal(out.numpy()[: kernel.threads], expected, err_msg=kernel.source)
