"""Checkpoints written by hand: what the readers of `ostinato.models` are tested with."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ostinato import models
from ostinato.models import FORMATS, DecoderConfig
from ostinato.models.tensors import Array

Q4_0, Q8_0 = FORMATS["Q4_0"].dtype, FORMATS["Q8_0"].dtype

TINY = {
    "llama": DecoderConfig(
        family="llama",
        hidden_size=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=100,
        max_positions=512,
        norm_eps=1e-5,
        rope_theta=10_000.0,
    ),
    "qwen3": DecoderConfig(
        family="qwen3",
        hidden_size=64,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=100,
        max_positions=512,
        norm_eps=1e-6,
        rope_theta=1_000_000.0,
        tied_embeddings=True,
        qk_norm=True,
    ),
    "qwen3-moe": DecoderConfig(
        family="qwen3-moe",
        hidden_size=64,
        layers=3,
        heads=4,
        kv_heads=2,
        head_dim=32,
        intermediate_size=96,
        vocab_size=100,
        max_positions=512,
        norm_eps=1e-6,
        rope_theta=1_000_000.0,
        qk_norm=True,
        experts=8,
        experts_per_token=2,
        moe_intermediate_size=32,
        norm_topk_prob=True,
    ),
}

# --- safetensors ----------------------------------------------------------------------------------------------------

_SAFETENSORS_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "uint8": "U8"}
_SAFETENSORS_NAMES |= {"uint32": "U32"}


def safetensors_bytes(tensors: Mapping[str, Array]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in tensors.items():
        data = array.tobytes()
        header[name] = {
            "dtype": _SAFETENSORS_NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    return with_header(header, body)


def with_header(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


# --- Hugging Face folders -------------------------------------------------------------------------------------------

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3-moe": "Qwen3MoeForCausalLM"}


def config_document(config: DecoderConfig) -> dict[str, Any]:
    """A `config.json` that says the same."""
    document: dict[str, Any] = {
        "architectures": [ARCHITECTURES[config.family]],
        "model_type": config.family.replace("-", "_"),
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "tie_word_embeddings": config.tied_embeddings,
        "hidden_act": "silu",
    }
    if config.experts:
        document |= {
            "num_experts": config.experts,
            "num_experts_per_tok": config.experts_per_token,
            "moe_intermediate_size": config.moe_intermediate_size,
            "norm_topk_prob": config.norm_topk_prob,
            "mlp_only_layers": list(config.dense_layers),
        }
    return document


_FOLDER_PARTS = {
    "attn.norm": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "mlp.norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "mlp.router": "mlp.gate",
}
_FOLDER_ENDS = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}


def folder_tensors(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Our tensors under the names of a Hugging Face folder, experts one by one."""
    found = {}
    for name, array in weights.items():
        if name in _FOLDER_ENDS:
            found[_FOLDER_ENDS[name]] = array
            continue
        _, layer, part = name.split(".", 2)
        if part.startswith("mlp.experts."):
            kind = part.removeprefix("mlp.experts.")
            for expert, one in enumerate(array):
                found[f"model.layers.{layer}.mlp.experts.{expert}.{kind}_proj.weight"] = one
        else:
            found[f"model.layers.{layer}.{_FOLDER_PARTS[part]}.weight"] = array
    return found


def write_folder(folder: Path, weights: models.Weights) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_document(weights.config)))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(folder_tensors(weights)))
    return folder


# --- MLX folders ----------------------------------------------------------------------------------------------------

MLX_QUANTIZATION = {"group_size": 64, "bits": 4}


def affine(array: Array, kind: Any = np.float16, bits: int = 4, group: int = 64) -> tuple[Array, Array, Array]:
    """Words, scales and biases of weights: each group from its least to its greatest in equal steps."""
    groups = array.astype(np.float32).reshape(*array.shape[:-1], -1, group)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    most = (1 << bits) - 1
    scales, biases = ((high - low) / most).astype(kind), low.astype(kind)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)[..., None]
    numbers = np.clip(np.rint((groups - biases.astype(np.float32)[..., None]) / steps), 0, most).astype(np.uint8)
    ones = numbers.reshape(*array.shape, 1) >> np.arange(bits, dtype=np.uint8) & 1
    packed = np.packbits(ones.reshape(*array.shape[:-1], -1), axis=-1, bitorder="little")
    return packed.view("<u4"), scales, biases


