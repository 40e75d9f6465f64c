"""Products of simdgroup matrices joined in PTX: what is joined, and that every sum keeps its products."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from nvrtc import Nvrtc
from ostinato.backends.cuda import compiling
from ostinato.backends.cuda.ptx import joining
from ostinato.backends.cuda.ptx.joining import has_tiles
from ostinato.msl import cuda_options, parse
from ptx_registers import assert_registers_hold

MMA = re.compile(
    r"mma\.sync\.aligned\.(m16n8k\d+)\.row\.col\.f32\.(\w+)\.\w+\.f32 \{(.*?)\}, \{(.*?)\}, \{(.*?)\}, \{(.*?)\};"
)
REGISTER = re.compile(r"%[a-z]+\d+")
HEAD = "{ .reg .b32 none; .reg .f32 nil, unused0, unused1; mov.b32 none, 0; mov.f32 nil, 0f00000000;"


def joined(lines: str) -> str:
    """Of a function's lines."""
    return joining.joined(f"{{\n{lines}\n}}")[2:-2]


def tile(to: str, left: str, right: str, before: str, kind: str = "bf16") -> str:
    shape = f"mma.sync.aligned.m16n8k8.row.col.f32.{kind}.{kind}.f32"
    return f"\t{HEAD} {shape} {{{to}, unused0, unused1}}, {{{left}, none}}, {{{right}}}, {{{before}, nil, nil}}; }}"


def turn(to: str, of: str) -> str:
    return f"\tmovmatrix.sync.aligned.m8n8.trans.b16 {to}, {of};"


def reading(registers: range) -> list[str]:
    """Every register of a program is given its value somewhere."""
    return [f"\tld.shared.u32 %r{number}, [%rd{number}];" for number in registers]


def shapes(ptx: str) -> Counter[str]:
    return Counter(found[0] for found in MMA.findall(ptx))


def stored(ptx: str) -> list[Any]:
    """What a program stores, as expressions of the values that it starts with; sums are sets of products."""
    values: dict[str, Any] = {}

    def value(register: str) -> Any:
        return values.get(register, register)

    results: list[Any] = []
    for line in ptx.split("\n"):
        product = MMA.search(line)
        if product is not None:
            to, left, right, before = (part.split(", ") for part in product.groups()[2:])
            sums = []
            for row in range(2):
                terms = Counter((value(left[2 * part + row]), value(factor)) for part, factor in enumerate(right))
                for column in range(2):
                    base = value(before[2 * row + column])
                    start, known = (base[1], Counter(dict(base[2]))) if base[0] == "sum" else (base, Counter())
                    sums.append(("sum", start, frozenset((known + terms).items())))
            values.update(zip(to, sums, strict=True))
        elif line.lstrip().startswith("st."):
            results.append([value(register) for register in REGISTER.findall(line)])
        elif line.strip() and not line.strip().startswith(("$", "bra")):
            operation, _, operands = line.strip().partition(" ")
            first, *others = REGISTER.findall(operands)
            values[first] = (operation, *(value(register) for register in others))
    return results


def blocked(rows: int, columns: int, depth: int) -> str:
    """The PTX of a loop over tiles that was unrolled: every right operand is transposed for each product."""
    lines, turned = [], 500
    sums = {
        (i, j): f"%f{100 + 2 * (i * columns + j)}, %f{101 + 2 * (i * columns + j)}"
        for i in range(rows)
        for j in range(columns)
    }
    fresh = 1000
    for k in range(depth):
        for i in range(rows):
            for j in range(columns):
                turned, fresh = turned + 1, fresh + 2
                lines.append(turn(f"%r{turned}", f"%r{200 + k * columns + j}"))
                to = f"%f{fresh}, %f{fresh + 1}"
                lines.append(tile(to, f"%r{300 + k * rows + i}", f"%r{turned}", sums[i, j]))
                sums[i, j] = to
    lines += [f"\tst.global.v2.f32 [%rd1], {{{pair}}};" for pair in sums.values()]
    return "\n".join([*reading(range(200, 200 + depth * columns)), *lines])


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((2, 2, 2), {"m16n8k16": 2}),
        ((8, 4, 4), {"m16n8k16": 32}),
        ((2, 2, 1), {"m16n8k8": 2}),
        ((1, 1, 2), {"m16n8k16": 1}),
        ((3, 1, 3), {"m16n8k16": 2, "m16n8k8": 2}),
    ],
    ids=str,
)
def test_an_unrolled_product_takes_the_largest_shapes(size: tuple[int, int, int], expected: dict[str, int]) -> None:
    ptx = blocked(*size)
    assert has_tiles(ptx)
    result = joined(ptx)
    assert shapes(result) == expected
    assert stored(result) == stored(ptx)


def test_functions_of_one_program_share_names_of_registers() -> None:
    body = blocked(2, 2, 2)
    assert shapes(joining.joined(f"{{\n{body}\n}}\n.visible .entry second()\n{{\n{body}\n}}")) == {"m16n8k16": 4}


def test_tiles_of_tf32_are_paired_and_stay_as_deep_as_they_are() -> None:
    lines = [
        tile("%f1, %f2", "%r1, none, %r2", "%r9, %r10", "%f11, %f12", "tf32"),
        tile("%f3, %f4", "%r3, none, %r4", "%r9, %r10", "%f13, %f14", "tf32"),
        tile("%f5, %f6", "%r5, none, %r6", "%r7, %r8", "%f1, %f2", "tf32"),
        tile("%f7, %f8", "%r1, none, %r6", "%r7, %r8", "%f3, %f4", "tf32"),
        "\tst.global.v4.f32 [%rd1], {%f5, %f6, %f7, %f8};",
    ]
    ptx = "\n".join(lines)
    assert shapes(joined(ptx)) == {"m16n8k8": 2}
    assert stored(joined(ptx)) == stored(ptx)


