"""The check of labels."""

from __future__ import annotations

from typing import Any

from ..errors import LabelError


def check_label(label: Any, what: str = "a label") -> None:
    """Raises `LabelError` unless the label is a non-empty string."""
    if not isinstance(label, str) or not label:
        raise LabelError(f"{what} is a non-empty string, not {label!r}")
