"""The ceilings of a device, measured with kernels: copy bandwidth, flop rate, and the cost of a timestamp.

Kernels are judged by these, so they are measured with kernels: through the same compiler, on the same workers. They are
cached per device (its description, compiler and workers) and measured again on request. Other load on the machine only
makes a round slower, so the best figure seen so far is kept: a later measurement can raise it and never lowers it. A
figure from a machine on which no three undisturbed rounds agreed is marked as busy, and `of` measures it again once
some minutes have passed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from .. import counters
from ..backends.protocol import Capabilities
from ..base import cache
from ..encode.encoder import CommandEncoder, capture
from ..errors import CacheError, DeviceError
from ..runtime.buffer import allocate
from ..runtime.library import Kernel, compile_library
from ..runtime.queue import Queue
from .analyse.machine import LOST_PART
from .analyse.statistics import Interval, median_interval

# Several times the last-level cache of a workstation, so that memory is what is measured.
_COPY_BYTES = 128 << 20
# Enough for every worker of any device to have several of its largest groups.
_ARITHMETIC_THREADS, _THREADS_PER_WORKER = 1 << 16, 8 << 10
# A list takes at least this long, so that its start does not matter; it contains at most this many repeats.
_LEAST_S, _MOST_REPEATS = 0.002, 64
_ROUNDS = 5
# Rounds are repeated, up to this many times, while the best three differ by more than this part.
_CALM, _TRIES = 0.15, 4
# A machine that was busy a moment ago still is, and measuring takes a second of it.
_BUSY_FOR_S = 300
# No device is that fast; a cached figure above it is damaged.
_ABSURD = 1e18
_CHAIN = 2_000

# Eight chains of multiply-adds, because one waits for itself; straight, so that a compiler vectorises over threads.
_CHAINS, _STEPS = 8, 32
_FLOPS_PER_THREAD = 2 * _CHAINS * _STEPS
_STEP = " ".join(f"a{n} = fma(a{n}, m, b);" for n in range(_CHAINS))

SOURCE = f"""
#include <metal_stdlib>
using namespace metal;

kernel void ceiling_copy(device const float4 *in [[buffer(0)]], device float4 *out [[buffer(1)]],
                         uint id [[thread_position_in_grid]]) {{ out[id] = in[id]; }}

