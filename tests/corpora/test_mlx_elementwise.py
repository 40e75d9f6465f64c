"""MLX: what is computed element by element, on arrays with strides too; random bits and rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from launching import launch
from mlx_kernels import DTYPES, close, instance, kernel, shape_of, strides_of

Array = np.ndarray[Any, Any]

FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "ArcSinh": np.arcsinh,
    "ArcTan": np.arctan,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Erf": np.vectorize(math.erf),
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log1p": lambda x: np.log1p(np.abs(x)),
    "Round": np.round,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sqrt": lambda x: np.sqrt(np.abs(x)),
    "Tanh": np.tanh,
}
OF_NOT_NEGATIVE = ("Log1p", "Sqrt")


@pytest.mark.parametrize(
    ("op", "name"), [*((op, "float32") for op in FUNCTIONS), *((op, "bfloat16") for op in ("Abs", "Erf", "Tanh"))]
)
def test_function(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str) -> None:
    x = numbers.uniform(-4, 4, 1001).astype(DTYPES[name])
    x = np.abs(x) if op in OF_NOT_NEGATIVE else x
    function = kernel(checkouts, "unary", f"vn_{op}{name}{name}")
    each = 8 // x.itemsize
    got = launch(dev, function, x, np.ones_like(x), x.size, threads=-(-x.size // each), group_size=64)
    close(got, FUNCTIONS[op](x.astype(np.float64)))


def test_function_of_a_transposed_array(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x = numbers.standard_normal((3, 5, 7, 11)).astype(np.float32)
    turned = x.transpose(2, 0, 3, 1)
    function = kernel(checkouts, "unary", "gn1_Tanhfloat32float32")
    arguments = (shape_of(turned), strides_of(turned), np.array([4], np.int32))
    got = launch(dev, function, x, np.ones_like(turned), *arguments, threads=(5, 11, 21), group_size=(5, 4, 4))
    close(got.ravel(), np.tanh(turned.astype(np.float64)).ravel())


OPERATORS: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "ArcTan2": np.arctan2,
    "BitwiseXor": np.bitwise_xor,
    "Divide": np.divide,
    "LeftShift": lambda a, b: a << b,
    "Less": np.less,
    "LogAddExp": np.logaddexp,
    "Maximum": np.maximum,
    "Multiply": np.multiply,
    "Power": lambda a, b: np.abs(a) ** b,
    "Remainder": np.mod,
    "Subtract": np.subtract,
}


def operands(numbers: np.random.Generator, op: str, name: str, *shapes: tuple[int, ...]) -> list[Array]:
    if DTYPES[name].kind == "f" or name == "bfloat16":
        return [
            np.abs(a) if op == "Power" else a for a in (numbers.normal(0, 2, s).astype(DTYPES[name]) for s in shapes)
        ]
    a, b = (numbers.integers(-50, 50, shape) for shape in shapes)
    b = np.where(b == 0, 7, np.abs(b) % 7 if op == "LeftShift" else b)
    return [a.astype(DTYPES[name]), b.astype(DTYPES[name])]


def check(got: Array, op: str, a: Array, b: Array) -> None:
    if a.dtype.kind == "f" or a.dtype.name == "bfloat16":
        expected = OPERATORS[op](a.astype(np.float64), b.astype(np.float64))
        np.testing.assert_array_equal(got, expected) if got.dtype == bool else close(got, expected)
    else:
        np.testing.assert_array_equal(got, OPERATORS[op](a, b))


binary = pytest.mark.parametrize(
    ("op", "name"),
    [
        ("Add", "int8"),
        ("ArcTan2", "float32"),
        ("BitwiseXor", "int64"),
        ("Divide", "float16"),
        ("LeftShift", "int32"),
        ("Less", "bfloat16"),
        ("LogAddExp", "float32"),
        ("Maximum", "float32"),
        ("Multiply", "bfloat16"),
        ("Power", "float32"),
        ("Remainder", "int16"),
        ("Subtract", "uint8"),
    ],
)


@binary
def test_operator_with_broadcasting(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str
) -> None:
    a, b = operands(numbers, op, name, (3, 1, 5, 7), (4, 1, 7))
    wide_a, wide_b = np.broadcast_arrays(a, b)
    operator = kernel(checkouts, "binary", f"gn2_{op}{name}")
    out = np.ones(wide_a.shape, bool if op == "Less" else a.dtype)
    arguments = (shape_of(out), strides_of(wide_a), strides_of(wide_b), 4)
    got = launch(dev, operator, a, b, out, *arguments, threads=(4, 5, 12), group_size=(4, 4, 4))
    check(got, op, wide_a, wide_b)


@pytest.mark.parametrize("kind", ["vv", "sv", "vs"])
@pytest.mark.parametrize(("op", "name"), [("Add", "bfloat16"), ("Remainder", "float32")])
def test_operator_on_vectors_and_scalars(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, op: str, name: str, kind: str
) -> None:
    a, b = operands(numbers, op, name, *((1 if side == "s" else 1003,) for side in kind))
    operator = kernel(checkouts, "binary", f"{kind}n_{op}{name}")
    each = 8 // a.itemsize
    out = np.ones(1003, a.dtype)
    got = launch(dev, operator, a, b, out, 1003, threads=-(-1003 // each), group_size=128)
    check(got, op, *np.broadcast_arrays(a, b))


def test_quotient_and_remainder(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    a, b = operands(numbers, "Remainder", "int32", (17, 9), (17, 1))
    b_strides = strides_of(np.broadcast_to(b, a.shape))
    divmod_ = kernel(checkouts, "binary_two", "g2_DivModint32")
    empty = (np.ones_like(a), np.ones_like(a))
    got = launch(dev, divmod_, a, b, *empty, strides_of(a), b_strides, threads=(9, 17), group_size=(8, 8))
    np.testing.assert_array_equal(got[0], a // b)
    np.testing.assert_array_equal(got[1], a % b)


@pytest.mark.parametrize("name", ["int64", "float16"])
def test_select(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    condition = numbers.random((5, 1, 7)) < 0.5
    b, c = numbers.integers(-99, 99, (6, 7)).astype(DTYPES[name]), numbers.integers(-99, 99, 5).astype(DTYPES[name])
    wide = np.broadcast_arrays(condition, b, c[:, None, None])
    select = kernel(checkouts, "ternary", f"g3_Select{name}")
    strides = (strides_of(a) for a in wide)
    out = np.ones(wide[0].shape, b.dtype)
    got = launch(dev, select, condition, b, c, out, *strides, threads=(7, 6, 5), group_size=(8, 4, 4))
    np.testing.assert_array_equal(got, np.where(*wide))


@pytest.mark.parametrize(
    ("source", "result"),
    [("float32", "bfloat16"), ("int64", "float32"), ("float16", "int8"), ("uint32", "bool_"), ("bfloat16", "float16")],
)
def test_copy_of_a_transposed_array(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, source: str, result: str
) -> None:
    x = numbers.normal(0, 40, (3, 5, 7, 9)).clip(0 if source == "uint32" else -127, 127).astype(DTYPES[source])
    turned = x.transpose(3, 1, 0, 2)
    copy = kernel(checkouts, "copy", f"gn2_copy{source}{result}")
    out = np.ones(turned.shape, DTYPES[result])
    arguments = (shape_of(turned), strides_of(turned), 4)
    got = launch(dev, copy, x, out, *arguments, threads=(4, 3, 45), group_size=(4, 3, 8))
    np.testing.assert_array_equal(got, turned.astype(DTYPES[result]))


@pytest.mark.parametrize("name", ["float32", "int8"])
def test_copy_into_a_part_of_an_array(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str
) -> None:
    x = numbers.integers(-99, 99, (19, 11, 13)).astype(DTYPES[name])
    out = numbers.integers(-99, 99, (6, 15, 24)).astype(DTYPES[name])
    source, first, expected = x[2:9:2, 9:1:-1, 3:], np.array([2, 9, 3]) @ strides_of(x), out.copy()
    target = expected[1:5, 2:10, 4:24:2]
    copy = kernel(checkouts, "copy", f"gg3_dynamic_copy{name}{name}")
    arguments = (strides_of(source), strides_of(target), int(first), int(np.array([1, 2, 4]) @ strides_of(out)))
    got = launch(dev, copy, x, out, *arguments, threads=(10, 8, 4), group_size=(8, 4, 4))
    target[...] = source
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["float16", "float32", "uint8", "int64"])
def test_arange(dev: ost.Device, checkouts: Checkouts, name: str) -> None:
    count, start, step = (100, 3, 2) if name == "uint8" else (1000, -7, 3) if name == "int64" else (1000, -7, 0.5)
    got = launch(
        dev, kernel(checkouts, "arange", f"arange{name}"), start, step, np.ones(count, DTYPES[name]), threads=count
    )
    np.testing.assert_array_equal(got, start + np.arange(count) * step)


def threefry(key: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Threefry 2x32 with 20 rounds (Salmon et al., 2011) of counters by a key."""
    keys = np.array([*key, key[0] ^ key[1] ^ np.uint32(0x1BD11BDA)], np.uint32)
    x, y = first.astype(np.uint32) + keys[0], second.astype(np.uint32) + keys[1]
    for turn in range(20):
        bits = np.uint32((13, 15, 26, 6, 17, 29, 16, 24)[turn % 8])
        x = x + y
        y = (y << bits | y >> (np.uint32(32) - bits)) ^ x
        if turn % 4 == 3:
            block = turn // 4 + 1
            x, y = x + keys[block % 3], y + keys[(block + 1) % 3] + np.uint32(block)
    return x, y


