"""The page of a comparison: what differs beside the program, the whole, and every row with its interval and verdict."""

from __future__ import annotations

import os
from typing import Any

from ....base.files import write_whole
from ....base.fragments import STYLE as PLAIN_STYLE
from ...analyse import formatting
from ...analyse.comparison import Comparison, Key, OneSided, Row, Side
from ...analyse.verdicts import Verdict
from ..comparison import closing, comparison_body, word
from ..text import visible
from .sentences import sentence
from .writing import assembled

_NOTHING_DIFFERS = "nothing that was recorded differs (device, versions, settings, clocks, load)"
_ONE_PROCESS = "both ran in one process, in turns"


def comparison_page(comparison: Comparison) -> str:
    """The page, as text."""
    a, b = comparison.names
    data = {"kernels": [], "head": _head(comparison), "comparison": _shown(comparison)}
    return assembled(data, f"{b} compared with {a}", PLAIN_STYLE, comparison_body(comparison), ["comparison"])


def save_comparison_page(comparison: Comparison, path: str | os.PathLike[str]) -> int:
    """Writes the page to a file, which is there whole or not at all; its size in bytes."""
    text = comparison_page(comparison).encode()
    write_whole(path, text)
    return len(text)


def _head(comparison: Comparison) -> dict[str, Any]:
    surroundings = _surroundings(comparison)
    differing = len(comparison.differences or ())
    title = f"beside the program, {formatting.count(differing, 'thing')} differ{'s' if differing == 1 else ''}"
    return {
        "overview": [sentence(line) for line in comparison.about],
        "figures": [],
        "look_first": sentence(closing(comparison)),
        "named": [],
        "sure": comparison.combined is not Verdict.CANNOT_TELL,
        "tone": comparison.combined.value if comparison.combined is not Verdict.CANNOT_TELL else "",
        "checks_title": title if differing else "beside the program, nothing differs",
        "checks_open": any(check["status"] != "fine" for check in surroundings),
        "checks": surroundings,
    }


def _surroundings(comparison: Comparison) -> list[dict[str, str]]:
    """What differs beside the program, and what to know about the measurement."""
    checks = []
    for line in comparison.differences or ():
        name, _, values = line.partition(": ")
        checks.append(_check(name, "noted", values))
    if not checks:
        checks.append(
            _check("surroundings", "fine", _ONE_PROCESS if comparison.differences is None else _NOTHING_DIFFERS)
        )
    return [*checks, *(_check("measurement", "noted", note) for note in comparison.notes)]


def _check(name: str, status: str, text: str) -> dict[str, str]:
    return {"name": visible(name), "status": status, "sentence": sentence(text)}


def _shown(comparison: Comparison) -> dict[str, Any]:
    only = {"a": comparison.only_a, "b": comparison.only_b}
    whole = comparison.whole
    return {
        "names": [visible(name) for name in comparison.names],
        "delta": comparison.delta,
        "confidence": comparison.confidence,
        "notes": [sentence(note) for note in _notes(comparison)],
        "whole": None if whole is None else comparison.rows.index(whole),
        "rows": [_row(row) for row in comparison.rows],
        "only": [_one_sided(row, side) for side, rows in only.items() for row in rows],
    }


def _notes(comparison: Comparison) -> list[str]:
    """What the columns mean."""
    (a, b), delta = comparison.names, formatting.percent(comparison.delta)
    confidence = formatting.whole_percent(comparison.confidence)
    unit = {"process": "runs"}.get(comparison.unit, f"{comparison.unit}s")
    if all(row.ratio is None for row in comparison.rows):
        return [
            f"{a}, {b}: medians, with the {confidence} interval within the recording.",
            "Diamonds are ratios without an interval.",
        ]
    ratio = "the mean ratio of neighbouring ones" if comparison.paired else "the ratio of their geometric means"
    return [
        f"{a}, {b}: medians over {unit}. {b} / {a}: {ratio}. Dot and line: the ratio and its interval. All intervals"
        f" hold together with {confidence} confidence.",
        f"The grey band is what counts as the same, within {delta}. A verdict needs the whole interval on one side of"
        " the band's edge, or inside the band. Detectable: the smallest change that would be found nine times in ten.",
    ]


def _row(row: Row) -> dict[str, Any]:
    ratio = row.ratio
    return {
        **_key(row.key),
        "a": _side(row.a),
        "b": _side(row.b),
        "ratio": None if ratio is None else [ratio.estimate, ratio.low, ratio.high],
        "verdict": word(row.verdict),
        "detectable": row.smallest_change,
    }


def _one_sided(row: OneSided, side: str) -> dict[str, Any]:
    return {**_key(row.key), "side": side, "share": row.share}


def _key(key: Key) -> dict[str, str]:
    grid = f"{key.grid} commands" if key.kind == "graph" and key.grid else key.grid
    name = key.name or "(no name)"
    return {"kind": key.kind, "name": visible(name), "label": visible(key.label), "grid": visible(grid)}


def _side(side: Side) -> dict[str, Any]:
    interval = side.interval
    return {
        "median_ns": side.median_ns,
        "low_ns": None if interval is None else interval.low,
        "high_ns": None if interval is None else interval.high,
        "units": side.units,
        "runs": side.runs,
        "share": side.share,
    }
