"""llama.cpp: products of ggml's Metal backend with weights of every kind, and rows of such weights."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F32, I32, SCALES, TYPES, assert_near, block_size, kernel, matrix, memory, random, run
from launching import launch

ROWS = {
    **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "tq2_0", "iq1_s"), 4),
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"), 4),
    **dict.fromkeys(("f32", "f16", "bf16", "q8_0", "q3_K", "q4_K", "q6_K", "iq4_nl", "iq4_xs", "mxfp4"), 2),
    "q5_K": 1,
}
"""Kinds of weights, and how many rows a simdgroup takes in products with vectors."""
SHARED = {
    **dict.fromkeys(("f32", "f16", "bf16", "q8_0"), 256),
    **dict.fromkeys(("iq4_nl", "iq4_xs", "mxfp4"), 128),
    "iq2_xxs": 256 * 8 + 128,
    "iq2_xs": 512 * 8 + 128,
    "iq3_xxs": 256 * 4 + 128,
    "iq3_s": 512 * 4,
}
"""Bytes of threadgroup memory of products with vectors."""
SIMDGROUPS = dict.fromkeys(("f32", "f16", "bf16", "q8_0"), 4)
"""Simdgroups that work on the same rows. Elsewhere two work on rows of their own."""

USED, HELD = 27, 32
"""Rows of a matrix that count, and those in memory: simdgroups read all rows that they may have."""


def product(weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x times the rows of weights, and the sums of the magnitudes of what is added."""
    w, x = np.asarray(weights, np.float64).swapaxes(-1, -2), np.asarray(x, np.float64)
    return x @ w, np.abs(x) @ np.abs(w)


