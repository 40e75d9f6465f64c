"""Numbers as text: 940 ns, 1.24 µs, 3.95 TB/s, 0.4 %."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_AGES = ((86_400 * 365, "year"), (86_400, "day"), (3600, "hour"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
_FLOP_RATES = ((1e12, "Tflop/s"), (1e9, "Gflop/s"), (1e6, "Mflop/s"), (1e3, "kflop/s"))


def time(ns: float) -> str:
    """A duration in the unit that suits it, to three digits."""
    return _scaled(ns, _TIMES) or f"{digits(ns) if ns % 1 else f'{ns:.0f}'} ns"


def size(count: float) -> str:
    """An amount of bytes, in powers of a thousand as bandwidths are; never a 0 for something that is there."""
    return _scaled(count, _SIZES) or f"{max(count, 1.0) if count > 0 else 0.0:.0f} B"


def byte_rate(per_second: float) -> str:
    """A bandwidth."""
    return f"{size(per_second)}/s"


def flop_rate(per_second: float) -> str:
    """Floating-point operations in a second."""
    return _scaled(per_second, _FLOP_RATES) or f"{digits(per_second)} flop/s"


def percent(part: float, at_most: bool = False) -> str:
    """A share, with more digits the smaller it is; never a 0 for something that is there, nor a '<' after a '≤'."""
    value = part * 100
    if value == 0:
        return "0 %"
    if abs(value) < 0.01:
        if at_most:
            return "0.01 %"
        return f"{'<' if value > 0 else '>-'}0.01 %"
    return f"{value:.2f} %" if abs(value) < 0.095 else f"{value:.1f} %" if abs(value) < 99.95 else f"{value:.0f} %"


def whole_percent(part: float) -> str:
    """A round share: '5 %'."""
    return f"{part * 100:.0f} %"


def age(then_ns: int | None, now_ns: int | None) -> str:
    """How long before `now_ns` a moment of the wall clock lies: 'measured 3 days before'; "" if not known."""
    if then_ns is None or now_ns is None:
        return ""
    seconds = (now_ns - then_ns) / 1e9
    for length, unit in _AGES:
        if seconds >= length:
            return f"measured {count(seconds // length, unit)} before"
    return "measured with this recording" if seconds > -86_400 else ""


def count(number: float, singular: str, plural: str = "") -> str:
    """'1 dispatch', '2,000 dispatches'."""
    return f"{number:,.0f} {singular if number == 1 else plural or singular + 's'}"


def digits(value: float) -> str:
    """Three significant digits, thousands separated."""
    if not math.isfinite(value):
        return "?"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest unit that it fills; nothing if it fills none."""
    for size, unit in units:
        if abs(value) >= size * 0.9995:
            return f"{digits(value / size)} {unit}"
    return ""
