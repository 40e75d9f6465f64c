"""The CPU backend: kernels as native code, run by a small C++ runtime on every core.

`driver.py` implements the protocol, `building.py` builds and loads kernels and the runtime (with `ostinato.native`),
and `runtime/` is the C++ side.
"""

from .driver import CpuBackend, availability

__all__ = ["CpuBackend", "availability"]
