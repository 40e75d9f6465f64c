"""Softmax, the experts of a token, the largest and the sampled token, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from op_cases import DTYPES, near, run, values
from ostinato import ops

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
ROUTERS = [ops.moe_route, ops.serial_topk]


def shares(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


@pytest.mark.usefixtures("either_kernel")
@by_dtype
@pytest.mark.parametrize("shape", [(5, 20000), (1, 1), (3, 31), (2, 257), (1, 5000)], ids=str)
def test_softmax_is_that_of_numpy(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    x = 10 * values(shape, dtype, 1)
    out, in_place = dev.zeros(shape, dtype), dev.array(x)
    run(dev, ops.softmax, in_place, out)
    near(out, shares(x))
    run(dev, ops.softmax, in_place, in_place)
    assert in_place.numpy().tobytes() == out.numpy().tobytes()


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("shape", [(70, 1000), (40, 2056), (3, 40_004)], ids=str)
def test_softmax_of_much_is_right_in_its_smallest_shares_too(
    dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]
) -> None:
    x = 10 * values(shape, dtype, 3)
    x[0] = -np.inf
    x[0, 7] = 1e4
    out = dev.zeros(shape, dtype)
    run(dev, ops.softmax, dev.array(x), out)
    exact, info = shares(x), ml_dtypes.finfo(dtype)
    bound = max(float(info.eps), 2e-5) * exact + float(info.smallest_subnormal) + 2.0**-120
    assert (np.abs(out.numpy().astype(np.float64) - exact) <= bound).all()


@pytest.mark.usefixtures("either_kernel")
def test_softmax_of_masked_elements_is_zero(dev: ost.Device) -> None:
    x = np.full((2, 5000), -np.inf, np.float32)
    x[0, 17], x[0, 4000], x[1] = -1000, -1001, 3
    out = dev.zeros(x.shape, np.float32)
    run(dev, ops.softmax, dev.array(x), out)
    near(out, shares(x))


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 1025), (1, 50_257), (1, 50_260)], ids=str)
def test_argmax_is_that_of_numpy(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    x = values(shape, dtype, 2)  # narrow types have many equal largest; the first counts
    out = dev.zeros(shape[0], np.uint32)
    run(dev, ops.argmax, dev.array(x), out)
    assert out.numpy().tolist() == x.astype(np.float32).argmax(axis=1).tolist()


@pytest.mark.usefixtures("either_kernel")
def test_argmax_of_a_row_without_numbers_is_its_first(dev: ost.Device) -> None:
    x, out = np.full((3, 40), -np.inf, np.float32), dev.zeros(3, np.uint32)
    x[1], x[2, :35] = np.nan, np.nan
    run(dev, ops.argmax, dev.array(x), out)
    assert out.numpy().tolist() == [0, 0, 35]


@by_dtype
@pytest.mark.parametrize("width", [1, 2047, 2048, 5000])
@pytest.mark.usefixtures("either_kernel")
def test_argmax_of_one_row_may_be_shared_by_groups(dev: ost.Device, dtype: np.dtype[Any], width: int) -> None:
    x, out = values((width,), dtype, 2), dev.zeros(1, np.uint32)
    partial = dev.empty((ops.argmax_parts(width), 2), np.uint32)
    run(dev, ops.argmax, dev.array(x), out, partial=partial)
    assert out.numpy().tolist() == [int(x.astype(np.float32).argmax())]
    lacking = np.full(width, -np.inf, np.float32)
    lacking[: width - 1] = np.nan
    run(dev, ops.argmax, dev.array(lacking), out, partial=partial)
    assert out.numpy().tolist() == [width - 1]
    with pytest.raises(ost.ArgumentError, match="partial must have"):
        run(dev, ops.argmax, dev.array(x), out, partial=dev.empty((9, 2), np.uint32))


# --- experts -----------------------------------------------------------------------------------------------------


@by_dtype
@pytest.mark.parametrize("launch", ROUTERS)
@pytest.mark.parametrize("renormalise", [True, False], ids=["renormalised", "as they are"])
@pytest.mark.parametrize(("tokens", "experts", "chosen"), [(1, 1, 1), (5, 8, 2), (3, 37, 37), (2, 128, 8), (1, 99, 64)])
def test_the_experts_with_the_largest_shares_are_chosen(
    dev: ost.Device, dtype: np.dtype[Any], launch: Any, renormalise: bool, tokens: int, experts: int, chosen: int
) -> None:
    logits = values((tokens, experts), dtype, 3)  # narrow types have equal ones; the first comes first
    indices, weights = dev.zeros((tokens, chosen), np.uint32), dev.zeros((tokens, chosen), np.float32)
    run(dev, launch, dev.array(logits), indices, weights, renormalise=renormalise)
    expected = np.argsort(-logits.astype(np.float32), axis=1, kind="stable")[:, :chosen]
    if launch is ops.moe_route:  # the other one compares shares, which may be equal where logits are not
        assert np.array_equal(indices.numpy(), expected)
    kept = np.take_along_axis(shares(logits), indices.numpy().astype(np.int64), axis=1)
    near(weights, kept / kept.sum(axis=1, keepdims=True) if renormalise else kept)
    np.testing.assert_allclose(kept, np.take_along_axis(shares(logits), expected, axis=1), rtol=1e-6)
    assert all(len(set(row)) == chosen for row in indices.numpy().tolist())


def test_the_slow_router_is_called_topk() -> None:
    assert "topk" in ops.serial_topk.__name__


# --- the next token ----------------------------------------------------------------------------------------------


def sampled(logits: np.ndarray, random: float, temperature: float, top_p: float) -> tuple[int, float]:
    """The token, and how far the random number is from where another would be taken."""
    kept = shares(logits.astype(np.float64) / temperature)
    order = np.sort(kept)[::-1]
    last = order[np.searchsorted(np.cumsum(order), top_p * (1 - 1e-9)).clip(max=len(order) - 1)]
    kept = np.where(kept >= last * (1 - 1e-12), kept, 0)
    ends = np.cumsum(kept) / kept.sum()
    token = int(np.searchsorted(ends, random, side="right"))
    return token, float(np.abs(ends - random).min())


@by_dtype
@pytest.mark.parametrize("size", [1, 2, 33, 3001])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (0.2, 0.5), (2.0, 0.05)])
def test_tokens_are_sampled_from_the_most_probable(
    dev: ost.Device, dtype: np.dtype[Any], size: int, temperature: float, top_p: float
) -> None:
    logits = 3 * values((size,), dtype, 4)
    source, out = dev.array(logits), dev.zeros(1, np.uint32)
    looked_at = 0
    for random in np.linspace(0.01, 0.99, 25):
        token, margin = sampled(logits, random, temperature, top_p)
        if margin < 1e-5:
            continue
        run(dev, ops.sample_top_p, source, out, float(random), temperature=temperature, top_p=top_p)
        assert out.numpy()[0] == token
        looked_at += 1
    assert looked_at > 10


def test_the_ends_of_what_random_may_be_give_tokens_that_are_in(dev: ost.Device) -> None:
    logits = np.array([-50, 0, 1, 0.5, -50], np.float32)
    source, out = dev.array(logits), dev.zeros(1, np.uint32)
    for random, expected in ((0.0, 1), (1.0, 3)):
        run(dev, ops.sample_top_p, source, out, random, top_p=0.99)
        assert out.numpy()[0] == expected
    run(dev, ops.sample_top_p, source, out, 0.7, top_p=0.0)
    assert out.numpy()[0] == 2


def test_random_numbers_and_temperature_may_be_parameters(dev: ost.Device) -> None:
    logits = values((100,), np.dtype(np.float32), 5)
    source, out = dev.array(logits), dev.zeros(1, np.uint32)
    random, temperature = ost.param("random", np.float32), ost.param("temperature", np.float32)
    graph = dev.capture(lambda enc: ops.sample_top_p(enc, source, out, random, temperature=temperature, top_p=0.8))
    ready = graph.instantiate()
    for value in (0.1, 0.5, 0.9):
        ready.replay(random=value, temperature=0.5).wait()
        assert out.numpy()[0] == sampled(logits, value, 0.5, 0.8)[0]


def test_what_does_not_fit_is_refused(dev: ost.Device) -> None:
    encoder, whole = dev.command_encoder(), dev.zeros(2, np.uint32)
    two, eight = dev.zeros(2, np.float32), dev.zeros(8, np.float32)
    for launch, arguments, reason in (
        (ops.softmax, (two, eight), "softmax: .* the same dtype and size"),
        (ops.argmax, (eight, two), "places must be uint32"),
        (ops.argmax, (dev.zeros(7, np.float32), whole), "does not divide into rows"),
        (ops.moe_route, (eight, whole, dev.zeros(3, np.float32)), "weights must have 2 elements"),
        (ops.moe_route, (dev.zeros(1, np.float32), whole, two), "moe_route: .* does not match"),
        (ops.moe_route, (dev.zeros(1025, np.float32), whole, two), "at most 1024"),
        (ops.sample_top_p, (eight, whole, 0.5), "out must have 1 elements"),
        (ops.sample_top_p, (eight, whole[:1], 1.5), "random is a number from 0 to 1"),
    ):
        with pytest.raises(ost.ArgumentError, match=reason):
            launch(encoder, *arguments)
    with pytest.raises(ost.ArgumentError, match="temperature"):
        ops.sample_top_p(encoder, eight, whole[:1], 0.5, temperature=0.0)
    assert "0 commands" in repr(encoder)
