"""The CPU backend: kernels as native code, run by a small C++ runtime on every core.

`driver.py` is the backend itself; `toolchain.py` finds and runs a C++ compiler, `cache.py` keeps what it made,
`binary.py` looks into it before it is loaded, `records.py` packs commands, and `runtime/` is the C++ side.
"""

from .driver import CpuBackend, availability

__all__ = ["CpuBackend", "availability"]
