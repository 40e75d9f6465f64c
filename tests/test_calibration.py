"""What work costs, the model of it, and what a graph should take. Nothing here depends on how long anything takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from calibrations import KNOWN, chain
from ostinato.cli import calibrate as cli
from ostinato.cli import main
from ostinato.encode.encoder import CommandEncoder
from ostinato.profiling import calibration
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.calibration import MODEL_SIZES, Calibration, FitError, Replayed, fitted, predict
from ostinato.profiling.explaining import Progress
from ostinato.runtime.submission import Submission

POOR = replace(KNOWN, model=replace(KNOWN.model, r_squared=0.38))


def replays(cost: Callable[[int, int], float]) -> list[Replayed]:
    sizes = [(size, waiting) for size in MODEL_SIZES for waiting in (size - 1, 0)]
    return [Replayed(size, waiting, cost(waiting, size - waiting)) for size, waiting in sizes]


# --- the model -----------------------------------------------------------------------------------------------


@given(constant=st.floats(0, 1e6), waiting=st.floats(0, 1e5), free=st.floats(0, 1e5))
def test_the_model_finds_the_costs_of_a_machine_that_is_linear(constant: float, waiting: float, free: float) -> None:
    found = fitted(replays(lambda waits, not_waiting: constant + waiting * waits + free * not_waiting))
    largest = max(constant, waiting * 1000, free * 1000)
    for interval, expected in ((found.constant_ns, constant), (found.waiting_ns, waiting), (found.free_ns, free)):
        assert interval.estimate == pytest.approx(expected, abs=1e-6 + 1e-9 * largest)
    if max(waiting, free) > 1e-3 * constant + 1e-3:
        assert found.describes


@given(st.lists(st.floats(0, 1e9), min_size=12, max_size=12))
def test_no_cost_is_below_zero_whatever_was_measured(medians: list[float]) -> None:
    found = fitted([replace(one, median_ns=ns) for one, ns in zip(replays(lambda w, f: 0.0), medians, strict=True)])
    for one in (found.constant_ns, found.waiting_ns, found.free_ns):
        assert 0 <= one.low <= one.estimate <= one.high < math.inf
    assert found.r_squared <= 1
    if found.describes:
        assert replace(KNOWN, model=found).overhead_ns(10, 4) >= 0


def test_a_cost_that_comes_out_negative_is_zero_up_to_its_upper_end() -> None:
    # What the reviewer saw: waiting dispatches gain, larger graphs are cheaper a dispatch.
    found = fitted(replays(lambda waits, free: 40.0 * free - 5.0 * waits + (300.0 if waits % 2 else 0.0)))
    assert found.waiting_ns.estimate == found.waiting_ns.low == 0
    assert found.waiting_ns.high >= 0
    assert found.free_ns.estimate > 30


def test_small_graphs_count() -> None:
    """Large graphs that are off by a little must not make a replay of one dispatch impossible."""
    found = fitted(replays(lambda waits, free: 500 + 30.0 * (waits + free) * (1.2 if waits + free > 500 else 1)))
    assert found.constant_ns.estimate + found.free_ns.estimate == pytest.approx(530, rel=0.6)


def test_a_machine_that_is_not_linear_gets_no_prediction(dev: ost.Device, kernels: ost.Library) -> None:
    found = fitted(replays(lambda waits, free: 1e4 if (waits + free) in (1, 50, 300) else 1.0))
    assert not found.describes
    assert not fitted(replays(lambda waits, free: 0.0)).describes  # nothing varies
    x = dev.zeros(4, np.float32)
    graph = dev.capture(lambda enc: enc.dispatch(kernels["bump"], x, threads=4))
    for refused in (lambda: POOR.overhead_ns(1, 0), lambda: predict(graph, POOR)):
        with pytest.raises(FitError, match=r"explains 38% .* less than 90%"):
            refused()
    assert issubclass(FitError, ost.OstinatoError)


def test_overhead_is_the_constant_and_each_dispatch_once() -> None:
    assert KNOWN.overhead_ns(0, 0) == 1000
    assert KNOWN.overhead_ns(10, 0) == 1300
    assert KNOWN.overhead_ns(10, 9) == 1000 + 9 * 200 + 30


@pytest.fixture
def memory(dev: ost.Device) -> tuple[ost.Buffer, ost.Buffer]:
    return dev.array(np.arange(4, dtype=np.float32)), dev.array(np.full(4, 9, np.float32))


def test_a_prediction_adds_overhead_and_work(
    dev: ost.Device, kernels: ost.Library, memory: tuple[ost.Buffer, ost.Buffer]
) -> None:
    found = predict(chain(dev, kernels, *memory), KNOWN)
    assert (found.dispatches, found.waiting, found.unknown) == (3, 2, 1)
    assert found.overhead_ns == 1000 + 2 * 200 + 30
    assert found.work_ns == pytest.approx(16 + 150 + 500)
    assert found.predicted_ns == found.overhead_ns + found.work_ns >= 0
    assert "1 by their bound bytes" in str(found)


def test_barriers_are_not_work(dev: ost.Device, kernels: ost.Library) -> None:
    x, y = dev.zeros(4, np.float32), dev.zeros(4, np.float32)

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=4)
        enc.memory_barrier()
        enc.dispatch(kernels["bump"], y, threads=4)

    found = predict(dev.capture(encode), KNOWN)
    assert (found.dispatches, found.waiting) == (2, 1)
    assert found.overhead_ns == 1000 + 200 + 30


# --- the tables ----------------------------------------------------------------------------------------------


def _counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often encoders are committed and thrown away, and submissions waited for."""
    calls: Counter[str] = Counter()

    def count(kind: type, name: str) -> None:
        real = getattr(kind, name)

        def counting(self: object, *rest: object) -> object:
            calls[name] += 1
            return real(self, *rest)

        monkeypatch.setattr(kind, name, counting)

    count(CommandEncoder, "commit")
    count(CommandEncoder, "discard")
    count(Submission, "wait")
    return calls


