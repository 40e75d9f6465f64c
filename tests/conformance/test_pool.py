"""The pool: memory is reused, and never has two owners."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from small_kernels import SLOW_STEPS


def address(buffer: ost.Buffer) -> int:
    return buffer._allocation().backing.address + buffer.byte_offset


def test_released_memory_is_taken_again(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    first = pool.take(1000, np.float32)
    where = address(first)
    pool.release(first)
    assert address(pool.take(900, np.float32)) == where
    assert pool.allocated_count == 1


def test_dropped_and_freed_buffers_return_too(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    for _ in range(5):
        pool.take(64, np.float32).free()
        pool.take(64, np.float32)
    assert pool.allocated_count == 1
    assert pool.in_use_count == 0


def test_a_released_buffer_cannot_be_used_by_its_old_owner(dev: ost.Device, kernels: ost.Library) -> None:
    pool = ost.BufferPool(dev)
    old = pool.take(16, np.float32)
    view = old[4:]
    pool.release(old)
    new = pool.take(16, np.float32)
    encoder = dev.command_encoder()
    for dead in (old, view):
        with pytest.raises(ost.FreedBuffer, match="bump"):
            encoder.dispatch(kernels["bump"], dead, threads=1)
    with pytest.raises(ost.FreedBuffer):
        pool.release(old)
    new.write(np.ones(16, np.float32))
    assert (new.numpy() == 1).all()


def test_a_buffer_of_another_pool_or_of_none_is_refused(dev: ost.Device) -> None:
    pool, other = ost.BufferPool(dev), ost.BufferPool(dev)
    with pytest.raises(ost.PoolError):
        pool.release(dev.empty(4, np.float32))
    taken = other.take(4, np.float32)
    with pytest.raises(ost.PoolError):
        pool.release(taken)
    other.release(taken)


def test_memory_in_an_uncommitted_encoder_is_not_given_out(dev: ost.Device, kernels: ost.Library) -> None:
    pool = ost.BufferPool(dev)
    x = pool.take(16, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=16)
    where = address(x)
    pool.release(x)
    y = pool.take(16, np.float32)
    assert address(y) != where
    y.write(np.zeros(16, np.float32))
    encoder.commit_and_wait()
    assert (y.numpy() == 0).all(), "the released buffer's work reached the new owner"
    assert address(pool.take(16, np.float32)) == where


def test_memory_of_running_work_is_not_given_out(dev: ost.Device, kernels: ost.Library) -> None:
    pool = ost.BufferPool(dev)
    x = pool.take(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, SLOW_STEPS, threads=1)
    submission = encoder.commit()
    where = address(x)
    pool.release(x)
    assert address(pool.take(1, np.uint32)) != where
    assert not submission.done
    submission.wait()
    assert address(pool.take(1, np.uint32)) == where or pool.allocated_count == 2


@pytest.mark.usefixtures("windows")
def test_memory_behind_a_numpy_window_is_not_given_out(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    x = pool.take(16, np.float32)
    window = x.as_numpy()
    pool.release(x)
    assert pool.take(16, np.float32).as_numpy().ctypes.data != window.ctypes.data


def test_trim_gives_memory_back(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    pool.take(1 << 20, np.uint8)
    assert pool.free_bytes == 1 << 20
    pool.trim()
    assert pool.free_bytes == 0


def test_a_pool_may_go_before_its_buffers(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    x = pool.take(4, np.float32)
    del pool
    gc.collect()
    x.write(np.ones(4, np.float32))
    assert x.numpy().sum() == 4
    x.free()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "release", "view", "encode", "commit"]), st.integers(0, 7)), max_size=60
    )
)
def test_whatever_happens_no_two_owners_share_memory(
    dev: ost.Device, kernels: ost.Library, steps: list[tuple[str, int]]
) -> None:
    pool = ost.BufferPool(dev)
    owned: list[tuple[ost.Buffer, int]] = []
    kept: list[object] = []
    encoder, tags = dev.command_encoder(), itertools.count(1)
    for what, which in steps:
        if what == "take":
            buffer = pool.take((which + 1) * 10, np.float32)
            tag = next(tags)
            buffer.write(np.full(buffer.shape, tag, np.float32))
            owned.append((buffer, tag))
        elif owned and what == "release":
            pool.release(owned.pop(which % len(owned))[0])
        elif owned and what == "view":
            view = owned[which % len(owned)][0][1:]
            kept.append(view.as_numpy() if dev.capabilities.shared_memory else view)
        elif owned and what == "encode":
            # The work of a buffer that is released before the commit must not reach its memory's next owner.
            position = which % len(owned)
            buffer, tag = owned.pop(position)
            encoder.dispatch(kernels["bump"], buffer, threads=buffer.size)
            pool.release(buffer)
        elif what == "commit":
            encoder.commit()
            encoder = dev.command_encoder()
        ranges = sorted((address(buffer), buffer.nbytes) for buffer, _ in owned)
        assert all(start + nbytes <= after for (start, nbytes), (after, _) in itertools.pairwise(ranges))
    encoder.commit_and_wait()
    for buffer, tag in owned:
        assert (buffer.numpy() == tag).all()


def test_a_view_cannot_be_given_back(dev: ost.Device) -> None:
    pool = ost.BufferPool(dev)
    buffer = pool.take(8, np.float32)
    with pytest.raises(ost.PoolError, match="is a view"):
        pool.release(buffer[:4])
    pool.release(buffer)
