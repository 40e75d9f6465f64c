"""Which devices this machine has."""

from __future__ import annotations

from functools import cache

from ostinato.backends import registry


@cache
def unavailable(name: str) -> str:
    """Why a device cannot be opened here; empty when it can."""
    if name.startswith("metal-sim:") or name == "small":
        return unavailable("cpu")  # which the kernels of both need, and which need not be opened to know
    return registry.availability(name.partition(":")[0])[1]
