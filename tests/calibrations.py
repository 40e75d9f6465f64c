"""A calibration with known numbers, and a graph to predict with it."""

from __future__ import annotations

import numpy as np

import ostinato as ost
from ostinato.profiling.analyse.statistics import Interval
from ostinato.profiling.calibration import Calibration, ReplayModel
from ostinato.profiling.ceilings import Ceilings


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


KNOWN = Calibration(
    device="cpu",
    description="made up",
    dispatch_table=(),
    buffer_table=(),
    barrier_ns=exactly(1.0),
    binding_ns=exactly(1.0),
    pipeline_switch_ns=exactly(1.0),
    ceilings=Ceilings(1e9, 0.0, 1e10, 0.0, 50.0),  # a byte a nanosecond
    model=ReplayModel(exactly(1000.0), exactly(200.0), exactly(30.0), 0.99),
)


def chain(dev: ost.Device, kernels: ost.Library, x: ost.Buffer, y: ost.Buffer) -> ost.Graph:
    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=4)  # says nothing: its 16 bound bytes
        enc.dispatch(
            kernels["scale"], x, y, ost.param("factor", np.float32), threads=4, bytes_read=100, bytes_written=50
        )
        enc.dispatch(kernels["bump"], y, threads=4, bytes_read=0, bytes_written=0, flops=5_000)

    return dev.capture(encode)
