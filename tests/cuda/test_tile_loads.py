"""Simdgroup matrices in threadgroup memory: fetched by rows where that is possible, and always the same elements.

The code before and after joining runs for the lanes of two warps (ptx_lanes.py), in numbers of which sums are exact.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvrtc import Nvrtc
from ostinato.backends.cuda.ptx import joining
from ostinato.backends.cuda.ptx.alignment import TrailingZeros
from ostinato.msl import parse
from ptx_lanes import Warp, bits_of
from ptx_registers import assert_registers_hold

HEAD = "{ .reg .b32 none; .reg .f32 nil, unused0, unused1; mov.b32 none, 0; mov.f32 nil, 0f00000000;"
VARIABLE = ".shared .align {} .b8 memory[32768];\n"


class Program:
    """The text of a function that reads matrices from `memory`, multiplies them and stores the sums."""

    def __init__(self, alignment: int = 16) -> None:
        self._alignment = alignment
        self._count = 100
        self.lines = ["\t.reg .b32 %r<1000>;", "\tmov.u32 %r1, %tid.x;", "\tmov.u32 %r2, memory;"]
        self.step("and.b32 %r3, %r1, 7")
        self.step("shr.u32 %r6, %r1, 2")
        self.step("and.b32 %r4, %r6, 7")
        self.step("and.b32 %r5, %r1, 3")

    def step(self, text: str) -> None:
        self.lines.append(f"\t{text};")

    def fresh(self, kind: str = "r") -> str:
        self._count += 1
        return f"%{kind}{self._count}"

    def value(self, text: str) -> str:
        """Of an expression ``operation operands``."""
        to = self.fresh()
        operation, operands = text.split(" ", 1)
        self.step(f"{operation} {to}, {operands}")
        return to

    def tile(self, at: int, pitch: int, turned: bool, base: str = "%r2") -> str:
        """What the shim writes for `simdgroup_load`."""
        start = self.value(f"add.s32 {base}, {at}")
        row = self.value(f"mad.lo.s32 %r3, {pitch}, {start}")
        along, across = (2, 2 * pitch) if turned else (pitch, 4)
        first = self.value(f"mad.lo.s32 %r5, {across}, {self.value(f'mad.lo.s32 %r4, {along}, {start}')}")
        second = self.value(f"add.s32 {first}, {pitch if turned else 2}")
        bits, to = self.value(f"or.b32 {start}, {pitch}"), self.fresh()
        self.lines.append(
            f"\t{{ .reg .b16 x, y; ld.shared.b16 x, [{first}]; ld.shared.b16 y, [{second}]; mov.b32 {to}, {{x, y}}; }} "
            f"// {'turned' if turned else 'straight'} tile {row}, {bits}"
        )
        return to

    def multiply(self, left: str, right: str, sums: tuple[str, str]) -> tuple[str, str]:
        turned, to = self.value(f"movmatrix.sync.aligned.m8n8.trans.b16 {right}"), (self.fresh("f"), self.fresh("f"))
        shape = "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"
        operands = (
            f"{{{', '.join(to)}, unused0, unused1}}, {{{left}, none}}, {{{turned}}}, {{{', '.join(sums)}, nil, nil}}"
        )
        self.lines.append(f"\t{HEAD} {shape} {operands}; }}")
        return to

    def own_pair(
        self, at: int, pitch: int, along: bool, skew: int = 0, base: str = "%r2", between: str = ""
    ) -> tuple[str, str]:
        """Two elements as float, which a kernel reads at a place that it computes from the lane."""
        row, quarter, second = (pitch, 4, 2) if along else (2, 2 * pitch, pitch)
        apart = self.value(f"mad.lo.s32 %r5, {quarter + skew}, {self.value(f'mul.lo.s32 %r4, {row}')}")
        start = self.value(f"add.s32 {base}, {apart}")
        floats: list[str] = []
        for place in (at, at + second):
            if between and floats:
                self.step(between)
            element = self.fresh()
            self.step(f"ld.shared.u16 {element}, [{start}+{place}]")
            bits, value = self.value(f"shl.b32 {element}, 16"), self.fresh("f")
            self.step(f"mov.b32 {value}, {bits}")
            floats.append(value)
        return floats[0], floats[1]

    def multiply_floats(self, left: tuple[str, str], right: tuple[str, str], sums: tuple[str, str]) -> tuple[str, str]:
        """As on a device with tf32=True."""
        a, b = ([self.value(f"cvt.rna.tf32.f32 {value}") for value in pair] for pair in (left, right))
        first, second, to = self.fresh(), self.fresh(), (self.fresh("f"), self.fresh("f"))
        self.lines.append(
            "\t{ .reg .pred odd; .reg .b32 a, b; setp.ne.u32 odd, %r3, 0; "
            f"selp.b32 a, {b[1]}, {b[0]}, odd; selp.b32 b, {b[0]}, {b[1]}, odd; "
            "shfl.sync.idx.b32 a, a, %r3, 31, 0xffffffff; shfl.sync.idx.b32 b, b, %r3, 31, 0xffffffff; "
            f"selp.b32 {first}, b, a, odd; selp.b32 {second}, a, b, odd; }}"
        )
        shape = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
        operands = f"{{{', '.join(to)}, unused0, unused1}}, {{{a[0]}, none, {a[1]}, none}}, {{{first}, {second}}}"
        self.lines.append(f"\t{HEAD} {shape} {operands}, {{{', '.join(sums)}, nil, nil}}; }}")
        return to

    def store(self, sums: tuple[str, str]) -> None:
        self.step(f"st.global.v2.f32 [%rd1], {{{', '.join(sums)}}}")

    @property
    def text(self) -> str:
        body = "\n".join(self.lines)
        return VARIABLE.format(self._alignment) + f"{{\n{body}\n}}"


def zero(program: Program) -> tuple[str, str]:
    pair = program.fresh("f"), program.fresh("f")
    for register in pair:
        program.step(f"mov.b32 {register}, 0")
    return pair


def same_results(text: str) -> str:
    """The joined program, which stores what the first one does."""
    memory = bits_of(np.random.default_rng(1).integers(-3, 4, 16384)).astype(np.uint16).tobytes()
    result = joining.joined(text)
    assert_registers_hold(text, result)
    for first_thread in (0, 32):
        body, joined = (program.split("\n", 1)[1] for program in (text, result))
        for before, after in zip(
            Warp(memory, first_thread).run(body), Warp(memory, first_thread).run(joined), strict=True
        ):
            np.testing.assert_array_equal(before, after)
    return result


def blocked(rows: int, columns: int, depth: int, pitches: tuple[int, int], turned: tuple[bool, bool]) -> str:
    program = Program()
    sums = [[zero(program) for _ in range(columns)] for _ in range(rows)]
    for k in range(depth):
        down, along = (16, 8 * pitches[0]) if turned[0] else (8 * pitches[0], 16)
        left = [program.tile(down * i + along * k, pitches[0], turned[0]) for i in range(rows)]
        down, along = (16, 8 * pitches[1]) if turned[1] else (8 * pitches[1], 16)
        right = [program.tile(8192 + along * j + down * k, pitches[1], turned[1]) for j in range(columns)]
        for i in range(rows):
            for j in range(columns):
                sums[i][j] = program.multiply(left[i], right[j], sums[i][j])
    for row in sums:
        for pair in row:
            program.store(pair)
    return program.text


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 2),
    st.tuples(*[st.sampled_from([16, 80, 144, 36, 18])] * 2),
    st.tuples(st.booleans(), st.booleans()),
)
def test_every_layout_gives_the_same_sums(
    rows: int, columns: int, depth: int, pitches: tuple[int, int], turned: tuple[bool, bool]
) -> None:
    result = same_results(blocked(rows, columns, depth, pitches, turned))
    assert ("ldmatrix" in result) == any(pitch % 16 == 0 for pitch in pitches)
    assert ("movmatrix" in result) == (pitches[1] % 16 != 0)


def test_four_matrices_are_fetched_at_once_as_a_product_takes_them() -> None:
    result = same_results(blocked(4, 4, 2, (80, 144), (False, False)))
    assert len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared", result)) == 2
    assert len(re.findall(r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared", result)) == 2
    assert not re.search(r"movmatrix|ld\.shared\.b16", result)


def test_nothing_is_fetched_past_a_store() -> None:
    text = blocked(2, 1, 2, (80, 80), (False, False))
    place = text.index("mma.sync")
    first = text[:place].rindex("\n")
    result = joining.joined(text[:first] + "\n\tst.shared.u16 [%r2], %rs1;" + text[first:])
    order = [found[0] for found in re.finditer(r"ldmatrix|st\.shared", result)]
    assert order.index("st.shared") not in (0, len(order) - 1)
    assert "x4" not in result


@pytest.mark.parametrize("alignment", [2, 16])
def test_rows_are_fetched_only_where_memory_is_aligned(alignment: int) -> None:
    program = Program(alignment)
    program.store(program.multiply(program.tile(0, 80, False), program.tile(4096, 80, False), zero(program)))
    assert ("ldmatrix" in same_results(program.text)) == (alignment == 16)


def test_matrices_that_no_product_takes_are_read_by_each_lane() -> None:
    program = Program()
    program.tile(0, 80, False)
    assert "ldmatrix" not in joining.joined(program.text)


@pytest.mark.parametrize(("along", "fetch"), [(False, "x1.shared"), (True, "x1.trans.shared")])
@pytest.mark.parametrize("skew", [0, 32])
def test_floats_that_were_bfloat_are_multiplied_as_such(along: bool, fetch: str, skew: int) -> None:
    program = Program()
    left, right = program.own_pair(0, 48, True), program.own_pair(4096, 48, along, skew)
    program.store(program.multiply_floats(left, right, zero(program)))
    result = same_results(program.text)
    assert "bf16.bf16" in result
    assert "tf32" not in result.split("mma.sync")[1]
    assert (fetch in result) == (skew == 0)
    assert ("movmatrix" in result) == (skew != 0)


def test_what_lanes_read_at_a_negative_distance_is_fetched_by_rows() -> None:
    program = Program()
    far = program.value("add.s32 %r2, 4096")
    left, right = program.own_pair(-4096, 48, True, base=far), program.own_pair(-1024, 48, False, base=far)
    program.store(program.multiply_floats(left, right, zero(program)))
    result = same_results(program.text)
    assert len(re.findall(r"ldmatrix\S+ \{%r\d+\}, \[%r\d+\+-1024\]", result)) == 1
    assert "movmatrix" not in result


@pytest.mark.parametrize("between", ["st.shared.u16 [%r2], %rs1", "bar.sync 0"])
def test_elements_that_lanes_read_before_and_after_others_may_write_are_not_fetched_together(between: str) -> None:
    def fetches(between: str) -> int:
        program = Program()
        left, right = program.own_pair(0, 48, True), program.own_pair(4096, 48, False, between=between)
        program.store(program.multiply_floats(left, right, zero(program)))
        return joining.joined(program.text).count("ldmatrix")

    assert (fetches(""), fetches(between)) == (1, 0)


def test_two_products_of_the_same_left_matrix_fetch_it_once() -> None:
    program = Program()
    lefts = [program.tile(1024 * i, 80, False) for i in range(2)]
    rights = [program.tile(8192 + 1024 * i, 80, False) for i in range(2)]
    sums = [zero(program) for _ in range(4)]
    sums = [program.multiply(lefts[i // 2], rights[i // 2], before) for i, before in enumerate(sums)]
    for pair in sums:
        program.store(pair)
    result = same_results(program.text)
    assert re.search(r"\{%f.*\}, \{(%r\d+), \1\}", result), "no product takes it for both halves of its rows"
    assert not re.search(r"ldmatrix\S+ \{[^}]*(%r\d+)\b[^}]*\1\b", result)


def test_floats_whose_bits_have_changed_since_stay_tf32() -> None:
    program = Program()
    left, right = program.own_pair(0, 48, True), program.own_pair(4096, 48, False)
    shifts = re.findall(r"shl\.b32 (%r\d+), (%r\d+), 16", program.text)
    for (to, _), (_, of) in zip(shifts, reversed(shifts), strict=True):
        program.step(f"shl.b32 {to}, {of}, 16")
    program.store(program.multiply_floats(left, right, zero(program)))
    assert "tf32.tf32" in same_results(program.text).split("mma.sync")[1]


def test_floats_that_were_not_stay_tf32() -> None:
    program = Program()
    left, right = program.own_pair(0, 48, True), program.own_pair(4096, 48, False)
    program.lines = [line.replace("shl.b32", "or.b32") for line in program.lines]
    program.store(program.multiply_floats(left, right, zero(program)))
    assert "tf32.tf32" in joining.joined(program.text).split("mma.sync")[1]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("mov.u32 %r1, memory;", 4),
        ("mov.u32 %r1, memory;\nadd.s32 %r1, %r1, 8;", 3),
        ("and.b32 %r2, %r9, -32;\nmov.u32 %r3, memory;\nadd.s32 %r1, %r2, %r3;", 4),
        ("mul.wide.u32 %r1, %r9, 12;", 2),
        ("shl.b32 %r2, %r9, 3;\nmad.lo.s32 %r1, %r2, 6, 24;", 3),
        ("ld.shared.u32 %r1, [%r9];", 0),
        ("shr.u32 %r1, 64, %r9;", 0),
        ("mul.hi.u32 %r1, 64, 64;", 0),
        ("shl.b32 %r2, %r9, 8;\nmov.b32 %f1, %r2;\ncvt.rzi.u32.f32 %r1, %f1;", 0),
        ("cvt.u64.u32 \t%tmp, %r2;\ncvta.shared.u64 \t%rd1, %tmp; }\nmov.u32 %r2, memory;\ncvt.u32.u64 %r1, %rd1;", 4),
    ],
)
def test_what_is_known_of_the_last_bits(lines: str, expected: int) -> None:
    given = {register: len(re.findall(rf"{register},", lines)) for register in ("%r1", "%r2", "%r3", "%rd1")}
    given["%r1"] = len(re.findall(r"(?:\w )%r1,|\{%r1\}", lines))
    given["%r2"] = given["%r3"] = 1
    found = TrailingZeros(VARIABLE.format(16), lines.split("\n"), given)
    assert found.of("%r1") == expected


SOURCE = """#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
kernel void product(device const bfloat *in, device float *out, threadgroup char *dynamic [[threadgroup(0)]],
                    uint i [[thread_index_in_threadgroup]], ushort simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup bfloat memory[64 * PITCH];
  threadgroup bfloat *other = (threadgroup bfloat *)dynamic + simdgroup * 64;
  for (uint k = i; k < 64 * PITCH; k += 32) { memory[k] = in[k]; }
  other[i] = in[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_bfloat8x8 a, b;
  simdgroup_float8x8 sums(0);
  simdgroup_load(a, memory + simdgroup * 8 * PITCH, PITCH);
  simdgroup_load(b, other, 8);
  simdgroup_multiply_accumulate(sums, a, b, sums);
  simdgroup_store(sums, out);
}"""


@pytest.mark.parametrize(("pitch", "fetches"), [(24, 2), (9, 1)])
def test_what_nvrtc_writes_for_threadgroup_memory_is_fetched_by_rows(pitch: int, fetches: int) -> None:
    compiled: Any = Nvrtc().compile(parse(SOURCE.replace("PITCH", str(pitch))).translate("cuda"))
    result = joining.joined(compiled.ptx)
    assert len(re.findall(r"ldmatrix\S+\.trans", result)) == 1, compiled.log
    assert len(re.findall(r"ldmatrix(?!\S+trans)", result)) == fetches
    assert "movmatrix" not in result


@pytest.mark.parametrize(
    ("first", "second", "whole"), [("", "+8", True), ("+-8", "", True), ("", "+16", False), ("", "+-8", False)]
)
def test_neighbours_in_device_memory_are_read_at_once_where_they_are_aligned(
    first: str, second: str, whole: bool
) -> None:
    lines = ["{", f"\tld.global.v4.u16 \t{{%rs1, %rs2, %rs3, %rs4}}, [%rd1{first}];"]
    lines += [f"\tld.global.v4.u16 \t{{%rs5, %rs6, %rs7, %rs8}}, [%rd1{second}];", "}"]
    result = joining.joined("\n".join(lines))
    assert (
        f"@whole ld.global.v4.b32 {{a, b, c, d}}, [%rd1{first}]; @!whole ld.global.v2.b32 {{a, b}}" in result
    ) == whole
    assert (f"ld.global.v2.b32 {{c, d}}, [%rd1{second}]" in result) == whole
    assert ("mov.b32 {%rs7, %rs8}, d" in result) == whole
    assert result.count("ld.global.v4.u16") == (0 if whole else 2)


def test_nvrtc_reads_columns_of_a_matrix_next_to_each_other() -> None:
    source = """#include <metal_stdlib>
using namespace metal;
kernel void k(device const half4x4 *x, device float4x4 *out, uint i [[thread_position_in_grid]]) {
  out[i] = float4x4(x[i]);
}"""
    compiled = Nvrtc().compile(parse(source).translate("cuda"))
    assert joining.joined(compiled.ptx).count("@whole ld.global.v4.b32") == 2, compiled.log
