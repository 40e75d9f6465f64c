"""What each thread is told about its place: in one, two and three dimensions, with clipped groups at the edges."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from launching import HEAD, launch

ATTRIBUTES = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "dispatch_threads_per_threadgroup",
]
SCALARS = [
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
    "thread_index_in_quadgroup",
    "quadgroup_index_in_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
]
COLUMNS = 3 * len(ATTRIBUTES) + len(SCALARS)

AXES = f"""
  const uint flat = (a0.z * a4.y + a0.y) * a4.x + a0.x;
  atomic_fetch_add_explicit(&runs[flat], 1u, memory_order_relaxed);
  device uint *row = out + flat * {COLUMNS};
{chr(10).join(f"  row[{3 * k}] = a{k}.x; row[{3 * k + 1}] = a{k}.y; row[{3 * k + 2}] = a{k}.z;" for k in range(len(ATTRIBUTES)))}
"""
BODY = AXES + "\n".join(f"  row[{3 * len(ATTRIBUTES) + k}] = s{k};" for k in range(len(SCALARS)))
AXIS_PARAMETERS = ", ".join(
    ["device uint *out", "device atomic_uint *runs"] + [f"uint3 a{k} [[{name}]]" for k, name in enumerate(ATTRIBUTES)]
)
PARAMETERS = ", ".join([AXIS_PARAMETERS] + [f"uint s{k} [[{name}]]" for k, name in enumerate(SCALARS)])

SOURCE = f"""{HEAD}
kernel void plain({PARAMETERS}) {{ {BODY} }}
kernel void meeting({PARAMETERS}) {{ threadgroup_barrier(mem_flags::mem_none); {BODY} }}
kernel void axes({AXIS_PARAMETERS}) {{ threadgroup_barrier(mem_flags::mem_none); {AXES} }}

