"""The CUDA backend: NVIDIA devices through the driver, with graphs, and with times taken inside the kernels.

`driver.py` implements the protocol. Below it: `api.py` (the driver's functions and errors), `compiling.py` (NVRTC),
`kernels.py` (compiled kernels and their variants), `launches.py` (records), `launchers.py` and `launcher.cpp` (starting
work), `graphs.py` (native graphs), `sampling.py` (times of dispatches), `clocks.py` (device time in host time),
`memory.py`.
"""

from .driver import CudaBackend, availability

__all__ = ["CudaBackend", "availability"]
