"""Weights by our names: the same whatever file they come from, and one sentence about what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import (
    Q4_0,
    Q8_0,
    TINY,
    config_document,
    folder_tensors,
    gguf_bytes,
    gguf_metadata,
    gguf_tensors,
    safetensors_bytes,
    write_folder,
    write_gguf,
)

import ostinato as ost
from ostinato import models
from ostinato.models import as_float32, load_weights, preset, random_weights, tensor_shapes


def same(found: models.Weights, expected: models.Weights, tolerance: float = 0.0) -> None:
    assert set(found) == set(expected)
    for name in expected:
        assert found.shape(name) == expected.shape(name) == models.weight_shape(found[name])
        assert found[name].dtype == found.dtype(name)
        np.testing.assert_allclose(as_float32(found[name]), as_float32(expected[name]), rtol=0, atol=tolerance)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", TINY)
def test_a_folder_gives_back_what_was_written(family: str, dtype: str, tmp_path: Path) -> None:
    weights = random_weights(TINY[family], dtype)
    found = load_weights(write_folder(tmp_path / "model", weights))
    same(found, weights)
    assert found.config == TINY[family]
    assert found.nbytes == weights.nbytes == sum(array.nbytes for array in weights.values())


@pytest.mark.parametrize(("dtype", "tolerance"), [(None, 0.0), (np.float16, 1e-3), (ml_dtypes.bfloat16, 5e-3)])
@pytest.mark.parametrize("family", TINY)
def test_a_gguf_file_gives_back_what_was_written(family: str, dtype: Any, tolerance: float, tmp_path: Path) -> None:
    weights = random_weights(TINY[family])
    same(load_weights(write_gguf(tmp_path / "model.gguf", weights, dtype)), weights, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(Q8_0, 2e-3), (Q4_0, 3e-2)])
@pytest.mark.parametrize("family", TINY)
def test_quantised_weights_stay_in_their_blocks(family: str, dtype: Any, tolerance: float, tmp_path: Path) -> None:
    weights = random_weights(TINY[family])
    found = load_weights(write_gguf(tmp_path / "model.gguf", weights, dtype))
    same(found, weights, tolerance)
    assert found["layer.0.attn.q"].dtype == dtype
    assert found["layer.0.attn.norm"].dtype == np.float32


def test_tensors_in_one_piece_are_views_of_the_file(tmp_path: Path) -> None:
    found = load_weights(write_folder(tmp_path / "model", random_weights(TINY["qwen3-moe"])))
    assert not found["layer.0.attn.q"].flags.owndata
    assert not found["layer.0.attn.q"].flags.writeable
    assert found["layer.0.mlp.experts.gate"].shape == (8, 32, 64)


def test_a_tied_head_may_stand_in_the_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", random_weights(replace(TINY["llama"], tied_embeddings=False)))
    document = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(document))
    assert "head" not in load_weights(folder)


def edited(tmp_path: Path, change: Callable[[dict[str, Any]], Any], family: str = "llama") -> Path:
    tensors = folder_tensors(random_weights(TINY[family]))
    change(tensors)
    (tmp_path / "config.json").write_text(json.dumps(config_document(TINY[family])))
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return tmp_path


NORM = "model.layers.1.input_layernorm.weight"
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(NORM), f"tensor '{NORM}' is missing"),
        (
            lambda tensors: tensors.update({NORM: np.ones(63, np.float32)}),
            rf"tensor '{NORM}' has shape \[63\]; the configuration needs \[64\]",
        ),
        (lambda tensors: tensors.update({NORM: np.ones(64, np.int64)}), f"tensor '{NORM}' is in I64, which is not"),
        (
            lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": np.ones(128, np.float32)}),
            r"tensor 'model\.layers\.0\.self_attn\.q_proj\.bias' does not belong to this kind of decoder",
        ),
    ],
)
def test_a_wrong_tensor_is_named(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(ost.ModelError, match=message) as caught:
        load_weights(edited(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_a_wrong_expert_is_named(tmp_path: Path) -> None:
    with pytest.raises(ost.ModelError, match=f"tensor '{EXPERT}' is missing"):
        load_weights(edited(tmp_path, lambda tensors: tensors.pop(EXPERT), "qwen3-moe"))
    half = {EXPERT: np.ones((32, 64), np.float16)}
    with pytest.raises(ost.ModelError, match="do not all have the same dtype"):
        load_weights(edited(tmp_path, lambda tensors: tensors.update(half), "qwen3-moe"))


def test_more_experts_than_the_file_could_hold_cost_nothing(tmp_path: Path) -> None:
    folder = edited(tmp_path, lambda tensors: None, "qwen3-moe")
    document = config_document(TINY["qwen3-moe"]) | {"num_experts": 65_536, "num_hidden_layers": 4096}
    (folder / "config.json").write_text(json.dumps(document))
    with pytest.raises(ost.ModelError, match=r"has shape|is missing"):
        load_weights(folder)


def test_a_format_that_is_not_read_is_named_when_it_is_needed(tmp_path: Path) -> None:
    weights = random_weights(replace(TINY["llama"], hidden_size=256))
    data = gguf_bytes(gguf_metadata(weights.config), gguf_tensors(weights))
    name = b"blk.0.attn_q.weight"
    place = data.index(name) + len(name) + 4 + 16
    path = tmp_path / "model.gguf"
    path.write_bytes(data[:place] + b"\x17\0\0\0" + data[place + 4 :])
    with pytest.raises(ost.ModelError, match=r"attn_q\.weight' is in IQ4_XS; F32, F16, Q4_0, .* BF16 are supported"):
        load_weights(path)


def test_a_place_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ost.ModelError, match="no such file or folder"):
        load_weights(tmp_path / "nothing")
    with pytest.raises(ost.ModelError, match=r"no config\.json in it"):
        load_weights(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config_document(TINY["llama"])))
    with pytest.raises(ost.ModelError, match=r"there are no safetensors files in it$"):
        load_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ost.ModelError, match="pickled checkpoints contain code and are not loaded"):
        load_weights(tmp_path)
    for name in ("a.safetensors", "b.safetensors"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ost.ModelError, match="2 safetensors files, but no model"):
        load_weights(tmp_path)
    with pytest.raises(ost.ModelError, match="pass its folder"):
        load_weights(tmp_path / "a.safetensors")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ost.ModelError, match="not a GGUF file"):
        load_weights(tmp_path / "text")
    with pytest.raises(ost.ModelError, match="it cannot be read: File name too long"):
        load_weights(tmp_path / ("x" * 300))
    with pytest.raises(ost.ArgumentError, match="a path is a str or a Path, not 3"):
        load_weights(3)  # type: ignore[arg-type]


# --- random weights -------------------------------------------------------------------------------------------------


def test_random_weights_are_the_same_in_any_order_and_differ_by_name_and_seed() -> None:
    weights, again = random_weights(preset("tiny-moe")), random_weights(preset("tiny-moe"))
    for name in reversed(list(weights)):
        np.testing.assert_array_equal(again[name], weights[name])
    assert not np.array_equal(weights["layer.0.attn.q"], weights["layer.1.attn.q"])
    assert not np.array_equal(weights["layer.0.attn.q"], random_weights(preset("tiny-moe"), seed=1)["layer.0.attn.q"])


def test_random_weights_are_what_they_were() -> None:
    assert random_weights(preset("tiny"))["embedding"][0, :3].tolist() == pytest.approx(
        [0.026378193870186806, 0.019770843908190727, 0.06865862756967545]
    )


def test_random_weights_are_rounded_to_their_dtype() -> None:
    single, half = (random_weights(preset("tiny"), dtype)["embedding"] for dtype in ("float32", "bfloat16"))
    np.testing.assert_array_equal(single.astype(ml_dtypes.bfloat16), half)


@pytest.mark.parametrize("name", ["tiny", "tiny-moe"])
def test_random_weights_keep_activations_near_one(name: str) -> None:
    logits = models.ReferenceDecoder(random_weights(preset(name))).forward(list(b"an ostinato is a figure"))
    assert 0.5 < logits.std() < 2


def test_random_weights_are_made_when_asked_for() -> None:
    weights = random_weights(preset("llama-8b"), "bfloat16")
    assert weights.nbytes == 2 * models.parameter_count(preset("llama-8b"))
    assert weights["layer.31.attn.k"].shape == tensor_shapes(preset("llama-8b"))["layer.31.attn.k"]
    with pytest.raises(ost.TensorNotFound, match=r"no tensor 'layer\.32\.attn\.k'"):
        weights["layer.32.attn.k"]


@pytest.mark.parametrize(("options", "message"), [({"dtype": "int8"}, "dtype='int8'"), ({"seed": -1}, "seed=-1")])
def test_random_weights_of_no_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ost.ArgumentError, match=message):
        random_weights(preset("tiny"), **options)


# --- weights that another library has in memory ---------------------------------------------------------------------


class Lent:
    """The host's memory, offered as another library would."""

    def __init__(self, dev: ost.Device, array: np.ndarray) -> None:
        self.buffer = dev.array(array)

    def __dlpack__(self, **options: Any) -> object:
        return self.buffer.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.buffer.__dlpack_device__()


