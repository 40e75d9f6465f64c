"""Configurations from files: `config.json` of a Hugging Face folder, and the metadata of a GGUF file.

Unsupported settings that change the result (biases, other activations, other kinds of RoPE scaling) are refused, never
ignored. Each function raises `Damaged`, or `ModelError` where it takes a path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from ..graph.file.values import Damaged, boolean, integer, listed, shown
from ..ops.formats import AFFINE_BITS, AFFINE_GROUPS
from .affine import SUPPORTED
from .config import (
    MAX_LAYERS,
    MAX_POSITIONS,
    DecoderConfig,
    Family,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    RopeScaling,
)
from .files import json_object, read_json, reading
from .gguf import GgufFile

_FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3-moe",
}
_GGUF_FAMILIES: dict[str, Family] = {"llama": "llama", "qwen3": "qwen3", "qwen3moe": "qwen3-moe"}
_MAX_TOKENS = 64


def read_config(folder: Path) -> DecoderConfig:
    """The configuration of a Hugging Face folder, with the end-of-text tokens of its `generation_config.json`."""
    path = folder / "config.json"
    with reading(path):
        config = hugging_face_config(json_object(read_json(path), "it"))
    path = folder / "generation_config.json"
    if not path.is_file():
        return config
    with reading(path):
        ends = _token_ids(json_object(read_json(path), "it").get("eos_token_id"), "eos_token_id")
        return _checked(replace, config, eos_tokens=ends or config.eos_tokens)


def hugging_face_config(document: Mapping[str, Any]) -> DecoderConfig:
    """The configuration in a `config.json`, read as `transformers` does."""
    values = _Values(document)
    names = listed(document.get("architectures"), "architectures")
    family = _FAMILIES.get(names[0]) if len(names) == 1 and type(names[0]) is str else None
    if family is None:
        raise Damaged(f"architectures is {shown(names)}; {', '.join(_FAMILIES)} are supported")
    _refuse_variants(document)
    hidden, heads = values.count("hidden_size"), values.count("num_attention_heads")
    layers = values.count("num_hidden_layers", most=MAX_LAYERS)
    theta, scaling = _rope(document)
    per_head = 128 if family == "qwen3" else hidden // heads
    moe = family == "qwen3-moe"
    window, full = _window(document, family, layers)
    begins = _token_ids(document.get("bos_token_id"), "bos_token_id")
    return _checked(
        DecoderConfig,
        family=family,
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=values.count("num_key_value_heads", heads),
        head_dim=values.count("head_dim", per_head),
        intermediate_size=values.count("intermediate_size"),
        vocab_size=values.count("vocab_size"),
        max_positions=values.count("max_position_embeddings", most=MAX_POSITIONS),
        norm_eps=values.number("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tied_embeddings=values.flag("tie_word_embeddings"),
        qk_norm=family != "llama",
        sliding_window=window,
        full_attention_layers=full,
        experts=values.count("num_experts" if "num_experts" in document else "num_local_experts") if moe else 0,
        experts_per_token=values.count("num_experts_per_tok") if moe else 0,
        moe_intermediate_size=values.count("moe_intermediate_size") if moe else 0,
        norm_topk_prob=values.flag("norm_topk_prob") if moe else False,
        dense_layers=_dense_layers(document, layers) if moe else (),
        bos_token=begins[0] if begins else None,
        eos_tokens=_token_ids(document.get("eos_token_id"), "eos_token_id"),
    )


def gguf_config(file: GgufFile) -> DecoderConfig:
    """The configuration of a GGUF file, from its metadata and the presence of two tensors."""
    architecture = file.metadata.get("general.architecture")
    family = _GGUF_FAMILIES.get(architecture) if type(architecture) is str else None
    if family is None:
        supported = ", ".join(_GGUF_FAMILIES)
        raise Damaged(f"general.architecture is {shown(architecture)}; {supported} are supported")
    prefix = f"{architecture}."
    document = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    values = _Values(document, prefix)
    _refuse_gguf_variants(values, family)
    hidden, heads = values.count("embedding_length"), values.count("attention.head_count")
    head_dim = values.count("attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if values.count(name, head_dim) != head_dim:
            raise Damaged(f"{prefix}{name} is {shown(document[name])}, not {head_dim} like the keys: not supported")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise Damaged("tensor 'token_embd.weight' is missing")
    moe = family == "qwen3-moe"
    return _checked(
        DecoderConfig,
        family=family,
        hidden_size=hidden,
        layers=values.count("block_count", most=MAX_LAYERS),
        heads=heads,
        kv_heads=values.count("attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate_size=values.count("feed_forward_length", 0 if moe else None, least=0),
        vocab_size=values.count("vocab_size", embedding.shape[0]),
        max_positions=values.count("context_length", most=MAX_POSITIONS),
        norm_eps=values.number("attention.layer_norm_rms_epsilon", 1e-6),
        rope_theta=values.number("rope.freq_base", 10_000.0),
        rope_scaling=_gguf_scaling(file, values),
        tied_embeddings="output.weight" not in file.tensors,
        qk_norm=family != "llama",
        experts=values.count("expert_count") if moe else 0,
        experts_per_token=values.count("expert_used_count") if moe else 0,
        moe_intermediate_size=values.count("expert_feed_forward_length") if moe else 0,
        # Qwen3-MoE files omit it and mean true.
        norm_topk_prob=values.flag("expert_weights_norm", True) if moe else False,
        bos_token=next(iter(_token_ids(file.metadata.get("tokenizer.ggml.bos_token_id"), "bos_token_id")), None),
        eos_tokens=_ends(file.metadata),
    )


def _ends(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that end a text, or a turn of one."""
    names = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot"))
    return tuple(dict.fromkeys(token for name in names for token in _token_ids(metadata.get(name), name)))


