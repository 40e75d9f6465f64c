"""Numbers in checked kernels: divisions, shifts, conversions, overflow, static bounds and alignment."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from checked_kernels import Kernels, line_of, place_of
from compilers import ZIG
from ostinato.backends.cpu.findings import metal_type
from ostinato.backends.registry import open_backend

DECLARATIONS = """
constant int table[4] = {1, 2, 3, 4};
struct Block { half d; uchar high[4]; };
static float second(device const float4 *v) { float4 w = *v; return w.y; }
struct Pair { float4 a, b; };
template <class T> static void copy(device T *to, device const T *from) {
  T value = *from;
  *to = value;
}
"""
BODIES = {
    "quotient": "o[i] = 7 / x[i];",
    "remainder": "o[i] = 5 % x[i];",
    "quotient of vectors": "int4 v = int4(x[0], x[1], x[2], x[3]);\n  o[0] = (int4(8) / v).x;",
    "shift": "o[0] = 1 << x[0];",
    "other shifts": "uint2 v = uint2(1u) << uint2(3u, uint(x[0]));\n  int y = 5;\n  y >>= x[0];\n"
    "  o[0] = int(v.y) + y;",
    "conversion": "o[0] = int(f[0]);",
    "constants in braces": "uchar t[2] = {(-18), x[0]};\n  o[0] = t[x[1] & 1];",
    "uchar": "o[0] = uchar(f[0]);",
    "ulong": "o[0] = int(ulong(f[0]));",
    "ushort array": "ushort t[4] = {};\n  o[0] = t[x[0]];",
    "half array": "half t[2][4] = {};\n  o[0] = int(t[x[0]][1]);",
    "sum": "o[0] = x[0] + x[1];",
    "difference": "o[0] = x[0] - x[1];",
    "product": "o[0] = x[0] * x[1];",
    "negation": "o[0] = -x[0];",
    "ratio": "o[0] = x[0] / x[1];",
    "local array": "float t[8] = {1.0f};\n  t[x[0]] = 2.0f;\n  o[0] = int(t[3]);",
    "constant array": "o[0] = table[x[0]];",
    "threadgroup array": "threadgroup int t[4];\n  t[x[0]] = 3;\n  o[0] = t[x[0]];",
    "row": "float grid[2][8] = {};\n  o[0] = int(grid[x[0]][1]);",
    "column": "float grid[2][8] = {};\n  o[0] = int(grid[1][x[0]]);",
    "member": "struct { int parts[4]; } s = {};\n  o[0] = s.parts[x[0]];",
    "through a pointer": "int t[4] = {};\n  thread int (*all)[4] = &t;\n  o[0] = (*all)[x[0]];",
    "vector": "o[0] = int(second((device const float4 *)(f + 1)));",
    "copied float4": "copy((device float4 *)o, (device const float4 *)(x + 2));",
    "copied half4": "copy((device half4 *)o, (device const half4 *)(x + 1));",
    "copied long4": "copy((device long4 *)o, (device const long4 *)(x + 4));",
    "copied struct": "copy((device Pair *)o, (device const Pair *)(x + 1));",
    "written float4": "copy((device float4 *)(o + 1), (device const float4 *)x);",
    "vector by a cast": "device const float4 *v = (device const float4 *)(f + 1);\n  o[0] = int(v[i].y);",
    "vector read by a cast": "float4 v = *(device const float4 *)(f + 1);\n  o[0] = int(v.x + v.w);",
    "vector written by a cast": "*(device int4 *)(o + i) = int4(x[0]);",
    "block": "device const Block *b = (device const Block *)x;\n"
    "  o[0] = *((device const uint *)b[i].high) + ((device const uint *)b[i].high)[0];",
}
KERNELS = Kernels(BODIES, "device int *o, device const int *x, device const float *f", DECLARATIONS)


def ints(*numbers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(4, np.int32), np.array(numbers, np.int32), np.zeros(8, np.float32)


@pytest.fixture(params=["", *ZIG])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setenv("CXX", request.param)


@pytest.mark.parametrize(("name", "text"), [("quotient", "/"), ("remainder", "%")])
def test_an_integer_division_by_zero_is_named_with_its_thread(name: str, text: str) -> None:
    finding = KERNELS.finding(name, *ints(1, 2, 0, 4), threads=4)
    assert (finding.kind, finding.severity) == ("division by zero", "error")
    assert finding.accesses[-1].thread == (2, 0, 0)
    assert line_of(finding) == KERNELS.place(name, text)[0]


def test_a_division_of_vectors_is_placed_in_the_user_s_line() -> None:
    finding = KERNELS.finding("quotient of vectors", *ints(1, 2, 0, 4))
    assert finding.kind == "division by zero"
    assert line_of(finding) == KERNELS.place("quotient of vectors", "int4(8)")[0]


@pytest.mark.parametrize("amount", [32, 40, -1])
def test_a_shift_by_the_width_or_more_is_a_note_since_metal_defines_it(amount: int) -> None:
    finding = KERNELS.finding("shift", *ints(amount))
    assert (finding.kind, finding.severity) == ("shift out of range", "note")
    assert f"a shift by {amount} of 32 bits; Metal shifts by {amount % 32}" in finding.why
    assert line_of(finding) == KERNELS.place("shift", "<<")[0]


def test_shifts_of_vectors_and_assigning_shifts_are_seen() -> None:
    lines = sorted(line_of(finding) for finding in KERNELS.findings("other shifts", *ints(33)))
    assert lines == [KERNELS.place("other shifts", text)[0] for text in ("uint2(1u)", ">>=")]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", ["shift", "quotient", "remainder", "sum", "constants in braces"])
def test_what_is_in_range_is_no_finding(name: str) -> None:
    assert KERNELS.findings(name, *ints(31, 2)) == ()


@pytest.mark.parametrize("number", [3e9, -3e9, float("inf"), float("nan")])
def test_a_float_that_no_int_can_hold_is_named(number: float) -> None:
    finding = KERNELS.finding("conversion", *ints(0)[:2], np.array([number], np.float32))
    assert (finding.kind, finding.severity) == ("conversion out of range", "error")
    assert f"{number:g} does not fit int" in finding.why
    assert line_of(finding) == KERNELS.place("conversion", "int(")[0]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "text"),
    [("uchar", "does not fit uchar"), ("ulong", "does not fit ulong"), ("quotient", "divided by zero, as int"),
     ("ushort array", "(ushort[4])"), ("half array", "(half[2][4])")],
)  # fmt: skip
def test_types_have_the_names_that_metal_gives_them(name: str, text: str) -> None:
    numbers = ints(9 if "array" in name else 0)[:2]
    assert text in KERNELS.findings(name, *numbers, np.array([-1e30], np.float32))[0].why


def test_signed_overflow_is_found_on_request_only() -> None:
    numbers = ints(2**31 - 1, 1)
    assert KERNELS.findings("sum", *numbers) == ()
    finding = KERNELS.finding("sum", *numbers, overflow=True)
    assert (finding.kind, finding.severity) == ("signed overflow", "error")
    assert line_of(finding) == KERNELS.place("sum", "+")[0]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "numbers", "text"),
    [
        ("sum", (2**31 - 1, 1), "2147483647 + 1 does"),
        ("difference", (-2, 2**31 - 1), "-2 - 2147483647 does"),
        ("product", (65536, -65536), "65536 * (-65536) does"),
        ("negation", (-(2**31), 0), "0 - (-2147483648) does"),
        ("ratio", (-(2**31), -1), "-2147483648 / (-1) does"),
    ],
)
def test_an_overflow_is_shown_with_its_numbers(name: str, numbers: tuple[int, int], text: str) -> None:
    finding = KERNELS.finding(name, *ints(*numbers), overflow=True)
    assert finding.kind == "signed overflow"
    assert f"{text} not fit int" in finding.why


@pytest.mark.parametrize("option", ["overflow", "nan"])
def test_what_is_found_on_request_needs_a_checked_device(option: str) -> None:
    with pytest.raises(ost.DeviceUnavailable, match=f"{option}=True: only a device with checked=True"):
        open_backend("cpu", {"workers": 1, option: True})


@pytest.mark.parametrize("index", [8, -1, 1000])
def test_an_index_outside_of_a_local_array_is_named_with_the_array(index: int) -> None:
    finding = KERNELS.findings("local array", *ints(index))[0]
    assert (finding.kind, finding.severity) == ("out of bounds", "error")
    assert f"index {index} of 't' (float[8])" in finding.why
    line, column = KERNELS.place("local array", "t[x[0]]")
    assert place_of(finding)[0] == line
    assert place_of(finding)[1] in range(column, column + 8)


def test_an_index_outside_of_a_constant_array_is_found() -> None:
    finding = KERNELS.findings("constant array", *ints(4))[0]
    assert finding.kind == "out of bounds"
    assert line_of(finding) == KERNELS.place("constant array", "table[x")[0]


def test_a_negative_index_of_a_threadgroup_array_is_found() -> None:
    finding = KERNELS.findings("threadgroup array", *ints(-2))[0]
    assert finding.kind == "out of bounds"
    assert line_of(finding) == KERNELS.place("threadgroup array", "t[x[0]] = 3")[0]
    assert "index -2 of 't' (int[4])" in finding.why


@pytest.mark.parametrize(
    ("name", "text"),
    [("row", "index 9 of 'grid' (float[2][8])"), ("column", "index 9 of 'grid' (float[8])"),
     ("member", "index 9 of 'parts' (int[4])"), ("through a pointer", "index 9 of int[4]")],
)  # fmt: skip
def test_an_index_is_named_with_its_array_where_that_has_a_name(name: str, text: str) -> None:
    assert f": {text}" in KERNELS.findings(name, *ints(9))[0].why


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("name", "text", "alignment", "byte"),
    [
        ("vector", "= *v;", 16, 4),
        ("copied float4", "*from;", 16, 8),
        ("copied half4", "*from;", 8, 4),
        ("copied long4", "*from;", 32, 16),
        ("copied struct", "*from;", 16, 4),
        ("written float4", "*to =", 16, 4),
    ],
)
def test_a_vector_at_an_address_of_its_elements_is_misaligned(name: str, text: str, alignment: int, byte: int) -> None:
    findings = KERNELS.findings(name, np.zeros(16, np.int32), np.zeros(16, np.int32), np.zeros(8, np.float32))
    lines = {line_of(finding) for finding in findings}
    assert {(finding.kind, finding.severity) for finding in findings} == {("misaligned", "error")}
    assert KERNELS.place(name, text)[0] in lines
    assert f"is no multiple of {alignment}" in findings[0].why
    assert f"byte {byte} of argument " in findings[0].why


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", ["block", "vector by a cast", "vector read by a cast", "vector written by a cast"])
def test_a_cast_to_a_type_of_stricter_alignment_is_an_idiom_and_no_finding(name: str) -> None:
    """Quantised blocks are read like this; Apple's GPUs take any address."""
    assert KERNELS.findings(name, *ints(1, 2)) == ()


