"""Host time around replays: starting, waiting, reading, binding other buffers, reading every token of a decoder.

* starting: until `replay` returns, eight in a row and one after a wait, with a parameter changed each time; also eight
  by one call of `replay_many`. On CUDA torch replays a graph of its own beside it.
* by size: one after a wait, for graphs of growing length (CPU).
* reading: what `numpy()` of 4 bytes and of 4 KiB takes after a wait; torch reads an element.
* binding: what `replay` with another buffer each time spends on it, for one node and for all of 1,000; timed ones are
  replayed under a profile. "in turns" is a replay with two buffers in turns.
* tokens: time per token, not read, read by `step` one by one, and read by `following` while the next is computed.

    python bench/latency.py [--device cpu|cuda] [--preset NAME] [--json] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# The folder of this file has a module with the name of a package, so it is looked through only afterwards.
_HERE = sys.path.pop(0)
with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import numpy as np

import ostinato as ost
from ostinato import models

sys.path.append(_HERE)

from harness import Table, interleaved, median, report

COUNT = 1_000
SIZES = (10, 100, 1_000, 10_000, 100_000)
TOKENS = 100

METAL = """
#include <metal_stdlib>
using namespace metal;
kernel void add_value(device float *x [[buffer(0)]], constant float &by [[buffer(1)]],
                      uint id [[thread_position_in_grid]]) { x[id] += by; }
