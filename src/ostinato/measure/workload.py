"""A small fixed program, `python -m ostinato.measure.workload DEVICE`: kernels of lengths from microseconds to
milliseconds, bound by arithmetic and by memory. How much its processes differ is what `spreads.py` calibrates.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from ..encode.encoder import CommandEncoder

if TYPE_CHECKING:
    from ..device import Device

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void spread_arithmetic(device float *x [[buffer(0)]], constant uint &steps [[buffer(1)]],
                              uint id [[thread_position_in_grid]]) {
    float a = x[id];
    for (uint n = 0; n < steps; ++n) a = fma(a, 0.5f, 0.25f);
    x[id] = a;
}
kernel void spread_copy(device const float4 *in [[buffer(0)]], device float4 *out [[buffer(1)]],
                        uint id [[thread_position_in_grid]]) { out[id] = in[id]; }
"""

_THREADS_PER_WORKER = 512
# Labels tell the rows apart, and numbers in them would be folded.
_STEPS = {"tiny": 16, "short": 256, "middle": 4096, "long": 16384}
_COPY_BYTES = {"tiny": 64 << 10, "short": 1 << 20, "middle": 8 << 20, "long": 64 << 20}
_REPLAYS = {"tiny": 200, "short": 200, "middle": 50, "long": 10}

IDENTITY = f"{SOURCE} {_THREADS_PER_WORKER} {_STEPS} {_COPY_BYTES} {_REPLAYS}"
"""What tells this workload from another one."""


def run(device: Device) -> None:
    """Replays a graph of two dispatches for each length."""
    library = device.library(SOURCE)
    threads = _THREADS_PER_WORKER * device.capabilities.workers
    values = device.zeros(threads, np.float32)
    source, target = (device.zeros(max(_COPY_BYTES.values()) // 4, np.float32) for _ in range(2))
    for length, count in _REPLAYS.items():
        copied = _COPY_BYTES[length]

        def encode(enc: CommandEncoder, length: str = length, copied: int = copied) -> None:
            with enc.scope(length):
                enc.dispatch(library["spread_arithmetic"], values, _STEPS[length], threads=threads)
                enc.dispatch(library["spread_copy"], source, target, threads=copied // 16)

        replayable = device.capture(encode, label=length).instantiate()
        for _ in range(count):
            replayable.replay().wait()


def main(device: str) -> None:
    """Runs it on a device."""
    from ..device import open_device  # it stands below

    with open_device(device) as opened:
        run(opened)


if __name__ == "__main__":
    main(sys.argv[1])
