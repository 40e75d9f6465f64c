"""Buffers: contents, exact views, windows, lifetimes, DLPack."""

from __future__ import annotations

import gc
import mmap
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from small_kernels import SLOW_STEPS

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "bfloat16", "complex64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_contents_come_back_as_they_were_given(dev: ost.Device, dtype: str) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    buffer = dev.array(values)
    assert (buffer.shape, buffer.dtype, buffer.nbytes) == (values.shape, values.dtype, values.nbytes)
    assert buffer.numpy().tobytes() == values.tobytes()


def test_structured_and_big_endian_values_are_kept(dev: ost.Device) -> None:
    records = np.array([(1, 2.5), (3, 4.5)], dtype=[("n", "<u4"), ("x", "<f4")])
    assert np.array_equal(dev.array(records).numpy(), records)
    assert np.array_equal(dev.array(np.arange(4, dtype=">f4")).numpy(), np.arange(4, dtype=np.float32))


def test_strided_arrays_are_copied_in_c_order(dev: ost.Device) -> None:
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    assert np.array_equal(dev.array(values.T[::2]).numpy(), values.T[::2])


@pytest.mark.parametrize("shape", [0, (3, 0, 2), ()])
def test_empty_and_scalar_shapes(dev: ost.Device, shape: tuple[int, ...] | int) -> None:
    buffer = dev.zeros(shape, np.float32)
    expected = np.zeros(shape, np.float32)
    assert buffer.shape == expected.shape
    assert np.array_equal(buffer.numpy(), expected)


def test_zeros_are_zero_in_recycled_memory(dev: ost.Device) -> None:
    for _ in range(20):
        dev.array(np.full(1000, 7, np.uint8))
        assert not dev.zeros(1000, np.uint8).numpy().any()


def test_write_replaces_contents(dev: ost.Device) -> None:
    buffer = dev.zeros((2, 2), np.float32)
    buffer.write(np.eye(2, dtype=np.float32))
    assert np.array_equal(buffer.numpy(), np.eye(2))
    buffer.write([[1, 2], [3, 4]])
    assert buffer.numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "values", [np.zeros(3, np.float32), np.zeros((2, 2), np.float64), [[1, 2, 3]], [["a", "b"], ["c", "d"]]]
)
def test_write_refuses_other_shapes_and_dtypes(dev: ost.Device, values: object) -> None:
    buffer = dev.array(np.full((2, 2), 5, np.float32))
    with pytest.raises(ost.ArgumentError, match="float32"):
        buffer.write(values)
    assert (buffer.numpy() == 5).all()


@pytest.mark.usefixtures("windows")
def test_numpy_is_a_copy_and_as_numpy_a_window(dev: ost.Device) -> None:
    buffer = dev.zeros(4, np.float32)
    copy, window = buffer.numpy(), buffer.as_numpy()
    window[1] = 3
    assert copy.tolist() == [0, 0, 0, 0]
    assert buffer.numpy().tolist() == [0, 3, 0, 0]


