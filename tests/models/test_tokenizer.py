"""Tokenizers: bytes for weights that mean nothing, the package `tokenizers` for checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import gguf_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import models
from ostinato.models import ByteTokenizer, load_tokenizer


@given(st.text())
def test_bytes_lose_nothing(text: str) -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text


def test_a_token_that_is_no_byte_is_shown_as_its_number() -> None:
    assert ByteTokenizer().decode([72, 105, 300, 33]) == "Hi⟨300⟩!"
    assert ByteTokenizer().decode([255, 65]) == "\ufffdA"


def test_a_model_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(ost.ModelError, match=r"there is no tokenizer\.json with it"):
        load_tokenizer(tmp_path)


def test_a_missing_package_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ost.ModelError, match=r"needs the package tokenizers: pip install 'tokenizers>="):
        load_tokenizer(tmp_path)


def test_the_tokenizer_of_a_checkpoint_is_used(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<s>": 0, "low": 1, "tide": 2}, unk_token="<s>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for place in (tmp_path, tmp_path / "model.gguf"):
        found = load_tokenizer(place)
        assert found.encode("low tide") == [1, 2]
        assert found.decode([2, 1]) == "tide low"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "BPE", "vocab": 3}}', "[" * 100_000])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, text: str) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ost.ModelError, match="it is not a tokenizer"):
        load_tokenizer(tmp_path)


# --- text as it comes, and tokenizers of GGUF files ---------------------------------------------------------------


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_pieces_of_a_stream_are_the_whole_text(data: bytes) -> None:
    stream = models.TextStream(models.ByteTokenizer())
    pieces = [stream.add(token) for token in data]
    assert "".join([*pieces, stream.rest()]) == models.ByteTokenizer().decode(list(data))


def test_a_piece_is_whole_characters() -> None:
    stream = models.TextStream(models.ByteTokenizer())
    assert [stream.add(token) for token in "zwölf".encode()] == ["z", "w", "", "ö", "l", "f"]


TOKENS = ["<s>", "a", "b", "c", "Ġ", "ab", "Ġab", "abc", "<end>"]
VOCABULARY: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": np.array([3, *[1] * 7, 3], np.int32),
    "tokenizer.ggml.merges": ["a b", "Ġ ab", "ab c"],
    "tokenizer.ggml.bos_token_id": 0,
}


def gguf_with(path: Path, **changes: Any) -> Path:
    metadata = VOCABULARY | {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    path.write_bytes(gguf_bytes({name: value for name, value in metadata.items() if value is not None}, {}))
    return path


def test_a_gguf_file_brings_its_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    tokenizer = models.load_tokenizer(gguf_with(tmp_path / "x.gguf"))
    assert tokenizer.encode("abc ab<end>a") == [7, 6, 8, 1]
    assert tokenizer.decode([7, 6, 8]) == "abc ab<end>"
    begins = models.load_tokenizer(gguf_with(tmp_path / "y.gguf", add_bos_token=True))
    assert begins.encode("ab") == [0, 5]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": None}, "there is no tokenizer in it"),
        ({"model": "llama"}, "its tokenizer is 'llama' with 'qwen2'; 'gpt2' with"),
        ({"pre": "other"}, "with 'other'; 'gpt2' with 'llama-bpe', 'qwen2' is read. Put a tokenizer.json"),
        ({"tokens": None}, "tokenizer.ggml.tokens: expected strings"),
        ({"merges": ["a b c"]}, "a merge is two tokens"),
        ({"merges": ["x y"]}, "its tokenizer cannot be used"),
        ({"token_type": np.zeros(3, np.int32)}, "expected a number for each token"),
        ({"add_bos_token": True, "bos_token_id": 99}, "bos_token_id is 99, which is no token"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(ost.ModelError, match=reason):
        models.load_tokenizer(gguf_with(tmp_path / "x.gguf", **changes))
