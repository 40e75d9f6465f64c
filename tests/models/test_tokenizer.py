"""Tokenizers: bytes for weights that mean nothing, the package `tokenizers` for checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
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
