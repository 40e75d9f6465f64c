"""lambdaworks: finite fields, Fourier transforms over them, sums over cubes, hashes and curve points.

Python's integers are the oracle. Elements of the field of 252 bits, of BabyBear and of the curve are stored as products
with a power of two past the modulus.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch

SHADERS = "crates/math/src/gpu/metal"
GOLDILOCKS = 2**64 - 2**32 + 1
STARK = 2**251 + 17 * 2**192 + 1
BABYBEAR = 15 * 2**27 + 1
MERSENNE = 2**31 - 1
BLS = 0x1A0111EA397FE69A4B1BA7B6434BACD764774B84F38512BF6730D2A0F6B0F6241EABFFFEB153FFFFB9FEFFFFFFFFAAAB
Words = NDArray[np.uint64]


@pytest.fixture
def library(checkouts: Checkouts) -> ost.Library:
    return checkouts.library("lambdaworks", f"{SHADERS}/all.metal", include=(SHADERS,))


def elements(numbers: np.random.Generator, modulus: int, count: int) -> list[int]:
    return [int.from_bytes(numbers.bytes(64)) % modulus for _ in range(count)]


def words(values: list[int], limbs: int, *, most_significant_first: bool = False) -> Words:
    """Integers as rows of 64-bit limbs."""
    rows = np.array([[value >> 64 * i & 2**64 - 1 for i in range(limbs)] for value in values], np.uint64)
    return rows[:, ::-1].copy() if most_significant_first else rows


def integers(rows: Words, *, most_significant_first: bool = False) -> list[int]:
    if most_significant_first:
        rows = rows[:, ::-1]
    return [sum(int(limb) << 64 * i for i, limb in enumerate(row)) for row in rows]


def reverse_bits(i: int, count: int) -> int:
    """Of an index below `count`, a power of two."""
    return int(f"{i:0{count.bit_length() - 1}b}"[::-1], 2)


def root_of_unity(modulus: int, order: int) -> int:
    """Of a power of two that divides modulus - 1, found from a number that is no square."""
    return pow(
        next(g for g in range(2, 99) if pow(g, (modulus - 1) // 2, modulus) != 1), (modulus - 1) // order, modulus
    )


def transform(values: list[int], root: int, modulus: int) -> list[int]:
    """The discrete Fourier transform, by its definition."""
    powers = [pow(root, i, modulus) for i in range(len(values))]
    count = len(values)
    return [sum(v * powers[i * k % count] for k, v in enumerate(values)) % modulus for i in range(count)]


@pytest.mark.parametrize("kind", ["", "_inv", "_bitrev", "_bitrev_inv"])
def test_twiddles(dev: ost.Device, library: ost.Library, kind: str) -> None:
    count = 256
    root = root_of_unity(GOLDILOCKS, 2 * count)
    got = launch(
        dev, library[f"calc_twiddles{kind}_Goldilocks"], np.zeros(count, np.uint64), np.uint64(root).tobytes(),
        threads=count, group_size=64,
    )  # fmt: skip
    places = [reverse_bits(i, count) if "bitrev" in kind else i for i in range(count)]
    sign = -1 if kind.endswith("inv") else 1
    assert [int(x) % GOLDILOCKS for x in got] == [pow(root, sign * i, GOLDILOCKS) for i in places]


@pytest.mark.parametrize("components", [1, 2, 3])
def test_transform_over_goldilocks(
    dev: ost.Device, library: ost.Library, numbers: np.random.Generator, components: int
) -> None:
    """The first stages one by one, with twiddles from memory or from the group's, the last three in one dispatch."""
    suffix = {1: "Goldilocks", 2: "Goldilocks_fp2", 3: "Goldilocks_fp3"}[components]
    count, stages, fused = 128, 7, 3
    root = root_of_unity(GOLDILOCKS, count)
    twiddles = np.array(
        [pow(root, reverse_bits(i, count // 2), GOLDILOCKS) for i in range(count // 2)], np.uint64
    )  # fmt: skip
    values = [elements(numbers, GOLDILOCKS, count) for _ in range(components)]
    data = np.array(values, np.uint64).T.copy()
    for stage in range(stages - fused):
        if stage % 2:
            data = launch(
                dev, library[f"radix2_dit_butterfly_tg_{suffix}"], data, twiddles, stage, 1 << stage,
                threads=count // 2, group_size=32, shared={0: max(16, 8 << stage)},
            )  # fmt: skip
        else:
            butterfly = library[f"radix2_dit_butterfly_{suffix}"]
            data = launch(dev, butterfly, data, twiddles, stage, threads=count // 2, group_size=32)
    data = launch(
        dev, library[f"radix2_dit_butterfly_fused_{suffix}"], data, twiddles, stages - fused, fused,
        groups=count >> fused, group_size=4, shared={0: 8 * components << fused},
    )  # fmt: skip
    permutation = library[f"bitrev_permutation_{suffix}"]
    got = launch(dev, permutation, data, np.zeros_like(data), threads=count, group_size=64)[1]
    for i, component in enumerate(values):
        assert [int(x) % GOLDILOCKS for x in got[:, i]] == transform(component, root, GOLDILOCKS)


def test_transform_over_a_field_of_252_bits(
    dev: ost.Device, library: ost.Library, numbers: np.random.Generator
) -> None:
    count = 32
    root = root_of_unity(STARK, count)
    twiddles, order = (np.zeros((size, 4), np.uint64) for size in (count // 2, count))
    stored_root = words([root * 2**256 % STARK], 4, most_significant_first=True)
    twiddles = launch(
        dev, library["calc_twiddles_bitrev_stark256"], twiddles, stored_root.tobytes(), threads=16, group_size=16
    )
    values = elements(numbers, STARK, count)
    data = words([value * 2**256 % STARK for value in values], 4, most_significant_first=True)
    for stage in range(5):
        data = launch(dev, library["radix2_dit_butterfly_stark256"], data, twiddles, stage, threads=16, group_size=8)
    got = launch(dev, library["bitrev_permutation_stark256"], data, order, threads=count, group_size=16)[1]
    inverse = pow(2**256, -1, STARK)
    stored = integers(got, most_significant_first=True)
    assert [value * inverse % STARK for value in stored] == transform(values, root, STARK)


@pytest.mark.parametrize("inverse", [False, True])
def test_layers_of_the_circle_transform(
    dev: ost.Device, library: ost.Library, numbers: np.random.Generator, inverse: bool
) -> None:
    """Each layer has twiddles of its own; the layers of 1 to 8 neighbours can go in one dispatch."""
    count, layers = 256, range(8)
    twiddles = elements(numbers, MERSENNE, count - 1)
    of_layer = {layer: twiddles[(1 << layer) - 1 : (2 << layer) - 1] for layer in layers}
    values = elements(numbers, MERSENNE, count)
    data, given, name = np.array(values, np.uint32), np.array(twiddles, np.uint32), "i" * inverse + "cfft_butterfly"
    small = list(layers[:4])[:: -1 if inverse else 1]
    offsets = np.array([(1 << layer) - 1 for layer in small], np.uint32)

    def fuse(data: Any) -> Any:
        return launch(
            dev, library[f"{name}_fused_mersenne31"], data, given, small[0], offsets,
            groups=count // 16, group_size=8, shared={0: 64},
        )  # fmt: skip

    expected = values
    if not inverse:
        data = fuse(data)
    for layer in layers[:3:-1] if inverse else layers[4:]:
        half, grid = 1 << layer, {"threads": count // 2, "group_size": 32}
        if layer % 2:
            data = launch(dev, library[f"{name}_mersenne31"], data, given, layer, half - 1, **grid)
        else:
            cached = library[f"{name}_tg_mersenne31"]
            data = launch(dev, cached, data, given, layer, half - 1, half, **grid, shared={0: 4 * half})
    if inverse:
        data = fuse(data)

    for layer in reversed(layers) if inverse else layers:
        half = 1 << layer
        for i in (i for i in range(count) if not i & half):
            a, b, w = expected[i], expected[i + half], of_layer[layer][i % half]
            pair = (a + b, (a - b) * w) if inverse else (a + b * w, a - b * w)
            expected[i], expected[i + half] = (x % MERSENNE for x in pair)
    assert [int(x) % MERSENNE for x in data] == expected


@pytest.mark.parametrize(
    ("field", "modulus", "scale", "dtype"),
    [("BabyBear", BABYBEAR, 2**32, np.uint32), ("Goldilocks", GOLDILOCKS, 1, np.uint64)],
)
def test_round_of_a_sumcheck(
    dev: ost.Device,
    library: ost.Library,
    numbers: np.random.Generator,
    field: str,
    modulus: int,
    scale: int,
    dtype: Any,
) -> None:
    """The sum over half a cube of a product of three multilinear polynomials at a point, then one of them folded."""
    half, point = 700, elements(numbers, modulus, 1)[0]
    factors = [elements(numbers, modulus, 2 * half) for _ in range(3)]
    tables = np.array([[value * scale % modulus for value in factor] for factor in factors], dtype)
    stored_point = dtype(point * scale % modulus).tobytes()
    groups = -(-half // 128)
    sums = launch(
        dev, library[f"sumcheck_contribute_{field}"], tables, np.zeros(groups, dtype), half, 2 * half, 3, stored_point,
        groups=groups, group_size=128,
    )  # fmt: skip
    total = launch(dev, library[f"sumcheck_reduce_{field}"], sums, groups, groups=1, group_size=64)[0]
    folded = [[(lo + point * (hi - lo)) % modulus for lo, hi in zip(f[:half], f[half:], strict=True)] for f in factors]
    expected = sum(a * b * c for a, b, c in zip(*folded, strict=True)) % modulus
    assert int(total) * pow(scale, -1, modulus) % modulus == expected
    got = launch(dev, library[f"sumcheck_fold_{field}"], tables[1], stored_point, half, threads=half, group_size=128)
    assert [int(x) * pow(scale, -1, modulus) % modulus for x in got[:half]] == folded[1]


def poseidon2(state: list[int], constants: list[int]) -> list[int]:
    """The permutation of 8 elements: 4 outer rounds, 22 inner ones, 4 outer ones, with S-boxes of degree 7."""
    p = GOLDILOCKS
    diagonal, first, last, inner = (constants[a:b] for a, b in ((0, 8), (8, 40), (40, 72), (72, 94)))
    mix = [[5, 7, 1, 3], [4, 6, 1, 1], [1, 3, 5, 7], [1, 1, 4, 6]]

    def outer_layer(x: list[int]) -> list[int]:
        halves = [[sum(m * y for m, y in zip(row, x[i : i + 4], strict=True)) for row in mix] for i in (0, 4)]
        return [(halves[i // 4][i % 4] + halves[0][i % 4] + halves[1][i % 4]) % p for i in range(8)]

    def outer_rounds(x: list[int], added: list[int]) -> list[int]:
        for i in range(0, 32, 8):
            x = outer_layer([pow(y + c, 7, p) for y, c in zip(x, added[i : i + 8], strict=True)])
        return x

    state = outer_rounds(outer_layer(state), first)
    for constant in inner:
        state = [pow(state[0] + constant, 7, p), *state[1:]]
        state = [(d * x + sum(state)) % p for d, x in zip(diagonal, state, strict=True)]
    return outer_rounds(state, last)


@pytest.mark.parametrize(("name", "taken", "tag"), [("hash_single_kernel", 1, 1), ("compress_kernel", 4, 4)])
def test_poseidon2(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    pytestconfig: pytest.Config,
    name: str,
    taken: int,
    tag: int,
) -> None:
    """The constants of the rounds are read from the source."""
    file = "crates/crypto/src/merkle_tree/backends/metal/shaders/poseidon2.metal"
    kernel = checkouts.library("lambdaworks", file)[name]
    text = (Path(pytestconfig.getoption("--corpora")) / "lambdaworks" / file).read_text()
    constants = [int(word, 16) for word in re.findall(r"\b0x[0-9a-f]{16}\b", text)]
    values = elements(numbers, GOLDILOCKS, 70 * taken)
    got = launch(dev, kernel, np.array(values, np.uint64), np.zeros((70, 2), np.uint64), 70, threads=96, group_size=32)
    states = [[*values[i * taken : (i + 1) * taken], *[0] * (7 - taken), tag] for i in range(70)]
    assert [[int(x) % GOLDILOCKS for x in row] for row in got] == [poseidon2(s, constants)[:2] for s in states]


Point = tuple[int, int] | None
"""Of the curve y² = x³ + 4; None is its zero."""


def add(p: Point, q: Point) -> Point:
    if p is None or q is None:
        return p or q
    (x, y), (u, v) = p, q
    if x == u and (y + v) % BLS == 0:
        return None
    slope = (3 * x * x * pow(2 * y, -1, BLS) if p == q else (v - y) * pow(u - x, -1, BLS)) % BLS
    w = (slope * slope - x - u) % BLS
    return w, (slope * (x - w) - y) % BLS


def stored_points(points: list[Point], numbers: np.random.Generator) -> Words:
    """In Jacobian coordinates with random denominators."""
    rows = []
    for point, z in zip(points, elements(numbers, BLS, len(points)), strict=True):
        x, y, z = (1, 1, 0) if point is None else (point[0] * z**2, point[1] * z**3, z)
        rows.append(words([each * 2**384 % BLS for each in (x, y, z)], 6).reshape(-1))
    return np.array(rows)


def affine(rows: Words) -> list[Point]:
    points: list[Point] = []
    for row in rows.reshape(-1, 3, 6):
        x, y, z = (value * pow(2**384, -1, BLS) % BLS for value in integers(row))
        points.append((x * pow(z, -2, BLS) % BLS, y * pow(z, -3, BLS) % BLS) if z else None)
    return points


def curve_points(numbers: np.random.Generator, count: int) -> list[Point]:
    points: list[Point] = []
    while len(points) < count:
        x = elements(numbers, BLS, 1)[0]
        y = pow(x**3 + 4, (BLS + 1) // 4, BLS)
        if (y * y - x**3 - 4) % BLS == 0:
            points.append((x, y))
    return points


def test_buckets_of_curve_points(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    """Points go into buckets by signed digits, no two of a window into one; then windows are summed by weight."""
    accumulate, reduce = (
        checkouts.library("lambdaworks", "crates/gpu/src/metal/shaders/msm/msm.metal")[name]
        for name in ("bucket_accumulation", "bucket_reduction")
    )
    count, windows, wide = 6, 3, 8
    points = curve_points(numbers, count)
    digits = np.stack([numbers.permutation(wide)[:count] + 1 for _ in range(windows)], 1).astype(np.int32)
    digits *= numbers.choice([-1, 1], digits.shape).astype(np.int32)
    digits[2, 1] = 0
    held: list[Point] = [*curve_points(numbers, windows * wide - 1), None]
    held[(abs(digits[0, 0]) - 1) % wide] = points[0]
    got = launch(
        dev, accumulate, digits, stored_points(points, numbers), stored_points(held, numbers),
        np.array([count, windows, wide, 3], np.uint32), threads=32, group_size=32,
    )  # fmt: skip
    for (i, window), digit in np.ndenumerate(digits):
        if digit and (point := points[i]) is not None:
            at = window * wide + abs(digit) - 1
            held[at] = add(held[at], point if digit > 0 else (point[0], -point[1] % BLS))
    assert affine(got) == held
    sums = launch(
        dev, reduce, got, np.zeros((windows, 18), np.uint64), np.array([windows, wide], np.uint32),
        threads=windows, group_size=windows,
    )[1]  # fmt: skip
    expected: list[Point] = [None] * windows
    for at, point in enumerate(held):
        for _ in range(at % wide + 1):
            expected[at // wide] = add(expected[at // wide], point)
    assert affine(sums) == expected
