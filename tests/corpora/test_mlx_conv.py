"""MLX: convolutions as products of matrices, of each channel alone, and the patches of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, kernel, strides_of

Array = np.ndarray[Any, Any]

PARAMS = np.dtype(
    [
        *((name, np.int32) for name in ("N", "C", "O")),
        *((name, np.int32, 2) for name in ("iS", "wS", "oS", "str", "pad", "kdil", "idil")),
        *((name, np.int64, 4) for name in ("in_strides", "wt_strides", "out_strides")),
        ("groups", np.int32),
        ("flip", np.bool_),
    ],
    align=True,
)
"""Sizes of images [N, height, width, C] and filters [O, height, width, C of a group], steps and padding."""


def normal(numbers: np.random.Generator, name: str, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(DTYPES[name])


def patches(x: Array, size: tuple[int, int], step: int, pad: int, dilation: int) -> Array:
    """What each element of a filter meets: [N, height, width, filter's height, filter's width, C]."""
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    span = [dilation * (length - 1) + 1 for length in size]
    windows = np.lib.stride_tricks.sliding_window_view(padded, span, axis=(1, 2))
    return np.moveaxis(windows[:, ::step, ::step, :, ::dilation, ::dilation], 3, 5)


def described(x: Array, w: Array, out: Array, step: int, pad: int, dilation: int, groups: int, flip: bool) -> Array:
    params = np.zeros(1, PARAMS)
    params["N"], params["C"], params["O"] = len(x), x.shape[3], len(w)
    params["iS"], params["wS"], params["oS"] = x.shape[1:3], w.shape[1:3], out.shape[1:3]
    params["str"], params["pad"], params["kdil"], params["idil"] = step, pad, dilation, 1
    params["in_strides"], params["wt_strides"], params["out_strides"] = strides_of(x), strides_of(w), strides_of(out)
    params["groups"], params["flip"] = groups, flip
    return params


@pytest.mark.parametrize(
    ("name", "channels", "filters", "groups", "shape", "kind", "step", "dilation", "flip"),
    [
        ("float32", 32, 48, 1, (32, 32, 16, 2, 2), "l_filter_s", 2, 1, False),
        ("float16", 32, 64, 2, (32, 32, 16, 2, 2), "l_filter_s", 1, 2, True),
        ("bfloat16", 16, 64, 1, (32, 64, 16, 2, 2), "l_filter_l", 1, 1, False),
        ("float32", 3, 12, 1, (32, 8, 16, 4, 1), "3_filter_l", 2, 1, False),
        ("float16", 4, 32, 1, (64, 32, 16, 2, 2), "4_filter_l", 1, 1, True),
    ],
)
def test_convolution(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    channels: int,
    filters: int,
    groups: int,
    shape: tuple[int, ...],
    kind: str,
    step: int,
    dilation: int,
    flip: bool,
) -> None:
    bm, bn, bk, wm, wn = shape
    x, w = normal(numbers, name, 2, 17, 15, channels), normal(numbers, name, filters, 5, 3, channels // groups)
    met = patches(x.astype(np.float64), (5, 3), step, 2, dilation)
    out = np.ones((*met.shape[:3], filters), x.dtype)
    params = described(x, w, out, step, 2, dilation, groups, flip)
    name = f"implicit_gemm_conv_2d_{name}_bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}_channel_{kind}"
    convolve = kernel(checkouts, "steel/conv/kernels/steel_conv", name)
    each = channels // groups
    m, n, k = out[..., 0].size, filters // groups, 15 * each
    rounds = 15 * -(-each // bk) if kind.startswith("l") else -(-15 * (4 if each > 2 else each) // bk)
    # From an element of the filter to the next in memory: within a row, to the next row, to the next channels.
    along, down = (int(stride) * dilation for stride in strides_of(x, 2, 1))
    sign = -1 if flip else 1
    jumps = (sign * along, sign * (down - 2 * along), bk - sign * 4 * down - sign * 2 * along)
    tiles_n, tiles_m = -(-n // bn), -(-m // bm)
    gemm = np.array([(m, n, k, rounds, *jumps, tiles_n, tiles_m, 0)], convolve.dtype("gemm_params"))
    grid = (tiles_n, tiles_m, groups)
    got = launch(dev, convolve, x, w, out, params, gemm, groups=grid, group_size=(32, wn, wm))
    taken = w.astype(np.float64)[:, ::-1, ::-1] if flip else w.astype(np.float64)
    parts = [
        np.einsum("nyxhwc,ohwc->nyxo", part, of_part)
        for part, of_part in zip(np.split(met, groups, -1), np.split(taken, groups), strict=True)
    ]
    close(got, np.concatenate(parts, -1), 20)


@pytest.mark.parametrize(("name", "step", "flip"), [("float32", 2, False), ("bfloat16", 1, True)])
def test_convolution_of_each_channel(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, step: int, flip: bool
) -> None:
    x, w = normal(numbers, name, 2, 21, 19, 24), normal(numbers, name, 24, 5, 3, 1)
    met = patches(x.astype(np.float64), (5, 3), step, 1, 1)
    out = np.ones((*met.shape[:3], 24), x.dtype)
    constants = {"ker_h": 5, "ker_w": 3, "str_h": step, "str_w": step, "tgp_h": 4, "tgp_w": 8, "do_flip": flip}
    convolve = kernel(checkouts, "conv", f"depthwise_conv_2d_{name}", constants=constants)
    params = described(x, w, out, step, 1, 1, 24, flip)
    groups = (3, -(-out.shape[2] // 8), -(-out.shape[1] // 4) * 2)
    got = launch(dev, convolve, x, w, out, params, groups=groups, group_size=(8, 8, 4))
    taken = w.astype(np.float64)[:, ::-1, ::-1] if flip else w.astype(np.float64)
    close(got, np.einsum("nyxhwc,chw->nyxc", met, taken[..., 0]), 8)


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_convolution_of_each_channel_in_one_dimension(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    x, w = normal(numbers, name, 3, 45, 37), normal(numbers, name, 37, 4)
    convolve = kernel(checkouts, "conv", f"depthwise_conv_1d_{name}")
    out, strides = np.ones((3, 42, 37), x.dtype), strides_of(x).astype(np.int32)
    got = launch(dev, convolve, x, w, out, strides, 4, threads=(37, 42, 3), group_size=(32, 4, 2))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 4, axis=1)
    close(got, np.einsum("ntck,ck->ntc", windows, w.astype(np.float64)), 4)


@pytest.mark.parametrize("transposed", [False, True])
def test_patches(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, transposed: bool) -> None:
    x = normal(numbers, "float16", 2, 9, 11, 6)
    met = patches(x, (3, 2), 2, 1, 2)
    out = np.ones((*met.shape[:3], 36), x.dtype)
    unfold = kernel(checkouts, "conv", f"naive_unfold{'_transpose' * transposed}_nd_float16_2")
    params = described(x, np.ones((1, 3, 2, 6), x.dtype), out, 2, 1, 2, 1, flip=False)
    rows = out[..., 0].size
    got = launch(dev, unfold, x, out, params, 0, threads=(6, 6, rows), group_size=(6, 6, 4))
    flat = met.reshape(*met.shape[:3], 6, 6)
    np.testing.assert_array_equal(got, (flat.swapaxes(-1, -2) if transposed else flat).reshape(out.shape))
