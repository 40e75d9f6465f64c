"""candle: kernels over elements, indices and rows, random numbers, and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from oracles import LONG_NAMES, NEAR, TYPES, Random, check, erf, sigmoid, sizes, softmax, spread, steps, values


def kernel(checkouts: Checkouts, file: str, name: str, **options: Any) -> ost.Kernel:
    return checkouts.library("candle", f"candle-metal-kernels/src/metal_src/{file}.metal", **options)[name]


def tiles(x: Any) -> dict[str, int]:
    """A thread for every eight bytes."""
    return spread(-(-x.size // max(1, 8 // x.itemsize)))


def row_width(n: int) -> int:
    """Threads for a row: a power of two, at least half of its length."""
    return min(1024, 1 << (n // 2 - 1).bit_length())


def turned(x: Any) -> Any:
    """The same memory with other axes last."""
    return x.transpose(1, 2, 0)


# --- elements -------------------------------------------------------------------------------------------------------

UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "gelu": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_erf": lambda x: x / 2 * (1 + erf(x / np.sqrt(2))),
    "log": np.log,
    "neg": np.negative,
    "recip": np.reciprocal,
    "relu": lambda x: np.maximum(x, 0),
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "sigmoid": sigmoid,
    "sign": np.sign,
    "silu": lambda x: x * sigmoid(x),
    "sqr": np.square,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("op", UNARY)
def test_unary(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str) -> None:
    positive = op in ("log", "recip", "sqrt")
    x = numbers.uniform(0.3 if positive else -3, 3, 1003).astype(TYPES[kind])
    got = launch(dev, kernel(checkouts, "unary", f"{op}_{kind}"), x.size, x, np.zeros_like(x), **tiles(x))
    check(got, UNARY[op](x.astype(float)), kind)


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_unary_strided(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = values(numbers, (11, 5, 7), kind)
    view = turned(x)
    exp = kernel(checkouts, "unary", f"exp_{kind}_strided")
    out = np.zeros(view.shape, x.dtype)
    got = launch(dev, exp, x.size, 3, sizes(view), steps(view), x, out, **spread(x.size))
    check(got, np.exp(view.astype(float)), kind, scale=1e-2)


BINARY = {"badd": np.add, "bmul": np.multiply, "bdiv": np.divide, "bmaximum": np.maximum}
COMPARED = {"eq": np.equal, "le": np.less_equal, "gt": np.greater}


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("op", BINARY)
def test_binary(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str) -> None:
    a, b = (numbers.uniform(0.5, 2, 1003).astype(TYPES[kind]) for _ in range(2))
    got = launch(dev, kernel(checkouts, "binary", f"{op}_{kind}"), a.size, a, b, np.zeros_like(a), **tiles(a))
    check(got, BINARY[op](a.astype(float), b.astype(float)), kind)


@pytest.mark.parametrize("kind", ["bf16", "i64"])
@pytest.mark.parametrize("op", COMPARED)
def test_compared(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str) -> None:
    a, b = (numbers.integers(-3, 4, 1003).astype(TYPES[kind]) for _ in range(2))
    compare = kernel(checkouts, "binary", f"{op}_{kind}")
    got = launch(dev, compare, a.size, a, b, np.zeros(a.size, bool), **tiles(a))
    np.testing.assert_array_equal(got, COMPARED[op](a, b))


def test_binary_strided(dev: ost.Device, checkouts: Checkouts, numbers: Random) -> None:
    """One operand with other strides, the other with strides of zero."""
    a, b = values(numbers, (11, 5, 7), "u8"), values(numbers, 7, "u8")
    left, right = turned(a), np.broadcast_to(b[:, None], (5, 7, 11))
    add = kernel(checkouts, "binary", "badd_u8_strided")
    out = np.zeros(left.shape, np.uint8)
    got = launch(dev, add, a.size, 3, sizes(left), steps(left), steps(right), a, b, out, **tiles(a))
    np.testing.assert_array_equal(got, left + right)


@pytest.mark.parametrize(("source", "target"), [("f32", "bf16"), ("bf16", "f32"), ("i64", "f16"), ("f16", "u32")])
def test_cast(dev: ost.Device, checkouts: Checkouts, numbers: Random, source: str, target: str) -> None:
    x = np.abs(30 * numbers.standard_normal(1003)).astype(TYPES[source])
    cast = kernel(checkouts, "cast", f"cast_{source}_{target}")
    got = launch(dev, cast, x.size, x, np.zeros(x.size, TYPES[target]), **tiles(x))
    np.testing.assert_array_equal(got, x.astype(TYPES[target]))


@pytest.mark.parametrize("kind", ["f32", "bf16", "u32"])
def test_affine(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = values(numbers, 1003, kind)
    got = launch(dev, kernel(checkouts, "affine", f"affine_{kind}"), x.size, 3.0, 2.0, x, np.zeros_like(x), **tiles(x))
    check(got, 3 * x.astype(float) + 2, kind if kind in NEAR else "f32")


@pytest.mark.parametrize(("op", "kind"), [("powf", "f32"), ("elu", "f32"), ("elu", "f16")])
def test_powers(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kind: str) -> None:
    x = np.abs(values(numbers, 1003, kind)) + 1 if op == "powf" else values(numbers, 1003, kind)
    got = launch(dev, kernel(checkouts, "affine", f"{op}_{kind}"), x.size, 1.7, x, np.zeros_like(x), **tiles(x))
    wide = x.astype(float)
    check(got, wide**1.7 if op == "powf" else np.where(wide > 0, wide, 1.7 * np.expm1(wide)), kind)


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "strided"])
@pytest.mark.parametrize("kinds", ["u8_f32", "i64_bf16"])
def test_where(dev: ost.Device, checkouts: Checkouts, numbers: Random, kinds: str, dense: bool) -> None:
    condition, kind = kinds.split("_")
    chosen = numbers.integers(0, 2, (11, 5, 7)).astype(TYPES[condition])
    a, b = (values(numbers, (11, 5, 7), kind) for _ in range(2))
    where = kernel(checkouts, "ternary", f"where_{kinds}", constants=dict.fromkeys(range(3), dense))
    views = [x if dense else turned(x) for x in (chosen, a, b)]
    out = np.zeros(views[0].shape, a.dtype)
    got = launch(
        dev, where, out.size, 3, sizes(out), *map(steps, views), chosen, a, b, out, **tiles(out)
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.where(*views))


@pytest.mark.parametrize("kind", ["f32", "bf16", "u8", "i64"])
def test_fill(dev: ost.Device, checkouts: Checkouts, kind: str) -> None:
    got = launch(dev, kernel(checkouts, "fill", f"fill_{kind}"), np.zeros(1003, TYPES[kind]), 42, 1001, **spread(1001))
    np.testing.assert_array_equal(got.astype(int), [42] * 1001 + [0] * 2)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("law", ["uniform", "normal"])
def test_random(dev: ost.Device, checkouts: Checkouts, law: str, kind: str) -> None:
    """Its moments, five deviations wide. One thread leaves the next seed, which others may already read."""
    draw, n = kernel(checkouts, "random", f"rand_{law}_{kind}"), 20001
    low, high = (-2.0, 4.0) if law == "uniform" else (1.0, 1.5)
    seed, out = np.array([7, 123456789], np.uint32), np.full(n, 100, TYPES[kind])
    after, x = launch(dev, draw, n, low, high, seed, out, **spread(n // 2 + 1, 256))
    x = x.astype(float)
    mean, deviation = (1, 6 / np.sqrt(12)) if law == "uniform" else (low, high)
    assert abs(x.mean() - mean) < 5 * deviation / np.sqrt(n)
    assert abs(x.std() - deviation) < 5 * deviation / np.sqrt(n)
    assert law != "uniform" or (x.min() >= low and x.max() <= high)
    assert np.unique(x).size > 2000
    assert not np.array_equal(after, seed)


# --- indices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", ["u32_f32", "u8_bf16", "i64_i64"])
@pytest.mark.parametrize("op", ["is", "gather"])
def test_picked(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kinds: str) -> None:
    """Along the middle axis: the same indices everywhere, or an index for each element. The largest index gives 0."""
    index, kind = kinds.split("_")
    x, largest = values(numbers, (3, 9, 5), kind), np.iinfo(TYPES[index]).max
    ids = numbers.integers(0, 9, 14 if op == "is" else (3, 14, 5)).astype(TYPES[index])
    ids[0] = largest
    dense = (True, sizes(x), steps(x)) if op == "is" else ()
    pick = kernel(checkouts, "indexing", f"{op}_{kinds}")
    got = launch(dev, pick, 210, 3, 9, 5, 14, *dense, x, ids, np.ones((3, 14, 5), x.dtype), **spread(210))
    places = np.broadcast_to(ids[:, None] if op == "is" else ids, (3, 14, 5)).astype(np.uint64)
    expected = np.take_along_axis(x, (places % 9).astype(int), axis=1)
    np.testing.assert_array_equal(got, np.where(places == largest, np.zeros((), x.dtype), expected))


@pytest.mark.parametrize("kinds", ["u32_f32", "u8_f16", "i64_f32"])
@pytest.mark.parametrize("op", ["s", "sa", "ia"])
def test_scattered(dev: ost.Device, checkouts: Checkouts, numbers: Random, op: str, kinds: str) -> None:
    """Set or added where indices along the middle axis say."""
    index, kind = kinds.split("_")
    x, before = values(numbers, (3, 9, 5), kind), values(numbers, (3, 14, 5), kind)
    ids = numbers.integers(0, 14, 9 if op == "ia" else x.shape).astype(TYPES[index])
    count = (9,) if op == "ia" else ()
    put = kernel(checkouts, "indexing", f"{op}_{kinds}")
    got = launch(dev, put, 15, 3, 9, 5, 14, *count, x, ids, before, **spread(15))
    expected = before.astype(float)
    for place in np.ndindex(x.shape):
        at = (place[0], int(ids[place[1]] if op == "ia" else ids[place]), place[2])
        expected[at] = x[place] + (0 if op == "s" else expected[at])
    check(got, expected, kind)


# --- rows -----------------------------------------------------------------------------------------------------------

REDUCED: dict[str, Any] = {
    "sum": np.sum,
    "mul": np.prod,
    "min": np.min,
    "max": np.max,
    "argmin": np.argmin,
    "argmax": np.argmax,
}


REDUCTIONS = """
sum_f32 sum_bf16 sum_i64 mul_f32 min_u8 max_bf16 argmin_f32 argmin_bf16 argmax_bf16
sum_f32_strided argmax_bf16_strided argmin_i64_strided
""".split()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """Of 7 rows. The least and the largest number of a row are there twice: the first is the one."""
    op, kind, *strided = name.split("_")
    x = values(numbers, (7, 385), kind)
    if op == "mul":
        x = np.exp2(x / 8).astype(x.dtype)
    elif op != "sum":
        x[:, [300, 217]], x[:, [99, 288]] = 201, 0 if kind == "u8" else -201
    x = np.ascontiguousarray(x.T).T if strided else x
    index, shape = op.startswith("arg"), np.array(x.shape, np.uint32)
    layout = (shape, steps(x).astype(np.uint32)) if strided else (shape,)
    out = np.zeros(7, np.uint32 if index else x.dtype)
    reduce, memory = kernel(checkouts, "reduce", f"fast_{name}"), x.T if strided else x
    got = launch(dev, reduce, x.size, 2, *layout, 385, memory, out, groups=7, group_size=row_width(385))
    expected = REDUCED[op](x.astype(float), axis=1)
    check(got, expected, "f32" if index or kind not in NEAR else kind, scale=20 if op == "sum" else 0)


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_softmax(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str) -> None:
    x = 3 * values(numbers, (5, 1111), kind)
    run = kernel(checkouts, "reduce", f"softmax_{kind}")
    got = launch(dev, run, x.size, 1111, x, np.zeros_like(x), groups=5, group_size=row_width(1111))
    check(got, softmax(x.astype(float)), kind, scale=1e-2)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_norm(dev: ost.Device, checkouts: Checkouts, numbers: Random, norm: str, kind: str) -> None:
    x, weight, bias = (values(numbers, shape, kind) for shape in ((5, 300), 300, 300))
    run = kernel(checkouts, "reduce", f"{norm}_{kind}")
    more = (bias,) if norm == "layernorm" else ()
    got = launch(
        dev, run, x.size, 300, x, np.zeros_like(x), weight, *more, 1e-5, groups=5, group_size=row_width(300)
    )  # fmt: skip
    wide, weight, bias = (part.astype(float) for part in (x, weight, bias))
    if more:
        wide -= wide.mean(axis=1, keepdims=True)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    check(got, expected + bias if more else expected, kind)


@pytest.mark.parametrize("name", ["rope_f32", "rope_i_f16", "rope_thd_bf16"])
def test_rope(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    """Pairs half a head apart, or neighbours; with heads before or behind the positions; angles for each batch."""
    kind = name.split("_")[-1]
    b, h, t, d = 2, 3, 7, 20
    x = values(numbers, (b, t, h, d) if "thd" in name else (b, h, t, d), kind)
    angle = numbers.uniform(-3, 3, (b, t, d // 2))
    cos, sin = (turn(angle).astype(x.dtype) for turn in (np.cos, np.sin))
    layout = {"rope_f32": (b * h, t * d, d), "rope_i_f16": (b * h, t * d), "rope_thd_bf16": (b, t, h, d)}[name]
    run = kernel(checkouts, "reduce", name)
    got = launch(dev, run, *layout, h * t * d, x, cos, sin, np.zeros_like(x), **spread(x.size // 2))
    axis = 2 if "thd" in name else 1
    z = np.expand_dims(cos.astype(float) + 1j * sin.astype(float), axis)
    wide = x.astype(float)
    if "_i_" in name:
        pairs = (wide[..., 0::2] + 1j * wide[..., 1::2]) * z
        expected = np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)
    else:
        pairs = (wide[..., : d // 2] + 1j * wide[..., d // 2 :]) * z
        expected = np.concatenate([pairs.real, pairs.imag], axis=-1)
    check(got, expected, kind)


# --- sorts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["asc_f32", "desc_bf16", "asc_i64"])
def test_bitonic_argsort(dev: ost.Device, checkouts: Checkouts, numbers: Random, name: str) -> None:
    order, kind = name.split("_")
    x = values(numbers, (3, 200), kind)
    sort = kernel(checkouts, "sort", f"asort_{name}")
    out = np.zeros(x.shape, np.uint32)
    got = launch(dev, sort, x, out, 200, 256, groups=(1, 3, 1), group_size=(256, 1, 1), shared={0: 1024})
    check_order(got, x, -1 if order == "desc" else 1)


def check_order(order: Any, x: Any, step: int = 1) -> None:
    """Every place once, and the numbers there sorted (equal ones may be in any order)."""
    np.testing.assert_array_equal(np.sort(order), np.broadcast_to(np.arange(x.shape[1]), x.shape))
    np.testing.assert_array_equal(np.take_along_axis(x, order.astype(int), axis=1), np.sort(x)[:, ::step])


@pytest.mark.parametrize("kind", ["f32", "bf16", "u8"])
@pytest.mark.parametrize("what", ["_", "arg_"])
def test_block_sort(dev: ost.Device, checkouts: Checkouts, numbers: Random, what: str, kind: str) -> None:
    """With values only, the kernel has no memory for indices and passes null pointers on."""
    x = values(numbers, (3, 1000), kind)
    result = kind if what == "_" else "u32"
    sort = kernel(checkouts, "mlx_sort", f"c{what}block_sort_{LONG_NAMES[kind]}_{LONG_NAMES[result]}_bn128_tn8")
    out = np.zeros(x.shape, TYPES[result])
    got = launch(dev, sort, x, out, 1000, 1, 1, 1000, 1000, groups=(1, 3, 1), group_size=(128, 1, 1))
    if what == "_":
        np.testing.assert_array_equal(got, np.sort(x))
    else:
        check_order(got, x)


@pytest.mark.parametrize("what", ["_", "arg_"])
def test_block_sort_of_columns(dev: ost.Device, checkouts: Checkouts, numbers: Random, what: str) -> None:
    x = values(numbers, (500, 2, 3), "u32")
    sort = kernel(checkouts, "mlx_sort", f"nc{what}block_sort_uint32_uint32_bn128_tn8")
    strides = np.array([3, 1], np.int64)
    shape = np.array([2, 3], np.int32)
    out = np.zeros_like(x)
    got = launch(dev, sort, x, out, 500, 6, 6, 2, shape, strides, strides, groups=(1, 6, 1), group_size=(128, 1, 1))
    if what == "_":
        np.testing.assert_array_equal(got, np.sort(x, axis=0))
    else:
        check_order(got.reshape(500, 6).T, x.reshape(500, 6).T)


@pytest.mark.parametrize(("kind", "width"), [("f32", 512), ("bf16", 512), ("i64", 256)])
def test_multi_block_sort(dev: ost.Device, checkouts: Checkouts, numbers: Random, kind: str, width: int) -> None:
    """Blocks are sorted, then two and two are merged: where each block of the result begins, and the merge."""
    rows, n = 2, 8 * width * 3 - 77
    blocks = -(-n // (8 * width))
    x = values(numbers, (rows, n), kind)
    sort, partition, merge = (
        kernel(checkouts, "mlx_sort", f"{part}_mbsort_{LONG_NAMES[kind]}_uint32_bn{width}_tn8")
        for part in ("sort", "partition", "merge")
    )
    grid: dict[str, Any] = {"groups": (blocks, rows, 1), "group_size": (width, 1, 1)}
    pair = np.zeros_like(x), np.zeros(x.shape, np.uint32)
    shape, strides = np.array([rows], np.int32), np.array([n], np.int64)
    keys, places = launch(dev, sort, x, *pair, n, 1, 1, shape, strides, **grid)
    for merged in (2, 4):
        starts = np.zeros((rows, blocks + 1), np.uint32)
        whole: dict[str, Any] = {"groups": (1, rows, 1), "group_size": (blocks + 1, 1, 1)}
        starts = launch(dev, partition, starts, keys, places, n, merged, blocks, **whole)
        keys, places = launch(dev, merge, starts, keys, places, *pair, n, merged, blocks, **grid)
    np.testing.assert_array_equal(keys, np.sort(x))
    check_order(places, x)
