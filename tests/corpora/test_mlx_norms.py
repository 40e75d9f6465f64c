"""MLX: softmax, logsumexp, layer norm and RMS norm, rows at once and in loops, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, kernel

Array = np.ndarray[Any, Any]

EPS = 1e-5

types = pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
rows = pytest.mark.parametrize(
    ("loop", "width", "threads"), [("", 1021, None), ("_looped", 5003, 1024)], ids=["at_once", "looped"]
)
"""A row by as many threads as its width takes, or in a loop."""


def normal(numbers: np.random.Generator, name: str, *shape: int) -> Array:
    return numbers.normal(0.5, 1, shape).astype(DTYPES[name])


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(("kind", "width", "threads"), [("block", 1021, 256), ("looped", 5003, 1024)])
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "precise_float16", "precise_bfloat16"])
def test_softmax(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, kind: str, width: int, threads: int
) -> None:
    x = (normal(numbers, "float32", 5, width) * 3).astype(DTYPES[name.removeprefix("precise_")])
    norm = kernel(checkouts, "softmax", f"{kind}_softmax_{name}")
    got = launch(dev, norm, x, np.ones_like(x), width, groups=5, group_size=threads)
    # Without "precise" everything, sums too, is of the type of the elements.
    scale = 1 if name.startswith("precise") or name == "float32" else 8
    close(got * width, softmax(x.astype(np.float64)) * width, scale)


@pytest.mark.parametrize(("kind", "width", "threads"), [("block", 1021, 256), ("looped", 5003, 1024)])
@types
def test_logsumexp(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, kind: str, width: int, threads: int
) -> None:
    x = normal(numbers, name, 5, width)
    reduction = kernel(checkouts, "logsumexp", f"{kind}_logsumexp_{name}")
    got = launch(dev, reduction, x, np.ones(5, x.dtype), width, groups=5, group_size=threads)
    close(got, np.log(np.exp(x.astype(np.float64)).sum(-1)))


@rows
@types
def test_rms_norm(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    loop: str,
    width: int,
    threads: int | None,
) -> None:
    x, w = normal(numbers, name, 3, width), normal(numbers, name, width, 2)
    norm = kernel(checkouts, "rms_norm", f"rms{loop}{name}")
    got = launch(dev, norm, x, w, np.ones_like(x), EPS, width, 2, groups=3, group_size=threads or 256)
    wide = x.astype(np.float64)
    close(got, wide / np.sqrt((wide**2).mean(-1, keepdims=True) + EPS) * w[:, 0].astype(np.float64), 2)


@rows
@types
def test_layer_norm(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    loop: str,
    width: int,
    threads: int | None,
) -> None:
    x, w, b = normal(numbers, name, 3, width), normal(numbers, name, width), normal(numbers, name, 1)
    norm = kernel(checkouts, "layer_norm", f"layer_norm{loop}{name}")
    got = launch(dev, norm, x, w, b, np.ones_like(x), EPS, width, 1, 0, groups=3, group_size=threads or 128)
    wide = x.astype(np.float64)
    normed = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + EPS)
    close(got, normed * w.astype(np.float64) + b.astype(np.float64), 4)


def gradients(x: Array, w: Array, g: Array, centred: bool) -> tuple[Array, Array]:
    """Of a norm by its input, and, row by row, by its weights."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    if centred:
        x = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + EPS)
    normed, wg = x * inverse, w * g
    gx = inverse * (wg - normed * (wg * normed).mean(-1, keepdims=True))
    return gx - inverse * wg.mean(-1, keepdims=True) * centred, normed * g


@pytest.mark.parametrize("weighted", [True, False])
@rows
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_gradients_of_layer_norm(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    loop: str,
    width: int,
    threads: int | None,
    weighted: bool,
) -> None:
    x, g = normal(numbers, name, 3, width), normal(numbers, name, 3, width)
    w = normal(numbers, name, width if weighted else 1)
    norm = kernel(checkouts, "layer_norm", f"vjp_layer_norm{loop}{name}", constants={"has_w": weighted})
    gw = np.ones_like(x)
    got = launch(
        dev, norm, x, w, g, np.ones_like(x), gw, EPS, width, int(weighted), groups=3, group_size=threads or 128
    )
    for result, expected in zip(got, gradients(x, w, g, centred=True)[: 1 + weighted], strict=False):
        close(result, expected, 4)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_gradients_of_rms_norm(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, weighted: bool
) -> None:
    x, g = normal(numbers, name, 5, 1021), normal(numbers, name, 5, 1021)
    w = normal(numbers, name, 1021 if weighted else 1)
    norm = kernel(checkouts, "rms_norm", f"vjp_rms{name}", constants={"has_w": weighted})
    empty = (np.ones_like(x), np.ones((3, 1021), x.dtype) if weighted else None)
    got = launch(dev, norm, x, w, g, *empty, EPS, 1021, int(weighted), 5, 2, groups=3, group_size=256)
    gx, gw = gradients(x, w, g, centred=False)
    close(got[0] if weighted else got, gx, 4)
    if weighted:
        close(got[1], np.add.reduceat(gw, [0, 2, 4]), 4)


@pytest.mark.parametrize("weighted", [True, False])
def test_gradients_of_rms_norm_of_long_rows(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, weighted: bool
) -> None:
    x, g = normal(numbers, "float32", 2, 5003), normal(numbers, "float32", 2, 5003)
    w = normal(numbers, "float32", 5003 if weighted else 1)
    norm = kernel(checkouts, "rms_norm", "vjp_rms_loopedfloat32", constants={"has_w": weighted})
    got = launch(
        dev, norm, x, w, g, np.ones_like(x), np.ones_like(x), EPS, 5003, int(weighted), groups=2, group_size=1024
    )
    gx, gw = gradients(x, w, g, centred=False)
    close(got[0], gx, 4)
    if weighted:
        close(got[1], gw, 4)
