"""The head of the page: what it is of, where to look first, and the validity checks."""

from __future__ import annotations

from typing import Any

from ...analyse.summary import look_first
from ..tables import overview
from ..text import LONGEST_SENTENCE, visible
from .material import Material


def head(material: Material) -> dict[str, Any]:
    """What stands above the tabs."""
    summary = material.summary
    return {
        "overview": [visible(line, LONGEST_SENTENCE) for line in overview(summary)],
        "look_first": visible(look_first(summary), LONGEST_SENTENCE),
        "sure": summary.verdict is not None and summary.verdict.sure,
        "checks": [
            {"name": check.name, "status": str(check.status), "sentence": visible(check.sentence, LONGEST_SENTENCE)}
            for check in summary.checks
        ],
    }
