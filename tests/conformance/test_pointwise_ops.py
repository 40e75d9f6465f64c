"""What goes element by element, against NumPy."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from op_cases import DTYPES, near, run, values
from ostinato import ops
from ostinato.passes import fuse
from small_graphs import dispatches

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
by_size = pytest.mark.parametrize("size", [1, 31, 1000])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu_by_tanh(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def gelu_by_erf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x])


@by_dtype
@by_size
def test_gates_are_those_of_numpy(dev: ost.Device, dtype: np.dtype[Any], size: int) -> None:
    gate, up = 4 * values((size,), dtype, 1), values((size,), dtype, 2)
    wide, other = gate.astype(np.float64), up.astype(np.float64)
    for launch, expected in (
        (ops.silu_mul, wide * sigmoid(wide) * other),
        (ops.sigmoid_mul, sigmoid(wide) * other),
    ):
        out, in_place = dev.zeros(size, dtype), dev.array(gate)
        run(dev, launch, in_place, dev.array(up), out)
        near(out, expected)
        run(dev, launch, in_place, dev.array(up), in_place)
        assert in_place.numpy().tobytes() == out.numpy().tobytes()


@by_dtype
@by_size
def test_gates_and_what_they_let_through_may_stand_in_one_row(dev: ost.Device, dtype: np.dtype[Any], size: int) -> None:
    x, out = values((3, 2, size), dtype, 1), dev.zeros((3, size), dtype)
    run(dev, ops.silu_mul_halves, dev.array(x), out)
    gate, up = x[:, 0].astype(np.float64), x[:, 1].astype(np.float64)
    near(out, gate * sigmoid(gate) * up)


@by_dtype
@by_size
def test_activations_are_those_of_numpy(dev: ost.Device, dtype: np.dtype[Any], size: int) -> None:
    x = 4 * values((size,), dtype, 3)
    wide = x.astype(np.float64)
    for launch, arguments, options, expected in (
        (ops.gelu, (), {}, gelu_by_tanh(wide)),
        (ops.gelu, (), {"approximate": False}, gelu_by_erf(wide)),
        (ops.scalar_mul, (0.3,), {}, wide * 0.3),
        (ops.softcap, (3.0,), {}, 3 * np.tanh(wide / 3)),
    ):
        out = dev.zeros(size, dtype)
        run(dev, launch, dev.array(x), out, *arguments, **options)
        near(out, expected)


@by_dtype
def test_large_sums_and_products_are_the_same_by_fours(
    dev: ost.Device, dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 16
    a, b = dev.array(values((size + 1,), dtype, 7)), dev.array(values((size + 1,), dtype, 8))
    single, fours = dev.zeros(size, dtype), dev.zeros(size, dtype)
    for launch, oracle in ((ops.add, np.add), (ops.mul, np.multiply)):
        for first in (0, 1):  # one past is where no vector may start
            x, y = a[first : first + size], b[first : first + size]
            monkeypatch.setattr(ops.checks, "prefers_plain", lambda encoder: True)
            run(dev, launch, x, y, single)
            monkeypatch.setattr(ops.checks, "prefers_plain", lambda encoder: False)
            run(dev, launch, x, y, fours)
            assert single.numpy().tobytes() == fours.numpy().tobytes()
            expected = oracle(x.numpy().astype(np.float32), y.numpy().astype(np.float32)).astype(dtype)
            assert np.array_equal(fours.numpy(), expected)


@by_dtype
def test_large_inputs_give_the_same_by_fours(
    dev: ost.Device, dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, width = 64, 2048
    x, y = (dev.array(values((rows, width), dtype, seed)) for seed in (7, 8))
    halves, weights = (
        x.view(shape=(rows, 2, width // 2)),
        dev.array(np.linspace(-1, 1, rows, dtype="f4").reshape(-1, 2)),
    )
    other = np.dtype(np.float16 if dtype == np.float32 else np.float32)
    cases: list[tuple[Any, tuple[Any, ...], np.dtype[Any], int]] = [
        (ops.silu_mul, (x, y), dtype, x.size),
        (ops.sigmoid_mul, (x, y), dtype, x.size),
        (ops.gelu, (x,), dtype, x.size),
        (ops.scalar_mul, (x,), dtype, x.size),
        (ops.softcap, (x,), dtype, x.size),
        (ops.cast, (x,), other, x.size),
        (ops.silu_mul_halves, (halves,), dtype, x.size // 2),
        (ops.weighted_sum, (x, weights), dtype, x.size // 2),
    ]
    for launch, given, out_dtype, elements in cases:
        single, fours = dev.zeros(elements, out_dtype), dev.zeros(elements, out_dtype)
        number = (0.7,) if launch in (ops.scalar_mul, ops.softcap) else ()
        names = set()
        for plain, out in ((True, single), (False, fours)):
            monkeypatch.setattr(ops.checks, "prefers_plain", partial(lambda plain, encoder: plain, plain))
            arguments = (*given, out, *number)
            graph = dev.capture(partial(lambda launch, arguments, enc: launch(enc, *arguments), launch, arguments))
            graph.instantiate().replay().wait()
            names |= {dispatch.kernel.name for dispatch in dispatches(graph)}
        assert len(names) == 2
        near(fours, single.numpy().astype(np.float64))


def test_what_goes_by_fours_is_fused_too(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ops.checks, ops.norms):
        monkeypatch.setattr(module, "prefers_plain", lambda encoder: False)
    x, y, total, out = (dev.array(values((64, 1024), np.dtype(np.float32), seed)) for seed in range(4))
    weight = dev.array(np.ones(1024, np.float32))

    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, x, y, total)
        ops.rms_norm(enc, total, weight, out)

    graph = dev.capture(encode)
    assert [dispatch.kernel.name for dispatch in dispatches(graph)] == ["add_fours_float", "rms_norm_fours_float"]
    fused, _ = fuse(graph)
    assert [dispatch.kernel.name for dispatch in dispatches(fused)] == ["add_rms_norm_fours_float"]


@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=lambda dtype: dtype.name)
def test_activations_of_every_number_of_16_bits_are_a_neighbour_of_the_exact_one(
    dev: ost.Device, dtype: np.dtype[Any]
) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    ones = dev.array(np.ones(1 << 16, dtype))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        gelu = wide / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
        cases: list[tuple[Any, tuple[Any, ...], np.ndarray]] = [
            (ops.gelu, (), gelu),
            (ops.softcap, (30.0,), 30 * np.tanh(wide / 30)),
            (ops.softcap, (0.7,), 0.7 * np.tanh(wide / np.float32(0.7))),
            (ops.silu_mul, (ones,), wide / (1 + np.exp(-wide))),
            (ops.sigmoid_mul, (ones,), 1 / (1 + np.exp(-wide))),
        ]
        by_erf = np.array([one * math.erfc(-one / math.sqrt(2)) / 2 for one in wide])
    cases.append((partial(ops.gelu, approximate=False), (), by_erf))
    for launch, arguments, exact in cases:
        out = dev.zeros(1 << 16, dtype)
        if arguments and isinstance(arguments[0], float):
            run(dev, launch, dev.array(x), out, *arguments)
        else:
            run(dev, launch, dev.array(x), *arguments, out)
        assert_neighbours(out.numpy(), exact, x)


def assert_neighbours(found: np.ndarray, exact: np.ndarray, x: np.ndarray) -> None:
    """Each number is one of the two of its type that the exact one lies between, or that one; NaN where that is.

    Numbers below 2^-119 may be zero instead, as an intermediate beside the least float is.
    """
    info = ml_dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        mine, largest = found.astype(np.float64), float(info.max)
        # Half an ulp past the largest finite number they round to infinity.
        mine, bounded = (np.clip(numbers, -2 * largest, 2 * largest) for numbers in (mine, exact))
        exponents = np.maximum(np.frexp(bounded)[1] - 1, info.minexp)
        ulp = np.ldexp(1.0, exponents - info.nmant)
        wrong = np.abs(mine - bounded) >= np.maximum(ulp, 2.0**-119)
        wrong &= ~((np.abs(exact) > largest) & (np.abs(mine) >= largest) & (np.sign(mine) == np.sign(exact)))
    wrong |= np.isnan(found.astype(np.float64)) != np.isnan(exact)
    assert not wrong.any(), [*zip(x[wrong], found[wrong], exact[wrong], strict=True)][:10]


def test_a_gelu_of_floats_is_right_in_its_tail_too(dev: ost.Device) -> None:
    x = np.concatenate([np.linspace(-12, 6, 1 << 16), [0, 1e30, -1e30, np.inf, -np.inf, np.nan]]).astype(np.float32)
    out = dev.zeros(x.size, np.float32)
    run(dev, ops.gelu, dev.array(x), out, approximate=False)
    found, numbers = out.numpy(), x[:-3].astype(np.float64)
    exact = np.array([one * math.erfc(-one / math.sqrt(2)) / 2 for one in numbers])
    assert (np.abs(found[:-3] - exact) <= np.minimum(1e-5 * np.abs(exact), 4e-7 * np.maximum(1, exact))).all()
    assert found[-3] == np.inf
    assert np.isnan(found[-2:]).all()


def test_extremes_stay_finite(dev: ost.Device) -> None:
    x, ones, out = dev.array(np.array([-1e4, 1e4], np.float32)), dev.array(np.ones(2, np.float32)), dev.zeros(2, "f4")
    for launch, arguments, expected in (
        (ops.silu_mul, (x, ones, out), [0, 1e4]),
        (ops.sigmoid_mul, (x, ones, out), [0, 1]),
        (ops.gelu, (x, out), [0, 1e4]),
        (ops.softcap, (x, out, 30.0), [-30, 30]),
    ):
        run(dev, launch, *arguments)
        assert out.numpy().tolist() == expected


@pytest.mark.parametrize("source", DTYPES, ids=lambda dtype: f"from {dtype.name}")
@pytest.mark.parametrize("target", DTYPES, ids=lambda dtype: f"to {dtype.name}")
def test_casts_round_to_nearest(dev: ost.Device, source: np.dtype[Any], target: np.dtype[Any]) -> None:
    x = values((1001,), source, 4)
    out = dev.zeros(1001, target)
    run(dev, ops.cast, dev.array(x), out)
    assert np.array_equal(out.numpy(), x.astype(np.float32).astype(target))


@by_dtype
@pytest.mark.parametrize(("tokens", "slots", "width"), [(1, 1, 1), (1, 8, 33), (5, 3, 300)])
def test_weighted_sums_are_those_of_numpy(
    dev: ost.Device, dtype: np.dtype[Any], tokens: int, slots: int, width: int
) -> None:
    x, weights = values((tokens, slots, width), dtype, 5), values((tokens, slots), np.dtype(np.float32), 6)
    out = dev.zeros((tokens, width), dtype)
    run(dev, ops.weighted_sum, dev.array(x), dev.array(weights), out)
    near(out, np.einsum("tsw,ts->tw", x.astype(np.float64), weights), scale=4)


def test_a_factor_may_be_a_parameter(dev: ost.Device) -> None:
    x, out = dev.array(np.ones(3, np.float32)), dev.zeros(3, np.float32)
    graph = dev.capture(lambda enc: ops.scalar_mul(enc, x, out, ost.param("factor", np.float32)))
    graph.instantiate().replay(factor=2.5).wait()
    assert out.numpy().tolist() == [2.5] * 3


def test_what_does_not_fit_is_refused(dev: ost.Device) -> None:
    encoder, four, five = dev.command_encoder(), dev.zeros(4, np.float32), dev.zeros(5, np.float32)
    for launch, arguments, reason in (
        (ops.silu_mul, (four, five, four), "silu_mul: .* the same dtype and size"),
        (ops.silu_mul_halves, (four, four), r"silu_mul_halves: x must be \[tokens, 2, width\]"),
        (ops.gelu, (four, dev.zeros(4, np.float16)), "gelu: .* the same dtype and size"),
        (ops.cast, (four, dev.zeros(4, np.int32)), "cast: there is no kernel for int32"),
        (ops.cast, (four, five), "cast: out must have 4 elements"),
        (ops.weighted_sum, (four, dev.zeros(2, np.float16), dev.zeros(2, np.float32)), "weights must be float32"),
        (ops.weighted_sum, (four, dev.zeros(2, np.float32), five), "x must have 10 elements"),
        (ops.softcap, (np.zeros(4), four, 1.0), "softcap: expected a Buffer"),
    ):
        with pytest.raises(ost.ArgumentError, match=reason):
            launch(encoder, *arguments)
    assert "0 commands" in repr(encoder)
