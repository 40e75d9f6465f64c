"""The CPU backend: kernels as native code, run by a small C++ runtime on every core.

`driver.py` is the backend itself; `kernels.py` makes native code of a module's kernels, `building.py` has the compiler
build them and the runtime, and `runtime/` is the C++ side.
"""

from .driver import CpuBackend, availability

__all__ = ["CpuBackend", "availability"]