class _Values:
    """Values of a document by name. A value that is missing or null has its default, if there is one."""

    def __init__(self, document: Mapping[str, Any], prefix: str = "") -> None:
        self._document = document
        self._prefix = prefix

    def count(self, name: str, default: int | None = None, least: int = 1, most: int = 1 << 26) -> int:
        return integer(self._get(name, default), self._prefix + name, least, most)

    def number(self, name: str, default: float | None = None) -> float:
        return _number(self._get(name, default), self._prefix + name)

    def flag(self, name: str, default: bool = False) -> bool:
        return boolean(self._get(name, default), self._prefix + name)

    def text(self, name: str) -> str | None:
        value = self._get(name, "")
        if type(value) is not str:
            raise Damaged(f"{self._prefix}{name}: expected a string, not {shown(value)}")
        return value or None

    def _get(self, name: str, default: Any) -> Any:
        value = self._document.get(name)
        if value is None:
            value = default
        if value is None:
            raise Damaged(f"{self._prefix}{name} is missing")
        return value


def _checked(make: Any, *arguments: Any, **values: Any) -> DecoderConfig:
    try:
        config: DecoderConfig = make(*arguments, **values)
    except ModelError as error:
        raise Damaged(str(error)) from None
    return config


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Damaged(f"{where}: expected a number, not {shown(value)}")
    return float(value)


def _token_ids(value: Any, where: str) -> tuple[int, ...]:
    """Token ids from None, a number, or a list of numbers."""
    ids = value if type(value) is list else [] if value is None else [value]
    if len(ids) > _MAX_TOKENS:
        raise Damaged(f"{where}: {len(ids)} tokens; at most {_MAX_TOKENS} are read")
    return tuple(integer(token, where, 0, (1 << 24) - 1) for token in ids)


def _refuse_variants(document: Mapping[str, Any]) -> None:
    for name in ("attention_bias", "mlp_bias"):
        if document.get(name):
            raise Damaged(f"{name} is {shown(document[name])}: biases are not supported")
    if document.get("hidden_act", "silu") != "silu":
        raise Damaged(f"hidden_act is {shown(document['hidden_act'])}; only 'silu' is supported")
    for name in ("quantization", "quantization_config"):
        if document.get(name) is not None:
            _check_quantisation(json_object(document[name], name), name)


def _check_quantisation(entries: Mapping[str, Any], name: str) -> None:
    """Check for MLX's affine formats; layers may have settings of their own, or stay in floats."""
    if "quant_method" in entries:
        raise Damaged(f"{name}: quant_method is {shown(entries['quant_method'])}; only {SUPPORTED}")
    allowed: dict[str, tuple[Any, ...]] = {"bits": AFFINE_BITS, "group_size": AFFINE_GROUPS, "mode": ("affine",)}
    for key in ("bits", "group_size"):
        integer(entries.get(key), f"{name}.{key}", 1, 1 << 20)
    for key, value in entries.items():
        if key in allowed:
            settings, where = {key: value}, name
        elif type(value) is bool:  # quantised like the other layers, or not at all; its tensors show which
            continue
        else:
            settings, where = json_object(value, f"{name}, {shown(key)}"), f"{name}, {shown(key)}"
        for part, setting in settings.items():
            if type(setting) is bool or setting not in allowed.get(part, ()):
                raise Damaged(f"{where}: {part} is {shown(setting)}; only {SUPPORTED}")


