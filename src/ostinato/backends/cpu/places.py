"""Places in a kernel's source, from addresses in its compiled library.

The library names each instruction's line and column in the translated text, with the functions that were inlined there,
in its debug information (DWARF). The innermost of these places that lies in the translated text is the user's; the map
of the translation says where it came from. Libraries are never unloaded, so addresses stay valid.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..kernel_findings import KernelPlace

if TYPE_CHECKING:
    from ...msl import Translation

_TEXT = "<translation>"
"""The name of the translated text in debug information."""

_translations: dict[str, Translation] = {}
"""By the path of the library that was compiled from it."""


class _Location(ctypes.Structure):
    """`Location` of runtime/checks.h."""

    _fields_ = (("file", ctypes.c_char_p), ("line", ctypes.c_uint32), ("column", ctypes.c_uint32))


class _Symbol(ctypes.Structure):
    """`Dl_info` of dladdr."""

    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("start", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the line table."""

    address: int
    end: bool
    file: str
    line: int
    column: int


def remember(path: str, translation: Translation) -> None:
    """A library, by its path, and the translation it was compiled from."""
    _translations[path] = translation


def place_of_location(address: int) -> KernelPlace | None:
    """The place that a compiler's check passed, a `Location` in a library."""
    location = _Location.from_address(address)
    path, _ = _library_of(address)
    return _placed(path, location.line, location.column) if location.file == _TEXT.encode() else None


def array_at_location(address: int) -> str | None:
    """The name of the array that is indexed at such a place; None if it has none."""
    location = _Location.from_address(address)
    translation = _translations.get(_library_of(address)[0])
    if translation is None or location.file != _TEXT.encode():
        return None
    return translation.source_map.array_name(location.line, max(location.column, 1))


def place_of_return(address: int) -> KernelPlace | None:
    """The place of the call that returns to this address in a library."""
    path, base = _library_of(address)
    if path not in _translations:
        return None
    frames = _lines_of(path).frames(address - base - 1)
    return next((_placed(path, row.line, row.column) for row in frames if row.file == _TEXT), None)


def _library_of(address: int) -> tuple[str, int]:
    symbol = _Symbol()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    if not dladdr(address, ctypes.byref(symbol)) or not symbol.path:
        return "", 0
    return symbol.path.decode(errors="replace"), symbol.base


def _placed(path: str, line: int, column: int) -> KernelPlace | None:
    translation = _translations.get(path)
    token = translation.source_map.token(line, max(column, 1)) if translation is not None else None
    if token is None:
        return None
    return KernelPlace(token.file, token.line, token.column or None if column else None)


class _Lines:
    """The debug information of one library: its line table, and the functions that were inlined."""

    def __init__(self, path: str) -> None:
        from elftools.elf.elffile import ELFFile

        self._rows: list[_Row] = []
        self._inlined: list[tuple[int, int, _Row]] = []
        with open(path, "rb") as file:
            dwarf = ELFFile(file).get_dwarf_info()
            for unit in dwarf.iter_CUs():
                self._read_unit(dwarf, unit)
        self._rows.sort(key=lambda row: (row.address, not row.end))
        self._addresses = [row.address for row in self._rows]

    def frames(self, address: int) -> Iterator[_Row]:
        """The place of an instruction, innermost first: where it is, where that function was inlined, and so on."""
        index = bisect_right(self._addresses, address) - 1
        if index >= 0 and not self._rows[index].end:
            yield self._rows[index]
        # Inlined functions are nested, so the shorter of two that contain an address is the inner one.
        around = [(end - begin, call) for begin, end, call in self._inlined if begin <= address < end]
        yield from (call for _, call in sorted(around, key=lambda nested: nested[0]))

    def _read_unit(self, dwarf: Any, unit: Any) -> None:
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            return
        names = [entry.name.decode(errors="replace") for entry in program["file_entry"]]
        first = 0 if program["version"] >= 5 else 1
        for entry in program.get_entries():
            state = entry.state
            if state is not None:
                name = names[state.file - first]
                self._rows.append(_Row(state.address, state.end_sequence, name, state.line, state.column))
        base = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        for die in unit.iter_DIEs():
            if die.tag == "DW_TAG_inlined_subroutine" and "DW_AT_call_line" in die.attributes:
                values = {name: attribute.value for name, attribute in die.attributes.items()}
                file, line = names[values["DW_AT_call_file"] - first], values["DW_AT_call_line"]
                call = _Row(0, False, file, line, values.get("DW_AT_call_column", 0))
                ranges = _ranges(dwarf, die, 0 if base is None else base.value)
                # A function in several pieces is as long as all of them, seen from each.
                self._inlined += [(begin, end, call) for begin, end in ranges]


def _ranges(dwarf: Any, die: Any, base: int) -> Iterator[tuple[int, int]]:
    """The addresses of an inlined function."""
    low, high, listed = (die.attributes.get(f"DW_AT_{name}") for name in ("low_pc", "high_pc", "ranges"))
    if low is not None and high is not None:
        yield low.value, high.value if high.form == "DW_FORM_addr" else low.value + high.value
    elif listed is not None:
        for entry in dwarf.range_lists().get_range_list_at_offset(listed.value, die.cu):
            if hasattr(entry, "base_address"):
                base = entry.base_address
            else:
                start = 0 if getattr(entry, "is_absolute", False) else base
                yield start + entry.begin_offset, start + entry.end_offset


@lru_cache(maxsize=8)
def _lines_of(path: str) -> _Lines:
    return _Lines(path)
