"""The Metal backend: Apple's GPUs through PyObjC, with barriers, indirect command buffers and counter samples.

`driver.py` implements the protocol. Below it: `api.py` (PyObjC's Metal, and its errors), `compiling.py` (the source to
pipelines, reflection compared), `memory.py` (buffers, residency), `encoding.py` (records, and dispatches into an
encoder), `graphs.py` (replays), `runs.py` (submissions), `sampling.py` (times of dispatches), `turns.py` (which of them
are timed in which run), `counters.py` (buffers for samples), `clocks.py` (device time in host time), `capturing.py`
(`.gputrace` files), `probing.py` (what a device really does).
"""

from .driver import MetalBackend

__all__ = ["MetalBackend"]
