"""A token of a small mixture of experts, from the embedding to the next token, in one graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ostinato as ost
from ostinato import ops

WIDTH, HEADS, KEPT, SIZE, EXPERTS, CHOSEN, INNER, VOCABULARY, CAPACITY = 36, 4, 2, 10, 7, 3, 20, 101, 12
Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def weights() -> Weights:
    rng = np.random.default_rng(1)
    shapes = {
        "embedding": (VOCABULARY, WIDTH),
        "norm": (WIDTH,),
        "qkv": ((HEADS + 2 * KEPT) * SIZE, WIDTH),
        "out": (WIDTH, HEADS * SIZE),
        "router": (EXPERTS, WIDTH),
        "gate": (EXPERTS, INNER, WIDTH),
        "up": (EXPERTS, INNER, WIDTH),
        "down": (EXPERTS, WIDTH, INNER),
    }
    return {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes.items()}


def encoding(dev: ost.Device, weights: Weights, token: ost.Buffer) -> Callable[[ost.CommandEncoder], None]:
    """Records one token; it reads the token there and puts the next in its place."""
    w = {name: dev.array(value) for name, value in weights.items()}
    frequencies = dev.array(ops.rope_frequencies(SIZE))
    x, normed, mixed, logits = (dev.zeros(size, np.float32) for size in (WIDTH, WIDTH, WIDTH, VOCABULARY))
    qkv = dev.zeros((HEADS + 2 * KEPT, SIZE), np.float32)
    query, key, value = qkv[:HEADS], qkv[HEADS : HEADS + KEPT], qkv[HEADS + KEPT :]
    keys, values = (dev.zeros((KEPT, CAPACITY, SIZE), np.float32) for _ in range(2))
    attended, routed = dev.zeros((HEADS, SIZE), np.float32), dev.zeros(EXPERTS, np.float32)
    indices, shares = dev.zeros(CHOSEN, np.uint32), dev.zeros(CHOSEN, np.float32)
    gate, up = (dev.zeros((CHOSEN, INNER), np.float32) for _ in range(2))
    down = dev.zeros((CHOSEN, WIDTH), np.float32)
    position = ost.param("position", np.uint32)

    def encode(enc: ost.CommandEncoder) -> None:
        ops.embedding(enc, w["embedding"], token, x)
        ops.rms_norm(enc, x, w["norm"], normed)
        ops.matvec(enc, w["qkv"], normed, qkv)
        ops.rope(enc, query, frequencies, query, position)
        ops.rope(enc, key, frequencies, key, position)
        ops.kv_append(enc, key, value, keys, values, position)
        ops.sdpa(enc, query, keys, values, attended, position)
        ops.matvec(enc, w["out"], attended, mixed)
        ops.add_rms_norm(enc, x, mixed, w["norm"], x, normed)
        ops.matvec(enc, w["router"], normed, routed)
        ops.moe_route(enc, routed, indices, shares)
        ops.expert_matvec(enc, w["gate"], normed, indices, gate)
        ops.expert_matvec(enc, w["up"], normed, indices, up)
        ops.silu_mul(enc, gate, up, gate)
        ops.expert_matvec(enc, w["down"], gate, indices, down)
        ops.weighted_sum(enc, down, shares, mixed)
        ops.add_rms_norm(enc, x, mixed, w["norm"], x, normed)
        ops.matvec(enc, w["embedding"], normed, logits)
        ops.argmax(enc, logits, token)

    return encode


class Oracle:
    """The same in NumPy."""

    def __init__(self, weights: Weights) -> None:
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}
        self.keys: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def norm(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x * x).mean() + 1e-6) * self.w["norm"])

    def turn(self, x: np.ndarray, position: int) -> np.ndarray:
        half = SIZE // 2
        spun = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * position * ops.rope_frequencies(SIZE).astype(np.float64))
        return np.concatenate([spun.real, spun.imag], axis=1)

    def next(self, token: int, position: int) -> int:
        w, x = self.w, self.w["embedding"][token]
        qkv = (w["qkv"] @ self.norm(x)).reshape(-1, SIZE)
        query = self.turn(qkv[:HEADS], position)
        self.keys.append(self.turn(qkv[HEADS : HEADS + KEPT], position))
        self.values.append(qkv[HEADS + KEPT :])
        keys, values = (np.repeat(np.stack(one), HEADS // KEPT, axis=1) for one in (self.keys, self.values))
        scores = np.exp(np.einsum("hs,khs->hk", query, keys) / np.sqrt(SIZE))
        attended = np.einsum("hk,khs->hs", scores / scores.sum(axis=1, keepdims=True), values)
        x = x + w["out"] @ attended.ravel()
        normed = self.norm(x)
        routed = np.exp(w["router"] @ normed)
        chosen = np.argsort(-routed)[:CHOSEN]
        for expert in chosen:
            gate = w["gate"][expert] @ normed
            inner = gate / (1 + np.exp(-gate)) * (w["up"][expert] @ normed)
            x = x + routed[expert] / routed[chosen].sum() * (w["down"][expert] @ inner)
        return int(np.argmax(w["embedding"] @ self.norm(x)))


def test_tokens_are_those_of_numpy(dev: ost.Device, weights: Weights) -> None:
    token, oracle = dev.array(np.array([5], np.uint32)), Oracle(weights)
    run = dev.capture(encoding(dev, weights, token)).instantiate()
    expected = 5
    for position in range(CAPACITY):
        expected = oracle.next(expected, position)
        run.replay(position=position).wait()
        assert token.numpy()[0] == expected


def test_every_op_touches_what_it_declares_and_no_more(dev: ost.Device, weights: Weights, cpu_beside: None) -> None:
    token = dev.array(np.array([5], np.uint32))
    audit = dev.capture(encoding(dev, weights, token)).audit(run=True, params={"position": 3}, repeats=1)
    assert audit.ok, str(audit)
    assert not audit.findings
