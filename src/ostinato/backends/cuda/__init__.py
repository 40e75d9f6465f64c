"""The CUDA backend: NVIDIA devices through the driver API, with graphs, and with dispatches timed inside the kernels.

`driver.py` implements the protocol. Below it: `api.py` (the driver's functions and errors), `memory.py`, `compiling.py`
(NVRTC), `ptx/` (products of matrices, in NVRTC's code), `assembling.py` (machine code of that), `kernels.py` (compiled
kernels and their variants), `launches.py` (records), `launchers.py` and `launcher.cpp` (starting work), `runs.py`
(submissions), `graphs.py` (native graphs), `updates.py` (other arguments in them), `rings.py` (replays under way),
`sampling.py` and `support.cu` (times of dispatches), `clocks.py` (device time), `conditions.py` (NVML), `logs.py` (what
kernels print), `nsight.py` (labels in Nsight).
"""

from .driver import CudaBackend

__all__ = ["CudaBackend"]
