"""After a fault: the device goes on, what was left behind is not given out, what depends on it does not run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.profiling import recording
from ostinato.runtime.fault_marks import FaultMarks
from small_kernels import KERNELS, SLOW_STEPS

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("contained_faults")]

NOWHERE = 1 << 45


class Bench:
    """A device, its small kernels, and short ways to use them."""

    def __init__(self, dev: ost.Device) -> None:
        self.dev = dev
        self.kernels = dev.library(KERNELS)

    def floats(self, *values: float) -> ost.Buffer:
        return self.dev.array(np.array(values, np.float32))

    def commit(self, encode: Callable[[ost.CommandEncoder], None], label: str = "work") -> ost.Submission:
        encoder = self.dev.command_encoder()
        encode(encoder)
        return encoder.commit_labeled(label)

    def slow(self) -> ost.Submission:
        x = self.dev.zeros(1, np.uint32)
        return self.commit(lambda enc: enc.dispatch(self.kernels["spin"], x, SLOW_STEPS, threads=1))

    def break_(self, *outs: ost.Buffer) -> ost.Submission:
        """A submission that crashes, and may have written these."""

        def encode(enc: ost.CommandEncoder) -> None:
            for out in outs:
                enc.dispatch(self.kernels["wild"], out, NOWHERE, threads=1)

        return self.commit(encode, "bad work")

    def broken(self, *outs: ost.Buffer) -> ost.KernelFault:
        """The same, waited for."""
        with pytest.raises(ost.KernelFault) as caught:
            self.break_(*outs).wait()
        return caught.value

    def inc(self, source: ost.Buffer, target: ost.Buffer) -> ost.Submission:
        return self.commit(lambda enc: enc.dispatch(self.kernels["inc_one"], source, target, threads=target.size))


@pytest.fixture
def bench(own_dev: ost.Device) -> Bench:
    return Bench(own_dev)


# --- the device goes on ----------------------------------------------------------------------------------------------


def test_one_fault_after_another_and_good_work_in_between(bench: Bench) -> None:
    x = bench.floats(0, 0)
    for n in range(1, 21):
        fault = bench.broken(bench.floats(0))
        assert "bad work" in str(fault)
        bench.commit(lambda enc: enc.dispatch(bench.kernels["bump"], x, threads=2)).wait()
        assert x.numpy().tolist() == [n, n]
    assert bench.dev.zeros(3, np.float32).numpy().tolist() == [0, 0, 0]


def test_a_group_with_barriers_runs_right_after_one_that_crashed_between_them(bench: Bench) -> None:
    source = """
    #include <metal_stdlib>
    using namespace metal;
    kernel void halves(device float *x [[buffer(0)]], constant ulong &where [[buffer(1)]],
                       threadgroup float *tile [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
        tile[i] = x[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i == 5) x[where] = x[5];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        x[i] = tile[63 - i] + simd_sum(1.0f);
    }
    """
    halves, expected = bench.dev.library(source)["halves"], np.arange(64)[::-1] + 32.0
    for _ in range(3):
        bad, good = (bench.dev.array(np.arange(64, dtype=np.float32)) for _ in range(2))
        with pytest.raises(ost.KernelFault, match="halves"):
            bench.commit(partial(_halves, kernel=halves, x=bad, where=NOWHERE)).wait()
        bench.commit(partial(_halves, kernel=halves, x=good, where=5)).wait()
        assert good.numpy().tolist() == expected.tolist()


def _halves(enc: ost.CommandEncoder, kernel: ost.Kernel, x: ost.Buffer, where: int) -> None:
    enc.dispatch(kernel, x, np.uint64(where), threads=64, group_size=64, shared={0: 256})


# --- what is left behind ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [ost.Buffer.numpy, np.asarray, np.from_dlpack, ost.Buffer.as_numpy])
def test_what_a_fault_may_have_written_is_not_given_out(bench: Bench, read: Callable[[ost.Buffer], object]) -> None:
    out = bench.floats(1, 2, 3)
    fault = bench.broken(out)
    with pytest.raises(ost.FaultedBuffer, match=r"left(?=.*wild)(?=.*bad work).*accept\(\)") as caught:
        read(out)
    assert str(caught.value.cause) == str(fault)
    assert caught.value.__cause__ is caught.value.cause


def test_what_it_only_read_is_as_it_was(bench: Bench) -> None:
    source, out = bench.floats(1, 2), bench.floats(0, 0)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(bench.kernels["inc_one"], source, out, threads=2)
        enc.dispatch(bench.kernels["wild"], out, NOWHERE, threads=1)

    with pytest.raises(ost.KernelFault):
        bench.commit(encode).wait()
    assert source.numpy().tolist() == [1, 2]


def test_a_dispatch_that_may_touch_anything_leaves_all_of_its_list_behind(bench: Bench) -> None:
    source, out, elsewhere = bench.floats(1), bench.floats(2), bench.floats(3)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(bench.kernels["inc_one"], source, out, threads=1)
        enc.dispatch(bench.kernels["wild"], out, NOWHERE, threads=1, writes=ost.UNKNOWN)

    with pytest.raises(ost.KernelFault):
        bench.commit(encode).wait()
    with pytest.raises(ost.FaultedBuffer):
        source.numpy()
    assert elsewhere.numpy().tolist() == [3]


@pytest.mark.parametrize("how", ["write", "fill", "copy", "accept"])
def test_it_is_good_again_once_written_whole_or_accepted(bench: Bench, how: str) -> None:
    out, other, target = bench.floats(1, 2), bench.floats(7, 7), bench.floats(0, 0)
    bench.broken(out)
    if how == "write":
        out.write([7, 7])
    elif how == "fill":
        bench.commit(lambda enc: enc.fill(out, 7)).wait()
    elif how == "copy":
        bench.commit(lambda enc: enc.copy(other, out)).wait()
    else:
        out.accept()
    expected = [1, 2] if how == "accept" else [7, 7]
    assert out.numpy().tolist() == expected
    bench.inc(out, target).wait()
    assert target.numpy().tolist() == [one + 1 for one in expected]


def test_views_know_their_exact_bytes(bench: Bench) -> None:
    x = bench.floats(*range(8))
    bench.broken(x[2:6])
    assert x[0:2].numpy().tolist() == [0, 1]
    assert x[6:8].numpy().tolist() == [6, 7]
    x[2:4].write(np.array([20, 30], np.float32))
    assert x[0:4].numpy().tolist() == [0, 1, 20, 30]
    with pytest.raises(ost.FaultedBuffer):
        x.numpy()
    x[4:6].accept()
    assert x.numpy().tolist() == [0, 1, 20, 30, 4, 5, 6, 7]


def test_a_list_may_fill_first_and_use_then(bench: Bench) -> None:
    out, target = bench.floats(1), bench.floats(0)
    bench.broken(out)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.fill(out, 4)
        enc.dispatch(bench.kernels["inc_one"], out, target, threads=1)

    bench.commit(encode).wait()
    assert target.numpy().tolist() == [5]


def test_memory_from_a_pool_starts_anew(own_dev: ost.Device, bench: Bench) -> None:
    pool = ost.BufferPool(own_dev)
    out = pool.take(4, np.float32)
    address = out._allocation().backing.address
    bench.broken(out)
    pool.release(out)
    again = pool.take(4, np.float32)
    assert again._allocation().backing.address == address
    again.numpy()  # undefined, and no fault's


def test_memory_that_is_given_back_takes_its_marks_along(bench: Bench) -> None:
    out = bench.floats(*range(64))
    bench.broken(out)
    del out
    gc.collect()
    for _ in range(50):
        bench.dev.empty(64, np.float32).numpy()
    assert not bench.dev._queue.marks._committed


# --- what depends on it ----------------------------------------------------------------------------------------------


def test_of_what_is_queued_behind_a_fault_only_that_which_depends_on_it_does_not_run(bench: Bench) -> None:
    out, dependent, after, independent = (bench.floats(0) for _ in range(4))
    bench.slow()
    bad = bench.break_(out)
    reads, reads_that = bench.inc(out, dependent), bench.inc(dependent, after)
    beside = bench.inc(independent, bench.floats(0))
    beside.wait()
    for submission in (reads, reads_that):
        with pytest.raises(ost.DependencyFailed, match=r"(?=.*wild)(?=.*bad work)") as caught:
            submission.wait()
        assert str(caught.value.cause) == str(bad.error)
        assert submission.gpu_time is None
    for buffer in (out, dependent, after):
        with pytest.raises(ost.FaultedBuffer):
            buffer.numpy()
        buffer.accept()
    if bench.dev.capabilities.backend == "cpu":  # Metal runs what is queued
        assert dependent.numpy().tolist() == after.numpy().tolist() == [0]


def test_what_is_committed_later_and_depends_on_it_does_not_run(bench: Bench) -> None:
    out, dependent = bench.floats(0), bench.floats(5)
    bench.broken(out)
    later = bench.inc(out, dependent)
    with pytest.raises(ost.DependencyFailed, match="wild"):
        later.wait()
    dependent.accept()
    assert dependent.numpy().tolist() == [5]


def test_overwriting_in_flight_counts_from_there_on(bench: Bench) -> None:
    out, before, after = bench.floats(0), bench.floats(0), bench.floats(0)
    bench.slow()
    bad = bench.break_(out)
    too_early = bench.inc(out, before)
    bench.commit(lambda enc: enc.fill(out, 2))
    in_time = bench.inc(out, after)
    in_time.wait()
    assert (out.numpy().tolist(), after.numpy().tolist()) == ([2], [3])
    assert isinstance(too_early.error, ost.DependencyFailed)
    assert isinstance(bad.error, ost.KernelFault)


def test_two_faults_in_flight_each_have_their_own(bench: Bench) -> None:
    first, second = bench.floats(0), bench.floats(0)
    targets = [bench.floats(0) for _ in range(3)]
    bench.slow()
    bad = [bench.break_(first)]
    follows = [bench.inc(first, targets[0])]
    bad.append(bench.break_(second))
    follows.append(bench.inc(second, targets[1]))
    fine = bench.inc(bench.floats(1), targets[2])
    fine.wait()
    for one, other in zip(bad, follows, strict=True):
        assert isinstance(other.error, ost.DependencyFailed)
        assert str(other.error.cause) == str(one.error)
    assert targets[2].numpy().tolist() == [2]


def test_a_graph_runs_again_once_its_memory_is_good(bench: Bench) -> None:
    x, y = bench.floats(1), bench.floats(0)
    where = ost.param("where", np.uint64)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(bench.kernels["wild"], x, where, threads=1)
        enc.dispatch(bench.kernels["inc_one"], x, y, threads=1)

    run = bench.dev.capture(encode, label="token").instantiate()
    run.replay(where=0).wait()
    assert y.numpy().tolist() == [2]
    with pytest.raises(ost.KernelFault):
        run.replay(where=NOWHERE).wait()
    with pytest.raises(ost.DependencyFailed, match="token"):
        run.replay(where=0).wait()
    for buffer in (x, y):
        buffer.accept()
    for _ in range(3):
        run.replay(where=0).wait()
    assert y.numpy().tolist() == [2]


def test_an_awaited_submission_behind_a_fault_ends(bench: Bench) -> None:
    out, beside = bench.floats(0), bench.floats(0)
    bench.slow()
    bad = bench.break_(out)

    async def wait() -> None:
        await bench.inc(beside, bench.floats(0))
        with pytest.raises(ost.KernelFault):
            await bad

    asyncio.run(asyncio.wait_for(wait(), 60))


def test_whoever_saw_an_error_that_cites_a_fault_has_seen_the_fault(bench: Bench) -> None:
    out = bench.floats(0)
    bench.slow()
    bad, behind = bench.break_(out), bench.inc(out, bench.floats(0))
    with pytest.raises(ost.DependencyFailed):
        behind.wait()
    del bad, behind
    gc.collect()  # nobody is told that nobody looked: warnings are errors here


def test_the_recording_has_the_fault_and_what_did_not_run(bench: Bench, tmp_path: Path) -> None:
    path, out = tmp_path / "fault.ostinato", bench.floats(0)
    with ost.profile(path=path):
        bench.slow()
        bad = bench.break_(out)
        queued = bench.inc(out, bench.floats(0))
        with pytest.raises(ost.DependencyFailed):
            queued.wait()
        with pytest.raises(ost.DependencyFailed):
            bench.inc(out, bench.floats(0)).wait()
        bench.inc(bench.floats(0), bench.floats(0)).wait()
        assert isinstance(bad.error, ost.KernelFault)
    with recording.open_recording(path) as found:
        errors = found.submissions.error
        assert (errors == "").tolist() == [True, False, False, False, True]
        assert all("wild" in error for error in errors[1:4])


# --- against a model -------------------------------------------------------------------------------------------------

_STEP = st.one_of(
    st.tuples(st.just("inc"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("copy"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.sampled_from(["break", "fill", "write"]), st.integers(0, 3)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_STEP, max_size=14))
def test_any_sequence_leaves_what_a_model_says(bench: Bench, steps: list[tuple[object, ...]]) -> None:
    """A value for each buffer, or None for one that a fault left behind; submissions are not waited for in between."""
    buffers = [bench.floats(float(n)) for n in range(4)]
    model: list[float | None] = [0.0, 1.0, 2.0, 3.0]
    submissions: list[tuple[ost.Submission, type[ost.OstinatoError] | None]] = []
    for kind, first, *rest in steps:
        assert isinstance(first, int)
        second = rest[0] if rest else first
        assert isinstance(second, int)
        if kind in ("inc", "copy") and first == second:
            continue
        one, other = buffers[first], buffers[second]
        if kind == "break":
            blocked = model[first] is None
            submissions.append((bench.break_(one), ost.DependencyFailed if blocked else ost.KernelFault))
            model[first] = None
        elif kind == "fill":
            submissions.append((bench.commit(partial(ost.CommandEncoder.fill, buf=one, value=9)), None))
            model[first] = 9.0
        elif kind == "inc":
            blocked = model[first] is None or model[second] is None
            submissions.append((bench.inc(one, other), ost.DependencyFailed if blocked else None))
            model[second] = None if blocked else (model[first] or 0.0) + 1
        elif kind == "copy":
            blocked = model[first] is None
            copied = bench.commit(partial(ost.CommandEncoder.copy, src=one, dst=other))
            submissions.append((copied, ost.DependencyFailed if blocked else None))
            model[second] = None if blocked else model[first]
        else:
            for submission, _ in submissions:
                with suppress(ost.OstinatoError):  # an error that nobody has seen yet would be raised by writing
                    submission.wait()
            one.write([8])
            model[first] = 8.0
    for submission, expected in submissions:
        if expected is None:
            submission.wait()
        else:
            with pytest.raises(expected):
                submission.wait()
    for buffer, value in zip(buffers, model, strict=True):
        if value is None:
            with pytest.raises(ost.FaultedBuffer):
                buffer.numpy()
        else:
            assert buffer.numpy().tolist() == [value]


def test_an_interrupt_while_a_fault_is_taken_down_leaves_that_to_the_next_one(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(own_dev)
    finish, interrupts = FaultMarks.finish, iter([KeyboardInterrupt])

    def interrupted(marks: FaultMarks, *arguments: Any) -> None:
        for interrupt in interrupts:
            raise interrupt
        finish(marks, *arguments)

    monkeypatch.setattr(FaultMarks, "finish", interrupted)
    broken, x = bench.floats(0), bench.floats(1)
    faulty = bench.commit(lambda enc: enc.dispatch(bench.kernels["wild"], broken, NOWHERE, threads=1))
    with pytest.raises(KeyboardInterrupt):
        faulty.wait()
    bench.commit(lambda enc: enc.dispatch(bench.kernels["bump"], x, threads=1)).wait()
    assert x.numpy().tolist() == [2]
    with pytest.raises(ost.KernelFault):
        broken.numpy()  # nobody has been told of it yet
    with pytest.raises(ost.FaultedBuffer):
        broken.numpy()
