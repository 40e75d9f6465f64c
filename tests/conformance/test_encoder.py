"""Encoding: argument forms, geometry, barriers, labels, memoisation, threads."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.ir.commands import Dispatch
from scripting import Script

MODES = ["auto", "manual", "serial"]


def run(dev: ost.Device, kernel: ost.Kernel, *args: object, **options: object) -> None:
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *args, **options)  # type: ignore[arg-type]
    encoder.commit_and_wait()


# --- arguments -----------------------------------------------------------------------------------------------


def test_positional_arguments_fill_indices_in_ascending_order(dev: ost.Device, kernels: ost.Library) -> None:
    a, b = np.arange(8, dtype=np.float32), np.full(8, 3, np.float32)
    out = dev.zeros(8, np.float32)
    run(dev, kernels["subtract"], dev.array(a), dev.array(b), out, threads=8)
    assert np.array_equal(out.numpy(), a - b)


def test_arguments_by_index_in_any_order(dev: ost.Device, kernels: ost.Library) -> None:
    a, b = np.arange(8, dtype=np.float32), np.full(8, 3, np.float32)
    out = dev.zeros(8, np.float32)
    run(dev, kernels["subtract"], {7: out, 4: dev.array(b), 1: dev.array(a)}, threads=8)
    assert np.array_equal(out.numpy(), a - b)


def test_an_argument_by_index_is_never_taken_for_a_buffer_with_an_offset(script: Script) -> None:
    # In a new process buffers are numbered from 1, so that an index can equal one number and an offset the other.
    result = script("""
        dev = ost.open_device(DEVICE)
        one = dev.library("kernel void one(device float *x [[buffer(1)]]) { x[0] = 1.0f; }")["one"]
        first, table = dev.zeros(8, np.float32), dev.zeros((20, 8), np.float32)
        encoder = dev.command_encoder()
        encoder.dispatch(one, (first, 16), threads=1)
        for row in range(20):
            encoder.dispatch(one, {1: table[row]}, threads=1)
        encoder.commit_and_wait()
        print(first.numpy()[4], table.numpy()[:, 0].sum())
    """)
    assert result.stdout == "1.0 20.0\n", result.stderr


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.array([2.5], np.float32), np.float32(2.5).tobytes()])
def test_every_form_of_a_value_reaches_the_kernel(dev: ost.Device, kernels: ost.Library, value: object) -> None:
    x, y = dev.array(np.arange(4, dtype=np.float32)), dev.zeros(4, np.float32)
    run(dev, kernels["scale"], x, y, value, threads=4)
    assert np.array_equal(y.numpy(), np.arange(4) * 2.5)


def test_a_value_may_come_from_a_buffer(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.array(np.arange(4, dtype=np.float32)), dev.zeros(4, np.float32)
    run(dev, kernels["scale"], x, y, (dev.array(np.array([9] * 64 + [4], np.float32)), 256), threads=4)
    assert np.array_equal(y.numpy(), np.arange(4) * 4)


@pytest.mark.parametrize(
    ("kernel", "dtype", "value"),
    [
        ("store_uint", np.uint32, 2**32 - 1),
        ("store_uint", np.uint32, 7.0),
        ("store_uint", np.uint32, True),
        ("store_char", np.int8, -128),
        ("store_half", np.float16, 65504),
        ("store_float", np.float32, float("inf")),
        ("store_float", np.float32, float("nan")),
        ("store_float", np.float32, -0.0),
    ],
)
def test_python_numbers_are_converted_exactly(
    dev: ost.Device, kernels: ost.Library, kernel: str, dtype: type, value: float
) -> None:
    out = dev.zeros(1, dtype)
    run(dev, kernels[kernel], out, value, threads=1)
    assert out.numpy().tobytes() == np.array([value]).astype(dtype).tobytes()


def test_structs_take_bytes_and_structured_arrays(dev: ost.Device, kernels: ost.Library) -> None:
    layout = np.dtype([("count", "<u4"), ("factor", "<f4")])
    for params in (np.array((3, 1.5), layout), np.array((3, 1.5), layout).tobytes()):
        out = dev.zeros(5, np.float32)
        run(dev, kernels["use_params"], out, params, threads=5)
        assert out.numpy().tolist() == [1.5, 1.5, 1.5, 0, 0]


def test_inline_data_is_copied_at_the_call(dev: ost.Device, kernels: ost.Library) -> None:
    out, table = dev.zeros(1, np.float32), np.ones(4, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["sum_table"], out, table, threads=1)
    table[:] = 100
    encoder.commit_and_wait()
    assert out.numpy()[0] == 4


def test_inline_data_may_be_as_large_as_the_device_says(dev: ost.Device, kernels: ost.Library) -> None:
    count = dev.capabilities.max_inline_bytes // 4
    a, b = np.random.default_rng(1).integers(-99, 99, (2, count)).astype(np.float32)
    out = dev.zeros(count, np.float32)
    run(dev, kernels["subtract"], a, b, out, threads=count)
    assert np.array_equal(out.numpy(), a - b)


def test_a_kernel_may_have_as_many_buffers_as_metal_has(dev: ost.Device) -> None:
    inputs = "".join(f"device const uint *b{at} [[buffer({at})]], " for at in range(30))
    total = " + ".join(f"b{at}[0] * {at + 1}u" for at in range(30))
    library = dev.library(f"kernel void total({inputs}device uint *out [[buffer(30)]]) {{ out[0] = {total}; }}")
    values, out = np.arange(7, 37, dtype=np.uint32), dev.zeros(1, np.uint32)
    run(dev, library["total"], *(dev.array(values[at : at + 1]) for at in range(30)), out, threads=1)
    assert out.numpy()[0] == (values * np.arange(1, 31)).sum()


def test_uint8_binds_to_anything(dev: ost.Device, kernels: ost.Library) -> None:
    raw = dev.array(np.zeros(4, np.float32)).view(np.uint8)
    run(dev, kernels["bump"], raw, threads=4)
    assert (raw.view(np.float32).numpy() == 1).all()


def test_bfloat16_buffers(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.array(np.arange(5).astype("bfloat16"))
    run(dev, kernels["bfloat_inc"], x, threads=5)
    assert x.numpy().astype(int).tolist() == [1, 2, 3, 4, 5]


# --- geometry ------------------------------------------------------------------------------------------------

extent = st.integers(1, 40)
grids = st.one_of(extent, st.tuples(extent), st.tuples(extent, extent), st.tuples(extent, extent, st.integers(1, 6)))
group = st.integers(1, 9)
group_sizes = st.one_of(st.none(), group, st.tuples(group, group), st.tuples(group, group, group))


def _three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int) else tuple(size)
    return (*values, 1, 1)[:3]  # type: ignore[return-value]


@settings(deadline=None, max_examples=60)
@given(threads=grids, group_size=group_sizes)
def test_every_thread_of_a_grid_runs_once_in_its_clipped_group(
    dev: ost.Device, kernels: ost.Library, threads: int | tuple[int, ...], group_size: int | tuple[int, ...] | None
) -> None:
    x, y, z = _three(threads)
    ran, groups, sizes = (dev.zeros((z, y, x), np.uint32) for _ in range(3))
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["where_am_i"], ran, groups, sizes, threads=threads, group_size=group_size)
    (command,) = (node.command for node in encoder._nodes if isinstance(node.command, Dispatch))
    encoder.commit_and_wait()
    assert (ran.numpy() == 1).all()
    gx, gy, gz = command.group_size
    assert 1 <= gx * gy * gz <= kernels["where_am_i"].max_threads_per_group
    if group_size is not None:
        assert (gx, gy, gz) == _three(group_size)
    at_z, at_y, at_x = np.indices((z, y, x))
    assert np.array_equal(groups.numpy(), (at_z // gz * 1000 + at_y // gy) * 1000 + at_x // gx)
    real = [np.minimum(g, n - at // g * g) for at, g, n in ((at_x, gx, x), (at_y, gy, y), (at_z, gz, z))]
    assert np.array_equal(sizes.numpy(), real[0] * real[1] * real[2])


def test_groups_are_never_clipped(dev: ost.Device, kernels: ost.Library) -> None:
    ran, groups, sizes = (dev.zeros(21, np.uint32) for _ in range(3))
    run(dev, kernels["where_am_i"], ran, groups, sizes, groups=3, group_size=7)
    assert (ran.numpy() == 1).all()
    assert (sizes.numpy() == 7).all()
    assert groups.numpy().tolist() == [0] * 7 + [1] * 7 + [2] * 7


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("group", [1, 3])
def test_every_axis_may_have_very_many_groups(dev: ost.Device, kernels: ost.Library, axis: int, group: int) -> None:
    threads, group_size = [1, 1, 1], [1, 1, 1]
    threads[axis], group_size[axis] = 70_000 * group - 1, group
    ran, groups, sizes = (dev.zeros(threads[axis], np.uint32) for _ in range(3))
    run(dev, kernels["where_am_i"], ran, groups, sizes, threads=threads, group_size=group_size)
    at = np.arange(threads[axis], dtype=np.uint32)
    assert (ran.numpy() == 1).all()
    assert np.array_equal(groups.numpy(), at // group * np.uint32(1000**axis))
    assert np.array_equal(sizes.numpy(), np.minimum(group, threads[axis] - at // group * group))


def test_a_chosen_group_size_respects_the_kernel(dev: ost.Device, kernels: ost.Library) -> None:
    kernel = kernels["small_groups"]
    assert kernel.max_threads_per_group == 64
    x = dev.zeros(1000, np.float32)
    run(dev, kernel, x, threads=1000)
    assert (x.numpy() == 1).all()


def test_threadgroup_arguments_come_from_shared(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.array(np.arange(33, dtype=np.float32))
    run(dev, kernels["reverse_group"], x, threads=33, group_size=64, shared={0: 33 * 4, 1: 64 * 4})
    assert np.array_equal(x.numpy(), np.arange(33)[::-1])


def test_numpy_integers_and_lists_are_extents(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(6, np.float32)
    run(dev, kernels["bump"], x, threads=np.int64(6), group_size=[np.int32(2), 1])
    assert (x.numpy() == 1).all()


# --- ordering ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_memory_barrier_orders_in_every_mode(dev: ost.Device, kernels: ost.Library, mode: str) -> None:
    x, y = dev.zeros(4096, np.float32), dev.zeros(4096, np.float32)
    encoder = dev.command_encoder(barriers=mode)
    for _ in range(50):
        encoder.dispatch(kernels["inc_one"], x, y, threads=4096)
        encoder.memory_barrier()
        encoder.dispatch(kernels["inc_one"], y, x, threads=4096)
        encoder.memory_barrier()
    encoder.commit_and_wait()
    assert (x.numpy() == 100).all()


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_dependent_dispatches_need_no_barrier(dev: ost.Device, kernels: ost.Library, mode: str) -> None:
    x, y = dev.zeros(4096, np.float32), dev.zeros(4096, np.float32)
    encoder = dev.command_encoder(barriers=mode)
    for _ in range(100):
        encoder.dispatch(kernels["inc_one"], x, y, threads=4096)
        encoder.dispatch(kernels["inc_one"], y, x, threads=4096)
    encoder.commit_and_wait()
    assert (x.numpy() == 200).all()


def test_submissions_run_in_order(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(256, np.float32)
    for _ in range(200):
        encoder = dev.command_encoder()
        encoder.dispatch(kernels["bump"], x, threads=256)
        encoder.commit()
    assert (x.numpy() == 200).all()


def test_copy_and_fill(dev: ost.Device) -> None:
    x, y = dev.array(np.arange(100, dtype=np.float32)), dev.zeros(100, np.float32)
    encoder = dev.command_encoder()
    encoder.copy(x[10:20], y[50:60])
    encoder.fill(y[0:5], 2.5)
    encoder.fill(x[:1], np.float32(-1))
    encoder.commit_and_wait()
    expected = np.zeros(100, np.float32)
    expected[50:60], expected[:5] = np.arange(10, 20), 2.5
    assert np.array_equal(y.numpy(), expected)
    assert x.numpy()[0] == -1


def test_bytes_are_copied_from_and_to_any_offset(dev: ost.Device) -> None:
    values = np.arange(200, dtype=np.uint8)
    x, y = dev.array(values), dev.zeros(200, np.uint8)
    encoder = dev.command_encoder()
    for source, target, count in ((3, 5, 1), (7, 11, 13), (100, 33, 67), (1, 199, 1)):
        encoder.copy(x[source : source + count], y[target : target + count])
    encoder.copy(x[50:60], x[60:70])
    encoder.commit_and_wait()
    expected = np.zeros(200, np.uint8)
    for source, target, count in ((3, 5, 1), (7, 11, 13), (100, 33, 67), (1, 199, 1)):
        expected[target : target + count] = values[source : source + count]
    assert np.array_equal(y.numpy(), expected)
    assert np.array_equal(x.numpy()[60:70], values[50:60])


def test_empty_buffers_may_be_copied_filled_and_bound(dev: ost.Device, kernels: ost.Library) -> None:
    none, x = dev.zeros(0, np.float32), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    encoder.copy(none, x[2:2])
    encoder.fill(none, 1)
    encoder.dispatch(kernels["use_params"], none, np.array([0, 0], np.uint32), threads=4)
    encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.commit_and_wait()
    assert (x.numpy() == 1).all()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", 200),
        ("int16", -2),
        ("uint32", 2**31),
        ("int64", -5),
        ("bool", True),
        ("bfloat16", 1.5),
        ("float16", -0.5),
    ],
)
def test_fill_converts_to_the_dtype(dev: ost.Device, dtype: str, value: float) -> None:
    x = dev.zeros(70_001, dtype)
    encoder = dev.command_encoder()
    encoder.fill(x[1:-1], value)
    encoder.commit_and_wait()
    expected = np.full(70_001, value).astype(dtype)
    expected[[0, -1]] = 0
    assert x.numpy().tobytes() == expected.tobytes()


# --- annotations ---------------------------------------------------------------------------------------------


def _dispatches(encoder: ost.CommandEncoder) -> list[Dispatch]:
    return [node.command for node in encoder._nodes if isinstance(node.command, Dispatch)]


def test_set_op_kind_tags_the_next_dispatch_only(dev: ost.Device, kernels: ost.Library) -> None:
    x, kind = dev.zeros(4, np.float32), ost.CapturedOpKind
    encoder = dev.command_encoder()
    encoder.set_op_kind(kind.Softmax)
    with pytest.raises(ost.GeometryError):
        encoder.dispatch(kernels["bump"], x, threads=0)
    encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.dispatch(kernels["bump"], x, threads=4, op_kind=kind.RmsNorm)
    assert [one.op_kind for one in _dispatches(encoder)] == [kind.Softmax, kind.Other, kind.RmsNorm]
    encoder.commit_and_wait()


def test_attention_and_softmax_are_not_reorderable() -> None:
    stuck = {kind.value for kind in ost.CapturedOpKind if not kind.is_reorderable()}
    assert stuck == {"Sdpa", "Softmax"}
    assert {kind.value for kind in ost.CapturedOpKind} == {"RmsNorm", "ElemMul", "ElemAdd", "Sdpa", "Softmax", "Other"}


def test_scopes_nest_and_end(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    with encoder.scope("layer"):
        with encoder.scope("attn"):
            encoder.dispatch(kernels["bump"], x, threads=4)
        encoder.dispatch(kernels["bump"], x, threads=4)
    encoder.dispatch(kernels["bump"], x, threads=4)
    assert [one.label for one in _dispatches(encoder)] == ["layer/attn", "layer", None]
    encoder.commit_and_wait()


def test_declared_access_is_recorded_exactly(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(100, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(
        kernels["bump"], x, threads=4, reads=[x[0:4]], writes=[x[8:12]], bytes_read=16, bytes_written=16, flops=4
    )
    (one,) = _dispatches(encoder)
    assert one.accesses is not None
    base = x._allocation().backing.address
    assert [(a.begin - base, a.end - base, a.write) for a in one.accesses] == [(32, 48, True), (0, 16, False)]
    assert (one.bytes_read, one.bytes_written, one.flops) == (16, 16, 4)
    assert one.kind is ost.DispatchKind.Threads
    encoder.commit_and_wait()


def test_bindings_know_their_exact_bytes_and_access(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(100, np.float32), dev.zeros(100, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["inc_one"], (x[10:20], 8), y, threads=4)
    (one,) = _dispatches(encoder)
    read, written = one.bindings
    assert (read.offset, read.nbytes, read.writes) == (48, 32, False)  # type: ignore[union-attr]
    assert (written.offset, written.nbytes, written.writes) == (0, 400, True)  # type: ignore[union-attr]
    encoder.commit_and_wait()


# --- memoisation ---------------------------------------------------------------------------------------------


def test_equal_calls_are_checked_once(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(64, np.float32)
    encoder = dev.command_encoder()
    for _ in range(3):
        encoder.dispatch(kernels["bump"], x[3:7], threads=4)
    first, second, third = _dispatches(encoder)
    assert first is second is third
    encoder.commit_and_wait()
    assert x.numpy()[3:7].tolist() == [3, 3, 3, 3]


def test_values_that_compare_equal_but_differ_are_kept_apart(dev: ost.Device, kernels: ost.Library) -> None:
    out = dev.zeros(2, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["store_float"], out[:1], 0.0, threads=1)
    encoder.dispatch(kernels["store_float"], out[1:], -0.0, threads=1)
    encoder.dispatch(kernels["store_float"], out[:1], -0.0, threads=1)
    encoder.commit_and_wait()
    assert np.signbit(out.numpy()).tolist() == [True, True]
    for bad in (1.0, True):
        encoder = dev.command_encoder()
        with pytest.raises(ost.GeometryError):
            encoder.dispatch(kernels["store_float"], out[:1], 0.0, threads=bad)  # type: ignore[arg-type]


def test_what_is_remembered_keeps_no_memory_alive(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(64, np.float32)
    memory = weakref.ref(x._lease.allocation)
    run(dev, kernels["bump"], x, threads=64)
    del x
    gc.collect()
    assert memory() is None


def test_new_memory_at_an_old_address_is_checked_anew(dev: ost.Device, kernels: ost.Library) -> None:
    kernel = kernels["bump"]
    for dtype in (np.float32, np.int32) * 20:
        x = dev.zeros(64, dtype)
        encoder = dev.command_encoder()
        if dtype is np.float32:
            encoder.dispatch(kernel, x, threads=64)
            encoder.commit_and_wait()
            assert (x.numpy() == 1).all()
        else:
            with pytest.raises(ost.ArgumentError, match="float32"):
                encoder.dispatch(kernel, x, threads=64)


def test_the_same_bytes_as_another_dtype_are_checked_anew(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(8, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["bump"], x, threads=8)
    with pytest.raises(ost.ArgumentError, match="float32, got int32"):
        encoder.dispatch(kernels["bump"], x.view(np.int32), threads=8)
    encoder.commit_and_wait()


def test_the_memory_of_what_was_checked_is_bounded(
    dev: ost.Device, kernels: ost.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ostinato.encode.encoder._MEMO_ENTRIES", 64)
    out = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    for value in range(1_000):
        encoder.dispatch(kernels["store_uint"], out, value, threads=1)
    encoder.commit_and_wait()
    assert out.numpy()[0] == 999
    assert len(kernels["store_uint"]._memo) <= 64


# --- threads and ends ----------------------------------------------------------------------------------------


def test_encoders_of_several_threads(dev: ost.Device, kernels: ost.Library) -> None:
    buffers = [dev.zeros(64, np.float32) for _ in range(8)]

    def work(x: ost.Buffer) -> None:
        for _ in range(50):
            encoder = dev.command_encoder()
            for _ in range(4):
                encoder.dispatch(kernels["bump"], x, threads=64)
            encoder.commit()

    threads = [threading.Thread(target=work, args=(x,)) for x in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((x.numpy() == 200).all() for x in buffers)


def test_an_encoder_may_move_between_threads(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    for _ in range(2):
        thread = threading.Thread(target=lambda: encoder.dispatch(kernels["bump"], x, threads=4))
        thread.start()
        thread.join()
    encoder.commit_and_wait()
    assert (x.numpy() == 2).all()


def test_two_threads_in_one_encoder_at_once_is_an_error(dev: ost.Device, kernels: ost.Library) -> None:
    entered, leave = threading.Event(), threading.Event()

    class SlowNumber:
        def __index__(self) -> int:
            entered.set()
            leave.wait(30)
            return 5

    out = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    thread = threading.Thread(target=lambda: encoder.dispatch(kernels["store_uint"], out, SlowNumber(), threads=1))
    thread.start()
    assert entered.wait(30)
    try:
        for use in (
            lambda: encoder.dispatch(kernels["store_uint"], out, 6, threads=1),
            encoder.commit,
            encoder.memory_barrier,
        ):
            with pytest.raises(ost.EncoderError, match="threads"):
                use()
    finally:
        leave.set()
        thread.join()
    encoder.commit_and_wait()
    assert out.numpy()[0] == 5


def test_an_encoder_dropped_uncommitted_runs_nothing_and_warns(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    encoder = dev.command_encoder("forgotten")
    encoder.dispatch(kernels["bump"], x, threads=4)
    with pytest.warns(ost.UncommittedWork, match="forgotten"):
        del encoder
    assert (x.numpy() == 0).all()


def test_an_empty_encoder_may_be_dropped_or_committed(dev: ost.Device) -> None:
    dev.command_encoder()
    assert dev.command_encoder().commit_and_wait().done


@pytest.mark.usefixtures("submission_times")
def test_gpu_time_in_seconds(dev: ost.Device, kernels: ost.Library) -> None:
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], dev.zeros(1, np.uint32), 10_000_000, threads=1)
    start_s, end_s = encoder.commit_wait_with_gpu_time()
    assert 0.001 < end_s - start_s < 5


def test_wait_until_completed(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1, np.uint32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["spin"], x, 50_000_000, threads=1)
    with pytest.raises(ost.EncoderError, match="committed"):
        encoder.wait_until_completed()
    submission = encoder.commit()
    encoder.wait_until_completed()
    assert submission.done


def test_labels_reach_the_submission(dev: ost.Device) -> None:
    assert dev.command_encoder("one").commit().label == "one"
    assert dev.command_encoder("one").commit_labeled("two").label == "two"
    assert dev.command_encoder().commit_and_wait_labeled("three").label == "three"
    assert dev.command_encoder().commit().label is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"reads": 5},
        {"flops": 1.0},
        {"flops": True},
        {"flops": [1]},
        {"bytes_read": -1},
        {"op_kind": [1]},
        {"op_kind": "Sdpa"},
    ],
)
def test_what_is_wrong_is_refused_even_after_something_equal_was_right(
    dev: ost.Device, kernels: ost.Library, wrong: dict[str, object]
) -> None:
    x, y = dev.zeros(8, np.float32), dev.zeros(8, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernels["inc_one"], x, y, threads=8, reads=[], flops=1)
    with pytest.raises(ost.ArgumentError):
        encoder.dispatch(kernels["inc_one"], x, y, threads=8, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ost.ArgumentError, match="lists of Buffers"):
        encoder.dispatch(kernels["inc_one"], x, y, threads=8, flops=1, reads=(one for one in [x]))  # type: ignore[arg-type]
    encoder.dispatch(kernels["inc_one"], x, y, threads=8, flops=np.int64(1))  # type: ignore[arg-type]
    encoder.commit_and_wait()
