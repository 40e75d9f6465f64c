"""PyTorch: resizing, sampling, pooling, and windows of images, with torch on the CPU in doubles as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mps_kernels import DTYPES, TOLERANCE, element_strides, kernel

torch = pytest.importorskip("torch", reason="torch is not installed; `pip install '.[oracle]'`")
functional = torch.nn.functional
Array = NDArray[Any]


def doubles(array: Array) -> Any:
    return torch.from_numpy(array.astype(float))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("mode", ["bilinear2d", "bicubic2d", "bilinear2d_aa", "bicubic2d_aa"])
def test_upsample(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, dtype: str, align: bool
) -> None:
    upsample = kernel(checkouts, "UpSample", f"upsample_{mode}_{dtype}")
    x = numbers.standard_normal((2, 3, 11, 17)).astype(DTYPES[dtype])
    # An odd size to an even one: no sample lies on the edge of another's window, where rounding decides.
    anti_alias, out = mode.endswith("aa"), np.zeros((2, 3, 6, 40), x.dtype)
    align = align and not anti_alias
    scales = [10 / 5, 16 / 39] if align else [11 / 6, 17 / 40]
    shapes = np.array([element_strides(x), x.shape, element_strides(out), out.shape], np.int64)
    parameters = shapes.tobytes() + np.array(scales[::-1], np.float32).tobytes() + bytes([align, *bytes(7)])
    got = launch(dev, upsample, x, out, parameters, threads=240, group_size=64)
    expected = functional.interpolate(
        doubles(x), (6, 40), mode=mode.split("2d")[0], align_corners=align, antialias=anti_alias
    )
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("mode", "dtype", "close"),
    [("nearest_exact_3d", "bfloat", 0), ("trilinear", "float", 2e-4), ("trilinear", "half", 0.1)],
)
def test_upsample_of_volumes_and_its_gradient(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, dtype: str, close: float
) -> None:
    """Gradients are added in the type itself, in any order; sums of small integers are exact."""
    forward, backward = (kernel(checkouts, "UpSample", f"upsample_{mode}{part}_{dtype}") for part in ("", "_backward"))
    x, out = numbers.integers(-8, 9, (2, 2, 5, 6, 5)).astype(DTYPES[dtype]), np.zeros((2, 2, 8, 12, 20), DTYPES[dtype])
    shapes = np.array([element_strides(x), x.shape, element_strides(out), out.shape], np.uint64)
    scales = np.array([5 / 20, 6 / 12, 5 / 8], np.float32)
    parameters = shapes.tobytes() + scales.tobytes() + bytes(4)
    grid = {"threads": 8 * 12 * 20, "group_size": 64}
    leaf = doubles(x).requires_grad_()
    expected = functional.interpolate(leaf, out.shape[2:], mode=mode.removesuffix("_3d").replace("_", "-"))
    got = launch(dev, forward, x, out, parameters, **grid)
    assert_allclose(got.astype(float), expected.detach(), rtol=TOLERANCE[dtype], atol=5 * TOLERANCE[dtype])

    gradient = numbers.integers(-4, 5, out.shape).astype(out.dtype)
    expected.backward(doubles(gradient))
    got = launch(dev, backward, np.zeros(x.nbytes, np.uint8), gradient, parameters, **grid).view(x.dtype)
    assert_allclose(got.reshape(x.shape).astype(float), leaf.grad, rtol=close, atol=close)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sampler(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, padding: str
) -> None:
    sampler = kernel(checkouts, "GridSampler", f"grid_sampler_2d_{mode}_{padding}_i32_float")
    memory, grid = numbers.standard_normal((2, 9, 13, 3)), numbers.uniform(-1.4, 1.4, (2, 8, 10, 2))
    memory, grid = memory.astype(np.float32), grid.astype(np.float32)
    x, out = np.moveaxis(memory, -1, 1), np.zeros((2, 3, 8, 10), np.float32)
    shapes = [each for array in (out, x, grid) for each in (array.shape, element_strides(array))]
    parameters = np.array([2, *np.ravel(shapes), 0], np.int32).tobytes()
    got = launch(dev, sampler, out, memory, grid, parameters, threads=160, group_size=64)
    expected = functional.grid_sample(doubles(x), doubles(grid), mode=mode, padding_mode=padding, align_corners=False)
    assert_allclose(got, expected, rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(
    ("mode", "padding"), [("bilinear", "border"), ("nearest", "zeros"), ("bilinear", "reflection")]
)
def test_grid_sampler_of_volumes(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, padding: str
) -> None:
    sampler = kernel(checkouts, "GridSampler", f"grid_sampler_3d_{mode}_{padding}_i64_half")
    x, grid = numbers.standard_normal((2, 3, 5, 6, 7)), numbers.uniform(-1.4, 1.4, (2, 3, 4, 5, 3))
    x, grid, out = x.astype(np.float16), grid.astype(np.float16), np.zeros((2, 3, 3, 4, 5), np.float16)
    shapes = [each for array in (out, x, grid) for each in (array.shape, element_strides(array))]
    parameters = np.array([3, *np.ravel(shapes), 1], np.int64).tobytes()
    got = launch(dev, sampler, out, x, grid, parameters, threads=360, group_size=32)
    expected = functional.grid_sample(doubles(x), doubles(grid), mode=mode, padding_mode=padding, align_corners=True)
    assert_allclose(got.astype(float), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "index"), [("bilinear", np.int32), ("bicubic", np.int64)])
def test_gradients_of_grid_sampler(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, mode: str, index: Any, padding: str
) -> None:
    of_input = f"input_{padding}" if mode == "bicubic" else "input"
    of_grid = f"grid_{padding}" if mode == "bicubic" else "grid"
    to_input, to_grid = (
        kernel(checkouts, "GridSampler", f"grid_sampler_2d_backward_{mode}_{target}_i{8 * index(0).nbytes}_float")
        for target in (of_input, of_grid)
    )
    x, grid = numbers.standard_normal((2, 3, 9, 13)), numbers.uniform(-1.4, 1.4, (2, 8, 10, 2))
    gradient = numbers.standard_normal((2, 3, 8, 10)).astype(np.float32)
    x, grid = x.astype(np.float32), grid.astype(np.float32)
    leaves = [doubles(array).requires_grad_() for array in (x, grid)]
    functional.grid_sample(*leaves, mode=mode, padding_mode=padding, align_corners=True).backward(doubles(gradient))
    shapes = [each for array in (gradient, x, grid) for each in (array.shape, element_strides(array))]
    strides = [element_strides(array) for array in (gradient, x, grid)]
    modes = [["zeros", "border", "reflection"].index(padding), ["bilinear", "nearest", "bicubic"].index(mode)]
    parameters = np.array([2, *np.ravel(shapes), 1, *np.ravel(strides)], index).tobytes()
    parameters += np.array(modes, np.int32).tobytes() + bytes([1, 1] + [0] * (index(0).nbytes - 2))
    launched = {"threads": 160, "group_size": 64}
    got = launch(dev, to_input, np.zeros_like(x), gradient, grid, parameters, **launched)
    assert_allclose(got, leaves[0].grad, rtol=1e-4, atol=1e-4)
    got = launch(dev, to_grid, np.zeros_like(grid), gradient, x, grid, parameters, **launched)
    assert_allclose(got, leaves[1].grad, rtol=1e-4, atol=2e-4)


def pooling(dims: int, windows: int, *rows: Any) -> NDArray[np.int32]:
    """Numbers of a parameter block; sizes and strides take 5 each, what belongs to windows takes 3."""
    padded = [np.pad(row, (0, (5 if len(row) == dims else 3) - len(row))) for row in rows]
    return np.concatenate([[dims, windows], *padded]).astype(np.int32)


@pytest.mark.parametrize("dtype", ["float", "bfloat", "uchar", "long"])
def test_max_pool(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    pool = kernel(checkouts, "Pooling", f"max_pool_{dtype}")
    memory = numbers.integers(0, 250, (2, 11, 10, 3)).astype(DTYPES[dtype])
    x = np.moveaxis(memory, -1, 1)
    window, step, pad, spread = (3, 2), (2, 1), (1, 1), (2, 3)
    expected = functional.max_pool2d(doubles(x), window, step, pad, spread)
    out, indices = np.zeros(expected.shape, x.dtype), np.zeros(expected.shape, np.int64)
    rows = [each for array in (x, out, indices) for each in (array.shape, element_strides(array))]
    parameters = pooling(4, 2, *rows, window, step, pad, spread).tobytes() + np.int32(1).tobytes()
    got = launch(dev, pool, memory, out, indices, parameters, threads=out.size, group_size=64)
    assert_array_equal(got[0].astype(float), expected)
    picked = np.take_along_axis(x.reshape(2, 3, 110), got[1].reshape(2, 3, -1), 2)
    assert_array_equal(picked.reshape(out.shape), got[0])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradient_of_max_pool(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str) -> None:
    backward = kernel(checkouts, "Pooling", f"max_pool_backward_{dtype}")
    leaf = torch.from_numpy(numbers.standard_normal((2, 3, 12, 10))).requires_grad_()
    pooled, indices = functional.max_pool2d(leaf, (4, 3), (1, 2), (2, 1), return_indices=True)
    gradient, got = (numbers.integers(-4, 5, pooled.shape).astype(DTYPES[dtype]), np.zeros(leaf.shape, DTYPES[dtype]))
    pooled.backward(doubles(gradient))
    where = indices.numpy()
    rows = [each for array in (got, gradient) for each in (array.shape, element_strides(array))]
    parameters = pooling(4, 2, *rows, element_strides(where)).tobytes()
    got = launch(
        dev, backward, got.view(np.uint8), gradient, where, parameters, threads=gradient.size, group_size=64
    ).view(got.dtype)  # fmt: skip
    assert_array_equal(got.reshape(leaf.shape).astype(float), leaf.grad)


@pytest.mark.parametrize("count_padding", [False, True])
def test_average_pool_of_volumes_and_its_gradient(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, count_padding: bool
) -> None:
    forward, backward = (kernel(checkouts, "Pooling", f"avg_pool{part}_float") for part in ("", "_backward"))
    x = numbers.standard_normal((2, 3, 7, 9, 8)).astype(np.float32)
    window, step, pad = (2, 3, 4), (1, 2, 3), (0, 1, 2)
    leaf = doubles(x).requires_grad_()
    expected = functional.avg_pool3d(leaf, window, step, pad, count_include_pad=count_padding)
    out, gradient = np.zeros(expected.shape, np.float32), numbers.standard_normal(expected.shape).astype(np.float32)
    rows = [each for array in (x, out) for each in (array.shape, element_strides(array))]
    parameters = pooling(5, 3, *rows, window, step, pad).tobytes() + bytes([count_padding, *[0] * 7])
    grid = {"threads": out.size, "group_size": 32}
    got = launch(dev, forward, x, out, parameters, **grid)
    assert_allclose(got, expected.detach(), rtol=1e-5, atol=1e-6)
    expected.backward(doubles(gradient))
    got = launch(dev, backward, np.zeros_like(x), gradient, parameters, **grid)
    assert_allclose(got, leaf.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "offsets"), [("half", np.uint32), ("bool", np.uint64)])
def test_windows_to_columns(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, offsets: Any
) -> None:
    im2col = kernel(checkouts, "Im2Col", f"im2col_{dtype}_u{np.dtype(offsets).itemsize * 8}")
    x = numbers.integers(0, 2, (2, 3, 9, 8)).astype(DTYPES[dtype])
    expected = functional.unfold(doubles(x), (3, 2), dilation=(2, 1), padding=(1, 2), stride=(2, 3))
    out = np.zeros(expected.shape, x.dtype)
    got = launch(
        dev, im2col, x, out, np.array([2, 3, 1, 2], np.uint32), np.array([2, 1, 3, 2], np.int32),
        element_strides(x)[::-1].astype(offsets), np.array([*element_strides(out)[::-1], 4], offsets),
        np.array(x.shape[::-1], offsets), threads=(out.shape[2], 3, 2), group_size=(64, 1, 1),
    )  # fmt: skip
    assert_array_equal(got.astype(float), expected)


@pytest.mark.parametrize(("dtype", "offsets"), [("float", np.uint32), ("half", np.uint64), ("bfloat", np.uint32)])
def test_columns_to_image(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: str, offsets: Any
) -> None:
    col2im = kernel(checkouts, "Col2Im", f"col2im_kernel_{dtype}_u{np.dtype(offsets).itemsize * 8}")
    columns = numbers.standard_normal((2, 3 * 3 * 2, 4 * 4)).astype(DTYPES[dtype])
    pairs = [(9, 8), (3, 2), (1, 2), (2, 3), (2, 1), (4, 4)]
    size, window, pad, step, spread, _ = pairs
    got = launch(
        dev, col2im, columns, np.zeros((2, 3, 9, 8), columns.dtype), offsets(18 * 16), 3,
        *(np.array(pair, np.uint32) for pair in pairs), offsets(3 * 72), np.array([16, 1], offsets),
        threads=(8, 9, 6), group_size=(8, 8, 1),
    )  # fmt: skip
    expected = functional.fold(doubles(columns), size, window, dilation=spread, padding=pad, stride=step)
    assert_allclose(got.astype(float), expected, rtol=TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize(("size", "step"), [(5, 2), (3, 4)])
def test_gradient_of_unfold(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, size: int, step: int
) -> None:
    unfold = kernel(checkouts, "UnfoldBackward", "unfold_backward_half")
    leaf = torch.zeros(3, 21, 4, dtype=torch.float64, requires_grad=True)
    windows = leaf.unfold(1, size, step)
    gradient = numbers.standard_normal(windows.shape).astype(np.float16)
    windows.backward(doubles(gradient))
    out = np.zeros(leaf.shape, np.float16)
    got = launch(
        dev, unfold, gradient, out, element_strides(gradient), np.array(out.shape), element_strides(out),
        np.array([1, size, step, 3], np.uint32), threads=out.size, group_size=64,
    )  # fmt: skip
    assert_allclose(got.astype(float), leaf.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("pads", [(4, 2), (-3, 5)])
def test_padding_by_the_edges(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, pads: tuple[int, int]
) -> None:
    forward, backward = (
        kernel(checkouts, "ReplicationPad", f"replication_pad1d_{part}_bfloat") for part in ("forward", "backward")
    )
    x = numbers.integers(-8, 9, (2, 3, 17)).astype(DTYPES["bfloat"])
    leaf = doubles(x).requires_grad_()
    expected = functional.pad(leaf, pads, mode="replicate")
    width = expected.shape[2]
    widths = np.array([17, width, *pads], np.int32)
    got = launch(
        dev, forward, x, np.zeros(expected.shape, x.dtype), widths, threads=(width, 3, 2), group_size=(8, 1, 1)
    )
    assert_array_equal(got.astype(float), expected.detach())
    gradient = numbers.integers(-4, 5, expected.shape).astype(x.dtype)
    expected.backward(doubles(gradient))
    got = launch(dev, backward, gradient, np.zeros_like(x), widths, threads=(17, 3, 2), group_size=(8, 1, 1))
    assert_array_equal(got.astype(float), leaf.grad)
