"""Passes: functions from a graph to a graph and a report of what was done and why.

`graph.optimise()` chains them. `fuse` puts one dispatch in the place of two, `reorder` brings together what need not
wait for each other, `split` starts the device before the whole graph is encoded, where that helps. `search_split`
measures how many dispatches a submission should have. `verify` replays two graphs on the same inputs and compares what
they write, down to the first dispatch that differs.
"""

from .chain import optimise
from .compare import Difference
from .fusion import fuse
from .reordering import reorder
from .report import Note, Pass, Report
from .rules import FusionRule, Geometry, Half, KernelName, default_rules
from .search import search_split
from .snapshot import restored
from .splitting import split, split_by_rule
from .verification import Verification, verify

__all__ = [
    "Difference",
    "FusionRule",
    "Geometry",
    "Half",
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
