"""Weights on a device: matrices that multiply the same vector are joined, so that one dispatch reads them all.

Quantised matrices stay as they are stored. Those of one format are joined too. Where activations are rounded to 8 bits
for them, they are packed for that, once, on the device; tables, experts, and formats that have no packed form are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..encode.encoder import CommandEncoder
from ..ops.formats import Format, format_of
from ..ops.packed import Packed, can_pack, pack_blocks, packed_bytes, packs
from ..runtime.buffer import Buffer
from ..runtime.queue import OnQueue
from .tensors import as_float32, is_quantised
from .weights import Weights

JOINED = {
    "attn.qkv": ("attn.q", "attn.k", "attn.v"),
    "mlp.gate_up": ("mlp.gate", "mlp.up"),
    "mlp.experts.gate_up": ("mlp.experts.gate", "mlp.experts.up"),
}
"""Matrices that are joined in each layer if they are stored alike, with the name of the joined matrix."""


class _Device(OnQueue, Protocol):
    def array(self, values: Any) -> Buffer: ...

    def command_encoder(self, label: str | None = None) -> CommandEncoder: ...

    def from_dlpack(self, producer: Any) -> Buffer: ...

    def empty(self, shape: Any, dtype: Any) -> Buffer: ...


class PlacedWeights(Mapping[str, Buffer]):
    """The weights of a decoder on a device, by name, in one dtype; quantised matrices stay quantised.

    Joined matrices are [matrices, out, in] if they have one size, otherwise [all rows, in]; with experts, so for each
    expert. Quantised ones are uint8 [all rows, bytes of a row], with experts [experts, all rows, bytes of a row]; one
    that is packed is in `packed` instead.
    """

    def __init__(self, device: _Device, weights: Weights, dtype: str, rounds: bool | None = False) -> None:
        """With `rounds` matrices are packed where there is a packed form; None: where that is faster too."""
        self._device = device
        self._dtype = dtype
        self._rounds = rounds
        self.packed: dict[str, Packed] = {}
        """The matrices that multiply rounded rows."""
        self.formats: dict[str, Format] = {}
        """The format of each quantised matrix."""
        self._buffers: dict[str, Buffer] = {}
        head = "embedding" if weights.config.tied_embeddings else "head"
        left = dict.fromkeys(weights)
        for layer in range(weights.config.layers):
            for whole, parts in JOINED.items():
                names = [f"layer.{layer}.{part}" for part in parts]
                if all(name in left for name in names) and len({_stored_as(name, weights) for name in names}) == 1:
                    self._keep(f"layer.{layer}.{whole}", self._join(f"layer.{layer}.{whole}", weights, names))
                    for name in names:
                        del left[name]
        for name in left:
            self._keep(name, self._place(name, weights))
        if "embedding" in self.formats and head == "embedding":
            self._pack("embedding", self._buffers["embedding"])

    def __getitem__(self, name: str) -> Buffer:
        return self._buffers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._buffers)

    def __len__(self) -> int:
        return len(self._buffers)

    def _keep(self, name: str, buffer: Buffer) -> None:
        """Keep a matrix, packed if it is to be; a table of embeddings stays, for it is read row by row."""
        if name == "embedding" or not self._pack(name, buffer):
            self._buffers[name] = buffer

    def _pack(self, name: str, buffer: Buffer) -> bool:
        form = self.formats.get(name)
        if form is None or self._rounds is False or len(buffer.shape) != 2 or not can_pack(form):
            return False
        if self._rounds is None and not packs(self._device._queue, form, self._dtype):
            return False
        rows, width = buffer.shape[0], buffer.shape[1] // form.nbytes * form.weights
        tiles = self._device.empty(packed_bytes(form, rows, width), np.uint8)
        encoder = self._device.command_encoder("pack weights")
        self.packed[name] = pack_blocks(encoder, form, buffer, tiles)
        encoder.commit_and_wait()
        return True

    def _join(self, whole: str, weights: Weights, names: Sequence[str]) -> Buffer:
        form = _stored_as(names[0], weights)
        if form is not None:
            self.formats[whole] = form
            return self._device.array(np.concatenate([_bytes(weights[name]) for name in names], axis=-2))
        *experts, _, width = weights.shape(names[0])
        heights = [weights.shape(name)[-2] for name in names]
        joined = self._device.empty((*experts, sum(heights), width), self._dtype)
        begin = 0
        for name, height in zip(names, heights, strict=True):
            targets = [joined[number] for number in range(experts[0])] if experts else [joined]
            self._fill([to[begin : begin + height] for to in targets], name, weights)
            begin += height
        return joined if len(set(heights)) > 1 else joined.view(shape=(*experts, len(heights), heights[0], width))

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
        form = _stored_as(name, weights)
        if form is not None:
            self.formats[name] = form
            return self._device.array(_bytes(weights[name]))
        lent = self._lent(name, weights)
        return self._device.array(self._array(name, weights)) if lent is None else lent

    def _array(self, name: str, weights: Weights) -> np.ndarray:
        array = weights[name]
        return (as_float32(array) if is_quantised(array.dtype) else array).astype(self._dtype, copy=False)


def _stored_as(name: str, weights: Weights) -> Format | None:
    """The format of a quantised matrix."""
    return format_of(weights.dtype(name)) if len(weights.shape(name)) > 1 else None


def _bytes(blocks: np.ndarray) -> np.ndarray:
    """Blocks as rows of bytes."""
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(*blocks.shape[:-1], -1)
