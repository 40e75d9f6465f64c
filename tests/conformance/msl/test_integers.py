"""Integer functions of every width, against plain Python arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

TYPES: dict[str, Any] = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}


class Width:
    """Arithmetic of one integer type, on Python's unbounded integers."""

    def __init__(self, dtype: Any) -> None:
        self.bits = 8 * np.dtype(dtype).itemsize
        self.low, self.high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)

    def wrap(self, value: int) -> int:
        return int((value - self.low) % (1 << self.bits)) + self.low

    def saturate(self, value: int) -> int:
        return min(max(value, self.low), self.high)

    def unsigned(self, value: int) -> int:
        return int(value % (1 << self.bits))


def reverse(w: Width, x: int) -> int:
    return w.wrap(int(f"{w.unsigned(x):0{w.bits}b}"[::-1], 2))


def rotate(w: Width, x: int, by: int) -> int:
    by %= w.bits
    return w.wrap((w.unsigned(x) << by) | (w.unsigned(x) >> (w.bits - by)))


def extract(w: Width, x: int, offset: int, count: int) -> int:
    field = (w.unsigned(x) >> offset) % (1 << count)
    return field - (1 << count) if w.low and count and field >> (count - 1) else field


def insert(w: Width, x: int, y: int, offset: int, count: int) -> int:
    mask = ((1 << count) - 1) << offset
    return w.wrap((w.unsigned(x) & ~mask) | ((w.unsigned(y) << offset) & mask))


# MSL over x, y, z of type T, and what it should give; `abs` of the lowest number has no answer.
FUNCTIONS: dict[str, Callable[[Width, int, int, int], int]] = {
    "abs(x)": lambda w, x, y, z: w.wrap(abs(x)),
    "T(absdiff(x, y))": lambda w, x, y, z: w.wrap(abs(x - y)),
    "addsat(x, y)": lambda w, x, y, z: w.saturate(x + y),
    "subsat(x, y)": lambda w, x, y, z: w.saturate(x - y),
    "mulhi(x, y)": lambda w, x, y, z: (x * y) >> w.bits,
    "madhi(x, y, z)": lambda w, x, y, z: w.wrap(((x * y) >> w.bits) + z),
    "madsat(x, y, z)": lambda w, x, y, z: w.saturate(x * y + z),
    "hadd(x, y)": lambda w, x, y, z: (x + y) >> 1,
    "rhadd(x, y)": lambda w, x, y, z: (x + y + 1) >> 1,
    "min(x, y)": lambda w, x, y, z: min(x, y),
    "max(x, y)": lambda w, x, y, z: max(x, y),
    "min3(x, y, z)": lambda w, x, y, z: min(x, y, z),
    "max3(x, y, z)": lambda w, x, y, z: max(x, y, z),
    "median3(x, y, z)": lambda w, x, y, z: sorted([x, y, z])[1],
    "clamp(x, min(y, z), max(y, z))": lambda w, x, y, z: min(max(x, min(y, z)), max(y, z)),
    "clz(x)": lambda w, x, y, z: w.bits - w.unsigned(x).bit_length(),
    "ctz(x)": lambda w, x, y, z: (w.unsigned(x) & -w.unsigned(x)).bit_length() - 1 if x else w.bits,
    "popcount(x)": lambda w, x, y, z: w.unsigned(x).bit_count(),
    "reverse_bits(x)": lambda w, x, y, z: reverse(w, x),
    "rotate(x, T(uint(y) & 0xff))": lambda w, x, y, z: rotate(w, x, y & 0xFF),
    "extract_bits(x, 2, 3)": lambda w, x, y, z: extract(w, x, 2, 3),
    "extract_bits(x, 1, 0)": lambda w, x, y, z: 0,
    "extract_bits(x, 0, sizeof(T) * 8)": lambda w, x, y, z: x,
    "insert_bits(x, y, 3, 4)": lambda w, x, y, z: insert(w, x, y, 3, 4),
    "insert_bits(x, y, 0, 0)": lambda w, x, y, z: x,
    "insert_bits(x, y, 0, sizeof(T) * 8)": lambda w, x, y, z: y,
    "select(x, y, z > T(0))": lambda w, x, y, z: y if z > 0 else x,
}
VECTOR = [
    "abs(x)",
    "addsat(x, y)",
    "mulhi(x, y)",
    "hadd(x, y)",
    "clz(x)",
    "popcount(x)",
    "median3(x, y, z)",
    "reverse_bits(x)",
]

