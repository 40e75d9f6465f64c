"""Our own kernels against NumPy, and the fused ones against the pairs that they stand for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from op_cases import DTYPES, near, run, values
from ostinato import ops
from small_graphs import dispatches

SHAPES = [(5, 20000), (1, 1), (1, 31), (3, 32), (2, 33), (5, 257), (1, 1500), (7, 64), (2, 9000), (130, 70)]


def norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps)
    return np.asarray(wide * scale * weight.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", [1, 2, 63, 1000])
def test_add_and_mul_are_rounded_once(dev: ost.Device, dtype: np.dtype[Any], size: int) -> None:
    a, b = values((size,), dtype, 1), values((size,), dtype, 2)
    x, y, out = dev.array(a), dev.array(b), dev.zeros(size, dtype)
    run(dev, ops.add, x, y, out)
    assert np.array_equal(out.numpy(), (a.astype(np.float32) + b.astype(np.float32)).astype(dtype))
    run(dev, ops.mul, x, y, out)
    assert np.array_equal(out.numpy(), (a.astype(np.float32) * b.astype(np.float32)).astype(dtype))


@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rms_norm_is_that_of_numpy(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    x, weight = values(shape, dtype, 3), values(shape[1:], dtype, 4)
    out = dev.zeros(shape, dtype)
    run(dev, ops.rms_norm, dev.array(x), dev.array(weight), out, 1e-3)
    near(out, norm(x, weight, 1e-3))


@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fused_kernels_give_the_bits_of_the_two_they_stand_for(
    dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]
) -> None:
    a, b = dev.array(values(shape, dtype, 5)), dev.array(values(shape, dtype, 6))
    weight = dev.array(values(shape[1:], dtype, 7))
    middle, plain, fused, total = (dev.zeros(shape, dtype) for _ in range(4))

    run(dev, ops.rms_norm, a, weight, middle)
    run(dev, ops.mul, middle, b, plain)
    run(dev, ops.rms_norm_mul, a, weight, b, fused)
    assert plain.numpy().tobytes() == fused.numpy().tobytes()

    run(dev, ops.add, a, b, middle)
    run(dev, ops.rms_norm, middle, weight, plain)
    run(dev, ops.add_rms_norm, a, b, weight, total, fused)
    assert middle.numpy().tobytes() == total.numpy().tobytes()
    assert plain.numpy().tobytes() == fused.numpy().tobytes()


@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("shape", [(3, 33), (4, 600)], ids=str)
def test_fused_kernels_work_in_place_where_the_rules_say_so(dev: ost.Device, shape: tuple[int, int]) -> None:
    dtype = np.dtype(np.float32)
    x, y, weight = values(shape, dtype, 8), values(shape, dtype, 9), dev.array(values(shape[1:], dtype, 10))
    total, out = dev.zeros(shape, dtype), dev.zeros(shape, dtype)
    run(dev, ops.rms_norm_mul, dev.array(x), weight, dev.array(y), out)
    for place in (0, 1):
        both = [dev.array(x), dev.array(y)]
        run(dev, ops.rms_norm_mul, both[0], weight, both[1], both[place])
        assert both[place].numpy().tobytes() == out.numpy().tobytes()

    run(dev, ops.add_rms_norm, dev.array(x), dev.array(y), weight, total, out)
    for place in (0, 1):
        both = [dev.array(x), dev.array(y)]
        other = dev.zeros(shape, dtype)
        run(dev, ops.add_rms_norm, *both, weight, both[place], other)
        assert both[place].numpy().tobytes() == total.numpy().tobytes()
        assert other.numpy().tobytes() == out.numpy().tobytes()
        both = [dev.array(x), dev.array(y)]
        run(dev, ops.add_rms_norm, *both, weight, other, both[place])
        assert both[place].numpy().tobytes() == out.numpy().tobytes()
    run(dev, ops.add_rms_norm, dev.array(x), dev.array(y), weight, other, other)
    assert other.numpy().tobytes() == out.numpy().tobytes()


def test_a_row_may_be_taken_by_any_number_of_threads(dev: ost.Device) -> None:
    kernel = dev.library(ops.compiled.FOLDER / "rms_norm.metal")["rms_norm_float"]
    x, weight = values((2, 100), np.dtype(np.float32), 11), values((100,), np.dtype(np.float32), 12)
    for threads in (1, 3, 32, 100, 333, 1024):
        out = dev.zeros((2, 100), np.float32)
        encoder = dev.command_encoder()
        encoder.dispatch(kernel, dev.array(x), dev.array(weight), out, 100, 1e-6, groups=2, group_size=threads)
        encoder.commit_and_wait()
        near(out, norm(x, weight, 1e-6))


def test_launchers_declare_what_they_do(dev: ost.Device) -> None:
    x, weight, out = dev.zeros((4, 8), np.float32), dev.zeros(8, np.float32), dev.zeros((4, 8), np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.add(enc, x, x, out)
        ops.rms_norm(enc, x, weight, out)

    graph = dev.capture(encode)
    add, rms_norm = dispatches(graph)
    assert (add.bytes_read, add.bytes_written, add.flops) == (256, 128, 32)
    assert (rms_norm.bytes_read, rms_norm.bytes_written) == (160, 128)
    assert [node.op_kind.name for node in graph] == ["ElemAdd", "RmsNorm"]


def test_eps_may_be_a_parameter(dev: ost.Device) -> None:
    x, weight = values((1, 16), np.dtype(np.float32), 13), np.ones(16, np.float32)
    source, ones, out = dev.array(x), dev.array(weight), dev.zeros((1, 16), np.float32)
    graph = dev.capture(lambda enc: ops.rms_norm(enc, source, ones, out, ost.param("eps", np.float32)))
    graph.instantiate().replay(eps=0.5).wait()
    near(out, norm(x, weight, 0.5))


@pytest.mark.parametrize(
    ("launch", "shapes"),
    [
        (ops.add, [(4,), (5,), (4,)]),
        (ops.mul, [(4,), (4,), (3,)]),
        (ops.rms_norm, [(4, 8), (7,), (4, 8)]),
        (ops.rms_norm, [(4, 8), (8,), (3, 8)]),
        (ops.rms_norm_mul, [(4, 8), (8,), (4, 7), (4, 8)]),
        (ops.add, [(0,), (0,), (0,)]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(dev: ost.Device, launch: Any, shapes: list[tuple[int, ...]]) -> None:
    encoder = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match=launch.__name__):
        launch(encoder, *(dev.zeros(shape, np.float32) for shape in shapes))
    assert "0 commands" in repr(encoder)


def test_types_without_a_kernel_are_refused(dev: ost.Device) -> None:
    encoder = dev.command_encoder()
    whole = dev.zeros(4, np.int32)
    with pytest.raises(ost.ArgumentError, match="no kernel for int32; supported are float32, float16, bfloat16"):
        ops.add(encoder, whole, whole, whole)
    with pytest.raises(ost.ArgumentError, match="same dtype"):
        ops.add(encoder, dev.zeros(4, np.float32), dev.zeros(4, np.float16), dev.zeros(4, np.float32))
    with pytest.raises(ost.ArgumentError, match="expected a Buffer"):
        ops.add(encoder, np.zeros(4, np.float32), whole, whole)  # type: ignore[arg-type]


def test_a_library_is_compiled_once_for_a_device(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = dev.zeros(4, np.float32)
    run(dev, ops.add, x, x, x)
    monkeypatch.setattr(ops.compiled, "Library", None)  # nothing can be compiled from here on
    run(dev, ops.add, x, x, x)


def test_kernels_found_again_do_not_keep_their_device(open_another: Callable[[], ost.Device]) -> None:
    device = open_another()
    x = device.zeros(4, np.float32)
    run(device, ops.add, x, x, x)
    queue = weakref.ref(device._queue)
    del device, x
    gc.collect()
    assert queue() is None
