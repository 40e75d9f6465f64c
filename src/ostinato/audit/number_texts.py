"""What a finding about a number or an index says: the numbers themselves, from the record of the check."""

from __future__ import annotations

import struct

from ..backends.kernel_findings import KernelFinding

_FLOAT_EVENTS = {
    1: "it makes a NaN of numbers that are none",
    2: "it divides by zero, which makes an infinity",
    3: "its result is too large, and becomes an infinity",
}
"""By `FloatEvent` in `cpu/runtime/float_traps.h`."""


def number_text(record: KernelFinding) -> str:
    """The numbers and types of a finding; "" for a finding of another kind."""
    signed = record.value - (1 << 64) if record.value >> 63 else record.value
    match record.kind:
        case "division by zero":
            return f"{signed} is divided by zero, as {record.type_name}"
        case "shift out of range":
            width = record.memory.nbytes
            return f"a shift by {signed} of {width} bits; Metal shifts by {signed % width}"
        case "conversion out of range":
            number = struct.unpack("<d", struct.pack("<Q", record.value))[0]
            return f"{number:g} does not fit {record.type_name}"
        case "signed overflow":
            operation, other = chr(record.memory.nbytes), record.memory.offset
            return f"{signed} {operation} {f'({other})' if other < 0 else other} does not fit {record.type_name}"
        case "misaligned":
            return f"address {record.value:#x} is no multiple of {record.memory.nbytes}"
        case "not a number":
            return _FLOAT_EVENTS[record.value]
        case "out of bounds" if record.type_name:
            name = record.memory.name
            return f"index {signed} of {f'{name!r} ({record.type_name})' if name else record.type_name}"
    return ""
