"""Reads the runtime's table of findings (`runtime/findings.h`), with places in the user's source."""

from __future__ import annotations

import ctypes
import re
from typing import Any

from ..kernel_findings import KINDS, MEMORIES, KernelAccess, KernelFinding, KernelMemory
from .places import array_at_location, place_of_location, place_of_return

_WRITE, _ATOMIC, _LOCATED, _NO_ACCESS = 1, 2, 4, 8

# Compilers spell types differently, with the names of our namespaces or without; these give Metal's names.
_METAL_NAMES = tuple(
    (re.compile(rf"\b{spelled}"), name)
    for spelled, name in (
        (r"(?:(?:long )?long unsigned int|unsigned long(?: long)?)\b", "ulong"),
        (r"(?:short unsigned int|unsigned short)\b", "ushort"),
        (r"unsigned char\b", "uchar"),
        (r"unsigned int\b", "uint"),
        (r"signed char\b", "char"),
        (r"(?:(long) )?(long|short)(?: int)?\b", r"\2"),
        (r"_Float16\b", "half"),
        (r"(?:\w+::)*(packed_)?vec<(\w+), (\d)>", r"\1\2\3"),
        (r"(?:\w+::)*matrix<(\w+), (\d), (\d)>", r"\1\2x\3"),
    )
)


class _Touch(ctypes.Structure):
    """`Touch` of runtime/findings.h."""

    _fields_ = (
        ("site", ctypes.c_uint64),
        ("thread", ctypes.c_uint32 * 3),
        ("group", ctypes.c_uint32 * 3),
        ("how", ctypes.c_uint32),
        ("lane", ctypes.c_uint32),
    )


class _Finding(ctypes.Structure):
    """`Finding` of runtime/findings.h."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("node", ctypes.c_uint32),
        ("first", _Touch),
        ("second", _Touch),
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("memory", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
    )


def read_findings(runtime: Any, submission: int) -> tuple[tuple[KernelFinding, ...], int]:
    """The findings of a submission that is done, and how many reports its full table dropped.

    None for a device that does not check.
    """
    count, lost = ctypes.c_uint64(), ctypes.c_uint64()
    table = runtime.ost_findings(submission, ctypes.byref(count), ctypes.byref(lost))
    if not table:
        return (), 0
    records = ctypes.cast(table, ctypes.POINTER(_Finding))
    return tuple(_read(records[index]) for index in range(count.value)), lost.value


def _read(record: _Finding) -> KernelFinding:
    accesses = tuple(_access(touch) for touch in (record.first, record.second) if touch.site)
    name = None if record.name is None else record.name.decode(errors="replace")
    type_name, address = "", record.address
    if record.second.how & _NO_ACCESS and address:
        address, type_name = 0, metal_type(ctypes.string_at(address).decode(errors="replace"))
        if KINDS[record.kind] == "out of bounds" and record.second.how & _LOCATED:
            name = array_at_location(record.second.site)
    offset = record.offset - (1 << 64) if record.offset >> 63 else record.offset  # before the start of a variable
    memory = KernelMemory(MEMORIES[record.memory], address, record.bytes, name, offset)
    return KernelFinding(KINDS[record.kind], record.node, accesses, memory, record.value, record.count, type_name)


def metal_type(text: str) -> str:
    """Metal's name of a type as compilers write it: `'float [8]'`, or `'alias' (aka 'unsigned int[8]')`."""
    name = text.rpartition("(aka ")[2].strip("')").replace(" [", "[")
    for spelled, metal_name in _METAL_NAMES:
        name = spelled.sub(metal_name, name)
    return name


def _access(touch: _Touch) -> KernelAccess:
    what = "" if touch.how & _NO_ACCESS else "write" if touch.how & _WRITE else "read"
    if touch.how & _ATOMIC:
        what = f"atomic {what}"
    place = place_of_location(touch.site) if touch.how & _LOCATED else place_of_return(touch.site)
    return KernelAccess(what, tuple(touch.thread), tuple(touch.group), touch.lane, place)
