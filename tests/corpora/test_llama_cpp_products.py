"""llama.cpp: products of ggml's Metal backend, with weights of every kind, and rows of such weights."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F16, F32, I32, TYPES, assert_near, kernel, quantised, run

ROWS = {
    **dict.fromkeys(("q4_0", "q4_1", "q5_0", "q5_1", "q2_K", "tq2_0", "iq1_s"), 4),
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"), 4),
    **dict.fromkeys(("q8_0", "q3_K", "q4_K", "q6_K", "iq4_nl", "iq4_xs", "mxfp4"), 2),
    "q5_K": 1,
}
"""Formats, and how many rows a simdgroup takes."""
TABLES = {
    **{"q8_0": 256, "iq4_nl": 128, "iq4_xs": 128, "mxfp4": 128, "iq2_xxs": 256 * 8 + 128, "iq2_xs": 512 * 8 + 128},
    **{"iq3_xxs": 256 * 4 + 128, "iq3_s": 512 * 4},
}
"""Bytes of threadgroup memory of products with vectors."""

USED, HELD = 27, 32
"""Rows of a matrix that count, and those in memory: simdgroups read all rows that they may have."""


def columns(name: str) -> int:
    return 23 * 32 if gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]][0] == 32 else 3 * 256


def random(numbers: np.random.Generator, *shape: int, dtype: np.dtype = F32) -> np.ndarray:
    return numbers.standard_normal(shape).astype(dtype)


def product(weights: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x times the rows of weights, and the sums of the magnitudes of what is added."""
    w, x = np.asarray(weights, np.float64), np.asarray(x, np.float64)
    return x @ w.swapaxes(-1, -2), np.abs(x) @ np.abs(w).swapaxes(-1, -2)


@pytest.mark.parametrize("name", ROWS)
def test_quantised_matrix_and_vectors(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    simdgroups = 4 if name == "q8_0" else 2
    mul = kernel(
        checkouts, f"kernel_mul_mv_{name}_f32", FC_mul_mv_nsg=simdgroups, FC_mul_mv_ne12=4, FC_mul_mv_r2=2, FC_mul_mv_r3=1
    )
    weights, values = quantised(numbers, name, 2, HELD, columns(name))
    x = random(numbers, 4, 3, columns(name) + 4)[..., :-4]
    got = run(
        dev,
        mul,
        weights,
        x,
        out=np.zeros((4, 3, USED), F32),
        arguments={"ne00": columns(name), "ne01": USED, "nr0": ROWS[name], "r2": 2, "r3": 1},
        groups=(-(-USED // (ROWS[name] * (1 if name == "q8_0" else 2))), 3, 4),
        group_size=(32, simdgroups, 1),
        shared={0: TABLES[name]} if name in TABLES else None,
    )
    assert_near(got, *product(values[:, :USED].repeat(2, axis=0), x), 1e-5)
