"""The host compiler and what is built with it: kernels for the CPU, the hazard engine, launchers."""

from __future__ import annotations

from pathlib import Path

HAZARDS = Path(__file__).with_name("hazards.cpp")
"""The hazard engine, which the CPU runtime contains too; its header has the same name."""
HOT_PATH = Path(__file__).with_name("hot_path") / "module.cpp"
"""Starting and ending replays, as an extension of the interpreter; its headers lie beside it."""