@pytest.mark.parametrize(
    ("regime", "expected"),
    [
        ("encode_only", {"discard": 7}),
        ("asynchronous", {"commit": 7, "wait": 1}),
        ("synchronous", {"commit": 7, "wait": 7}),
    ],
)
def test_the_three_regimes_are_three(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch, regime: str, expected: dict[str, int]
) -> None:
    bench = calibration._Bench(dev, 3)
    calls = _counted(monkeypatch)
    getattr(bench, regime)(7)
    assert calls == expected


def test_each_column_is_its_regime(dev: ost.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = calibration._Bench(dev, 3)
    for name, value in (("encode_only", 1.0), ("asynchronous", 2.0), ("synchronous", 3.0)):
        monkeypatch.setattr(bench, name, lambda count, value=value: value * count)
    row = bench.buffers(10)
    assert [one.estimate for one in (row.encode_only_ns, row.async_ns, row.sync_ns)] == [10.0, 20.0, 30.0]


@pytest.mark.usefixtures("private_environment")
@pytest.mark.parametrize("known", [KNOWN, POOR], ids=["described", "not described"])
def test_the_printed_tables_say_whether_the_model_is_any_good(
    monkeypatch: pytest.MonkeyPatch, known: Calibration
) -> None:
    def measured(device: object, repetitions: int, progress: Progress) -> Calibration:
        progress("something", 0, 1)
        progress("done", 1, 1)
        return known

    monkeypatch.setattr(cli, "calibrate", measured)
    done = CliRunner().invoke(main, ["calibrate", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert ("too poor for predictions" in done.output) == (known is POOR)
    assert "50.0 ns (no interval)" in done.output
    assert "200 ns (200 … 200)" in done.output


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(3170, 3160, 3180), "3.17 µs (3.16 … 3.18)"),
        (Interval(900, 800, 3170), "0.900 µs (0.800 … 3.17)"),
        (Interval(999.6, 20, 999.9), "1,000 ns (20.0 … 1,000)"),
        (Interval(0, 0, 16), "0 ns (0 … 16.0)"),
        (Interval(-28, -40, -16), "-28.0 ns (-40.0 … -16.0)"),
        (Interval(5e6, 4.5e6, 1.2345e9), "0.00500 s (0.00450 … 1.23)"),
        (Interval(3e12, 3e12, 1.2345e13), "3,000 s (3,000 … 12,300)"),
        (Interval(7, math.nan, math.nan), "7.00 ns (— … —)"),
    ],
)
def test_a_cell_has_one_unit(interval: Interval, text: str) -> None:
    assert cli.interval_text(interval) == text


@given(st.floats(-1e15, 1e15))
def test_three_digits_and_no_exponent(value: float) -> None:
    text = cli.digits(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051, abs=0.001)
