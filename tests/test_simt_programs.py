"""Random programs for simdgroups compute the same to the last bit in every way that the CPU runs kernels.

`SIMT_PROGRAMS=2000` in the environment runs more of them, and a tenth as many that rely on lockstep.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import ostinato as ost
from simt_programs import program
from simt_running import PER_LIBRARY, differences, executions, explained, in_lockstep, on_device

PROGRAMS = int(os.environ.get("SIMT_PROGRAMS", PER_LIBRARY))
SHARING = max(PER_LIBRARY, PROGRAMS // 10)


@pytest.fixture(scope="module")
def fibers(private_environment: None) -> Iterator[ost.Device]:
    """A device that runs every thread as a fiber of its own."""
    with ost.open_device("cpu", checked=True) as device:
        yield device


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_LIBRARY))
def test_programs_compute_the_same_in_every_way(dev: ost.Device, fibers: ost.Device, first: int) -> None:
    programs = [program(seed) for seed in range(first, min(first + PER_LIBRARY, PROGRAMS))]
    results = zip(programs, on_device(fibers, programs), on_device(dev, programs), strict=True)
    for one, expected, got in results:
        assert not differences(expected, got), explained(one, dev)
        assert not differences(in_lockstep(one), expected), explained(one, fibers)


@pytest.mark.parametrize("first", range(0, SHARING, PER_LIBRARY))
def test_lanes_that_share_memory_step_together_or_are_named(dev: ost.Device, first: int) -> None:
    programs = [program(seed, shares=True) for seed in range(first, min(first + PER_LIBRARY, SHARING))]
    for one, got, execution in zip(programs, on_device(dev, programs), executions(dev, programs), strict=True):
        if execution.way == "fibers":
            assert "results may differ" in execution.reason
        else:
            assert not differences(in_lockstep(one), got), explained(one, dev)
