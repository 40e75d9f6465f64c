"""The memory of torch's tensors as buffers, without a copy and without a check per call.

A kernel gets the storage of a tensor from the tensor's first element to the storage's end, as from torch: strides are
the kernel's business. Buffers are kept by address. They own nothing: a tensor that is an argument outlives the call on
the CPU, and on CUDA its memory is reused only by work that torch queues on the same stream after ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..device import Device
from ..errors import UsageError
from ..runtime.buffer import Buffer
from . import arrays
from .arrays import CUDA, HOST, Place
from .torch_errors import CallError, MixedDevices

Buffers = dict[tuple[int, int], Buffer]
"""Buffers of one device, by address and bytes."""

VIRTUAL: Place = (-1, 0)
"""The place of tensors without memory: meta tensors, and the fake ones of torch.compile and torch.export."""

_MOST_BUFFERS = 4096
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_REFUSED = {torch.float64: "float()", torch.complex128: "to(torch.complex64)"}

_places: dict[torch.device, Place] = {}
_buffers: dict[Device, Buffers] = {}


class VirtualTensor(Exception):
    """A tensor without memory, behind one that has some. Only between the functions of this room."""


def place(tensor: torch.Tensor) -> Place:
    """Where a tensor's memory is; raises for a device whose memory kernels cannot use."""
    if type(tensor) not in _PLAIN and _is_fake(tensor):
        return VIRTUAL
    device = tensor.device
    where = _places.get(device)
    if where is None:
        where = _places[device] = _place(device)
    return where


def common_place(values: Iterable[Any], first: torch.Tensor) -> Place:
    """The place of the tensors of a call. The first may be a number on the host, wherever the others are."""
    where = place(first)
    if where == HOST and not first.dim():
        tensors = (value for value in values if isinstance(value, torch.Tensor))
        return next((place(tensor) for tensor in tensors if tensor.dim()), where)
    return where


def is_number(tensor: torch.Tensor, where: Place) -> bool:
    """Whether torch passes a tensor by its value: one without axes on the host, to kernels that run elsewhere.

    Here that is so for a double as well, which then becomes a float: kernels have no double to read it by address.
    """
    return (where != HOST or tensor.dtype == torch.float64) and not tensor.dim() and tensor.device.type == "cpu"


def number_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of the value of a tensor without axes."""
    value = tensor.detach().to(torch.float32) if tensor.dtype == torch.float64 else tensor.detach()
    return bytes(value.reshape(1).view(torch.uint8).tolist())


def _place(device: torch.device) -> Place:
    if device.type == "cpu":
        return HOST
    if device.type == "cuda":
        return CUDA, device.index or 0
    if device.type == "meta":
        return VIRTUAL
    advice = "torch.mps.compile_shader runs kernels on those" if device.type == "mps" else "move it with .cpu()"
    raise CallError(f"a tensor on {device}: kernels run here on tensors of the CPU and of CUDA; {advice}")


def _is_fake(tensor: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor  # loaded already by whoever made one

    return isinstance(tensor, FakeTensor)


def buffers_of(device: Device) -> Buffers:
    """The buffers that were made for a device so far."""
    return _buffers.setdefault(device, {})


def new_buffer(device: Device, buffers: Buffers, key: tuple[int, int]) -> Buffer:
    """A buffer over memory, which joins those of the device."""
    if len(buffers) >= _MOST_BUFFERS:
        buffers.clear()
    buffer = buffers[key] = device.from_address(*key)
    return buffer


def memory(tensor: torch.Tensor, where: Place) -> tuple[int, int]:
    """The address of a tensor's first element, and the bytes from there to the end of its storage."""
    here = place(tensor)
    if here == VIRTUAL:
        raise VirtualTensor
    if here != where:
        raise MixedDevices(f"it is on {tensor.device}, and other tensors are not")
    if tensor.dtype in _REFUSED:
        raise CallError(f"a tensor of {tensor.dtype}: Metal has no double; tensor.{_REFUSED[tensor.dtype]}")
    if tensor.is_conj() or tensor.is_neg():
        raise CallError("its memory is not yet conjugated or negated; tensor.resolve_conj().resolve_neg()")
    try:
        start = tensor.data_ptr()
        if not start and not tensor.numel():
            return 0, 0  # an empty slice has no address, although its storage goes on
        return start, tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.itemsize
    except (RuntimeError, NotImplementedError) as error:
        # Tensors of torch.func, sparse and nested tensors.
        reason = str(error).partition("\n")[0]
        raise CallError(f"{arrays.described(tensor)} has no memory that a kernel can use: {reason}") from None


def current_stream(where: Place) -> int:
    """The handle of torch's current CUDA stream; 0 is the default stream, which orders itself with the device's."""
    stream: Any = torch.cuda.current_stream(where[1])
    if stream.cuda_stream and torch.cuda.is_current_stream_capturing():
        raise UsageError("a Metal kernel cannot be captured into a torch.cuda.graph: it runs on a stream of its own")
    return int(stream.cuda_stream)
