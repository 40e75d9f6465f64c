"""Tests of the Metal backend on the simulator: what is encoded, and that the simulator is as strict as Metal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import metal_sim
import ostinato as ost
from metal_sim import objects
from small_kernels import KERNELS

metal_sim.install()


@pytest.fixture(autouse=True)
def no_rule_was_broken() -> Iterator[None]:
    metal_sim.unraised.clear()
    yield
    assert not metal_sim.unraised


@pytest.fixture
def journal() -> Iterator[list[tuple[str, ...]]]:
    """What is encoded and committed during the test."""
    journal: list[tuple[str, ...]] = []
    objects.journal = journal
    yield journal
    objects.journal = None


@pytest.fixture(scope="session", params=metal_sim.NAMES)
def sim(private_environment: None, request: pytest.FixtureRequest) -> Iterator[ost.Device]:
    """Each kind of simulated device."""
    with ost.open_device(request.param) as device:
        yield device


@pytest.fixture(scope="session")
def apple(private_environment: None) -> Iterator[ost.Device]:
    with ost.open_device("metal-sim:apple") as device:
        yield device


@pytest.fixture(scope="session")
def kernels(sim: ost.Device) -> ost.Library:
    return sim.library(KERNELS)
