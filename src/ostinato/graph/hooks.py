"""Hooks that see work before it is submitted; `ostinato check` uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .graph import Graph

watchers: list[Callable[[Graph, Mapping[str, Any]], None]] = []
"""Each is called with every graph that is about to be committed or replayed, and the values of its parameters.

Encoders made while the list is not empty record the line of every call.
"""