// The same with four loads in flight a thread, which is what it takes on a device whose threads are many and short.
kernel void ceiling_copy_wide(device const float4 *in [[buffer(0)]], device float4 *out [[buffer(1)]],
                              uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {{
    const float4 a = in[id], b = in[id + size], c = in[id + 2 * size], d = in[id + 3 * size];
    out[id] = a; out[id + size] = b; out[id + 2 * size] = c; out[id + 3 * size] = d;
}}

kernel void ceiling_arithmetic(device float *x [[buffer(0)]], constant float &m [[buffer(1)]],
                               constant float &b [[buffer(2)]], uint id [[thread_position_in_grid]]) {{
    float {", ".join(f"a{n} = x[id] + {n}.0f" for n in range(_CHAINS))};
    {" ".join([_STEP] * _STEPS)}
    x[id] = {" + ".join(f"a{n}" for n in range(_CHAINS))};
}}

kernel void ceiling_nothing(device float *x [[buffer(0)]]) {{ x[0] += 1.0f; }}
"""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The best figures seen so far, each with the spread and the date (UTC) of its measurement."""

    copy_bytes_per_s: float
    """Bytes read and bytes written, both counted."""
    copy_spread: float
    """By how much the best three rounds differed, as a part of the best."""
    flops_per_s: float
    flops_spread: float
    timestamp_ns: float
    """The cost of a timestamp: the lowest median seen so far of what timing adds to a dispatch; 0 if lost in noise."""
    timestamp_low_ns: float | None = None
    timestamp_high_ns: float | None = None
    """The 95 % interval of that median; None where there is none."""
    copy_measured: str = ""
    flops_measured: str = ""
    timestamp_measured: str = ""
    copy_busy: bool = False
    """The machine was busy, so the figure may be too low."""
    flops_busy: bool = False

    @property
    def busy(self) -> bool:
        """Whether a figure may be too low."""
        return self.copy_busy or self.flops_busy

    def columns(self) -> dict[str, Any]:
        """The figures as columns of a recording's table of devices."""
        return {
            "copy_bytes_per_s": self.copy_bytes_per_s,
            "copy_spread": self.copy_spread,
            "copy_measured_ns": _realtime_ns(self.copy_measured),
            "flops_per_s": self.flops_per_s,
            "flops_spread": self.flops_spread,
            "flops_measured_ns": _realtime_ns(self.flops_measured),
            "ceilings_busy": self.busy,
            "timestamp_cost_ns": self.timestamp_ns,
        }


def measure(queue: Queue) -> Ceilings:
    """Measures the ceilings now, in less than a second on a CPU, or up to three times as long on a busy machine."""
    with counters.uncounted():
        library = compile_library(queue, SOURCE)
        count = _COPY_BYTES // 16
        source, target = allocate(queue, (count, 4), np.float32), allocate(queue, (count, 4), np.float32)
        copies = (
            _best_s(queue, lambda enc: enc.dispatch(library["ceiling_copy"], source, target, threads=count)),
            _best_s(queue, lambda enc: enc.dispatch(library["ceiling_copy_wide"], source, target, threads=count // 4)),
        )
        copy = replace(min(copies), busy=any(copy.busy for copy in copies))
        threads = max(_ARITHMETIC_THREADS, _THREADS_PER_WORKER * queue.backend.capabilities.workers)
        values = allocate(queue, threads, np.float32)
        arithmetic = _best_s(
            queue, lambda enc: enc.dispatch(library["ceiling_arithmetic"], values, 0.5, 0.25, threads=threads)
        )
        timestamp = _timestamp_ns(queue, library["ceiling_nothing"])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Ceilings(
        copy_bytes_per_s=2 * _COPY_BYTES / copy.least_s,
        copy_spread=copy.spread,
        flops_per_s=threads * _FLOPS_PER_THREAD / arithmetic.least_s,
        flops_spread=arithmetic.spread,
        timestamp_ns=timestamp.estimate,
        timestamp_low_ns=timestamp.low,
        timestamp_high_ns=timestamp.high,
        copy_measured=now,
        flops_measured=now,
        timestamp_measured=now,
        copy_busy=copy.busy,
        flops_busy=arithmetic.busy,
    )


def of(queue: Queue, anew: bool = False) -> Ceilings:
    """The best figures known of the device; measured if there are none, or if the machine was busy a while ago.

    `anew` measures in any case, and may improve them.
    """
    key = _key(queue)
    cached = None if anew else known(queue)
    if cached is not None and not (cached.busy and _last_tried_s(key) > _BUSY_FOR_S):
        return cached

    def better() -> str:
        measured = measure(queue)
        before = known(queue)  # looked up now: another process may have measured at the same time
        return json.dumps(asdict(measured if before is None else best_of(before, measured)))

    best = _read(cache.note(key, better, anew=True))
    assert best is not None
    cache.note(f"{key}-tried", lambda: str(time.time_ns()), anew=True)
    return best


def _last_tried_s(key: str) -> float:
    """How long ago the ceilings of a device were last measured, with or without success."""
    try:
        ago_ns = time.time_ns() - int(cache.note(f"{key}-tried", str))
    except ValueError:
        return math.inf
    return ago_ns / 1e9 if ago_ns >= 0 else math.inf


def known(queue: Queue) -> Ceilings | None:
    """The cached figures of the device; None if there are none. Measures nothing."""
    try:
        return _read(cache.note(_key(queue), _not_cached))
    except (LookupError, CacheError):
        return None


def best_of(first: Ceilings, second: Ceilings) -> Ceilings:
    """The better figures of two measurements of the same device, each with its spread and date."""
    copy = max(first, second, key=lambda each: each.copy_bytes_per_s)
    flops = max(first, second, key=lambda each: each.flops_per_s)
    # A cost of 0 was lost in noise; the lowest cost that was measured is kept.
    stamp = min(first, second, key=lambda each: each.timestamp_ns or math.inf)
    return replace(
        stamp,
        copy_bytes_per_s=copy.copy_bytes_per_s,
        copy_spread=copy.copy_spread,
        copy_measured=copy.copy_measured,
        # What is as good as the figure of an idle machine is not too low, wherever it was measured.
        copy_busy=first.copy_busy and second.copy_busy,
        flops_per_s=flops.flops_per_s,
        flops_spread=flops.flops_spread,
        flops_measured=flops.flops_measured,
        flops_busy=first.flops_busy and second.flops_busy,
    )


def _not_cached() -> str:
    raise LookupError


def _read(text: str) -> Ceilings | None:
    """The figures of a cache entry; None if it is damaged or of another version."""
    try:
        facts = json.loads(text)
        if not isinstance(facts, dict) or set(facts) != {field.name for field in fields(Ceilings)}:
            return None
        has_interval = facts["timestamp_low_ns"] is not None or facts["timestamp_high_ns"] is not None
        ceilings = Ceilings(
            copy_bytes_per_s=_number(facts["copy_bytes_per_s"]),
            copy_spread=_number(facts["copy_spread"]),
            flops_per_s=_number(facts["flops_per_s"]),
            flops_spread=_number(facts["flops_spread"]),
            timestamp_ns=_number(facts["timestamp_ns"]),
            timestamp_low_ns=_number(facts["timestamp_low_ns"]) if has_interval else None,
            timestamp_high_ns=_number(facts["timestamp_high_ns"]) if has_interval else None,
            copy_measured=_date(facts["copy_measured"]),
            flops_measured=_date(facts["flops_measured"]),
            timestamp_measured=_date(facts["timestamp_measured"]),
            copy_busy=_flag(facts["copy_busy"]),
            flops_busy=_flag(facts["flops_busy"]),
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return ceilings if ceilings.copy_bytes_per_s > 0 and ceilings.flops_per_s > 0 else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _ABSURD:
        raise ValueError(value)
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _date(value: Any) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).isoformat(timespec="seconds")


def _realtime_ns(date: str) -> int | None:
    return round(datetime.fromisoformat(date).timestamp()) * 10**9 if date else None


def _key(queue: Queue) -> str:
    return f"ceilings-{_identity(queue.backend.capabilities)}"


def _identity(device: Capabilities) -> str:
    facts = (device.backend, device.description, str(device.workers), *sorted(device.details.values()), SOURCE)
    return cache.digest(*facts)[:32]


@dataclass(frozen=True, slots=True, order=True)
class _Best:
    """The result of some rounds."""

    least_s: float
    spread: float
    """By how much the best three differed, as a part of the best."""
    busy: bool
    """Other programs took time in too many of them, or the best three still differed."""


class _Work:
    """A list that runs again and again, outside of profiles."""

    def __init__(self, queue: Queue, encode: Callable[[CommandEncoder], object]) -> None:
        self._queue = queue
        self._graph = capture(queue, encode)
        self._executable = queue.backend.instantiate(self._graph.command_list)

    def run(self, sample: bool = True) -> tuple[float, float]:
        """Seconds on the device, and the share of its workers' time that other programs took (0 if not known)."""
        backend, graph = self._queue.backend, self._graph
        submission = self._queue.submit(
            graph.command_list,
            lambda started: backend.replay(self._executable, b"", sample, started),
            uses=[memory.allocation.backing for memory in graph.memories.values() if memory.allocation],
            keep=graph,
            label=None,
        )
        submission._wait_until(None)
        times = submission.gpu_time
        if times is None:
            raise DeviceError(f"device {self._queue.name!r} does not say when work ran: nothing can be measured on it")
        assert submission._run is not None
        spent = submission._run.worker_time() if sample else None
        lost = 0.0 if spent is None else spent.lost_ns / max(spent.worked_ns, 1)
        return max(times[1] - times[0], 1) / 1e9, lost


def _best_s(queue: Queue, encode: Callable[[CommandEncoder], object]) -> _Best:
    """The least seconds on the device of a few rounds.

    The first rounds, of which one touches memory for the first time, only say how often to repeat it in a list.
    """
    once = _Work(queue, encode)
    once.run()
    repeats = min(math.ceil(_LEAST_S / once.run()[0]), _MOST_REPEATS)

    def repeated(encoder: CommandEncoder) -> None:
        for _ in range(repeats):
            encode(encoder)

    work = _Work(queue, repeated)
    best = _calm(lambda: [work.run() for _ in range(_ROUNDS)])
    return replace(best, least_s=best.least_s / repeats)


def _calm(rounds: Callable[[], list[tuple[float, float]]]) -> _Best:
    """The best of some rounds, undisturbed ones where there are three; more rounds while those differ."""
    results: list[tuple[float, float]] = []
    best = _Best(math.inf, math.inf, True)
    for _ in range(_TRIES):
        results += rounds()
        undisturbed = sorted(seconds for seconds, lost in results if lost <= LOST_PART)
        enough = len(undisturbed) >= 3
        fastest = undisturbed if enough else sorted(seconds for seconds, _ in results)
        spread = (fastest[2] - fastest[0]) / fastest[0]
        best = _Best(fastest[0], spread, not enough or spread > _CALM)
        if not best.busy:
            break
    return best


def _timestamp_ns(queue: Queue, kernel: Kernel) -> Interval:
    """The cost of a timestamp, from sampled and unsampled runs of one chain, alternately."""
    x = allocate(queue, 1, np.float32)

    def chain(enc: CommandEncoder) -> None:
        for _ in range(_CHAIN):
            enc.dispatch(kernel, x, threads=1)

    work = _Work(queue, chain)
    rounds = [(work.run(True)[0], work.run(False)[0]) for _ in range(2 * _ROUNDS + 1)][1:]
    cost = median_interval([(with_samples - without) * 1e9 / _CHAIN for with_samples, without in rounds])
    assert cost is not None
    # No timestamp makes a dispatch faster.
    return Interval(max(cost.estimate, 0.0), max(cost.low, 0.0), max(cost.high, 0.0), cost.confidence)
