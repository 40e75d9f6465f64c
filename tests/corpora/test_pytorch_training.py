"""PyTorch: optimizers, scaled gradients, gradients of distances, and kernels that fill and copy tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, TOLERANCE, address, element_strides, kernel

Array = NDArray[Any]
LENGTHS = (1003, 70000)
"""Of tensors that are changed in one dispatch; each group takes 65536 elements of one."""


def lists_of_tensors(lists: list[list[ost.Buffer]]) -> NDArray[np.uint64]:
    """Addresses, 32 places for each list."""
    table = np.zeros((len(lists), 32), np.uint64)
    for row, buffers in zip(table, lists, strict=True):
        row[: len(buffers)] = [address(buffer) for buffer in buffers]
    return table


def chunks() -> bytes:
    """The lengths of the tensors, and for each of three groups its tensor and its part of it."""
    table = np.zeros((3, 32), np.uint64)
    table[0, :2], table[1, :3], table[2, :3] = LENGTHS, (0, 1, 1), (0, 0, 1)
    return table.tobytes()


def given(value: float) -> NDArray[np.float32]:
    """A number that a kernel finds by a pointer."""
    return np.array([value], np.float32)


@pytest.mark.parametrize(("maximize", "scale"), [(0, 1), (1, 8)])
@pytest.mark.parametrize(
    ("name", "dtype"), [("fused_adam", "float"), ("fused_adamw", "bfloat"), ("fused_adamw_amsgrad", "float")]
)
def test_adam(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    dtype: str,
    maximize: int,
    scale: int,
) -> None:
    """Gradients are divided by their scale, in memory too."""
    optimizer = kernel(checkouts, "FusedOptimizerOps", f"{name}_{dtype}_float")
    amsgrad = name.endswith("amsgrad")
    values = [
        [abs(numbers.standard_normal(n)).astype(DTYPES[dtype]) for n in LENGTHS] for _ in range(5 if amsgrad else 4)
    ]
    lists = [[dev.array(array) for array in arrays] for arrays in values]
    step = 7.0
    steps = dev.array(np.array([step], np.float32))
    table = lists_of_tensors([*lists, [steps, steps]])
    rate, beta1, beta2, decay, epsilon = 0.02, 0.9, 0.95, 0.1, 1e-3
    launch(
        dev, optimizer, table.view(np.uint8), chunks(), rate, beta1, beta2, decay, epsilon, np.uint8(maximize),
        given(scale), given(0), groups=3, group_size=512,
    )  # fmt: skip
    for i in range(2):
        x, gradient, mean, square = (arrays[i].astype(float) for arrays in values[:4])
        gradient /= scale
        assert_array_equal(lists[1][i].numpy().astype(float), gradient)
        gradient = -gradient if maximize else gradient
        if "adamw" in name:
            x = x - rate * decay * x
        else:
            gradient = gradient + decay * x
        mean, square = beta1 * mean + (1 - beta1) * gradient, beta2 * square + (1 - beta2) * gradient**2
        largest = np.maximum(values[4][i], square) if amsgrad else square
        taken = rate / (1 - beta1**step) * mean / (np.sqrt(largest / (1 - beta2**step)) + epsilon)
        close = 3 * TOLERANCE[dtype]
        for buffers, expected in zip(lists[2:], (mean, square, largest), strict=False):
            assert_allclose(buffers[i].numpy().astype(float), expected, rtol=close, atol=close / 10)
        # Both were rounded a few times, and nearly all of a number may be taken off.
        error = abs(lists[0][i].numpy().astype(float) - (x - taken))
        assert (error <= 2 * TOLERANCE[dtype] * (abs(x) + abs(taken))).all()


@pytest.mark.parametrize(("nesterov", "first", "scale"), [(0, 1, 1), (1, 0, 4)])
def test_gradient_descent_with_momentum(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, nesterov: int, first: int, scale: int
) -> None:
    optimizer = kernel(checkouts, "FusedOptimizerOps", "fused_sgd_momentum_half")
    values = [[numbers.standard_normal(n).astype(np.float16) for n in LENGTHS] for _ in range(3)]
    lists = [[dev.array(array) for array in arrays] for arrays in values]
    decay, momentum, rate, dampening = 0.1, 0.75, 0.25, 0.125
    launch(
        dev, optimizer, lists_of_tensors(lists).view(np.uint8), chunks(), decay, momentum, rate, dampening,
        np.uint8(nesterov), np.uint8(0), np.uint8(first), given(scale), given(0), groups=3, group_size=256,
    )  # fmt: skip
    for i in range(2):
        x, gradient, velocity = (arrays[i].astype(float) for arrays in values)
        gradient = gradient / scale + decay * x
        velocity = gradient if first else momentum * velocity + (1 - dampening) * gradient
        x = x - rate * (gradient + momentum * velocity if nesterov else velocity)
        assert_allclose(lists[2][i].numpy().astype(float), velocity, rtol=2e-3, atol=2e-3)
        assert_allclose(lists[0][i].numpy().astype(float), x, rtol=2e-3, atol=2e-3)


def test_an_optimizer_takes_no_step_where_a_gradient_is_infinite(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator
) -> None:
    optimizer = kernel(checkouts, "FusedOptimizerOps", "fused_sgd_float")
    values = [[numbers.standard_normal(n).astype(np.float32) for n in LENGTHS] for _ in range(2)]
    lists = [[dev.array(array) for array in arrays] for arrays in values]
    table = lists_of_tensors(lists).view(np.uint8)
    for found, rate in ((1, 0), (0, 0.25)):
        launch(
            dev, optimizer, table, chunks(), 0.5, 0.25, np.uint8(1), given(2), given(found), groups=3, group_size=256
        )
        for i, (x, gradient) in enumerate(zip(*values, strict=True)):
            expected = x + rate * (gradient / 2 - 0.5 * x)
            assert_allclose(lists[0][i].numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [None, np.inf, np.nan])
def test_gradients_are_scaled_back(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, bad: float | None
) -> None:
    unscale = kernel(checkouts, "Amp", "ampNonFiniteCheckAndUnscale_bfloat")
    values = [numbers.standard_normal(n).astype(DTYPES["bfloat"]) for n in LENGTHS]
    if bad is not None:
        values[1][69000] = bad
    buffers = [dev.array(array) for array in values]
    found = launch(
        dev, unscale, lists_of_tensors([buffers]).tobytes(), chunks(), np.zeros(1, np.float32), 0.125,
        groups=3, group_size=1024,
    )  # fmt: skip
    assert found == (bad is not None)
    for buffer, array in zip(buffers, values, strict=True):
        assert_array_equal(buffer.numpy().astype(float), array.astype(float) / 8)


@pytest.mark.parametrize("p", [1, 3, np.inf])
@pytest.mark.parametrize("dtype", ["float", "half"])
def test_gradient_of_distances(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, p: float
) -> None:
    kind = {1: 0, 3: 2, np.inf: 1}[p]
    backward = kernel(checkouts, "Distance", f"cdist_backward_{dtype}_p{kind}_tg32")
    x, y, gradient = (
        numbers.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((2, 13, 50), (2, 70, 50), (2, 13, 70))
    )
    apart = x[:, :, None].astype(np.float32) - y[:, None].astype(np.float32)
    sizes = abs(apart.astype(float))
    distances = sizes.max(3) if p == np.inf else (sizes**p).sum(3) ** (1 / p)
    parameters = np.array([2, 13, 70, 50], np.int64).tobytes() + np.array([p - 1, 0], np.float32).tobytes()
    got = launch(
        dev, backward, x, y, gradient, distances.astype(np.float32), np.zeros_like(x), parameters,
        threads=(64, 13, 2), group_size=(32, 1, 1),
    )  # fmt: skip
    ratios = sizes == distances[..., None] if p == np.inf else (sizes / distances[..., None]) ** (p - 1)
    expected = (gradient[..., None].astype(float) * np.sign(apart) * ratios).sum(2)
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=1e-5)


def test_renorm(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    renorm = kernel(checkouts, "RenormKernel", "renorm_half")
    norms = numbers.uniform(0.5, 4, 77).astype(np.float16)
    got = launch(dev, renorm, norms, np.zeros_like(norms), 2.0, threads=77, group_size=32)
    assert_allclose(got.astype(float), np.minimum(1, 2 / norms.astype(float)), rtol=2e-3)


@pytest.mark.parametrize("dtype", ["bfloat", "long", "bool"])
def test_fill_with_strides(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    fill = kernel(checkouts, "ConstantKernel", f"fill_scalar_strided_{dtype}")
    memory = numbers.integers(0, 2, (6, 5, 14)).astype(DTYPES[dtype])
    x = memory[:, :, ::2].transpose(2, 0, 1)
    got = launch(
        dev, fill, memory, memory.dtype.type(1), np.array(x.shape[:1] + x.shape[:0:-1]),
        np.array(x.strides[:1] + x.strides[:0:-1]), 3, threads=(30, 7), group_size=(8, 4),
    )  # fmt: skip
    expected = memory.copy()
    expected[:, :, ::2] = 1
    assert_array_equal(got, expected)


@pytest.mark.parametrize("start", range(4))
def test_fill_of_bytes_at_any_address(dev: ost.Device, checkouts: Checkouts, start: int) -> None:
    fill = kernel(checkouts, "ConstantKernel", "fill_scalar_dense_char")
    buffer = dev.array(np.zeros(110, np.int8))
    launch(dev, fill, buffer[start : start + 101], np.int8(-7), 101, threads=27, group_size=16)
    at = np.arange(110)
    assert_array_equal(buffer.numpy(), np.where((at >= start) & (at < start + 101), -7, 0))


def test_identity_matrix_with_strides(dev: ost.Device, checkouts: Checkouts) -> None:
    eye = kernel(checkouts, "Eye", "eye_half2")
    out = np.ones((9, 14, 2), np.float16)
    got = launch(dev, eye, out, 1, 14, threads=(9, 14), group_size=(4, 4))
    assert_array_equal(got[..., 0], np.eye(9, 14))
    assert_array_equal(got[..., 1], 0)


@pytest.mark.parametrize("index", ["int32_t", "int64_t"])
def test_cat_with_a_cast(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, index: str) -> None:
    cat = kernel(checkouts, "Shape", f"cat_{index}_half_long")
    memory, out = numbers.integers(-99, 99, (5, 3, 6)).astype(np.float16), np.zeros((6, 11, 3), np.int64)
    x, of_index = memory.transpose(2, 0, 1), DTYPES["int" if index == "int32_t" else "long"]
    shapes = np.zeros((4, 16), of_index)
    for row, values in enumerate((element_strides(out), out.shape, element_strides(x), x.shape)):
        shapes[row, :3] = values
    parameters = [
        np.array([3, 1], np.int32).tobytes() + shapes[:2].tobytes(),
        np.array([4, 0], of_index).tobytes() + shapes[2:].tobytes(),
    ]
    got = launch(dev, cat, memory, out, *parameters, threads=x.size, group_size=32)
    out[:, 4:9] = x
    assert_array_equal(got, out)


@pytest.mark.parametrize("offset", [-3, 2])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_indices_of_triangles(dev: ost.Device, checkouts: Checkouts, name: str, offset: int) -> None:
    """A trapezoid and a rectangle, which the host program counts."""
    indices = kernel(checkouts, "TriangularOps", f"{name}_indices_int")
    rows, columns = 90, 70
    expected = np.stack([np.tril_indices, np.triu_indices][name == "triu"](rows, offset, columns))
    shape: Any
    if name == "tril":
        counts = np.bincount(expected[0])
        first = int(np.argmax(counts > 0))
        below = (counts == columns).sum() - 1  # the first whole row belongs to the trapezoid
        shape = [first, counts[first], columns, counts.sum() - below * columns]
    else:
        shape = [max(0, offset), columns - max(0, offset), columns, max(0, -offset) * columns]
    got = launch(
        dev, indices, np.zeros(expected.shape, np.int32), *map(int, shape), expected.shape[1],
        threads=expected.shape[1], group_size=64,
    )  # fmt: skip
    assert_array_equal(got, expected)


def test_permutations_of_pivots(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    unpack = kernel(checkouts, "LinearAlgebra", "unpack_pivots_long_int")
    pivots = np.stack([numbers.integers(i, 12, 40) for i in range(9)], 1).astype(np.int32)
    expected = np.tile(np.arange(12), (40, 1))
    parameters = np.array([12, 9, 9], np.uint32).tobytes()
    got = launch(dev, unpack, expected, pivots + 1, parameters, threads=40, group_size=32)
    for row, swaps in zip(expected, pivots, strict=True):
        for i, j in enumerate(swaps):
            row[[i, j]] = row[[j, i]]
    assert_array_equal(got, expected)
