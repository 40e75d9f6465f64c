"""Embedding, rotation, the cache and attention against NumPy; positions known at once, and as parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from op_cases import DTYPES, near, run, values
from ostinato import ops
from small_graphs import dispatches

by_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)


@by_dtype
@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (300, 64)], ids=str)
def test_embedding_takes_the_rows_of_tokens(dev: ost.Device, dtype: np.dtype[Any], shape: tuple[int, int]) -> None:
    table = values(shape, dtype, 1)
    tokens = np.random.default_rng(2).integers(0, shape[0], 5).astype(np.uint32)
    out = dev.zeros((5, shape[1]), dtype)
    run(dev, ops.embedding, dev.array(table), dev.array(tokens), out)
    assert np.array_equal(out.numpy(), table[tokens])


def test_a_token_past_the_table_gives_nan(dev: ost.Device) -> None:
    out = dev.zeros((2, 3), np.float32)
    run(dev, ops.embedding, dev.zeros((4, 3), np.float32), dev.array(np.array([3, 4], np.uint32)), out)
    assert np.isnan(out.numpy()).tolist() == [[False] * 3, [True] * 3]


# --- rotation ----------------------------------------------------------------------------------------------------


def turned(x: np.ndarray, frequencies: np.ndarray, position: int, interleaved: bool) -> np.ndarray:
    tokens, _, _ = x.shape
    pairs = len(frequencies)
    angles = (position + np.arange(tokens))[:, None, None] * frequencies.astype(np.float64)
    spins = np.exp(1j * angles)
    out = x.astype(np.float64)
    first = np.arange(pairs) * 2 if interleaved else np.arange(pairs)
    second = first + (1 if interleaved else pairs)
    numbers = (out[..., first] + 1j * out[..., second]) * spins
    out[..., first], out[..., second] = numbers.real, numbers.imag
    return out


@by_dtype
@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "interleaved"])
@pytest.mark.parametrize(("tokens", "heads", "size", "pairs"), [(1, 1, 2, 1), (3, 5, 64, 32), (2, 3, 33, 9)])
def test_rope_turns_pairs(
    dev: ost.Device, dtype: np.dtype[Any], interleaved: bool, tokens: int, heads: int, size: int, pairs: int
) -> None:
    x = values((tokens, heads, size), dtype, 3)
    frequencies = ops.rope_frequencies(2 * pairs)
    table, out, in_place = dev.array(frequencies), dev.zeros(x.shape, dtype), dev.array(x)
    run(dev, ops.rope, in_place, table, out, 11, interleaved=interleaved)
    near(out, turned(x, frequencies, 11, interleaved))
    run(dev, ops.rope, in_place, table, in_place, 11, interleaved=interleaved)
    assert in_place.numpy().tobytes() == out.numpy().tobytes()


def test_rope_is_right_far_out(dev: ost.Device) -> None:
    """The angle is a float32 product, as wherever such models were trained; that is what the oracle takes too."""
    x, frequencies = values((1, 2, 128), np.dtype(np.float32), 4), ops.rope_frequencies(128, 500000.0)
    out, position = dev.zeros(x.shape, np.float32), 100_003
    run(dev, ops.rope, dev.array(x), dev.array(frequencies), out, position)
    angles = np.float32(position) * frequencies
    near(out, turned(x, angles, 1, False))


def test_frequencies_are_scaled_as_asked() -> None:
    plain = ops.rope_frequencies(128, 500000.0)
    np.testing.assert_allclose(plain, 500000.0 ** -(np.arange(64) / 64), rtol=1e-6)
    np.testing.assert_allclose(ops.rope_frequencies(128, 500000.0, factor=4), plain / 4, rtol=1e-6)
    scaled = ops.rope_frequencies(128, 500000.0, factor=8, low=1, high=4, trained_length=8192)
    wavelengths = 2 * math.pi / plain
    fast, slow = wavelengths < 8192 / 4, wavelengths > 8192
    np.testing.assert_allclose(scaled[fast], plain[fast], rtol=1e-6)
    np.testing.assert_allclose(scaled[slow], plain[slow] / 8, rtol=1e-6)
    between = ~fast & ~slow
    smooth = (8192 / wavelengths[between] - 1) / (4 - 1)
    expected = (1 - smooth) * plain[between] / 8 + smooth * plain[between]
    np.testing.assert_allclose(scaled[between], expected, rtol=1e-5)
    assert between.any()
    with pytest.raises(ost.ArgumentError, match="passed together"):
        ops.rope_frequencies(128, low=1)
    with pytest.raises(ost.ArgumentError, match="must be even"):
        ops.rope_frequencies(7)


# --- the cache ---------------------------------------------------------------------------------------------------


@by_dtype
@pytest.mark.parametrize(("tokens", "heads", "size"), [(1, 1, 1), (1, 3, 33), (4, 2, 64)])
def test_keys_and_values_are_kept_at_their_positions(
    dev: ost.Device, dtype: np.dtype[Any], tokens: int, heads: int, size: int
) -> None:
    keys, found = values((tokens, heads, size), dtype, 5), values((tokens, heads, size), dtype, 6)
    caches = [dev.zeros((heads, 9, size), dtype) for _ in range(2)]
    run(dev, ops.kv_append, dev.array(keys), dev.array(found), *caches, 3)
    for cache, given in zip(caches, (keys, found), strict=True):
        expected = np.zeros((heads, 9, size), dtype)
        expected[:, 3 : 3 + tokens] = given.transpose(1, 0, 2)
        assert np.array_equal(cache.numpy(), expected)


def test_the_position_of_a_replay_that_is_past_the_cache_is_dropped(dev: ost.Device) -> None:
    keys = dev.array(np.ones((1, 2, 4), np.float32))
    caches = (dev.zeros((2, 3, 4), np.float32), dev.zeros((2, 3, 4), np.float32))
    graph = dev.capture(lambda enc: ops.kv_append(enc, keys, keys, *caches, ost.param("pos", np.uint32)))
    ready = graph.instantiate()
    for position in (2, 3, 0xFFFFFFFF):
        ready.replay(pos=position).wait()
    assert caches[0].numpy().sum(axis=(0, 2)).tolist() == [0, 0, 8]


# --- what comes out of the matrices of attention -----------------------------------------------------------------


def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    scaled = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + 1e-6) * weight.astype(np.float64)
    return np.asarray(scaled.astype(x.dtype))


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("with_norms", [False, True], ids=["as they are", "normed"])
@pytest.mark.parametrize(
    ("tokens", "heads", "kept", "size", "pairs"),
    [(1, 1, 1, 2, 1), (1, 4, 2, 64, 32), (3, 6, 3, 33, 9), (2, 2, 1, 256, 128), (40, 15, 3, 128, 64)],
)
def test_queries_keys_and_values_are_made_ready_at_once(
    dev: ost.Device, dtype: np.dtype[Any], with_norms: bool, tokens: int, heads: int, kept: int, size: int, pairs: int
) -> None:
    x = values((tokens, heads + 2 * kept, size), dtype, 16)
    weights = [values((size,), dtype, seed) for seed in (17, 18)]
    frequencies, capacity = ops.rope_frequencies(2 * pairs), tokens + 6
    queries, caches = (
        dev.zeros((tokens, heads, size), dtype),
        [dev.zeros((kept, capacity, size), dtype) for _ in range(2)],
    )
    norms = dict(zip(("query_norm", "key_norm"), map(dev.array, weights), strict=True)) if with_norms else {}
    run(dev, ops.rope_append, dev.array(x), dev.array(frequencies), queries, *caches, 4, **norms)
    parts = [x[:, :heads], x[:, heads : heads + kept], x[:, heads + kept :]]
    if with_norms:
        parts[:2] = [normed(part, weight) for part, weight in zip(parts, weights, strict=False)]
    near(queries, turned(parts[0], frequencies, 4, False), scale=4)
    expected = np.zeros((kept, capacity, size))
    expected[:, 4 : 4 + tokens] = turned(parts[1], frequencies, 4, False).transpose(1, 0, 2)
    near(caches[0], expected, scale=4)
    expected[:, 4 : 4 + tokens] = parts[2].transpose(1, 0, 2)
    assert np.array_equal(caches[1].numpy(), expected.astype(dtype))


@pytest.mark.usefixtures("either_kernel")
def test_at_a_position_past_the_cache_queries_alone_are_made_ready(dev: ost.Device) -> None:
    x, table = dev.array(np.ones((1, 4, 8), np.float32)), dev.array(ops.rope_frequencies(8))
    queries = dev.zeros((1, 2, 8), np.float32)
    caches = (dev.zeros((1, 3, 8), np.float32), dev.zeros((1, 3, 8), np.float32))
    graph = dev.capture(lambda enc: ops.rope_append(enc, x, table, queries, *caches, ost.param("pos", np.uint32)))
    ready = graph.instantiate()
    for position in (2, 3, 0xFFFFFFFF):
        ready.replay(pos=position).wait()
    assert caches[1].numpy().sum(axis=(0, 2)).tolist() == [0, 0, 8]
    assert (queries.numpy() != 0).all()


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize(
    ("heads", "kept", "size", "width"), [(1, 1, 2, 5), (4, 2, 64, 96), (6, 3, 10, 1024), (32, 8, 96, 520)]
)
def test_the_product_before_it_may_be_a_part_of_that(
    dev: ost.Device, dtype: np.dtype[Any], heads: int, kept: int, size: int, width: int
) -> None:
    rows = (heads + 2 * kept) * size
    weight = values((rows, width), dtype, 19) / np.sqrt(width).astype(dtype)
    x, norm, frequencies = values((width,), dtype, 20), values((width,), dtype, 21), ops.rope_frequencies(size)
    given = [dev.array(one) for one in (weight, x, norm, frequencies)]
    queries, caches = dev.zeros((heads, size), dtype), [dev.zeros((kept, 9, size), dtype) for _ in range(2)]
    run(dev, ops.qkv_matvec, *given, queries, *caches, 7)
    made = (weight.astype(np.float64) @ normed(x, norm).astype(np.float64)).reshape(1, -1, size)
    expected = turned(made[:, : heads + kept], frequencies, 7, False)[0]
    near(queries, expected[:heads], scale=4)
    for cache, part in zip(caches, (expected[heads:], made[0, heads + kept :]), strict=True):
        whole = np.zeros((kept, 9, size))
        whole[:, 7] = part
        near(cache, whole, scale=4)


@pytest.mark.usefixtures("either_kernel")
def test_of_a_product_at_a_position_past_the_cache_only_queries_are_kept(dev: ost.Device) -> None:
    weight, x = dev.array(np.ones((32, 8), np.float32)), dev.array(np.ones(8, np.float32))
    queries, table = dev.zeros((2, 8), np.float32), dev.array(ops.rope_frequencies(8))
    caches = (dev.zeros((1, 3, 8), np.float32), dev.zeros((1, 3, 8), np.float32))
    place = ost.param("pos", np.uint32)
    ready = dev.capture(lambda enc: ops.qkv_matvec(enc, weight, x, x, table, queries, *caches, place)).instantiate()
    for position in (2, 3, 0xFFFFFFFF):
        ready.replay(pos=position).wait()
    assert (caches[1].numpy().sum(axis=(0, 2)) != 0).tolist() == [False, False, True]
    assert (queries.numpy() != 0).any()


def test_what_does_not_go_together_is_refused(dev: ost.Device) -> None:
    def refused(message: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(ost.ArgumentError, match=message):
            dev.capture(lambda enc: ops.rope_append(enc, *arguments, **options))

    x, table, queries = dev.zeros((1, 6, 8), np.float32), dev.array(ops.rope_frequencies(8)), dev.zeros((1, 4, 8), "f4")
    cache, norm = dev.zeros((1, 3, 8), np.float32), dev.zeros(8, np.float32)
    refused("no room for queries", x, table, queries, *[dev.zeros((3, 3, 8), np.float32)] * 2, 0)
    refused("position 3 is too large", x, table, queries, cache, cache, 3)
    refused("passed together", x, table, queries, cache, cache, 0, query_norm=norm)
    refused("a norm must have 8", x, table, queries, cache, cache, 0, query_norm=norm, key_norm=norm[:4])
    refused("8 pairs do not fit", x, dev.array(ops.rope_frequencies(16)), queries, cache, cache, 0)
    refused("queries must have 32", x, table, dev.zeros((1, 3, 8), "f4"), cache, cache, 0)


# --- attention ---------------------------------------------------------------------------------------------------


def attended(
    queries: np.ndarray,
    keys: np.ndarray,
    found: np.ndarray,
    position: int,
    *,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
) -> np.ndarray:
    tokens, heads, size = queries.shape
    shared = heads // keys.shape[0]
    q, k, v = (one.astype(np.float64) for one in (queries, keys, found))
    out = np.zeros(q.shape)
    for token in range(tokens):
        end = position + token + 1
        begin = max(0, end - window) if window else 0
        for head in range(heads):
            scores = k[head // shared, begin:end] @ q[token, head] * (scale if scale is not None else size**-0.5)
            scores = cap * np.tanh(scores / cap) if cap else scores
            weights = np.exp(scores - scores.max())
            out[token, head] = weights / weights.sum() @ v[head // shared, begin:end]
    return out


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize(
    ("heads", "kept_heads", "size", "position"),
    [(1, 1, 1, 0), (1, 1, 64, 7), (8, 2, 64, 130), (6, 3, 33, 40), (4, 4, 128, 65), (2, 1, 256, 31), (32, 8, 80, 5)],
)
def test_a_query_attends_to_all_keys_so_far(
    dev: ost.Device, dtype: np.dtype[Any], heads: int, kept_heads: int, size: int, position: int
) -> None:
    queries = values((1, heads, size), dtype, 7)
    keys, found = (values((kept_heads, position + 3, size), dtype, seed) for seed in (8, 9))
    out = dev.zeros((heads, size), dtype)
    run(dev, ops.sdpa, dev.array(queries), dev.array(keys), dev.array(found), out, position)
    near(out, attended(queries, keys, found, position)[0])


@by_dtype
@pytest.mark.usefixtures("either_kernel")
@pytest.mark.parametrize("position", [0, 5])
@pytest.mark.parametrize("options", [{}, {"window": 4}, {"window": 1}, {"scale": 0.3}, {"cap": 2.0}], ids=str)
def test_several_queries_each_attend_up_to_their_own_place(
    dev: ost.Device, dtype: np.dtype[Any], position: int, options: dict[str, Any]
) -> None:
    queries = values((9, 4, 48), dtype, 10)
    keys, found = (values((2, 20, 48), dtype, seed) for seed in (11, 12))
    out = dev.zeros(queries.shape, dtype)
    run(dev, ops.sdpa, dev.array(queries), dev.array(keys), dev.array(found), out, position, **options)
    near(out, attended(queries, keys, found, position, **options))


@pytest.mark.usefixtures("either_kernel")
def test_large_scores_do_not_overflow(dev: ost.Device) -> None:
    queries, found = np.full((1, 1, 64), 100, np.float32), values((1, 50, 64), np.dtype(np.float32), 13)
    keys = np.linspace(-100, 100, 50, dtype=np.float32)[None, :, None] * np.ones((1, 1, 64), np.float32)
    for order in (slice(None), slice(None, None, -1)):
        out = dev.zeros((1, 64), np.float32)
        given = np.ascontiguousarray(keys[:, order])
        run(dev, ops.sdpa, dev.array(queries), dev.array(given), dev.array(found), out, 49)
        near(out, attended(queries, given, found, 49)[0])


@pytest.mark.usefixtures("either_kernel")
def test_one_graph_serves_every_position(dev: ost.Device) -> None:
    dtype, position = np.dtype(np.float32), ost.param("pos", np.uint32)
    steps, queries = values((6, 2, 32), dtype, 14), values((1, 4, 32), dtype, 15)
    frequencies = ops.rope_frequencies(32)
    table, query, key = dev.array(frequencies), dev.array(queries), dev.zeros((1, 2, 32), dtype)
    turned_query, out = dev.zeros((1, 4, 32), dtype), dev.zeros((1, 4, 32), dtype)
    caches = (dev.zeros((2, 6, 32), dtype), dev.zeros((2, 6, 32), dtype))

    def token(enc: ost.CommandEncoder) -> None:
        ops.rope(enc, query, table, turned_query, position)
        ops.kv_append(enc, key, key, *caches, position)
        ops.sdpa(enc, turned_query, *caches, out, position)

    ready = dev.capture(token).instantiate()
    kept = steps.transpose(1, 0, 2)
    for place, step in enumerate(steps):
        key.write(step[None])
        ready.replay(pos=place).wait()
        near(out, attended(turned(queries, frequencies, place, False), kept, kept, place))


# --- attention by simdgroup matrices -----------------------------------------------------------------------------


@pytest.fixture
def for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for GPUs, whatever the device."""
    for module in (ops.attention, ops.checks):
        monkeypatch.setattr(module, "prefers_plain", lambda encoder: False)


