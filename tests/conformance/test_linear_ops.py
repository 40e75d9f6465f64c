"""Matrix by vector and matrix by matrix, dense and in blocks of few bits, against NumPy.

Every test runs both kernels that there are, the one for CPUs and the one for GPUs, on the device at hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from op_cases import DTYPES, near, run, values
from ostinato import ops
from small_graphs import dispatches

pytestmark = pytest.mark.usefixtures("either_kernel")
SHAPES = [(1, 1), (1, 64), (3, 31), (5, 65), (33, 128), (7, 1000), (130, 8), (2, 2056), (5, 10_248)]
by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)


def product(weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(x.astype(np.float64) @ weight.astype(np.float64).T)


@by_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matvec_is_that_of_numpy(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    weight, x = values(shape, dtype, 1), values(shape[1:], dtype, 2)
    out = dev.zeros(shape[0], dtype)
    run(dev, ops.matvec, dev.array(weight), dev.array(x), out)
    near(out, product(weight, x), scale=np.sqrt(shape[1]))


@by_dtype
def test_rows_that_start_anywhere_are_read_right(dev: ost.Device, dtype: np.dtype[Any]) -> None:
    weights, inputs = values((9 * 64,), dtype, 3), values((65,), dtype, 4)
    weight, x, out = dev.array(weights)[1:513].view(shape=(8, 64)), dev.array(inputs)[1:], dev.zeros(8, dtype)
    run(dev, ops.matvec, weight, x, out)
    near(out, product(weights[1:513].reshape(8, 64), inputs[1:]), scale=8)


@pytest.mark.parametrize("dtype", [np.float16])
def test_half_weights_of_every_kind_are_read_right(dev: ost.Device, dtype: type[np.float16]) -> None:
    """All 65,536 of them, subnormal, infinite and NaN too."""
    weight = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(-1, 64)
    for column in (0, 63):
        x = np.zeros(64, dtype)
        x[column] = 1
        chosen = np.where(x == 1, weight, dtype(0))
        out = dev.zeros(len(weight), dtype)
        run(dev, ops.matvec, dev.array(chosen), dev.array(x), out)
        assert np.array_equal(out.numpy(), weight[:, column], equal_nan=True)


@by_dtype
@pytest.mark.parametrize("tokens", [1, 3, 8, 17, 70])
@pytest.mark.parametrize("shape", [(1, 1), (33, 47), (70, 130)], ids=str)
def test_matmul_is_that_of_numpy(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int], tokens: int) -> None:
    weight, x = values(shape, dtype, 5), values((tokens, shape[1]), dtype, 6)
    out = dev.zeros((tokens, shape[0]), dtype)
    run(dev, ops.matmul, dev.array(weight), dev.array(x), out)
    near(out, product(weight, x), scale=np.sqrt(shape[1]))


@by_dtype
@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 5, 33), (16, 12, 64)], ids=str)
def test_expert_matvec_takes_the_experts_that_the_device_chose(
    dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int, int]
) -> None:
    experts, rows, width = shape
    weight, x = values(shape, dtype, 7), values((2, width), dtype, 8)
    indices = np.random.default_rng(9).integers(0, experts, (2, 3)).astype(np.uint32)
    for inputs in (x, np.repeat(x, 3, axis=0)):  # one for each token, one for each slot
        out = dev.zeros((2, 3, rows), dtype)
        run(dev, ops.expert_matvec, dev.array(weight), dev.array(inputs), dev.array(indices), out)
        expected = np.stack([[product(weight[e], x[t]) for e in indices[t]] for t in range(2)])
        near(out, expected, scale=np.sqrt(width))


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_an_expert_that_does_not_exist_gives_nan(dev: ost.Device, gated: bool) -> None:
    weight = dev.zeros((2, 2, 3, 4) if gated else (2, 3, 4), np.float32)
    x, out = dev.zeros(4, np.float32), dev.zeros((2, 3), np.float32)
    launch = ops.expert_gated_matvec if gated else ops.expert_matvec
    run(dev, launch, weight, x, dev.array(np.array([1, 2], np.uint32)), out)
    assert np.isnan(out.numpy()).tolist() == [[False] * 3, [True] * 3]


# --- gates -------------------------------------------------------------------------------------------------------


def gated(weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    gate, up = product(weight[0], x), product(weight[1], x)
    return np.asarray(gate / (1 + np.exp(-gate)) * up)


@by_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gated_matvec_is_two_products_and_a_gate(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    weight, x = values((2, *shape), dtype, 16) / np.sqrt(shape[1]).astype(dtype), values(shape[1:], dtype, 17)
    out = dev.zeros(shape[0], dtype)
    run(dev, ops.gated_matvec, dev.array(weight), dev.array(x), out)
    near(out, gated(weight, x), scale=4)


@by_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_addend_is_added_after_the_product_was_rounded(
    dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]
) -> None:
    weight, x, addend = values(shape, dtype, 20), values(shape[1:], dtype, 21), dev.array(values(shape[:1], dtype, 22))
    product, expected = dev.zeros(shape[0], dtype), dev.zeros(shape[0], dtype)
    run(dev, ops.matvec, dev.array(weight), dev.array(x), product)
    run(dev, ops.add, addend, product, expected)
    run(dev, ops.matvec, dev.array(weight), dev.array(x), addend, addend=addend)
    assert addend.numpy().tobytes() == expected.numpy().tobytes()


@by_dtype
@pytest.mark.parametrize("shape", [(1, 1), (5, 65), (130, 8), (7, 1000), (3, 4096)], ids=str)
def test_a_norm_may_be_a_part_of_the_product(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    weight = values((2, *shape), dtype, 23) / np.sqrt(shape[1]).astype(dtype)
    x, norm = values(shape[1:], dtype, 24), values(shape[1:], dtype, 25)
    wide = x.astype(np.float64)
    y = (wide / np.sqrt((wide**2).mean() + 1e-3) * norm.astype(np.float64)).astype(dtype)
    out = dev.zeros(shape[0], dtype)
    run(dev, ops.norm_matvec, dev.array(weight[0]), dev.array(x), dev.array(norm), out, 1e-3)
    near(out, product(weight[0], y), scale=4)
    run(dev, ops.norm_gated_matvec, dev.array(weight), dev.array(x), dev.array(norm), out, 1e-3)
    near(out, gated(weight, y), scale=8)


@by_dtype
def test_the_gated_product_of_the_experts_that_the_device_chose(dev: ost.Device, dtype: np.dtype[Any]) -> None:
    weight, x = values((4, 2, 5, 33), dtype, 18) / np.sqrt(33).astype(dtype), values((2, 33), dtype, 19)
    indices = np.array([[3, 0, 1], [2, 2, 3]], np.uint32)
    out = dev.zeros((2, 3, 5), dtype)
    run(dev, ops.expert_gated_matvec, dev.array(weight), dev.array(x), dev.array(indices), out)
    near(out, np.stack([[gated(weight[e], x[t]) for e in indices[t]] for t in range(2)]), scale=4)


# --- blocks of few bits ------------------------------------------------------------------------------------------


def q4_0(rng: np.random.Generator, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks, and the numbers they stand for."""
    scale = rng.uniform(-1, 1, (rows, width // 32, 1)).astype(np.float16)
    low, high = (rng.integers(0, 16, (rows, width // 32, 16)).astype(np.uint8) for _ in range(2))
    packed = np.concatenate([scale.view(np.uint8), low | high << 4], axis=2).reshape(rows, -1)
    numbers = np.concatenate([low, high], axis=2).astype(np.float64) - 8
    return packed, (scale.astype(np.float64) * numbers).reshape(rows, width)


def q8_0(rng: np.random.Generator, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    scale = rng.uniform(-0.1, 0.1, (rows, width // 32, 1)).astype(np.float16)
    numbers = rng.integers(-128, 128, (rows, width // 32, 32)).astype(np.int8)
    packed = np.concatenate([scale.view(np.uint8), numbers.view(np.uint8)], axis=2).reshape(rows, -1)
    return packed, (scale.astype(np.float64) * numbers).reshape(rows, width)


@by_dtype
@pytest.mark.parametrize("shape", [(1, 32), (5, 96), (33, 544), (3, 2080)], ids=str)
@pytest.mark.parametrize(("launch", "made"), [(ops.matvec_q4_0, q4_0), (ops.matvec_q8_0, q8_0)])
def test_blocks_of_gguf_are_multiplied(
    dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int], launch: Any, made: Any
) -> None:
    packed, weight = made(np.random.default_rng(10), *shape)
    x, out = values(shape[1:], dtype, 11), dev.zeros(shape[0], dtype)
    run(dev, launch, dev.array(packed), dev.array(x), out)
    near(out, product(weight, x), scale=4 * np.sqrt(shape[1]))


@by_dtype
@pytest.mark.parametrize("shape", [(1, 64), (5, 192), (33, 576), (3, 2112)], ids=str)
def test_affine_groups_are_multiplied(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    rows, width = shape
    rng = np.random.default_rng(12)
    numbers = rng.integers(0, 16, (rows, width))
    eights = numbers.reshape(rows, -1, 8).astype(np.uint32)
    packed = (eights << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    scales, biases = (values((rows, width // 64), dtype, seed) for seed in (13, 14))
    weight = numbers * np.repeat(scales, 64, axis=1).astype(np.float64) + np.repeat(biases, 64, axis=1)
    x, out = values(shape[1:], dtype, 15), dev.zeros(rows, dtype)
    run(dev, ops.matvec_affine4, dev.array(packed), dev.array(scales), dev.array(biases), dev.array(x), out)
    near(out, product(weight, x), scale=8 * np.sqrt(width))


# --- what is declared and refused --------------------------------------------------------------------------------


def test_what_is_read_written_and_computed_is_declared(dev: ost.Device) -> None:
    weight, x, out = dev.zeros((4, 8), np.float16), dev.zeros(8, np.float16), dev.zeros(4, np.float16)
    (command,) = dispatches(dev.capture(lambda enc: ops.matvec(enc, weight, x, out)))
    assert (command.bytes_read, command.bytes_written, command.flops) == (80, 8, 64)


@pytest.mark.parametrize(
    ("launch", "shapes", "reason"),
    [
        (ops.matvec, [(4, 8), (7,), (4,)], "x must have 8 elements"),
        (ops.matvec, [(4, 8), (8,), (5,)], "out must have 4 elements"),
        (ops.matvec, [(32,), (8,), (4,)], r"weight must be \[out, in\]"),
        (ops.matmul, [(4, 8), (3, 7), (3, 4)], "must have rows of 8"),
        (ops.matmul, [(4, 8), (3, 8), (2, 4)], "out must have 12 elements"),
        (ops.matvec, [(0, 8), (8,), (0,)], "empty"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    dev: ost.Device, launch: Any, shapes: list[tuple[int, ...]], reason: str
) -> None:
    with pytest.raises(ost.ArgumentError, match=f"{launch.__name__}: .*{reason}"):
        launch(dev.command_encoder(), *(dev.zeros(shape, np.float32) for shape in shapes))


def test_blocks_that_do_not_fit_are_refused(dev: ost.Device) -> None:
    encoder, x, out = dev.command_encoder(), dev.zeros(32, np.float32), dev.zeros(2, np.float32)
    with pytest.raises(ost.ArgumentError, match="not a multiple of blocks of 18"):
        ops.matvec_q4_0(encoder, dev.zeros((2, 17), np.uint8), x, out)
    with pytest.raises(ost.ArgumentError, match="weights must be uint8"):
        ops.matvec_q8_0(encoder, dev.zeros((2, 34), np.int8), x, out)
    with pytest.raises(ost.ArgumentError, match="odd address"):
        ops.matvec_q4_0(encoder, dev.zeros(37, np.uint8)[1:].view(shape=(2, 18)), x, out)
    groups = dev.zeros((2, 1), np.float32)
    with pytest.raises(ost.ArgumentError, match="groups of 64"):
        ops.matvec_affine4(encoder, dev.zeros((2, 4), np.uint32), groups, groups, x, out)
    with pytest.raises(ost.ArgumentError, match="indices must be uint32"):
        ops.expert_matvec(encoder, dev.zeros((2, 2, 32), np.float32), x, out, out)
