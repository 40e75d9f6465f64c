"""Folders as MLX writes them: 4 bits in groups of 64, read and run as they are stored, or refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import (
    MLX_QUANTIZATION,
    TINY,
    affine,
    config_document,
    mlx_tensors,
    safetensors_bytes,
    write_mlx_folder,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import models
from ostinato.models import affine_format, as_float32, load_weights, random_weights
from ostinato.models.affine import affine_tensor, part_names
from ostinato.models.safetensors import read_safetensors
from ostinato.models.tensors import FLOATS, Array, StoredTensor
from ostinato.ops.formats import AFFINE_BITS, AFFINE_GROUPS
from small_graphs import dispatches

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
Q = "model.layers.0.self_attn.q_proj"


def one_by_one(words: Array, scales: Array, biases: Array, bits: int, group: int) -> Array:
    """Every weight by itself, by the description of the format."""
    rows, width = words.shape[0], words.shape[1] * 32 // bits
    found = np.zeros((rows, width), np.float32)
    for row in range(rows):
        whole = int.from_bytes(words[row].astype("<u4").tobytes(), "little")
        for column in range(width):
            number = whole >> bits * column & (1 << bits) - 1
            scale, bias = (np.float32(part[row, column // group]) for part in (scales, biases))
            found[row, column] = scale * np.float32(number) + bias
    return found


def stored(array: Array) -> StoredTensor:
    names = {"uint32": "U32", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    data = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:]  # as unaligned as a file may have it
    return StoredTensor(names[array.dtype.name], array.shape, array.dtype, data)


@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from(FLOATS),
    st.sampled_from(AFFINE_BITS),
    st.sampled_from(AFFINE_GROUPS),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=60)
def test_groups_are_the_weights_one_by_one(
    rows: int, groups: int, kind: np.dtype[Any], bits: int, group: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (rows, groups * group * bits // 32), np.uint32)
    scales, biases = (rng.standard_normal((rows, groups)).astype(kind) for _ in range(2))
    parts = {"x.weight": words, "x.scales": scales, "x.biases": biases}
    width = groups * group
    tensor = affine_tensor({name: stored(part) for name, part in parts.items()}, "x.weight", (rows, width))
    array = tensor.array()
    assert array.dtype == tensor.dtype == affine_format(bits, group, kind).dtype
    assert models.weight_shape(array) == (rows, width)
    assert models.is_quantised(array.dtype)
    np.testing.assert_array_equal(as_float32(array), one_by_one(words, scales, biases, bits, group))
    # Experts are the same with one axis more.
    stacked = {name: stored(np.stack([part, part[::-1]])) for name, part in parts.items()}
    both = affine_tensor(stacked, "x.weight", (2, rows, width)).array()
    np.testing.assert_array_equal(as_float32(both[0]), as_float32(array))
    np.testing.assert_array_equal(as_float32(both[1]), as_float32(array)[::-1])


@pytest.mark.parametrize("bits", AFFINE_BITS)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_file_of_mlx_itself_gives_the_weights_that_mlx_gives(tmp_path: Path, kind: str, bits: int) -> None:
    mx = pytest.importorskip("mlx.core")
    weights = mx.random.normal((5, 128), key=mx.random.key(1)).astype(getattr(mx, kind))
    parts = mx.quantize(weights, group_size=64, bits=bits)
    mx.save_safetensors(str(tmp_path / "x.safetensors"), dict(zip(part_names("x.weight"), parts, strict=True)))
    words, *rest = parts
    theirs = np.array(mx.dequantize(words, *(part.astype(mx.float32) for part in rest), group_size=64, bits=bits))
    ours = affine_tensor(read_safetensors(tmp_path / "x.safetensors"), "x.weight", (5, 128))
    assert ours.dtype == affine_format(bits, 64, kind).dtype
    np.testing.assert_allclose(as_float32(ours.array()), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("family", TINY)
def test_a_folder_of_mlx_gives_back_what_was_written(family: str, kind: Any, tmp_path: Path) -> None:
    weights = random_weights(TINY[family])
    found = load_weights(write_mlx_folder(tmp_path / "model", weights, kind))
    assert set(found) == set(weights)
    for name in weights:
        assert found.shape(name) == weights.shape(name) == models.weight_shape(found[name])
        assert found[name].dtype == found.dtype(name)
        whole = weights[name].ndim > 1 and weights.shape(name)[-1] % 64 == 0
        assert found.dtype(name) == (affine_format(4, 64, kind).dtype if whole else kind)
        np.testing.assert_allclose(as_float32(found[name]), weights[name], rtol=0.01, atol=0.05)
    assert found.nbytes == sum(part.nbytes for part in mlx_tensors(weights, kind).values())
    assert found.nbytes == sum(array.nbytes for array in found.values())


def test_the_older_key_alone_and_layers_left_in_floats_are_read(tmp_path: Path) -> None:
    weights = random_weights(TINY["llama"])
    folder = write_mlx_folder(tmp_path / "model", weights)
    tensors = mlx_tensors(weights)
    for end in ("scales", "biases"):
        del tensors[f"{Q}.{end}"]
    tensors[f"{Q}.weight"] = weights["layer.0.attn.q"].astype(np.float16)
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    said = {"quantization": {**MLX_QUANTIZATION, "mode": "affine", Q: False, "lm_head": dict(MLX_QUANTIZATION)}}
    (folder / "config.json").write_text(json.dumps(config_document(TINY["llama"]) | said))
    found = load_weights(folder)
    assert found.dtype("layer.0.attn.q") == np.float16
    assert found.dtype("layer.1.attn.q") == affine_format(4, 64, "float16").dtype


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({f"{Q}.biases": None}, f"tensor '{Q}.biases' is missing"),
        ({f"{Q}.weight": None}, f"tensor '{Q}.weight' is missing"),
        ({f"{Q}.scales": None}, rf"tensor '{Q}.weight' has shape \[128, 8\]; the configuration needs \[128, 64\]"),
        ({f"{Q}.weight": np.zeros((128, 14), np.uint32)}, r"rows of 14 words and 1 scales for 64 weights; .*8 bits"),
        (
            {f"{Q}.scales": np.zeros((128, 4), np.float16), f"{Q}.biases": np.zeros((128, 4), np.float16)},
            "8 words and 4 scales for 64 weights; .*in groups of 32, 64, 128 are supported",
        ),
        ({f"{Q}.scales": np.zeros((127, 1), np.float16)}, r"scales' has shape \[127, 1\], which does not match"),
        ({f"{Q}.scales": np.zeros((128, 2), np.float16)}, r"biases' has shape \[128, 1\]; the scales \[128, 2\]"),
        ({f"{Q}.weight": np.zeros((128, 8), np.float32)}, "is in F32 with scales in F16"),
        ({f"{Q}.biases": np.zeros((128, 1), np.float32)}, "biases in F32; expected U32, and one dtype"),
        ({"model.norm.scales": np.zeros(1, np.float16)}, "is missing"),
        (
            {"model.norm.scales": np.zeros(1, np.float16), "model.norm.biases": np.zeros(1, np.float16)},
            r"'model.norm.weight' has scales, but \[64\] are not rows of weights",
        ),
        ({"model.layers.0.self_attn.x_proj.scales": np.zeros(1, np.float16)}, "x_proj.scales' does not belong"),
    ],
    ids=range(12),
)
def test_tensors_that_do_not_belong_together_are_named(
    tmp_path: Path, change: dict[str, Array | None], message: str
) -> None:
    folder = write_mlx_folder(tmp_path / "model", random_weights(TINY["llama"]))
    tensors = mlx_tensors(random_weights(TINY["llama"])) | change
    kept = {name: array for name, array in tensors.items() if array is not None}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(kept))
    with pytest.raises(ost.ModelError, match=message) as caught:
        load_weights(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("preset", "seed"), [("tiny", 1), ("tiny-moe", 2)])
def test_a_folder_of_mlx_decodes_as_the_reference_does(dev: ost.Device, tmp_path: Path, preset: str, seed: int) -> None:
    """In 4 bits, and routers, values and `down` in 8, as mixed folders have it."""
    random = random_weights(models.preset(preset), seed=seed)
    mixed = {"router": 8, "attn.v": 8, "down": 8}
    weights = load_weights(write_mlx_folder(tmp_path / "model", random, bits=mixed))
    assert weights.dtype("layer.0.attn.v") == affine_format(8, 64, "float16").dtype
    assert weights.dtype("layer.0.attn.q") == affine_format(4, 64, "float16").dtype
    decoder, reference = models.Decoder(dev, weights), models.ReferenceDecoder(weights)
    prompt = [5, 80, 200]
    np.testing.assert_allclose(decoder.prefill(prompt), reference.forward(prompt)[-1], atol=1e-3)
    np.testing.assert_allclose(decoder.force(9), reference.forward([9])[0], atol=1e-3)
    kernels = {dispatch.kernel.name for dispatch in dispatches(decoder.graph)}
    assert "multiply_plain_affine_half_float_1" in kernels
    assert decoder._weights["layer.0.attn.q"].dtype == np.uint8


def test_the_reference_uses_what_the_words_say(tmp_path: Path) -> None:
    """Other numbers in one matrix, other logits: nothing is left at what the random weights were."""
    random = random_weights(TINY["llama"], seed=3)
    folder = write_mlx_folder(tmp_path / "model", random)
    before = models.ReferenceDecoder(load_weights(folder)).forward([1, 2])
    tensors = mlx_tensors(random)
    tensors["lm_head.weight"], *_ = affine(-random["head"])
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    after = models.ReferenceDecoder(load_weights(folder)).forward([1, 2])
    assert not np.allclose(before, after, atol=0.1)
