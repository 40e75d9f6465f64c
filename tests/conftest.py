"""What the tests share: a private cache, one open CPU device, and a library of small kernels."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import ostinato as ost
from ostinato import demo
from scripting import Script, run_script
from small_kernels import KERNELS

# How long an example takes says how busy the machine is, and nothing else.
settings.register_profile("ostinato", deadline=None)
settings.load_profile("ostinato")

# Where a process that a test started finds the compiled kernels of the run that it belongs to.
SHARED_CACHE = "PYTEST_OSTINATO_CACHE"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        action="append",
        metavar="NAME",
        help="run the conformance suite on this device; may be repeated (default: all that this machine has)",
    )
    parser.addoption(
        "--corpora", metavar="FOLDER", help="run tests/corpora on checkouts of other projects in this folder"
    )


def pytest_collection_finish() -> None:
    """Thousands of tests are a large heap, which no collection of garbage has to walk again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def private_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for the whole run (shared by parallel workers, never the user's); no gates or width from outside."""
    root = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        root = root.parent
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("OSTINATO_", "MLX_", "HF2Q_")):
                patch.delenv(name)
        patch.delenv("COLUMNS", raising=False)  # reports follow it, and parallel workers set it
        cache = os.environ.get(SHARED_CACHE, str(root / "ostinato-cache"))
        patch.setenv(SHARED_CACHE, cache)
        patch.setenv("OSTINATO_CACHE_DIR", cache)
        yield


@pytest.fixture(scope="session")
def dev(private_environment: None) -> Iterator[ost.Device]:
    """The CPU, shared by the tests that do not lose or close it."""
    with ost.open_device("cpu") as device:
        yield device


@pytest.fixture(scope="session")
def kernels(dev: ost.Device) -> ost.Library:
    """The small kernels, compiled once."""
    return dev.library(KERNELS)


@pytest.fixture(scope="session")
def demo_recording(dev: ost.Device, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the demo records."""
    path = tmp_path_factory.mktemp("demo") / "demo.ostinato"
    demo.run(dev, path)
    return path


@pytest.fixture
def own_dev(private_environment: None) -> ost.Device:
    """A device that a test may lose."""
    return ost.open_device("cpu", workers=2)


@pytest.fixture
def script() -> Script:
    """Runs Python text in a process of its own, with `ost`, `np` and `KERNELS` at hand."""
    return run_script