"""


def spent_us(work: Callable[[], object], per: int = 1) -> float:
    begin = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - begin) / 1000 / per


class Bench:
    """Everything on one device."""

    def __init__(self, device: str, preset: str, rounds: int) -> None:
        self.device = ost.open_device(device)
        self.on_cuda = device.startswith("cuda")
        self.preset, self.rounds = preset, rounds
        self.kernel = self.device.library(METAL)["add_value"]
        self.threads = 256 if self.on_cuda else 1
        self.x = self.device.zeros(1024, np.float32)

    def chain(self, count: int) -> ost.Replayable:
        def encode(encoder: ost.CommandEncoder) -> None:
            for _ in range(count):
                encoder.dispatch(self.kernel, self.x, ost.param("by", np.float32), threads=self.threads)

        return self.device.capture(encode).instantiate()

    def starting(self) -> Table:
        run = self.chain(COUNT)
        rows: list[tuple[object, ...]] = []

        def ours(start: Callable[[], ost.Submission], per: int) -> Callable[[], float]:
            def once() -> float:
                started: list[ost.Submission] = []
                took = spent_us(lambda: started.append(start()), per)
                started[0].wait()
                return took

            return once

        def eight() -> ost.Submission:
            for by in range(7):
                run.replay(by=float(by))
            return run.replay(by=7.0)

        values = [float(by) for by in range(8)]
        contenders = {
            "eight in a row": ours(eight, 8),
            "one, after a wait": ours(lambda: run.replay(by=1.0), 1),
            "eight by replay_many": ours(lambda: run.replay_many(by=values)[-1], 8),
        }
        if self.on_cuda:
            contenders |= self._torch_starts()
        found = interleaved(contenders, 5 * self.rounds)
        rows += [(name, round(median(times), 2), round(min(times), 2)) for name, times in found.items()]
        return Table(f"starting a graph of {COUNT:,}, host µs a replay", ("what", "median", "least"), rows)

    def _torch_starts(self) -> dict[str, Callable[[], float]]:
        import torch

        tensor, graph = torch.zeros(256, device="cuda"), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(COUNT):
                tensor.add_(1)
        self._torch = tensor

        def timed(count: int) -> float:
            took = spent_us(lambda: [graph.replay() for _ in range(count)], count)
            torch.cuda.synchronize()
            return took

        return {"torch, eight in a row": lambda: timed(8), "torch, one after a wait": lambda: timed(1)}

    def by_size(self) -> Table:
        rows = []
        for size in SIZES:
            run = self.chain(size)
            calls = []
            for _ in range(2 * self.rounds):
                begin = time.perf_counter_ns()
                submission = run.replay(by=1.0)
                calls.append((time.perf_counter_ns() - begin) / 1000)
                submission.wait()
            rows.append((f"{size:,}", round(median(calls), 2), round(min(calls), 2)))
        return Table("starting, one after a wait, by size, host µs", ("N", "median", "least"), rows)

    def reading(self) -> Table:
        run = self.chain(10)
        word, page = self.x[:1], self.x

        def after_wait(read: Callable[[], object]) -> Callable[[], float]:
            def once() -> float:
                run.replay(by=1.0).wait()
                return spent_us(read)

            return once

        contenders = {"4 bytes": after_wait(word.numpy), "4 KiB": after_wait(page.numpy)}
        if self.on_cuda:
            import torch

            element = torch.zeros(1, device="cuda")

            def by_torch() -> float:
                element.add_(1)
                torch.cuda.synchronize()
                return spent_us(element.item)

            contenders["torch, an element"] = by_torch
        found = interleaved(contenders, 10 * self.rounds)
        rows = [(name, round(median(times), 2), round(min(times), 2)) for name, times in found.items()]
        return Table("reading after a wait, µs", ("what", "median", "least"), rows)

    def binding(self) -> Table:
        rows = []
        for used in (1, COUNT):
            for timed in (False, True):
                spent, turns = self._bound(used, timed)
                what = f"{used:,} of {COUNT:,} nodes{', timed' if timed else ''}"
                rows.append((what, round(spent[0] / 1000, 1), round(median(spent[2:]), 1), round(turns, 1)))
        columns = ("buffer used by", "first, ms", "another each time, µs", "in turns, µs a replay")
        return Table("binding other buffers", columns, rows)

    def _bound(self, used: int, timed: bool) -> tuple[list[float], float]:
        x, y = self.device.zeros(256, np.float32), self.device.zeros(256, np.float32)

        def encode(encoder: ost.CommandEncoder) -> None:
            for at in range(COUNT):
                encoder.dispatch(self.kernel, x if at < used else y, 1.0, threads=self.threads)

        run = self.device.capture(encode).named(x=x).instantiate()
        others = [self.device.zeros(256, np.float32) for _ in range(3 * self.rounds + 2)]

        def bind() -> list[float]:
            spent = []
            for other in others:
                submission = run.replay(x=other)
                submission.wait()
                spent.append(submission.rebind_ns / 1000)
            return spent

        if timed:
            with ost.profile(level="dispatches"):
                spent = bind()
        else:
            spent = bind()
        assert run.rebuild_count == 1, "addresses were not changed in place"
        assert all(other.numpy()[0] == used for other in others)
        for at in range(6):
            run.replay(x=others[at % 2]).wait()
        calls = []
        for at in range(2 * self.rounds):
            begin = time.perf_counter_ns()
            submission = run.replay(x=others[at % 2])
            calls.append((time.perf_counter_ns() - begin) / 1000)
            submission.wait()
        return spent, median(calls)

    def tokens(self) -> Table:
        weights: Any = models.random_weights(models.preset(self.preset))
        dtype = "bfloat16" if self.on_cuda else "float32"
        decoder = models.Decoder(self.device, weights, capacity=TOKENS + 8, dtype=dtype)
        decoder.prefill([1, 2, 3, 4])

        def unread() -> None:
            for _ in range(TOKENS):
                decoder._replay()
            decoder.next_token  # noqa: B018  (waits for all)

        def stepped() -> None:
            for _ in range(TOKENS):
                decoder.step()

        def followed() -> None:
            for _ in decoder.following(TOKENS):
                pass

        def per_token_ms(work: Callable[[], None]) -> Callable[[], float]:
            def once() -> float:
                decoder.position = 4
                return spent_us(work, TOKENS) / 1000

            return once

        contenders = {"not read": unread, "read by step()": stepped, "read by following()": followed}
        found = interleaved({name: per_token_ms(work) for name, work in contenders.items()}, self.rounds)
        base = median(found["not read"])
        rows = [(name, round(median(times), 4), round(median(times) - base, 4)) for name, times in found.items()]
        return Table(f"{self.preset}, ms a token", ("what", "ms", "more than not read"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--preset", default="", help="the decoder; tiny on the CPU and llama-1b on CUDA unless given")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    on_cuda = given.device.startswith("cuda")
    bench = Bench(given.device, given.preset or ("llama-1b" if on_cuda else "tiny"), given.rounds)
    parts = [bench.starting, bench.reading, bench.binding, bench.tokens]
    if not on_cuda:
        parts.insert(1, bench.by_size)
    report([part() for part in parts], given.json)


if __name__ == "__main__":
    main()
