"""Recordings: what ran, when, and where it came from, in one SQLite file that any tool can read.

`Writer` writes one while the program runs, `open_recording` reads one (whoever made it), `merge` makes one of several,
`upgrade` one of this version of an older one, `expand` fills the plain tables. `schema.py` declares the tables, and
`docs/recording.md` describes the format.
"""

from __future__ import annotations

from ...errors import RecordingError, RecordingWarning
from .declaring import NONE
from .expansion import expand, save
from .merging import merge, upgrade
from .reader import MAX_SAMPLES_AT_ONCE, Recording, open_recording
from .schema import (
    AMOUNTS,
    BOUNDED,
    LEVELS,
    MEASURED,
    NODE_KINDS,
    SPAN_KINDS,
    STATUSES,
    SUFFIX,
    UNAVAILABLE,
    VERSION,
    PlanNode,
    PlanTerm,
)
from .writer import Writer

__all__ = [
    "AMOUNTS",
    "BOUNDED",
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
    "PlanNode",
    "PlanTerm",
    "Recording",
    "RecordingError",
    "RecordingWarning",
    "Writer",
    "expand",
    "merge",
    "open_recording",
    "save",
    "upgrade",
]
