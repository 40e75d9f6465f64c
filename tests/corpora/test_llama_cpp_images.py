"""llama.cpp: images and signals on ggml's Metal backend: convolutions, pooling, resizing, shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F32, TYPES, fields, kernel, memory, random, run
from launching import launch

STEPS = {"s0": 2, "s1": 1, "p0": 1, "p1": 2, "d0": 1, "d1": 2}
"""Strides, padding and dilation of windows, first those along rows."""


def windows(x: np.ndarray, height: int, width: int, fill: float = 0.0) -> np.ndarray:
    """The windows with these STEPS: two axes for the place of the window, and two for places in it."""
    padding = [(0, 0)] * (x.ndim - 2) + [(STEPS["p1"],) * 2, (STEPS["p0"],) * 2]
    padded = np.pad(x.astype(np.float64), padding, constant_values=fill)
    size = ((height - 1) * STEPS["d1"] + 1, (width - 1) * STEPS["d0"] + 1)
    places = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(-2, -1))
    return places[..., :: STEPS["s1"], :: STEPS["s0"], :: STEPS["d1"], :: STEPS["d0"]]


@pytest.mark.parametrize("name", ["f32", "f16"])
@pytest.mark.parametrize("extended", [False, True])
def test_im2col(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, extended: bool) -> None:
    """The kernel for large windows takes them apart in groups of its own."""
    x, height, width = random(numbers, 3, 4, 11, 14), 3, 5
    expected = np.moveaxis(windows(x, height, width), 1, 3)
    batch, rows, columns, channels = expected.shape[:4]
    sizes = {"IW": 14, "IH": 11, "N": batch, "KH": height, "KW": width, "KHW": height * width}
    places = channels * height * width
    geometry: dict[str, Any] = {"groups": (channels, rows, columns), "group_size": (batch, height, width)}
    if extended:
        geometry = {"groups": (places, rows, columns), "group_size": batch}
    got = run(
        dev,
        kernel(checkouts, f"kernel_im2col{'_ext' if extended else ''}_{name}"),
        x,
        out=np.zeros(expected.shape, TYPES[name]),
        arguments=STEPS | sizes | {"CHW": places, "ofs0": x[0].size, "ofs1": x[0, 0].size},
        **geometry,
    )
    np.testing.assert_array_equal(got, expected.astype(TYPES[name]))


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_conv_2d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, weights = random(numbers, 2, 4, 11, 14), random(numbers, 6, 4, 3, 5, dtype=TYPES[name])
    expected = np.einsum("nchwyx,ocyx->nohw", windows(x, 3, 5), weights.astype(np.float64))
    sizes = {"IW": 14, "IH": 11, "KW": 5, "KH": 3, "IC": 4, "OC": 6, "OW": expected.shape[3], "OH": expected.shape[2]}
    got = run(
        dev,
        kernel(checkouts, f"kernel_conv_2d_{name}_f32"),
        weights,
        x,
        out=np.zeros(expected.shape, F32),
        arguments=STEPS | sizes | {"N": 2},
        groups=-(-expected.size // 256),
        group_size=256,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["f32", "f16"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_conv_2d_of_each_channel(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, channels_last: bool
) -> None:
    x, weights = random(numbers, 2, 6, 11, 14), random(numbers, 6, 1, 3, 5, dtype=TYPES[name])
    if channels_last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, 3)).transpose(0, 3, 1, 2)
    expected = np.einsum("nchwyx,cyx->nchw", windows(x, 3, 5), weights[:, 0].astype(np.float64))
    height, width = expected.shape[2:]
    got = run(
        dev,
        kernel(checkouts, f"kernel_conv_2d_dw{'_tiled' if channels_last else ''}_{name}_f32"),
        weights,
        x,
        out=np.zeros(expected.shape, F32),
        arguments=STEPS
        | {"IW": 14, "IH": 11, "KW": 5, "KH": 3, "C": 6, "OW": width, "OH": height, "N": 2}
        | {"nb02": weights.strides[0]},
        groups=(1, height, 2 * width if channels_last else 2 * 6),
        group_size=256,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_conv_3d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, weights = random(numbers, 2, 3, 6, 7, 8), random(numbers, 4, 3, 3, 2, 3, dtype=TYPES["f16"])
    padded = np.pad(x.astype(np.float64), [(0, 0)] * 2 + [(1, 1)] * 3)
    places = np.lib.stride_tricks.sliding_window_view(padded, (3, 2, 3), axis=(2, 3, 4))[:, :, :, :, ::2]
    expected = np.einsum("ncdhwzyx,oczyx->nodhw", places, weights.astype(np.float64))
    sizes = {"IW": 8, "IH": 7, "ID": 6, "KW": 3, "KH": 2, "KD": 3, "IC": 3, "N": 2, "OC": 4}
    sizes |= dict(zip(("OD", "OH", "OW"), expected.shape[2:], strict=True))
    sizes |= {"s0": 2, "s1": 1, "s2": 1} | {f"{name}{axis}": 1 for name in "pd" for axis in range(3)}
    got = run(
        dev,
        kernel(checkouts, "kernel_conv_3d_f16_f32"),
        weights.reshape(12, 3, 2, 3),
        x.reshape(6, 6, 7, 8),
        out=np.zeros((8, *expected.shape[2:]), F32),
        arguments=sizes,
        groups=(-(-expected[0, 0].size // 32), 4, 2),
        group_size=32,
    )
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_conv_transpose_1d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, weights, stride = random(numbers, 5, 19), random(numbers, 5, 3, 7, dtype=TYPES[name]), 3
    expected = np.zeros((3, 18 * stride + 7))
    for i in range(19):
        expected[:, i * stride : i * stride + 7] += np.einsum("cok,c->ok", weights.astype(np.float64), x[:, i])
    got = run(
        dev,
        kernel(checkouts, f"kernel_conv_transpose_1d_{name}_f32"),
        weights,
        x,
        out=np.zeros(expected.shape, F32),
        arguments={"IC": 5, "IL": 19, "K": 7, "s0": stride},
        groups=expected.shape[::-1],
        group_size=1,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["f32", "f16"])
def test_conv_transpose_2d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, weights, stride = random(numbers, 5, 6, 7), random(numbers, 5, 3, 3, 4, dtype=TYPES[name]), 2
    expected = np.zeros((3, 5 * stride + 3, 6 * stride + 4))
    for y, i in np.ndindex(6, 7):
        place = (slice(None), slice(y * stride, y * stride + 3), slice(i * stride, i * stride + 4))
        expected[place] += np.einsum("coyx,c->oyx", weights.astype(np.float64), x[:, y, i])
    got = run(
        dev,
        kernel(checkouts, f"kernel_conv_transpose_2d_{name}_f32"),
        weights,
        x,
        out=np.zeros(expected.shape, F32),
        arguments={"IC": 5, "IH": 6, "IW": 7, "KH": 3, "KW": 4, "OC": 3, "s0": stride},
        groups=expected.shape[::-1],
        group_size=(4, 3, 1),
        shared={0: 48},
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["max", "avg"])
def test_pool_2d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = random(numbers, 2, 4, 22, 30)
    places = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (2, 2)], constant_values=-np.inf if name == "max" else 0),
        (3, 5),
        axis=(2, 3),
    )[:, :, ::2, ::3]
    expected = places.max((-2, -1)) if name == "max" else places.mean((-2, -1))
    sizes = {"k0": 5, "k1": 3, "s0": 3, "s1": 2, "p0": 2, "p1": 1, "IH": 22, "IW": 30, "np": expected.size}
    got = run(
        dev,
        kernel(checkouts, f"kernel_pool_2d_{name}_f32"),
        x,
        out=np.zeros(expected.shape, F32),
        arguments=sizes | {"OH": expected.shape[2], "OW": expected.shape[3]},
        groups=-(-expected.size // 256),
        group_size=256,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["max", "avg"])
def test_pool_1d(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = random(numbers, 7, 100)
    padded = np.pad(x.astype(np.float64), [(0, 0), (2, 2)], constant_values=np.nan)  # which counts for nothing
    places = np.lib.stride_tricks.sliding_window_view(padded, 5, axis=1)[:, ::3]
    expected = np.nanmax(places, axis=-1) if name == "max" else np.nanmean(places, axis=-1)
    got = run(
        dev,
        kernel(checkouts, f"kernel_pool_1d_{name}_f32"),
        x,
        out=np.zeros(expected.shape, F32),
        arguments={"k0": 5, "s0": 3, "p0": 2, "IW": 100, "OW": expected.shape[1], "np": expected.size},
        groups=1,
        group_size=expected.size,
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def weights_of_resizing(kind: str, old: int, new: int) -> np.ndarray:
    """A row of weights for each new pixel. Pixels are points in the middle of their squares."""
    place = (np.arange(new) + 0.5) * old / new - 0.5
    weights = np.zeros((new, old))
    first, part = np.floor(place).astype(int), place - np.floor(place)
    rows = np.arange(new)
    if kind == "antialiased":
        width = max(1.0, old / new)
        weights = np.maximum(0, 1 - np.abs(np.arange(old) - place[:, None]) / width)
        return np.asarray(weights / weights.sum(1, keepdims=True))
    if kind == "nearest":
        weights[rows, rows * old // new] = 1
    if kind == "bilinear":
        np.add.at(weights, (rows, np.clip(first, 0, old - 1)), np.where(first < 0, 0, 1 - part))
        np.add.at(weights, (rows, np.clip(first + 1, 0, old - 1)), np.where(first < 0, 1, part))
    if kind == "bicubic":
        for step in (-1, 0, 1, 2):
            x = np.abs(part - step)
            near, far = (1.25 * x - 2.25) * x * x + 1, ((-0.75 * x + 3.75) * x - 6) * x + 3
            np.add.at(weights, (rows, np.clip(first + step, 0, old - 1)), np.where(x <= 1, near, far))
    return weights


@pytest.mark.parametrize(("kind", "factor"), [("nearest", 2), ("bilinear", 4), ("antialiased", 0.5), ("bicubic", 2)])
def test_resizing(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: str, factor: float
) -> None:
    x = random(numbers, 2, 3, 10, 17)[..., :16]
    height, width = int(10 * factor), int(16 * factor)
    name = f"kernel_upscale_{'bilinear' if kind == 'antialiased' else kind}_f32"
    constants = {} if kind in ("nearest", "bicubic") else {"aa": kind == "antialiased"}
    got = run(
        dev,
        kernel(checkouts, name, "FC_upscale", **constants),
        x,
        out=np.zeros((2, 3, height, width), F32),
        arguments={"sf0": factor, "sf1": factor, "sf2": 1.0, "sf3": 1.0, "poffs": 0.5},
        groups=(height, 3, 2),
        group_size=width,
    )
    down, across = weights_of_resizing(kind, 10, height), weights_of_resizing(kind, 16, width)
    np.testing.assert_allclose(got, down @ x.astype(np.float64) @ across.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [100, 1001, 4800])
def test_padding(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, columns: int) -> None:
    x, by_four = random(numbers, 2, 2, 3, columns + 4)[..., :columns], columns % 4 == 0
    expected = np.pad(x, [(0, 0), (0, 1), (0, 2), (0, 400)])
    old, new = (columns // 4, columns // 4 + 100) if by_four else (columns, columns + 400)
    got = run(
        dev,
        kernel(checkouts, "kernel_pad_f32" + ("_4" if by_four else "")),
        x,
        out=np.zeros(expected.shape, F32) - 1,
        arguments={"ne00": old, "ne0": new},
        groups=(-(-new // 1024) * 5, 3, 2),
        group_size=64,
    )
    np.testing.assert_array_equal(got, expected)


def test_padding_by_reflection(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = random(numbers, 2, 3, 50)
    expected = np.pad(x, [(0, 0), (0, 0), (7, 11)], "reflect")
    pad, out = kernel(checkouts, "kernel_pad_reflect_1d_f32"), np.zeros(expected.shape, F32)
    got = run(dev, pad, x, out=out, arguments={"p0": 7, "p1": 11}, groups=(3, 2, 1), group_size=68)
    np.testing.assert_array_equal(got, expected)


def test_roll(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, shifts = random(numbers, 2, 3, 5, 70), {"s0": 11, "s1": -2, "s2": 1, "s3": 0}
    roll, out = kernel(checkouts, "kernel_roll_f32"), np.zeros(x.shape, F32)
    got = run(dev, roll, x, out=out, arguments=shifts, groups=(5, 3, 2), group_size=70)
    np.testing.assert_array_equal(got, np.roll(x, tuple(shifts.values()), axis=(3, 2, 1, 0)))


@pytest.mark.parametrize(("kind", "name"), [(0, "f32"), (1, "f16"), (2, "bf16"), (3, "f32")])
def test_triangle(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, kind: int, name: str) -> None:
    """The kernel takes its result as const, and casts that away."""
    x = random(numbers, 2, 3, 20, 20, dtype=TYPES[name])
    cut, out = kernel(checkouts, f"kernel_tri_{name}_{kind}"), dev.array(memory(np.zeros_like(x)))
    launch(dev, cut, fields(cut, x, out=x), memory(x), out, groups=(20, 3, 2), group_size=20, writes=ost.UNKNOWN)
    columns, rows = np.arange(20), np.arange(20)[:, None]
    kept = (columns >= rows, columns > rows, columns <= rows, columns < rows)[kind]
    np.testing.assert_array_equal(out.numpy().view(x.dtype).reshape(x.shape), np.where(kept, x, 0))


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_snake(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x, a, b = random(numbers, 5, 300, dtype=TYPES[name]), random(numbers, 5), random(numbers, 5)
    snake, out = kernel(checkouts, f"kernel_snake_{name}"), np.zeros(x.shape, x.dtype)
    got = run(dev, snake, x, a, b, out=out, arguments={"T": 300, "C": 5}, groups=6, group_size=256)
    exact = x.astype(np.float64)
    expected = exact + np.sin(a[:, None] * exact) ** 2 * b[:, None]
    tolerance = {"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[name]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_timestep_embedding(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    steps = numbers.uniform(0, 10, 6).astype(F32)
    embed, out = kernel(checkouts, "kernel_timestep_embedding_f32"), np.zeros((6, 161), F32) - 1
    got = run(dev, embed, steps, out=out, arguments={"dim": 161, "max_period": 10000}, groups=6, group_size=80)
    angle = steps[:, None] * 10000.0 ** (-np.arange(80) / 80)
    expected = np.concatenate([np.cos(angle), np.sin(angle), np.zeros((6, 1))], axis=1)
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-5)
