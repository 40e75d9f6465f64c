"""Which devices this machine has."""

from __future__ import annotations

from functools import cache

from ostinato.backends import registry


@cache
def unavailable(name: str) -> str:
    """Why a device cannot be opened here; empty when it can."""
    if name.startswith("metal-sim:"):
        return unavailable("cpu")  # which its kernels run on
    return registry.availability(name.partition(":")[0])[1]
