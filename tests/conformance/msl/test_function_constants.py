"""Function constants of every scalar type, derived constants, optional ones, and the arguments they guard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

TYPES = {
    "bool": True,
    "char": -7,
    "uchar": 250,
    "short": -30000,
    "ushort": 60000,
    "int": -(2**31),
    "uint": 2**32 - 1,
    "long": -(2**63),
    "ulong": 2**64 - 1,
    "half": 0.333251953125,
    "bfloat": 1.5078125,
    "float": 0.1,
}
DTYPES: dict[str, Any] = {
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "half": np.float16,
    "bfloat": "bfloat16",
}
DTYPES |= {"short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32}
DTYPES |= {"long": np.int64, "ulong": np.uint64, "float": np.float32}

EDGES = [np.inf, -np.inf, np.nan, -0.0, 1e-40, 3.4e38]

SOURCE = f"""{HEAD}
{chr(10).join(f"constant {t} value_{t} [[function_constant({k})]];" for k, t in enumerate(TYPES))}
{chr(10).join(f"kernel void store_{t}(device {t} *out) {{ out[0] = value_{t}; }}" for t in TYPES)}
constant int twice = value_char * 2;
constant bool large = value_uint > 1000u && value_bool;
kernel void derived(device int *out) {{
  out[0] = twice; out[1] = large; out[2] = is_function_constant_defined(value_int) ? 1 : 0;
  threadgroup float tile[value_uchar]; tile[0] = 1; out[3] = sizeof(tile) / 4;
  switch (out[4]) {{ case 0: out[4] = value_bool ? 5 : 6; }}
  if (value_bool) out[5] = 1; else out[5] = 2;
  float unrolled = 0; for (int k = 0; k < value_uchar - 240; ++k) unrolled += 1; out[6] = int(unrolled);
}}
"""

GUARDED = f"""{HEAD}
constant bool has_bias [[function_constant(0)]];
constant float scale_given [[function_constant(1)]];
constant int mode [[function_constant(20)]];
constant float scale = is_function_constant_defined(scale_given) ? scale_given : 10.0;
constant bool fancy = is_function_constant_defined(mode) && mode == 2;
constant bool plain = !fancy;
kernel void affine(device const float *x [[buffer(0)]], device const float *bias [[buffer(1), function_constant(has_bias)]],
                   device float *out [[buffer(2)]], constant float &extra [[buffer(3)]] [[function_constant(fancy)]],
                   device int *log [[buffer(4), function_constant(plain)]], threadgroup float *tile [[threadgroup(0), function_constant(fancy)]],
                   uint i [[thread_position_in_grid]]) {{
  float r = x[i] * scale;
  if (has_bias) r += bias[i];
  if (fancy) {{ tile[0] = extra; r += tile[0]; }}
  if (plain) log[i] = 1;
  out[i] = r;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE, constants=dict(enumerate(TYPES.values())))


@pytest.mark.parametrize("type_name", TYPES)
def test_a_constant_of_every_scalar_type_has_its_value(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    dtype = np.dtype(DTYPES[type_name])
    got = launch(dev, library[f"store_{type_name}"], np.zeros(1, dtype))
    assert got[0] == np.asarray(TYPES[type_name]).astype(dtype)


def test_constants_derive_from_constants(dev: ost.Device, library: ost.Library) -> None:
    np.testing.assert_array_equal(launch(dev, library["derived"], np.zeros(7, np.int32)), [-14, 1, 1, 250, 5, 1, 10])


@pytest.fixture(scope="module")
def edges(dev: ost.Device) -> Any:
    constants = "".join(f"constant float v{k} [[function_constant({k})]];\n" for k in range(len(EDGES)))
    stores = "".join(f" out[{k}] = v{k};" for k in range(len(EDGES)))
    library = dev.library(f"{HEAD}{constants}kernel void k(device float *out) {{{stores} }}", dict(enumerate(EDGES)))
    return launch(dev, library["k"], np.zeros(len(EDGES), np.float32))


@pytest.mark.parametrize("value", EDGES, ids=str)
def test_floats_at_the_edge_arrive_bit_for_bit(edges: Any, value: float) -> None:
    got = edges[list(map(str, EDGES)).index(str(value))]
    assert np.array_equal(got, np.float32(value), equal_nan=True)
    assert np.signbit(got) == np.signbit(value)


def test_constants_may_be_named_and_are_part_of_the_library(dev: ost.Device) -> None:
    named: dict[int | str, float] = {"has_bias": True, "scale_given": 3.0}
    kernel = dev.library(GUARDED, constants=named)["affine"]
    x = np.arange(4, dtype=np.float32)
    out, log = launch(dev, kernel, x, x * 100, np.zeros(4, np.float32), np.zeros(4, np.int32), threads=4)
    np.testing.assert_array_equal(out, x * 3 + x * 100)
    np.testing.assert_array_equal(log, 1)


def test_an_optional_constant_without_value_is_not_defined(dev: ost.Device) -> None:
    kernel = dev.library(GUARDED, constants={0: False})["affine"]
    assert [argument.name for argument in kernel.signature.arguments] == ["x", "out", "log"]
    x = np.arange(4, dtype=np.float32)
    out, _ = launch(dev, kernel, x, np.zeros(4, np.float32), np.zeros(4, np.int32), threads=4)
    np.testing.assert_array_equal(out, x * 10)


def test_guarded_arguments_appear_with_their_constant(dev: ost.Device) -> None:
    kernel = dev.library(GUARDED, constants={0: False, 20: 2, 1: -1.0})["affine"]
    assert [argument.index for argument in kernel.signature.arguments] == [0, 2, 3]
    x = np.arange(4, dtype=np.float32)
    out = launch(dev, kernel, x, np.zeros(4, np.float32), 0.5, threads=4, shared={0: 16})
    np.testing.assert_array_equal(out, -x + 0.5)


def test_an_undefined_constant_that_nothing_asks_about_is_an_error(dev: ost.Device) -> None:
    with pytest.raises(ost.ConstantError, match="has_bias"):
        dev.library(GUARDED)