sixteen_bits = pytest.mark.parametrize("dtype", DTYPES[1:], ids=lambda dtype: dtype.name)


@sixteen_bits
@pytest.mark.usefixtures("for_gpus")
@pytest.mark.parametrize("options", [{}, {"window": 70}, {"scale": 0.3, "cap": 2.0}], ids=str)
def test_keys_may_be_split_over_groups(dev: ost.Device, dtype: np.dtype[Any], options: dict[str, Any]) -> None:
    heads, kept, size, capacity, position = 9, 1, 64, 600, ost.param("pos", np.uint32)
    queries = values((1, heads, size), dtype, 7)
    keys, found = (values((kept, capacity, size), dtype, seed) for seed in (8, 9))
    query, key, value = (dev.array(one) for one in (queries, keys, found))
    out, partial = dev.zeros((heads, size), dtype), dev.array(np.full((7, heads, size + 2), np.nan, np.float32))
    graph = dev.capture(lambda enc: ops.sdpa(enc, query, key, value, out, position, partial=partial, **options))
    ready = graph.instantiate()
    for place in (0, 63, 64, 200, 599):
        ready.replay(pos=place).wait()
        near(out, attended(queries, keys, found, place, **options)[0])


@sixteen_bits
@pytest.mark.usefixtures("for_gpus")
@pytest.mark.parametrize("options", [{}, {"window": 33}, {"scale": 0.3, "cap": 2.0}], ids=str)
@pytest.mark.parametrize(("tokens", "position"), [(16, 0), (130, 7)])
def test_many_queries_attend_by_matrices(
    dev: ost.Device, dtype: np.dtype[Any], tokens: int, position: int, options: dict[str, Any]
) -> None:
    queries = values((tokens, 4, 64), dtype, 10)
    keys, found = (values((2, position + tokens + 3, 64), dtype, seed) for seed in (11, 12))
    out = dev.zeros(queries.shape, dtype)
    run(dev, ops.sdpa, dev.array(queries), dev.array(keys), dev.array(found), out, position, **options)
    near(out, attended(queries, keys, found, position, **options))


