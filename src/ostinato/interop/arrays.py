"""Arrays of other libraries as buffers of a device, and buffers as arrays of the library that the inputs came from.

A library is known by the module of an array's type (NumPy, MLX, torch, CuPy) and never imported here unless it is
loaded: who holds one of its arrays has it. Memory of the host belongs to the CPU device, memory of a CUDA device to the
CUDA device of the same ordinal; OSTINATO_DEVICE overrides that for the host's memory, which is then copied where the
device cannot reach it. Memory is shared wherever it can be, in the order of the other library's current stream:
`Device.from_dlpack` and `Buffer.__dlpack__` see to that.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..device import Device, open_device
from ..errors import ArgumentError, WrongDevice
from ..runtime.buffer import Buffer
from ..runtime.dlpack import BFLOAT16

Place = tuple[int, int]
"""Where memory is, as DLPack says it: kind and ordinal."""

HOST: Place = (1, 0)
CUDA, _CUDA_HOST, _CUDA_MANAGED = 2, 3, 13
_LIBRARIES = ("numpy", "mlx", "torch", "cupy")

_WITHOUT_THREADS_BYTES = 1 << 18
"""Up to this size MLX copies an array faster than its threads, which must be woken up, fill one with zeros."""

_library_of_type: dict[type, str | None] = {}
_devices: dict[Place, Device] = {}


def library(value: Any) -> str | None:
    """The library that an array is of: "numpy", "mlx", "torch" or "cupy"; None for anything else."""
    kind = type(value)
    try:
        return _library_of_type[kind]
    except KeyError:
        return _library_of_type.setdefault(kind, _library(kind))


def _library(kind: type) -> str | None:
    for base in kind.__mro__:
        name = base.__module__.partition(".")[0]
        if name in _LIBRARIES and hasattr(base, "__dlpack__"):
            return name
    return "numpy" if issubclass(kind, np.generic) else None


def place(value: Any) -> Place:
    """Where the memory of an array is. MLX shares only what the host can reach, with every back-end that it has."""
    if type(value) is np.ndarray or isinstance(value, np.generic) or library(value) == "mlx":
        return HOST
    try:
        kind, ordinal = map(int, value.__dlpack_device__())
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArgumentError(f"{described(value)} has no memory that can be shared: {error}") from None
    if kind in (HOST[0], _CUDA_HOST):
        return HOST
    if kind in (CUDA, _CUDA_MANAGED):
        return CUDA, ordinal
    raise ArgumentError(f"{described(value)} is in memory that is neither the host's nor CUDA's (DLPack kind {kind})")


def device_at(where: Place) -> Device:
    """The device that works on memory of that place. It is opened once per process and stays open."""
    device = _devices.get(where)
    if device is None:
        device = open_device("cpu" if where == HOST else f"cuda:{where[1]}")
        if where != HOST and device.capabilities.dlpack_device != where:
            raise WrongDevice(f"the arrays are on {named(where)}, and OSTINATO_DEVICE says {device.name!r}; unset it")
        device = _devices.setdefault(where, device)
    return device


os.register_at_fork(after_in_child=_devices.clear)  # a device of the parent is of no use in a child


def common_place(values: Iterable[Any]) -> Place:
    """The place of all arrays; raises if they are in several. The host's memory if there are none."""
    places = {place(value): value for value in values}
    if len(places) > 1:
        listed = ", ".join(f"{described(value)} on {named(where)}" for where, value in places.items())
        raise WrongDevice(f"the arrays of one call must be on one device: {listed}")
    return next(iter(places), HOST)


def named(where: Place) -> str:
    """A place in words."""
    return "the host" if where == HOST else f"cuda:{where[1]}"


def described(value: Any) -> str:
    """An array in words."""
    kind = type(value)
    shape, dtype = tuple(getattr(value, "shape", ())), getattr(value, "dtype", "unknown dtype")
    return f"a {kind.__module__}.{kind.__qualname__} of shape {shape} and {dtype}"


def dtype(value: Any) -> np.dtype[Any]:
    """The NumPy dtype of the elements of an array; of bfloat16 it is that of ml_dtypes."""
    given = value.dtype
    return given if isinstance(given, np.dtype) else numpy_dtype(given)


def numpy_dtype(given: Any) -> np.dtype[Any]:
    """The NumPy dtype for one of MLX ("mlx.core.float32"), torch ("torch.float32") or NumPy, or for its name."""
    if isinstance(given, np.dtype | type):
        return np.dtype(given)
    name = str(given).rpartition(".")[2]
    try:
        return BFLOAT16 if name == "bfloat16" else np.dtype(name)
    except TypeError:
        raise ArgumentError(f"{given} is not a dtype that NumPy has too") from None


def host_array(value: Any) -> np.ndarray:
    """The memory of an array on the host as a NumPy array, without a copy: strides are those of the array."""
    kind = library(value)
    if kind == "numpy":
        return value if isinstance(value, np.ndarray) else np.asarray(value)
    if kind == "mlx":
        return _of_mlx(value)
    if kind == "torch":
        return _of_torch(value)
    raise ArgumentError(f"{described(value)} is not in the host's memory")