def lent(dev: ost.Device, weights: models.Weights) -> dict[str, Any]:
    return {name: Lent(dev, array) for name, array in weights.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("family", TINY)
def test_lent_tensors_are_what_they_were(dev: ost.Device, family: str, dtype: str) -> None:
    weights = random_weights(TINY[family], dtype)
    found = models.shared_weights(weights.config, lent(dev, weights))
    same(found, weights)
    assert found.nbytes == weights.nbytes


def test_lent_tensors_go_by_the_names_of_hugging_face_too(dev: ost.Device) -> None:
    weights = random_weights(TINY["qwen3"])
    theirs = {name: Lent(dev, array) for name, array in folder_tensors(weights).items()}
    theirs["lm_head.weight"] = theirs["model.embed_tokens.weight"]  # a state dict has tied embeddings twice
    same(models.shared_weights(weights.config, theirs), weights)


def test_a_decoder_of_their_dtype_reads_lent_tensors_where_they_are(dev: ost.Device) -> None:
    weights = random_weights(TINY["llama"])
    theirs = lent(dev, weights)
    shared, copied = (
        models.Decoder(dev, models.shared_weights(weights.config, theirs), capacity=8, dtype=dtype)
        for dtype in ("float32", "float16")
    )
    before = copied.prefill([1, 2, 3])
    theirs["head"].buffer.as_numpy()[:] = 0
    assert not shared.prefill([1, 2, 3]).any()
    copied.reset()
    np.testing.assert_array_equal(copied.prefill([1, 2, 3]), before)


def test_numpy_arrays_are_taken_too_and_copied(dev: ost.Device) -> None:
    weights = random_weights(TINY["llama"], "bfloat16")
    arrays = dict(weights)
    same(models.shared_weights(weights.config, arrays), weights)
    decoder = models.Decoder(dev, models.shared_weights(weights.config, arrays), capacity=8, dtype="bfloat16")
    before = decoder.prefill([1, 2, 3])
    arrays["head"][:] = 0
    decoder.reset()
    np.testing.assert_array_equal(decoder.prefill([1, 2, 3]), before)


class OnAnotherDevice(Lent):
    """A tensor whose memory the host cannot reach."""

    def __dlpack__(self, **options: Any) -> object:
        if options:
            raise BufferError("it is on a device")
        return super().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 7


def test_a_tensor_on_another_device_cannot_be_an_array(dev: ost.Device) -> None:
    weights = random_weights(TINY["llama"])
    theirs = lent(dev, weights) | {"norm": OnAnotherDevice(dev, weights["norm"])}
    found = models.shared_weights(weights.config, theirs)
    assert found.dtype("norm") == np.float32
    with pytest.raises(ost.ArgumentError, match="'norm' is in device memory, as float32; only a Decoder"):
        found["norm"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"norm": None}, "no tensor 'norm', nor 'model.norm.weight'"),
        ({"norm": [1.0]}, "'norm' is a list, which has no __dlpack__"),
        ({"norm": np.ones(3, np.float32)}, r"'norm' has shape \[3\]; the decoder needs \[64\]"),
        ({"norm": np.ones(64)}, "'norm' is float64"),
        ({"bias": np.ones(64, np.float32)}, "tensor 'bias' does not belong"),
    ],
)
def test_what_is_wrong_with_lent_tensors_is_said(changed: dict[str, Any], message: str) -> None:
    tensors = {name: one for name, one in (dict(random_weights(TINY["llama"])) | changed).items() if one is not None}
    with pytest.raises(ost.ArgumentError, match=message):
        models.shared_weights(TINY["llama"], tensors)
