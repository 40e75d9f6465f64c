"""The Metal backend: Apple's GPUs through PyObjC, with barriers, indirect command buffers and counter samples.

`driver.py` implements the protocol. Below it: `api.py` (PyObjC's Metal, and its errors), `compiling.py` (the source to
pipelines, reflection compared), `memory.py` (buffers, residency), `encoding.py` (lowered commands, and their encoding),
`graphs.py` (replays), `runs.py` (submissions), `sampling.py` (times of dispatches), `turns.py` (which of them are timed
in which run), `counters.py` (buffers for samples), `clocks.py` (device time in host time), `capturing.py` (`.gputrace`
files), `probing.py` (tests of what a device supports).
"""

from .driver import MetalBackend

__all__ = ["MetalBackend"]
