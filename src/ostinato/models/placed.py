"""Weights on a device: matrices that multiply the same vector are joined, so that one dispatch reads them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .. import ops
from ..encode.encoder import CommandEncoder
from ..runtime.buffer import Buffer
from .tensors import Q4_0, as_float32, is_affine4, is_quantised
from .weights import Weights

JOINED = {
    "attn.qkv": ("attn.q", "attn.k", "attn.v"),
    "mlp.gate_up": ("mlp.gate", "mlp.up"),
    "mlp.experts.gate_up": ("mlp.experts.gate", "mlp.experts.up"),
}
"""Matrices that are joined in each layer, unless quantised, with the name of the joined matrix."""


Product = Callable[[CommandEncoder, Buffer, Buffer, Buffer], None]
"""Encodes out = weight · x."""


class _Device(Protocol):
    def array(self, values: Any) -> Buffer: ...

    def command_encoder(self, label: str | None = None) -> CommandEncoder: ...

    def from_dlpack(self, producer: Any) -> Buffer: ...

    def empty(self, shape: Any, dtype: Any) -> Buffer: ...


class PlacedWeights(Mapping[str, Buffer]):
    """The weights of a decoder on a device, by name, in one dtype; quantised matrices stay quantised.

    Joined matrices are [matrices, out, in] if they have one size, otherwise [all rows, in]; with experts, so for each
    expert.
    """

    def __init__(self, device: _Device, weights: Weights, dtype: str) -> None:
        self._device = device
        self._dtype = dtype
        self.quantised: dict[str, Product] = {}
        """The product with a vector, for each quantised matrix."""
        self._buffers: dict[str, Buffer] = {}
        left = dict.fromkeys(weights)
        for layer in range(weights.config.layers):
            for whole, parts in JOINED.items():
                names = [f"layer.{layer}.{part}" for part in parts]
                if all(name in left and not _in_blocks(name, weights) for name in names):
                    self._buffers[f"layer.{layer}.{whole}"] = self._join(weights, names)
                    for name in names:
                        del left[name]
        for name in left:
            self._buffers[name] = self._place(name, weights)

    def __getitem__(self, name: str) -> Buffer:
        return self._buffers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    def _join(self, weights: Weights, names: Sequence[str]) -> Buffer:
        *experts, _, width = weights.shape(names[0])
        heights = [weights.shape(name)[-2] for name in names]
        whole = self._device.empty((*experts, sum(heights), width), self._dtype)
        begin = 0
        for name, height in zip(names, heights, strict=True):
            targets = [whole[number] for number in range(experts[0])] if experts else [whole]
            self._fill([to[begin : begin + height] for to in targets], name, weights)
            begin += height
        return whole if len(set(heights)) > 1 else whole.view(shape=(*experts, len(heights), heights[0], width))

    def _fill(self, targets: Sequence[Buffer], name: str, weights: Weights) -> None:
        """Write a matrix, or the matrices of all experts."""
        shape = (len(targets), *targets[0].shape)
        lent = self._lent(name, weights)
        if lent is None:
            for to, rows in zip(targets, self._array(name, weights).reshape(shape), strict=True):
                to.write(rows)
            return
        encoder, source = self._device.command_encoder("weights"), lent.view(shape=shape)
        for number, to in enumerate(targets):
            encoder.copy(source[number], to)
        encoder.commit_and_wait()

    def _lent(self, name: str, weights: Weights) -> Buffer | None:
        """The tensor of another library, if it can be used in place."""
        lent = weights.lent(name)
        return None if lent is None or weights.dtype(name) != self._dtype else self._device.from_dlpack(lent)

    def _place(self, name: str, weights: Weights) -> Buffer:
        lent = self._lent(name, weights)
        if lent is not None:
            return lent
        if not _in_blocks(name, weights):
            return self._device.array(self._array(name, weights))
        array = weights[name]
        if is_affine4(array.dtype):
            scales, biases = (self._device.array(array[part].astype(self._dtype)) for part in ("scale", "bias"))
            self.quantised[name] = lambda enc, weight, x, out: ops.matvec_affine4(enc, weight, scales, biases, x, out)
            return self._device.array(np.ascontiguousarray(array["numbers"]).reshape(len(array), -1))
        self.quantised[name] = ops.matvec_q4_0 if array.dtype == Q4_0 else ops.matvec_q8_0
        return self._device.array(np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1))

    def _array(self, name: str, weights: Weights) -> np.ndarray:
        array = weights[name]
        return (as_float32(array) if is_quantised(array.dtype) else array).astype(self._dtype, copy=False)


def _in_blocks(name: str, weights: Weights) -> bool:
    """Whether a matrix stays quantised; stacked experts and the embedding do not."""
    return is_quantised(weights.dtype(name)) and len(weights.shape(name)) == 2 and name != "embedding"