def row_groups(name: str) -> int:
    return -(-USED // (ROWS[name] * (1 if name in SIMDGROUPS else 2)))


@pytest.mark.parametrize(
    ("name", "suffix", "columns"),
    [
        *((name, "", 3 * 256 if block_size(name) == 256 else 23 * 32) for name in SCALES),
        *((name, "_4", 700) for name in ("f32", "f16", "bf16")),
        *((name, "", 701) for name in ("f32", "f16")),
        ("f16", "_short", 30),
    ],
)
def test_matrix_and_vector(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, suffix: str, columns: int
) -> None:
    constants = {"nsg": SIMDGROUPS.get(name, 2), "ne12": 4, "r2": 2, "r3": 1}
    mul = kernel(checkouts, f"kernel_mul_mv_{name}_f32{suffix}", "FC_mul_mv", **constants)
    weights, values = matrix(numbers, name, 2, HELD, columns)
    x = random(numbers, 4, 3, columns + 4)[..., :columns]
    got = run(
        dev,
        mul,
        weights,
        x,
        out=np.zeros((4, 3, USED), F32),
        arguments={"ne00": columns, "ne01": USED, "nr0": ROWS[name], "r2": 2, "r3": 1},
        groups=(1 if suffix == "_short" else row_groups(name), 3, 4),
        group_size=(32, 1 if suffix == "_short" else SIMDGROUPS.get(name, 2), 1),
        shared={0: SHARED[name]} if name in SHARED and suffix != "_short" else None,
    )
    assert_near(got, *product(values[:, :USED].repeat(2, axis=0), x), 1e-5)


@pytest.mark.parametrize(
    ("name", "vectors", "at_once"),
    [
        *((name, 2 + i % 4, 2 + i % 4) for i, name in enumerate(("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"))),
        ("bf16", 7, 4),
        ("iq4_nl", 2, 2),
        ("mxfp4", 6, 3),
        *((name, 7, 4) for name in ("q2_K", "q3_K", "q4_K", "q5_K", "q6_K")),
    ],
)
def test_matrix_and_a_few_vectors(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, vectors: int, at_once: int
) -> None:
    lanes = 16 if vectors < 3 else 8  # that share a row
    constants = {"nsg": 2, "nxpsg": lanes, "ne12": 2, "r2": 2, "r3": 1}
    mul = kernel(checkouts, f"kernel_mul_mv_ext_{name}_f32_r1_{at_once}", "FC_mul_mv", **constants)
    weights, values = matrix(numbers, name, 1, HELD, 768)
    x = random(numbers, 2, vectors, 768 + 4)[..., :768]
    got = run(
        dev,
        mul,
        weights,
        x,
        out=np.zeros((2, vectors, USED), F32),
        arguments={"ne00": 768, "ne01": USED, "r2": 2, "r3": 1},
        groups=(-(-USED // (32 // lanes * 2)), -(-vectors // at_once), 2),
        group_size=(32, 2, 1),
    )
    assert_near(got, *product(values[:, :USED], x), 1e-5)


@pytest.mark.parametrize(
    ("name", "of", "size", "vectors", "columns"),
    [
        *((name, "f32", 76, 43, 512) for name in SCALES),
        ("q4_0", "f16", 76, 43, 512),
        ("q6_K", "f32", 128, 64, 256),
        ("f16", "f32", 76, 43, 77),
        ("f32", "f32", 76, 43, 77),
        ("bf16", "f32", 76, 43, 96),
        ("f16", "f16", 64, 32, 96),
    ],
)
def test_matrices(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    of: str,
    size: int,
    vectors: int,
    columns: int,
) -> None:
    partial = size % 64 != 0 or vectors % 32 != 0
    constants = {"bc_inp": columns % 32 != 0, "bc_out": partial, "ne12": 2, "ne13": 1, "r2": 2, "r3": 1}
    mul = kernel(checkouts, f"kernel_mul_mm_{name}_{of}", "FC_mul_mm", **constants)
    weights, values = matrix(numbers, name, 1, size, columns)
    x = random(numbers, 2, vectors, columns // 8 * 8 + 8, dtype=TYPES[of])[..., :columns]
    got = run(
        dev,
        mul,
        weights,
        x,
        out=np.zeros((2, vectors, size), F32),
        arguments={"ne00": columns, "r2": 2, "r3": 1},
        groups=(-(-vectors // 32), -(-size // 64), 2),
        group_size=(32, 4, 1),
        shared={0: 8192 if partial else 4096 + 2048},
    )
    # Both sides are rounded to half, or to bfloat, before they are multiplied.
    assert_near(got, *product(values, x), 2**-9 if name == "bf16" else 2**-11)


EXPERTS = 5


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "q4_K", "q6_K", "iq4_xs", "mxfp4"])
def test_vectors_and_matrices_of_experts(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    constants = {"nsg": SIMDGROUPS.get(name, 2), "ne12": 1, "r2": 1, "r3": 1}
    mul = kernel(checkouts, f"kernel_mul_mv_id_{name}_f32", "FC_mul_mv", **constants)
    weights, values = matrix(numbers, name, EXPERTS, HELD, 512)
    x = random(numbers, 3, 1, 512)
    chosen = np.argsort(numbers.random((3, EXPERTS)), axis=1)[:, :2].astype(I32)
    got = run(
        dev,
        mul,
        weights,
        x,
        out=np.zeros((3, 2, USED), F32),
        arguments={"ne00": 512, "ne01": USED, "nr0": ROWS[name], "nei0": 2, "nei1": 3, "nbi1": chosen.strides[0]},
        behind=(chosen,),
        groups=(row_groups(name), 1, chosen.size),
        group_size=(32, SIMDGROUPS.get(name, 2), 1),
        shared={0: SHARED.get(name, 16)},
    )
    expected, bound = product(values[chosen, :USED], x[:, :, None])
    assert_near(got, expected[:, :, 0], bound[:, :, 0], 1e-5)


@pytest.mark.parametrize("name", ["f16", "q4_0", "q5_K", "mxfp4"])
def test_many_vectors_and_matrices_of_experts(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    tokens, used, size = 83, 2, 76
    weights, values = matrix(numbers, name, EXPERTS, size, 256)
    x = random(numbers, tokens, used, 256)
    chosen = np.argsort(numbers.random((tokens, EXPERTS)), axis=1)[:, :used].astype(I32)
    order = kernel(checkouts, f"kernel_mul_mm_id_map0_ne20_{used}")
    arguments = dict.fromkeys(("ne02", "ne10", "ne11", "nb11", "nb12"), 0)
    counts, places = launch(
        dev,
        order,
        arguments | {"ne02": EXPERTS, "ne21": tokens, "ne20": used, "nb21": chosen.strides[0]},
        memory(chosen),
        np.zeros(EXPERTS * 4, np.uint8),
        np.zeros(EXPERTS * tokens * 4, np.uint8),
        groups=1,
        group_size=EXPERTS,
        shared={0: EXPERTS * used * 2},
    )
    for expert, (count, found) in enumerate(zip(counts.view(I32), places.view(I32).reshape(EXPERTS, -1), strict=True)):
        np.testing.assert_array_equal(found[:count], np.flatnonzero(chosen == expert))
    got = run(
        dev,
        kernel(checkouts, f"kernel_mul_mm_id_{name}_f32", "FC_mul_mm", bc_inp=False),
        weights,
        x,
        counts,
        places,
        out=np.zeros((tokens, used, size), F32),
        arguments={"ne00": 256, "ne20": used, "ne21": tokens, "r2": 1, "r3": 1},
        groups=(-(-tokens // 32), -(-size // 64), EXPERTS),
        group_size=128,
        shared={0: 8192},
    )
    expected, bound = product(values[chosen], x[:, :, None])
    assert_near(got, expected[:, :, 0], bound[:, :, 0], 2**-11)


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", *SCALES])
def test_rows_by_number(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    weights, values = matrix(numbers, name, 2, 11, 512)
    rows = numbers.integers(0, 11, (2, 37), I32)
    threads = 512 if name in TYPES else 512 // 16
    got = run(
        dev,
        kernel(checkouts, f"kernel_get_rows_{name}"),
        weights,
        rows,
        out=np.zeros((2, 37, 512), F32),
        arguments={"ne00": 512, "ne00t": threads},
        groups=(37, 2, 1),
        group_size=threads,
    )
    expected = np.stack([values[batch][rows[batch]] for batch in (0, 1)])
    assert_near(got, expected, np.abs(expected).max(), 1e-6)