@pytest.mark.parametrize("size", [150, 148, 147])
@pytest.mark.parametrize("name", ["rbitsc", "rbits"])
def test_random_bits(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, size: int) -> None:
    keys = numbers.integers(0, 2**32, (5, 2), np.uint32)
    words = -(-size // 4)
    half, odd = -(-words // 2), words % 2
    turned = (2, np.array([5, 2], np.int32), np.array([1, 5], np.int64)) if name == "rbits" else ()
    stored = np.ascontiguousarray(keys.T) if turned else keys
    bits = kernel(checkouts, "random", name)
    out = np.ones((5, size), np.int8)
    got = launch(dev, bits, stored, out, bool(odd), size, *turned, threads=(5, half), group_size=(4, 8))
    for row, key in zip(got, keys, strict=True):
        # Without a partner the last counter of the first half is hashed with zero.
        first = np.arange(half)
        x, y = threefry(key, first, np.where((first == half - 1) & bool(odd), 0, first + half))
        np.testing.assert_array_equal(row.view(np.uint8), np.concatenate([x, y]).view(np.uint8)[:size])


def rotated(x: Array, angles: Array, traditional: bool) -> Array:
    """Pairs of the last axis, neighbours or a half apart, turned by angles."""
    pairs = (slice(0, None, 2), slice(1, None, 2)) if traditional else np.split(np.arange(x.shape[-1]), 2)
    a, b = (x[..., part].astype(np.float64) for part in pairs)
    out = np.empty(x.shape)
    out[..., pairs[0]] = a * np.cos(angles) - b * np.sin(angles)
    out[..., pairs[1]] = a * np.sin(angles) + b * np.cos(angles)
    return out


@pytest.mark.parametrize("traditional", [True, False])
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_rope(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    turned: bool,
    forward: bool,
    traditional: bool,
) -> None:
    x = numbers.standard_normal((2, 6, 5, 64)).astype(np.float32)
    stored = np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) if turned else x
    offsets = np.array([3, 17], np.int32)
    constants = {"forward": forward, "traditional": traditional, "hs_transpose": turned}
    rope = kernel(checkouts, "rope", "rope_float32", constants=constants)
    arguments = (offsets, 0.5, strides_of(stored, 1, 2, 3), strides_of(x, 1, 2, 3), 1, 6, math.log2(10000))
    source = stored.swapaxes(1, 2) if turned else x
    got = launch(dev, rope, source, np.ones_like(x), *arguments, threads=(32, 5, 4), group_size=(32, 2, 2))
    positions = 0.5 * (offsets[:, None, None, None] + np.arange(5)[:, None])
    angles = positions * 10000.0 ** -(np.arange(32) / 32)
    np.testing.assert_allclose(got, rotated(x, angles if forward else -angles, traditional), rtol=1e-5, atol=5e-5)


def test_rope_of_one_position_by_given_frequencies(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator
) -> None:
    x = numbers.standard_normal((9, 96)).astype(np.float16)
    periods = numbers.uniform(1, 50, (48, 3)).astype(np.float32)
    constants = {"forward": True, "traditional": False, "hs_transpose": False}
    rope = kernel(checkouts, "rope", "rope_single_freqs_float16", constants=constants)
    got = launch(dev, rope, x, np.ones_like(x), 21, 1.0, 96, periods, 3, threads=(48, 9), group_size=(16, 4))
    close(got, rotated(x, 21 / periods[:, 0].astype(np.float64), traditional=False))


@pytest.mark.parametrize(("width", "stride"), [(256, 1), (2048, 1), (128, 6)])
def test_hadamard(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, width: int, stride: int) -> None:
    x = numbers.standard_normal((3, width, stride)).astype(np.float32)
    transform = instance(checkouts, ("utils", "hadamard"), "hadamard_n", "float", width, 16, 4, stride)
    threads = (width // 16, 3, stride)
    got = launch(dev, transform, x, np.ones_like(x), 0.25, threads=threads, group_size=width // 16)
    matrix = np.ones((1, 1))
    while len(matrix) < width:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    expected = np.einsum("ij,bjs->bis", matrix, x.astype(np.float64)) * (0.25 if stride == 1 else 1)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6 * width)
