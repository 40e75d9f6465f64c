"""Text to token ids and back: by the `tokenizers` package for a checkpoint, by bytes for random weights.

A checkpoint's tokenizer is its `tokenizer.json`, or what a GGUF file has in its metadata (`gguf_tokenizer.py`).
`tokenizers` is an optional dependency (extra `models`) and imported only when a checkpoint's tokenizer is loaded.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, Protocol

from ..base.extras import install_command
from ..base.paths import checked_path
from ..base.printable import printable
from ..errors import ModelError
from ..graph.file.values import Damaged
from .files import read_file, reading
from .gguf import read_gguf
from .gguf_tokenizer import gguf_tokenizer

MAX_TOKENIZER_BYTES = 256 << 20


class Tokenizer(Protocol):
    """Converts between text and token ids."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class ByteTokenizer:
    """One token per byte of UTF-8, without loss; a token that is not a byte is shown as its number."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogateescape"))

    def decode(self, tokens: Sequence[int]) -> str:
        parts = [bytes((token,)) if 0 <= token < 256 else f"⟨{token}⟩".encode() for token in tokens]
        return b"".join(parts).decode("utf-8", "replace")

    def __repr__(self) -> str:
        return "ByteTokenizer()"


class CheckpointTokenizer:
    """The tokenizer of a checkpoint, which adds the checkpoint's special tokens."""

    def __init__(self, tokenizer: Any, origin: str) -> None:
        self._tokenizer = tokenizer
        self._origin = origin

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False))

    def __repr__(self) -> str:
        return f"CheckpointTokenizer({self._origin!r})"


class TextStream:
    """The text of tokens that come one by one: each piece is complete characters, and all pieces are the whole text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._begin = self._read = 0

    def add(self, token: int) -> str:
        """The text that a token completes; nothing while it may go on."""
        self._tokens.append(token)
        return self._piece(whole=False)

    def rest(self) -> str:
        """The text of what is not complete."""
        return self._piece(whole=True)

    def _piece(self, whole: bool) -> str:
        # Some tokens before are decoded too: what a token's text is may depend on them.
        before = self._tokenizer.decode(self._tokens[self._begin : self._read])
        text = self._tokenizer.decode(self._tokens[self._begin :])
        if not whole and text.endswith("\ufffd"):
            return ""
        self._begin, self._read = self._read, len(self._tokens)
        return text[len(before) :]


def load_tokenizer(path: str | os.PathLike[str]) -> CheckpointTokenizer:
    """The tokenizer of a Hugging Face folder; of a GGUF file the `tokenizer.json` beside it, or its own."""
    place = checked_path(path, "load_tokenizer", ModelError)
    with reading(place):
        file = (place if place.is_dir() else place.parent) / "tokenizer.json"
        if not file.is_file() and place.is_dir():
            raise Damaged("there is no tokenizer.json with it, so text cannot be tokenized")
        package = _package()
        if not file.is_file():
            return CheckpointTokenizer(gguf_tokenizer(package, read_gguf(place).metadata), str(place))
    with reading(file):
        text = read_file(file, MAX_TOKENIZER_BYTES)
    try:
        return CheckpointTokenizer(package.Tokenizer.from_buffer(text), str(file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in the package is not an Exception
        raise ModelError(f"{str(file)!r}: it is not a tokenizer: {printable(str(error), 300)}") from None


def _package() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise Damaged(f"its tokenizer needs the package tokenizers: {install_command('models')}") from None
