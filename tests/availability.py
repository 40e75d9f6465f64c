"""Which devices this machine has."""

from __future__ import annotations

from functools import cache

import ostinato as ost


@cache
def unavailable(name: str) -> str:
    """Why a device cannot be opened here; empty when it can."""
    kind = name.partition(":")[0]
    reasons = [info.reason for info in ost.devices() if info.name.partition(":")[0] == kind]
    return reasons[0] if reasons else f"there is no device named {name!r}"
