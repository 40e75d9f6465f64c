"""`ostinato demo`: a transformer decoder that is run, checked and profiled.

A small mixture of experts with random weights generates meaningless text, with the kernels and the graph of a real
model. Its tokens are compared with those of the reference decoder in NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import ops
from .device import Device
from .models import Decoder, ReferenceDecoder, preset, random_weights
from .profiling.analyse import Summary
from .profiling.session import profile
from .runtime.tracing import region

PRESET = "tiny-moe"
PROMPT = tuple(b"An ostinato is a figure repeated without pause.")
TOKENS = 150
_CHECKED = 32


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a demonstration."""

    tokens: list[int]
    tokens_per_s: float
    """Measured without a profile."""
    correct: bool
    """Whether the tokens are those of the decoder in NumPy."""
    dispatches: int
    """Per token."""
    summary: Summary


def run(
    device: Device, path: Path, slow_topk: bool = False, say: Callable[[str], None] = lambda what: None
) -> DemoResult:
    """Generate tokens without and then with a profile, saved to `path`; `slow_topk` chooses experts serially."""
    weights = random_weights(preset(PRESET))
    say("compiling kernels")
    route = ops.serial_topk if slow_topk else ops.moe_route
    decoder = Decoder(device, weights, capacity=len(PROMPT) + TOKENS + 1, route=route)
    say("generating")
    decoder.generate(PROMPT, 8)  # warm-up
    decoder.reset()
    decoder.prefill(PROMPT)
    begin = time.perf_counter()
    tokens = [decoder.step() for _ in range(TOKENS)]
    tokens_per_s = TOKENS / (time.perf_counter() - begin)
    say("generating, profiled")
    decoder.reset()
    with profile(path=path, with_source=True) as recorded:
        decoder.prefill(PROMPT)
        for _ in range(TOKENS):
            with region("token"):
                decoder.step()
    say("comparing with NumPy")
    expected = ReferenceDecoder(weights).generate(PROMPT, _CHECKED + 1)[1:]
    return DemoResult(tokens, tokens_per_s, tokens[:_CHECKED] == expected, len(decoder.graph), recorded.summary())
