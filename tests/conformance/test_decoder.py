"""The decoder on a device computes what the one in NumPy computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato import models, ops

TINY, MOE = models.preset("tiny"), models.preset("tiny-moe")
SHAPES = {
    "llama": replace(TINY, layers=2),
    "as many keys as queries": replace(TINY, layers=2, kv_heads=TINY.heads),
    "qwen3": replace(
        TINY, layers=2, family="qwen3", qk_norm=True, tied_embeddings=True, head_dim=40, heads=6, kv_heads=2
    ),
    "sliding window": replace(
        TINY, layers=2, family="qwen3", qk_norm=True, sliding_window=5, full_attention_layers=(1,)
    ),
    "experts": replace(MOE, layers=2),
    "experts beside dense layers": replace(MOE, layers=2, dense_layers=(0,), norm_topk_prob=False),
}
PROMPT = [72, 101, 108, 108, 111, 7, 250]


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_tokens_are_those_of_the_reference(dev: ost.Device, shape: str) -> None:
    weights = models.random_weights(SHAPES[shape], seed=3)
    decoder = models.Decoder(dev, weights, capacity=80)
    assert decoder.generate(PROMPT, 64) == models.ReferenceDecoder(weights).generate(PROMPT, 64)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "drawn"])
@pytest.mark.parametrize("by_token", [False, True], ids=["by the caller", "by a stop token"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_text_that_ends_early_leaves_nothing_behind(
    dev: ost.Device, count: int, by_token: bool, sampling: dict[str, Any]
) -> None:
    weights = models.random_weights(SHAPES["llama"], seed=3)
    early, whole = (models.Decoder(dev, weights, capacity=20) for _ in range(2))
    for decoder in (early, whole):
        decoder.prefill(PROMPT)
    expected = list(whole.following(count, **sampling))
    assert len(set(expected)) == count  # the last is not met before
    following = early.following(9, stop=expected[-1:] if by_token else (), **sampling)
    tokens = [next(following) for _ in range(count)]
    if by_token:
        assert not list(following)
    following.close()
    assert tokens == expected
    assert (early.position, early.next_token) == (whole.position, whole.next_token)
    assert np.array_equal(early.logits(), whole.logits())


def test_tokens_fill_the_cache_to_its_end(dev: ost.Device) -> None:
    weights = models.random_weights(SHAPES["qwen3"], seed=3)
    following, stepped = (models.Decoder(dev, weights, capacity=20) for _ in range(2))
    for decoder in (following, stepped):
        decoder.prefill(PROMPT)
    # No token is computed that has no room.
    assert list(following.following(14)) == [stepped.next_token, *(stepped.step() for _ in range(13))]
    assert following.position == 20
    with pytest.raises(ost.ArgumentError, match="is full"):
        list(following.following(2))
    assert list(following.following(0)) == []


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 0.02), ("bfloat16", 0.15)])
def test_logits_of_forced_tokens(dev: ost.Device, dtype: str, tolerance: float) -> None:
    weights = models.random_weights(SHAPES["qwen3"], seed=5)  # experts may be chosen otherwise in lower precision
    decoder, reference = models.Decoder(dev, weights, dtype=dtype), models.ReferenceDecoder(weights)
    np.testing.assert_allclose(decoder.prefill(PROMPT), reference.forward(PROMPT)[-1], atol=tolerance)
    for token in (3, 200, 17):
        np.testing.assert_allclose(decoder.force(token), reference.forward([token])[0], atol=tolerance)


def test_a_prompt_in_two_parts_is_one_prompt(dev: ost.Device) -> None:
    weights = models.random_weights(SHAPES["qwen3"])
    decoder = models.Decoder(dev, weights, capacity=16)
    whole = decoder.prefill(PROMPT)
    decoder.reset()
    decoder.prefill(PROMPT[:3])
    np.testing.assert_allclose(decoder.prefill(PROMPT[3:]), whole, atol=1e-4)


def test_a_token_is_one_submission_and_its_parts_have_names(dev: ost.Device) -> None:
    decoder = models.Decoder(dev, models.random_weights(SHAPES["experts"]))
    decoder.prefill(PROMPT)
    with ost.counters.scope() as counts:
        decoder.step()
    assert counts.command_buffers == 1
    labels = {node.label for node in decoder.graph.nodes}
    assert {"decode/embed", "decode/layer.1/attn/sdpa", "decode/layer.0/mlp/route", "decode/head"} <= labels


def test_another_way_to_choose_experts_gives_the_same_tokens(dev: ost.Device) -> None:
    weights = models.random_weights(SHAPES["experts"])
    slow = models.Decoder(dev, weights, route=ops.serial_topk)
    assert slow.generate(PROMPT, 8) == models.Decoder(dev, weights).generate(PROMPT, 8)
    assert any("topk" in node.name for node in slow.graph.nodes)


def test_what_cannot_be_decoded_says_why(dev: ost.Device) -> None:
    weights = models.random_weights(SHAPES["llama"])
    decoder = models.Decoder(dev, weights, capacity=4)
    with pytest.raises(ost.ArgumentError, match="prefill a prompt first"):
        decoder.step()
    with pytest.raises(ost.ArgumentError, match="7 tokens are too many for a cache of 4"):
        decoder.prefill(PROMPT)
    with pytest.raises(ost.ArgumentError, match="token ids go from 0 to 255; got 3 to 256"):
        decoder.prefill([3, 256])
    with pytest.raises(ost.ArgumentError, match="at least one"):
        decoder.prefill([])
    decoder.prefill([1, 2, 3, 4])
    with pytest.raises(ost.ArgumentError, match="is full"):
        decoder.step()
    with pytest.raises(ost.ArgumentError, match="dtype is one of"):
        models.Decoder(dev, weights, dtype="int8")
    with pytest.raises(ost.ArgumentError, match="capacity"):
        models.Decoder(dev, weights, capacity=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_that_are_on_the_device_already_are_used_there(dev: ost.Device, dtype: str) -> None:
    weights = models.random_weights(SHAPES["experts"], dtype, seed=4)
    lent = {name: dev.array(array) for name, array in weights.items()}
    decoder = models.Decoder(dev, models.shared_weights(weights.config, lent), dtype=dtype)
    copied = models.Decoder(dev, weights, dtype=dtype)
    np.testing.assert_array_equal(decoder.prefill(PROMPT), copied.prefill(PROMPT))
    assert decoder.step() == copied.step()
