"""What every view is made from: the columns of a recording, its summary, and one numbering of kernels for all views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...analyse.columns import Columns, Floats, Ints, usable
from ...analyse.summary import Summary
from ..text import visible


@dataclass(frozen=True, slots=True)
class Material:
    """A recording, ready to be shown."""

    columns: Columns
    """With the devices of the summary: distinct names, and ceilings as the report has them."""
    summary: Summary
    kernel: Ints
    """For each command the number of its kernel: a row of `summary.kernels`; -1 for barriers and what never ran."""
    spent_ns: Floats
    """For each command the time of all its dispatches that have one."""
    with_source: bool
    """Whether the source texts of kernels may be shown."""

    def timed(self) -> tuple[Any, Ints]:
        """The samples that have a time, and the kernel of each."""
        samples = usable(self.columns.samples)
        return samples, self.kernel[self.columns.plans.command[samples.node]]


def material(columns: Columns, summary: Summary, with_source: bool = True) -> Material:
    """Puts together what views need."""
    commands = columns.commands
    rows = kernel_rows(summary)
    kernel = np.array(
        [
            rows.get((str(name), str(detail)), -1) if kind != "barrier" else -1
            for kind, name, detail in zip(commands.kind, commands.kernel, commands.detail, strict=True)
        ],
        np.int64,
    )
    samples = usable(columns.samples)
    command = columns.plans.command[samples.node]
    length = samples.end_ns - samples.start_ns
    spent_ns = np.bincount(command, weights=length, minlength=len(commands)).astype(np.float64, copy=False)
    return Material(replace(columns, devices=summary.devices), summary, kernel, spent_ns, with_source)


def kernel_rows(summary: Summary) -> dict[tuple[str, str], int]:
    """The number of each kernel, by its name and detail."""
    return {(group.name, group.detail): row for row, group in enumerate(summary.kernels)}


def kernels(given: Material) -> list[dict[str, Any]]:
    """The kernels in the order of all views: by total time, the longest first."""
    return [
        {"name": visible(group.name), "detail": visible(group.detail), "share": group.share, "total_ns": group.total_ns}
        for group in given.summary.kernels
    ]
