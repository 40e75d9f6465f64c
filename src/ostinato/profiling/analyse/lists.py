"""Command lists and their runs: which submissions ran the same list, and how often each command ran.

A *run* is one submission of a command list (a plan) on a device.
"""

from __future__ import annotations

import numpy as np

from .columns import Columns, Flags, Floats, Ints, Samples, usable


def runs_by_list(columns: Columns, chosen: Flags) -> list[Ints]:
    """The rows of the chosen submissions, one array per command list and device, each in order of start."""
    subs = columns.submissions
    rows = np.flatnonzero(chosen & (subs.plan >= 0))
    key = subs.plan[rows] * max(len(columns.devices), 1) + subs.device[rows]
    order = np.lexsort((subs.start_ns[rows], key))
    heads = np.flatnonzero(np.diff(key[order], prepend=-1))
    return np.split(rows[order], heads[1:]) if rows.size else []


def warm_ups(columns: Columns) -> Flags:
    """The first submission of each plan on each device, where the plan ran at least three times."""
    first: Flags = np.zeros(len(columns.submissions), bool)
    for rows in runs_by_list(columns, columns.submissions.ran):
        first[rows[0]] = rows.size >= 3
    return first


def runs_per_command(columns: Columns, chosen: Flags) -> Floats:
    """How often each command ran in the chosen submissions."""
    subs, plans = columns.submissions, columns.plans
    runs = np.bincount(subs.plan[chosen & (subs.plan >= 0)], minlength=len(plans))
    by_node = np.repeat(runs, np.diff(plans.first)).astype(np.float64)
    return np.bincount(plans.command, weights=by_node, minlength=len(columns.commands)).astype(np.float64)


def samples_on(columns: Columns, device: int) -> Samples:
    """The samples of a device that have a time."""
    samples, here = usable(columns.samples), columns.submissions.device == device
    return samples if here.all() else samples.where(here[samples.submission])
