"""The kernels, compiled once for each device that the tests run on."""

from pathlib import Path

import pytest

import ostinato as ost

SOURCE = Path(__file__).parent.parent / "kernels" / "norm.metal"


@pytest.fixture(scope="session")
def kernels(ostinato_device: ost.Device) -> ost.Library:
    return ostinato_device.library(SOURCE)
