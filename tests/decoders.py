"""Recordings of decoders made by hand, and a reader of the columns in a view's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ostinato.profiling.analyse.columns import Device
from pages import unpacked
from synthetic import Synthetic, node

LAYER = (("norm", "rms"), ("attn/q", "gemv"), ("attn/k", "gemv"), ("attn/mix", "sdpa"), ("mlp", "gemv_wide"))
DURATIONS_NS = {"embed": 900, "rms": 1_000, "gemv": 8_000, "sdpa": 5_000, "gemv_wide": 20_000, "sample": 700}


def numbers(packed: Mapping[str, Any]) -> list[int]:
    """A column of a view's data."""
    values: list[int] = unpacked(packed).tolist()
    return values


def decoder(layers: int, runs: int = 6, timed: bool = True, **given: Any) -> Synthetic:
    """A decoder whose layers have two branches: q and k run beside each other."""
    nodes, edges, starts = [node("embed", label="decode/embed", place="model.py:1")], [], [0]
    last, now = 0, DURATIONS_NS["embed"]
    for layer in range(layers):
        first = len(nodes)
        nodes += [node(kernel, label=f"decode/layer.{layer}/{name}", place="model.py:7") for name, kernel in LAYER]
        edges += [(last, first), (first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
        edges += [(first + 3, first + 4), (last, first + 4)]  # the latter follows from the others
        starts += [now, now + 1_000, now + 1_000, now + 9_000, now + 14_000]
        last, now = first + 4, now + 34_000
    nodes.append(node("barrier", kind="barrier"))
    nodes.append(node("sample", label="decode/sample", place="model.py:9"))
    edges += [(last, len(nodes) - 2), (len(nodes) - 2, len(nodes) - 1)]
    starts += [-1, now]
    made = Synthetic(devices=[Device("cpu", clock_uncertainty_ns=50.0)])
    plan = made.plan(nodes, edges)
    for run in range(runs):
        base = 10_000_000 * (run + 1)
        times = [
            None if start < 0 or not timed else (base + start, base + start + DURATIONS_NS[each["kernel"]])
            for each, start in zip(nodes, starts, strict=True)
        ]
        made.submit(plan, times, label="token", **given)
    return made