def test_numpy_and_write_wait_for_committed_work(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    submission = encoder.commit()
    assert not submission.done
    assert x.numpy()[0] & 1
    assert submission.done
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    encoder.commit()
    x.write([8])
    assert x.numpy()[0] == 8


@pytest.mark.usefixtures("windows")
def test_a_window_does_not_wait(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    submission = encoder.commit()
    assert x.as_numpy()[0] == 0
    assert not submission.done
    submission.wait()


def test_reading_an_unrelated_buffer_does_not_wait(dev: ost.Device, kernels: ost.Library) -> None:
    x, other = dev.zeros(1, np.uint32), dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    submission = encoder.commit()
    other.numpy()
    assert not submission.done
    submission.wait()


# --- views ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_any_chain_of_views_sees_the_bytes_numpy_sees(dev: ost.Device, data: st.DataObject) -> None:
    values = np.random.default_rng(1).integers(0, 255, (12, 16), dtype=np.uint8)
    buffer, oracle = dev.array(values), values.copy()
    for _ in range(data.draw(st.integers(1, 6))):
        step = data.draw(st.sampled_from(["slice", "dtype", "bytes", "row"]))
        if step == "slice" and oracle.ndim:
            first = data.draw(st.integers(0, len(oracle)))
            stop = data.draw(st.integers(first, len(oracle)))
            buffer, oracle = buffer[first:stop], oracle[first:stop]
        elif step == "row" and oracle.ndim > 1 and len(oracle):
            row = data.draw(st.integers(-len(oracle), len(oracle) - 1))
            buffer, oracle = buffer[row], oracle[row]
        elif step == "bytes":
            flat = np.ascontiguousarray(oracle).reshape(-1).view(np.uint8)
            offset = data.draw(st.integers(0, flat.nbytes))
            size = data.draw(st.integers(0, flat.nbytes - offset))
            buffer = buffer.view(np.uint8, shape=size, byte_offset=offset)
            oracle = flat[offset : offset + size]
        elif step == "dtype":
            flat = np.ascontiguousarray(oracle).reshape(-1).view(np.uint8)
            size = data.draw(st.sampled_from([1, 2, 4]))
            dtype = {1: np.int8, 2: np.int16, 4: np.float32}[size]
            if flat.nbytes % size == 0 and buffer.byte_offset % size == 0:
                buffer, oracle = buffer.view(dtype, shape=flat.nbytes // size), flat.view(dtype)
    assert buffer.shape == oracle.shape
    assert buffer.numpy().tobytes() == oracle.tobytes()


def test_a_kernel_sees_exactly_the_view(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(100, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x[20:60][10:20], threads=10)
    encoder.dispatch(kernels["bump"], (x[50:], 4 * 5), threads=3)
    encoder.commit_and_wait()
    expected = np.zeros(100, np.float32)
    expected[30:40] += 1
    expected[55:58] += 1
    assert np.array_equal(x.numpy(), expected)


def test_writing_a_view_leaves_the_rest(dev: ost.Device) -> None:
    x = dev.zeros((4, 3), np.float32)
    x[1:3].write(np.ones((2, 3), np.float32))
    x[-1].write([7, 8, 9])
    assert x.numpy().tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1], [7, 8, 9]]


@pytest.mark.parametrize(
    "cut",
    [
        lambda b: b[0:11],
        lambda b: b[-11:],
        lambda b: b[5:4],
        lambda b: b[::2],
        lambda b: b[10],
        lambda b: b["x"],
        lambda b: b[1.5:],
        lambda b: b.view(byte_offset=-4),
        lambda b: b.view(byte_offset=44),
        lambda b: b.view(shape=11),
        lambda b: b.view(np.float32, byte_offset=2, shape=1),
        lambda b: b.view(np.uint8, byte_offset=1).view(np.int16),
        lambda b: b[2:4].view(shape=3),
        lambda b: b.view([("a", "u1", 7)]),
    ],
)
def test_views_outside_their_parent_are_refused(dev: ost.Device, cut: object) -> None:
    with pytest.raises(ost.ViewError):
        cut(dev.zeros(10, np.float32))  # type: ignore[operator]


def test_iteration_ends(dev: ost.Device) -> None:
    assert [int(row.numpy()) for row in dev.array(np.arange(3))] == [0, 1, 2]  # type: ignore[attr-defined]


# --- lifetimes -----------------------------------------------------------------------------------------------


def test_a_freed_buffer_and_its_views_are_errors_to_use(dev: ost.Device) -> None:
    x = dev.zeros(8, np.float32)
    view = x[2:]
    x.free()
    uses = [x.numpy, view.numpy, x.free, lambda: x[1:], lambda: view.view(np.uint8)]
    for use in [*uses, view.as_numpy] if dev.capabilities.shared_memory else uses:
        with pytest.raises(ost.FreedBuffer):
            use()
    with pytest.raises(ost.FreedBuffer):
        view.write(np.zeros(6, np.float32))
    assert "freed" in repr(x)


@pytest.mark.usefixtures("windows")
def test_a_window_outlives_its_buffer(dev: ost.Device) -> None:
    x = dev.array(np.arange(1000, dtype=np.float32))
    window = x.as_numpy()
    x.free()
    del x
    gc.collect()
    assert np.array_equal(window, np.arange(1000))


def test_memory_goes_with_the_last_view(dev: ost.Device) -> None:
    x = dev.zeros(8, np.float32)
    view, memory = x[2:4], weakref.ref(x._lease.allocation)
    del x
    assert memory() is not None
    del view
    assert memory() is None


# --- DLPack --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("windows")
def test_numpy_takes_a_buffer_through_dlpack_without_a_copy(dev: ost.Device) -> None:
    x = dev.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    array = np.from_dlpack(x)
    array[1, 2] = 50
    assert x.numpy()[1, 2] == 50


def test_a_buffer_takes_the_values_of_an_array_through_dlpack(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.from_dlpack(np.arange(16, dtype=np.float32))
    gc.collect()
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=16)
    encoder.commit_and_wait()
    assert np.array_equal(x.numpy(), np.arange(1, 17))


@pytest.mark.usefixtures("windows")
def test_a_buffer_takes_an_array_through_dlpack_without_a_copy(dev: ost.Device, kernels: ost.Library) -> None:
    # Whole pages, which every device that shares memory with the host can share.
    array = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.float32)[:16]
    x = dev.from_dlpack(array)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=16)
    encoder.commit_and_wait()
    assert (array == 1).all()
    del array
    gc.collect()
    assert (x.numpy() == 1).all()


