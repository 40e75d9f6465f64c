"""The view "Ranks": regions of one name, with a lane for each process of a job, the skew, and who waits for whom."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...analyse import formatting
from ...analyse.ranks import Rounds, rounds
from ...analyse.statistics import percentiles
from ..text import visible
from ..tracks import first_moment, process_name
from .material import Material
from .packing import packed

_MOST_NAMES = 20
_MOST_RANKS = 256
_MOST_ROUNDS = 400


def ranks(material: Material) -> dict[str, Any] | None:
    """What the view shows; None unless several processes went through regions of the same name."""
    every = rounds(material.columns)
    if not every:
        return None
    hidden = len(every) - _MOST_NAMES
    return {
        "names": [_shown(material, each) for each in every[:_MOST_NAMES]],
        "notes": [
            "The n-th region of a name in one process is compared with the n-th in the others. Waiting: from the end of"
            " one process to the end of the last one.",
            "Processes of several machines are aligned by their wall clocks, within the error that was given to"
            " `ostinato merge`; a skew below that means nothing.",
            *([f"{formatting.count(hidden, 'more name')} not shown"] if hidden > 0 else []),
        ],
    }


def _shown(material: Material, each: Rounds) -> dict[str, Any]:
    base = first_moment(material.columns)
    waits, kept = each.waits_ns(), len(each.processes[:_MOST_RANKS])
    worst = _chosen(each.end_skew_ns)
    names = [visible(_name(material, process)) for process in each.processes[:kept]]
    lasts = np.bincount(each.last, minlength=len(each.processes))[:kept]
    return {
        "name": visible(each.name),
        "rounds": len(each),
        "left_out": each.left_out,
        "ranks": [
            {
                "name": name,
                "last": int(lasts[place]),
                "waited_ns": int(waits[place].sum()),
                "held_up_ns": int(waits[:, place].sum()),
                "median_ns": float(np.median(each.end_ns[:, place] - each.begin_ns[:, place])) if len(each) else None,
            }
            for place, name in enumerate(names)
        ],
        "waits_ns": [[int(value) for value in row[:kept]] for row in waits[:kept]],
        "begin_skew": _skew(each.begin_skew_ns),
        "end_skew": _skew(each.end_skew_ns),
        "shown": {
            "number": packed(worst, rising=True),
            "begin_ns": [packed(each.begin_ns[worst, place] - base) for place in range(kept)],
            "end_ns": [packed(each.end_ns[worst, place] - base) for place in range(kept)],
        },
    }


def _name(material: Material, process: int) -> str:
    origins = material.columns.origins
    return origins[process].name if process < len(origins) else process_name(material.columns, process)


def _chosen(skew_ns: Any) -> Any:
    """The rounds that are drawn: all, or those with most skew."""
    if skew_ns.size <= _MOST_ROUNDS:
        return np.arange(skew_ns.size)
    return np.sort(np.argsort(-skew_ns, kind="stable")[:_MOST_ROUNDS])


def _skew(values_ns: Any) -> dict[str, Any]:
    p50, p99, most = percentiles(values_ns, (50.0, 99.0, 100.0)) if values_ns.size else (None, None, None)
    return {"p50_ns": p50, "p99_ns": p99, "max_ns": most}