kernel void narrow_1d(device uint *out, ushort at [[thread_position_in_grid]], ushort in [[thread_position_in_threadgroup]],
                      ushort group [[threadgroup_position_in_grid]], ushort size [[threads_per_threadgroup]],
                      ushort all [[threads_per_grid]], ushort groups [[threadgroups_per_grid]],
                      ushort lane [[thread_index_in_simdgroup]], ushort simdgroup [[simdgroup_index_in_threadgroup]]) {{
  const uint values[8] = {{at, in, group, size, all, groups, lane, simdgroup}};
  for (uint k = 0; k < 8; ++k) out[at * 8 + k] = values[k];
}}
kernel void wide_1d(device uint *out, uint at [[thread_position_in_grid]], uint in [[thread_position_in_threadgroup]],
                    uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]],
                    uint all [[threads_per_grid]], uint groups [[threadgroups_per_grid]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {{
  const uint values[8] = {{at, in, group, size, all, groups, lane, simdgroup}};
  for (uint k = 0; k < 8; ++k) out[at * 8 + k] = values[k];
}}
template <typename V> kernel void flat_2d(device uint *out, V at [[thread_position_in_grid]],
    V in [[thread_position_in_threadgroup]], V group [[threadgroup_position_in_grid]], V size [[threads_per_threadgroup]],
    V all [[threads_per_grid]]) {{
  const uint flat = uint(at.y) * all.x + at.x;
  out[flat * 6] = in.x; out[flat * 6 + 1] = in.y; out[flat * 6 + 2] = group.x; out[flat * 6 + 3] = group.y;
  out[flat * 6 + 4] = size.x; out[flat * 6 + 5] = size.y;
}}
template [[host_name("uint2")]] kernel void flat_2d<uint2>(device uint *, uint2, uint2, uint2, uint2, uint2);
template [[host_name("ushort2")]] kernel void flat_2d<ushort2>(device uint *, ushort2, ushort2, ushort2, ushort2, ushort2);
template <typename V> void write(device uint *out, V at, V all, V in, V group, V size) {{
  const uint flat = at.y * all.x + at.x;
  out[flat * 6] = in.x; out[flat * 6 + 1] = in.y; out[flat * 6 + 2] = group.x; out[flat * 6 + 3] = group.y;
  out[flat * 6 + 4] = size.x; out[flat * 6 + 5] = size.y;
}}
kernel void const_before(device uint *out, const uint2 at [[thread_position_in_grid]], const uint2 all [[threads_per_grid]],
    const uint2 in [[thread_position_in_threadgroup]], const uint2 group [[threadgroup_position_in_grid]],
    const uint2 size [[threads_per_threadgroup]]) {{ write(out, at, all, in, group, size); }}
kernel void const_behind(device uint *out, uint2 const at [[thread_position_in_grid]], uint2 const all [[threads_per_grid]],
    uint2 const in [[thread_position_in_threadgroup]], uint2 const group [[threadgroup_position_in_grid]],
    uint2 const size [[threads_per_threadgroup]]) {{
  write(out, at, all, in, group, size); threadgroup_barrier(mem_flags::mem_device);
}}
kernel void cube(device uint *out, ushort3 at [[thread_position_in_grid]], ushort3 all [[threads_per_grid]],
                 ushort3 in [[thread_position_in_threadgroup]], ushort index [[thread_index_in_threadgroup]]) {{
  const uint flat = (at.z * all.y + at.y) * all.x + at.x;
  out[flat * 4] = in.x; out[flat * 4 + 1] = in.y; out[flat * 4 + 2] = in.z; out[flat * 4 + 3] = index;
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def padded(extent: tuple[int, ...]) -> tuple[int, int, int]:
    return (*extent, 1, 1, 1)[:3]  # type: ignore[return-value]


def expected_rows(grid: tuple[int, int, int], size: tuple[int, int, int]) -> Any:
    """Brute force: every group in turn, every thread of it in turn."""
    groups = [-(-n // s) for n, s in zip(grid, size, strict=True)]
    rows = np.zeros((grid[2], grid[1], grid[0], COLUMNS), np.uint32)
    for group in itertools.product(*map(range, groups)):
        start = [g * s for g, s in zip(group, size, strict=True)]
        real = [min(s, n - b) for s, n, b in zip(size, grid, start, strict=True)]
        threads = real[0] * real[1] * real[2]
        for z, y, x in itertools.product(range(real[2]), range(real[1]), range(real[0])):
            at = [start[0] + x, start[1] + y, start[2] + z]
            index = (z * real[1] + y) * real[0] + x
            scalars = [
                index,
                index % 32,
                index // 32,
                -(-threads // 32),
                32,
                32,
                index % 4,
                index // 4,
                -(-threads // 4),
            ]
            nominal = -(-size[0] * size[1] * size[2] // 32)
            row = [*at, x, y, z, *group, *real, *grid, *groups, *size, *scalars, nominal]
            rows[at[2], at[1], at[0]] = row
    return rows.reshape(-1, COLUMNS)


def check(dev: ost.Device, kernel: ost.Kernel, grid: tuple[int, ...], size: tuple[int, ...], **geometry: Any) -> None:
    expected = expected_rows(padded(grid), padded(size))
    out, runs = np.zeros((len(expected), COLUMNS), np.uint32), np.zeros(len(expected), np.uint32)
    got, ran = launch(dev, kernel, out, runs, group_size=size, **geometry)
    np.testing.assert_array_equal(ran, 1, err_msg="every thread runs exactly once")
    names = [f"{name}.{axis}" for name in ATTRIBUTES for axis in "xyz"] + SCALARS * (kernel.name != "axes")
    for column, name in enumerate(names):
        np.testing.assert_array_equal(got[:, column], expected[:, column], err_msg=name)


GROUP_SIZES = st.one_of(
    st.tuples(st.integers(1, 96)),
    st.tuples(st.integers(1, 40), st.integers(1, 8)),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 4)),
    st.tuples(st.sampled_from([8, 16]), st.integers(1, 8)),
    st.tuples(st.sampled_from([8, 16]), st.integers(1, 8), st.integers(1, 3)),
)


@pytest.mark.parametrize("name", ["plain", "meeting", "axes"])
@given(size=GROUP_SIZES, data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_grid_is_covered_once_with_the_right_attributes(
    dev: ost.Device, library: ost.Library, name: str, size: tuple[int, ...], data: st.DataObject
) -> None:
    most = {1: 300, 2: 50, 3: 18}[len(size)]
    grid = data.draw(st.tuples(*(st.integers(1, most) for _ in size)), label="grid")
    check(dev, library[name], grid, size, threads=grid)


@pytest.mark.parametrize("name", ["plain", "meeting", "axes"])
@given(size=GROUP_SIZES, data=st.data())
@settings(max_examples=15, deadline=None)
def test_whole_groups_are_never_clipped(
    dev: ost.Device, library: ost.Library, name: str, size: tuple[int, ...], data: st.DataObject
) -> None:
    groups = data.draw(st.tuples(*(st.integers(1, 3) for _ in size)), label="groups")
    grid = tuple(n * s for n, s in zip(groups, size, strict=True))
    check(dev, library[name], grid, size, groups=groups)


@pytest.mark.parametrize("name", ["plain", "meeting", "axes"])
@pytest.mark.parametrize("size", [(1024,), (32, 32), (1, 1024), (8, 8, 16), (1, 1, 1024)])
def test_a_group_may_have_1024_threads_of_any_shape(
    dev: ost.Device, library: ost.Library, name: str, size: tuple[int, ...]
) -> None:
    grid = tuple(s + (s > 1) for s in size)
    check(dev, library[name], grid, size, threads=grid)


@pytest.mark.parametrize("name", ["wide_1d", "narrow_1d"])
@pytest.mark.parametrize(("n", "size"), [(1, 1), (100, 64), (96, 96), (1000, 7)])
def test_attributes_may_be_scalars_of_16_or_32_bits(
    dev: ost.Device, library: ost.Library, name: str, n: int, size: int
) -> None:
    got = launch(dev, library[name], np.zeros((n, 8), np.uint32), threads=n, group_size=size)
    at = np.arange(n)
    inside, group = at % size, at // size
    real, ones = np.minimum(size, n - group * size), np.ones(n, int)
    expected = [at, inside, group, real, ones * n, ones * (-(-n // size)), inside % 32, inside // 32]
    np.testing.assert_array_equal(got, np.stack(expected, 1))


@pytest.mark.parametrize("name", ["uint2", "ushort2", "const_before", "const_behind"])
def test_attributes_may_be_vectors_of_two(dev: ost.Device, library: ost.Library, name: str) -> None:
    got = launch(dev, library[name], np.zeros((5, 13, 6), np.uint32), threads=(13, 5), group_size=(4, 2))
    y, x = np.mgrid[0:5, 0:13]
    expected = [x % 4, y % 2, x // 4, y // 2, np.minimum(4, 13 - x // 4 * 4), np.minimum(2, 5 - y // 2 * 2)]
    np.testing.assert_array_equal(got, np.stack(expected, -1))


def test_attributes_may_be_narrow_vectors_of_three(dev: ost.Device, library: ost.Library) -> None:
    got = launch(dev, library["cube"], np.zeros((3, 4, 5, 4), np.uint32), threads=(5, 4, 3), group_size=(5, 2, 3))
    z, y, x = np.mgrid[0:3, 0:4, 0:5]
    np.testing.assert_array_equal(got, np.stack([x, y % 2, z, (z * 2 + y % 2) * 5 + x], -1))


QUALIFIED = f"""{HEAD}
typedef const uint2 place;
kernel void plain(device uint *out, const uint2 size [[threads_per_grid]], uint2 const at [[thread_position_in_grid]],
                  const ushort2 local [[thread_position_in_threadgroup]], place group [[threadgroup_position_in_grid]]) {{
  out[at.y * size.x + at.x] = local.x + 10 * local.y + 100 * group.x + 1000 * group.y;
}}
kernel void meeting(device uint *out, place size [[threads_per_grid]], const metal::uint2 at [[thread_position_in_grid]],
                    ushort2 const local [[thread_position_in_threadgroup]],
                    vec<uint, 2> const group [[threadgroup_position_in_grid]]) {{
  const uint alone = simd_sum(1u) - 32;
  out[at.y * size.x + at.x] = local.x + 10 * local.y + 100 * group.x + 1000 * group.y + alone;
}}
"""


@pytest.mark.parametrize("name", ["plain", "meeting"])
def test_a_position_may_be_const(dev: ost.Device, name: str) -> None:
    got = launch(dev, dev.library(QUALIFIED)[name], np.zeros(512, np.uint32), threads=(32, 16), group_size=(8, 4))
    y, x = np.mgrid[:16, :32]
    np.testing.assert_array_equal(got.reshape(16, 32), x % 8 + y % 4 * 10 + x // 8 * 100 + y // 4 * 1000)


@pytest.mark.parametrize(
    "type_", ["unsigned", "unsigned const", "uint const", "metal::uint const", "unsigned short const"]
)
def test_a_position_is_found_behind_every_spelling_of_its_type(dev: ost.Device, type_: str) -> None:
    source = f"{HEAD}kernel void k(device uint *out, {type_} i [[thread_position_in_grid]]) {{ out[i] = i; }}"
    got = launch(dev, dev.library(source)["k"], np.zeros(64, np.uint32), threads=64, group_size=32)
    np.testing.assert_array_equal(got, np.arange(64))


GLOBAL = f"""{HEAD}
uint i [[thread_position_in_grid]];
const uint thread_index_in_simdgroup [[thread_index_in_simdgroup]];
constant uint scale = 10;
uint GROUPS [[threadgroups_per_grid]];
uint here() {{ return i * scale; }}
uint there(uint more);
template <typename T> T plus(T x) {{ return x + T(here()); }}
struct Reader {{ device const uint *from; uint read(void) const {{ return from[i]; }} uint twice() const {{ return 2 * read(); }} }};
kernel void globals(device const uint *x, device uint *out) {{
  Reader reader = {{x}};
  out[i] = plus(reader.twice()) + there(1);
}}
uint there(uint more) {{ return 1000 * thread_index_in_simdgroup + more; }}
template <typename T> kernel void typed(device T *out, uint lid [[thread_position_in_threadgroup]]) {{
  auto add = [&](T y) {{ return T(i) + y; }};
  if (lid < 100) out[i] = add(T(GROUPS));
}}
template [[host_name("typed_float")]] kernel void typed<float>(device float *out, uint lid [[thread_position_in_threadgroup]]);
kernel void summed(device uint *out) {{
  threadgroup uint shared[64]; shared[i % 64] = i; threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = simd_sum(here()) + shared[63 - i % 64];
}}
kernel void hiding(device uint *out, uint i [[thread_index_in_threadgroup]]) {{ uint GROUPS = 5; out[i] = GROUPS; }}
kernel void nothing(void) {{ here(); }}
"""


def test_positions_may_be_declared_outside_all_functions(dev: ost.Device) -> None:
    library = dev.library(GLOBAL)
    n = np.arange(128, dtype=np.uint32)
    empty = np.zeros(128, np.uint32)
    out = launch(dev, library["globals"], n + 7, empty, threads=128, group_size=64)
    np.testing.assert_array_equal(out, 2 * (n + 7) + 10 * n + 1000 * (n % 32) + 1)
    typed = launch(dev, library["typed_float"], empty.astype(np.float32), threads=128, group_size=64)
    np.testing.assert_array_equal(typed, n + 2)
    out = launch(dev, library["summed"], empty, threads=128, group_size=64)
    sums = np.repeat(10 * n.reshape(-1, 32).sum(1), 32)
    np.testing.assert_array_equal(out, sums + n // 64 * 64 + 63 - n % 64)
    assert launch(dev, library["hiding"], empty, threads=64, group_size=64)[:65].tolist() == [5] * 64 + [0]
    if dev.capabilities.backend == "cpu":
        assert str(library["globals"].execution).startswith("loop")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("struct S { uint v; S(uint x) : v(x + i) {} }; kernel void k(device uint *o) { o[0] = S(1).v; }", "'S' needs"),
        ("uint f() { return i; } kernel void k(device uint *o) { uint i = 3; o[i] = f(); }", "'k' needs 'i', which"),
    ],
)
def test_where_a_position_cannot_be_handed_on_is_refused(dev: ost.Device, source: str, words: str) -> None:
    if dev.capabilities.backend == "metal":
        pytest.skip("Metal's own compiler knows the position everywhere")
    with pytest.raises(ost.UnsupportedFeature, match=words):
        dev.library(f"{HEAD}uint i [[thread_position_in_grid]];\n{source}")
