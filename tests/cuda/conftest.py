"""Tests of the CUDA backend's own ways; all are left out, with the reason, where there is no such device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ostinato as ost
from availability import unavailable
from nvrtc import Nvrtc


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if reason := unavailable("cuda"):
        for item in items:
            if "needs_device" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    return Nvrtc()


@pytest.fixture(scope="session")
def dev(private_environment: None) -> Iterator[ost.Device]:
    with ost.open_device("cuda:0") as device:
        yield device
