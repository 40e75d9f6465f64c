"""Child processes that answer requests, for work that may end the process it runs in, or never end.

A request and its answer are a line of JSON each. A child is a fresh interpreter that runs a module of this package. It
imports what this process imports, opens the device that it is asked to open whatever OSTINATO_DEVICE says, and profiles
nothing. What it prints is no answer: it goes to a file, whose last line says why a child ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

from .printable import printable

_NOT_INHERITED = ("OSTINATO_DEVICE", "OSTINATO_PROFILE", "MLX_PROFILE")
_LAST_BYTES = 4096
_LONGEST = 200


class NoAnswer(Exception):
    """The child did not answer in time."""


class ChildEnded(Exception):
    """The child ended without an answer; the text says how, such as "was ended by SIGSEGV"."""


class Child:
    """A process that runs a module which calls `serve`."""

    def __init__(self, module: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        # The same search path in the same order: backends that a conftest.py put there are found, and -P keeps a
        # module of the working directory from hiding one of the standard library.
        search = os.pathsep.join(path or os.curdir for path in sys.path)
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            env=kept | {"PYTHONPATH": search},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
        )

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to a request. Raises `NoAnswer` after `limit_s`, and `ChildEnded`; the child is of no use then."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        deadline, received = time.monotonic() + limit_s, b""
        with contextlib.suppress(BrokenPipeError):  # its answers end too
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        while not received.endswith(b"\n"):
            if not select.select([stdout], [], [], max(deadline - time.monotonic(), 0.0))[0]:
                raise NoAnswer
            piece = os.read(stdout.fileno(), 1 << 16)
            if not piece:
                line = last_line(self._printed)
                raise ChildEnded(ending(self._process.wait()) + (f"; its last line: {line}" if line else ""))
            received += piece
        answer: dict[str, Any] = json.loads(received)
        return answer

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()
        self._printed.close()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In a child: answer requests until there are no more, so at the latest when the parent ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what kernels, drivers and compilers print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def ending(status: int) -> str:
    """How a process ended that did not end well, by its status as `subprocess` gives it."""
    if status >= 0:
        return f"failed with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"was ended by signal {-status}"


def last_line(file: IO[bytes], but: str | None = None) -> str:
    """The last line that is not blank and does not begin with `but`, safe to print; empty if there is none."""
    file.seek(0, os.SEEK_END)
    file.seek(max(file.tell() - _LAST_BYTES, 0))
    lines = file.read(_LAST_BYTES).decode("utf-8", "replace").split("\n")
    kept = (line.strip() for line in reversed(lines) if but is None or not line.startswith(but))
    return printable(next(filter(None, kept), ""), _LONGEST)
