"""GGUF: what was written is read, as views of the file; any other file is one clear error."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import Q4_0, Q8_0, gguf_bytes, gguf_string, quantised, random_blocks
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.models import FORMATS, as_float32
from ostinato.models.gguf import read_gguf

RANDOM = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "a.flag": True,
    "a.number": 7,
    "a.fraction": 0.5,
    "a.long": np.array(-5, np.int64),
    "a.words": ["one", "", "zwölf"],
    "a.bytes": np.arange(5, dtype=np.uint8),
    "a.flags": np.array([True, False]),
}
TENSORS: dict[str, np.ndarray] = {
    "f32": RANDOM,
    "f16": RANDOM.astype(np.float16),
    "bf16": RANDOM.astype(ml_dtypes.bfloat16),
    "q8": quantised(RANDOM, Q8_0),
    "q4": quantised(RANDOM, Q4_0),
    "row": RANDOM[0, :5].copy(),
}


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors_come_back(tmp_path: Path, version: int) -> None:
    file = read_gguf(written(tmp_path, gguf_bytes(METADATA, TENSORS, version)))
    assert file.version == version
    assert file.metadata.keys() == METADATA.keys()
    for key, value in METADATA.items():
        np.testing.assert_array_equal(file.metadata[key], value)
    assert file.tensors.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        tensor = file.tensors[name]
        view = tensor.array()
        assert tensor.shape == ((5,) if name == "row" else (4, 64))
        assert view.dtype == array.dtype
        assert view.tobytes() == array.tobytes()
        assert not view.flags.writeable
        assert not view.flags.owndata


def test_an_alignment_of_the_file_is_kept_to(tmp_path: Path) -> None:
    metadata = METADATA | {"general.alignment": 256}
    file = read_gguf(written(tmp_path, gguf_bytes(metadata, TENSORS, alignment=256)))
    np.testing.assert_array_equal(file.tensors["f32"].array(), RANDOM)


@pytest.mark.parametrize(("dtype", "step"), [(Q8_0, 1 / 127), (Q4_0, 1 / 7)])
def test_quantised_weights_are_near_what_they_were(dtype: np.dtype[Any], step: float) -> None:
    most = np.abs(RANDOM.reshape(4, 2, 32)).max(axis=-1, keepdims=True).repeat(32, axis=-1).reshape(RANDOM.shape)
    assert np.all(np.abs(as_float32(quantised(RANDOM, dtype)) - RANDOM) <= most * (step / 2 + 1e-3))


def test_a_block_is_unpacked_as_the_format_says() -> None:
    block = np.frombuffer(np.float16(2).tobytes() + bytes([0x10 | 15] + [0x88] * 15), Q4_0)
    assert as_float32(block).tolist() == [14.0, *[0.0] * 15, -14.0, *[0.0] * 15]
    block = np.frombuffer(np.float16(0.5).tobytes() + bytes([255, 128, 127, *[0] * 29]), Q8_0)
    assert as_float32(block).tolist() == [-0.5, -64.0, 63.5, *[0.0] * 29]


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_agree_with_another_reader(name: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    form, kind = FORMATS[name], getattr(gguf.GGMLQuantizationType, name)
    assert (form.weights, form.nbytes) == gguf.GGML_QUANT_SIZES[kind]
    blocks = random_blocks(form, (3, 512), form.nbytes)
    file = read_gguf(written(tmp_path, gguf_bytes({}, {"x": blocks})))
    assert file.tensors["x"].format == name
    ours = as_float32(file.tensors["x"].array())
    np.testing.assert_array_equal(ours, gguf.quants.dequantize(blocks.view(np.uint8), kind))


@pytest.mark.parametrize("name", FORMATS)
def test_a_tensor_of_any_format_that_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    for what, data in {
        "not whole blocks": raw(tensors=[tensor("a", (form.weights // 2,), form.kind or 0)], body=bytes(4096)),
        "cut short": raw(tensors=[tensor("a", (4 * form.weights,), form.kind or 0)], body=bytes(4 * form.nbytes - 1)),
        "is the file": raw(tensors=[tensor("a", (form.weights, 1 << 40), form.kind or 0)], body=bytes(4096)),
        "overlaps": raw(
            tensors=[
                tensor("a", (64 * form.weights,), form.kind or 0),
                tensor("b", (form.weights,), form.kind or 0, 32),
            ],
            body=bytes(64 * form.nbytes),
        ),
    }.items():
        with pytest.raises(ost.ModelError, match=what):
            read_gguf(written(tmp_path, data))


@given(name=st.sampled_from(list(FORMATS)), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_blocks_of_any_bytes_are_numbers(name: str, seed: int) -> None:
    """Whatever a file has in its blocks, scales that are infinite or no numbers too."""
    form = FORMATS[name]
    blocks = np.random.default_rng(seed).integers(0, 256, (2, 3 * form.nbytes), np.uint8).view(form.dtype)
    with np.errstate(all="ignore"):
        assert form.dequantised(blocks).shape == (2, 3 * form.weights)


def test_a_tensor_in_another_format_harms_nobody_until_it_is_wanted(tmp_path: Path) -> None:
    data = raw(tensors=[tensor("k", (256,), kind=15)], body=bytes(292))
    found = read_gguf(written(tmp_path, data)).tensors["k"]
    assert (found.format, found.shape, found.dtype) == ("Q8_K", (256,), None)


# --- hostile files --------------------------------------------------------------------------------------------------


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def raw(
    values: tuple[bytes, ...] | list[bytes] = (),
    tensors: tuple[bytes, ...] | list[bytes] = (),
    body: bytes = b"",
    value_count: int | None = None,
    tensor_count: int | None = None,
    version: int = 3,
) -> bytes:
    counts = [
        len(tensors) if tensor_count is None else tensor_count,
        len(values) if value_count is None else value_count,
    ]
    head = struct.pack("<4sIQQ", b"GGUF", version, *counts) + b"".join(values) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + body


def value(kind: int, data: bytes, key: str = "k") -> bytes:
    return gguf_string(key) + struct.pack("<I", kind) + data


HUGE = 1 << 63
HOSTILE = {
    "nothing": b"",
    "three letters": b"GGU",
    "other letters": b"GGML" + bytes(100),
    "letters only": b"GGUF",
    "version 1": raw(version=1),
    "version 4": raw(version=4),
    "the other byte order": struct.pack(">4sIQQ", b"GGUF", 3, 0, 0),
    "a huge count of values": raw(value_count=HUGE),
    "a huge count of tensors": raw(tensor_count=HUGE),
    "more values than bytes": raw(value_count=1000),
    "a huge key": raw([struct.pack("<Q", HUGE)], body=bytes(64)),
    "a long key": raw([gguf_string("k" * 70_000)], body=bytes(64)),
    "an empty key": raw([value(0, b"\1", "")], body=bytes(64)),
    "a key that is no text": raw([gguf_string(b"\xff\xfe"), bytes(8)], value_count=1, body=bytes(64)),
    "an unknown type": raw([value(99, b"")], body=bytes(64)),
    "a huge string": raw([value(8, struct.pack("<Q", HUGE))], body=bytes(64)),
    "a huge array": raw([value(9, struct.pack("<IQ", 0, HUGE))], body=bytes(64)),
    "a huge array of strings": raw([value(9, struct.pack("<IQ", 8, HUGE))], body=bytes(64)),
    "an array that wraps around": raw([value(9, struct.pack("<IQ", 10, (1 << 61) + 1))], body=bytes(64)),
    "arrays in an array": raw([value(9, struct.pack("<IQ", 9, 1))], body=bytes(64)),
    "a flag of two": raw([value(7, b"\2")], body=bytes(64)),
    "a key twice": raw([value(0, b"\1"), value(0, b"\1")], body=bytes(64)),
    "an alignment of three": raw([value(4, struct.pack("<I", 3), "general.alignment")], body=bytes(64)),
    "an alignment of zero": raw([value(4, struct.pack("<I", 0), "general.alignment")], body=bytes(64)),
    "an alignment in words": raw([value(8, gguf_string("x"), "general.alignment")], body=bytes(64)),
    "no dimensions": raw(tensors=[tensor("a", ())], body=bytes(64)),
    "a thousand dimensions": raw(tensors=[gguf_string("a") + struct.pack("<I", 1000)], body=bytes(9000)),
    "a huge shape": raw(tensors=[tensor("a", (1 << 62, 1 << 62))], body=bytes(64)),
    "a shape that wraps around": raw(tensors=[tensor("a", (1 << 32, 1 << 32))], body=bytes(64)),
    "a size of zero": raw(tensors=[tensor("a", (0, 4))], body=bytes(64)),
    "an unknown format": raw(tensors=[tensor("a", (4,), kind=77)], body=bytes(64)),
    "half a block": raw(tensors=[tensor("a", (48,), kind=2)], body=bytes(64)),
    "a tensor behind the end": raw(tensors=[tensor("a", (4,), offset=64)], body=bytes(64)),
    "a tensor far behind the end": raw(tensors=[tensor("a", (4,), offset=HUGE)], body=bytes(64)),
    "a crooked offset": raw(tensors=[tensor("a", (4,), offset=4)], body=bytes(64)),
    "overlapping tensors": raw(tensors=[tensor("a", (16,)), tensor("b", (8,), offset=32)], body=bytes(64)),
    "the same bytes twice": raw(tensors=[tensor("a", (4,)), tensor("b", (4,))], body=bytes(64)),
    "a tensor twice": raw(tensors=[tensor("a", (4,)), tensor("a", (4,), offset=32)], body=bytes(64)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_bad_file_is_a_model_error_that_names_it(what: str, tmp_path: Path) -> None:
    path = written(tmp_path, HOSTILE[what])
    tracemalloc.start()
    with pytest.raises(ost.ModelError) as caught:
        read_gguf(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert str(caught.value).startswith(repr(str(path)))
    assert str(caught.value).isprintable()


def test_a_count_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    for what in ("a huge count of values", "a huge count of tensors", "a huge array of strings"):
        with pytest.raises(ost.ModelError, match=r"9223372036854775808 of them do not fit into the \d+ bytes"):
            read_gguf(written(tmp_path, HOSTILE[what]))


WHOLE = gguf_bytes(METADATA, TENSORS)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, len(WHOLE)), changes=st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8)))
)
def test_damaged_files_are_read_or_refused(tmp_path: Path, cut: int, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(WHOLE)
    for place, some in changes:
        data[place : place + len(some)] = some
    path = written(tmp_path, bytes(data[:cut] if not changes else data))
    try:
        for tensor in read_gguf(path).tensors.values():
            if tensor.dtype is not None:
                assert tensor.array().nbytes <= len(data)
    except ost.ModelError:
        pass


def test_every_shorter_file_is_refused(tmp_path: Path) -> None:
    for size in range(0, len(WHOLE) - 31, 7):  # the last bytes may be padding
        with pytest.raises(ost.ModelError):
            read_gguf(written(tmp_path, WHOLE[:size]))
