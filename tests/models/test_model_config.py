"""Configurations: presets, what files say, and what is refused rather than ignored."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TINY, config_document, gguf_bytes, gguf_metadata
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.models import (
    PRESETS,
    DecoderConfig,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    parameter_count,
    preset,
    tensor_shapes,
)
from ostinato.models.config_files import gguf_config, read_config
from ostinato.models.files import reading
from ostinato.models.gguf import read_gguf


def from_folder(folder: Path, document: Any, generation: Any = None) -> DecoderConfig:
    (folder / "config.json").write_text(json.dumps(document))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return read_config(folder)


def from_gguf(folder: Path, metadata: dict[str, Any], tensors: dict[str, Any] | None = None) -> DecoderConfig:
    path = folder / "model.gguf"
    found = {"token_embd.weight": np.zeros((100, 64), np.float32)} | (tensors or {})
    path.write_bytes(gguf_bytes(metadata, found))
    file = read_gguf(path)
    with reading(path):
        return gguf_config(file)


# --- presets --------------------------------------------------------------------------------------------------------


def test_presets_have_as_many_parameters_as_the_published_models() -> None:
    assert parameter_count(preset("llama-1b")) == 1_235_814_400
    assert parameter_count(preset("llama-8b")) == 8_030_261_248
    assert parameter_count(preset("qwen3-0.6b")) == 596_049_920
    assert list(PRESETS) == ["tiny", "tiny-moe", "llama-1b", "qwen3-0.6b", "llama-8b"]


def test_an_unknown_preset_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ost.ArgumentError, match="'llama-2b'; there are tiny, tiny-moe, llama-1b"):
        preset("llama-2b")


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        preset("tiny").layers = 3  # type: ignore[misc]


def test_a_configuration_that_makes_no_sense_is_not_made() -> None:
    for change, message in {
        ("layers", 0): "layers is 0, not an integer from 1",
        ("layers", 1 << 40): "layers is 1099511627776",
        ("kv_heads", 3): "8 heads cannot share 3",
        ("head_dim", 33): "odd",
        ("norm_eps", float("nan")): "norm_eps is nan",
        ("rope_theta", -1.0): "rope_theta is -1.0",
        ("experts_per_token", 2): "experts_per_token is 2",
        ("experts", 4): "experts_per_token is 0",
        ("dense_layers", (9,)): "dense_layers names a layer",
        ("rope_scaling", LinearScaling(0.0)): "a factor of the RoPE scaling",
        ("rope_scaling", FrequencyFactors((1.0,))): "1 frequency factors, not 16",
        ("rope_scaling", Llama3Scaling(8.0, 4.0, 4.0, 8192)): "not below high_freq_factor",
        ("qk_norm", 1): "qk_norm is 1, not True or False",
    }.items():
        with pytest.raises(ost.ModelError, match=message):
            replace(preset("tiny"), **dict([change]))  # type: ignore[arg-type]


def test_shapes_follow_the_configuration() -> None:
    config = replace(TINY["qwen3-moe"], dense_layers=(1,), tied_embeddings=True)
    shapes = tensor_shapes(config)
    assert shapes["layer.0.attn.q"] == (128, 64)
    assert shapes["layer.0.attn.k_norm"] == (32,)
    assert shapes["layer.0.mlp.experts.down"] == (8, 64, 32)
    assert shapes["layer.1.mlp.down"] == (64, 96)
    assert "layer.1.mlp.router" not in shapes
    assert "head" not in shapes


# --- rotation -------------------------------------------------------------------------------------------------------


def test_scaling_stretches_long_waves_and_keeps_short_ones() -> None:
    plain = replace(preset("llama-8b"), rope_scaling=None).inverse_frequencies()
    scaled = preset("llama-8b").inverse_frequencies()
    assert plain[0] == scaled[0] == 1
    np.testing.assert_allclose(scaled[-1], plain[-1] / 8, rtol=1e-6)
    assert np.all(np.diff(scaled) < 0)
    linear = replace(preset("llama-8b"), rope_scaling=LinearScaling(4.0)).inverse_frequencies()
    np.testing.assert_allclose(linear, plain / 4, rtol=1e-6)


# --- config.json ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", TINY)
def test_a_folder_says_what_the_decoder_is(family: str, tmp_path: Path) -> None:
    assert from_folder(tmp_path, config_document(TINY[family])) == TINY[family]


def test_rope_parameters_are_read_in_both_spellings(tmp_path: Path) -> None:
    document = config_document(TINY["llama"])
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    new = {**document, "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **scaling}}
    old = {**document, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **scaling}}
    assert from_folder(tmp_path, new) == from_folder(tmp_path, old)
    assert from_folder(tmp_path, new).rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)
    old["rope_scaling"] = {"type": "linear", "factor": 2}
    assert from_folder(tmp_path, old).rope_scaling == LinearScaling(2.0)


def test_what_is_left_out_has_the_value_that_transformers_gives_it(tmp_path: Path) -> None:
    document = config_document(TINY["llama"])
    for name in "num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling tie_word_embeddings".split():
        del document[name]
    config = from_folder(tmp_path, document)
    assert (config.kv_heads, config.head_dim, config.norm_eps, config.rope_theta) == (4, 16, 1e-6, 10_000.0)


def test_layers_may_differ(tmp_path: Path) -> None:
    document = config_document(TINY["qwen3-moe"]) | {"decoder_sparse_step": 2, "mlp_only_layers": [1]}
    assert from_folder(tmp_path, document).dense_layers == (0, 1, 2)
    document = config_document(TINY["qwen3"]) | {"use_sliding_window": True, "sliding_window": 7}
    config = from_folder(tmp_path, document | {"max_window_layers": 1})
    assert [config.window(layer) for layer in range(2)] == [None, 7]
    config = from_folder(tmp_path, document | {"layer_types": ["sliding_attention", "full_attention"]})
    assert [config.window(layer) for layer in range(2)] == [7, None]
    assert from_folder(tmp_path, document | {"use_sliding_window": False}).sliding_window is None


def test_tokens_that_end_a_text_come_from_the_generation_if_it_has_them(tmp_path: Path) -> None:
    document = config_document(TINY["llama"]) | {"bos_token_id": 1, "eos_token_id": 2}
    assert from_folder(tmp_path, document).eos_tokens == (2,)
    config = from_folder(tmp_path, document, {"eos_token_id": [2, 3]})
    assert (config.bos_token, config.eos_tokens) == (1, (2, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "LlamaForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM are supported",
        ),
        ({"architectures": None}, "architectures: expected a list"),
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "64"}, "hidden_size: expected an integer"),
        ({"hidden_size": True}, "hidden_size: expected an integer"),
        ({"num_hidden_layers": 1 << 30}, "num_hidden_layers: expected an integer from 1 to 4096"),
        ({"num_attention_heads": 0}, "num_attention_heads: expected an integer from 1"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps: expected a number"),
        ({"attention_bias": True}, "attention_bias is True: biases are not supported"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"hidden_act": "gelu"}, "only 'silu' is supported"),
        ({"quantization_config": {}}, r"quantization_config\.bits: expected an integer"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quant_method is 'gptq'; only MLX's affine"),
        ({"quantization": 4}, "quantization: expected an object"),
        ({"quantization": {"group_size": 64}}, r"quantization\.bits: expected an integer"),
        (
            {"quantization": {"group_size": 64, "bits": 7}},
            "bits is 7; only MLX's affine formats of 2, 3, 4, 5, 6, 8 bits",
        ),
        ({"quantization": {"group_size": 16, "bits": 4}}, "group_size is 16; only MLX's .* in groups of 32, 64, 128"),
        ({"quantization": {"group_size": 64, "bits": 4, "mode": "mxfp4"}}, "mode is 'mxfp4'; only MLX's affine"),
        (
            {"quantization": {"group_size": 64, "bits": 4, "model.layers.0.mlp.gate": {"group_size": 64, "bits": 9}}},
            r"quantization, 'model\.layers\.0\.mlp\.gate': bits is 9; only MLX's affine",
        ),
        ({"quantization": {"group_size": 64, "bits": 4, "lm_head": "no"}}, "'lm_head': expected an object"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "scaling 'yarn' is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, r"rope_scaling\.factor is missing"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "a factor of the RoPE scaling"),
        ({"rope_scaling": [1]}, "rope_scaling: expected an object"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"sliding_window": 5}, "sliding_window is not supported for Llama"),
        ({"eos_token_id": [2, "x"]}, "eos_token_id: expected an integer"),
        ({"layer_types": ["linear_attention"] * 2}, "'linear_attention' is not supported"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ost.ModelError, match=message) as caught:
        from_folder(tmp_path, config_document(TINY["llama"]) | change)
    assert "config.json" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)
KEYS = """architectures hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim layer_types
intermediate_size vocab_size max_position_embeddings rms_norm_eps rope_theta rope_scaling rope_parameters hidden_act
tie_word_embeddings num_experts num_experts_per_tok moe_intermediate_size norm_topk_prob mlp_only_layers bos_token_id
decoder_sparse_step sliding_window use_sliding_window max_window_layers eos_token_id attention_bias""".split()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    family=st.sampled_from(sorted(TINY)),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON | st.integers(0, 5000), min_size=1, max_size=3),
)
def test_a_configuration_may_say_anything(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    try:
        config = from_folder(tmp_path, config_document(TINY[family]) | changes)
    except ost.ModelError:
        return
    assert np.isfinite(config.inverse_frequencies()).all()
    assert tensor_shapes(config)


# --- GGUF -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", TINY)
def test_a_gguf_file_says_what_the_decoder_is(family: str, tmp_path: Path) -> None:
    expected = replace(
        TINY[family],
        eos_tokens=(2,),
        tied_embeddings=True,
        norm_eps=float(np.float32(TINY[family].norm_eps)),  # the file has it in single precision
    )
    assert from_gguf(tmp_path, gguf_metadata(TINY[family])) == expected


def test_a_turn_ends_where_a_gguf_file_says_so(tmp_path: Path) -> None:
    metadata = gguf_metadata(TINY["qwen3"]) | {"tokenizer.ggml.eot_token_id": 9}
    assert from_gguf(tmp_path, metadata).eos_tokens == (2, 9)


def test_factors_of_frequencies_in_a_gguf_file_are_the_scaling_they_came_from(tmp_path: Path) -> None:
    plain = replace(TINY["llama"], rope_theta=500_000.0)
    scaled = replace(plain, rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 64))
    factors = plain.inverse_frequencies() / scaled.inverse_frequencies()
    config = from_gguf(tmp_path, gguf_metadata(plain), {"rope_freqs.weight": factors})
    assert isinstance(config.rope_scaling, FrequencyFactors)
    np.testing.assert_allclose(config.inverse_frequencies(), scaled.inverse_frequencies(), rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "gpt2"}, "llama, qwen3, qwen3moe are supported"),
        ({"general.architecture": 3}, "general.architecture is 3"),
        ({"llama.block_count": "many"}, r"llama\.block_count: expected an integer"),
        ({"llama.attention.head_count": np.array([4, 4], np.uint32)}, r"head_count: expected an integer"),
        ({"llama.attention.value_length": 16}, "value_length is 16, not 32"),
        ({"llama.rope.dimension_count": 16}, "dimension_count is 16, not 32"),
        ({"llama.rope.scaling.type": "yarn"}, "none and linear are supported"),
        ({"llama.rope.scaling.type": "linear"}, r"rope\.scaling\.factor is missing"),
        ({"llama.expert_count": 8}, "experts are supported for Qwen3-MoE only"),
        ({"llama.attention.sliding_window": 8}, "sliding windows"),
        ({"llama.rope.freq_base": float("nan")}, r"freq_base: expected a number, not nan"),
    ],
)
def test_a_gguf_file_that_cannot_be_run_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ost.ModelError, match=message):
        from_gguf(tmp_path, gguf_metadata(TINY["llama"]) | change)
