"""Recordings: what ran, when, and where it came from, in one SQLite file that any tool can read.

`Writer` writes one while the program runs, `open_recording` reads one (whoever made it), `merge` makes one of several,
`expand` fills the plain tables. The format is described in `docs/recording.md`.
"""

from __future__ import annotations

from ...errors import RecordingError, RecordingWarning
from .columns import (
    AMOUNTS,
    BOUNDED,
    LEVELS,
    MEASURED,
    NODE_KINDS,
    NONE,
    SPAN_KINDS,
    STATUSES,
    UNAVAILABLE,
    Commands,
    DeviceFacts,
    Drop,
    HostSpans,
    PlanNode,
    Plans,
    PlanTerm,
    Process,
    Regions,
    Samples,
    Submissions,
    Terms,
    Values,
    position,
)
from .expansion import expand, save
from .merging import merge
from .reader import MAX_SAMPLES_AT_ONCE, Recording, open_recording
from .schema import SUFFIX, VERSION
from .writer import CEILINGS, Writer

__all__ = [
    "AMOUNTS",
    "BOUNDED",
    "CEILINGS",
    "LEVELS",
    "MAX_SAMPLES_AT_ONCE",
    "MEASURED",
    "NODE_KINDS",
    "NONE",
    "SPAN_KINDS",
    "STATUSES",
    "SUFFIX",
    "UNAVAILABLE",
    "VERSION",
    "Commands",
    "DeviceFacts",
    "Drop",
    "HostSpans",
    "PlanNode",
    "PlanTerm",
    "Plans",
    "Process",
    "Recording",
    "RecordingError",
    "RecordingWarning",
    "Regions",
    "Samples",
    "Submissions",
    "Terms",
    "Values",
    "Writer",
    "expand",
    "merge",
    "open_recording",
    "position",
    "save",
]
