"""Blocks of GGUF files are multiplied on the device as they are stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkpoints import write_gguf

import ostinato as ost
from ostinato import models


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0"])
def test_a_quantised_file_decodes_as_the_reference_does(dev: ost.Device, tmp_path: Path, name: str) -> None:
    dtype = models.FORMATS[name].dtype
    random = models.random_weights(models.preset("tiny"), seed=1)
    weights = models.load_weights(write_gguf(tmp_path / "tiny.gguf", random, dtype))
    assert weights.dtype("layer.0.attn.q") == dtype
    decoder, reference = models.Decoder(dev, weights), models.ReferenceDecoder(weights)
    prompt = [5, 80, 200]
    np.testing.assert_allclose(decoder.prefill(prompt), reference.forward(prompt)[-1], atol=1e-3)
    np.testing.assert_allclose(decoder.force(9), reference.forward([9])[0], atol=1e-3)
    assert decoder._weights["layer.0.mlp.down"].dtype == np.uint8
