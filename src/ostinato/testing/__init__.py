"""Testing kernels: `assert_kernel` compares what a kernel writes with what it should."""

from .asserting import assert_kernel

__all__ = ["assert_kernel"]
