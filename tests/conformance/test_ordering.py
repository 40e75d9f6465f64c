"""The order of commands: inferred, by hand, and not more of it than needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost

PROGRAMS = st.lists(
    st.tuples(
        st.integers(0, 15), st.integers(0, 15), st.integers(1, 8), st.sampled_from(["inc", "copy", "fill", "barrier"])
    ),
    max_size=30,
)


@given(program=PROGRAMS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_inferred_order_gives_what_serial_order_gives(
    dev: ost.Device, kernels: ost.Library, program: list[tuple[int, int, int, str]]
) -> None:
    def run(mode: str) -> np.ndarray:
        memory = dev.array(np.arange(24, dtype=np.float32))
        encoder = dev.command_encoder(barriers=mode)
        for source, target, length, what in program:
            read, write = memory[source : source + length], memory[target : target + length]
            overlap = abs(source - target) < length
            if what == "barrier":
                encoder.memory_barrier()
            elif what == "fill":
                encoder.fill(write, float(source))
            elif not overlap and what == "copy":
                encoder.copy(read, write)
            elif not overlap:
                encoder.dispatch(kernels["inc_one"], read, write, threads=length)
        encoder.commit_and_wait()
        return memory.numpy()

    np.testing.assert_array_equal(run("auto"), run("serial"))


def test_independent_commands_are_counted_as_concurrent(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(64, np.float32)
    with ost.counters.scope() as counts:
        encoder = dev.command_encoder()
        for start in range(0, 64, 16):
            encoder.dispatch(kernels["bump"], x[start : start + 16], threads=16)
        encoder.dispatch(kernels["bump"], x, threads=64)
        encoder.dispatch(kernels["bump"], x[:16], threads=16)
        encoder.commit_and_wait()
    assert (counts.dispatches, counts.barriers, counts.auto_barriers, counts.concurrent) == (6, 2, 2, 4)
    assert counts.elision == 4 / 6


def test_a_barrier_by_hand_spares_the_inferred_one(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(4, np.float32)
    with ost.counters.scope() as counts:
        encoder = dev.command_encoder()
        encoder.dispatch(kernels["bump"], x, threads=4)
        encoder.force_barrier_and_reset_tracker()
        encoder.dispatch(kernels["bump"], x, threads=4)
        encoder.commit_and_wait()
    assert (counts.barriers, counts.auto_barriers, counts.concurrent) == (1, 0, 2)


def test_a_declared_write_to_what_is_only_read_is_refused(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match="only reads argument 0"):
        encoder.dispatch(kernels["inc_one"], x, y, threads=4, writes=[x])
    encoder.dispatch(kernels["inc_one"], x, y, threads=4, writes=[y])
    encoder.commit_and_wait()


def test_ranges_in_use_can_be_asked_for(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)
    encoder = dev.command_encoder()
    assert encoder.tracked_ranges == 0
    encoder.dispatch(kernels["inc_one"], x, y, threads=4)
    assert encoder.tracked_ranges == 2
    encoder.memory_barrier()
    assert encoder.tracked_ranges == 0
    encoder.commit_and_wait()


def test_what_one_submission_wrote_the_next_may_read(dev: ost.Device, kernels: ost.Library) -> None:
    x = dev.zeros(1024, np.float32)
    for _ in range(50):
        encoder = dev.command_encoder()
        encoder.dispatch(kernels["bump"], x, threads=1024)
        encoder.commit()
    np.testing.assert_array_equal(x.numpy(), 50)
