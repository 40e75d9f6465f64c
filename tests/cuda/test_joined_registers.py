"""What joining adds to a function: PTX that assembles, of registers that still hold what they are taken for."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ostinato
from launching import HEAD
from nvrtc import Nvrtc
from ostinato.backends.cuda.ptx import joining
from ostinato.msl import Module, parse
from ptx_registers import assert_registers_hold
from ptxas import assemble

ROOT = Path(__file__).parents[2]
OWN = Path(ostinato.__file__).parent / "ops" / "kernels"
MATRICES = f"{HEAD}\n#include <metal_simdgroup_matrix>\n"

# The next round's elements are read before the product of this one.
AHEAD = """
kernel void ahead(device const TYPE *a, device const TYPE *b, device float *c, constant uint &depth,
                  ushort lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<float, 8, 8> sums(0.0f), x, y;
  device const TYPE *pa = a + 2 * lane, *pb = b + 2 * lane;
  TYPE a0 = pa[0], a1 = pa[1], b0 = pb[0], b1 = pb[1];
  for (uint k = 0; k < depth; ++k) {
    x.thread_elements()[0] = float(a0); x.thread_elements()[1] = float(a1);
    y.thread_elements()[0] = float(b0); y.thread_elements()[1] = float(b1);
    pa += 64; pb += 64;
    a0 = pa[0]; a1 = pa[1]; b0 = pb[0]; b1 = pb[1];
    simdgroup_multiply_accumulate(sums, x, y, sums);
  }
  simdgroup_store(sums, c, 8);
}"""

THREADGROUP = """
__attribute__((noinline)) void late(device float *out, float x) {
  for (uint i = 0; i < uint(x); ++i) out[i] = x / out[i + 1];
}
kernel void product(device const half *in, device float *out, constant uint &more,
                    uint i [[thread_index_in_threadgroup]]) {
  threadgroup half memory[64 * 24];
  for (uint k = i; k < 64 * 24; k += 32) { memory[k] = in[k]; }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_half8x8 a[4], b[2];
  simdgroup_float8x8 sums[2];
  for (int j = 0; j < 2; ++j) {
    sums[j] = simdgroup_float8x8(0);
    simdgroup_load(b[j], memory + (SECOND + 8 * j) * 24, 24);
  }
  for (int j = 0; j < 4; ++j) { simdgroup_load(a[j], memory + (FIRST + j % 2 * 8) * 24 + j / 2 * 8, 24); }
  for (int j = 0; j < 4; ++j) { simdgroup_multiply_accumulate(sums[j % 2], a[j], b[j / 2], sums[j % 2]); }
  for (int j = 0; j < 2; ++j) { simdgroup_store(sums[j], out + 64 * j); }
  if (more) { late(out, out[more]); }
}"""


def joined(text: str, folder: Path, tf32: bool = False) -> str:
    """The joined program of a translated source, of which every function holds."""
    compiled = Nvrtc().compile_text("#define __OST_TF32 1\n" * tf32 + text)
    assert compiled.ptx, compiled.log
    result = joining.joined(compiled.ptx)
    assert_registers_hold(compiled.ptx, result)
    assemble(result, folder)
    return result


@pytest.mark.parametrize("element", ["half", "bfloat"])
def test_elements_that_are_read_ahead_are_those_of_their_own_round(element: str, tmp_path: Path) -> None:
    text = parse(MATRICES + AHEAD.replace("TYPE", element)).translate("cuda").text
    result = joined(text, tmp_path, tf32=True)
    assert ("tf32.tf32" in result) == (element == "half")


def product(first: int, second: int, folder: Path) -> str:
    source = THREADGROUP.replace("FIRST", f"{first}").replace("SECOND", f"{second}")
    return joined(parse(MATRICES + source).translate("cuda").text, folder)


def test_what_lanes_compute_once_stands_before_all_calls(tmp_path: Path) -> None:
    result = product(32, 0, tmp_path)
    assert result.index("bfe.u32") < result.index("ldmatrix.sync.aligned.m8n8.x4") < result.index("temp_param_reg")


def test_a_matrix_before_another_one_is_fetched_at_a_negative_distance(tmp_path: Path) -> None:
    assert re.search(r"ldmatrix\S+ \{[^}]*\}, \[%r\d+\+-\d+\]", product(0, 32, tmp_path))


def conformance() -> Module:
    path = ROOT / "tests" / "conformance" / "msl" / "test_simdgroup_matrix.py"
    spec = importlib.util.spec_from_file_location("conformance_simdgroup_matrix", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return parse(module.SOURCE)


KERNELS: dict[str, Callable[[], Module]] = {
    "conformance": conformance,
    "attention_parts": lambda: parse(OWN / "attention_parts.metal"),
    "attention_tiles": lambda: parse(OWN / "attention_tiles.metal"),
    "tensor_cores": lambda: parse(ROOT / "bench" / "tensor_cores.metal"),
}


@pytest.mark.parametrize(("name", "tf32"), [*((name, False) for name in KERNELS), ("conformance", True)])
def test_kernels_with_matrices_are_joined_into_what_drivers_accept(name: str, tf32: bool, tmp_path: Path) -> None:
    module = KERNELS[name]()
    values: dict[int | str, object] = {constant.name: 4 for constant in module.constants}
    joined(module.translate("cuda", values, list(module.kernels)[::5]).text, tmp_path, tf32)
