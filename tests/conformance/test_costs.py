"""What work costs on a device, and the best it can do: that it is measured, and leaves no trace."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from datetime import UTC, datetime

import numpy as np
import pytest

import ostinato as ost
from calibrations import KNOWN, chain
from ostinato.backends.protocol import Level
from ostinato.profiling import calibration, ceilings
from ostinato.profiling.calibration import explain, predict


@pytest.fixture
def memory(dev: ost.Device) -> tuple[ost.Buffer, ost.Buffer]:
    return dev.array(np.arange(4, dtype=np.float32)), dev.array(np.full(4, 9, np.float32))


@pytest.mark.usefixtures("submission_times")
def test_explaining_leaves_memory_and_counters_as_they_were(
    dev: ost.Device, kernels: ost.Library, memory: tuple[ost.Buffer, ost.Buffer]
) -> None:
    x, y = memory
    graph = chain(dev, kernels, x, y)
    totals = ost.counters.totals()
    with ost.profile() as prof, ost.counters.scope() as counts:
        found = explain(graph, KNOWN, params={"factor": 3.0}, repetitions=4)
    assert counts == ost.Counts()
    assert ost.counters.totals() == totals
    assert len(prof.recording().submissions) == 0
    assert x.numpy().tolist() == [0, 1, 2, 3]
    assert y.numpy().tolist() == [9] * 4
    assert found.device_ns.low <= found.device_ns.estimate <= found.device_ns.high
    assert found.work_ns == predict(graph, KNOWN).work_ns
    if dev.capabilities.sampling is Level.DISPATCHES:
        assert found.breakdown is not None
        assert found.residue_ns == found.device_ns.estimate - found.breakdown.total_ns
        assert (found.breakdown.path, found.untimed) == ((0, 1, 2), 0)
        assert {cost.kernel: cost.dispatches for cost in found.kernels} == {"bump": 2, "scale": 1}
        assert "residue" in str(found)


@pytest.mark.usefixtures("submission_times")
def test_explaining_takes_buffers_too(dev: ost.Device, kernels: ost.Library) -> None:
    x, other = dev.zeros(4, np.float32), dev.array(np.full(4, 5, np.float32))

    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=4)

    graph = dev.capture(encode).named(x=x)
    found = explain(graph, KNOWN, params={"x": other}, repetitions=2)
    assert found.replays == 2
    assert (x.numpy().tolist(), other.numpy().tolist()) == ([0] * 4, [5] * 4)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer and smaller measurements, and ceilings that are not measured."""
    monkeypatch.setattr(ceilings, "of", lambda queue, anew=False: KNOWN.ceilings)
    monkeypatch.setattr(calibration, "DISPATCH_COUNTS", (1, 20))
    monkeypatch.setattr(calibration, "BUFFER_COUNTS", (2,))
    monkeypatch.setattr(calibration, "MODEL_SIZES", (1, 3, 6))
    monkeypatch.setattr(calibration, "_LIST", 20)


@pytest.mark.usefixtures("submission_times", "short")
def test_calibrating_says_how_far_it_is_and_counts_nothing(dev: ost.Device) -> None:
    said: list[tuple[str, int, int]] = []
    with ost.counters.scope() as counts:
        found = calibration.calibrate(dev, 3, lambda what, done, total: said.append((what, done, total)))
    assert counts == ost.Counts()
    assert [done for _, done, _ in said] == list(range(len(said)))
    assert {total for *_, total in said} == {len(said) - 1} == {1 + 2 + 1 + 3 + 3}
    assert len({what for what, *_ in said}) == len(said)
    assert [row.dispatches for row in found.dispatch_table] == [1, 20]
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["model"]["r_squared"] <= 1
    assert calibration.calibrate(dev, 3).device == found.device


@pytest.mark.usefixtures("submission_times")
def test_the_numbers_of_a_real_device(dev: ost.Device) -> None:
    with ost.counters.scope() as counts:
        found = ceilings.measure(dev._queue)
    assert counts == ost.Counts()
    for field in fields(found):
        value = getattr(found, field.name)
        if field.name.endswith("_measured"):
            assert datetime.fromisoformat(value).utcoffset() == UTC.utcoffset(None)
        else:
            assert math.isfinite(value)
            assert value >= 0
    assert found.copy_bytes_per_s > 0
    assert found.flops_per_s > 0
    assert found.timestamp_low_ns is not None
    assert found.timestamp_high_ns is not None
    assert found.timestamp_low_ns <= found.timestamp_ns <= found.timestamp_high_ns
    assert ceilings._read(json.dumps(asdict(found))) == found
