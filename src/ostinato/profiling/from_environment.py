"""Recording by environment: while OSTINATO_PROFILE or OSTINATO_PROFILE_FILE is set, any program records its work.

The gates are looked at with every commit, so recording can be switched on, off and to another file in a running
process. Switching off waits for nothing: what is in flight still reports, and the file is closed at the end of the
process. Until then it can be looked at as it is. Switched on again with the same level and file, the same recording
goes on.
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

_GATES = settings.watched("profile", "profile_file")
_lock = ForkLock()
_profiles: dict[tuple[int, str, str], Profile | None] = {}
"""By process, level and file; None where a file cannot be recorded into."""


def _gate() -> Recorder | None:
    if not settings.any_set(_GATES):
        return None
    level, file = settings.text("profile"), settings.text("profile_file")
    if (level is None and file is None) or level == "off":
        return None
    key = os.getpid(), level or "dispatches", file or ""
    found = _profiles.get(key)
    if found is None and key not in _profiles:
        with _lock:
            if key not in _profiles:
                _profiles[key] = _opened(*key)
            found = _profiles[key]
    return None if found is None else found.recorder


def _opened(process: int, level: str, file: str) -> Profile | None:
    from .recording import SUFFIX
    from .session import Profile  # a program that is not recorded does not load it

    path = Path(os.path.abspath(file.replace("{pid}", str(process)) if file else f"{_program()}-{process}{SUFFIX}"))
    made = Profile(level_named(level), path)
    try:
        made.begin()
    except (OstinatoError, OSError) as error:
        hint = "; {pid} in its name gives each process a file of its own" if "{pid}" not in file else ""
        settings.report_once(f"record/{path}", f"nothing is recorded, as OSTINATO_PROFILE asks for: {error}{hint}")
        return None
    atexit.register(_tell, process, path)
    return made


def _program() -> str:
    return Path(sys.argv[0] if sys.argv else "").stem.strip("-") or "python"


def _tell(process: int, path: Path) -> None:
    if os.getpid() == process and sys.stderr is not None and path.exists():
        print(f"ostinato: recorded in {path}; see it: ostinato report {path}", file=sys.stderr)


tracing.gates.append(_gate)