def _of_mlx(value: Any) -> np.ndarray:
    """Evaluates the array. The buffer protocol has no letter for bfloat16, so NumPy gets its bytes."""
    view = memoryview(value)
    if view.format != "bfloat16":
        return np.asarray(view)
    if view.c_contiguous:
        return np.frombuffer(value, np.uint16).view(BFLOAT16).reshape(view.shape)
    return np.asarray(value.view(sys.modules["mlx.core"].uint16)).view(BFLOAT16)


def _of_torch(value: Any) -> np.ndarray:
    tensor = plain_tensor(value)
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16)).view(BFLOAT16)
    return np.asarray(tensor)


def plain_tensor(value: Any) -> Any:
    """A tensor without its place in a gradient and with its values in memory, which DLPack asks for."""
    return value.detach().resolve_conj().resolve_neg()


def buffer(device: Device, value: Any) -> Buffer:
    """A contiguous array as a buffer of a device: its own memory if the device can reach it, else a copy.

    What NumPy takes for read-only is copied. MLX's memory is shared, so who dispatches must not write to it.
    """
    if place(value) == HOST:
        return device.from_dlpack(host_array(value))
    return device.from_dlpack(plain_tensor(value) if library(value) == "torch" else value)


def strided_buffer(device: Device, value: Any) -> tuple[Buffer, int, tuple[int, ...]]:
    """The memory that an array reaches, as a buffer; where its first element is there, in bytes; its strides, in
    elements."""
    if place(value) != HOST:
        return _strided_on_device(device, value)
    given = host_array(value)
    if any(stride % given.itemsize for stride in given.strides):
        given = given.copy()
    if not given.size:
        return device.empty(1, given.dtype), 0, contiguous_strides(given.shape)
    strides = tuple(stride // given.itemsize for stride in given.strides)
    below, above = _reach(given.shape, strides)
    # With every axis of negative stride turned around, the first element is the lowest.
    lowest = given[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in strides)]
    memory = as_strided(lowest, (above - below + 1,), (given.itemsize,))
    return device.from_dlpack(memory), -below * given.itemsize, strides


def _strided_on_device(device: Device, value: Any) -> tuple[Buffer, int, tuple[int, ...]]:
    """For torch, strides count elements and are never negative; for CuPy, they count bytes."""
    if library(value) == "torch":
        tensor, torch = plain_tensor(value), sys.modules["torch"]
        strides = tuple(tensor.stride())
        above = _reach(tuple(tensor.shape), strides)[1] if tensor.numel() else -1
        return device.from_dlpack(torch.as_strided(tensor, (above + 1,), (1,))), 0, strides
    if min(value.strides, default=0) < 0:
        value = value.copy()
    strides = tuple(stride // value.itemsize for stride in value.strides)
    above = _reach(value.shape, strides)[1] if value.size else -1
    memory = sys.modules["cupy"].lib.stride_tricks.as_strided(value, (above + 1,), (value.itemsize,))
    return device.from_dlpack(memory), 0, strides


def _reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The lowest and the highest element that an array reaches, counted from its first."""
    ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a contiguous array of that shape."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_contiguous(value: Any) -> bool:
    """Whether the elements of an array lie in C order. For MLX's, ask `host_array`."""
    return bool(value.is_contiguous() if library(value) == "torch" else value.flags.c_contiguous)


def contiguous(value: Any) -> Any:
    """The array itself if its elements lie in C order, else a copy of it, of the same library."""
    kind = library(value)
    if kind == "torch":
        return value.contiguous()
    if kind == "mlx":
        value = host_array(value)
    return value if value.flags.c_contiguous else value.copy()


def array(kind: str, given: Buffer) -> Any:
    """The contents of a buffer as an array of a library: the same memory where the library takes it, else a copy.

    Memory of a device becomes memory of the host for NumPy and MLX. Committed work on the host's memory must be done.
    MLX takes no memory of others on the host: it copies.
    """
    if kind == "torch":
        return sys.modules["torch"].from_dlpack(given)
    if kind == "cupy":
        return sys.modules["cupy"].from_dlpack(given)
    contents = given.as_numpy() if given.__dlpack_device__() == HOST else given.numpy()
    return copied(kind, contents) if kind == "mlx" else contents


def host_zeros(kind: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Any, np.ndarray]:
    """A new array of a library in the host's memory, and the same memory as a NumPy array to write to.

    That is how MLX gets results without a copy: it takes no memory of others, but lets others write to its own.
    """
    if kind == "mlx":
        mlx = sys.modules["mlx.core"]
        if math.prod(shape) * dtype.itemsize <= _WITHOUT_THREADS_BYTES:
            made = mlx.array(np.zeros(shape, dtype))
        else:
            made = mlx.zeros(shape, mlx.bool_ if dtype.kind == "b" else getattr(mlx, dtype.name))
        return made, host_array(made)
    if kind == "torch":
        torch = sys.modules["torch"]
        made = torch.zeros(shape, dtype=getattr(torch, dtype.name))
        return made, host_array(made)
    made = np.zeros(shape, dtype)
    return made, made


def copied(kind: str, window: np.ndarray) -> Any:
    """A new array of a library with the values of a NumPy array."""
    if kind == "mlx":
        return sys.modules["mlx.core"].array(window)
    if kind == "numpy":
        return window.copy()
    made, target = host_zeros(kind, window.shape, window.dtype)
    target[...] = window
    return made
