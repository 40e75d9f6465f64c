"""What people look at: terminal tables, a page for browsers, HTML for notebooks, JSON for programs, Perfetto traces.

Reports show a `Summary` (or, for traces, the columns of a recording) and measure nothing themselves. Everything that
came from a program or a file is escaped for the place where it is shown.
"""

from .html import fragment
from .json import as_dict, as_json
from .tables import DEFAULT_GROUPINGS, GROUPINGS
from .terminal import console, print_summary, render
from .trace import write_trace

__all__ = [
    "DEFAULT_GROUPINGS",
    "GROUPINGS",
    "as_dict",
    "as_json",
    "console",
    "fragment",
    "print_summary",
    "render",
    "write_trace",
]
