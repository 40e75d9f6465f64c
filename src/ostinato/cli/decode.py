"""`ostinato decode`: generate text from a checkpoint or from random weights, optionally with a profile."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from ..base.printable import printable
from ..device import open_device
from ..errors import ArgumentError
from ..models import (
    PRESETS,
    ByteTokenizer,
    Decoder,
    Tokenizer,
    Weights,
    load_tokenizer,
    load_weights,
    preset,
    random_weights,
)
from ..models.decoder import DTYPES
from ..profiling.report import print_summary
from ..profiling.session import Profile, profile
from ..runtime.tracing import region
from .group import busy_after, main
from .output import FORCE_HELP, refuse_existing

_PROMPT = "The quick brown fox"


@main.command("decode")
@click.option("--model", type=click.Path(path_type=Path), help="Checkpoint: a Hugging Face folder or a GGUF file.")
@click.option("--preset", "preset_name", type=click.Choice(list(PRESETS)), help="Use random weights of this shape.")
@click.option("--device", "device_name", default="auto", show_default=True, help="Run on this device.")
@click.option("--tokens", default=32, show_default=True, type=click.IntRange(1), help="Number of tokens to generate.")
@click.option("--prompt", default=_PROMPT, show_default=True, help="Text to continue.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of activations and cache."
)
@click.option(
    "--profile",
    "level",
    type=click.Choice(["dispatches", "command_buffers"]),
    help="Profile at this level and print a summary.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the recording to this file; needs --profile.",
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
    """Generate tokens greedily: prefill for the prompt, then one graph replay per token.

    \b
    Examples:
      ostinato decode --preset tiny-moe --tokens 64 --profile dispatches
      ostinato decode --model Qwen3-0.6B --dtype bfloat16 --prompt "Once upon a time"
    """
    if (model is None) == (preset_name is None):
        raise click.UsageError("give either --model or --preset")
    if output is not None and level is None:
        raise click.UsageError("-o saves a profile, so it needs --profile")
    if output is not None:
        refuse_existing(output, force)
    weights, tokenizer = _chosen(model, preset_name, dtype)
    ids = tokenizer.encode(prompt)
    if not ids:
        raise click.UsageError("the prompt has no tokens")
    needed = len(ids) + tokens
    if needed > weights.config.max_positions:
        raise ArgumentError(
            f"a prompt of {len(ids)} tokens and {tokens} more make {needed};"
            f" the model's context is {weights.config.max_positions}"
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
        generated = _generate(decoder, tokens, weights.config.eos_tokens)
        ended = time.perf_counter()
    click.echo(printable(prompt + tokenizer.decode(generated)))
    rate = f"{len(generated) / (ended - prefilled):,.1f}" if len(generated) > 1 else "–"
    where = "" if output is None else f"; recorded in {output}"
    click.echo(
        f"\nprompt of {len(ids)} tokens in {(prefilled - begin) * 1e3:,.0f} ms;"
        f" {len(generated)} tokens at {rate} per second, {len(decoder.graph)} dispatches each{where}\n"
    )
    if recorded is not None:
        print_summary(recorded.summary())


def _chosen(model: Path | None, preset_name: str | None, dtype: str) -> tuple[Weights, Tokenizer]:
    if model is not None:
        return load_weights(model), load_tokenizer(model)
    assert preset_name is not None
    return random_weights(preset(preset_name), dtype), ByteTokenizer()


def _generate(decoder: Decoder, count: int, ends: Sequence[int]) -> list[int]:
    """The most likely tokens, up to an end-of-text token."""
    generated = [decoder.next_token]
    while len(generated) < count and generated[-1] not in ends:
        with region("token"):
            generated.append(decoder.step())
    return generated
