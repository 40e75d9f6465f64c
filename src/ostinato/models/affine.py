"""Weights in MLX's affine 4 bits, as MLX writes them into a Hugging Face folder.

A matrix `X.weight` of 4 bits is three tensors: `X.weight`, eight weights in each uint32, the first in its lowest bits;
`X.scales` and `X.biases`, one of each for 64 weights of a row. A weight is `scale × number + bias`. The tensors
show which matrices are stored like that: a matrix without scales is in floats. Experts of a layer share a tensor of
three axes. `config_files.py` checks the settings in `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph.file.values import Damaged
from .tensors import AFFINE4, FLOATS, GROUP, Array, StoredTensor


@dataclass(frozen=True, slots=True)
class AffineTensor:
    """The three tensors of a matrix, checked; `array` combines them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    words: StoredTensor
    scales: StoredTensor
    biases: StoredTensor

    def array(self) -> Array:
        """The groups, as a new array."""
        groups = np.empty((*self.shape[:-1], self.shape[-1] // GROUP), self.dtype)
        groups["numbers"] = self.words.array().reshape(groups["numbers"].shape)
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
    if len(shape) < 2 or shape[-1] % GROUP:
        raise Damaged(f"tensor {name!r} has scales, but {list(shape)} are not rows of whole groups of {GROUP} weights")
    expected = (*shape[:-1], shape[-1] // 8), *[(*shape[:-1], shape[-1] // GROUP)] * 2
    for part_name, part, wanted in zip(part_names(name), (words, scales, biases), expected, strict=True):
        if part.shape != wanted:
            raise Damaged(
                f"tensor {part_name!r} has shape {list(part.shape)}; weights of shape {list(shape)} in 4 bits"
                f" and groups of {GROUP}, the only MLX format supported, need {list(wanted)}"
            )
    kind = scales.dtype
    if words.dtype != np.uint32 or kind not in FLOATS or biases.dtype != kind:
        raise Damaged(
            f"tensor {name!r} is in {words.format} with scales in {scales.format} and biases in {biases.format};"
            " expected U32, and one dtype of F32, F16, BF16 for both"
        )
    return AffineTensor(shape, AFFINE4[kind], words, scales, biases)
