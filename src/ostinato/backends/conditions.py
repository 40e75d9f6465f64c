"""What a device says of itself while it works."""

from __future__ import annotations

from typing import NamedTuple


class Conditions(NamedTuple):
    """What a device says of itself at a moment; None and "" for what it does not say."""

    sm_mhz: float | None = None
    """The clock of its multiprocessors."""
    sm_max_mhz: float | None = None
    held_back_by: str = ""
    """What holds that clock back, in words."""
    processes: int | None = None
    """Programs that use it."""
