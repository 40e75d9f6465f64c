"""The best that a device can do, measured on it: moving bytes, arithmetic, and what a timestamp costs.

A kernel is judged by these, so they are measured with kernels: through the same compiler, on the same workers. They are
remembered per device (its description, compiler and workers) and measured anew on request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from . import cache, counters
from .backends.protocol import Capabilities
from .buffer import allocate
from .encoder import CommandEncoder
from .graph import Graph
from .pipeline import Kernel, compile_library
from .submission import Queue, Submission

# Several times the last-level cache of a workstation, so that memory is what is measured.
_COPY_BYTES = 128 << 20
_ARITHMETIC_THREADS = 1 << 16
_REPEATS = 16
_ROUNDS = 5
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
    """The best of a few rounds, and how much they differed (as a share of the best)."""

    copy_bytes_per_s: float
    """Bytes read and bytes written, both counted."""
    copy_spread: float
    flops_per_s: float
    flops_spread: float
    timestamp_ns: float
    """What taking down the times of one dispatch adds to it; never below zero."""


def measure(queue: Queue) -> Ceilings:
    """Measure now; takes about a second on a CPU."""
    with counters.uncounted():
        library = compile_library(queue, SOURCE)
        count = _COPY_BYTES // 16
        source, target = allocate(queue, (count, 4), np.float32), allocate(queue, (count, 4), np.float32)
        copy_s = _rounds(queue, lambda enc: enc.dispatch(library["ceiling_copy"], source, target, threads=count))
        values = allocate(queue, _ARITHMETIC_THREADS, np.float32)
        threads = values.size

        def arithmetic(enc: CommandEncoder) -> None:
            for _ in range(_REPEATS):
                enc.dispatch(library["ceiling_arithmetic"], values, 0.5, 0.25, threads=threads)

        arithmetic_s = _rounds(queue, arithmetic)
        timestamp_ns = _timestamp_ns(queue, library["ceiling_nothing"])
    # A ceiling is the best that was reached: whatever disturbs a round only makes it slower.
    copied, computed = float(copy_s.min()), float(arithmetic_s.min())
    return Ceilings(
        copy_bytes_per_s=2 * _COPY_BYTES / copied,
        copy_spread=float(np.ptp(copy_s)) / copied,
        flops_per_s=_REPEATS * threads * _FLOPS_PER_THREAD / computed,
        flops_spread=float(np.ptp(arithmetic_s)) / computed,
        timestamp_ns=timestamp_ns,
    )


def of(queue: Queue, anew: bool = False) -> Ceilings:
    """What is known of the device, measured if nothing is."""
    key = f"ceilings-{_identity(queue.backend.capabilities)}"
    text = cache.note(key, lambda: json.dumps(asdict(measure(queue))), anew)
    try:
        found = Ceilings(**{name: float(value) for name, value in json.loads(text).items()})
        if all(math.isfinite(value) and value >= 0 for value in asdict(found).values()):
            return found
    except (ValueError, TypeError, AttributeError):
        pass  # a note of another version, or damaged
    return of(queue, anew=True) if not anew else measure(queue)


def _identity(able: Capabilities) -> str:
    facts = (able.backend, able.description, str(able.workers), *sorted(able.details.values()), SOURCE)
    return cache.digest(*facts)[:32]


def _captured(queue: Queue, encode: Callable[[CommandEncoder], object]) -> Graph:
    encoder = CommandEncoder(queue, None, "auto", True)
    encoder.start_capture()
    encode(encoder)
    graph = encoder.take_capture()
    assert graph is not None
    return graph


def _rounds(queue: Queue, encode: Callable[[CommandEncoder], object]) -> np.ndarray:
    """Seconds on the device, of each round; the first, which touches memory for the first time, is left out."""
    run = _captured(queue, encode).instantiate()
    return np.array([_done_s(run.replay()) for _ in range(_ROUNDS + 1)][1:])


def _done_s(submission: Submission) -> float:
    submission._wait_until(None)
    times = submission.gpu_time
    assert times is not None
    return max(times[1] - times[0], 1) / 1e9


def _timestamp_ns(queue: Queue, kernel: Kernel) -> float:
    """Sampled against unsampled runs of one chain, taking turns."""
    x = allocate(queue, 1, np.float32)

    def chain(enc: CommandEncoder) -> None:
        for _ in range(_CHAIN):
            enc.dispatch(kernel, x, threads=1)

    graph = _captured(queue, chain)
    backend = queue.backend
    native, _ = backend.instantiate(graph.commands, graph.lowered, graph.ordering, {})

    def seconds(sample: bool) -> float:
        submission = queue.submit(
            graph.commands,
            lambda handle: backend.replay(native, b"", sample, handle),
            uses=[memory.allocation.backing for memory in graph.memories.values() if memory.allocation],
            keep=graph,
            label=None,
        )
        return _done_s(submission)

    rounds = [(seconds(True), seconds(False)) for _ in range(2 * _ROUNDS + 1)][1:]
    added = float(np.median([with_samples - without for with_samples, without in rounds]))
    return max(added, 0.0) * 1e9 / _CHAIN
