"""Simdgroup and quadgroup functions of every type against an emulation of 32 lanes, also in a partial last simdgroup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

DTYPES: dict[str, Any] = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "int": np.int32,
    "uint": np.uint32,
    "short": np.int16,
    "ushort": np.uint16,
    "char": np.int8,
    "uchar": np.uint8,
}
SHAPES = {"": 1, "2": 2, "3": 4, "4": 4}
# Every function with some types, some functions with every type: all with all takes the compiler half a minute.
THOROUGH = {"simd": ["float", "half", "int", "float4"], "quad": ["float", "int"]}
TYPES = [*DTYPES, "float2", "float4", "half4", "int3", "uchar4"]
INTEGERS = ["int", "uint", "short", "uchar", "uint4", "int3"]

Lanes = Any  # an array of the values of the lanes present, [lane, component]


def prefix(function: Any, identity: int, inclusive: bool) -> Callable[[Lanes], Lanes]:
    def of(x: Lanes) -> Lanes:
        running = function.accumulate(x, axis=0)
        return running if inclusive else np.concatenate([np.full_like(x[:1], identity), running[:-1]])

    return of


def everywhere(function: Any) -> Callable[[Lanes], Lanes]:
    return lambda x: np.broadcast_to(function(x, axis=0), x.shape)


def moved(source: Callable[[Any], Any]) -> Callable[[Lanes], Lanes]:
    """Lane i reads lane source(i); where that is no present lane, the result means nothing (NaN)."""

    def of(x: Lanes) -> Lanes:
        at = source(np.arange(len(x)))
        inside = (at >= 0) & (at < len(x))
        return np.where(inside[:, None], x[np.where(inside, at, 0)], np.nan)

    return of


def filled(up: bool, delta: int, width: int, modulo: int) -> Callable[[Lanes], Lanes]:
    """Values move by delta within blocks of modulo lanes; x + 50 comes in from the other end."""

    def of(x: Lanes) -> Lanes:
        lane = np.arange(len(x))
        base, at = lane // modulo * modulo, lane % modulo
        source = at - delta if up else at + delta
        fills = (source < 0) | (source >= modulo)
        read = base + source % modulo
        inside = read < len(x)
        read = np.where(inside, read, 0)
        return np.where(inside[:, None], x[read] + 50 * fills[:, None], np.nan)

    return of


def group_functions(g: str, width: int) -> dict[str, Callable[[Lanes], Lanes]]:
    return {
        f"{g}_sum(x)": everywhere(np.sum),
        f"{g}_product(y)": everywhere(np.prod),
        f"{g}_min(x)": everywhere(np.min),
        f"{g}_max(x)": everywhere(np.max),
        f"{g}_prefix_inclusive_sum(x)": prefix(np.add, 0, True),
        f"{g}_prefix_exclusive_sum(x)": prefix(np.add, 0, False),
        f"{g}_prefix_inclusive_product(y)": prefix(np.multiply, 1, True),
        f"{g}_prefix_exclusive_product(y)": prefix(np.multiply, 1, False),
        f"{g}_broadcast(x, 2)": moved(lambda lane: lane * 0 + 2),
        f"{g}_broadcast_first(x)": moved(lambda lane: lane * 0),
        f"{g}_shuffle(x, ushort((lane * 3 + 1) % {width}))": moved(lambda lane: (lane * 3 + 1) % width),
        f"{g}_shuffle_up(x, 1)": moved(lambda lane: lane - 1),
        f"{g}_shuffle_down(x, 2)": moved(lambda lane: np.where(lane + 2 < width, lane + 2, -1)),
        f"{g}_shuffle_xor(x, 1)": moved(lambda lane: lane ^ 1),
        f"{g}_shuffle_xor(x, {width // 2})": moved(lambda lane: lane ^ (width // 2)),
        f"{g}_shuffle_rotate_up(x, 1)": moved(lambda lane: (lane - 1) % width),
        f"{g}_shuffle_rotate_down(x, 3)": moved(lambda lane: (lane + 3) % width),
        f"{g}_shuffle_and_fill_up(x, T(x + T(50)), 2)": filled(True, 2, width, width),
        f"{g}_shuffle_and_fill_down(x, T(x + T(50)), 1)": filled(False, 1, width, width),
        f"{g}_shuffle_and_fill_up(x, T(x + T(50)), 1, 2)": filled(True, 1, width, 2),
        f"{g}_shuffle_and_fill_down(x, T(x + T(50)), 1, {max(width // 4, 2)})": filled(
            False, 1, width, max(width // 4, 2)
        ),
    }


FUNCTIONS = {"simd": group_functions("simd", 32), "quad": group_functions("quad", 4)}
CORE = [
    "_sum(",
    "_product(",
    "_max(",
    "inclusive_sum(",
    "_broadcast(",
    "_shuffle(",
    "shuffle_and_fill_up(x, T(x + T(50)), 2)",
]


def functions_for(group: str, type_name: str) -> dict[str, Callable[[Lanes], Lanes]]:
    everything = FUNCTIONS[group]
    if type_name in THOROUGH[group]:
        return everything
    return {code: function for code, function in everything.items() if any(part in code for part in CORE)}


BITWISE = {
    f"{g}_{name}(x)": everywhere(function.reduce)
    for g in ("simd", "quad")
    for name, function in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.items()
}


def instances(kernel: str, names: list[str]) -> str:
    return "".join(
        f'template [[host_name("{kernel}_{t}")]] kernel void {kernel}<{t}>(device const {t} *, device {t} *, constant uint &, uint, uint);\n'
        for t in names
    )


def kernel_of(group: str, thorough: bool) -> str:
    names = [t for t in TYPES if (t in THOROUGH[group]) == thorough]
    name = f"{group}_{'thorough' if thorough else 'core'}"
    lines = [f"  out[{k} * n + i] = {code};\n" for k, code in enumerate(functions_for(group, names[0]))]
    return f"""template <typename T> kernel void {name}(device const T *in, device T *out, constant uint &n,
      uint i [[thread_position_in_grid]], uint lane_ [[thread_index_in_simdgroup]]) {{
      const T x = in[i], y = in[n + i]; const ushort lane = ushort(lane_);
      {"".join(lines)} }}
    {instances(name, names)}"""


SOURCE = f"""{HEAD}
{chr(10).join(kernel_of(group, thorough) for group in FUNCTIONS for thorough in (True, False))}
template <typename T> kernel void bitwise(device const T *in, device T *out, constant uint &n, uint i [[thread_position_in_grid]],
                                          uint lane [[thread_index_in_simdgroup]]) {{
  const T x = in[i];
{chr(10).join(f"  out[{k} * n + i] = {code};" for k, code in enumerate(BITWISE))}
}}
{instances("bitwise", INTEGERS)}
"""

VOTES = f"""{HEAD}
kernel void votes(device const uchar *in, device ulong *out, constant uint &n, uint i [[thread_position_in_grid]],
                  ushort lane [[thread_index_in_simdgroup]]) {{
  const bool x = in[i];
  out[i] = ulong(simd_vote::vote_t(simd_ballot(x))); out[n + i] = ulong(simd_vote::vote_t(simd_active_threads_mask()));
  out[2 * n + i] = simd_all(x); out[3 * n + i] = simd_any(x); out[4 * n + i] = simd_is_first();
  const simd_vote v = simd_ballot(!x); out[5 * n + i] = v.all() + 2 * v.any() + 4 * v.none();
  out[6 * n + i] = ulong(quad_vote::vote_t(quad_ballot(x))); out[7 * n + i] = quad_all(x); out[8 * n + i] = quad_any(x);
  out[9 * n + i] = quad_is_first(); out[10 * n + i] = ulong(simd_vote(0b101).any());
  out[11 * n + i] = popcount(uint(ulong(static_cast<simd_vote::vote_t>(simd_ballot(x)))));
}}
kernel void floats(device const float *in, device float *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  out[i] = simd_sum(in[i]); out[n + i] = simd_max(in[i]); out[2 * n + i] = simd_min(in[i]); out[3 * n + i] = simd_prefix_inclusive_sum(in[i]);
  out[4 * n + i] = simd_sum(simd_max(in[i]) - in[i]); out[5 * n + i] = simd_sum(in[i] > 0 ? 1 : 0);
}}
kernel void width_of_groups(device const float *in, device float *out, uint i [[thread_position_in_grid]]) {{
  out[i] = simd_sum(in[i]) + simd_prefix_exclusive_sum(in[i]) + simd_shuffle_xor(in[i], 16);
}}
kernel void flat_order(device uint *out, uint2 at [[thread_position_in_grid]], uint2 all [[threads_per_grid]],
                       uint index [[thread_index_in_threadgroup]]) {{
  out[at.y * all.x + at.x] = simd_broadcast_first(index);
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.fixture(scope="module")
def votes(dev: ost.Device) -> ost.Library:
    return dev.library(VOTES)


def element(type_name: str) -> tuple[Any, int]:
    digit = type_name[-1] if type_name[-1].isdigit() else ""
    return DTYPES[type_name.removesuffix(digit)], SHAPES[digit]


def emulate(function: Callable[[Lanes], Lanes], x: Lanes, width: int) -> Lanes:
    """The function over each simdgroup (and, in it, each quadgroup) of a group."""
    groups = [x[s : s + 32] for s in range(0, len(x), 32)]
    parts = [g[q : q + width] for g in groups for q in range(0, len(g), width)]
    return np.concatenate([function(part) for part in parts])


def values(type_name: str, n: int) -> tuple[Any, Any]:
    """Numbers small enough for every sum and product to be exact in every type, uchar and bfloat included."""
    _, lanes = element(type_name)
    random = np.random.default_rng(12)
    x = random.integers(0, 4, (n, lanes))
    y = np.where(random.random((n, lanes)) < 0.08, 2, 1)
    return x, y


@pytest.mark.parametrize("n", [64, 50], ids=["whole simdgroups", "a partial last simdgroup"])
@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize(("group", "width"), [("simd", 32), ("quad", 4)], ids=["simd", "quad"])
def test_functions_combine_and_move_the_values_of_lanes(
    dev: ost.Device, library: ost.Library, group: str, width: int, type_name: str, n: int
) -> None:
    dtype, lanes = element(type_name)
    x, y = values(type_name, n)
    functions = functions_for(group, type_name)
    kernel = library[f"{group}_{'thorough' if type_name in THOROUGH[group] else 'core'}_{type_name}"]
    out = np.zeros((len(functions), n, lanes), dtype)
    got = launch(dev, kernel, np.stack([x, y]).astype(dtype), out, n, threads=n, group_size=n)
    components = 3 if type_name.endswith("3") else lanes
    for row, (code, function) in enumerate(functions.items()):
        expected = emulate(function, (y if "(y" in code else x).astype(np.float64), width)
        meant = ~np.isnan(expected[:, :components])
        mine = got[row].astype(np.float64)[:, :components]
        np.testing.assert_array_equal(mine[meant], expected[:, :components][meant], err_msg=code)


@pytest.mark.parametrize("type_name", INTEGERS)
def test_bits_of_lanes_are_combined(dev: ost.Device, library: ost.Library, type_name: str) -> None:
    dtype, lanes = element(type_name)
    n = 50
    x = np.frombuffer(np.random.default_rng(3).bytes(n * lanes * np.dtype(dtype).itemsize), dtype).reshape(n, lanes)
    got = launch(
        dev,
        library[f"bitwise_{type_name}"],
        x.copy(),
        np.zeros((len(BITWISE), n, lanes), dtype),
        n,
        threads=n,
        group_size=n,
    )
    components = 3 if type_name.endswith("3") else lanes
    for row, (code, function) in enumerate(BITWISE.items()):
        expected = emulate(function, x, 4 if code.startswith("quad") else 32)
        np.testing.assert_array_equal(got[row][:, :components], expected[:, :components], err_msg=code)


@pytest.mark.parametrize("pattern", ["random", "none", "all"])
@pytest.mark.parametrize("n", [64, 45])
def test_votes_count_the_lanes_present(dev: ost.Device, votes: ost.Library, n: int, pattern: str) -> None:
    random = np.random.default_rng(2).random(n) < 0.6
    x = {"random": random, "none": np.zeros(n, bool), "all": np.ones(n, bool)}[pattern]
    got = launch(dev, votes["votes"], x.astype(np.uint8), np.zeros((12, n), np.uint64), n, threads=n, group_size=n)

    def masks(bits: Any, width: int) -> Any:
        return emulate(
            lambda part: np.broadcast_to((part << np.arange(len(part), dtype=np.uint64)[:, None]).sum(0), part.shape),
            bits,
            width,
        )

    bits = x.astype(np.uint64)[:, None]
    ballot, mask = masks(bits, 32)[:, 0], masks(np.ones_like(bits), 32)[:, 0]
    no = ballot ^ mask
    quads = masks(bits, 4)[:, 0]
    whole = masks(np.ones_like(bits), 4)[:, 0]
    lane = np.arange(n) % 32
    expected = [
        ballot, mask, ballot == mask, ballot != 0, lane == 0, (no == mask) + 2 * (no != 0) + 4 * (no == 0),
        quads, quads == whole, quads != 0, lane % 4 == 0, np.ones(n), [bin(int(b)).count("1") for b in ballot],
    ]  # fmt: skip
    for row, theirs in enumerate(expected):
        np.testing.assert_array_equal(got[row], np.asarray(theirs, np.uint64), err_msg=f"row {row}")


def test_real_numbers_are_combined(dev: ost.Device, votes: ost.Library) -> None:
    x = np.random.default_rng(1).normal(size=96).astype(np.float32)
    got = launch(dev, votes["floats"], x, np.zeros((6, 96), np.float32), 96, threads=96, group_size=96)
    lanes = x.astype(np.float64).reshape(3, 32)
    most = lanes.max(1, keepdims=True)
    expected = [lanes.sum(1, keepdims=True), most, lanes.min(1, keepdims=True), lanes.cumsum(1)]
    expected += [(most - lanes).sum(1, keepdims=True), (lanes > 0).sum(1, keepdims=True)]
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine.reshape(3, 32), np.broadcast_to(theirs, (3, 32)), rtol=1e-5, atol=1e-5)


def test_a_nan_is_ignored_by_the_maximum_and_kept_by_the_sum(dev: ost.Device, votes: ost.Library) -> None:
    x = np.arange(32, dtype=np.float32)
    x[7] = np.nan
    got = launch(dev, votes["floats"], x, np.zeros((6, 32), np.float32), 32, threads=32, group_size=32)
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1:3], [[31] * 32, [0] * 32])


@pytest.mark.parametrize("group_size", [32, 64, 160, 1024])
def test_results_do_not_depend_on_the_group_size(dev: ost.Device, votes: ost.Library, group_size: int) -> None:
    x = np.random.default_rng(1).normal(size=5120).astype(np.float32)
    args = (dev, votes["width_of_groups"], x, np.zeros(5120, np.float32))
    alone = launch(*args, threads=5120, group_size=32)
    np.testing.assert_array_equal(
        launch(*args, threads=5120, group_size=group_size).view(np.uint32), alone.view(np.uint32)
    )


def test_simdgroups_are_cut_from_the_flat_order_of_the_real_group(dev: ost.Device, votes: ost.Library) -> None:
    got = launch(dev, votes["flat_order"], np.zeros((6, 20), np.uint32), threads=(20, 6), group_size=(16, 6))
    y, x = np.mgrid[0:6, 0:20]
    index = np.where(x < 16, y * 16 + x, y * 4 + x - 16)
    np.testing.assert_array_equal(got, index // 32 * 32)
