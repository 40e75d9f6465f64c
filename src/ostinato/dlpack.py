"""DLPack, for every dtype a buffer can have.

NumPy speaks DLPack for its own dtypes. bfloat16 is not one of them, so it crosses as 16-bit integers whose
type code is changed in the capsule: after NumPy wrote it (export), or before NumPy reads it (import).
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)

_UNSIGNED, _BFLOAT = 1, 4
_CAPSULE_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    """The head of DLManagedTensor, as far as the type."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
    )


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
