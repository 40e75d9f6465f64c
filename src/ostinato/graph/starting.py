"""Replays that native code starts and ends by itself (native/hot_path/): who may, and what it is told.

It does what `Replayable.replay`, `Queue.submit`, `Queue.reap` and `Submission.wait` do, in the usual case. They are its
reference, and go on where it stops. Without the headers of the interpreter, on a backend that has no native functions
for it, or for a graph that is not of the usual kind, they do everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Protocol

from .. import counters, settings
from ..backends.protocol import Executable, NativeCalls, NativeReplay
from ..ir.command_list import CommandList
from ..ir.params import Param
from ..native import HOT_PATH
from ..native.extension import extension
from ..runtime import fault_marks, submission, tracing
from ..runtime.allocation import Backing, SharedUse
from ..runtime.queue import Queue
from ..runtime.residency import ResidencySet
from ..runtime.submission import Submission
from .hooks import watchers


class Starter(Protocol):
    """Starts replays of one executable; both methods return None when the Python code has to do it."""

    def start(self, values: Mapping[str, Any]) -> Submission | None:
        """Start a replay with these values."""
        ...

    def start_many(self, values: Mapping[str, list[Any]], first: int) -> list[Submission] | None:
        """Start replays with the values at `first` and after it, as many as can be started now."""
        ...


_KINDS = {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (4, 8)}
"""Kinds and sizes of parameters that native code encodes."""


@lru_cache(maxsize=1)
def _module() -> ModuleType | None:
    module = extension("_ostinato_hot_path", HOT_PATH)
    if module is None or not isinstance(settings.environment, dict):
        return None
    module.configure(
        *(Submission, counters._totals, counters._counting, counters._scopes, counters._lock),
        *(tracing._only, vars(tracing), submission._NO_COMMANDS, settings.environment),
        *(tracing.watched_keys, watchers, vars(submission)),
        *(Queue, fault_marks.FaultMarks, fault_marks._Marks, ResidencySet, counters.Counts, SharedUse, Backing),
    )
    Submission.__del__ = module.finaliser(Submission)  # type: ignore[method-assign]
    return module


def starter(
    queue: Queue,
    commands: CommandList,
    executable: Executable,
    *,
    use: SharedUse,
    keep: object,
    label: str | None,
    counts: tuple[int, int, int, int],
    params: Mapping[str, Param],
) -> Starter | None:
    """What starts replays of an executable natively; None where only Python can."""
    calls: NativeCalls | None = getattr(queue.backend, "native_calls", lambda: None)()
    replay: NativeReplay | None = None if calls is None else queue.backend.native_replay(executable)  # type: ignore[attr-defined]
    if calls is None or replay is None:
        return None
    table = []
    for name, param in params.items():
        if param.shape or param.dtype.itemsize not in _KINDS.get(param.dtype.kind, ()):
            return None
        table.append((name, param.dtype.kind, param.nbytes, commands.value_offsets[name]))
    module = _module()
    if module is None:
        return None
    if queue.quick is None:
        by_number = calls.make_run is not None
        functions = (calls.wait, calls.finish, calls.release, calls.read)
        queue.quick = module.Device(queue, calls.run_class, calls.done, by_number, calls.context, *functions)
    template = Submission(queue, 0, commands, keep, label)
    template._use = use
    try:
        plan: Starter = module.Plan(
            *(queue.quick, template, replay.run, calls.make_run, (use,), counts, tuple(table), replay.fixed),
            *(commands.value_bytes, calls.start, replay.failed),
        )
    except ValueError:  # more parameters than it has room for
        return None
    return plan
