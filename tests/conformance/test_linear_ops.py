"""Matrix by vector and matrix by matrix, dense and in blocks of few bits, against NumPy.

Every test runs both kernels that there are, the one for CPUs and the one for GPUs, on the device at hand.
"""

from __future__ import annotations

import os
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
@pytest.mark.parametrize("shape", [(1, 1), (5, 65), (130, 8), (7, 1000), (3, 4096), (2200, 2056)], ids=str)
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


AFFINE = ops.affine_format(3, 64, "float16")


def blocks(form: ops.Format, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of any bytes with small scales, as rows of bytes; and the weights they stand for."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 256, (*shape[:-1], form.row_bytes(shape[-1])), np.uint8).view(form.dtype)
    for field in ("scale", "offset", "minimum", "bias"):
        if field in (form.dtype.fields or {}):
            made[field] = rng.uniform(-1, 1, made.shape) / form.weights
    return made.view(np.uint8), form.dequantised(made)


@pytest.mark.parametrize("form", [*ops.FORMATS.values(), AFFINE], ids=lambda form: form.name)
def test_rows_of_a_quantised_table_are_looked_up(dev: ost.Device, form: ops.Format) -> None:
    packed, weight = blocks(form, (7, 512), 10)
    tokens = np.array([6, 0, 3, 7], np.uint32)
    out = dev.zeros((4, 512), np.float32)
    run(dev, ops.embedding_blocks, form, dev.array(packed), dev.array(tokens), out)
    np.testing.assert_allclose(out.numpy()[:3], weight[tokens[:3]], rtol=1e-6, atol=1e-7)
    assert np.isnan(out.numpy()[3]).all()


@pytest.mark.parametrize(("form", "tokens"), [(ops.FORMATS["Q6_K"], 11), (AFFINE, 1)], ids=["many", "one"])
def test_quantised_matrices_are_multiplied(dev: ost.Device, form: ops.Format, tokens: int) -> None:
    for rows, width in ((1, 256), (33, 768)):
        packed, weight = blocks(form, (rows, width), 11)
        x, out = values((tokens, width), np.dtype("f4"), 12), dev.zeros((tokens, rows), np.float32)
        run(dev, ops.matmul_blocks, form, dev.array(packed), dev.array(x), out)
        near(out, product(weight, x), scale=4 * np.sqrt(width))


def test_a_quantised_matrix_multiplies_other_types_than_float(dev: ost.Device) -> None:
    form, dtype = ops.FORMATS["Q8_0"], DTYPES[2]
    packed, weight = blocks(form, (5, 96), 13)
    x, out = values((96,), dtype, 14), dev.zeros(5, dtype)
    run(dev, ops.matvec_blocks, form, dev.array(packed), dev.array(x), out)
    near(out, product(weight, x), scale=40)


def test_products_may_stand_beside_each_other_in_rows(dev: ost.Device) -> None:
    form = AFFINE
    packed, weight = blocks(form, (3, 64), 15)
    x, out = values((5, 64), np.dtype("f4"), 16), dev.array(np.full((5, 7), 9, np.float32))
    run(dev, ops.matmul_blocks, form, dev.array(packed), dev.array(x), out, column=2)
    assert (out.numpy()[:, [0, 1, 5, 6]] == 9).all()
    np.testing.assert_allclose(out.numpy()[:, 2:5], product(weight, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", [ops.FORMATS["Q8_0"], None], ids=["quantised", "dense"])
def test_experts_of_many_tokens_are_read_once_for_all_of_them(dev: ost.Device, form: ops.Format | None) -> None:
    experts, rows, width, slots = 5, 6, 64, (13, 3)
    packed, weight = blocks(ops.FORMATS["Q8_0"], (experts, rows, width), 17)
    indices = np.random.default_rng(18).integers(0, experts - 1, slots).astype(np.uint32)  # one has nothing to do
    order, starts = dev.zeros(slots, np.uint32), dev.zeros(experts + 1, np.uint32)
    places = dev.array(indices)
    run(dev, ops.expert_lists, places, order, starts)
    assert starts.numpy().tolist() == [int((indices < expert).sum()) for expert in range(experts + 1)]
    assert order.numpy().ravel().tolist() == np.argsort(indices, axis=None, kind="stable").tolist()
    matrices = dev.array(weight if form is None else packed)
    x, out = values((13, width), np.dtype("f4"), 19), dev.zeros((*slots, rows), np.float32)
    expected = np.stack([[product(weight[e], x[t]) for e in indices[t]] for t in range(slots[0])])
    run(dev, ops.expert_matmul, form, matrices, dev.array(x), places, out, order=order, starts=starts)
    near(out, expected, scale=8)
    if form is not None:
        indices[4, 1] = experts
        run(dev, ops.expert_matmul, form, matrices, dev.array(x), dev.array(indices), out)
        assert np.isnan(out.numpy()[4, 1]).all()
        expected[4, 1] = out.numpy()[4, 1]
        near(out, expected, scale=8)


PACKED = list(ops.FORMATS) if os.environ.get("ALL_AS_VECTORS") else ["Q3_K"]


@pytest.mark.parametrize("name", PACKED)
def test_packed_matrices_multiply_rounded_rows(dev: ost.Device, name: str) -> None:
    form, rows, width, tokens = ops.FORMATS[name], 70, 512, 5
    made, weight = blocks(form, (rows, width), 20)
    x = values((tokens, width), np.dtype("f4"), 21)
    tiles = dev.zeros(ops.packed.packed_bytes(form, rows, width), np.uint8)
    shapes = ops.packed.rounded_shapes(tokens, width)
    room = ops.Rounded(dev.zeros(shapes[0], np.int8), dev.zeros(shapes[1], np.float32))
    out, encoder = dev.array(np.full((tokens, rows + 1), 9, np.float32)), dev.command_encoder()
    matrix = ops.pack_blocks(encoder, form, dev.array(made), tiles)
    rounded = ops.round_rows(encoder, dev.array(x), width, room)
    ops.matmul_packed(encoder, matrix, rounded, out, column=1)
    encoder.commit_and_wait()
    scales = np.repeat(room.scales.numpy()[:tokens, :, 0], 32, axis=1)
    near_x = room.numbers.numpy()[:tokens] * scales.astype(np.float64)
    assert np.abs(near_x - x).max() <= 2 / 254 * 1.001
    np.testing.assert_allclose(out.numpy()[:, 1:], product(weight, near_x), rtol=1e-5, atol=1e-4)
    assert (out.numpy()[:, 0] == 9).all()


def test_many_rows_at_a_time_are_the_same_products(dev: ost.Device) -> None:
    weight, x = values((37, 96), np.dtype("f2"), 22), values((8, 96), np.dtype("f2"), 23)
    out, wide = dev.zeros((8, 37), np.float16), dev.zeros(8 * 96, np.float32)
    run(dev, ops.matmul_many, dev.array(weight), dev.array(x), out, wide)
    near(out, product(weight, x), scale=10)
    with pytest.raises(ost.ArgumentError, match="wide must have room for 768"):
        ops.matmul_many(dev.command_encoder(), dev.array(weight), dev.array(x), out, wide[:700])


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
    encoder, x, out, form = dev.command_encoder(), dev.zeros(32, np.float32), dev.zeros(2, np.float32), FORM
    with pytest.raises(ost.ArgumentError, match=r"not a multiple of blocks of 18 \(Q4_0\)"):
        ops.matvec_blocks(encoder, form, dev.zeros((2, 17), np.uint8), x, out)
    with pytest.raises(ost.ArgumentError, match="weights must be uint8"):
        ops.matvec_blocks(encoder, form, dev.zeros((2, 18), np.int8), x, out)
    with pytest.raises(ost.ArgumentError, match="odd address"):
        ops.matvec_blocks(encoder, form, dev.zeros(37, np.uint8)[1:].view(shape=(2, 18)), x, out)
    with pytest.raises(ost.ArgumentError, match="form is a Format"):
        ops.matvec_blocks(encoder, "Q4_0", dev.zeros((2, 18), np.uint8), x, out)  # type: ignore[arg-type]
    with pytest.raises(ost.ArgumentError, match="rows of at least 3 elements for 1 tokens"):
        ops.matmul_blocks(encoder, form, dev.zeros((2, 18), np.uint8), x, out, column=1)
    with pytest.raises(ost.ArgumentError, match="indices must be uint32"):
        ops.expert_matvec(encoder, dev.zeros((2, 2, 32), np.float32), x, out, out)


FORM = ops.FORMATS["Q4_0"]
