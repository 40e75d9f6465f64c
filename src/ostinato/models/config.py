"""Configurations of decoders: one frozen record for Llama, Qwen3 and Qwen3-MoE, and the presets.

A `DecoderConfig` is checked when it is made, so shapes can be computed from it without further checks.
`config_files.py` reads them from files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ModelError

Family = Literal["llama", "qwen3", "qwen3-moe"]

MAX_LAYERS = 4096
MAX_EXPERTS = 1 << 16
MAX_SIZE = 1 << 24
"""Limit of a row of any tensor, and of the vocabulary."""
MAX_HEAD_DIM = 1024
MAX_POSITIONS = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by a factor."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies are divided by a factor, high ones are kept, and those between are blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int


@dataclass(frozen=True, slots=True)
class FrequencyFactors:
    """Each frequency has its own divisor; GGUF files store `Llama3Scaling` like this."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | FrequencyFactors


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The shape of a decoder. `experts` is 0 for a dense decoder; `bos_token` and `eos_tokens` are set if known."""

    family: Family
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_embeddings: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    full_attention_layers: tuple[int, ...] = ()
    """Layers with full attention, in a decoder with a sliding window."""
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    norm_topk_prob: bool = False
    dense_layers: tuple[int, ...] = ()
    """Layers without experts, in a decoder with experts."""
    bos_token: int | None = None
    eos_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ModelError(f"invalid decoder configuration: {problem}")

    @property
    def query_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    def has_experts(self, layer: int) -> bool:
        return self.experts > 0 and layer not in self.dense_layers

    def window(self, layer: int) -> int | None:
        """How many positions a token of this layer attends to, including its own; None for all."""
        return None if layer in self.full_attention_layers else self.sliding_window

    def inverse_frequencies(self) -> NDArray[np.float32]:
        """Radians per position for each pair of a head, with scaling applied."""
        frequencies = self.rope_theta ** -(np.arange(0, self.head_dim, 2, dtype=np.float64) / self.head_dim)
        scaling = self.rope_scaling
        if isinstance(scaling, LinearScaling):
            frequencies = frequencies / scaling.factor
        elif isinstance(scaling, FrequencyFactors):
            frequencies = frequencies / np.array(scaling.factors)
        elif isinstance(scaling, Llama3Scaling):
            turns = scaling.original_positions * frequencies / (2 * math.pi)
            low, high = scaling.low_freq_factor, scaling.high_freq_factor
            kept = np.clip((turns - low) / (high - low), 0, 1)
            frequencies = kept * frequencies + (1 - kept) * frequencies / scaling.factor
        return frequencies.astype(np.float32)


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor of a decoder, in the order of their use. Matrices are (outputs, inputs)."""
    return dict(_shapes(config))


def parameter_count(config: DecoderConfig) -> int:
    return sum(math.prod(shape) for shape in tensor_shapes(config).values())


def preset(name: str) -> DecoderConfig:
    """The configuration of that name in `PRESETS`."""
    config = PRESETS.get(name) if isinstance(name, str) else None
    if config is None:
        raise ArgumentError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return config