def test_reports_beyond_the_table_are_counted_one_by_one_and_errors_come_before_notes() -> None:
    shift = "kernel void shift(device int *x, uint i [[thread_position_in_grid]]) { x[i] = 1 << (x[i] + 40); }"
    quotient = "kernel void quotient(device int *x, uint i [[thread_position_in_grid]]) { x[i] = 1 / (x[i] - x[i]); }"
    with ost.open_device("cpu", checked=True) as dev:
        library, x = dev.library(f"{shift}\n{quotient}"), dev.zeros(2, np.int32)
        encoder = dev.command_encoder(barriers="serial")
        for _ in range(520):
            encoder.dispatch(library["shift"], x, threads=2)
        submission = encoder.commit()
        submission.wait()
        assert (len(submission.findings), submission.findings_lost) == (512, 2 * 8)
        encoder = dev.command_encoder(barriers="serial")
        for _ in range(520):
            encoder.dispatch(library["shift"], x, threads=2)
        encoder.dispatch(library["quotient"], x, threads=2)
        with pytest.raises(ost.KernelCheckError, match="full; further reports that were dropped: 17") as caught:
            encoder.commit_and_wait()
    assert caught.value.lost == 17
    assert [finding.kind for finding in caught.value.findings[:2]] == ["division by zero", "shift out of range"]


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("'unsigned int'", "uint"),
        ("'size_t' (aka 'unsigned long')", "ulong"),
        ("'unsigned long long'", "ulong"),
        ("'long long int'", "long"),
        ("'short unsigned int [4]'", "ushort[4]"),
        ("'_Float16 [2][4]'", "half[2][4]"),
        ("'float4' (aka 'metal::vec<float, 4>')", "float4"),
        ("'__ost::packed_vec<unsigned char, 3>'", "packed_uchar3"),
        ("'matrix<float, 4, 3>'", "float4x3"),
    ],
)
def test_every_spelling_of_a_compiler_is_a_type_of_metal(spelled: str, name: str) -> None:
    assert metal_type(spelled) == name
