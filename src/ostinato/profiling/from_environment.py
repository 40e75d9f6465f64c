"""Profiling by environment variable: a program is recorded while OSTINATO_PROFILE or OSTINATO_PROFILE_FILE is set.

The variables are read at every commit, so a running process can start and stop recording, or change the file. They do
not affect profiles that the program opens itself. Stopping does not wait: work in flight is still recorded, and the
file is closed when the process exits. Until then it can be read as it is. With the same level and file again, the same
recording continues.
"""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .. import settings
from ..base.locks import ForkLock
from ..errors import OstinatoError
from ..runtime import tracing
from ..runtime.tracing import level_named

if TYPE_CHECKING:
    from .recorder import Recorder
    from .session import Profile

_SETTINGS = ("profile", "profile_file")
_GATES = settings.watched(*_SETTINGS)
_lock = ForkLock()
_profiles: dict[tuple[int, str, str], Profile | None] = {}
"""By process, level and file; None where the file cannot be written."""


def _gate() -> Recorder | None:
    if not settings.any_set(_GATES):
        return None
    level, file = settings.text("profile"), settings.text("profile_file")
    if (level is None and file is None) or level == "off":
        return None
    key = os.getpid(), level or "dispatches", file or ""
    profile = _profiles.get(key)
    if profile is None and key not in _profiles:
        with _lock:
            if key not in _profiles:
                _profiles[key] = _opened(*key)
            profile = _profiles[key]
    return None if profile is None else profile.recorder


def _opened(process: int, level: str, file: str) -> Profile | None:
    from .recording import SUFFIX
    from .recording.provenance import file_name
    from .session import Profile  # a program that is not recorded does not load it

    path = Path(os.path.abspath(file_name(file, process) if file else f"{_program()}-{process}{SUFFIX}"))
    made = Profile(level_named(level), path)
    try:
        made.begin()
    except (OstinatoError, OSError) as error:
        hint = "; {pid} in its name gives each process a file of its own" if "{pid}" not in file else ""
        settings.report_once(f"record/{path}", f"OSTINATO_PROFILE is set, but nothing is recorded: {error}{hint}")
        return None
    atexit.register(_report, process, path)
    return made


def _program() -> str:
    return Path(sys.argv[0] if sys.argv else "").stem.strip("-") or "python"


def _report(process: int, path: Path) -> None:
    if os.getpid() == process and sys.stderr is not None and path.exists():
        print(f"ostinato: recorded in {path}; to see it: ostinato report {path}", file=sys.stderr)


tracing.add_gate(_gate, *_SETTINGS)
