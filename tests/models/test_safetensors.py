"""Safetensors: what was written is read, as views of the file; any other file is one clear error."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoints import safetensors_bytes, with_header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.models.safetensors import read_safetensors, read_sharded

TENSORS: dict[str, np.ndarray] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.float16),
    "c": np.arange(8).astype(ml_dtypes.bfloat16).reshape(2, 2, 2),
    "empty": np.zeros((0, 5), np.float32),
    "one": np.array(3, np.int64),
}


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    return path


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_tensors_come_back_as_read_only_views(tmp_path: Path) -> None:
    found = read_safetensors(written(tmp_path, safetensors_bytes(TENSORS)))
    assert found.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        view = found[name].array()
        assert view.dtype == array.dtype
        np.testing.assert_array_equal(view, array)
        assert not view.flags.writeable
        assert not view.flags.owndata


def test_a_file_may_be_removed_while_its_tensors_are_used(tmp_path: Path) -> None:
    path = written(tmp_path, safetensors_bytes(TENSORS))
    view = read_safetensors(path)["a"].array()
    path.unlink()
    assert view.sum() == 15


HOSTILE = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a huge header": struct.pack("<Q", 1 << 63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 100) + b"{}",
    "no JSON": with_header(b"{"),
    "not Unicode": with_header(b'{"\xff": 1}'),
    "a list": with_header([]),
    "deep JSON": with_header(b"[" * 200_000),
    "a long number": with_header(b'{"a": ' + b"1" * 10_000 + b"}"),
    "an infinity": with_header(b'{"a": Infinity}'),
    "a number that overflows": with_header(b'{"a": 1e999}'),
    "a name twice": with_header(b'{"a": X, "a": X}'.replace(b"X", json.dumps(entry()).encode()), bytes(8)),
    "an entry that is a number": with_header({"a": 1}),
    "an empty entry": with_header({"a": {}}),
    "an unknown dtype": with_header({"a": entry("F31")}, bytes(8)),
    "a dtype that is a list": with_header({"a": entry(["F32"])}, bytes(8)),
    "a negative size": with_header({"a": entry(shape=[-2])}, bytes(8)),
    "a size that is true": with_header({"a": entry("U8", [True], [0, 1])}, bytes(1)),
    "a size that is no integer": with_header({"a": entry(shape=[2.0])}, bytes(8)),
    "a huge shape": with_header({"a": entry(shape=[1 << 40, 1 << 40])}, bytes(8)),
    "a huge empty shape": with_header({"a": entry(shape=[0, 1 << 61, 1 << 61], offsets=[0, 0])}),
    "many dimensions": with_header({"a": entry(shape=[1] * 1000 + [2])}, bytes(8)),
    "a shape of other bytes": with_header({"a": entry(shape=[3])}, bytes(8)),
    "three offsets": with_header({"a": entry(offsets=[0, 8, 8])}, bytes(8)),
    "offsets behind the end": with_header({"a": entry(offsets=[8, 16])}, bytes(8)),
    "offsets backwards": with_header({"a": entry(shape=[0], offsets=[8, 0])}, bytes(8)),
    "negative offsets": with_header({"a": entry(offsets=[-8, 0])}, bytes(8)),
    "overlapping tensors": with_header({"a": entry(), "b": entry(offsets=[4, 12])}, bytes(12)),
    "the same bytes twice": with_header({"a": entry(), "b": entry()}, bytes(8)),
    "a gap": with_header({"a": entry(), "b": entry(offsets=[12, 20])}, bytes(20)),
    "bytes of nobody": with_header({"a": entry()}, bytes(9)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_bad_file_is_a_model_error_that_names_it(what: str, tmp_path: Path) -> None:
    path = written(tmp_path, HOSTILE[what])
    with pytest.raises(ost.ModelError) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(repr(str(path)))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1200


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, 600), place=st.integers(0, 600), byte=st.integers(0, 255))
def test_damaged_files_are_read_or_refused(tmp_path: Path, cut: int, place: int, byte: int) -> None:
    data = bytearray(safetensors_bytes(TENSORS))
    data[place % len(data)] = byte
    path = written(tmp_path, bytes(data[: len(data) - cut % len(data)] if cut % 3 else data))
    try:
        for tensor in read_safetensors(path).values():
            tensor.array()
    except ost.ModelError:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
ENTRIES = st.fixed_dictionaries({}, optional={"dtype": st.just("U8") | JSON, "shape": JSON, "data_offsets": JSON})


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.dictionaries(st.text(max_size=5), ENTRIES | JSON, max_size=4) | JSON)
def test_a_header_may_say_anything(tmp_path: Path, header: Any) -> None:
    path = written(tmp_path, with_header(header, bytes(16)))
    try:
        for tensor in read_safetensors(path).values():
            assert tensor.array().nbytes <= 16
    except ost.ModelError:
        pass


def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ost.ModelError, match="not a regular file"):
        read_safetensors(tmp_path / "pipe")
    with pytest.raises(ost.ModelError, match="No such file"):
        read_safetensors(tmp_path / "nothing")


def index(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(document))
    return path


def test_an_index_joins_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").write_bytes(safetensors_bytes({"a": TENSORS["a"]}))
    (tmp_path / "2.safetensors").write_bytes(safetensors_bytes({"b": TENSORS["b"], "one": TENSORS["one"]}))
    found = read_sharded(index(tmp_path, {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert {name: tensor.shape for name, tensor in found.items()} == {"a": (2, 3), "b": (4,)}


@pytest.mark.parametrize(
    "shard",
    ["../1.safetensors", "/etc/passwd", "x/1.safetensors", "..", "", "1.bin", "a\n.safetensors", 3, None, ["a"]],
)
def test_an_index_names_no_file_elsewhere(tmp_path: Path, shard: Any) -> None:
    with pytest.raises(ost.ModelError, match="not the name of a safetensors file in its folder"):
        read_sharded(index(tmp_path, {"weight_map": {"a": shard}}))


def test_an_index_that_is_wrong_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.safetensors").write_bytes(safetensors_bytes({"a": TENSORS["a"]}))
    with pytest.raises(ost.ModelError, match=r"'b' is not in 1\.safetensors"):
        read_sharded(index(tmp_path, {"weight_map": {"b": "1.safetensors"}}))
    with pytest.raises(ost.ModelError, match=r"2\.safetensors.*No such file"):
        read_sharded(index(tmp_path, {"weight_map": {"b": "2.safetensors"}}))
    documents: list[object] = [[], {}, {"weight_map": []}]
    for document in documents:
        with pytest.raises(ost.ModelError, match="expected an object"):
            read_sharded(index(tmp_path, document))
