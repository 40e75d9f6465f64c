"""Which devices the suite runs on, and its fixtures: those of the other tests, for each of these devices in turn.

`--device NAME` chooses, and may be repeated; without it the suite runs on all of `KINDS` that this machine has, and a
part of it on the devices of `PARTS`. A device that is lacking is one skipped test (in test_devices.py), not one
for each test of the suite.

A test marked `faults` makes a kernel crash on purpose. Where a fault takes the whole process along, as with CUDA, whose
errors stick, it runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest

import metal_sim
import ostinato as ost
import small_device
from availability import unavailable
from ostinato import ops
from ostinato.backends.protocol import Level
from scripting import Script, run_script
from small_kernels import KERNELS, MEET

KINDS = ("cpu", "cuda", "metal")
# What a simulated device runs unless it is asked for by name: the files in which a backend has most to do.
SIMULATED = {
    "test_after_a_fault", "test_buffer", "test_counters", "test_devices", "test_encoder", "test_faults",
    "test_function_constants", "test_graph", "test_kernel_profile", "test_ordering", "test_replay", "test_split",
    "test_thread_positions", "test_threadgroup_memory", "test_times", "test_unbound",
}  # fmt: skip
# What the backend of examples/backend runs by default: buffers, encoders, dispatches, barriers, graphs and errors.
SMALL = {
    "test_assert_kernel", "test_bad_input", "test_buffer", "test_counters", "test_devices", "test_encoder",
    "test_graph", "test_ordering", "test_replay", "test_thread_positions", "test_threadgroup_memory", "test_unbound",
}  # fmt: skip
PARTS = {**dict.fromkeys(metal_sim.NAMES, SIMULATED), small_device.NAME: SMALL}
# Enough workers for two dispatches at the same time, also on a machine of one core.
OPTIONS: dict[str, dict[str, Any]] = {"cpu": {"workers": 2}}
# Kinds whose faults end one submission and nothing else.
CONTAINED = {"cpu", "metal-sim"}
_IN_A_CHILD = "PYTEST_OSTINATO_MAY_FAULT"

metal_sim.install()
small_device.install()


def wanted(config: pytest.Config) -> list[str]:
    """The devices asked for."""
    return list(dict.fromkeys(config.getoption("--device") or (*KINDS, *PARTS)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = wanted(metafunc.config)
    if not metafunc.config.getoption("--device"):
        names = [name for name in names if name not in PARTS or metafunc.module.__name__ in PARTS[name]]
    if "any_device_name" in metafunc.fixturenames:
        metafunc.parametrize("any_device_name", names)
    if "device_name" in metafunc.fixturenames:
        present = [name for name in names if not unavailable(name)]
        metafunc.parametrize("device_name", present, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where none of the devices is there, leave out what would be skipped for each of none."""
    if all(unavailable(name) for name in wanted(config)):
        left_out = [item for item in items if "device_name" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("faults") is None or _IN_A_CHILD in os.environ:
        return None
    name = str(pyfuncitem.callspec.params["device_name"])
    if name.partition(":")[0] in CONTAINED:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", name, pyfuncitem.nodeid]
    done = subprocess.run(
        command,
        cwd=pyfuncitem.config.rootpath,
        env=os.environ | {_IN_A_CHILD: "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"in a process of its own:\n{done.stdout}\n{done.stderr}"
    if "1 skipped" in done.stdout:
        pytest.skip("skipped in a process of its own")
    assert "1 passed" in done.stdout, done.stdout
    return True


@pytest.fixture(scope="session")
def dev(private_environment: None, device_name: str) -> Iterator[ost.Device]:
    """The device under test, shared by the tests that do not lose or close it."""
    with ost.open_device(device_name) as device:
        yield device


@pytest.fixture(autouse=True)
def caught_faults(request: pytest.FixtureRequest) -> None:
    """For tests that make a kernel crash: not where that ends the process."""
    if request.node.get_closest_marker("faults") is not None:
        device = request.getfixturevalue("dev")
        if not device.capabilities.catches_faults:
            pytest.skip(f"device {device.name!r} catches no faults")


@pytest.fixture(autouse=True)
def metal_rules() -> Iterator[None]:
    """Rules of Metal that were broken where the simulator cannot raise."""
    yield
    broken, metal_sim.unraised[:] = list(metal_sim.unraised), []
    assert not broken, broken


@pytest.fixture(scope="session")
def kernels(dev: ost.Device) -> ost.Library:
    """The small kernels, compiled once."""
    return dev.library(KERNELS)


@pytest.fixture
def open_another(private_environment: None, device_name: str) -> Callable[[], ost.Device]:
    """Opens one more device of the kind under test."""
    return partial(ost.open_device, device_name, **OPTIONS.get(device_name, {}))


@pytest.fixture
def own_dev(open_another: Callable[[], ost.Device]) -> ost.Device:
    """A device that a test may close; a test that makes a kernel crash is marked `faults`."""
    return open_another()


@pytest.fixture
def script(device_name: str) -> Script:
    """Runs Python text in a process of its own, with `ost`, `np`, `KERNELS` and the name of the `DEVICE` at hand."""
    return partial(run_script, device=device_name)


@pytest.fixture(scope="session")
def patience(dev: ost.Device) -> int:
    """How many turns `meet` waits for the other before it gives up: those of some seconds."""
    meet, turns = dev.library(MEET)["meet"], 100_000
    flags, took_ns = dev.zeros(64, np.uint32), []
    for _ in range(5):
        encoder = dev.command_encoder()
        encoder.dispatch(meet, flags[0:1], flags[32:33], flags[48:49], turns, threads=1)
        start_ns = time.monotonic_ns()
        encoder.commit_and_wait()
        took_ns.append(time.monotonic_ns() - start_ns)
    return min(int(4e9 * turns / min(took_ns)), (1 << 32) - 1)


# --- what not every device has ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def windows(dev: ost.Device) -> None:
    """For tests of windows on a buffer's memory."""
    if not dev.capabilities.shared_memory:
        pytest.skip(f"device {dev.name!r} does not share its memory with the host")


@pytest.fixture
def fatal_faults(own_dev: ost.Device) -> None:
    """For tests of devices that a fault loses."""
    if not own_dev.capabilities.after_fault:
        pytest.skip(f"device {own_dev.name!r} goes on after a fault")


@pytest.fixture
def contained_faults(own_dev: ost.Device) -> None:
    """For tests of devices that go on after a fault."""
    if own_dev.capabilities.after_fault:
        pytest.skip(f"a fault loses device {own_dev.name!r}")


@pytest.fixture(scope="session")
def dispatch_times(dev: ost.Device) -> None:
    """For tests of the times of single dispatches."""
    if dev.capabilities.sampling < Level.DISPATCHES:
        pytest.skip(f"device {dev.name!r} cannot time dispatches")


@pytest.fixture(scope="session")
def submission_times(dev: ost.Device) -> None:
    """For tests of the times of submissions."""
    if dev.capabilities.sampling < Level.COMMAND_BUFFERS:
        pytest.skip(f"device {dev.name!r} times nothing")


@pytest.fixture(scope="session")
def slack_ns(dev: ost.Device) -> float:
    """How far apart two equal times may seem, read from two clocks; nothing where host and device have one."""
    return 2 * dev.capabilities.clock_uncertainty_ns


@pytest.fixture(scope="session")
def cpu_beside(private_environment: None) -> None:
    """For tests that compare with the CPU, whatever the device under test is."""
    if reason := unavailable("cpu"):
        pytest.skip(f"no CPU device to compare with: {reason}")


_ON_FIBERS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


@pytest.fixture(params=["plain", "simdgroups"])
def either_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kernels that an operation has, the one for CPUs and the one for GPUs, on the device at hand.

    On the CPU those for GPUs run as vectors in the tests whose `dtype` is half, and on fibers in the others, because
    clang takes about ten seconds for the vectors of one kernel. `ALL_AS_VECTORS=1` in the environment makes vectors of
    all.
    """
    for module in (ops.attention, ops.checks, ops.selection, ops.linear, ops.norms):
        monkeypatch.setattr(module, "prefers_plain", lambda encoder: request.param == "plain")
    dtype = request.node.callspec.params.get("dtype", np.float32)
    if request.param == "simdgroups" and dtype != np.float16 and not os.environ.get("ALL_AS_VECTORS"):
        monkeypatch.setattr("ostinato.native.toolchain.find_clang", lambda: None)
        monkeypatch.setattr(ops.compiled, "_kernels", _ON_FIBERS)
