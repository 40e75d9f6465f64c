"""Recordings made by hand, as the columns that the analysis reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ostinato.profiling.analyse.columns import (
    ABSENT,
    Columns,
    Commands,
    Device,
    Drop,
    HostSpans,
    Plans,
    Regions,
    Samples,
    Submissions,
    floats,
    ints,
    texts,
)
from ostinato.profiling.analyse.kernels import KernelFacts, details

Rows = Sequence[dict[str, Any]]
_KERNEL = ("kind", "kernel", "source", "specialisation", "digest")


def _text(rows: Rows, *names: str) -> dict[str, Any]:
    return {name: texts(row[name] for row in rows) for name in names}


def _whole(rows: Rows, *names: str) -> dict[str, Any]:
    return {name: ints(row[name] for row in rows) for name in names}


def _flag(rows: Rows, *names: str) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows], bool) for name in names}


def _number(rows: Rows, *names: str) -> dict[str, Any]:
    return {name: floats(row[name] for row in rows) for name in names}


def _size(rows: Rows, *names: str) -> dict[str, Any]:
    return {name: np.array([row[name] for row in rows], np.int64).reshape(-1, 3) for name in names}


def _ends(edges: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def node(kernel: str = "k", **given: Any) -> dict[str, Any]:
    """One command; what is not given is ordinary."""
    groups = given.get("groups", 64)
    plain = {
        "kind": "dispatch", "label": "", "specialisation": "", "source": "", "digest": "",
        "op_kind": "Other", "groups": groups,
        "threads": (groups * 256, 1, 1), "group": (256, 1, 1), "bytes_read": 0, "bytes_written": 0,
        "declared": False, "flops": None, "place": "",
    }  # fmt: skip
    return plain | {"kernel": kernel} | given


@dataclass
class Synthetic:
    """Collects rows; `columns()` turns them into a recording."""

    devices: list[Device] = field(default_factory=lambda: [Device("cpu", clock_uncertainty_ns=50.0, workers=4)])
    commands: list[dict[str, Any]] = field(default_factory=list)
    plans: list[tuple[list[int], Sequence[tuple[int, int]]]] = field(default_factory=list)
    submissions: list[dict[str, Any]] = field(default_factory=list)
    samples: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    regions: list[tuple[str, int, int, int]] = field(default_factory=list)
    spans: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    drops: list[Drop] = field(default_factory=list)

    def plan(self, nodes: Sequence[dict[str, Any]], edges: Sequence[tuple[int, int]] | None = None) -> int:
        """A command list; by default each node waits for the one before."""
        if edges is None:
            edges = [(i, i + 1) for i in range(len(nodes) - 1)]
        begin = len(self.commands)
        self.commands += nodes
        self.plans.append((list(range(begin, len(self.commands))), edges))
        return len(self.plans) - 1

    def region(self, name: str, begin: int, end: int, parent: int = -1) -> int:
        self.regions.append((name, begin, end, parent))
        return len(self.regions) - 1

    def span(self, kind: str, begin: int, end: int, thread: int = 1, name: str = "") -> None:
        self.spans.append((kind, name, begin, end, thread))

    def submit(
        self, plan: int, times: Sequence[tuple[int, int] | None], quality: Sequence[int] | int = 0, **given: Any
    ) -> int:
        """One command buffer whose nodes ran at these times (None: no sample)."""
        known = [t for t in times if t is not None]
        start = min((t[0] for t in known), default=None)
        end = max((t[1] for t in known), default=None)
        plain = {
            "device": 0, "plan": plan, "ordinal": len(self.submissions) + 1, "label": "", "region": -1,
            "replay": True, "sampled": bool(known), "probe": False, "encode_begin_ns": None, "encode_end_ns": None,
            "commit_begin_ns": None, "commit_end_ns": None, "start_ns": start, "end_ns": end,
            "status": "measured", "reason": "", "error": "", "thread": 1, "process": 0,
            "worked_ns": None, "lost_ns": None, "late_ns": None, "joined": None,
        }  # fmt: skip
        self.submissions.append(plain | given)
        row = len(self.submissions) - 1
        for number, time in enumerate(times):
            if time is not None:
                state = quality if isinstance(quality, int) else quality[number]
                self.samples.append((row, plan, number, *time, state))
        return row

    def columns(self) -> Columns:
        first = np.concatenate([[0], np.cumsum([len(nodes) for nodes, _ in self.plans])]).astype(np.int64)
        c, s = self.commands, self.submissions
        samples = np.array(self.samples, np.int64).reshape(-1, 6)
        return Columns(
            tuple(self.devices),
            Commands(
                **_text(c, "kind", "label", "kernel", "specialisation", "op_kind", "place"),
                detail=texts(details(KernelFacts(*(row[name] for name in _KERNEL)) for row in c)),
                **_flag(c, "declared"),
                **_whole(c, "groups"),
                **_number(c, "bytes_read", "bytes_written", "flops"),
                **_size(c, "threads", "group"),
            ),
            Plans(
                first,
                np.array([i for nodes, _ in self.plans for i in nodes], np.int64),
                tuple(_ends(edges) for _, edges in self.plans),
            ),
            Submissions(
                **_whole(s, "device", "plan", "ordinal", "region", "thread", "process"),
                **_whole(s, "encode_begin_ns", "encode_end_ns", "commit_begin_ns", "commit_end_ns"),
                **_whole(s, "start_ns", "end_ns", "worked_ns", "lost_ns", "late_ns", "joined"),
                **_text(s, "label", "status", "reason", "error"),
                **_flag(s, "replay", "sampled", "probe"),
            ),
            Samples(
                samples[:, 0],
                first[samples[:, 1]] + samples[:, 2],
                samples[:, 3],
                samples[:, 4],
                samples[:, 5].astype(np.int8),
            ),
            Regions(
                texts(r[0] for r in self.regions),
                ints(r[1] for r in self.regions),
                ints(r[2] for r in self.regions),
                np.ones(len(self.regions), np.int64),
                np.zeros(len(self.regions), np.int64),
                ints(r[3] for r in self.regions),
            ),
            HostSpans(
                texts(r[0] for r in self.spans),
                texts(r[1] for r in self.spans),
                ints(r[2] for r in self.spans),
                ints(r[3] for r in self.spans),
                ints(r[4] for r in self.spans),
                np.full(len(self.spans), ABSENT),
                np.zeros(len(self.spans), np.int64),
            ),
            tuple(self.drops),
            {},
        )


def wandering(runs: int = 9, **device: Any) -> Synthetic:
    """Three kernels side by side on a full device, another one slow each time: no amount of work explains the whole."""
    made = Synthetic(devices=[Device("cpu", clock_uncertainty_ns=50.0, workers=4, **device)])
    small = {"bytes_read": 1000, "declared": True}
    kernels = [node(name, **small) for name in ("left", "right", "third", "last")]
    plan = made.plan(kernels, [(0, 3), (1, 3), (2, 3)])
    for i in range(runs):
        t = 10_000_000 * i
        times = [(t, t + (900_000 if i % 3 == slow else 100_000)) for slow in range(3)]
        made.submit(plan, [*times, (t + 900_000, t + 1_000_000)])
    return made
