"""The table of benches at the end of a run of pytest, and what to know about it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.printable import printable
from ..profiling.analyse import formatting
from ..profiling.analyse.verdicts import LEAST_UNITS, Verdict


def summary_lines(benches: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines, from benches as `BenchLine` describes them."""
    compared = [bench["against"] for bench in benches if bench["against"] is not None]
    rows = [("bench", "median", "ratio", "verdict")]
    rows += [(printable(bench["name"]), _median(bench), *_against(bench["against"])) for bench in benches]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = row if compared else row[:2]
        yield "   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()
    yield from _notes(benches, compared)


def _median(bench: Mapping[str, Any]) -> str:
    median, low, high = bench["median_ns"], bench["low_ns"], bench["high_ns"]
    if math.isnan(median):
        return "no undisturbed run"
    interval = "" if low is None else f" ({formatting.time(low)} to {formatting.time(high)})"
    return formatting.time(median) + interval


def _against(against: Mapping[str, Any] | None) -> tuple[str, str]:
    if against is None:
        return "", ""
    ratio = against["ratio"]
    shown = "" if ratio is None else "{:.3f} ({:.3f} to {:.3f})".format(*ratio)
    return shown, Verdict[against["verdict"]].value.upper() if against["verdict"] else "not compared"


def _notes(benches: Sequence[Mapping[str, Any]], compared: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for bench in benches:
        if bench["against"] is not None and bench["against"]["reason"]:
            yield f"{printable(bench['name'])} was not compared: {printable(bench['against']['reason'])}"
    undecided = [against for against in compared if against["verdict"] == Verdict.CANNOT_TELL.name]
    lacking = [each for each in undecided if min(each["runs"]) < LEAST_UNITS or not each["in_turns"]]
    if lacking:
        name, (kept, own) = lacking[0]["name"], lacking[0]["runs"]
        yield (
            f"CANNOT TELL: a verdict needs {LEAST_UNITS} runs of each version, made in turns (old, new, old, new, …)."
            f" There are {kept} kept under {name!r} and {own} of this version. Repeat both with --ostinato-save, each"
            " with a name of its own, or measure how much processes differ here: ostinato calibrate --processes 20"
        )
    elif undecided:
        yield (
            "CANNOT TELL: the interval of the ratio is too wide for a verdict. The next verdict is made at"
            f" {undecided[0]['next_runs']} runs of each version, in turns"
        )
    workers = max(bench["workers"] for bench in benches)
    if workers > 1:
        yield (
            f"Benches ran one at a time, but the other workers of pytest-xdist ({workers - 1}) kept the machine busy"
            " meanwhile. For times to rely on, run benches without -n"
        )
