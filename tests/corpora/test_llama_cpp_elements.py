"""llama.cpp: what ggml's Metal backend does to each element: functions, arithmetic, gates, copies, formats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F32, I32, SCALES, TYPES, block_size, dequantised, kernel, matrix, random, run
from launching import launch

Function = Callable[[np.ndarray], Any]


def sigmoid(x: np.ndarray) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> Any:
    return x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def hard(x: np.ndarray) -> Any:
    return np.clip(x / 6 + 0.5, 0, 1)


NUMBERS = {"slope": 0.25, "scale": 1.5, "bias": -0.5, "val": 0.75, "min": -1.0, "max": 1.25}
"""What some functions take: XIELU the slope of negative numbers, the scale and bias of others, and a bound."""

FUNCTIONS: dict[str, tuple[int, Function]] = {
    "scale": (10, lambda x: 1.5 * x - 0.5),
    "fill": (11, lambda x: np.full_like(x, 0.75)),
    "clamp": (12, lambda x: np.clip(x, -1, 1.25)),
    "sqr": (13, np.square),
    "sqrt": (14, np.sqrt),
    "sin": (15, np.sin),
    "cos": (16, np.cos),
    "log": (17, np.log),
    "leaky_relu": (18, lambda x: np.where(x > 0, x, 0.25 * x)),
    "tanh": (100, np.tanh),
    "relu": (101, lambda x: np.maximum(x, 0)),
    "sigmoid": (102, sigmoid),
    "gelu": (103, gelu),
    "gelu_erf": (104, gelu_erf),
    "gelu_quick": (105, lambda x: x * sigmoid(1.702 * x)),
    "silu": (106, lambda x: x * sigmoid(x)),
    "elu": (107, lambda x: np.where(x > 0, x, np.expm1(x))),
    "neg": (108, np.negative),
    "abs": (109, np.abs),
    "sgn": (110, np.sign),
    "step": (111, lambda x: (x > 0) * 1.0),
    "hardswish": (112, lambda x: x * hard(x)),
    "hardsigmoid": (113, hard),
    "exp": (114, np.exp),
    "softplus": (115, lambda x: np.log1p(np.exp(x))),
    "expm1": (116, np.expm1),
    "floor": (117, np.floor),
    "ceil": (118, np.ceil),
    "round": (119, lambda x: np.trunc(x + np.copysign(0.5, x))),
    "trunc": (120, np.trunc),
    "xielu": (121, lambda x: np.where(x > 0, 1.5 * x * x, 0.25 * (np.exp(np.minimum(x, 0.75)) - 1 - x)) - 0.5 * x),
}


def assert_as_exact(got: np.ndarray, expected: np.ndarray) -> None:
    """As good as its type allows."""
    relative, absolute = {2: (2e-3, 2e-3), 4: (1e-5, 2e-6)}[got.dtype.itemsize]
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=relative, atol=absolute)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    number, function = FUNCTIONS[name]
    ways = (("f32", 301, False), ("f32", 1100, False), ("f16", 301, True), ("f16", 1100, False))
    kind, columns, whole = ways[number % 4]
    dtype, by_four = TYPES[kind], columns % 4 == 0
    x = numbers.uniform(-8, 8, (2, 3, 5, columns + (0 if whole else 4))).astype(dtype)[..., :columns]
    x[..., :4] = [0.5, -0.5, 2.5, -2.5]
    if name in ("log", "sqrt"):
        np.abs(x, out=x)
    apply = kernel(
        checkouts, f"kernel_unary_{kind}_{kind}" + ("_4" if by_four else ""), "FC_unary", op=number, cnt=whole
    )
    width = columns // 4 if by_four else columns
    got = run(
        dev,
        apply,
        x,
        out=np.zeros(x.shape, dtype),
        arguments={"ne00": width, "ne0": width, **NUMBERS},
        groups=x.size if whole else (-(-width // 256) * 5, 3, 2),
        group_size=1 if whole else min(width, 256),
    )
    assert_as_exact(got, function(x.astype(np.float64)))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize(
    ("kind", "shape", "other", "terms"),
    [
        ("f32", (2, 3, 5, 301), (1, 3, 1, 301), 1),
        ("f32", (2, 3, 5, 300), (2, 1, 5, 60), 1),
        ("f16", (7, 300), (1, 300), 1),
        ("f32", (7, 301), (1, 301), 3),
        ("f16", (2, 3, 5, 300), (1, 3, 5, 300), 3),
    ],
)
def test_arithmetic(
    dev: ost.Device,
    checkouts: Checkouts,
    numbers: np.random.Generator,
    name: str,
    kind: str,
    shape: tuple[int, ...],
    other: tuple[int, ...],
    terms: int,
) -> None:
    """Several operands of the same shape may follow each other in one kernel."""
    x = random(numbers, *shape, dtype=TYPES[kind])
    y = numbers.uniform(1, 2, (terms, *other)).astype(TYPES[kind])
    by_four, of_a_row = shape[-1] % 4 == 0, len(shape) == 2
    suffix = "_4" if by_four else ""
    apply = kernel(
        checkouts,
        f"kernel_bin_fuse_{kind}_{kind}_{kind}{suffix}",
        "FC_bin",
        op=["add", "sub", "mul", "div"].index(name),
        f=terms,
        rb=of_a_row,
        cb=shape[-1] != other[-1],
    )
    width, other_width = (size // 4 if by_four else size for size in (shape[-1], other[-1]))
    places = [y[0].nbytes * term for term in range(terms)] + [0] * (8 - terms)
    threads = 1
    while 2 * threads < width and threads < 256:
        threads *= 2
    got = run(
        dev,
        apply,
        x,
        y[0],
        out=np.zeros(shape, x.dtype),
        arguments={"ne00": width, "ne10": other_width, "ne0": width, "offs": 0, "o1": places},
        groups=(width, shape[0], 1) if of_a_row else shape[-2::-1],
        group_size=1 if of_a_row else threads,
    )
    expected = x.astype(np.float64)
    for term in y.astype(np.float64):
        repeated = np.tile(term, shape[-1] // other[-1])
        expected = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name](expected, repeated)
    assert_as_exact(got, expected)


GATES: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "reglu": lambda gate, up: np.maximum(gate, 0) * up,
    "geglu": lambda gate, up: gelu(gate) * up,
    "swiglu": lambda gate, up: gate * sigmoid(gate) * up,
    "swiglu_oai": lambda gate, up: np.minimum(gate, 1) * sigmoid(1.5 * np.minimum(gate, 1)) * (1 + np.clip(up, -1, 1)),
    "geglu_erf": lambda gate, up: gelu_erf(gate) * up,
    "geglu_quick": lambda gate, up: gate * sigmoid(1.702 * gate) * up,
}


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("name", GATES)
def test_gate(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, kind: str) -> None:
    """f32: both sides are in one tensor, the gate behind; f16: in two."""
    x = random(numbers, 7, 602, dtype=TYPES[kind])
    up, gate = x[:, :301], x[:, 301:]
    arguments: dict[str, Any] = {"alpha": 1.5, "limit": 1.0, "i00": 301, "i10": 0}
    if kind == "f16":
        gate, up = gate.copy(), up.copy()
        arguments |= {"i00": 0}
    sources = (x, x) if kind == "f32" else (gate, up)
    threads = 301 if kind == "f32" else 150
    out = np.zeros((7, 301), x.dtype)
    apply = kernel(checkouts, f"kernel_{name}_{kind}")
    got = run(dev, apply, *sources, out=out, arguments=arguments, groups=7, group_size=threads)
    assert_as_exact(got, GATES[name](gate.astype(np.float64), up.astype(np.float64)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int16])
def test_repeat(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: Any) -> None:
    x = numbers.integers(-99, 99, (1, 3, 2, 7)).astype(dtype)[..., :6]
    name = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int32": "i32", "int16": "i16"}[x.dtype.name]
    expected = np.tile(x, (2, 1, 3, 5))
    out = np.zeros(expected.shape, dtype)
    got = run(dev, kernel(checkouts, f"kernel_repeat_{name}"), x, out=out, groups=(6, 3, 2), group_size=30)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("dtype", "axis"), [*((np.float32, axis) for axis in range(4)), (np.int8, 0), (np.int64, 2)])
def test_concat(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, dtype: Any, axis: int) -> None:
    x = numbers.integers(-99, 99, (2, 3, 5, 77)).astype(dtype)
    shape = [2, 3, 5, 77]
    shape[3 - axis] = 4
    y = numbers.integers(-99, 99, shape[::-1]).astype(dtype).T  # each of its strides is larger than the one before
    expected = np.concatenate([x, y], axis=3 - axis)
    name = {"float32": "f32", "int8": "i8", "int64": "i64"}[x.dtype.name]
    threads, rows = min(256, expected.shape[3]), expected.shape[2]
    together = min(-(-256 // threads), rows, 256 // threads)
    got = run(
        dev,
        kernel(checkouts, f"kernel_concat_{name}"),
        x,
        y,
        out=np.zeros(expected.shape, dtype),
        arguments={"dim": axis},
        groups=(-(-rows // together), *expected.shape[1::-1]),
        group_size=(threads, together, 1),
    )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("of", "to"),
    [("f32", "f32"), ("f32", "f16"), ("f32", "bf16"), ("f32", "i32"), ("i32", "f32"), ("f16", "f32"), ("bf16", "f32")],
)
def test_copy(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, of: str, to: str) -> None:
    """A transposed tensor becomes a dense one of another shape."""
    x = (99 * random(numbers, 2, 37, 5, 12)).astype(TYPES[of]).transpose(0, 2, 3, 1)
    columns, rows = 37, 12
    together = -(-256 // columns) - 1
    got = run(
        dev,
        kernel(checkouts, f"kernel_cpy_{of}_{to}"),
        x,
        out=np.zeros((2, 1, 37, 60), TYPES[to]),
        arguments={"nk0": columns},
        groups=(-(-rows // together), 5, 2),
        group_size=(columns, together, 1),
    )
    np.testing.assert_array_equal(got.reshape(x.shape), x.astype(TYPES[to]))


@pytest.mark.parametrize("to", ["f32", "f16"])
@pytest.mark.parametrize("name", ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq2_0"])
def test_blocks_to_numbers(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, to: str
) -> None:
    blocks, values = matrix(numbers, name, 2, 3, 5, 512)
    got = run(
        dev,
        kernel(checkouts, f"kernel_cpy_{name}_{to}"),
        blocks,
        out=np.zeros(values.shape, TYPES[to]),
        arguments={"nk0": 512 // 16, "ne00": 512},
        groups=(5, 3, 2),
        group_size=512 // 16,
    )
    np.testing.assert_allclose(got.astype(F32), values, rtol=1e-3 if to == "f16" else 1e-5, atol=1e-6)


STEPS = {"q4_0": 1 / 8, "q4_1": 1 / 15, "q5_0": 1 / 16, "q5_1": 1 / 31, "q8_0": 0.5 / 127, "iq4_nl": 0.12, "tq2_0": 0.5}
"""Formats, and how far a number may be from what stands for it, in parts of the largest magnitude of the block."""


def assert_stands_for(blocks: np.ndarray, name: str, x: np.ndarray) -> None:
    by_block = x.reshape(*x.shape[:-1], -1, block_size(name)).astype(np.float64)
    errors = dequantised(blocks, name).reshape(by_block.shape) - by_block
    bounds = np.abs(by_block).max(-1, keepdims=True) * (STEPS[name] + 1e-3)
    assert np.abs(errors / bounds).max() <= 1
    assert np.abs(errors).mean() > 0.01 * (bounds * np.ones_like(errors)).mean()


@pytest.mark.parametrize("name", STEPS)
def test_numbers_to_blocks(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str) -> None:
    x = random(numbers, 2, 5, 3, 512).swapaxes(1, 2)
    empty = np.zeros_like(matrix(numbers, name, *x.shape)[0])
    blocks = 512 // block_size(name)
    got = run(
        dev,
        kernel(checkouts, f"kernel_cpy_f32_{name}"),
        x,
        out=empty,
        arguments={"nk0": blocks, "ne0": 512},
        groups=(5, 3, 2),
        group_size=blocks,
    )
    assert_stands_for(got, name, x)


@pytest.mark.parametrize(
    ("name", "index"),
    [*((name, np.int64) for name in ("f32", "f16", "bf16", *STEPS)), ("f32", np.int32), ("q8_0", np.int32)],
)
def test_rows_to_places(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, name: str, index: Any
) -> None:
    x = random(numbers, 2, 13, 512)
    places = np.stack([numbers.permutation(20)[:13] for _ in range(2)]).astype(index)
    out = np.zeros_like(matrix(numbers, name, 2, 20, 512)[0])
    each = out.shape[-1]
    threads = 32
    while threads < each and threads < 1024:
        threads *= 2
    together = -(-threads // each) if threads > each else 1
    got = run(
        dev,
        kernel(checkouts, f"kernel_set_rows_f32_i{8 * places.itemsize}_{name}"),
        x,
        places,
        out=out,
        # The places of a batch stand in the second axis.
        arguments={"nk0": each, "ne11": 2, "ne12": 1, "nb11": places.strides[0], "nb12": places.nbytes},
        groups=(-(-13 // together), 2, 1),
        group_size=(min(threads, each), together, 1),
    )
    for batch in (0, 1):
        rows = got[batch, places[batch]]
        if name in SCALES:
            assert_stands_for(rows, name, x[batch])
        else:
            np.testing.assert_array_equal(rows, x[batch].astype(TYPES[name]))
        others = np.delete(got[batch], places[batch], axis=0)
        assert not others.view(np.uint8).any()


def test_count_equal(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, y = (numbers.integers(0, 4, (2, 3, 5, 300), I32) for _ in range(2))
    count = kernel(checkouts, "kernel_count_equal_i32", "FC_count_equal", nsg=16)
    got = run(dev, count, x, y, out=np.zeros(1, np.int64), groups=(5, 3, 2), group_size=512, shared={0: 128})
    assert got[0] == np.count_nonzero(x == y)


def test_adamw(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    x, gradient, mean = random(numbers, 3, 1500)
    square = numbers.uniform(0, 1, 1500).astype(F32)
    rate, keep, keep_square, epsilon, decay, correct, correct_square = given = (0.1, 0.9, 0.99, 1e-8, 0.01, 1.5, 2.5)
    got = launch(
        dev,
        kernel(checkouts, "kernel_opt_step_adamw_f32"),
        {"np": 1500},
        *(part.copy() for part in (x, gradient, mean, square)),
        np.array(given, F32),
        groups=2,
        group_size=1024,
    )
    g = gradient.astype(np.float64)
    means, squares = mean * keep + g * (1 - keep), square * keep_square + g * g * (1 - keep_square)
    moved = x * (1 - rate * decay) - rate * means * correct / (np.sqrt(squares * correct_square) + epsilon)
    for part, expected in zip(got, (moved, means, squares), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-5)
