"""The reference decoder in plain NumPy and float32, which kernels are compared with. It is simple rather than fast.

decoder = ReferenceDecoder(random_weights(preset("tiny")))
logits = decoder.forward([72, 101, 108])   # prefill: one row of logits for each token
logits = decoder.forward([108])            # decode: the cache holds what came before
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError
from .tensors import as_float32
from .weights import Weights

Floats = NDArray[np.float32]


class ReferenceDecoder:
    """A decoder with its cache. It keeps all weights as float32."""

    def __init__(self, weights: Weights, capacity: int = 256) -> None:
        self.config = weights.config
        self.capacity = capacity
        self.position = 0
        self._weights = {name: as_float32(weights[name]) for name in weights}
        cache_shape = (self.config.layers, 2, self.config.kv_heads, capacity, self.config.head_dim)
        self._cache = np.zeros(cache_shape, np.float32)
        angles = np.arange(capacity, dtype=np.float32)[:, None] * self.config.inverse_frequencies()
        self._cos, self._sin = np.cos(angles), np.sin(angles)

    def reset(self) -> None:
        """Forget all tokens."""
        self.position = 0

    def forward(self, tokens: Sequence[int]) -> Floats:
        """Append tokens to the cache, and return the logits of each: (tokens, vocabulary)."""
        ids = np.asarray(tokens, np.int64)
        if ids.ndim != 1 or not ids.size or ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise ArgumentError(f"forward: expected token ids from 0 to {self.config.vocab_size - 1}, at least one")
        if self.position + ids.size > self.capacity:
            raise ArgumentError(f"forward: {self.position + ids.size} tokens, but the cache holds {self.capacity}")
        hidden = self._weights["embedding"][ids]
        for layer in range(self.config.layers):
            hidden = hidden + self._attention(layer, self._norm(hidden, f"layer.{layer}.attn.norm"))
            hidden = hidden + self._mlp(layer, self._norm(hidden, f"layer.{layer}.mlp.norm"))
        self.position += ids.size
        head = self._weights["embedding" if self.config.tied_embeddings else "head"]
        return matmul(self._norm(hidden, "norm"), head)

    def generate(self, prompt: Sequence[int], steps: int) -> list[int]:
        """Process a prompt and return the most likely tokens after it, chosen greedily."""
        generated: list[int] = []
        following: Sequence[int] = prompt
        for _ in range(steps):
            generated.append(int(self.forward(following)[-1].argmax()))
            following = generated[-1:]
        return generated

    def _attention(self, layer: int, hidden: Floats) -> Floats:
        config = self.config
        name = f"layer.{layer}.attn"
        count = len(hidden)
        begin, end = self.position, self.position + count
        query = self._heads(hidden, f"{name}.q")
        key = self._heads(hidden, f"{name}.k")
        if config.qk_norm:
            query, key = self._norm(query, f"{name}.q_norm"), self._norm(key, f"{name}.k_norm")
        self._cache[layer, 0, :, begin:end] = self._rotated(key)
        self._cache[layer, 1, :, begin:end] = self._heads(hidden, f"{name}.v")
        keys, values = self._cache[layer, :, :, :end]

        # Heads that share a KV head form a group: (kv heads, group, tokens, head dim).
        grouped = self._rotated(query).reshape(config.kv_heads, -1, count, config.head_dim)
        scores = grouped @ keys[:, None].swapaxes(-1, -2) * np.float32(config.head_dim**-0.5)
        distance = np.arange(begin, end)[:, None] - np.arange(end)
        window = config.window(layer)
        seen = (distance >= 0) & (distance < (end if window is None else window))
        mixed = softmax(np.where(seen, scores, np.float32(-np.inf))) @ values[:, None]
        rows = mixed.reshape(config.heads, count, -1).swapaxes(0, 1).reshape(count, -1)
        return matmul(rows, self._weights[f"{name}.o"])

    def _mlp(self, layer: int, hidden: Floats) -> Floats:
        name = f"layer.{layer}.mlp"
        if not self.config.has_experts(layer):
            gate, up, down = (self._weights[f"{name}.{part}"] for part in ("gate", "up", "down"))
            return gated(hidden, gate, up, down)
        gate, up, down = (self._weights[f"{name}.experts.{part}"] for part in ("gate", "up", "down"))
        probabilities = softmax(matmul(hidden, self._weights[f"{name}.router"]))
        # A stable sort, so that the first of two equals wins.
        chosen = np.argsort(-probabilities, axis=-1, kind="stable")[:, : self.config.experts_per_token]
        shares = np.take_along_axis(probabilities, chosen, axis=-1)
        if self.config.norm_topk_prob:
            shares = shares / shares.sum(axis=-1, keepdims=True)
        result = np.zeros_like(hidden)
        for token, experts in enumerate(chosen):
            for expert, share in zip(experts, shares[token], strict=True):
                result[token] += share * gated(hidden[token], gate[expert], up[expert], down[expert])
        return result

    def _heads(self, hidden: Floats, name: str) -> Floats:
        """A projection, by heads: (heads, tokens, head dim)."""
        projected = matmul(hidden, self._weights[name])
        return projected.reshape(len(hidden), -1, self.config.head_dim).swapaxes(0, 1)

    def _norm(self, values: Floats, name: str) -> Floats:
        squares = np.mean(values * values, axis=-1, keepdims=True)
        normed: Floats = values / np.sqrt(squares + np.float32(self.config.norm_eps)) * self._weights[name]
        return normed

    def _rotated(self, heads: Floats) -> Floats:
        places = slice(self.position, self.position + heads.shape[1])
        cos, sin = self._cos[places], self._sin[places]
        first, second = np.split(heads, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def gated(hidden: Floats, gate: Floats, up: Floats, down: Floats) -> Floats:
    """down · (SiLU(gate · x) · (up · x))."""
    raw = matmul(hidden, gate)
    with np.errstate(over="ignore"):  # the exponential of a very negative gate is infinite, and its SiLU zero
        active = raw / (1 + np.exp(-raw))
    return matmul(active * matmul(hidden, up), down)


def matmul(rows: Floats, matrix: Floats) -> Floats:
    """The product of each row with a matrix (outputs, inputs)."""
    product: Floats = rows @ matrix.T
    return product


def softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return shares
