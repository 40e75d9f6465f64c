"""How the tests of MSL's meaning run a kernel: arrays in, the arrays it may write out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ostinato as ost

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"

# Long enough for a busy machine, short enough that a kernel that hangs is a failed test and not a lost run.
LIMIT_S = 60


def launch(dev: ost.Device, kernel: ost.Kernel, *arguments: Any, **geometry: Any) -> Any:
    """Runs a kernel on arrays (numbers pass by value); gives back what it may have written, in argument order."""
    size = geometry.get("group_size", 1)
    threads = size if isinstance(size, int) else math.prod(size)
    if threads > kernel.max_threads_per_group:
        pytest.skip(
            f"on {dev.name!r} kernel {kernel.name!r} takes groups of {kernel.max_threads_per_group} threads at most"
        )
    bound = [dev.array(value) if isinstance(value, np.ndarray) else value for value in arguments]
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, *bound, **({"threads": 1} | geometry if "groups" not in geometry else geometry))
    assert encoder.commit().wait(timeout=LIMIT_S), f"{kernel.name} still runs after {LIMIT_S} s"
    formals = kernel.signature.arguments
    # Arguments that are not used may be None, and left out at the end.
    written = [
        b.numpy() for b, formal in zip(bound, formals, strict=False) if formal.access != "read" and b is not None
    ]
    return written[0] if len(written) == 1 else tuple(written)