def test_parts_are_asked_for_as_a_buffer_of_their_own(dev: ost.Device) -> None:
    queries, cache, out = (dev.zeros(shape, np.float16) for shape in ((1, 4, 64), (2, 16, 64), (4, 64)))
    for shape, dtype in (((3, 4, 64), np.float32), ((200, 4, 66), np.float32), ((3, 4, 66), np.float16)):
        with pytest.raises(ost.ArgumentError, match="partial must be"):
            run(dev, ops.sdpa, queries, cache, cache, out, 3, partial=dev.zeros(shape, dtype))
    assert 1 <= ops.attention_parts(dev, 8, 32768) <= 128
    assert ops.attention_parts(dev, 8, 100) == 1


# --- four elements at a time ---------------------------------------------------------------------------------------


@by_dtype
@pytest.mark.usefixtures("for_gpus")
def test_large_inputs_are_moved_and_turned_by_fours(dev: ost.Device, dtype: np.dtype[Any]) -> None:
    tokens, heads, size = 40, 13, 128
    given, frequencies = values((tokens, heads, size), dtype, 3), ops.rope_frequencies(size)
    ids = np.arange(tokens - 1, -1, -1).astype(np.uint32)
    x, out = dev.array(given), dev.zeros(given.shape, dtype)
    run(dev, ops.embedding, x.view(shape=(tokens, heads * size)), dev.array(ids), out)
    assert np.array_equal(out.numpy(), given[ids])
    run(dev, ops.rope, x, dev.array(frequencies), out, 5)
    near(out, turned(given, frequencies, 5, False), scale=4)
    caches = [dev.zeros((heads, tokens + 3, size), dtype) for _ in range(2)]
    run(dev, ops.kv_append, x, out, *caches, 2)
    for cache, kept in zip(caches, (given, out.numpy()), strict=True):
        assert np.array_equal(cache.numpy()[:, 2 : 2 + tokens], kept.transpose(1, 0, 2))
        assert not cache.numpy()[:, :2].any()
    (command,) = dispatches(dev.capture(lambda enc: ops.rope(enc, x, dev.array(frequencies), out, 5)))
    assert command.kernel.name.startswith("rope_fours_")


