"""Compilers that tests choose by `CXX` beside the one that is found first."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ZIG = (
    [f"{Path(spec.origin).parent / 'zig'} c++"] if (spec := importlib.util.find_spec("ziglang")) and spec.origin else []
)
"""The clang of the ziglang wheel, as a command; empty where the wheel is not installed."""
