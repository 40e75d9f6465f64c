"""Prompts and long contexts: prefill beside `transformers`, and a token at far positions beside what it must read.

torch makes random weights on the device and lends them to our decoder. Prefill is timed from the prompt on the host to
the logits of its last token on the host; contenders take turns. A token at a position is a replay with the cache full
up to there (of zeros: the time does not depend on the values), timed eight in a row; its floor is the weights and the
cache, read once at the speed of a copy in the same run.

    python bench/contexts.py [--device cuda] [--preset llama-1b] [--dtype bfloat16] [--rounds 9] [--json]
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401
import numpy as np

import ostinato as ost
from ostinato import models

sys.path.append(_HERE)

from harness import Table, interleaved, median, ratio, report, seconds

IN_A_ROW = 8


def prefill(device: ost.Device, model: Any, weights: models.Weights, given: argparse.Namespace) -> Table:
    import torch

    decoder = models.Decoder(device, weights, capacity=max(given.prompt) + 1, dtype=given.dtype)
    rows = []
    for length in given.prompt:
        ids = np.random.default_rng(3).integers(0, weights.config.vocab_size, length)

        def ours(ids: np.ndarray = ids) -> np.ndarray:
            decoder.reset()
            return decoder.prefill(ids)

        def theirs(ids: np.ndarray = ids) -> np.ndarray:
            with torch.no_grad():
                prompt = torch.tensor(ids[None], device=model.device)
                last = model(prompt, use_cache=True, logits_to_keep=1).logits[0, -1]
                return np.asarray(last.float().cpu().numpy())

        apart = float(np.abs(ours() - theirs()).max() / np.abs(theirs()).max())
        times = interleaved({"ours": lambda: seconds(ours), "theirs": lambda: seconds(theirs)}, given.rounds)
        mine, other = times["ours"], times["theirs"]
        rate = f"{length / median(mine):,.0f}"
        rows.append((length, 1e3 * median(mine), rate, 1e3 * median(other), ratio(mine, other), f"{apart:.1%}"))
    columns = ("tokens", "ours, ms", "tokens/s", "transformers, ms", "ratio", "furthest logit, of the largest")
    return Table(f"Prefill, {given.preset}, {given.dtype}", columns, rows)


def positions(device: ost.Device, weights: models.Weights, given: argparse.Namespace) -> Table:
    config, itemsize = weights.config, np.dtype(given.dtype).itemsize
    decoder = models.Decoder(device, weights, capacity=max(given.position) + IN_A_ROW + 1, dtype=given.dtype)
    decoder.prefill([1])
    # Of an embedding that is not the head too, a token reads a row.
    unread = 0 if config.tied_embeddings else (config.vocab_size - 1) * config.hidden_size * itemsize
    big = device.empty(1 << 30, np.uint8), device.empty(1 << 30, np.uint8)
    copying = device.capture(lambda enc: enc.copy(*big)).instantiate()
    copying.replay().wait()

    def token(position: int) -> float:
        def replay() -> None:
            decoder.position = position
            for _ in range(IN_A_ROW):
                decoder._replay()
            decoder.next_token  # noqa: B018

        return seconds(replay) / IN_A_ROW

    work = {str(position): lambda position=position: token(position) for position in given.position}
    times = interleaved({"copy": lambda: seconds(lambda: copying.replay().wait()), **work}, given.rounds)
    rate = 2 * big[0].nbytes / median(times["copy"])
    rows = []
    for position in given.position:
        cache = 2 * config.layers * config.kv_heads * config.head_dim * itemsize * position
        floor = (weights.nbytes - unread + cache) / rate
        rows.append((position, 1e3 * median(times[str(position)]), 1e3 * floor, floor / median(times[str(position)])))
    title = f"A token, {given.preset}, {given.dtype}; a copy moves {rate / 1e12:.2f} TB/s"
    return Table(title, ("position", "ms", "floor, ms", "share"), rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="llama-1b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prompt", type=int, nargs="*", default=[128, 512, 2048])
    parser.add_argument("--position", type=int, nargs="*", default=[128, 2048, 8192, 32000])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    from transformers_decoder import random_model

    config = models.preset(given.preset)
    model = random_model(config, given.device, given.dtype)
    weights = models.shared_weights(config, model.state_dict())
    with ost.open_device(given.device) as device:
        tables = [prefill(device, model, weights, given)] if given.prompt else []
        tables += [positions(device, weights, given)] if given.position else []
    report(tables, given.json)


if __name__ == "__main__":
    main()
