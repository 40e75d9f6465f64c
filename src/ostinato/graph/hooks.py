"""Looking at work before it is submitted: what `ostinato check` hangs itself into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .graph import Graph

watchers: list[Callable[[Graph, Mapping[str, Any]], None]] = []
"""Each is shown what is about to be committed or replayed, with the values of its parameters.

Encoders made while there is one note who called them.
"""
