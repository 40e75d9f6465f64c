"""Devices for tests, by the names of `--ostinato-device`."""

from __future__ import annotations

from .. import settings
from ..backends import registry
from ..device import Device, open_device
from ..errors import DeviceUnavailable

_SIMULATOR = "metal-sim"


def open_named(name: str) -> Device:
    """The device of this name, whatever OSTINATO_DEVICE says. Raises `DeviceUnavailable` with the reason."""
    if name == _SIMULATOR:
        name = f"{_SIMULATOR}:apple"
    if name.startswith(_SIMULATOR) and not registry.knows(name):
        raise DeviceUnavailable(
            "the simulator of Metal is in the tests of Ostinato's repository, not in the package. Kernels run on it as"
            " they do on the CPU; use --ostinato-device cpu. To test against it all the same, put tests/ of a clone on"
            " sys.path in a conftest.py and call metal_sim.install()"
        )
    with settings.override(device=None):
        return open_device(name)