def test_what_cannot_be_shared_is_copied(dev: ost.Device) -> None:
    locked = np.arange(4, dtype=np.float32)
    locked.flags.writeable = False
    for array in (locked, np.arange(12, dtype=np.int32).reshape(3, 4)[:, ::2]):
        before = array.copy()
        taken = dev.from_dlpack(array)
        assert np.array_equal(taken.numpy(), array)
        taken.write(taken.numpy() + 1)
        assert np.array_equal(array, before)


def test_bfloat16_crosses_dlpack_both_ways(dev: ost.Device) -> None:
    values = np.array([1.5, -2.25, 1e30], ml_dtypes.bfloat16)
    x = dev.array(values)
    y = dev.from_dlpack(x)
    assert y.dtype == values.dtype
    assert np.array_equal(y.numpy(), values)
    x.write(values * 2)
    assert y.numpy().tolist() in (values.tolist(), x.numpy().tolist())  # a copy, or the same memory


@pytest.mark.parametrize("thing", [3, "abc", [1, 2]])
def test_from_dlpack_refuses_what_does_not_speak_it(dev: ost.Device, thing: object) -> None:
    with pytest.raises(ost.ArgumentError, match="__dlpack__"):
        dev.from_dlpack(thing)


@pytest.mark.parametrize("dtype", ["O", "U0", "no such type", ">f4"])
def test_dtypes_without_a_layout_are_refused(dev: ost.Device, dtype: str) -> None:
    with pytest.raises(ost.ArgumentError):
        dev.empty(4, dtype)


@pytest.mark.parametrize("shape", [-1, (2, -1), 1.5, "ab", None])
def test_shapes_that_make_no_sense_are_refused(dev: ost.Device, shape: object) -> None:
    with pytest.raises(ost.ArgumentError):
        dev.empty(shape, np.float32)  # type: ignore[arg-type]


def test_more_memory_than_there_is_is_a_typed_error(dev: ost.Device) -> None:
    with pytest.raises(ost.OutOfMemory):
        dev.empty((1 << 31, 1 << 31), np.float32)
    assert dev.zeros(1, np.float32).numpy()[0] == 0
