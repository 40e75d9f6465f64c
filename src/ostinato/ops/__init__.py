"""Our own kernels (`kernels/*.metal`) and the launchers that record them.

    with enc.scope("block 0"):
        ops.add(enc, hidden, delta, hidden)
        ops.rms_norm(enc, hidden, weight, normed)

They are compiled once for each device. The fused ones give the bits of the two that they stand for.
"""

from .launch import add, add_rms_norm, mul, rms_norm, rms_norm_mul

__all__ = ["add", "add_rms_norm", "mul", "rms_norm", "rms_norm_mul"]
