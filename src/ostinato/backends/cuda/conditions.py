"""The current state of a GPU: its clock, what limits the clock, and how many processes use it.

Read from NVML, which comes with the driver. Without NVML, or on a virtual GPU that reports little, it is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ..conditions import Conditions

_Answer = TypeVar("_Answer")

_SM_CLOCK = 1
"""NVML's number of the SM clock; its name differs between versions of the bindings."""
HELD_BACK = {
    2: "application clocks", 4: "power cap", 8: "hardware slowdown", 16: "sync boost", 32: "temperature",
    64: "temperature (hardware)", 128: "power brake", 256: "display clocks", 512: "board limit", 1024: "reliability",
}  # fmt: skip
"""What limits the clock, by the bits of NVML's clock event reasons; bit 1, an idle GPU, is left out."""


def conditions(bus_id: str) -> Conditions:
    """The facts of the GPU at a PCI address, as far as it tells."""
    nvml = _nvml()
    if nvml is None:
        return Conditions()

    def ask(question: Callable[[], _Answer], unknown: _Answer) -> _Answer:
        try:
            return question()
        except Exception:  # NVML's own kinds of errors, by version: not supported, no permission
            return unknown

    try:
        gpu = nvml.device_get_handle_by_pci_bus_id_v2(bus_id)
    except Exception:  # likewise
        return Conditions()
    return Conditions(
        sm_mhz=ask(lambda: int(nvml.device_get_clock_info(gpu, _SM_CLOCK)), None),
        sm_max_mhz=ask(lambda: int(nvml.device_get_max_clock_info(gpu, _SM_CLOCK)), None),
        held_back_by=ask(lambda: held_back_by(int(nvml.device_get_current_clocks_event_reasons(gpu))), ""),
        processes=ask(lambda: len(nvml.device_get_compute_running_processes_v3(gpu)), None),
    )


def held_back_by(reasons: int) -> str:
    """Clock event reasons as text."""
    return ", ".join(name for bit, name in HELD_BACK.items() if reasons & bit)


@lru_cache(maxsize=1)
def _nvml() -> Any:
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
    except Exception:  # an import error, or the loader's own kinds of errors, by version
        return None
    return nvml
