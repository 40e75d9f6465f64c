"""llama.cpp: recurrences over tokens on ggml's Metal backend: state spaces, RWKV, delta nets, triangular systems."""

from __future__ import annotations

import numpy as np
import pytest

import ostinato as ost
from checkouts import Checkouts
from ggml import F32, I32, kernel, random, run
from launching import launch

SEQUENCES, TOKENS = 2, 13


@pytest.mark.parametrize("taps", [4, 3])
@pytest.mark.parametrize(("tokens", "at_once"), [(1, 0), (TOKENS, 8)])
def test_ssm_conv(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, tokens: int, at_once: int, taps: int
) -> None:
    x, weights = random(numbers, SEQUENCES, 50, tokens + taps - 1), random(numbers, 50, taps)
    name = "kernel_ssm_conv_f32_f32" + ("_batched" if at_once else "") + ("_4" if taps % 4 == 0 else "")
    got = run(
        dev,
        kernel(checkouts, name, "FC_ssm_conv", bs=at_once) if at_once else kernel(checkouts, name),
        x,
        weights,
        out=np.zeros((SEQUENCES, tokens, 50), F32),
        groups=(50, -(-tokens // at_once) if at_once else tokens, SEQUENCES),
        group_size=at_once or 1,
    )
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), taps, axis=-1)
    expected = np.einsum("sctk,ck->stc", windows, weights)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("state", "decays", "kept"), [(64, 1, 1), (128, 128, 3)])
