"""PTX to machine code for the current context's device, by the compiler in the driver."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from .api import call

_VERSION = re.compile(r"^\.version (\d+)\.(\d+)", re.MULTILINE)


def assembled(cu: Any, ptx: str, registers: int = 0) -> bytes:
    """Machine code of a program that NVRTC wrote; `registers` limits those of a thread, 0 does not.

    Raises `DeviceError` where the driver does not take it.
    """
    options = [cu.CUjit_option.CU_JIT_MAX_REGISTERS] if registers else []
    state = call(cu.cuLinkCreate, len(options), options, [registers] if registers else [])
    try:
        data = _for_driver(ptx, call(cu.cuDriverGetVersion)).encode() + b"\0"
        call(cu.cuLinkAddData, state, cu.CUjitInputType.CU_JIT_INPUT_PTX, data, len(data), b"kernels.ptx", 0, [], [])
        address, nbytes = call(cu.cuLinkComplete, state)
        return ctypes.string_at(int(address), nbytes)
    finally:
        cu.cuLinkDestroy(state)


def _for_driver(ptx: str, driver: int) -> str:
    """The program as one for the driver's version of PTX, if the compiler's is newer: no newer instruction is used."""
    major, minor = driver // 1000, driver % 1000 // 10
    found = _VERSION.search(ptx)
    if found is None or major != 13 or (int(found[1]), int(found[2])) <= (9, minor):
        return ptx
    return ptx[: found.start()] + f".version 9.{minor}" + ptx[found.end() :]
