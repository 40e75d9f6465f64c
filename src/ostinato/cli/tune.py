"""`ostinato tune`: the fastest choice of a spec, or of the products of a decoder."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .. import settings
from ..base.printable import printable
from ..device import check_settings, open_device
from ..errors import TuningError
from ..measure import space as spaces
from ..measure.products import TunedProduct, TunedProducts, tune_products
from ..measure.tuning import Tuning, ratio_text, tune
from ..models import PRESETS, Decoder, preset, random_weights
from ..models.decoder import DTYPES
from ..profiling.analyse.statistics import Interval
from ..profiling.analyse.verdicts import Verdict
from ..runtime import tuned as files
from .group import busy_after, main, printing_to_stderr
from .options import refuse_unused

_NAMES = "encode space device oracle outputs tolerance inside values seconds delta confidence isolate timeout".split()
"""What a spec may define: the arguments of `ostinato.tune`."""
VERSION = 1
"""Of the JSON."""
_LAYERS = 4
_SPEC, _OPS = "a SPEC", "--ops"
_USES = {"presets": (_OPS,), "dtype": (_OPS,), "layers": (_OPS,), "sums": (_OPS,), "again": (_SPEC,)}
"""What options apply to; those that are not here apply to both."""


@main.command("tune")
@click.argument("spec", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--ops", "of_ops", is_flag=True, help="Tune the products of a decoder instead of a spec.")
@click.option(
    "--shapes", "presets", multiple=True, type=click.Choice(list(PRESETS)), help="Decoder with --ops; may be repeated."
)
@click.option("--device", "device_name", help="Run on this device. [default: auto, or as the spec says]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Time to spend; with --ops, per product.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="Keep results in this file, per device.")
@click.option("--again", is_flag=True, help="Measure even if the file has the result of the same spec.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="Type of weights with --ops."
)
@click.option(
    "--layers",
    type=click.IntRange(1),
    default=_LAYERS,
    show_default=True,
    help="Layers of the decoder with --ops; shapes are the same in all.",
)
@click.option("--sums", is_flag=True, help="With --ops, also try choices that change the order of additions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.pass_context
def tune_command(
    context: click.Context,
    spec: Path | None,
    of_ops: bool,
    presets: tuple[str, ...],
    device_name: str | None,
    seconds: float | None,
    file: Path | None,
    again: bool,
    dtype: str,
    layers: int,
    sums: bool,
    as_json: bool,
) -> None:
    """Find the fastest choice among those that give the right results.

    SPEC is a Python file. It defines `space` ({name: values}) and `encode(encoder, **choice)`, and may define other
    arguments of `ostinato.tune`: device, oracle, outputs, tolerance, inside, values, seconds, delta, confidence,
    isolate, timeout. Candidates run in a child process first, so one that faults or never ends is out, with the reason.

    With --ops the products of a decoder are tuned, by replays of a whole token. A program uses the file with
    open_device(tuned=FILE) or OSTINATO_TUNED=FILE.

    \b
    Examples:
      ostinato tune examples/tune_group_size.py --file cpu.json
      ostinato tune --ops --shapes llama-1b --dtype bfloat16 --file h200.json
    """
    check_settings()
    if of_ops == (spec is not None):
        raise click.UsageError("give either a SPEC or --ops")
    if of_ops and not presets:
        raise click.UsageError("--ops needs --shapes, the name of a decoder")
    refuse_unused(context, _USES, _OPS if of_ops else _SPEC)
    if again and file is None:
        raise click.UsageError("--again measures what a file has already; give --file too")
    with printing_to_stderr() if as_json else nullcontext(), busy_after("tuning", seconds=0.5) as say:
        if spec is not None:
            result = _of_spec(spec, device_name, seconds, file, again, say)
        else:
            results = _of_products(presets, device_name, seconds or 10.0, file, dtype, layers, sums, say)
    if spec is not None:
        click.echo(json.dumps(as_dict(result), indent=2) if as_json else str(result))
    elif as_json:
        click.echo(json.dumps(products_as_dict(results), indent=2))
    else:
        for name, each in results.items():
            show(name, each)


# --- a spec ------------------------------------------------------------------------------------------------------


def _of_spec(
    path: Path, device_name: str | None, seconds: float | None, file: Path | None, again: bool, say: Any
) -> Tuning:
    with settings.override(**({} if device_name is None else {"device": device_name})):
        arguments = _loaded(path)
        if "device" not in arguments and not arguments.keys() & {"inside", "outputs"}:
            raise TuningError(f"{printable(str(path))}: expected `device`, the open device that encode uses")
        if seconds is not None:
            arguments["seconds"] = seconds
        return tune(**arguments, file=file, again=again, progress=say)


def _loaded(path: Path) -> dict[str, Any]:
    """The arguments that a spec defines. Its own errors are shown as Python shows them."""
    folder = str(path.parent.resolve())
    sys.path.insert(0, folder)
    try:
        names = runpy.run_path(str(path), run_name="ostinato_spec")
    finally:
        sys.path.remove(folder)
    missing = [name for name in ("encode", "space") if name not in names]
    if missing:
        raise TuningError(f"{printable(str(path))}: a spec defines `encode` and `space`; it has no `{missing[0]}`")
    return {name: names[name] for name in _NAMES if name in names}


def as_dict(result: Tuning) -> dict[str, Any]:
    """A tuning as it is printed; docs/json.md describes every field."""
    return {"format": "ostinato.tuning", "version": VERSION, **_plain(result)}


def _plain(result: Tuning) -> dict[str, Any]:
    return {
        "choice": spaces.written_choice(result.choice),
        "first": spaces.written_choice(result.first),
        "improved": result.improved,
        "decided": result.decided,
        "gain": _interval(result.gain),
        "inside": result.inside,
        "kept": result.kept,
        "space_size": result.space_size,
        "seconds": round(result.seconds, 3),
        "candidates": [
            {
                "choice": spaces.written_choice(each.choice),
                "state": each.state,
                "reason": each.reason or None,
                "ratio": each.ratio,
                "interval": _interval(each.interval),
            }
            for each in result.candidates
        ],
    }


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


# --- products ----------------------------------------------------------------------------------------------------


def _of_products(
    presets: tuple[str, ...],
    device_name: str | None,
    seconds: float,
    file: Path | None,
    dtype: str,
    layers: int,
    sums: bool,
    say: Any,
) -> dict[str, TunedProducts]:
    results = {}
    with open_device(device_name or "auto") as device:
        if file is not None:
            # Refused before anything is measured.
            files.for_device(file, device.capabilities)
            files.check_writable(file)
        for name in presets:
            config = preset(name)
            config = replace(config, layers=min(layers, config.layers))

            def step(what: str, name: str = name) -> None:
                say(f"{name}: {what}")

            step("making weights")
            decoder = Decoder(device, random_weights(config, dtype), dtype=dtype)
            results[name] = outcome = tune_products(decoder, seconds=seconds, sums=sums, progress=step)
            if outcome.comparison is not None and outcome.comparison.verdict is Verdict.SLOWER:
                raise TuningError(f"{name}: the token is slower with all choices together; they were not kept")
            if file is not None:
                decided = [each.entry for each in outcome.products if each.tuning.decided]
                files.add(file, device.capabilities, decided)
    return results


def show(name: str, outcome: TunedProducts) -> None:
    """Print the products of a decoder, a row each, and its token time."""
    table = Table(title=name, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    by_itself = any(each.alone is not None for each in outcome.products)
    for heading in ("product", "shape", "per token", "choice", "token time", *(("alone",) if by_itself else ())):
        table.add_column(heading, justify="right" if heading == "per token" else "left")
    for each in outcome.products:
        alone = () if each.alone is None else (_alone(each),)
        table.add_row(each.label, each.shape, str(each.dispatches), *verdict_of(each), *alone)
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print(token_text(outcome))


def verdict_of(product: TunedProduct) -> tuple[str, str]:
    """The choice in words, and its gain or that there is none."""
    tuning = product.tuning
    if tuning.gain is None:
        return spaces.text(tuning.choice), "none is surely faster" if tuning.decided else "cannot tell"
    return _changed(tuning), ratio_text(tuning.gain)


def _alone(product: TunedProduct) -> str:
    assert product.alone is not None
    if product.alone.gain is None:
        return "the first choice"
    return f"{_changed(product.alone)}: {ratio_text(product.alone.gain)}"


def _changed(tuning: Tuning) -> str:
    changed = {name: value for name, value in tuning.choice.items() if value != tuning.first[name]}
    return ", ".join(f"{name}={value} (was {tuning.first[name]})" for name, value in changed.items())


def token_text(outcome: TunedProducts) -> str:
    """The token time before and after, by the verdict of `compare`."""
    if outcome.comparison is None:
        return "token: as before"
    ratio = outcome.comparison.ratio
    measured = "" if ratio is None else f", {ratio_text(ratio)} of the time before"
    return f"token: {outcome.comparison.verdict.value.upper()}{measured}"


def products_as_dict(results: Mapping[str, TunedProducts]) -> dict[str, Any]:
    """The products of decoders as they are printed; docs/json.md describes every field."""
    decoders = [{"name": name, **_plain_products(each)} for name, each in results.items()]
    return {"format": "ostinato.tuned_products", "version": VERSION, "decoders": decoders}


def _plain_products(outcome: TunedProducts) -> dict[str, Any]:
    comparison = outcome.comparison
    return {
        "products": [
            {
                "kernel": each.kernel,
                "shape": each.shape,
                "label": each.label,
                "per_token": each.dispatches,
                "changes_sums": each.changes_sums,
                "inside": _plain(each.tuning),
                "alone": None if each.alone is None else _plain(each.alone),
            }
            for each in outcome.products
        ],
        "token": None
        if comparison is None
        else {"verdict": comparison.verdict.value, "ratio": _interval(comparison.ratio)},
    }
