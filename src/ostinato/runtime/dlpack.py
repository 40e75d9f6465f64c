"""DLPack, for every dtype that a buffer can have, in host and device memory.

For host memory NumPy implements DLPack for its own dtypes. bfloat16 is not one of them, so it is exchanged as 16-bit
integers whose type code is changed in the capsule: after NumPy wrote it (export), or before NumPy reads it (import).
Device memory never becomes a NumPy array; its capsules are written and read here.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..backends.protocol import Memory

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

_SIGNED, _UNSIGNED, _FLOAT, _OPAQUE, _BFLOAT, _COMPLEX, _BOOL = range(7)
_CODES = {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOAT, "c": _COMPLEX, "b": _BOOL}
_KINDS = {code: kind for kind, code in _CODES.items()}
_CAPSULE_NAME, _USED_NAME = b"dltensor", b"used_dltensor"


class _Tensor(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_pointer.restype = ctypes.c_void_p


def _tensor(capsule: object) -> _Tensor:
    return _Tensor.from_address(_capsule_pointer(capsule, _CAPSULE_NAME))


class _Producer:
    """A capsule in the shape that `np.from_dlpack` asks for."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_options: object) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def export(array: np.ndarray, **options: Any) -> object:
    """A capsule over the memory of an array; `options` as in the array API's `__dlpack__`."""
    if array.dtype != BFLOAT16:
        return array.__dlpack__(**options)
    capsule = (array.copy() if options.get("copy") else array).view(np.uint16).__dlpack__()
    _tensor(capsule).type_code = _BFLOAT
    return capsule


def adopt(producer: Any) -> np.ndarray:
    """An array over the memory of anything with `__dlpack__`. It is read-only unless its maker allows writes."""
    if isinstance(producer, np.ndarray):  # also of dtypes that NumPy does not export
        return np.asarray(producer)
    try:
        return np.from_dlpack(producer)
    except (RuntimeError, BufferError, TypeError) as error:
        capsule = producer.__dlpack__()
        try:
            tensor = _tensor(capsule)
        except ValueError:
            raise error from None
        if (tensor.type_code, tensor.type_bits, tensor.type_lanes) != (_BFLOAT, 16, 1):
            raise
        tensor.type_code = _UNSIGNED
        array: np.ndarray = np.from_dlpack(_Producer(capsule, producer.__dlpack_device__()))
        return array.view(BFLOAT16)


_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_capsule_new.restype = ctypes.py_object
_capsule_rename = ctypes.pythonapi.PyCapsule_SetName
_capsule_rename.argtypes = (ctypes.py_object, ctypes.c_char_p)
_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes = (ctypes.c_void_p,)
_capsule_name.restype = ctypes.c_char_p
_raw_pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
_raw_pointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_raw_pointer.restype = ctypes.c_void_p

_lent: dict[int, tuple[_Tensor, object, object]] = {}
"""Exported tensors by address, until their consumers delete them."""


def _give_back(tensor: int | None) -> None:
    _lent.pop(tensor or 0, None)


def _drop_untaken(capsule: int | None) -> None:
    if capsule and _capsule_name(capsule) == _CAPSULE_NAME:
        _lent.pop(_raw_pointer(capsule, _CAPSULE_NAME) or 0, None)


_tensor_deleter, _capsule_destructor = _Deleter(_give_back), _Deleter(_drop_untaken)


def export_memory(
    address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: tuple[int, int], owner: object
) -> object:
    """A capsule over device memory; `owner` is kept alive until the consumer deletes the tensor."""
    code = _BFLOAT if dtype == BFLOAT16 else _CODES.get(dtype.kind)
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype.name}")
    extent = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    tensor = _Tensor(address, *device, len(shape), code, 8 * dtype.itemsize, 1, extent, None, 0, None)
    tensor.deleter = ctypes.cast(_tensor_deleter, ctypes.c_void_p).value
    at = ctypes.addressof(tensor)
    _lent[at] = (tensor, extent, owner)
    return _capsule_new(at, _CAPSULE_NAME, ctypes.cast(_capsule_destructor, ctypes.c_void_p).value)


class _Borrowed:
    """Another library's tensor; its deleter is called when this object is dropped."""

    def __init__(self, tensor: _Tensor) -> None:
        self._tensor = tensor

    def __del__(self) -> None:
        if self._tensor.deleter:
            _Deleter(self._tensor.deleter)(ctypes.addressof(self._tensor))


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """Memory of a device, as another library described it."""

    memory: Memory
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def described(producer: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of anything with `__dlpack__`, wherever its memory is."""
    capsule = producer.__dlpack__()  # kept until it has been read
    return _shape_and_dtype(_tensor(capsule))


def _shape_and_dtype(tensor: _Tensor) -> tuple[tuple[int, ...], np.dtype[Any]]:
    kind = _KINDS.get(tensor.type_code)
    if tensor.type_lanes != 1 or (kind is None and (tensor.type_code, tensor.type_bits) != (_BFLOAT, 16)):
        raise ValueError(f"a buffer cannot have DLPack type {tensor.type_code} of {tensor.type_bits} bits")
    dtype = BFLOAT16 if kind is None else np.dtype(f"{kind}{tensor.type_bits // 8}")
    return tuple(tensor.shape[axis] for axis in range(tensor.ndim)), dtype


def adopt_memory(producer: Any, stream: int | None) -> DeviceArray:
    """The device memory of anything with `__dlpack__`; `stream` then waits for the work that the producer queued."""
    capsule = producer.__dlpack__(stream=stream)
    tensor = _tensor(capsule)
    _capsule_rename(capsule, _USED_NAME)
    owner = _Borrowed(tensor)
    shape, dtype = _shape_and_dtype(tensor)
    if tensor.strides:
        _check_contiguous(shape, [tensor.strides[axis] for axis in range(tensor.ndim)])
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(Memory(address, math.prod(shape) * dtype.itemsize, owner), shape, dtype)


def adopt_interface(producer: Any) -> tuple[DeviceArray, int | None]:
    """The device memory of an array with `__cuda_array_interface__`, and the stream to wait for."""
    facts = producer.__cuda_array_interface__
    shape, dtype = tuple(int(axis) for axis in facts["shape"]), np.dtype(facts["typestr"])
    address, read_only = facts["data"]
    if read_only:
        raise ValueError("the array is read-only; copy it in its own library")
    strides = facts.get("strides")
    if strides is not None:
        _check_contiguous(shape, [stride // dtype.itemsize for stride in strides])
    memory = Memory(int(address or 0), math.prod(shape) * dtype.itemsize, producer)
    return DeviceArray(memory, shape, dtype), facts.get("stream")


def _check_contiguous(shape: tuple[int, ...], strides: list[int]) -> None:
    """Raise unless strides, in elements, are those of a C-contiguous array."""
    step, elements = 1, math.prod(shape)
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step and elements:
            raise ValueError("the array is not contiguous; make a contiguous copy in its own library")
        step *= extent
