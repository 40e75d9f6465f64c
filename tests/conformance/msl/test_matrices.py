"""Matrices: column-major, m[column][row], with the products of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

SHAPES = [(c, r) for c in (2, 3, 4) for r in (2, 3, 4)]
SIZES = (2, 3, 4)

# In each, a = [[1, 2], [3, 4]] and b = [[5, 6], [7, 8]] by columns come from memory; r is the result.
CASES: list[tuple[str, list[list[float]]]] = [
    ("r = float2x2(1)", [[1, 0], [0, 1]]),
    ("r = float2x2(1, 2, 3, 4)", [[1, 2], [3, 4]]),
    ("r = float2x2(float2(1, 2), float2(3, 4))", [[1, 2], [3, 4]]),
    ("r = float2x2{float2(1, 2), float2(3, 4)}", [[1, 2], [3, 4]]),
    ("r = a + b", [[6, 8], [10, 12]]),
    ("r = b - a", [[4, 4], [4, 4]]),
    ("r = -a", [[-1, -2], [-3, -4]]),
    ("r = a * 2", [[2, 4], [6, 8]]),
    ("r = 2.0 * a", [[2, 4], [6, 8]]),
    ("r = a * b", [[23, 34], [31, 46]]),
    ("r = a; r += b; r -= float2x2(1)", [[5, 8], [10, 11]]),
    ("r = a; r *= 3", [[3, 6], [9, 12]]),
    ("r = a; r *= b", [[23, 34], [31, 46]]),
    ("r = transpose(a)", [[1, 3], [2, 4]]),
    ("r = a; r[1] = float2(9, 8)", [[1, 2], [9, 8]]),
    ("r = a; r[0][1] = 9; r[1].x = 8", [[1, 9], [8, 4]]),
    ("r = a; r[1].yx = a[0]", [[1, 2], [2, 1]]),
    ("r = a; r[0] += r[1]", [[4, 6], [3, 4]]),
    ("r[0] = a * b[0]; r[1] = b[0] * a", [[23, 34], [17, 39]]),
    ("r = float2x2(half2x2(a) * 0.5h)", [[0.5, 1], [1.5, 2]]),
    ("r[0].x = determinant(a); r[0].y = determinant(half2x2(b)); r[1] = 0", [[-2, -2], [0, 0]]),
    ("const float2x2 t = a; r = float2x2(t.columns[1], t[0])", [[3, 4], [1, 2]]),
    ("r = matrix<float, 2, 2>(a[0], a[1])", [[1, 2], [3, 4]]),
    ("r = float2x2((a == a) ? 1.0 : 0.0)", [[1, 0], [0, 1]]),
]

SOURCE = f"""{HEAD}
kernel void cases(device const float2x2 *in, device float2x2 *out) {{
  const float2x2 a = in[0], b = in[1];
{chr(10).join(f"  {{ float2x2 r; {code}; out[{i}] = r; }}" for i, (code, _) in enumerate(CASES))}
}}
template <typename M, typename MT, typename V, typename W>
kernel void products(device const M *m, device const V *v, device const W *w, device W *mv, device V *vm, device MT *t) {{
  mv[0] = m[0] * v[0]; vm[0] = w[0] * m[0]; t[0] = transpose(m[0]);
}}
#define PRODUCTS(T, c, r) template [[host_name("products_" #T #c #r)]] kernel void products<T##c##x##r, T##r##x##c, T##c, T##r>( \\
  device const T##c##x##r *, device const T##c *, device const T##r *, device T##r *, device T##c *, device T##r##x##c *);
{" ".join(f"PRODUCTS({t}, {c}, {r})" for c, r in SHAPES for t in ("float", "half"))}
template <typename A, typename B, typename R>
kernel void chain(device const A *a, device const B *b, device R *out) {{ out[0] = a[0] * b[0]; }}
#define CHAIN(k, r, c) template [[host_name("chain_" #k #r #c)]] kernel void chain<float##k##x##r, float##c##x##k, float##c##x##r>( \\
  device const float##k##x##r *, device const float##c##x##k *, device float##c##x##r *);
CHAIN(2, 3, 4) CHAIN(3, 4, 2) CHAIN(4, 2, 3) CHAIN(4, 4, 4) CHAIN(3, 3, 3)
kernel void determinants(device const float2x2 *a, device const float3x3 *b, device const float4x4 *c, device float *out) {{
  out[0] = determinant(a[0]); out[1] = determinant(b[0]); out[2] = determinant(c[0]);
}}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE)


@pytest.fixture(scope="module")
def results(dev: ost.Device, library: ost.Library) -> Any:
    return launch(dev, library["cases"], np.arange(1, 9, dtype=np.float32), np.zeros((len(CASES), 2, 2), np.float32))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_matrices_are_columns(results: Any, case: tuple[str, list[list[float]]]) -> None:
    np.testing.assert_array_equal(results[CASES.index(case)], case[1])


def in_memory(columns: Any) -> Any:
    """Columns as Metal stores them: those of three rows are padded to four."""
    count, rows = columns.shape
    stored = np.zeros((count, 4 if rows == 3 else rows), columns.dtype)
    stored[:, :rows] = columns
    return stored


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["float", "half"])
@pytest.mark.parametrize(("c", "r"), SHAPES)
def test_products_and_transposes_of_every_shape(
    dev: ost.Device, library: ost.Library, c: int, r: int, dtype: Any
) -> None:
    random = np.random.default_rng(c * 10 + r)
    m, v, w = (random.integers(-4, 5, shape).astype(dtype) for shape in ((c, r), (1, c), (1, r)))
    name = f"products_{'float' if dtype is np.float32 else 'half'}{c}{r}"
    blank = [np.zeros_like(in_memory(w)), np.zeros_like(in_memory(v)), np.zeros_like(in_memory(m.T.copy()))]
    mv, vm, t = launch(dev, library[name], in_memory(m), in_memory(v), in_memory(w), *blank)
    np.testing.assert_array_equal(mv[0, :r], m.T @ v[0])
    np.testing.assert_array_equal(vm[0, :c], m @ w[0])
    np.testing.assert_array_equal(t[:, :c], m.T)


@pytest.mark.parametrize(("k", "r", "c"), [(2, 3, 4), (3, 4, 2), (4, 2, 3), (4, 4, 4), (3, 3, 3)])
def test_a_product_of_matrices_has_the_rows_of_the_left_and_the_columns_of_the_right(
    dev: ost.Device, library: ost.Library, k: int, r: int, c: int
) -> None:
    random = np.random.default_rng(k * 100 + r * 10 + c)
    a, b = random.integers(-4, 5, (k, r)).astype(np.float32), random.integers(-4, 5, (c, k)).astype(np.float32)
    out = np.zeros_like(in_memory(np.zeros((c, r), np.float32)))
    got = launch(dev, library[f"chain_{k}{r}{c}"], in_memory(a), in_memory(b), out)
    np.testing.assert_array_equal(got[:, :r], b @ a)


def test_determinants_match_numpy(dev: ost.Device, library: ost.Library) -> None:
    matrices = [np.random.default_rng(n).integers(-4, 5, (n, n)).astype(np.float32) for n in SIZES]
    got = launch(dev, library["determinants"], *(in_memory(m) for m in matrices), np.zeros(3, np.float32))
    np.testing.assert_allclose(got, [np.linalg.det(m) for m in matrices], rtol=1e-5)