def mlx_tensors(weights: Mapping[str, Array], kind: Any = np.float16, bits: Mapping[str, int] = {}) -> dict[str, Array]:
    """Our tensors as MLX saves them: matrices whose rows are whole groups quantised, experts of a layer together.

    `bits` are those of matrices whose names end like that; others have 4.
    """
    found: dict[str, Array] = {}
    for name, array in weights.items():
        if ".mlp.experts." in name:
            _, layer, _, _, part = name.split(".")
            theirs = f"model.layers.{layer}.mlp.switch_mlp.{part}_proj"
        else:
            ((theirs, _),) = folder_tensors({name: array}).items()
            theirs = theirs.removesuffix(".weight")
        if array.ndim > 1 and array.shape[-1] % 64 == 0:
            parts = affine(array, kind, next((bits[end] for end in bits if name.endswith(end)), 4))
            found |= {f"{theirs}.{end}": one for end, one in zip(("weight", "scales", "biases"), parts, strict=True)}
        else:
            found[f"{theirs}.weight"] = array.astype(kind)
    return found


def write_mlx_folder(
    folder: Path, weights: models.Weights, kind: Any = np.float16, bits: Mapping[str, int] = {}
) -> Path:
    folder.mkdir(exist_ok=True)
    said = {"quantization": MLX_QUANTIZATION, "quantization_config": MLX_QUANTIZATION}
    (folder / "config.json").write_text(json.dumps(config_document(weights.config) | said))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(mlx_tensors(weights, kind, bits)))
    return folder


# --- GGUF -----------------------------------------------------------------------------------------------------------

_GGUF_TYPES: dict[Any, int] = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 1,
    **{form.dtype: form.kind or 0 for form in FORMATS.values()},
    np.dtype(ml_dtypes.bfloat16): 30,
}
_NUMPY_TYPES = {"uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "float32": 6}
_NUMPY_TYPES |= {"bool": 7, "uint64": 10, "int64": 11, "float64": 12}


def gguf_string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value: Any) -> bytes:
    """A value with its type before it; a plain int is a uint32, a float a float32."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
    kind, data = _NUMPY_TYPES[value.dtype.name], bytes(value.tobytes())
    if value.ndim:
        return struct.pack("<IIQ", 9, kind, len(value)) + data
    return struct.pack("<I", kind) + data


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, Array], version: int = 3, alignment: int = 32
) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))
    head += b"".join(gguf_string(key) + gguf_value(value) for key, value in metadata.items())
    body = b""
    for name, array in tensors.items():
        shape = models.weight_shape(array)[::-1]
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        head += struct.pack("<IQ", _GGUF_TYPES[array.dtype], len(body))
        body += array.tobytes()
        body += bytes(-len(body) % alignment)
    return head + bytes(-len(head) % alignment) + body


def gguf_metadata(config: DecoderConfig) -> dict[str, Any]:
    name = config.family.replace("-", "")
    metadata: dict[str, Any] = {
        "general.architecture": name,
        f"{name}.block_count": config.layers,
        f"{name}.context_length": config.max_positions,
        f"{name}.embedding_length": config.hidden_size,
        f"{name}.feed_forward_length": config.intermediate_size,
        f"{name}.attention.head_count": config.heads,
        f"{name}.attention.head_count_kv": config.kv_heads,
        f"{name}.attention.key_length": config.head_dim,
        f"{name}.attention.value_length": config.head_dim,
        f"{name}.attention.layer_norm_rms_epsilon": config.norm_eps,
        f"{name}.rope.dimension_count": config.head_dim,
        f"{name}.rope.freq_base": config.rope_theta,
        "tokenizer.ggml.tokens": [f"t{one}" for one in range(config.vocab_size)],
        "tokenizer.ggml.eos_token_id": 2,
    }
    if config.experts:
        metadata |= {
            f"{name}.expert_count": config.experts,
            f"{name}.expert_used_count": config.experts_per_token,
            f"{name}.expert_feed_forward_length": config.moe_intermediate_size,
        }
    return metadata


_GGUF_PARTS = {
    "attn.norm": "attn_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "mlp.norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate": "ffn_gate_exps",
    "mlp.experts.up": "ffn_up_exps",
    "mlp.experts.down": "ffn_down_exps",
}
_GGUF_ENDS = {"embedding": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}


def gguf_tensors(weights: models.Weights, dtype: Any = None) -> dict[str, Array]:
    """Our tensors under the names of a GGUF file, matrices in `dtype`; Llama's queries and keys in pairs."""
    found = {}
    for name, array in weights.items():
        if weights.config.family == "llama" and name.endswith((".attn.q", ".attn.k")):
            array = in_pairs(array, weights.config.head_dim)
        if dtype is not None and array.ndim > 1:
            kind = dtype[name.rpartition(".")[2]] if isinstance(dtype, Mapping) else dtype
            array = quantised(array, kind) if models.is_quantised(np.dtype(kind)) else array.astype(kind)
        if name in _GGUF_ENDS:
            found[_GGUF_ENDS[name]] = array
        else:
            _, layer, part = name.split(".", 2)
            found[f"blk.{layer}.{_GGUF_PARTS[part]}.weight"] = array
    return found


