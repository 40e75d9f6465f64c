"""First runs of candidates in a child process, so that one that faults or never ends is a reason and not the end.

The candidate's graph goes to the child as a file, with the contents of its memory: nothing of the program has to be
importable there. The child serves one candidate after another, and is replaced when one fails.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..base.children import Child, ChildEnded, NoAnswer
from ..base.printable import printable
from ..errors import TuningError
from ..graph.graph import Graph
from ..passes.snapshot import with_buffers
from ..runtime.queue import Queue

_START_S = 120.0
_LONGEST = 300
_WATCHING = ("sampling", "nvtx", "gputrace")
"""Options that change what is recorded of a device, not what runs on it."""

_PLAIN = (bool, int, float, str, type(None))


class Trials:
    """Runs graphs in a child process; use it in a `with` block."""

    def __init__(self, queue: Queue, timeout_s: float) -> None:
        options = {name: value for name, value in queue.options.items() if name not in _WATCHING}
        strange = next((name for name, value in options.items() if not isinstance(value, _PLAIN)), None)
        if strange is not None:
            raise TuningError(
                f"the option {strange} of device {queue.name!r} cannot be passed to a child process;"
                " isolate=False runs candidates in this process"
            )
        self._opening = {"device": queue.name, "options": options}
        self._timeout_s = timeout_s
        self._child: Child | None = None

    def __enter__(self) -> Trials:
        self.ready()
        self._folder = tempfile.TemporaryDirectory(prefix="ostinato-tune-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def ready(self) -> None:
        """Start a child if there is none. Raises a `TuningError` if it cannot open the device."""
        if self._child is not None:
            return
        self._child = Child("ostinato.measure.child")
        problem = self._asked(self._opening, _START_S)
        if problem:
            raise TuningError(
                f"the child process for first runs cannot open device {self._opening['device']!r}: {problem};"
                " isolate=False runs candidates in this process"
            )

    def run(self, graph: Graph, values: Mapping[str, Any]) -> str:
        """Why the graph does not run to its end in time; empty if it does."""
        self.ready()
        path = Path(self._folder.name) / "candidate.ostgraph"
        graph, rest = with_buffers(graph, values)
        graph.save(path, contents=True)
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in rest.items()}
        return self._asked({"graph": str(path), "values": numbers}, self._timeout_s)

    def _asked(self, request: dict[str, Any], limit_s: float) -> str:
        """What is wrong, by the answer of the child or for want of one; the child is ended then."""
        assert self._child is not None
        reason = "it was not asked to the end"
        try:
            reason = self._child.ask(request, limit_s)["reason"]
        except ChildEnded as ended:
            reason = f"its process {ended}"
        except NoAnswer:
            reason = f"it was still running after {limit_s:g} s"
        finally:
            if reason:
                self._end()
        return printable(reason, _LONGEST)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
