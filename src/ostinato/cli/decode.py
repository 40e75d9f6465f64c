"""`ostinato decode`: generate text from a checkpoint or from random weights, optionally with a profile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
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
    TextStream,
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
@click.option(
    "--tokens",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="Most tokens to generate; an end token stops.",
)
@click.option("--prompt", default=_PROMPT, show_default=True, help="Text to continue.")
@click.option(
    "--temperature",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 100),
    help="How freely tokens are drawn; 0 takes the most likely ones.",
)
@click.option(
    "--top-p",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Draw from the most probable tokens that reach this together; needs --temperature.",
)
@click.option("--seed", type=click.IntRange(0), help="Draw the same tokens every time; needs --temperature.")
@click.option(
    "--round/--exact",
    "rounds",
    default=None,
    help="Round activations to 8 bits for quantised weights, or do not.  [default: where it is faster]",
)
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
    temperature: float,
    top_p: float,
    seed: int | None,
    rounds: bool | None,
    dtype: str,
    level: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Continue a text: prefill for the prompt, then one graph replay per token. Text is printed as it comes.

    \b
    Examples:
      ostinato decode --preset tiny-moe --tokens 64 --profile dispatches
      ostinato decode --model Qwen3-0.6B --dtype bfloat16 --prompt "Once upon a time"
      ostinato decode --model qwen3-0.6b-q4_k_m.gguf --temperature 0.7 --top-p 0.9 --seed 1
    """
    if (model is None) == (preset_name is None):
        raise click.UsageError("give either --model or --preset")
    if output is not None and level is None:
        raise click.UsageError("-o saves a profile, so it needs --profile")
    if temperature == 0 and (seed is not None or top_p != 1):
        raise click.UsageError("--top-p and --seed say how tokens are drawn, so they need --temperature")
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
    generated: list[int] = []
    with open_device(device_name) as device, ExitStack() as scope:
        with busy_after("decode", seconds=0.5) as say:
            say("copying weights, compiling kernels")
            decoder = Decoder(device, weights, capacity=needed, dtype=dtype, round_activations=rounds)
            say("reading the prompt")
            if level is not None:
                recorded = scope.enter_context(profile(level=level, path=output))
            begin = time.perf_counter()
            decoder.prefill(ids)
            prefilled = time.perf_counter()
        drawn = decoder.following(
            tokens, temperature=temperature, top_p=top_p, seed=seed, stop=weights.config.eos_tokens
        )
        click.echo(_shown(prompt), nl=False)
        for piece in _pieces(_by_regions(drawn), tokenizer, generated):
            click.echo(_shown(piece), nl=False)
        ended = time.perf_counter()
    rounded = "; activations rounded to 8 bits for quantised weights" if decoder.rounds_activations else ""
    where = "" if output is None else f"; recorded in {output}"
    click.echo(
        f"\n\nprompt of {len(ids)} tokens in {(prefilled - begin) * 1e3:,.0f} ms,"
        f" {len(ids) / (prefilled - begin):,.1f} per second;"
        f" {len(generated)} tokens at {_rate(len(generated), ended - prefilled)} per second,"
        f" {len(decoder.graph)} dispatches each{rounded}{where}\n"
    )
    if recorded is not None:
        print_summary(recorded.summary())


def _shown(text: str) -> str:
    """Text for a terminal: lines stay lines, other control characters are escaped."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _rate(tokens: int, seconds: float) -> str:
    return f"{tokens / seconds:,.1f}" if tokens > 1 else "–"


def _by_regions(tokens: Iterator[int]) -> Iterator[int]:
    """The tokens, each made in a region of its own."""
    while True:
        with region("token"):
            token = next(tokens, None)
        if token is None:
            return
        yield token


def _pieces(tokens: Iterable[int], tokenizer: Tokenizer, generated: list[int]) -> Iterator[str]:
    """The text of tokens as they come; they are added to `generated`."""
    stream = TextStream(tokenizer)
    for token in tokens:
        generated.append(token)
        yield stream.add(token)
    yield stream.rest()


def _chosen(model: Path | None, preset_name: str | None, dtype: str) -> tuple[Weights, Tokenizer]:
    if model is not None:
        return load_weights(model), load_tokenizer(model)
    assert preset_name is not None
    return random_weights(preset(preset_name), dtype), ByteTokenizer()
