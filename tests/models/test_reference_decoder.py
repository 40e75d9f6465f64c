"""The decoder in NumPy: what holds for any decoder. `test_transformers_oracle.py` compares it with another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from checkpoints import TINY

import ostinato as ost
from ostinato.models import Llama3Scaling, ReferenceDecoder, as_float32, random_weights

TOKENS = [3, 1, 4, 15, 9, 26, 5, 35, 89, 79, 32, 38]

# What transformers 5.22 computes from the same weights, written as a Hugging Face folder.
THEIRS = {
    "llama": [0.20631, -0.3327, 0.41703, 2.1659, 0.03441, -0.69861],
    "qwen3": [0.0367, 1.18901, -3.017, -0.35002, -0.35674, 0.34921],
    "qwen3-moe": [1.59114, 0.20031, 0.67725, 1.08695, 0.21689, -0.31024],
}


@pytest.mark.parametrize("family", TINY)
def test_logits_are_those_of_transformers(family: str) -> None:
    scaling = Llama3Scaling(8.0, 1.0, 4.0, 64) if family == "llama" else None
    decoder = ReferenceDecoder(random_weights(replace(TINY[family], rope_scaling=scaling)))
    np.testing.assert_allclose(decoder.forward(TOKENS)[-1, :6], THEIRS[family], rtol=0, atol=5e-5)


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("family", TINY)
def test_tokens_one_by_one_give_what_they_give_at_once(family: str, window: int | None) -> None:
    weights = random_weights(replace(TINY[family], sliding_window=window))
    whole = ReferenceDecoder(weights).forward(TOKENS)
    decoder = ReferenceDecoder(weights)
    parts = [decoder.forward(TOKENS[:5]), *(decoder.forward([token]) for token in TOKENS[5:])]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", TINY)
def test_what_comes_later_changes_nothing(family: str) -> None:
    decoder = ReferenceDecoder(random_weights(TINY[family]))
    first = decoder.forward(TOKENS)
    decoder.reset()
    np.testing.assert_allclose(decoder.forward([*TOKENS[:-1], 7])[:-1], first[:-1], rtol=0, atol=1e-6)


def test_a_window_hides_what_is_too_long_ago() -> None:
    one_layer = replace(TINY["llama"], layers=1, sliding_window=3)
    decoder = ReferenceDecoder(random_weights(one_layer))
    logits = decoder.forward([1, 2, 3, 4])[-1]
    decoder.reset()
    np.testing.assert_array_equal(decoder.forward([9, 2, 3, 4])[-1], logits)
    decoder.reset()
    assert not np.array_equal(decoder.forward([1, 9, 3, 4])[-1], logits)


def test_where_all_weights_of_a_layer_are_zero_the_embedding_is_left() -> None:
    weights = random_weights(replace(TINY["llama"], layers=1))
    decoder = ReferenceDecoder(weights)
    for name in ("layer.0.attn.o", "layer.0.mlp.down"):
        decoder._weights[name] = np.zeros_like(decoder._weights[name])
    row = as_float32(weights["embedding"])[5].astype(np.float64)
    normed = row / np.sqrt(np.mean(row**2) + weights.config.norm_eps) * weights["norm"]
    np.testing.assert_allclose(decoder.forward([5])[0], weights["head"] @ normed, rtol=0, atol=1e-5)


def test_too_many_tokens_and_tokens_that_are_none_are_refused() -> None:
    decoder = ReferenceDecoder(random_weights(TINY["llama"]), capacity=4)
    for tokens in ([], [100], [-1], [[1]]):
        with pytest.raises(ost.ArgumentError, match="expected token ids from 0 to 99"):
            decoder.forward(tokens)  # type: ignore[arg-type]
    decoder.forward([1, 2, 3])
    with pytest.raises(ost.ArgumentError, match="5 tokens, but the cache holds 4"):
        decoder.forward([1, 2])
    assert decoder.generate([1], 1)
