"""Passes: functions from a graph to a graph and a report of what was done and why.

`graph.optimise()` chains them. `fuse` replaces two dispatches by one, `reorder` groups independent dispatches, `split`
starts the device before the whole graph is encoded, where that helps. `search_split` measures how many dispatches a
submission should have. `verify` replays two graphs on the same inputs, compares what they write, and names the first
dispatch that differs.
"""

from .chain import optimise
from .compare import Difference
from .fusion import fuse
from .reordering import reorder
from .report import Note, Pass, Report
from .rules import FusedSide, FusionRule, Geometry, KernelName, default_rules
from .search import search_split
from .snapshot import restored
from .splitting import split, split_by_rule
from .verification import Verification, verify

__all__ = [
    "Difference",
    "FusedSide",
    "FusionRule",
    "Geometry",
    "KernelName",
    "Note",
    "Pass",
    "Report",
    "Verification",
    "default_rules",
    "fuse",
    "optimise",
    "reorder",
    "restored",
    "search_split",
    "split",
    "split_by_rule",
    "verify",
]
