"""The decoder of `ostinato.models` beside `transformers` on the same weights, a token at a time, in one run.

torch makes random weights on the device and lends them to our decoder, which copies only what it joins. A prompt is
taken in, then tokens are timed: each is the likeliest after those before, and is read by the host before the next one
(on a GPU also timed without reading). Bandwidth counts every weight as read once a token (a row of an embedding that is
not the head too), and nothing else; a copy of memory counts as read and written. What all contenders say is compared
first: greedy tokens, and logits behind tokens that are given.

Memory of ours: on the CPU the peak of a process that makes the decoder from random weights and decodes, beyond what it
had with everything loaded and a small decoder done; on a GPU the lent weights that ours reads where they are, and what
the device has less of when ours has been made and has decoded.

    python bench/decode.py [--device cpu] [--preset tiny] [--preset qwen3-0.6b] [--dtype bfloat16] [--json]
    python bench/decode.py --device cuda [--preset llama-1b] [--preset llama-8b] [--contender ostinato]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import numpy as np

import ostinato as ost
from ostinato import models
from ostinato.profiling.analyse import columns_of
from ostinato.profiling.analyse.timeline import line_of

sys.path.append(_HERE)

from harness import Table, interleaved, median, ratio, report

NAMES = ("ostinato", "eager", "static", "graph", "compile")
USUAL = {"cpu": ("ostinato", "eager", "static"), "cuda": ("ostinato", "eager", "graph", "compile")}
COMPARED = 16
MB = 1e6


class Contender(Protocol):
    """A decoder that goes a token at a time, and leaves the next one on the device."""

    def start(self, prompt: Sequence[int]) -> None: ...

    def step(self) -> None: ...

    def read(self) -> int: ...

    def force(self, token: int) -> np.ndarray: ...


class Ours:
    """A replay a token."""

    def __init__(self, device: ost.Device, weights: models.Weights, capacity: int, dtype: str) -> None:
        self.decoder = models.Decoder(device, weights, capacity=capacity, dtype=dtype)

    def start(self, prompt: Sequence[int]) -> None:
        self.decoder.reset()
        self.decoder.prefill(prompt)

    def step(self) -> None:
        self.decoder._replay()

    def read(self) -> int:
        return self.decoder.next_token

    def force(self, token: int) -> np.ndarray:
        return self.decoder.force(token)


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGIN:6.1f} s] {text}", file=sys.stderr, flush=True)


BEGIN = time.perf_counter()


def prompt_of(config: models.DecoderConfig, length: int) -> list[int]:
    return np.random.default_rng(3).integers(0, config.vocab_size, length).tolist()


def generate(one: Contender, prompt: Sequence[int], tokens: int) -> list[int]:
    one.start(prompt)
    found = []
    for _ in range(tokens):
        found.append(one.read())
        one.step()
    return found


def seconds_a_token(one: Contender, prompt: Sequence[int], tokens: int, read: bool) -> float:
    one.start(prompt)
    one.read()
    begin = time.perf_counter()
    for _ in range(tokens):
        one.step()
        if read:
            one.read()
    one.read()
    return (time.perf_counter() - begin) / tokens


class Race:
    """All contenders on one set of weights."""

    def __init__(self, preset: str, dtype: str, given: argparse.Namespace) -> None:
        import torch

        from transformers_decoder import random_model

        self.torch, self.preset, self.dtype, self.given = torch, preset, dtype, given
        self.config = models.preset(preset)
        self.prompt = prompt_of(self.config, given.prompt)
        self.capacity = given.prompt + given.tokens + 1
        say(f"{preset}, {dtype}: making weights")
        self.model = random_model(self.config, given.device, dtype)
        self.weights = models.shared_weights(self.config, self.model.state_dict())
        self.contenders: dict[str, Contender] = {}
        self.failures: dict[str, str] = {}
        self.device_bytes: int | None = None
        self.lent_bytes = 0
        for name in given.contender or USUAL[given.device]:
            say(f"  {name}")
            self._try(name, lambda name=name: self._make(name))

    def _try(self, name: str, work: Callable[[], None]) -> None:
        """A contender that fails is said to have failed, and the others go on."""
        try:
            work()
        except Exception as error:
            if name == "ostinato":
                raise
            text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            say(f"  {name} failed: {text}")
            self.failures[name] = f"failed: {text[:100]}".replace("|", "/")
            self.contenders.pop(name, None)

    def _make(self, name: str) -> None:
        one: Contender
        if name == "ostinato":
            before = self._free_bytes()
            one = ours = Ours(ost.open_device(self.given.device), self.weights, self.capacity, self.dtype)
            generate(one, self.prompt, 4)
            self.lent_bytes = self._lent_to(ours.decoder)
            self.device_bytes = None if before is None else before - (self._free_bytes() or 0)
        else:
            from transformers_decoder import contender

            one = contender(name, self.model, self.capacity, self.given.compile_mode)
            generate(one, self.prompt, 4)
        self.contenders[name] = one

    def _lent_to(self, decoder: models.Decoder) -> int:
        """Bytes of the weights that our decoder reads where torch has them."""
        theirs = {tensor.data_ptr() for tensor in self.model.state_dict().values()}
        buffers = decoder._weights.values()
        places = ((one._allocation().backing.address + one._offset, one.nbytes) for one in buffers)
        return sum(nbytes for place, nbytes in places if place in theirs)

    def _free_bytes(self) -> int | None:
        if self.given.device == "cpu":
            return None
        self.torch.cuda.synchronize()
        return int(self.torch.cuda.mem_get_info()[0])

    # --- what they say -----------------------------------------------------------------------------------------------

    def agreement(self) -> dict[str, tuple[str, float]]:
        """Greedy tokens that are those of the first contender of transformers, and the largest difference of logits."""
        reference = next((name for name in self.contenders if name != "ostinato"), "ostinato")
        tokens = generate(self.contenders[reference], self.prompt, min(64, self.given.tokens))
        spoken: dict[str, tuple[str, float]] = {}
        expected: list[np.ndarray] = []
        for name in (reference, *(name for name in self.contenders if name != reference)):

            def compare(name: str = name) -> None:
                one = self.contenders[name]
                said = generate(one, self.prompt, len(tokens))
                alike = next((at for at, pair in enumerate(zip(said, tokens, strict=True)) if pair[0] != pair[1]), None)
                one.start(self.prompt)
                logits = [one.force(token) for token in tokens[:COMPARED]]
                if not expected:
                    expected.extend(logits)
                furthest = max(float(np.abs(a - b).max()) for a, b in zip(logits, expected, strict=True))
                spoken[name] = (f"{len(tokens) if alike is None else alike} of {len(tokens)}", furthest)

            self._try(name, compare)
        say(f"  logits go to {max(float(np.abs(one).max()) for one in expected):.1f}")
        return spoken

    # --- how fast they are -------------------------------------------------------------------------------------------

    @property
    def read_bytes(self) -> int:
        """Weights that a token needs."""
        unread = 0 if self.config.tied_embeddings else self.weights.shape("embedding")[0] - 1
        row = self.config.hidden_size * self.weights.dtype("embedding").itemsize
        return self.weights.nbytes - unread * row

    def copy_bandwidth(self) -> float:
        """Bytes a second that torch copies, counted as read and as written."""
        torch, on_gpu = self.torch, self.given.device == "cuda"
        source = torch.ones((2 if on_gpu else 1) << 30, dtype=torch.uint8, device=self.given.device)
        target = torch.empty_like(source)
        best = float("inf")
        for _ in range(10 if on_gpu else 4):
            if on_gpu:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            target.copy_(source)
            if on_gpu:
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - begin)
        return 2 * source.numel() / best

    def table(self) -> Table:
        spoken = self.agreement()
        copied = self.copy_bandwidth()
        given = self.given
        say(f"  timing; a copy of memory reaches {copied / 1e9:.1f} GB/s")

        def rates(read: bool) -> dict[str, list[float]]:
            return interleaved(
                {
                    name: (lambda one=one: seconds_a_token(one, self.prompt, given.tokens, read))
                    for name, one in self.contenders.items()
                },
                given.rounds,
            )

        read = rates(True)
        queued = rates(False) if given.device == "cuda" else {}
        rows: list[tuple[object, ...]] = []
        for name in self.contenders:
            spent = queued.get(name, read[name])
            speed = self.read_bytes / median(spent)
            ours = queued.get("ostinato", read.get("ostinato"))
            rows.append(
                (
                    name if name == "ostinato" else f"transformers, {name}",
                    round(1 / median(read[name]), 1),
                    round(median(read[name]) * 1e3, 3),
                    round(median(spent) * 1e3, 3) if queued else "–",
                    "–" if ours is None else round(ratio(spent, ours), 3),
                    round(speed / 1e9, 1),
                    f"{100 * speed / copied:.0f} %",
                    *spoken[name],
                )
            )
        for name, failure in self.failures.items():
            rows.append((f"transformers, {name}", failure, *["–"] * 7))
        where = f"{given.prompt} tokens of prompt, then {given.tokens}; medians of {given.rounds} rounds"
        how = "not read" if queued else "each read"
        return Table(
            f"{self.preset}, {self.dtype}, {given.device}: {where}; a copy reaches {copied / 1e9:.1f} GB/s",
            (
                "who",
                "tokens/s, each read",
                "ms a token, each read",
                "ms a token, not read",
                f"× ostinato's time, {how}",
                f"weights GB/s, {how}",
                f"of a copy, {how}",
                "greedy tokens alike",
                "logits off by at most",
            ),
            rows,
        )

    # --- what ours is made of ----------------------------------------------------------------------------------------

    def inside(self) -> Table:
        """Dispatches, time in kernels and memory of our decoder."""
        one = self.contenders["ostinato"]
        one.start(self.prompt)
        tokens = self.given.tokens
        say("  profiling ours")
        with ost.profile(level="dispatches"):  # what sampling needs is made first
            one.step()
            one.read()
        one.start(self.prompt)
        with ost.profile(level="dispatches") as profile, ost.counters.scope() as counts:
            begin = time.perf_counter()
            for _ in range(tokens):
                one.step()
                one.read()
            wall = (time.perf_counter() - begin) / tokens
        columns = columns_of(profile.recording())
        sampled = int(columns.submissions.sampled.sum())
        samples = columns.samples
        order = np.argsort(samples.start_ns, kind="stable")
        line = line_of(samples.start_ns[order], samples.end_ns[order], samples.submission[order])
        busy = line.busy_ns / 1e9 / sampled if sampled else float("nan")
        element = np.dtype(self.dtype).itemsize
        cache = 2 * self.config.layers * self.config.kv_size * self.capacity * element
        needed = self.weights.nbytes + cache
        if self.device_bytes is not None:
            used: float | None = self.lent_bytes + self.device_bytes
        else:
            used = self._process_peak()
        rows = [
            ("dispatches a token", counts.dispatches / tokens),
            ("inside kernels, of the wall", f"{100 * busy / wall:.1f} % ({sampled} tokens sampled)"),
            ("weights MB", round(self.weights.nbytes / MB, 1)),
            ("cache MB", round(cache / MB, 1)),
            ("peak MB of ours", "–" if used is None else round(used / MB, 1)),
            ("peak, of weights and cache", "–" if used is None else f"{100 * used / needed:.1f} %"),
        ]
        return Table(f"{self.preset}, {self.dtype}, {self.given.device}: our decoder", ("what", "value"), rows)

    def _process_peak(self) -> float | None:
        if not Path("/proc/self/status").exists():
            return None
        say("  memory of ours, in a process of its own")
        command = [sys.executable, __file__, "--peak-of", self.preset, "--dtype", self.dtype]
        command += ["--prompt", str(self.given.prompt), "--tokens", str(self.given.tokens)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout))


def process_bytes(field: str) -> int:
    """Memory of this process in RAM: now (`VmRSS`), or the most so far (`VmHWM`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024


def peak_of(preset: str, dtype: str, prompt: int, tokens: int) -> int:
    """The most memory that decoding takes beyond what the process has with all kernels loaded."""
    with ost.open_device("cpu") as device:
        config = models.preset(preset)
        small = replace(models.preset("tiny"), layers=1, hidden_size=64, intermediate_size=64)
        Ours(device, models.random_weights(small, dtype), 8, dtype).start([1, 2, 3])
        before = process_bytes("VmRSS")
        one = Ours(device, models.random_weights(config, dtype), prompt + tokens + 1, dtype)
        generate(one, prompt_of(config, prompt), min(tokens, 8))
        return process_bytes("VmHWM") - before


def dtypes_of(preset: str, device: str) -> tuple[str, ...]:
    if device == "cuda":
        return ("bfloat16",)
    return ("float32",) if preset.startswith("tiny") else ("bfloat16", "float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", choices=tuple(USUAL), default="cpu")
    parser.add_argument("--preset", action="append", choices=[*models.PRESETS])
    parser.add_argument("--dtype", action="append", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--contender", action="append", choices=NAMES)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, help="tokens that are timed; 32 on the CPU, 128 on a GPU")
    parser.add_argument("--rounds", type=int, help="5 on the CPU, 3 on a GPU")
    parser.add_argument("--compile-mode", default="default", help="of torch.compile; one that makes no graphs itself")
    parser.add_argument("--peak-of", choices=[*models.PRESETS], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak_of:
        print(json.dumps(peak_of(given.peak_of, given.dtype[0], given.prompt, given.tokens)))
        return
    on_cpu = given.device == "cpu"
    usual = ["tiny", "qwen3-0.6b"] if on_cpu else ["llama-1b", "llama-8b"]
    given.tokens = given.tokens or (32 if on_cpu else 128)
    given.rounds = given.rounds or (5 if on_cpu else 3)
    tables = []
    for preset in given.preset or usual:
        for dtype in given.dtype or dtypes_of(preset, given.device):
            race = Race(preset, dtype, given)
            tables.append(race.table())
            if "ostinato" in race.contenders:
                tables.append(race.inside())
            del race
    tables.append(versions(given))
    report(tables, given.json)


def versions(given: argparse.Namespace) -> Table:
    """What ran beside ours."""
    import torch
    import transformers

    rows = [
        ("torch", torch.__version__),
        ("transformers", transformers.__version__),
        ("threads of torch", torch.get_num_threads()),
        ("mode of torch.compile", f"{given.compile_mode}, in a graph on a GPU"),
    ]
    return Table("what ran", ("what", "which"), rows)


if __name__ == "__main__":
    main()
