"""What is exported of a running program, added up: a listener that costs its threads an append, and sums.

The program's threads put traces of finished submissions on a queue of bounded length and go on; what finds it full is
counted as lost. A thread of its own takes the queue and adds up. Whoever exports reads the sums, and nobody who
submits ever waits for that. Kernels beyond the first `MOST_NAMES` are added up under one name.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...backends.protocol import Level
from ...ir.command_list import CommandList
from ...ir.commands import Barrier, Copy, Dispatch
from ...ir.costs import Amount
from ...runtime.tracing import HostSpan, Region, Trace

MOST_NAMES = 500
OTHERS = "(other)"
TOKEN = "token"
_MOST_WAITING = 10_000
_PERIOD_S = 0.25


@dataclass(slots=True)
class Sums:
    """Everything since the start, by kernel and device, by device, and by name of region."""

    kernel_s: dict[tuple[str, str], float] = field(default_factory=dict)
    kernel_dispatches: dict[tuple[str, str], int] = field(default_factory=dict)
    kernel_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    """Declared bytes of the timed dispatches: divided by their time, the bandwidth."""
    submissions: dict[str, int] = field(default_factory=dict)
    busy_s: dict[str, float] = field(default_factory=dict)
    region_count: dict[str, int] = field(default_factory=dict)
    region_s: dict[str, float] = field(default_factory=dict)
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _List:
    """What is static about a command list."""

    names: tuple[str, ...]
    kernel: np.ndarray
    """Of each node, -1 for a barrier."""
    bytes: np.ndarray
    amounts: tuple[tuple[int, Amount], ...]
    """Nodes whose bytes depend on values of the submission."""


class Figures:
    """Listens to everything that is committed."""

    probes = False

    def __init__(self, level: Level) -> None:
        self.level = level
        self.lost = 0
        """Submissions that nobody added up, as too many were waiting."""
        self._waiting: deque[Trace | tuple[str, int]] = deque()
        self._depth: dict[str, int] = {}
        self._sums = Sums()
        self._lock = threading.Lock()  # between adding up and reading; never taken by a thread of the program
        self._lists: weakref.WeakKeyDictionary[CommandList, _List] = weakref.WeakKeyDictionary()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._add_up, name="ostinato-export", daemon=True)
        self._thread.start()

    # --- called by the program's threads ------------------------------------------------------------------------

    def expects(self, device: Any) -> None:
        """One more command buffer is on its way."""
        self._depth[device.name] = self._depth.get(device.name, 0) + 1

    def submission(self, trace: Trace) -> None:
        """A command buffer is done."""
        self._depth[trace.device.name] = max(self._depth.get(trace.device.name, 0) - 1, 0)
        self._put(trace)

    def host_span(self, span: HostSpan) -> None:
        """Not exported."""

    def region_begins(self, region: Region) -> None:
        """Counted when it ends."""

    def region_ends(self, region: Region, end_ns: int) -> None:
        """Count it."""
        self._put((region.name, end_ns - region.begin_ns))

    def _put(self, item: Trace | tuple[str, int]) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self.lost += 1
        else:
            self._waiting.append(item)

    # --- called by whoever exports ------------------------------------------------------------------------------

    @property
    def queue_depth(self) -> dict[str, int]:
        """By device: command buffers committed and not done."""
        return dict(self._depth)

    def read(self) -> Sums:
        """The sums so far, with what waits. They are added to later: read them at once."""
        self._take()
        return self._sums

    def close(self) -> None:
        """Stop adding up."""
        self._stop.set()
        self._take()

    # --- adding up ----------------------------------------------------------------------------------------------

    def _add_up(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            self._take()

    def _take(self) -> None:
        with self._lock:
            until = time.monotonic() + 1.0
            while self._waiting and time.monotonic() < until:
                item = self._waiting.popleft()
                if isinstance(item, Trace):
                    self._add(item)
                else:
                    name = self._bounded(item[0], self._sums.region_count)
                    _increase(self._sums.region_count, name, 1)
                    _increase(self._sums.region_s, name, item[1] / 1e9)

    def _add(self, trace: Trace) -> None:
        sums, device = self._sums, trace.device.name
        _increase(sums.submissions, device, 1)
        sums.failed += trace.error is not None
        if trace.start_ns is not None and trace.end_ns is not None:
            _increase(sums.busy_s, device, (trace.end_ns - trace.start_ns) / 1e9)
        if trace.samples is None:
            return
        listed = self._lists.get(trace.commands)
        if listed is None:
            listed = self._lists[trace.commands] = _described(trace.commands)
        starts, ends = trace.samples[:, 0].astype(np.int64), trace.samples[:, 1].astype(np.int64)
        timed = (listed.kernel >= 0) & (starts > 0) & (ends >= starts)
        kernel, size = listed.kernel[timed], len(listed.names)
        moved = listed.bytes
        if listed.amounts:
            moved = moved.copy()
            for node, amount in listed.amounts:
                if amount.params <= trace.values.keys():
                    moved[node] += amount.at(trace.values)
        times = np.bincount(kernel, (ends - starts)[timed], size)
        counts, amounts = np.bincount(kernel, minlength=size), np.bincount(kernel, moved[timed], size)
        for row in np.flatnonzero(counts).tolist():
            key = (self._bounded(listed.names[row], {name for name, _ in sums.kernel_s}), device)
            _increase(sums.kernel_s, key, float(times[row]) / 1e9)
            _increase(sums.kernel_dispatches, key, int(counts[row]))
            _increase(sums.kernel_bytes, key, int(amounts[row]))

    @staticmethod
    def _bounded(name: str, known: Any) -> str:
        return name if name in known or len(known) < MOST_NAMES else OTHERS


def _increase(sums: dict[Any, Any], key: Any, by: Any) -> None:
    sums[key] = sums.get(key, 0) + by


def _described(commands: CommandList) -> _List:
    names: dict[str, int] = {}
    kernel, moved, amounts = [], [], []
    for number, node in enumerate(commands.nodes):
        command = node.command
        if isinstance(command, Barrier):
            kernel.append(-1)
            moved.append(0)
            continue
        if isinstance(command, Dispatch):
            name, both = command.kernel.name, (command.bytes_read, command.bytes_written)
        else:
            read = command.source.nbytes if isinstance(command, Copy) else 0
            name, both = f"({'copy' if isinstance(command, Copy) else 'fill'})", (read, command.target.nbytes)
        kernel.append(names.setdefault(name, len(names)))
        moved.append(sum(each for each in both if isinstance(each, int)))
        amounts += [(number, each) for each in both if isinstance(each, Amount)]
    return _List(tuple(names), np.array(kernel, np.int64), np.array(moved, np.float64), tuple(amounts))
