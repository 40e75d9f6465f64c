"""First runs of candidates in a child process, so that one that faults or never ends is a reason and not the end.

The candidate's graph goes to the child as a file, with the contents of its memory: nothing of the program has to be
importable there. The child is a fresh interpreter, serves one candidate after another, and is replaced when it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ..base.printable import printable
from ..errors import TuningError
from ..graph.graph import Graph
from ..runtime.queue import Queue

_START_S = 120.0
_LONGEST = 300


class Trials:
    """Runs graphs in a child process; use it in a `with` block."""

    def __init__(self, queue: Queue, timeout_s: float) -> None:
        self._device = queue.name
        self._timeout_s = timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="ostinato-tune-")
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._folder.cleanup()

    def run(self, graph: Graph, values: Mapping[str, Any]) -> str:
        """Why the graph does not run to its end in time; empty if it does."""
        path = Path(self._folder.name) / "candidate.ostgraph"
        graph.save(path, contents=True)
        child = self._child or self._start()
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps({"graph": str(path), "values": numbers}).encode() + b"\n")
            child.stdin.flush()
        reason = self._answer(child, self._timeout_s)
        if reason is None:
            self._end()
            return f"it was still running after {self._timeout_s:g} s"
        if reason:
            self._end()
        return printable(reason, _LONGEST)

    def _start(self) -> subprocess.Popen[bytes]:
        package = Path(__file__).parents[2]  # importable there as it is here
        search = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH", ""))))
        # Whatever the program records, measures or prints at exit is not the child's to do.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OSTINATO_PROFILE")}
        self._child = child = subprocess.Popen(
            [sys.executable, "-m", "ostinato.measure.child", self._device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"PYTHONPATH": search},
        )
        reason = self._answer(child, _START_S)
        if reason is None or reason:
            self._end()
            problem = printable(reason or f"it does not answer within {_START_S:g} s", _LONGEST)
            raise TuningError(
                f"the child process for first runs cannot open device {self._device!r}: {problem};"
                " isolate=False runs candidates in this process"
            )
        return child

    def _answer(self, child: subprocess.Popen[bytes], timeout_s: float) -> str | None:
        """The reason that the child answers, or why it ended; None if it does not answer in time."""
        assert child.stdout is not None
        end, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                return None
            part = os.read(child.stdout.fileno(), 1 << 16)
            if not part:
                status = child.wait()
                return f"its process ended with signal {-status}" if status < 0 else f"its process ended ({status})"
            line += part
        return str(json.loads(line)["reason"])

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        child.wait()
