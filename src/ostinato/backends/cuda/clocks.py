"""Device time in host time.

Kernels read the device's nanosecond counter; the host reads its own clock. A small kernel on a stream of its own meets
the host in memory that both see: the host writes a number, the device answers with its time, and the host knows the
device's time to half of what the exchange took. The best of a few rounds is a pair; a line through the pairs maps
times. Command buffers are timed by events, which know no counter; so an event is put between that kernel and another
that says when it began, and an event of a submission is placed by its distance from it.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from ...clock import Clock, ClockPair
from ...errors import DeviceError
from .api import Context, call
from .memory import Pinned

_ROUNDS = 8
_RENEW_NS = 200_000_000
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
        self._latest_ns = 0
        self._running = False
        self.line = Clock()
        self.event_uncertainty_ns = 0.0
        """How well an event is known in device time."""
        # Other processes on the device take turns with this one, so it may not answer for a while.
        deadline_ns = time.monotonic_ns() + _OPENING_NS
        while len(self.line) < 2:
            if not self._take(_OPENING_NS // 10) and time.monotonic_ns() > deadline_ns:
                raise DeviceError("cuda: the device does not answer, so its times cannot be told; is it very busy?")
            time.sleep(0.001)

    def renew(self) -> bool:
        """Take another pair if the last is old; False when the device was too busy to answer at once."""
        if time.monotonic_ns() - self._latest_ns < _RENEW_NS:
            return True
        return self._take(_PATIENCE_NS)

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
            self._launch(self._kernel, (self._shared.device, replies, _ROUNDS), (_ADDRESS, _ADDRESS, ctypes.c_uint32))
            # Both are in the stream while the kernel still waits for the host, so nothing comes late.
            call(cu.cuEventRecord, event, self._stream)
            self._launch(self._mark, (replies + 8 * (_ROUNDS + 2),), (_ADDRESS,))
            self._running = True
            pair = self._meet(patience_ns)
            if pair is None:
                self._destroy(event)
                return False
            call(cu.cuStreamSynchronize, self._stream)
            self._running = False
            self.line.add(pair)
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

    def event_ticks(self, event: Any) -> int:
        """The device time of an event that has happened."""
        elapsed_ms: float = call(self._cu.cuEventElapsedTime, self._reference, event)
        return self._reference_ticks + round(elapsed_ms * 1e6)

    @property
    def uncertainty_ns(self) -> float:
        """How well a time is known in host time."""
        return self.line.fit.uncertainty_ns + self.event_uncertainty_ns

    def _destroy(self, *events: Any) -> None:
        for event in events:
            if event is not None:
                self._cu.cuEventDestroy(event)

    def close(self) -> None:
        """Give everything back."""
        with self._context.current():
            self._cu.cuStreamSynchronize(self._stream)
            self._destroy(self._reference)
            self._cu.cuStreamDestroy(self._stream)
        self._shared.free()