@by_dtype
@pytest.mark.usefixtures("for_gpus")
@pytest.mark.parametrize("width", [1024, 1028])
def test_rows_that_are_looked_up_together_are_each_their_own(dev: ost.Device, dtype: np.dtype[Any], width: int) -> None:
    table = values((9, width), dtype, 4)
    for count in (64, 65, 67):
        ids = np.random.default_rng(count).integers(0, 11, count).astype(np.uint32)
        out, behind = dev.zeros((count + 1, width), dtype), dev.array(np.ones((1, width), dtype))
        out[count:].write(behind.numpy())
        run(dev, ops.embedding, dev.array(table), dev.array(ids), out[:count])
        found = out.numpy()
        assert np.array_equal(found[:count][ids < 9], table[ids[ids < 9]])
        assert np.isnan(found[:count][ids >= 9].astype(np.float32)).all()
        assert np.array_equal(found[count:], behind.numpy())


# --- what is declared and refused --------------------------------------------------------------------------------


def test_attention_declares_what_its_position_makes_it_read(dev: ost.Device) -> None:
    queries, cache, out = (dev.zeros(shape, np.float32) for shape in ((2, 4, 8), (2, 16, 8), (2, 4, 8)))
    (command,) = dispatches(dev.capture(lambda enc: ops.sdpa(enc, queries, cache, cache, out, 3)))
    assert command.bytes_read == queries.nbytes + 2 * 2 * 5 * 8 * 4
    assert command.flops == 4 * 4 * 8 * (4 + 5)
    assert command.op_kind is ost.CapturedOpKind.Sdpa


