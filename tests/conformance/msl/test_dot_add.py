"""ostinato::dot_add: products of four bytes, exact for every byte, on every device."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
#include <ostinato>
using namespace metal;
#ifndef __OSTINATO__
#error
#endif

kernel void with_signs(device const char4 *a [[buffer(0)]], device const char4 *b [[buffer(1)]],
                       device int *out [[buffer(2)]], constant uint &steps [[buffer(3)]],
                       uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    int sum = 7 - int(id);
    for (uint step = 0; step < steps; ++step) {
        if (id % 5 != step) { sum = ostinato::dot_add(a[step * size + id], b[step], sum); }
    }
    out[id] = sum;
}

kernel void without(device const uint *a [[buffer(0)]], device const uint *b [[buffer(1)]],
                    device int *out [[buffer(2)]], constant uint &steps [[buffer(3)]],
                    uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
    int sum = 7 - int(id);
    for (uint step = 0; step < steps; ++step) {
        const uchar4 left = as_type<uchar4>(a[step * size + id]);
        if (id % 5 != step) { sum = ostinato::dot_add(left, as_type<char4>(b[step]), sum); }
    }
    out[id] = sum;
}
"""
STEPS, THREADS = 6, 70


@pytest.mark.parametrize(("name", "kind", "word"), [("with_signs", "i1", "i1"), ("without", "u1", "u4")])
def test_every_lane_gets_the_sum_of_its_products(dev: ost.Device, name: str, kind: str, word: str) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 256, (STEPS, THREADS, 4), np.uint8)
    b = rng.integers(0, 256, (STEPS, 4), np.uint8)
    a[0], b[0], a[1], b[1], a[2], b[2] = 255, 128, 128, 128, 128, 127  # where 16 bits would not do
    taken = np.arange(THREADS) % 5 != np.arange(STEPS)[:, None]
    products = np.einsum("sic,sc->si", a.view(kind).astype(np.int64), b.view("i1").astype(np.int64))
    expected = 7 - np.arange(THREADS) + (products * taken).sum(axis=0)
    out = dev.zeros(THREADS, np.int32)
    encoder = dev.command_encoder()
    left, right = dev.array(a.view(word).reshape(-1)), dev.array(b.view(word).reshape(-1))
    encoder.dispatch(dev.library(SOURCE)[name], left, right, out, STEPS, threads=THREADS, group_size=64)
    encoder.commit_and_wait()
    assert out.numpy().tolist() == expected.tolist()
