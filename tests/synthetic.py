"""Recordings made by hand, as the columns that the analysis reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ostinato.profiling.analyse.columns import (
    Columns,
    Commands,
    Device,
    Drop,
    HostSpans,
    Plans,
    Regions,
    Samples,
    Submissions,
    ints,
    texts,
)
from ostinato.profiling.analyse.kernels import KernelFacts, details
from ostinato.profiling.recording import schema
from ostinato.profiling.recording.declaring import Kind

_KERNEL = ("kind", "kernel", "source", "digest", "constants")


def node(kernel: str = "k", **given: Any) -> dict[str, Any]:
    """One command; what is not given is ordinary."""
    groups = given.get("groups", 64)
    plain = {
        "kind": "dispatch", "label": "", "specialisation": "", "source": "", "digest": "", "constants": (),
        "op_kind": "Other", "origin": "", "groups": groups,
        "threads": (groups * 256, 1, 1), "group": (256, 1, 1), "bytes_read": 0, "bytes_written": 0,
        "declared": False, "flops": None, "place": "",
        "file": "", "line": None, "source_digest": "", "execution": "",
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
            "replay": True, "sampled": bool(known), "probe": False, "executed": True,
            "encode_begin_ns": None, "encode_end_ns": None,
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
        samples = np.array(self.samples, np.int64).reshape(-1, 6)
        submissions = [
            row | {"level": "dispatches" if row["sampled"] else "command_buffers"} for row in self.submissions
        ]
        commands = [row | {"bytes_declared": row["declared"]} for row in self.commands]
        regions = [dict(zip(("name", "begin_ns", "end_ns", "parent"), row, strict=True)) for row in self.regions]
        names = ("kind", "name", "begin_ns", "end_ns", "thread")
        spans = [{"submission": None, "region": None} | dict(zip(names, row, strict=True)) for row in self.spans]
        facts = (KernelFacts(*(row[name] for name in _KERNEL)) for row in self.commands)
        return Columns(
            tuple(self.devices),
            Commands(**_in_columns(schema.Commands, commands), detail=texts(details(facts))),
            Plans(
                first,
                np.array([i for nodes, _ in self.plans for i in nodes], np.int64),
                tuple(_ends(edges) for _, edges in self.plans),
            ),
            Submissions(**_in_columns(Submissions, submissions)),
            Samples(
                submission=samples[:, 0],
                node=first[samples[:, 1]] + samples[:, 2],
                start_ns=samples[:, 3],
                end_ns=samples[:, 4],
                status=samples[:, 5].astype(np.int8),
            ),
            Regions(**_in_columns(Regions, regions)),
            HostSpans(**_in_columns(HostSpans, spans)),
            tuple(self.drops),
            {},
        )


def _ends(edges: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(edges, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _in_columns(rows: Any, given: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows as the columns of their table; they are numbered, of the first process, and of thread 1."""
    listed = [{"id": number, "process": 0, "thread": 1} | row for number, row in enumerate(given, 1)]
    columns: dict[str, Any] = {}
    for column in rows.table.columns:
        values = [row[column.name] for row in listed]
        if column.kind in (Kind.TEXT, Kind.WORD, Kind.CODE):
            columns[column.name] = texts(values)
        elif column.kind is Kind.SIZES:
            columns[column.name] = np.array(values, np.int64).reshape(-1, 3)
        else:
            columns[column.name] = np.array(values, bool) if column.kind is Kind.FLAG else ints(values)
    return columns


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
