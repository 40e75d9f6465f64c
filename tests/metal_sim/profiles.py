"""What kinds of devices the simulator can be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """The capabilities of a simulated device."""

    name: str
    title: str
    families: frozenset[str]
    dispatch_boundary: bool
    stage_boundary: bool
    indirect: bool
    residency: bool
    constant_step: int
    """What the offset of a buffer bound to `constant` memory must be a multiple of."""
    ticks_per_ns: float
    epoch_ns: int
    tick_step: float = 1.0
    """Ticks that the clock goes on at a time; they are told rounded."""
    zero_samples: bool = False
    """Counter samples are all zero, as some systems have been seen to give."""


APPLE = Profile(
    "apple", "Simulated Apple silicon", frozenset({"Apple3", "Apple7"}), False, True, True, True, 4, 1.0, 7_000_000_000,
    tick_step=1000 / 24,
)  # fmt: skip
DISCRETE = Profile(
    "discrete", "Simulated discrete GPU", frozenset({"Mac2"}), True, False, False, False, 32, 0.1, -5_000_000_000_000
)  # fmt: skip
ZEROED = Profile(
    "zeroed", "Simulated zeroed counters", frozenset({"Apple3"}), False, True, True, True, 4, 1.0, 0, zero_samples=True
)

PROFILES = {profile.name: profile for profile in (APPLE, DISCRETE, ZEROED)}
