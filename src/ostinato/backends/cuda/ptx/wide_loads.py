"""Neighbours of eight bytes each in device memory, read at once where their address allows it.

Matrices of 16-bit elements are aligned to 8 bytes, so the compiler reads one of 4 × 4 by four loads. Threads that read
different rows pay for each load with as many cycles as there are rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .accesses import APART, address, apart_of

_LOAD = re.compile(
    rf"\s*ld\.global\.v4\.u16\s+\{{(?P<to>%rs\d+, %rs\d+, %rs\d+, %rs\d+)\}}, \[(?P<base>%rd\d+){APART}\];\s*"
)


def widened(lines: Sequence[str]) -> list[str]:
    """Lines in which two such loads, one right after the other, are one if it is aligned to 16 bytes."""
    result: list[str] = []
    before: re.Match[str] | None = None
    for line in lines:
        found = _LOAD.fullmatch(line)
        if found is not None and before is not None and _follows(before, found):
            result[-1] = _both(before, found)
            before = None
        else:
            result.append(line)
            before = found
    return result


def _follows(first: re.Match[str], second: re.Match[str]) -> bool:
    return first["base"] == second["base"] and apart_of(second) == apart_of(first) + 8


def _both(first: re.Match[str], second: re.Match[str]) -> str:
    base, apart = first["base"], apart_of(first)
    here, behind = address(base, apart), address(base, apart + 8)
    shorts = [*first["to"].split(", "), *second["to"].split(", ")]
    parts = "; ".join(f"mov.b32 {{{shorts[2 * i]}, {shorts[2 * i + 1]}}}, {word}" for i, word in enumerate("abcd"))
    return (
        "\t{ .reg .pred whole; .reg .b32 a, b, c, d, low;"
        f" cvt.u32.u64 low, {base}; add.s32 low, low, {apart}; and.b32 low, low, 15; setp.eq.u32 whole, low, 0;"
        f" @whole ld.global.v4.b32 {{a, b, c, d}}, {here};"
        f" @!whole ld.global.v2.b32 {{a, b}}, {here}; @!whole ld.global.v2.b32 {{c, d}}, {behind};"
        f" {parts}; }}"
    )
