"""Quantised files are decoded as they are stored, prompts as products of many rows; and how tokens are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import write_gguf

import ostinato as ost
from ostinato import models
from ostinato.models import FORMATS
from small_graphs import dispatches

WIDE = replace(
    models.preset("tiny"), family="qwen3", qk_norm=True, tied_embeddings=True, hidden_size=256, intermediate_size=512
)
MIXED = dict.fromkeys(("q", "k", "o", "gate", "up"), FORMATS["Q4_K"].dtype)
MIXED |= dict.fromkeys(("v", "down", "embedding"), FORMATS["Q6_K"].dtype)
"""As `llama-quantize` mixes them for Q4_K_M."""
PROMPT = [5, 80, 200, 7, 7, 31]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> models.Weights:
    """A small decoder in two formats, its embedding among them, which is its head too."""
    path = tmp_path_factory.mktemp("mixed") / "mixed.gguf"
    return models.load_weights(write_gguf(path, models.random_weights(replace(WIDE, layers=2), seed=1), MIXED))


def test_a_file_in_several_formats_decodes_as_the_reference_does(dev: ost.Device, mixed: models.Weights) -> None:
    decoder = models.Decoder(dev, mixed, round_activations=False)
    reference = models.ReferenceDecoder(mixed)
    np.testing.assert_allclose(decoder.prefill(PROMPT), reference.forward(PROMPT)[-1], atol=1e-3)
    np.testing.assert_allclose(decoder.force(9), reference.forward([9])[0], atol=1e-3)
    assert not decoder.rounds_activations
    kernels = {dispatch.kernel.name for dispatch in dispatches(decoder.graph)}
    assert {"multiply_plain_q4_k_float_1", "multiply_plain_q6_k_float_1", "look_up_q6_k_float"} <= kernels


def test_rounded_activations_are_named_and_change_the_third_digit(dev: ost.Device, mixed: models.Weights) -> None:
    decoder = models.Decoder(dev, mixed, round_activations=True)
    reference = models.ReferenceDecoder(mixed)
    assert decoder.rounds_activations
    for found, expected in (
        (decoder.prefill(PROMPT), reference.forward(PROMPT)[-1]),
        (decoder.force(9), reference.forward([9])[0]),
    ):
        off = float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))
        assert 1e-5 < off < 0.05
    kernels = {dispatch.kernel.name for dispatch in dispatches(decoder.graph)}
    assert {"round_rows_float", "multiply_packed_q4_k_float_1", "multiply_packed_q6_k_float_1"} <= kernels


def test_a_prompt_is_a_few_products_and_not_one_for_each_token(dev: ost.Device, mixed: models.Weights) -> None:
    decoder = models.Decoder(dev, mixed, round_activations=False)
    counts = []
    for prompt in (PROMPT[:2], PROMPT):
        with ost.counters.scope() as counted:
            decoder.prefill(prompt)
        counts.append(counted.dispatches)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["Q8_0"])
def test_quantised_experts_decode_as_the_reference_does(dev: ost.Device, tmp_path: Path, name: str) -> None:
    random = models.random_weights(models.preset("tiny-moe"), seed=1)
    weights = models.load_weights(write_gguf(tmp_path / "moe.gguf", random, FORMATS[name].dtype))
    assert weights.dtype("layer.0.mlp.experts.down") == FORMATS[name].dtype
    decoder, reference = models.Decoder(dev, weights, round_activations=False), models.ReferenceDecoder(weights)
    np.testing.assert_allclose(decoder.prefill(PROMPT), reference.forward(PROMPT)[-1], atol=1e-3)
    np.testing.assert_allclose(decoder.force(9), reference.forward([9])[0], atol=1e-3)
    assert decoder._weights["layer.0.mlp.experts.gate_up"].dtype == np.uint8


# --- drawing tokens -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(dev: ost.Device) -> models.Decoder:
    return models.Decoder(dev, models.random_weights(models.preset("tiny"), seed=4), capacity=64)


def drawn(decoder: models.Decoder, count: int = 12, **options: object) -> list[int]:
    decoder.reset()
    return decoder.generate([1, 2, 3], count, **options)  # type: ignore[arg-type]


def test_a_seed_draws_the_same_tokens_again(tiny: models.Decoder) -> None:
    first = drawn(tiny, temperature=1.0, seed=7)
    assert drawn(tiny, temperature=1.0, seed=7) == first
    assert drawn(tiny, temperature=1.0, seed=8) != first
    assert drawn(tiny) != first


def test_drawing_from_next_to_nothing_takes_the_most_likely_tokens(tiny: models.Decoder) -> None:
    greedy = drawn(tiny)
    assert drawn(tiny, temperature=1.0, top_p=0.0, seed=1) == greedy
    assert drawn(tiny, temperature=0.01, seed=1) == greedy
    assert drawn(tiny, temperature=0.0, seed=1) == greedy


def test_what_is_drawn_follows_the_probabilities(tiny: models.Decoder) -> None:
    """The token that the op draws from the logits at hand, for the numbers that the seed gives."""
    tiny.reset()
    logits = tiny.prefill([1, 2, 3]).astype(np.float64)
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    first = np.searchsorted(np.cumsum(shares), np.random.default_rng(5).random())
    assert drawn(tiny, 1, temperature=1.0, seed=5) == [first]


def test_a_stop_token_is_the_last_one(tiny: models.Decoder) -> None:
    greedy = drawn(tiny)
    place = next(number for number in range(2, 12) if greedy[number] not in greedy[:number])
    assert drawn(tiny, stop={greedy[place]}) == greedy[: place + 1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"temperature": -1.0}, "temperature is a number from 0 to 100"),
        ({"temperature": float("nan")}, "temperature is a number"),
        ({"temperature": 1.0, "top_p": 1.5}, "top_p is a number from 0 to 1"),
        ({"temperature": 1.0, "seed": -1}, "seed is a non-negative integer"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tiny: models.Decoder, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ost.ArgumentError, match=reason):
        drawn(tiny, 12, **options)