@pytest.mark.parametrize(
    "between",
    [
        "\tst.global.v2.f32 [%rd1], {%f1, %f2};",  # reads the sum
        "\tmov.b32 %r1, %r8;",  # the left operand changes
        "\tmov.f32 %f11, %f20;",  # so does what it adds to
        "$L__BB0_1:",  # others may come here
        "\tbra $L__BB0_2;",
    ],
)
def test_a_product_does_not_move_past_what_it_has_to_do_with(between: str) -> None:
    lines = [tile("%f1, %f2", "%r1", "%r9", "%f11, %f12"), between, tile("%f3, %f4", "%r2", "%r9", "%f13, %f14")]
    assert shapes(joined("\n".join(lines))) == {"m16n8k8": 2}


def test_a_sum_that_somebody_else_reads_is_computed() -> None:
    lines = [
        tile("%f1, %f2", "%r1", "%r8", "%f11, %f12"),
        tile("%f3, %f4", "%r2", "%r9", "%f1, %f2"),
        "\tst.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};",
    ]
    assert shapes(joined("\n".join(lines))) == {"m16n8k8": 2}


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Products in any order, with copies, stores and branches between them."""
    sums = [f"%f{2 * i}, %f{2 * i + 1}" for i in range(1, 5)]
    lines, fresh, turned = [], 100, 900
    for _ in range(draw(st.integers(1, 24))):
        kind = draw(st.integers(0, 9))
        at = draw(st.integers(0, 3))
        if kind < 6:
            right = f"%r{draw(st.integers(5, 7))}"
            if draw(st.booleans()):
                turned += 1
                lines.append(turn(f"%r{turned}", right))
                right = f"%r{turned}"
            to = f"%f{fresh}, %f{fresh + 1}"
            fresh += 2
            lines.append(
                tile(to, f"%r{draw(st.integers(1, 4))}", right, sums[at], draw(st.sampled_from(["f16", "bf16"])))
            )
            sums[at] = to
        elif kind == 6:
            lines.append(f"\tst.global.v2.f32 [%rd1], {{{sums[at]}}};")
        elif kind == 7:
            lines.append(f"\tmov.b32 %r{draw(st.integers(1, 7))}, %r{draw(st.integers(1, 7))};")
        elif kind == 8:
            lines.append(f"\tmov.f32 {sums[at].split(', ')[0]}, {sums[draw(st.integers(0, 3))].split(', ')[1]};")
        else:
            lines.append(f"$L__BB0_{len(lines)}:")
    lines += [f"\tst.global.v2.f32 [%rd1], {{{pair}}};" for pair in sums]
    return "\n".join([*reading(range(1, 8)), *lines])


@settings(max_examples=300, deadline=None)
@given(programs())
def test_every_sum_keeps_its_products(ptx: str) -> None:
    assert stored(joined(ptx)) == stored(ptx)
    assert_registers_hold(f"{{\n{ptx}\n}}", f"{{\n{joined(ptx)}\n}}")


SOURCE = """#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
kernel void blocked(device const ELEMENT *a, device const ELEMENT *b, device float *c, constant uint &depth) {
  simdgroup_matrix<float, 8, 8> sums[2][2];
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) sums[i][j] = simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < depth; k += 16) {
    #pragma unroll
    for (uint part = 0; part < 2; ++part) {
      simdgroup_matrix<ELEMENT, 8, 8> x[2], y[2];
      for (int i = 0; i < 2; ++i) simdgroup_load(x[i], a + i * 8 * depth + k + part * 8, depth);
      for (int j = 0; j < 2; ++j) simdgroup_load(y[j], b + (k + part * 8) * 16 + j * 8, 16);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) simdgroup_multiply_accumulate(sums[i][j], x[i], y[j], sums[i][j]);
    }
  }
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) simdgroup_store(sums[i][j], c + i * 128 + j * 8, 16);
}"""


@pytest.mark.parametrize("element", ["half", "bfloat"])
def test_what_nvrtc_writes_is_joined(element: str) -> None:
    compiled = Nvrtc().compile(parse(SOURCE.replace("ELEMENT", element)).translate("cuda"))
    assert shapes(compiled.ptx) == {"m16n8k8": 8}, compiled.log
    assert shapes(joining.joined(compiled.ptx)) == {"m16n8k16": 2}


def test_a_driver_that_does_not_assemble_joined_products_is_worked_around_with_a_warning(nvrtc: Nvrtc) -> None:
    def refuse(ptx: str) -> bytes:
        raise ost.DeviceError("CUDA_ERROR_INVALID_PTX")

    text = parse(SOURCE.replace("ELEMENT", "half")).translate("cuda").text
    with pytest.warns(ost.OstinatoWarning, match="does not assemble joined products.*INVALID_PTX"):
        image = compiling._compile(text, cuda_options("sm_90"), refuse)
    assert image.startswith(b"\x7fELF")


def test_float_stays_exact_unless_asked_for_tf32() -> None:
    translation = parse(SOURCE.replace("ELEMENT", "float")).translate("cuda")
    assert not has_tiles(Nvrtc().compile(translation).ptx)
    compiled = Nvrtc().compile_text("#define __OST_TF32 1\n" + translation.text)
    assert shapes(compiled.ptx) == {"m16n8k8": 8}, compiled.log
    assert shapes(joining.joined(compiled.ptx)) == {"m16n8k8": 4}
