"""The view "what if": the wall time that each kernel saves if it is twice as fast, or as efficient as the others."""

from __future__ import annotations

from typing import Any

from ...analyse.suspects import Suspect, WhatIf
from ..text import visible
from .material import Material, kernel_rows
from .sentences import sentence


def what_if(material: Material) -> dict[str, Any] | None:
    """A row for every kernel of which a saving is known or bounded, on each device."""
    summary = material.summary
    rows = kernel_rows(summary)
    halved = {(each.device_row, each.kernel, each.detail): each for each in summary.what_ifs}
    suspected = {(each.device_row, each.kernel, each.detail): each for of in summary.suspects for each in of.ranked}
    wall_ns = {of.device_row: of.typical_ns for of in summary.suspects}
    keys = dict.fromkeys([*halved, *suspected])
    if not keys:
        return None
    several = len({device for device, _, _ in keys}) > 1
    return {
        "rows": [
            {
                "kernel": rows.get((kernel, detail), -1),
                "device": visible(summary.devices[device].name) if several else "",
                **_twice(halved.get((device, kernel, detail)), wall_ns.get(device, 0.0)),
                **_suspected(suspected.get((device, kernel, detail))),
            }
            for device, kernel, detail in keys
        ],
        "wall_ns": summary.what_if_total_ns,
        "residue": summary.replay_residue,
        "measures": [sentence(measure) for measure in dict.fromkeys(s.measure for s in summary.suspects)],
    }


def _twice(what_if: WhatIf | None, wall_ns: float) -> dict[str, Any]:
    """What it saves if it is twice as fast, and how much of the time it is on the critical path."""
    if what_if is None:
        return {"twice": None, "twice_unknown": False, "on_path_ns": None, "on_path": None}
    known = what_if.saved_share is not None
    return {
        "twice": _interval(what_if.saved_share, what_if.saved_low, what_if.saved_high, what_if.saved_ns),
        "twice_unknown": not known,
        "on_path_ns": what_if.on_path_ns if known else None,
        "on_path": what_if.on_path_ns / wall_ns if known and wall_ns > 0 else None,
    }


def _suspected(suspect: Suspect | None) -> dict[str, Any]:
    """What it saves at the efficiency of the others, and why it could."""
    if suspect is None:
        return {
            "could": None,
            "could_is_bound": False,
            "efficiency": None,
            "efficiency_is_bound": False,
            "why": "",
            "where": "",
        }
    where = (visible(text) for text in (suspect.label, suspect.place) if text)
    return {
        "could": _interval(suspect.saving_share, suspect.saving_low, suspect.saving_high, suspect.saving_ns),
        "could_is_bound": suspect.saving_is_bound,
        "efficiency": suspect.efficiency,
        "efficiency_is_bound": suspect.efficiency_is_bound,
        "why": sentence("; ".join(suspect.reasons)),
        "where": ", ".join(where),
    }


def _interval(share: float | None, low: float | None, high: float | None, ns: float | None) -> dict[str, Any] | None:
    return None if share is None else {"share": share, "low": low, "high": high, "ns": ns}
