"""Device time in host time.

Kernels read the device's nanosecond counter; the host reads its own clock. A small kernel on its own stream exchanges
readings with the host through shared memory: the host writes a number, the device answers with its time, and so the
device's time is known to half the duration of the exchange. The best of a few rounds is a pair; a line through the
pairs maps times. The counter counts nanoseconds, so until the pairs are far enough apart for a better estimate, the
rate is taken to be one. Replays are timed by that counter too. Lists are timed by events, which do not read it: a
reference event is recorded between that kernel and another one that reads the counter, and an event of a submission is
placed by its distance from the reference.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from typing import Any

import numpy as np

from ...base.locks import ForkLock
from ...errors import DeviceError, OstinatoError
from ..clock import Clock, ClockFit, ClockPair
from .api import Context, call
from .memory import Pinned

_ROUNDS = 8
_RENEW_NS = 200_000_000
_LONG_ENOUGH_NS = 100_000_000
_PATIENCE_NS = 300_000
_OPENING_NS = 3_000_000_000
_REPLIES_AT = 64
_ADDRESS = ctypes.c_uint64


class DeviceClock:
    """The clocks of one device."""

    def __init__(self, context: Context, kernel: Any, mark: Any) -> None:
        self._context = context
        self._cu = cu = context.cu
        self._kernel = kernel
        self._mark = mark
        self._shared = Pinned(context, 4096)
        self._round = ctypes.c_uint32.from_address(self._shared.host)
        self._replies = (ctypes.c_uint64 * (_ROUNDS + 3)).from_address(self._shared.host + _REPLIES_AT)
        _, highest = call(cu.cuCtxGetStreamPriorityRange)
        self._stream = call(cu.cuStreamCreateWithPriority, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), highest)
        self._reference: Any = None
        self._reference_ticks = 0
        self._latest_ns = self._not_before_ns = 0
        self._running = False
        self._lock = ForkLock()
        self._pair: ClockPair | None = None
        self._line = Clock()
        self.event_uncertainty_ns = 0.0
        """The uncertainty of an event in device time."""
        # The device time-slices between processes, so it may not answer for a while.
        deadline_ns = time.monotonic_ns() + _OPENING_NS
        while len(self._line) < 2:
            if not self._take(_OPENING_NS // 10) and time.monotonic_ns() > deadline_ns:
                raise DeviceError("cuda: the device does not answer, so its clock cannot be read; is it very busy?")
            time.sleep(0.001)

    def interval(self, start: Any, end: Any) -> tuple[int, int]:
        """The host times of two events. Their distance is exact, whenever this is called."""
        with self._lock, self._context.current():
            self._renew()
            since_ms: float = call(self._cu.cuEventElapsedTime, self._reference, start)
            took_ms: float = call(self._cu.cuEventElapsedTime, start, end)
            begin_ns = self._fit().host_ns(self._reference_ticks + round(since_ms * 1e6))
            return begin_ns, begin_ns + round(took_ms * 1e6)

    def between(self, begin: int, end: int) -> tuple[int, int]:
        """Two device times in host time."""
        with self._lock:
            # If there is no new pair (the device may be lost), the line so far is used.
            with suppress(OstinatoError), self._context.current():
                self._renew()
            fit = self._fit()
            return fit.host_ns(begin), fit.host_ns(end)

    def host_ns_of(self, ticks: np.ndarray) -> np.ndarray:
        """Device times in host time; zero means no time and stays zero."""
        with self._lock:
            host_times = self._fit().host_ns_of(ticks).astype(np.uint64)
        host_times[ticks == 0] = 0
        return host_times

    @property
    def uncertainty_ns(self) -> float:
        """The uncertainty of a time in host time."""
        return (0.0 if self._pair is None else self._pair.uncertainty_ns) + self.event_uncertainty_ns

    def _fit(self) -> ClockFit:
        line = self._line.fit
        if line.last_ticks - line.first_ticks >= _LONG_ENOUGH_NS or self._pair is None:
            return line
        # Pairs too close together would give a worse rate than the counter's nominal one.
        pair = self._pair
        return ClockFit(pair.host_ns, pair.ticks, 1.0, pair.uncertainty_ns, 1, pair.ticks, pair.ticks)

    def _renew(self) -> None:
        """Take another pair if the last is old, unless the device is too busy to answer at once."""
        now_ns = time.monotonic_ns()
        if now_ns - self._latest_ns < _RENEW_NS or now_ns < self._not_before_ns:
            return
        if not self._take(_PATIENCE_NS):
            self._not_before_ns = time.monotonic_ns() + _RENEW_NS

    def _take(self, patience_ns: int) -> bool:
        begin_ns = time.monotonic_ns()
        cu = self._cu
        with self._context.current():
            if self._running:
                if int(cu.cuStreamQuery(self._stream)[0]):
                    return False
                self._running = False
            ctypes.memset(self._shared.host, 0, _REPLIES_AT + ctypes.sizeof(self._replies))
            event = call(cu.cuEventCreate, 0)
            replies = self._shared.device + _REPLIES_AT
            self._running = True
            self._launch(self._kernel, (self._shared.device, replies, _ROUNDS), (_ADDRESS, _ADDRESS, ctypes.c_uint32))
            # Both are enqueued while the kernel still waits for the host, so they follow it without a gap.
            call(cu.cuEventRecord, event, self._stream)
            self._launch(self._mark, (replies + 8 * (_ROUNDS + 2),), (_ADDRESS,))
            pair = self._meet(patience_ns)
            if pair is None:
                self._round.value = _ROUNDS  # a kernel that starts late then ends at once
                self._destroy(event)
                return False
            call(cu.cuStreamSynchronize, self._stream)
            self._running = False
            self._line.add(pair)
            self._pair = pair
            left, came = self._replies[_ROUNDS + 1], self._replies[_ROUNDS + 2]
            self._reference_ticks = (left + came) // 2
            self.event_uncertainty_ns = (came - left) / 2
            self._destroy(self._reference)
            self._reference = event
            self._latest_ns = begin_ns
        return True

    def _launch(self, kernel: Any, values: tuple[int, ...], types: tuple[Any, ...]) -> None:
        call(self._cu.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, self._stream, (values, types), 0)

    def _meet(self, patience_ns: int) -> ClockPair | None:
        best: ClockPair | None = None
        deadline_ns = time.monotonic_ns() + patience_ns
        while not self._replies[0]:
            if time.monotonic_ns() > deadline_ns:
                return None
        for number in range(1, _ROUNDS + 1):
            sent_ns = came_ns = time.monotonic_ns()
            self._round.value = number
            while not self._replies[number]:
                if came_ns > deadline_ns:
                    return None
                came_ns = time.monotonic_ns()
            came_ns = time.monotonic_ns()
            half_ns = (came_ns - sent_ns) / 2
            if best is None or half_ns < best.uncertainty_ns:
                best = ClockPair(round(sent_ns + half_ns), self._replies[number], half_ns)
        return best

    def _destroy(self, *events: Any) -> None:
        for event in events:
            if event is not None:
                self._cu.cuEventDestroy(event)

    def close(self) -> None:
        """Release everything."""
        with self._context.current():
            self._cu.cuStreamSynchronize(self._stream)
            self._destroy(self._reference)
            self._cu.cuStreamDestroy(self._stream)
        self._shared.close()
