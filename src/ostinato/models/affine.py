"""Weights in MLX's affine formats, as MLX writes them into a Hugging Face folder.

A quantised matrix `X.weight` is three tensors: `X.weight`, whose numbers follow each other as bits in uint32 words, the
first in the lowest bits; `X.scales` and `X.biases`, one of each for a group of weights of a row. A weight is
`scale × number + bias`. The tensors show which matrices are stored like that: a matrix without scales is in floats.
Bits and groups follow from the shapes of the three, so every matrix may have its own. Experts of a layer share a tensor
of three axes. `config_files.py` checks the settings in `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.file.values import Damaged
from ..ops.formats import AFFINE_BITS, AFFINE_GROUPS, FLOATS, Array, Format, affine_format
from .tensors import StoredTensor

SUPPORTED = (
    f"MLX's affine formats of {', '.join(map(str, AFFINE_BITS))} bits in groups of"
    f" {', '.join(map(str, AFFINE_GROUPS))} are supported"
)


@dataclass(frozen=True, slots=True)
class AffineTensor:
    """The three tensors of a matrix, checked; `array` combines them."""

    shape: tuple[int, ...]
    format: Format
    words: StoredTensor
    scales: StoredTensor
    biases: StoredTensor

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.format.dtype

    def array(self) -> Array:
        """The groups, as a new array."""
        groups = np.empty((*self.shape[:-1], self.shape[-1] // self.format.weights), self.dtype)
        numbers = groups[f"bits{self.format.bits}"]
        numbers[...] = self.words.array().reshape(numbers.shape)
        groups["scale"], groups["bias"] = self.scales.array(), self.biases.array()
        return groups


def part_names(name: str) -> tuple[str, str, str]:
    """The names of weights, scales and biases, from the name of the weights."""
    base = name.removesuffix(".weight")
    return name, f"{base}.scales", f"{base}.biases"


def is_affine(tensors: Mapping[str, StoredTensor], name: str) -> bool:
    """Whether a tensor has scales beside it."""
    return part_names(name)[1] in tensors


def affine_tensor(tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...]) -> AffineTensor:
    """The matrix of that name; checks that it has `shape` weights."""
    for part_name in part_names(name):
        if part_name not in tensors:
            raise Damaged(f"tensor {part_name!r} is missing")
    words, scales, biases = (tensors[part_name] for part_name in part_names(name))
    if len(shape) < 2:
        raise Damaged(f"tensor {name!r} has scales, but {list(shape)} are not rows of weights")
    kind = scales.dtype
    if words.dtype != np.uint32 or kind not in FLOATS or biases.dtype != kind:
        raise Damaged(
            f"tensor {name!r} is in {words.format} with scales in {scales.format} and biases in {biases.format};"
            " expected U32, and one dtype of F32, F16, BF16 for both"
        )
    for part_name, part in zip(part_names(name), (words, scales, biases), strict=True):
        if len(part.shape) != len(shape) or part.shape[:-1] != shape[:-1]:
            raise Damaged(
                f"tensor {part_name!r} has shape {list(part.shape)}, which does not match weights of {list(shape)}"
            )
    if biases.shape != scales.shape:
        raise Damaged(f"tensor {part_names(name)[2]!r} has shape {list(biases.shape)}; the scales {list(scales.shape)}")
    bits, over = divmod(words.shape[-1] * 32, shape[-1])
    group, rest = divmod(shape[-1], scales.shape[-1])
    if over or rest or bits not in AFFINE_BITS or group not in AFFINE_GROUPS:
        raise Damaged(
            f"tensor {name!r} has rows of {words.shape[-1]} words and {scales.shape[-1]} scales for {shape[-1]}"
            f" weights; {SUPPORTED}"
        )
    return AffineTensor(shape, affine_format(bits, group, kind), words, scales, biases)
