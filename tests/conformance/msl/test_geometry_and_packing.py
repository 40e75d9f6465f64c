"""Geometric functions on vectors, and the functions that pack colours and normals into integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

PACKED = {
    "unorm4x8": (4, 8, False),
    "snorm4x8": (4, 8, True),
    "unorm2x16": (2, 16, False),
    "snorm2x16": (2, 16, True),
}

SOURCE = f"""{HEAD}
template <typename V> kernel void geometry(device const V *a, device const V *b, device float *scalars, device V *vectors) {{
  const V x = a[0], y = b[0];
  scalars[0] = dot(x, y); scalars[1] = length(x); scalars[2] = length_squared(x); scalars[3] = distance(x, y);
  scalars[4] = distance_squared(x, y);
  vectors[0] = normalize(x); vectors[1] = reflect(x, normalize(y)); vectors[2] = refract(normalize(x), normalize(y), 0.5);
  vectors[3] = faceforward(x, y, x); vectors[4] = faceforward(x, -y, x); vectors[5] = refract(normalize(x), normalize(y), 9);
}}
#define GEOMETRY(v) template [[host_name("geometry_" #v)]] kernel void geometry<v>(device const v *, device const v *, device float *, device v *);
GEOMETRY(float2) GEOMETRY(float3) GEOMETRY(float4) GEOMETRY(half2) GEOMETRY(half3) GEOMETRY(half4)
kernel void crosses(device const packed_float3 *a, device packed_float3 *out, device packed_half3 *narrow) {{
  out[0] = cross(float3(a[0]), float3(a[1])); narrow[0] = cross(half3(float3(a[0])), half3(float3(a[1])));
}}
kernel void pack(device const float4 *x, device uint *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  out[i] = pack_float_to_unorm4x8(x[i]); out[n + i] = pack_float_to_snorm4x8(x[i]);
  out[2 * n + i] = pack_float_to_unorm2x16(x[i].xy); out[3 * n + i] = pack_float_to_snorm2x16(x[i].xy);
  out[4 * n + i] = pack_half_to_unorm4x8(half4(x[i])); out[5 * n + i] = pack_float_to_unorm10a2(x[i]);
  out[6 * n + i] = pack_float_to_unorm565(x[i].xyz); out[7 * n + i] = pack_half_to_snorm2x16(half2(x[i].xy));
}}
kernel void unpack(device const uint *x, device float4 *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  out[i] = unpack_unorm4x8_to_float(x[i]); out[n + i] = unpack_snorm4x8_to_float(x[i]);
  out[2 * n + i] = float4(unpack_unorm2x16_to_float(x[i]), 0, 0); out[3 * n + i] = float4(unpack_snorm2x16_to_float(x[i]), 0, 0);
  out[4 * n + i] = float4(unpack_unorm4x8_to_half(x[i])); out[5 * n + i] = unpack_unorm10a2_to_float(x[i]);
  out[6 * n + i] = float4(unpack_unorm565_to_float(ushort(x[i])), 0); out[7 * n + i] = unpack_unorm4x8_srgb_to_float(x[i]);
}}
kernel void pack_srgb(device const float4 *x, device uint *out, uint i [[thread_position_in_grid]]) {{
  out[i] = pack_float_to_srgb_unorm4x8(x[i]);
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("name", ["float", "half"])
def test_geometric_functions_match_their_definitions(dev: ost.Device, library: ost.Library, name: str, n: int) -> None:
    dtype: Any = np.float32 if name == "float" else np.float16
    x, y = np.zeros(4, dtype), np.zeros(4, dtype)
    x[:n], y[:n] = np.array([1.5, -2, 0.75, 3])[:n], np.array([0.5, 1, -1.25, 2])[:n]
    width = 4 if n == 3 else n
    scalars, vectors = launch(
        dev, library[f"geometry_{name}{n}"], x[:width], y[:width], np.zeros(5, np.float32), np.zeros((6, width), dtype)
    )
    a, b = x[:n].astype(np.float64), y[:n].astype(np.float64)

    def d(v: np.ndarray) -> float:
        return float(np.linalg.norm(v))

    unit, normal = a / d(a), b / d(b)
    k = 1 - 0.25 * (1 - (normal @ unit) ** 2)
    tolerance = 1e-6 if name == "float" else 4e-3
    np.testing.assert_allclose(scalars, np.array([a @ b, d(a), a @ a, d(a - b), (a - b) @ (a - b)]), rtol=tolerance)
    expected = [unit, a - 2 * (normal @ a) * normal, 0.5 * unit - (0.5 * (normal @ unit) + np.sqrt(k)) * normal]
    expected += [a if a @ b < 0 else -a, a if a @ b > 0 else -a, np.zeros(n)]
    for mine, theirs in zip(vectors[:, :n], expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def test_the_cross_product_is_perpendicular(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.array([1, 2, 3], np.float32), np.array([-2, 5, 0.5], np.float32)
    wide, narrow = launch(dev, library["crosses"], np.stack([a, b]), np.zeros(3, np.float32), np.zeros(3, np.float16))
    np.testing.assert_array_equal(wide, np.cross(a, b))
    np.testing.assert_array_equal(narrow, np.cross(a, b))


def quantised(x: Any, bits: int, signed: bool) -> Any:
    top = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    return np.rint(np.clip(x, -1.0 if signed else 0.0, 1) * top).astype(np.int64) & (2**bits - 1)


def joined(fields: Any, widths: list[int]) -> Any:
    """Fields from the least significant bits up."""
    whole, shift = np.zeros(fields.shape[0], np.int64), 0
    for column, width in zip(fields.T, widths, strict=True):
        whole |= column << shift
        shift += width
    return whole.astype(np.uint32)


def test_numbers_are_packed_by_rounding_to_the_nearest_step(dev: ost.Device, library: ost.Library) -> None:
    x = np.random.default_rng(6).uniform(-1.3, 1.3, (500, 4)).astype(np.float16).astype(np.float32)
    x[:3] = np.array([[0, 1, -1, 2], [-0.0, 0.25, 0.75, 1], [1, 1, 1, 1]])
    got = launch(dev, library["pack"], x, np.zeros(8 * 500, np.uint32), 500, threads=500).reshape(8, 500)
    exact = x.astype(np.float64)
    for row, (lanes, bits, signed) in enumerate(PACKED.values()):
        np.testing.assert_array_equal(got[row], joined(quantised(exact[:, :lanes], bits, signed), [bits] * lanes))
    np.testing.assert_array_equal(got[4], got[0])
    ten = np.concatenate([quantised(exact[:, :3], 10, False), quantised(exact[:, 3:], 2, False)], axis=1)
    np.testing.assert_array_equal(got[5], joined(ten, [10, 10, 10, 2]))
    np.testing.assert_array_equal(got[7], got[3])


def test_packed_numbers_are_unpacked_to_their_fraction_of_the_range(dev: ost.Device, library: ost.Library) -> None:
    words = np.random.default_rng(8).integers(0, 2**32, 500, dtype=np.uint32)
    words[:3] = [0, 0xFFFFFFFF, 0x80808080]
    got = launch(dev, library["unpack"], words, np.zeros((8, 500, 4), np.float32), 500, threads=500)
    for row, (lanes, bits, signed) in enumerate(PACKED.values()):
        fields = np.stack([(words >> np.uint32(bits * k)) & np.uint32(2**bits - 1) for k in range(lanes)], 1).astype(
            np.int64
        )
        if signed:
            fields = np.where(fields >= 2 ** (bits - 1), fields - 2**bits, fields)
        expected = np.maximum(fields / (2 ** (bits - 1) - 1), -1) if signed else fields / (2**bits - 1)
        np.testing.assert_allclose(got[row][:, :lanes], expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got[4], got[0], atol=1e-3)
    ten = np.stack([(words >> np.uint32(10 * k)) & np.uint32(1023) for k in range(3)], 1) / 1023
    np.testing.assert_allclose(got[5], np.concatenate([ten, (words >> np.uint32(30))[:, None] / 3], 1), rtol=1e-6)


def test_565_survives_a_round_trip(dev: ost.Device, library: ost.Library) -> None:
    words = np.arange(0, 65536, 7, dtype=np.uint32)
    n = len(words)
    colours = launch(dev, library["unpack"], words, np.zeros((8, n, 4), np.float32), n, threads=n)[6]
    back = launch(dev, library["pack"], colours, np.zeros(8 * n, np.uint32), n, threads=n).reshape(8, n)[6]
    np.testing.assert_array_equal(back, words)


def test_srgb_is_a_curve_for_colours_and_a_line_for_alpha(dev: ost.Device, library: ost.Library) -> None:
    words = np.random.default_rng(8).integers(0, 2**32, 500, dtype=np.uint32)
    colours = launch(dev, library["unpack"], words, np.zeros((8, 500, 4), np.float32), 500, threads=500)[7]
    encoded = words.view(np.uint8).reshape(500, 4) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    linear[:, 3] = encoded[:, 3]
    np.testing.assert_allclose(colours, linear, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(
        launch(dev, library["pack_srgb"], colours, np.zeros(500, np.uint32), threads=500), words
    )
