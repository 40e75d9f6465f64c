"""`ostinato decode`: text from a checkpoint, or from random weights, with a profile if one is asked for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from ..base.printable import printable
from ..device import open_device
from ..errors import ArgumentError
from ..models import PRESETS, ByteTokenizer, Decoder, Tokenizer, Weights, load_tokenizer, load_weights, preset
from ..models import random_weights as chance
from ..models.decoder import DTYPES
from ..profiling.report import print_summary
from ..profiling.session import Profile, profile
from ..runtime.tracing import region
from .group import busy_after, main
from .output import FORCE_HELP, refuse_existing

_PROMPT = "The quick brown fox"


@main.command("decode")
@click.option("--model", type=click.Path(path_type=Path), help="A Hugging Face folder, or a GGUF file.")
@click.option("--preset", "preset_name", type=click.Choice(list(PRESETS)), help="Random weights of this shape.")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
@click.option("--tokens", default=32, show_default=True, type=click.IntRange(1), help="How many to generate.")
@click.option("--prompt", default=_PROMPT, show_default=True, help="What they follow.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Of activations and cache."
)
@click.option(
    "--profile",
    "level",
    type=click.Choice(["dispatches", "command_buffers"]),
    help="Time this, and say where the time goes.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Record into this file; needs --profile."
)
@click.option("--force", is_flag=True, help=FORCE_HELP)
def decode_command(
    model: Path | None,
    preset_name: str | None,
    device_name: str,
    tokens: int,
    prompt: str,
    dtype: str,
    level: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Generate tokens greedily: a prompt by prefill, then one replayed graph a token.

    \b
    Examples:
      ostinato decode --preset tiny-moe --tokens 64 --profile dispatches
      ostinato decode --model Qwen3-0.6B --dtype bfloat16 --prompt "Once upon a time"
    """
    if (model is None) == (preset_name is None):
        raise click.UsageError("give either --model or --preset")
    if output is not None and level is None:
        raise click.UsageError("-o records a profile; --profile says what it times")
    if output is not None:
        refuse_existing(output, force)
    weights, tokenizer = _chosen(model, preset_name, dtype)
    ids = tokenizer.encode(prompt)
    if not ids:
        raise click.UsageError("the prompt has no tokens")
    needed = len(ids) + tokens
    if needed > weights.config.max_positions:
        raise ArgumentError(
            f"a prompt of {len(ids)} tokens and {tokens} more are {needed};"
            f" the model takes {weights.config.max_positions}"
        )
    recorded: Profile | None = None
    with busy_after("decode", seconds=0.5) as say, open_device(device_name) as device, ExitStack() as scope:
        say("copying weights, compiling kernels")
        decoder = Decoder(device, weights, capacity=needed, dtype=dtype)
        say("generating")
        if level is not None:
            recorded = scope.enter_context(profile(level=level, path=output))
        begin = time.perf_counter()
        decoder.prefill(ids)
        prefilled = time.perf_counter()
        found = _generate(decoder, tokens, weights.config.eos_tokens)
        ended = time.perf_counter()
    click.echo(printable(prompt + tokenizer.decode(found)))
    rate = f"{len(found) / (ended - prefilled):,.1f}" if len(found) > 1 else "–"
    where = "" if output is None else f"; recorded in {output}"
    click.echo(
        f"\nprompt of {len(ids)} tokens in {(prefilled - begin) * 1e3:,.0f} ms;"
        f" {len(found)} tokens at {rate} a second, {len(decoder.graph)} dispatches each{where}\n"
    )
    if recorded is not None:
        print_summary(recorded.summary())


def _chosen(model: Path | None, preset_name: str | None, dtype: str) -> tuple[Weights, Tokenizer]:
    if model is not None:
        return load_weights(model), load_tokenizer(model)
    assert preset_name is not None
    return chance(preset(preset_name), dtype), ByteTokenizer()


def _generate(decoder: Decoder, count: int, ends: Sequence[int]) -> list[int]:
    """The likeliest tokens, until one that ends the text."""
    found = [decoder.next_token]
    while len(found) < count and found[-1] not in ends:
        with region("token"):
            found.append(decoder.step())
    return found
