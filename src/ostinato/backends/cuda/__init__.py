"""The CUDA backend: NVIDIA devices through the driver, with graphs, and with times taken inside the kernels.

`driver.py` implements the protocol. Below it: `api.py` (the driver's functions and errors), `memory.py`, `compiling.py`
(NVRTC), `kernels.py` (compiled kernels and their variants), `launches.py` (records), `transfers.py` and
`transfers.metal` (copies and fills), `launchers.py` and `launcher.cpp` (starting work), `runs.py` (submissions),
`graphs.py` (native graphs), `sampling.py` and `support.cu` (times of dispatches), `clocks.py` (device time),
`nsight.py` (labels in Nsight).
"""

from .driver import CudaBackend

__all__ = ["CudaBackend"]
