"""Looks into a compiled kernel library for code that would run when it is loaded.

A kernel library has no business running anything before it is dispatched. The front end refuses what would lead to
that; this is the second lock on the same door, on the product instead of the source.
"""

from __future__ import annotations

import struct

# Entries of the dynamic section that name functions to run on loading or unloading.
_ELF_INITIALISERS = {12: "DT_INIT", 25: "DT_INIT_ARRAY", 32: "DT_PREINIT_ARRAY", 13: "DT_FINI", 26: "DT_FINI_ARRAY"}
_ELF_SECTIONS = (b".init_array", b".preinit_array", b".fini_array", b".ctors", b".dtors", b".init", b".fini")
_MACHO_SECTIONS = (b"__mod_init_func", b"__mod_term_func", b"__init_offsets", b"__StaticInit")
# Relocations that call a resolver function while the library is loaded, by machine.
_ELF_RESOLVERS = {62: 37, 183: 1032}

_SYMBOLS, _RELA, _DYNAMIC, _DYNAMIC_SYMBOLS = 2, 4, 6, 11
_INDIRECT_SYMBOL = 10
_INDIRECT = "an indirect function (ifunc)"


def load_time_code(image: bytes) -> str | None:
    """What in a library would run at load time, or None. Raises ValueError for what is no library."""
    try:
        if image[:4] == b"\x7fELF":
            return _elf(image)
        if image[:4] == b"\xcf\xfa\xed\xfe":
            return next((name.decode() for name in _MACHO_SECTIONS if name in image), None)
    except (struct.error, IndexError, ValueError):
        raise ValueError("the library is damaged") from None
    raise ValueError("not a 64-bit ELF or Mach-O library")


def _elf(image: bytes) -> str | None:
    machine = struct.unpack_from("<H", image, 18)[0]
    table, entry_bytes, count, names_index = (
        struct.unpack_from("<Q", image, 40)[0],
        *struct.unpack_from("<HHH", image, 58),
    )
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, table + index * entry_bytes) for index in range(count)]
    if not any(section[1] == _DYNAMIC for section in sections):
        raise ValueError("not a shared library")
    names_at = sections[names_index][4]
    for name_offset, kind, _flags, _address, offset, size, _link, _info, _align, _entry in sections:
        start = names_at + name_offset
        name = image[start : image.index(b"\0", start)]
        if size and any(name == known or name.startswith(known + b".") for known in _ELF_SECTIONS):
            return name.decode()
        if kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", image[offset : offset + size]):
                if tag in _ELF_INITIALISERS and value:
                    return _ELF_INITIALISERS[tag]
        elif kind == _RELA:
            for _where, info, _addend in struct.iter_unpack("<QQq", image[offset : offset + size]):
                if info & 0xFFFFFFFF == _ELF_RESOLVERS.get(machine):
                    return _INDIRECT
        elif kind in (_SYMBOLS, _DYNAMIC_SYMBOLS):
            for _name, info, _other, defined_in, _value, _size in struct.iter_unpack(
                "<IBBHQQ", image[offset : offset + size]
            ):
                if info & 15 == _INDIRECT_SYMBOL and defined_in:
                    return _INDIRECT
    return None
