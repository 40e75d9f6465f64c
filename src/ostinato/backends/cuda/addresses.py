"""Addresses in PTX: a register and a distance in bytes, as in `[%rd1+16]` and `[%rd1+-16]`."""

from __future__ import annotations

import re

APART = r"(?:\+(?P<apart>-?\d+))?"
"""The distance, in a pattern of a line."""


def apart_of(found: re.Match[str]) -> int:
    """The distance that `APART` has matched."""
    return int(found["apart"] or 0)


def address(base: str, apart: int) -> str:
    """The text of an address, in its brackets."""
    return f"[{base}+{apart}]" if apart else f"[{base}]"