SOURCE = f"""{HEAD}
template <typename T> kernel void functions(device const T *a, device const T *b, device const T *c, device T *out, constant uint &n,
                                            uint i [[thread_position_in_grid]]) {{
  const T x = a[i], y = b[i], z = c[i];
{chr(10).join(f"  out[{k} * n + i] = {code};" for k, code in enumerate(FUNCTIONS))}
}}
template <typename T> kernel void vectors(device const vec<T, 4> *a, device const vec<T, 4> *b, device const vec<T, 4> *c,
                                          device vec<T, 4> *out, constant uint &n, uint i [[thread_position_in_grid]]) {{
  const vec<T, 4> x = a[i], y = b[i], z = c[i];
{chr(10).join(f"  out[{k} * n + i] = {code};" for k, code in enumerate(VECTOR))}
}}
#define BOTH(t) template [[host_name("functions_" #t)]] kernel void functions<t>(device const t *, device const t *, device const t *, \\
  device t *, constant uint &, uint); \\
  template [[host_name("vectors_" #t)]] kernel void vectors<t>(device const t##4 *, device const t##4 *, device const t##4 *, \\
  device t##4 *, constant uint &, uint);
{" ".join(f"BOTH({t})" for t in TYPES)}
kernel void small_products(device const int *a, device const int *b, device int *out, constant uint &n,
                           uint i [[thread_position_in_grid]]) {{
  out[i] = mul24(a[i], b[i]); out[n + i] = mad24(a[i], b[i], 5); out[2 * n + i] = int(mul24(uint(abs(a[i])), uint(abs(b[i]))));
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


def operands(type_name: str) -> Any:
    dtype = TYPES[type_name]
    w = Width(dtype)
    edges = [
        0,
        1,
        2,
        3,
        5,
        w.high,
        w.high - 1,
        w.low + 1,
        w.high // 2,
        w.wrap(-1),
        w.wrap(-2),
        w.wrap(1 << (w.bits - 2)),
    ]
    random = np.random.default_rng(9)
    noise = np.frombuffer(random.bytes(3 * 400 * w.bits // 8), dtype).reshape(3, 400)
    if w.low:
        noise = np.where(noise == w.low, dtype(w.low + 1), noise)
    exact = np.array(edges, dtype)
    triples = np.array(np.meshgrid(exact, exact, exact[::2], indexing="ij")).reshape(3, -1)
    together = np.concatenate([triples, noise], axis=1)
    return together[:, : together.shape[1] // 4 * 4]


@pytest.fixture(scope="module")
def results(dev: ost.Device, library: ost.Library) -> Any:
    def of(type_name: str) -> Any:
        a, b, c = operands(type_name)
        n = len(a)
        out = np.zeros(len(FUNCTIONS) * n, a.dtype)
        return launch(dev, library[f"functions_{type_name}"], a.copy(), b.copy(), c.copy(), out, n, threads=n).reshape(
            -1, n
        )

    return {type_name: of(type_name) for type_name in TYPES}


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_integer_functions_match_unbounded_arithmetic(results: Any, function: str, type_name: str) -> None:
    w, (a, b, c) = Width(TYPES[type_name]), operands(type_name).tolist()
    expected = [FUNCTIONS[function](w, x, y, z) for x, y, z in zip(a, b, c, strict=True)]
    got = results[type_name][list(FUNCTIONS).index(function)].tolist()
    wrong = [
        (row, mine, theirs)
        for row, mine, theirs in zip(zip(a, b, c, strict=True), got, expected, strict=True)
        if mine != theirs
    ]
    assert not wrong, f"{len(wrong)} wrong; (x, y, z), got, expected: {wrong[:5]}"


@pytest.mark.parametrize("type_name", TYPES)
def test_integer_functions_of_vectors_work_on_each_component(
    dev: ost.Device, library: ost.Library, results: Any, type_name: str
) -> None:
    a, b, c = (part.copy() for part in operands(type_name))
    n = len(a) // 4
    got = launch(dev, library[f"vectors_{type_name}"], a, b, c, np.zeros(len(VECTOR) * 4 * n, a.dtype), n, threads=n)
    for code, mine in zip(VECTOR, got.reshape(len(VECTOR), -1), strict=True):
        np.testing.assert_array_equal(mine, results[type_name][list(FUNCTIONS).index(code)], err_msg=code)


def test_products_of_24_bits(dev: ost.Device, library: ost.Library) -> None:
    a, b = np.random.default_rng(4).integers(-(2**14), 2**14, (2, 500)).astype(np.int32)
    got = launch(dev, library["small_products"], a, b, np.zeros(1500, np.int32), 500, threads=500).reshape(3, 500)
    np.testing.assert_array_equal(got, [a * b, a * b + 5, abs(a) * abs(b)])
