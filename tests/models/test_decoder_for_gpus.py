"""A decoder's graph as GPUs run it, where norms and rotation are parts of the products, on a simulated one."""

from __future__ import annotations

from dataclasses import replace

import pytest

import metal_sim
import ostinato as ost
from ostinato import models

metal_sim.install()

TINY = replace(models.preset("tiny"), layers=2)
SHAPES = {
    "fewer keys than queries": TINY,
    "as many": replace(TINY, kv_heads=TINY.heads),
    "normed queries": replace(TINY, family="qwen3", qk_norm=True, tied_embeddings=True),
    "experts": replace(models.preset("tiny-moe"), layers=1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_are_those_of_the_reference(shape: str) -> None:
    weights = models.random_weights(SHAPES[shape], seed=3)
    with ost.open_device("metal-sim:apple") as device:
        found = models.Decoder(device, weights, capacity=16).generate([72, 101, 108], 6)
    assert found == models.ReferenceDecoder(weights).generate([72, 101, 108], 6)


def test_a_layer_of_a_llama_is_five_dispatches() -> None:
    with ost.open_device("metal-sim:apple") as device:
        decoder = models.Decoder(device, models.random_weights(TINY), capacity=16)
        assert len(decoder.graph.optimise()) == 4 + 5 * TINY.layers
