"""Numbers that are read and written through casts to a type of stricter alignment, at addresses that are no multiples of
it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SOURCE = f"""{HEAD}
struct Block {{ half scale; uchar high[4]; uchar low[16]; }};
struct Mixed {{ uint count; uchar tag; uchar bytes[7]; }};

kernel void words_of_blocks(device const Block *blocks, device uint *out, uint i [[thread_position_in_grid]]) {{
  device const Block *block = blocks + i;
  device const uint *low = (device const uint *)block->low;
  out[7 * i] = *(device const uint *)blocks[i].high; out[7 * i + 1] = *((device const uint *)block->low + 1);
  out[7 * i + 2] = ((device const uint *)(block->high + 2))[0]; out[7 * i + 3] = *low; out[7 * i + 4] = low[3] ^ low[i & 3];
  low += 2; out[7 * i + 5] = i > 2 ? low[0] : 7; out[7 * i + 6] = (*(device const ushort2 *)block->high).y;
}}
kernel void halves_of_structs(device const Mixed *all, device uint *out, uint i [[thread_position_in_grid]]) {{
  device const ushort *odd = (device const ushort *)all[i].bytes; device const ushort *even = (device const ushort *)(all[i].bytes + 1);
  out[3 * i] = odd[2]; out[3 * i + 1] = even[2]; out[3 * i + 2] = *(device const ulong *)&all[i] >> 32;
}}
kernel void anywhere(device const uchar *bytes, device ulong *out, uint i [[thread_position_in_grid]]) {{
  out[4 * i] = *(device const ushort *)(bytes + i); out[4 * i + 1] = reinterpret_cast<device const uint *>(bytes + i)[1];
  out[4 * i + 2] = *reinterpret_cast<device const ulong *>(&bytes[i]); out[4 * i + 3] = *(device const uchar *)(bytes + i);
}}
kernel void written(device ushort *words, uint i [[thread_position_in_grid]]) {{
  *(device uint *)(words + 3 * i + 1) = 0x10001 * i; ((device uint *)(words + 3 * i))[0] += 5u;
}}
kernel void groups(device const uint *in, device uint *out, uint i [[thread_position_in_threadgroup]]) {{
  threadgroup uchar bytes[64];
  for (uint k = 0; k < 4; ++k) bytes[4 * i + k] = in[i] >> (8 * k);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uchar own[8]; for (uint k = 0; k < 8; ++k) own[k] = bytes[4 * i + k];
  out[2 * i] = *(threadgroup const uint *)(bytes + 4 * i + 1); out[2 * i + 1] = *(thread const uint *)(own + 3);
}}
#define ROWS(name, MEET) \
kernel void name(device const float *from, device float *to, constant uint &width, device const uchar *bytes, \
    uint i [[thread_position_in_grid]]) {{ \
  device const float *row = from + i * width; device float *out = to + i * width; \
  device const float4 *row4 = (device const float4 *)row; device float4 *out4 = (device float4 *)out; \
  device const float4 *next4 = (device const float4 *)(bytes + 4 * i * width); \
  MEET; \
  uint k = 0; \
  for (; k < width / 4; ++k) *(out4 + k) = *(row4 + k) + 2.0f * max(row4[k], next4[k]); \
  for (k *= 4; k < width; ++k) out[k] = 3.0f * row[k]; \
  if (width > 8) *(device float4 *)(out + 1) = *(device const float4 *)(row + 1); \
}}
ROWS(rows_alone, ) ROWS(rows_of_groups, threadgroup_barrier(mem_flags::mem_none)) ROWS(rows_of_lanes, simdgroup_barrier(mem_flags::mem_none))
kernel void triples(device const uchar *bytes, device uchar *out, device uint *sums, uint i [[thread_position_in_grid]]) {{
  uchar3 three = (reinterpret_cast<device const uchar3 *>(bytes + 3 * i))[0];
  sums[i] = three[0] + 256 * three[1] + 65536 * three[2];
  reinterpret_cast<device uchar3 *>(out + 4 * i + 2)[0] = three;
}}
"""

COUNT = 8
BYTES = np.random.default_rng(3).integers(0, 256, 4096, dtype=np.uint8)


def at(offset: int, dtype: Any, source: Any = BYTES) -> int:
    """The number at a byte offset."""
    return int(source[offset : offset + np.dtype(dtype).itemsize].view(dtype)[0])


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def test_words_are_read_from_the_bytes_of_blocks(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["words_of_blocks"], BYTES[: 22 * COUNT], np.zeros(7 * COUNT, np.uint32), threads=COUNT)
    expected = []
    for i in range(COUNT):
        b = 22 * i
        expected += [at(b + 2, "u4"), at(b + 10, "u4"), at(b + 4, "u4"), at(b + 6, "u4")]
        expected += [
            at(b + 18, "u4") ^ at(b + 6 + 4 * (i & 3), "u4"),
            at(b + 14, "u4") if i > 2 else 7,
            at(b + 4, "u2"),
        ]
    assert got.tolist() == expected


def test_parts_of_structs_are_read_at_odd_and_even_offsets(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["halves_of_structs"], BYTES[: 12 * COUNT], np.zeros(3 * COUNT, np.uint32), threads=COUNT)
    places = [[(12 * i + 9, "u2"), (12 * i + 10, "u2"), (12 * i + 4, "u4")] for i in range(COUNT)]
    assert got.tolist() == [at(*place) for three in places for place in three]


def test_numbers_of_every_size_are_read_anywhere(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["anywhere"], BYTES[:64], np.zeros(4 * COUNT, np.uint64), threads=COUNT)
    places = [[(i, "u2"), (i + 4, "u4"), (i, "u8"), (i, "u1")] for i in range(COUNT)]
    assert got.tolist() == [at(*place) for four in places for place in four]


def test_what_is_written_lies_where_it_belongs(dev: ost.Device, library: ost.Library) -> None:
    words = launch(dev, library["written"], np.ones(3 * COUNT, np.uint16), threads=COUNT)
    assert words.tolist() == [word for i in range(COUNT) for word in (6, i, i)]


def test_threadgroup_and_private_memory_are_read_so_too(dev: ost.Device, library: ost.Library) -> None:
    data = BYTES[:64].copy()
    got = launch(dev, library["groups"], data.view(np.uint32), np.zeros(32, np.uint32), threads=16, group_size=16)
    for i in range(15):
        assert got[2 * i] == at(4 * i + 1, "u4", data)
        assert got[2 * i + 1] == at(4 * i + 3, "u4", data)


@pytest.mark.parametrize("width", [8, 9, 10, 11])
@pytest.mark.parametrize("kernel", ["rows_alone", "rows_of_groups", "rows_of_lanes"])
def test_vectors_are_read_and_written_in_rows_of_any_width(
    dev: ost.Device, library: ost.Library, kernel: str, width: int
) -> None:
    values = np.random.default_rng(width).standard_normal((COUNT, width), dtype=np.float32)
    arguments = values, np.zeros_like(values), width, values.view(np.uint8)
    expected = 3 * values
    if width > 8:
        expected[:, 1:5] = values[:, 1:5]
    got = launch(dev, library[kernel], *arguments, threads=COUNT, group_size=COUNT)
    np.testing.assert_array_equal(got, expected)


def test_vectors_of_three_bytes_are_read_and_written_anywhere(dev: ost.Device, library: ost.Library) -> None:
    out = np.zeros(4 * COUNT + 4, np.uint8)
    arguments = BYTES[: 3 * COUNT + 1], out, np.zeros(COUNT, np.uint32)
    copies, sums = launch(dev, library["triples"], *arguments, threads=COUNT)
    assert sums.tolist() == [at(3 * i, "u2") + 65536 * at(3 * i + 2, "u1") for i in range(COUNT)]
    np.testing.assert_array_equal(copies[2:-2].reshape(-1, 4)[:, :3], BYTES[: 3 * COUNT].reshape(-1, 3))


def test_structs_of_bytes_are_copied_from_anywhere(dev: ost.Device) -> None:
    library = dev.library(f"""{HEAD}
struct alignas(2) Bytes {{ uint8_t v[16]; }};
kernel void copies(device const uchar *in, device uchar *out, uint i [[thread_position_in_grid]]) {{
  const uint from = i / 8 * 2, to = i % 8 * 2;
  threadgroup uchar between[64 * 32];
  threadgroup uchar *staged = between + i * 32 + to;
  *(threadgroup Bytes *)staged = *(device const Bytes *)(in + i * 32 + from);
  *(device Bytes *)(out + i * 32 + to) = *(threadgroup const Bytes *)staged;
}}""")
    given = np.random.default_rng(7).integers(0, 256, (64, 32)).astype(np.uint8)
    got = launch(dev, library["copies"], given, np.zeros_like(given), threads=64, group_size=64)
    expected = np.zeros_like(given)
    for i in range(64):
        expected[i, i % 8 * 2 : i % 8 * 2 + 16] = given[i, i // 8 * 2 : i // 8 * 2 + 16]
    np.testing.assert_array_equal(got, expected)
