"""Which devices this machine has."""

from __future__ import annotations

from functools import cache

from ostinato.device import _KINDS


@cache
def unavailable(name: str) -> str:
    """Why a device cannot be opened here; empty when it can."""
    if name.startswith("metal-sim:"):
        return unavailable("cpu")  # which its kernels run on
    kind = _KINDS.get(name.partition(":")[0])
    return f"there is no device named {name!r}" if kind is None else kind.availability()[1]
