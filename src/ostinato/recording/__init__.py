"""Recordings: what ran, when, and where it came from, in one SQLite file that any tool can read.

`Writer` writes one while the program runs, `open_recording` reads one (whoever made it), `merge` makes one of several,
`expand` fills the plain tables. The format is described in `docs/recording.md`.
"""

from __future__ import annotations

from ..errors import RecordingError, RecordingWarning
from .columns import (
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
    Process,
    Regions,
    Samples,
    Submissions,
    position,
)
from .expansion import expand, save
from .merge import merge
from .reader import MAX_SAMPLES_AT_ONCE, Recording, open_recording
from .schema import SUFFIX, VERSION
from .writer import CEILINGS, Writer

__all__ = [
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
    "Plans",
    "Process",
    "Recording",
    "RecordingError",
    "RecordingWarning",
    "Regions",
    "Samples",
    "Submissions",
    "Writer",
    "expand",
    "merge",
    "open_recording",
    "position",
    "save",
]
