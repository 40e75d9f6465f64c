"""Accesses to memory in PTX: their addresses, and what orders them."""

from __future__ import annotations

import re
from collections.abc import Sequence

APART = r"(?:\+(?P<apart>-?\d+))?"
"""The distance of an address to its register, in a pattern of a line: that of `[%rd1+16]`, `[%rd1+-16]` or `[%rd1]`."""
_ORDERS = re.compile(
    r"\s*(?:@!?%p\d+\s+)?(?:st|red|atom|bar|barrier|membar|fence|cp|mbarrier|call)\b|\s*\{.*\b(?:st|red|atom|bar|fence|cp)\."
)


def apart_of(found: re.Match[str]) -> int:
    """The distance that `APART` has matched."""
    return int(found["apart"] or 0)


def address(base: str, apart: int) -> str:
    """The text of an address, in its brackets."""
    return f"[{base}+{apart}]" if apart else f"[{base}]"


def orders(lines: Sequence[str]) -> list[int]:
    """The places of stores, and of what orders loads: no load may move past one."""
    return [at for at, line in enumerate(lines) if _ORDERS.match(line)]