@pytest.mark.parametrize(("tokens", "window"), [(1, 0), (1, 5), (1, 30), (3, 0), (3, 5)])
def test_attention_declares_the_same_at_each_value_of_a_parameter(dev: ost.Device, tokens: int, window: int) -> None:
    queries, cache, out = (dev.zeros(shape, np.float32) for shape in ((tokens, 4, 8), (2, 16, 8), (tokens, 4, 8)))

    def declared(position: Any) -> Any:
        graph = dev.capture(lambda enc: ops.sdpa(enc, queries, cache, cache, out, position, window=window))
        return graph.commands[0]

    replayed = declared(ost.param("pos", np.uint32))
    assert replayed.bytes_written == out.nbytes
    for place in range(16 - tokens + 1):
        plain = declared(place)
        assert replayed.bytes_read.at({"pos": place}) == plain.bytes_read
        if window and tokens > 1:
            assert replayed.flops is None
        else:
            assert replayed.flops.at({"pos": place}) == plain.flops
    # Past the end of the cache there is nothing to read.
    assert replayed.bytes_read.at({"pos": 1000}) == replayed.bytes_read.at({"pos": 16 - tokens})


def test_what_does_not_fit_is_refused(dev: ost.Device) -> None:
    encoder = dev.command_encoder()

    def zeros(*shape: int, dtype: Any = np.float32) -> ost.Buffer:
        return dev.zeros(shape, dtype)

    for launch, arguments, reason in (
        (ops.embedding, (zeros(4, 8), zeros(2), zeros(2, 8)), "tokens must be uint32"),
        (ops.embedding, (zeros(4, 8), zeros(2, dtype=np.uint32), zeros(2, 7)), "out must have 16 elements"),
        (ops.rope, (zeros(1, 2, 8), zeros(5), zeros(1, 2, 8), 0), "5 pairs do not fit"),
        (ops.rope, (zeros(16), zeros(4), zeros(16), 0), r"x must be \[tokens, heads, size\]"),
        (ops.rope, (zeros(2, 8), zeros(4), zeros(2, 8), -1), "position must be a non-negative integer"),
        (ops.kv_append, (zeros(2, 8), zeros(2, 8), zeros(2, 4, 8), zeros(2, 4, 8), 4), "position 4 is too large"),
        (ops.kv_append, (zeros(2, 8), zeros(2, 8), zeros(3, 4, 8), zeros(3, 4, 8), 0), "both caches must be"),
        (ops.sdpa, (zeros(3, 8), zeros(2, 4, 8), zeros(2, 4, 8), zeros(3, 8), 0), "not a multiple of the 2 heads"),
        (ops.sdpa, (zeros(2, 8), zeros(2, 4, 8), zeros(2, 5, 8), zeros(2, 8), 0), "both caches must be"),
        (ops.sdpa, (zeros(1, 257), zeros(1, 4, 257), zeros(1, 4, 257), zeros(1, 257), 0), "at most 256"),
    ):
        with pytest.raises(ost.ArgumentError, match=reason):
            launch(encoder, *arguments)
    with pytest.raises(ost.ArgumentError, match="expected uint32"):
        dev.capture(lambda enc: ops.rope(enc, zeros(2, 8), zeros(4), zeros(2, 8), ost.param("pos", np.int64)))
    assert "0 commands" in repr(encoder)
