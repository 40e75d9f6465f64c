"""Command lists and their runs: which submissions ran the same list, and how often each command ran.

A *run* is one submission of a command list (a plan) on a device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .columns import ABSENT, Columns, Flags, Floats, Ints, Samples, usable

WARM_UP = "warm-up"
"""The region of work that a measurement does around what it measures: replays that warm up, flushes of caches."""


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


def only_warming(columns: Columns) -> Flags:
    """The submissions that a measurement made in such a region. They are not what was measured."""
    region = columns.submissions.region
    warming: Flags = (region >= 0) & (np.append(columns.regions.name, "")[region] == WARM_UP)
    return warming


def measured_only(columns: Columns) -> Columns:
    """The recording without the lists that only ever ran there, if others are left.

    A flush of the caches takes time on the device and is no kernel of the program.
    """
    subs, warming = columns.submissions, only_warming(columns)
    kept = np.isin(subs.plan, subs.plan[~warming])
    if kept.all() or not kept.any():
        return columns
    return replace(
        columns,
        submissions=replace(subs, plan=np.where(kept, subs.plan, ABSENT)),
        samples=columns.samples.where(kept[columns.samples.submission]),
    )


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


def label_of(columns: Columns, plan: int) -> str:
    """The label of the command buffers of a list, if they have one."""
    labels = columns.submissions.label[columns.submissions.plan == plan]
    return next((label for label in labels.tolist() if label), "")