def in_pairs(array: Array, head_dim: int) -> Array:
    """Row `i` and row `i + head_dim / 2` of each head next to each other."""
    order = []
    for begin in range(0, len(array), head_dim):
        for one in range(head_dim // 2):
            order += [begin + one, begin + one + head_dim // 2]
    return array[order]


def write_gguf(path: Path, weights: models.Weights, dtype: Any = None) -> Path:
    path.write_bytes(gguf_bytes(gguf_metadata(weights.config), gguf_tensors(weights, dtype)))
    return path


def random_blocks(form: models.Format, shape: tuple[int, ...], seed: int) -> Array:
    """Weights of this shape in blocks of any bytes, with scales such that weights are near one."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*shape[:-1], form.row_bytes(shape[-1])), np.uint8).view(form.dtype)
    for field in ("scale", "offset", "minimum", "bias"):
        if field in (form.dtype.fields or {}):
            blocks[field] = rng.uniform(-1, 1, blocks.shape)
    most = np.abs(form.dequantised(blocks)).max()
    for field in ("scale", "offset", "minimum", "bias"):
        if field in (form.dtype.fields or {}):
            blocks[field] /= most
    return blocks


def quantised(array: Array, dtype: np.dtype[Any]) -> Array:
    """Weights in blocks, each rounded to the nearest that its block can hold; in other formats random ones."""
    if dtype not in (Q4_0, Q8_0):
        form = next(form for form in FORMATS.values() if form.dtype == dtype)
        blocks = random_blocks(form, array.shape, zlib.crc32(array.tobytes()[:64]))
        spread = float(np.std(array)) / float(np.std(form.dequantised(blocks)))
        for field in ("scale", "offset", "minimum"):
            if field in (form.dtype.fields or {}):
                blocks[field] *= spread
        return blocks
    blocks = array.astype(np.float32).reshape(*array.shape[:-1], -1, 32)
    most = 7 if dtype == Q4_0 else 127
    found = np.zeros(blocks.shape[:-1], dtype)
    found["scale"] = np.abs(blocks).max(axis=-1) / most
    scale = found["scale"].astype(np.float32)[..., None]
    quants = np.clip(np.rint(blocks / np.where(scale == 0, 1, scale)), -most, most).astype(np.int8)
    if dtype == Q4_0:
        nibbles = (quants + 8).astype(np.uint8)
        found["quants"] = nibbles[..., :16] | nibbles[..., 16:] << 4
    else:
        found["quants"] = quants
    return found