def _shapes(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, query, kv = config.hidden_size, config.query_size, config.kv_size
    yield "embedding", (config.vocab_size, hidden)
    for layer in range(config.layers):
        attention, mlp = f"layer.{layer}.attn", f"layer.{layer}.mlp"
        yield f"{attention}.norm", (hidden,)
        yield f"{attention}.q", (query, hidden)
        yield f"{attention}.k", (kv, hidden)
        yield f"{attention}.v", (kv, hidden)
        if config.qk_norm:
            yield f"{attention}.q_norm", (config.head_dim,)
            yield f"{attention}.k_norm", (config.head_dim,)
        yield f"{attention}.o", (hidden, query)
        yield f"{mlp}.norm", (hidden,)
        if config.has_experts(layer):
            experts, inner = config.experts, config.moe_intermediate_size
            yield f"{mlp}.router", (experts, hidden)
            yield f"{mlp}.experts.gate", (experts, inner, hidden)
            yield f"{mlp}.experts.up", (experts, inner, hidden)
            yield f"{mlp}.experts.down", (experts, hidden, inner)
        else:
            inner = config.intermediate_size
            yield f"{mlp}.gate", (inner, hidden)
            yield f"{mlp}.up", (inner, hidden)
            yield f"{mlp}.down", (hidden, inner)
    yield "norm", (hidden,)
    if not config.tied_embeddings:
        yield "head", (config.vocab_size, hidden)


def _problems(config: DecoderConfig) -> Iterator[str]:
    limits = {
        "hidden_size": (1, MAX_SIZE),
        "layers": (1, MAX_LAYERS),
        "heads": (1, MAX_SIZE),
        "kv_heads": (1, MAX_SIZE),
        "head_dim": (2, MAX_HEAD_DIM),
        "intermediate_size": (0 if config.experts else 1, MAX_SIZE),
        "vocab_size": (1, MAX_SIZE),
        "max_positions": (1, MAX_POSITIONS),
        "experts": (0, MAX_EXPERTS),
        "experts_per_token": (1 if config.experts else 0, config.experts),
        "moe_intermediate_size": (1, MAX_SIZE) if config.experts else (0, 0),
    }
    for name, (least, most) in limits.items():
        value = getattr(config, name)
        if type(value) is not int or not least <= value <= most:
            yield f"{name} is {value!r}, not an integer from {least} to {most}"
    for name in "tied_embeddings qk_norm norm_topk_prob".split():
        if type(getattr(config, name)) is not bool:
            yield f"{name} is {getattr(config, name)!r}, not True or False"
    if config.family not in ("llama", "qwen3", "qwen3-moe"):
        yield f"family is {config.family!r}, not llama, qwen3 or qwen3-moe"
    if config.heads % config.kv_heads:
        yield f"{config.heads} heads cannot share {config.kv_heads} key-value heads evenly"
    if config.query_size > MAX_SIZE:
        yield f"{config.heads} heads of {config.head_dim} are more than {MAX_SIZE} values"
    if config.head_dim % 2:
        yield f"head_dim is {config.head_dim}, which is odd"
    if not 0 <= config.norm_eps <= 1:
        yield f"norm_eps is {config.norm_eps!r}, not a number from 0 to 1"
    if not 1 <= config.rope_theta <= 1e30:
        yield f"rope_theta is {config.rope_theta!r}, not a number from 1 to 1e30"
    if config.sliding_window is not None and not 1 <= config.sliding_window <= MAX_POSITIONS:
        yield f"sliding_window is {config.sliding_window!r}, not None or at least 1"
    for name in ("full_attention_layers", "dense_layers"):
        listed = getattr(config, name)
        if len(listed) > config.layers or not all(
            type(layer) is int and 0 <= layer < config.layers for layer in listed
        ):
            yield f"{name} names a layer outside of the {config.layers} layers"
    if len(set(config.dense_layers)) > 0 and config.intermediate_size < 1:
        yield "there are layers without experts, but no intermediate_size"
    tokens = (*config.eos_tokens, *(() if config.bos_token is None else (config.bos_token,)))
    if not all(type(token) is int and 0 <= token < MAX_SIZE for token in tokens):
        yield "a special token is not a token id"
    yield from _scaling_problems(config)


def _scaling_problems(config: DecoderConfig) -> Iterator[str]:
    scaling = config.rope_scaling
    if isinstance(scaling, LinearScaling):
        factors: tuple[float, ...] = (scaling.factor,)
    elif isinstance(scaling, FrequencyFactors):
        factors = scaling.factors
        if len(factors) != config.head_dim // 2:
            yield f"there are {len(factors)} frequency factors, not {config.head_dim // 2}"
    elif isinstance(scaling, Llama3Scaling):
        factors = (scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_positions)
        if not scaling.low_freq_factor < scaling.high_freq_factor:
            yield "low_freq_factor of the RoPE scaling is not below high_freq_factor"
    elif scaling is None:
        factors = ()
    else:
        yield f"rope_scaling is {scaling!r}, which is not a RoPE scaling"
        return
    if not all(1e-6 <= factor <= 1e12 for factor in factors):  # also refuses NaN
        yield "a factor of the RoPE scaling is not a number from 1e-6 to 1e12"


_TINY = DecoderConfig(
    family="llama",
    hidden_size=256,
    layers=4,
    heads=8,
    kv_heads=4,
    head_dim=32,
    intermediate_size=768,
    vocab_size=256,
    max_positions=4096,
    norm_eps=1e-5,
    rope_theta=10_000.0,
)

_TINY_MOE = DecoderConfig(
    family="qwen3-moe",
    hidden_size=256,
    layers=4,
    heads=8,
    kv_heads=4,
    head_dim=32,
    intermediate_size=768,
    vocab_size=256,
    max_positions=4096,
    norm_eps=1e-6,
    rope_theta=1_000_000.0,
    qk_norm=True,
    experts=128,
    experts_per_token=8,
    moe_intermediate_size=32,
    norm_topk_prob=True,
)

# Meta's Llama 3.2 1B and Llama 3.1 8B, Alibaba's Qwen3 0.6B.
_LLAMA_1B = DecoderConfig(
    family="llama",
    hidden_size=2048,
    layers=16,
    heads=32,
    kv_heads=8,
    head_dim=64,
    intermediate_size=8192,
    vocab_size=128_256,
    max_positions=131_072,
    norm_eps=1e-5,
    rope_theta=500_000.0,
    rope_scaling=Llama3Scaling(32.0, 1.0, 4.0, 8192),
    tied_embeddings=True,
)

_LLAMA_8B = DecoderConfig(
    family="llama",
    hidden_size=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    intermediate_size=14_336,
    vocab_size=128_256,
    max_positions=131_072,
    norm_eps=1e-5,
    rope_theta=500_000.0,
    rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 8192),
)

_QWEN3_600M = DecoderConfig(
    family="qwen3",
    hidden_size=1024,
    layers=28,
    heads=16,
    kv_heads=8,
    head_dim=128,
    intermediate_size=3072,
    vocab_size=151_936,
    max_positions=40_960,
    norm_eps=1e-6,
    rope_theta=1_000_000.0,
    tied_embeddings=True,
    qk_norm=True,
)

PRESETS: Mapping[str, DecoderConfig] = MappingProxyType(
    {
        "tiny": _TINY,
        "tiny-moe": _TINY_MOE,
        "llama-1b": _LLAMA_1B,
        "qwen3-0.6b": _QWEN3_600M,
        "llama-8b": _LLAMA_8B,
    }
)
"""Configurations by name: two small decoders for tests and demonstrations, and the shapes of published models."""
