"""Kernels of other projects, run against NumPy: `pytest tests/corpora --corpora FOLDER [--device NAME]`.

FOLDER holds checkouts of the projects in `checkouts.PROJECTS`; docs/kernels.md says which commits were run. Without the
option these tests are not collected, and a project that is not in FOLDER is skipped. Nothing of these projects is kept
here: a test knows the name of a kernel and what its arguments mean, and computes by itself what the kernel should.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--corpora") is None and collection_path.name.startswith("test_") else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device_name" in metafunc.fixturenames:
        metafunc.parametrize("device_name", metafunc.config.getoption("--device") or ["cpu"], scope="session")


@pytest.fixture(scope="session")
def dev(private_environment: None, device_name: str) -> Iterator[ost.Device]:
    """The device under test."""
    with ost.open_device(device_name) as device:
        yield device


@pytest.fixture(scope="session")
def checkouts(dev: ost.Device, pytestconfig: pytest.Config) -> Checkouts:
    """The projects of the folder, compiled for the device under test."""
    return Checkouts(dev, Path(pytestconfig.getoption("--corpora")))


@pytest.fixture
def numbers(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers, the same in every run of a test."""
    return np.random.default_rng(list(request.node.name.encode()))
