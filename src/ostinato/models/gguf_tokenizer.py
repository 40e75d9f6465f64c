"""The tokenizer in the metadata of a GGUF file, for the package `tokenizers`.

Byte-level BPE is read (`tokenizer.ggml.model` is "gpt2"), as Llama 3 and Qwen have it: tokens, merges, which tokens are
special, and the way text is cut before (`tokenizer.ggml.pre`). Others are refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.printable import printable
from ..graph.file.values import Damaged, shown

MOST_TOKENS = 1 << 20
_CONTROL, _USER_DEFINED = 3, 4

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUTS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORDS % r"\p{N}{1,3}",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _WORDS % r"\p{N}",
}
"""How text is cut before its pieces are encoded, by `tokenizer.ggml.pre`."""


def gguf_tokenizer(package: Any, metadata: Mapping[str, Any]) -> Any:
    """A `tokenizers.Tokenizer`; raises `Damaged` for one that is missing, damaged or of another kind."""
    kind, cut = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind is None or kind == "no_vocab":
        raise Damaged("there is no tokenizer in it, nor a tokenizer.json beside it, so text cannot be tokenized")
    if kind != "gpt2" or type(cut) is not str or cut not in _CUTS:
        raise Damaged(
            f"its tokenizer is {shown(kind)} with {shown(cut)}; 'gpt2' with {', '.join(map(repr, _CUTS))} is read."
            " Put a tokenizer.json beside it"
        )
    tokens, merges = (_texts(metadata, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    if len(tokens) > MOST_TOKENS or len(merges) > MOST_TOKENS:
        raise Damaged(
            f"its tokenizer has {len(tokens)} tokens and {len(merges)} merges; at most {MOST_TOKENS} are read"
        )
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise Damaged("tokenizer.ggml.merges: a merge is two tokens with a space between")
    try:
        tokenizer = package.Tokenizer(package.models.BPE(vocab=vocabulary, merges=pairs))
        tokenizer.pre_tokenizer = package.pre_tokenizers.Sequence(
            [
                package.pre_tokenizers.Split(package.Regex(_CUTS[cut]), "isolated"),
                package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = package.decoders.ByteLevel()
        special = _special(metadata, tokens)
        tokenizer.add_special_tokens([package.AddedToken(token, special=True, normalized=False) for token in special])
        _add_begin(package, metadata, tokens, tokenizer)
    except (KeyboardInterrupt, SystemExit, Damaged):
        raise
    except BaseException as error:  # a panic in the package is not an Exception
        raise Damaged(f"its tokenizer cannot be used: {printable(str(error), 300)}") from None
    return tokenizer


def _texts(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = metadata.get(name)
    if type(values) is not list or not values:
        raise Damaged(f"{name}: expected strings, not {shown(values)}")
    return values


def _special(metadata: Mapping[str, Any], tokens: list[str]) -> list[str]:
    """Tokens that text is searched for before it is cut."""
    kinds = metadata.get("tokenizer.ggml.token_type")
    if kinds is None:
        return []
    if not hasattr(kinds, "tolist") or len(kinds) != len(tokens):
        raise Damaged("tokenizer.ggml.token_type: expected a number for each token")
    return [token for token, kind in zip(tokens, kinds.tolist(), strict=True) if kind in (_CONTROL, _USER_DEFINED)]


def _add_begin(package: Any, metadata: Mapping[str, Any], tokens: list[str], tokenizer: Any) -> None:
    """Texts begin with a token if the file says so."""
    number = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token") is not True or number is None:
        return
    if type(number) is not int or not 0 <= number < len(tokens):
        raise Damaged(f"tokenizer.ggml.bos_token_id is {shown(number)}, which is no token")
    begin = tokens[number]
    tokenizer.post_processor = package.processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, number)]
    )