def test_ssm_scan(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, state: int, decays: int, kept: int
) -> None:
    inner, heads, groups = 5, 4, 2
    s = random(numbers, 3, heads, inner, state)
    x, dt = random(numbers, SEQUENCES, TOKENS, heads, inner), random(numbers, SEQUENCES, TOKENS, heads)
    a = -numbers.uniform(0.1, 1, (heads, decays)).astype(F32)
    b, c = random(numbers, SEQUENCES, TOKENS, groups, state), random(numbers, SEQUENCES, TOKENS, groups, state)
    dt[0, 0] = 25.0  # softplus is the identity from 20 on
    ids = np.array([2, 0], I32)
    arguments = {"d_state": state, "d_inner": inner, "n_head": heads, "n_group": groups, "n_seq_tokens": TOKENS}
    arguments |= {"n_seqs": SEQUENCES, "K": kept, "s_off": x.nbytes}
    arguments |= {"ns12": heads * inner, "ns21": heads, "ns42": groups * state, "ns52": groups * state}
    got = run(
        dev,
        kernel(checkouts, "kernel_ssm_scan_f32"),
        s,
        x,
        dt,
        a,
        b,
        c,
        ids,
        out=np.zeros(x.size + kept * SEQUENCES * s[0].size, F32),
        arguments=arguments,
        groups=(inner, heads, SEQUENCES),
        group_size=state,
        shared={0: (32 + 2) * 4 * state // 32},
    )
    now, states, y = s[ids].astype(np.float64), [], []
    for t in range(TOKENS):
        step = np.log1p(np.exp(dt[:, t].astype(np.float64)))[..., None, None]
        b_of_heads, c_of_heads = (part[:, t].repeat(heads // groups, axis=1)[:, :, None] for part in (b, c))
        now = now * np.exp(step * a[:, None]) + b_of_heads * x[:, t, ..., None] * step
        y.append((now * c_of_heads).sum(-1))
        states.append(now)
    np.testing.assert_allclose(got[: x.size].reshape(x.shape), np.stack(y, axis=1), rtol=1e-4, atol=1e-4)
    last_first = np.stack(states[: -kept - 1 : -1])
    np.testing.assert_allclose(got[x.size :].reshape(last_first.shape), last_first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", [6, 7])
def test_rwkv(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, version: int) -> None:
    heads, size = 3, 64
    parts = random(numbers, 6, SEQUENCES, TOKENS, heads, size) / F32.type(8)
    first = random(numbers, heads, size)
    decay = numbers.uniform(0.2, 0.9, (SEQUENCES, TOKENS, heads, size)).astype(F32)
    state = random(numbers, SEQUENCES, heads, size, size)
    k, v, r, a, b, _ = parts
    bound = (k, v, r, first, decay, state) if version == 6 else (r, decay, k, v, a, b, state)
    got = launch(
        dev,
        kernel(checkouts, f"kernel_rwkv_wkv{version}_f32"),
        *map(np.ascontiguousarray, bound),
        np.zeros(v.size + state.size, F32),
        *(SEQUENCES, SEQUENCES * TOKENS, heads * size, heads),
        groups=SEQUENCES * heads,
        group_size=size,
    )
    now, y = state.astype(np.float64), []
    for t in range(TOKENS):
        if version == 6:  # the state has a row for each element of the key
            added = k[:, t, :, :, None] * v[:, t, :, None].astype(np.float64)
            y.append((r[:, t, :, :, None] * (first[..., None] * added + now)).sum(-2))
            now = now * decay[:, t, :, :, None] + added
        else:  # and here a row for each of the value
            turned = (now * a[:, t, :, None]).sum(-1, keepdims=True) * b[:, t, :, None]
            now = now * decay[:, t, :, None] + k[:, t, :, None] * v[:, t, ..., None] + turned
            y.append((now * r[:, t, :, None]).sum(-1))
    expected = np.stack(y, axis=1)
    np.testing.assert_allclose(got[: v.size].reshape(v.shape), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(got[v.size :].reshape(state.shape), now, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "of_each", "kept"), [(32, False, 1), (64, True, 1), (128, False, 3), (128, True, 1)])
def test_gated_delta_net(
    dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator, size: int, of_each: bool, kept: int
) -> None:
    heads, key_heads, gates = 4, 2, size if of_each else 1
    q, k = (random(numbers, SEQUENCES, TOKENS, key_heads, size) / F32.type(size**0.5) for _ in range(2))
    v, state = random(numbers, SEQUENCES, TOKENS, heads, size), random(numbers, SEQUENCES, heads, size, size)
    gate = -numbers.uniform(0, 1, (SEQUENCES, TOKENS, heads, gates)).astype(F32)
    beta = numbers.uniform(0, 1, (SEQUENCES, TOKENS, heads)).astype(F32)
    got = run(
        dev,
        kernel(
            checkouts, f"kernel_gated_delta_net_f32_{size // 32}", "FC_gated_delta_net", ne20=size, ne30=gates, K=kept
        ),
        q,
        k,
        v,
        gate,
        beta,
        state,
        out=np.zeros(v.size + kept * state.size, F32),
        arguments={"ns02": key_heads * size, "ns12": key_heads * size, "ns22": heads * size},
        groups=(size // (size // 32), heads, SEQUENCES),
        group_size=(32, size // 32, 1),
    )
    now, states, y = state.astype(np.float64), [], []
    of_head = np.arange(heads) % key_heads
    for t in range(TOKENS):
        key, query = k[:, t, of_head, None], q[:, t, of_head, None]
        now = now * np.exp(gate[:, t, :, None])
        difference = (v[:, t] - (now * key).sum(-1)) * beta[:, t, :, None]
        now = now + difference[..., None] * key
        y.append((now * query).sum(-1) / size**0.5)
        states.append(now)
    expected, last_first = np.stack(y, axis=1), np.stack(states[: -kept - 1 : -1])
    np.testing.assert_allclose(got[: v.size].reshape(v.shape), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got[v.size :].reshape(last_first.shape), last_first, rtol=1e-4, atol=1e-5)


def test_triangular_systems(dev: ost.Device, checkouts: Checkouts, numbers: np.random.Generator) -> None:
    size, sides, simdgroups = 64, 20, 8
    matrices = random(numbers, 2, 3, size, size) / F32.type(8) + 2 * np.eye(size, dtype=F32)
    x = random(numbers, 2, 3, size, sides)
    got = run(
        dev,
        kernel(checkouts, "kernel_solve_tri_f32", "FC_solve_tri", nsg=simdgroups, n=size, k=sides),
        matrices,
        x,
        out=np.zeros(x.shape, F32),
        groups=(-(-sides // simdgroups), 3, 2),
        group_size=(32, simdgroups, 1),
        shared={0: size * simdgroups * 4},
    )
    expected = np.linalg.solve(np.tril(matrices.astype(np.float64)), x)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
