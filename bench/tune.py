"""Tuning the products of decoders inside the graph of a token, and what tuning them alone would have chosen.

Nine shapes: the five products of Llama 3.2 1B, and the four of a layer of Llama 3.1 8B (of eight layers, with a small
vocabulary, so that its head is not counted again). For each the gain of the whole token with its interval, or that none
is surely faster; beside it the choice of timing the product by itself. Then the token with all choices, compared
with the token without, by the verdict of `compare`.

    python bench/tune.py --device cuda [--dtype bfloat16] [--sums] [--seconds 10] [--json]
    python bench/tune.py --device cpu --small

`--small` takes decoders with the same products and few weights. `--sums` also tries choices that change the order of
additions.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from dataclasses import replace

# The folder of this file has a cuda.py, which would hide the package of that name.
_HERE = sys.path.pop(0)

with suppress(ImportError):
    import cuda.bindings  # noqa: F401

import ostinato as ost
from ostinato import models
from ostinato.measure import space as spaces
from ostinato.measure.products import TunedProduct, TunedProducts, tune_products
from ostinato.measure.tuning import Tuning, ratio_text

sys.path.append(_HERE)

from harness import Table, report

BEGIN = time.perf_counter()


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGIN:6.1f} s] {text}", file=sys.stderr, flush=True)


def decoders(small: bool) -> dict[str, models.DecoderConfig]:
    if small:
        tiny = models.preset("tiny")
        wide = replace(tiny, layers=2, hidden_size=512, heads=8, head_dim=64, intermediate_size=1024)
        return {"tiny": replace(tiny, vocab_size=1024), "wide": wide}
    large = models.preset("llama-8b")
    return {
        "llama-1b": models.preset("llama-1b"),
        "llama-8b, 8 layers": replace(large, layers=8, vocab_size=256),
    }


def chosen(tuning: Tuning | None) -> str:
    """The gain with the choice, or that there is none."""
    if tuning is None:
        return "not timed"
    if tuning.gain is None:
        return "none is surely faster" if tuning.decided else "cannot tell"
    changed = {name: value for name, value in tuning.choice.items() if value != tuning.first[name]}
    return f"{spaces.text(changed)}: {ratio_text(tuning.gain)}"


def row(name: str, product: TunedProduct) -> list[object]:
    tried = [each for each in product.tuning.candidates if each.state not in ("out", "not tried")]
    best = min((each.ratio for each in tried if each.ratio is not None), default=None)
    return [
        f"{name}, {product.label}",
        product.shape.replace("x", " × "),
        product.dispatches,
        spaces.text(product.tuning.first),
        len(tried),
        chosen(product.tuning),
        "" if best is None else f"{best:.2%}".replace("%", " %"),
        chosen(product.alone),
    ]


def token(name: str, outcome: TunedProducts) -> list[object]:
    comparison = outcome.comparison
    if comparison is None or comparison.ratio is None:
        return [name, "no choice changed" if comparison is None else comparison.verdict.value, "", ""]
    whole = comparison.whole
    before = "" if whole is None else f"{whole.a.median_ns / 1e3:,.1f} → {whole.b.median_ns / 1e3:,.1f} µs"
    return [name, comparison.verdict.value.upper(), ratio_text(comparison.ratio), before]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda")
    options.add_argument("--dtype", default="bfloat16", choices=models.decoder.DTYPES)
    options.add_argument("--seconds", type=float, default=10.0, help="per product inside the token, and again alone")
    options.add_argument("--sums", action="store_true")
    options.add_argument("--no-alone", action="store_true", help="leave out what timing alone would choose")
    options.add_argument("--small", action="store_true")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    products: list[list[object]] = []
    tokens: list[list[object]] = []
    with ost.open_device(given.device) as device:
        for name, config in decoders(given.small).items():
            say(f"{name}: making weights")
            decoder = models.Decoder(device, models.random_weights(config, given.dtype), dtype=given.dtype)
            position = 64

            def step(what: str, name: str = name) -> None:
                if "checking" not in what:
                    say(f"{name}: {what}")

            outcome = tune_products(
                decoder,
                seconds=given.seconds,
                sums=given.sums,
                alone=not given.no_alone,
                position=position,
                progress=step,
            )
            heads = [each for each in outcome.products if each.label != "head" or name != "llama-8b, 8 layers"]
            products += [row(name, each) for each in heads]
            tokens.append(token(name, outcome))
            del decoder
        description = device.capabilities.description
    columns = ["product", "slots × out × in", "per token", "first choice", "timed", "inside the token", "least seen"]
    tables = [
        Table(f"Products on {description}, {given.dtype}", [*columns, "alone"], products),
        Table("Token time with all choices", ["decoder", "verdict", "of the time before", "median"], tokens),
    ]
    say("done")
    report(tables, given.json)


if __name__ == "__main__":
    main()
