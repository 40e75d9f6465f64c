"""What can be a label."""

from __future__ import annotations

from typing import Any

from ..errors import LabelError


def check_label(label: Any, what: str = "a label") -> None:
    """Refuse what says nothing."""
    if not isinstance(label, str) or not label:
        raise LabelError(f"{what} is a string that is not empty, not {label!r}")