def _rope(document: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """The base and scaling, from `rope_parameters`, or from `rope_theta` and `rope_scaling` in older files."""
    name = "rope_parameters" if document.get("rope_parameters") is not None else "rope_scaling"
    rope = json_object(document.get(name) or {}, name)
    values = _Values(rope, f"{name}.")
    theta = _number(rope.get("rope_theta", document.get("rope_theta", 10_000.0)), "rope_theta")
    for source in (document, rope):
        if source.get("partial_rotary_factor", 1) != 1:
            raise Damaged(f"partial_rotary_factor is {shown(source['partial_rotary_factor'])}: not supported")
    kind = values.text("rope_type") or values.text("type") or "default"
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, LinearScaling(values.number("factor"))
    if kind == "llama3":
        positions = document.get("max_position_embeddings")
        return theta, Llama3Scaling(
            values.number("factor"),
            values.number("low_freq_factor"),
            values.number("high_freq_factor"),
            values.count("original_max_position_embeddings", positions, most=MAX_POSITIONS),
        )
    raise Damaged(f"{name}: scaling {shown(kind)} is not supported; default, linear and llama3 are")


def _window(document: Mapping[str, Any], family: Family, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """The sliding window, and the layers with full attention."""
    values = _Values(document)
    window = None
    if family == "llama":
        if document.get("sliding_window") is not None:
            raise Damaged("sliding_window is not supported for Llama")
    elif values.flag("use_sliding_window") and document.get("sliding_window", 4096) is not None:
        window = values.count("sliding_window", 4096, most=MAX_POSITIONS)
    kinds = document.get("layer_types")
    if kinds is None:
        # Only the dense Qwen3 family has layers that differ.
        first = values.count("max_window_layers", 28, least=0) if family == "qwen3" else 0
        kinds = ["full_attention" if layer < first else "sliding_attention" for layer in range(layers)]
        kinds = kinds if window is not None else ["full_attention"] * layers
    for kind in listed(kinds, "layer_types", layers):
        if kind not in ("full_attention", "sliding_attention"):
            raise Damaged(f"layer_types: {shown(kind)} is not supported")
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")
    if window is None and len(full) < layers:
        raise Damaged("layer_types has sliding_attention, but there is no sliding window")
    if family == "qwen3-moe" and window is not None:
        full = ()
    return (None, ()) if len(full) == layers else (window, full)


def _dense_layers(document: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    numbers = listed(document.get("mlp_only_layers") or [], "mlp_only_layers")
    named = {integer(number, "mlp_only_layers", 0, MAX_LAYERS) for number in numbers}
    step = _Values(document).count("decoder_sparse_step", 1)
    return tuple(layer for layer in range(layers) if layer in named or (layer + 1) % step)


def _refuse_gguf_variants(values: _Values, family: Family) -> None:
    if family != "qwen3-moe" and values.count("expert_count", 0, least=0):
        raise Damaged("expert_count: experts are supported for Qwen3-MoE only")
    if values.count("attention.sliding_window", 0, least=0):
        raise Damaged("attention.sliding_window: sliding windows in GGUF files are not supported")


def _gguf_scaling(file: GgufFile, values: _Values) -> RopeScaling | None:
    kind = values.text("rope.scaling.type") or "none"
    if kind not in ("none", "linear"):
        raise Damaged(f"rope.scaling.type is {shown(kind)}; none and linear are supported")
    factors = file.tensors.get("rope_freqs.weight")
    if factors is None:
        return LinearScaling(values.number("rope.scaling.factor")) if kind == "linear" else None
    if kind == "linear":
        raise Damaged("linear RoPE scaling together with frequency factors is not supported")
    if factors.dtype != np.float32 or len(factors.shape) != 1 or factors.shape[0] > 4096:
        raise Damaged(
            f"tensor 'rope_freqs.weight' is {factors.format} of shape {list(factors.shape)}, not F32 in a row"
        )
    return FrequencyFactors(tuple(factors.array().tolist()))
