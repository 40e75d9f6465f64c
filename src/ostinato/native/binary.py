"""Checks a compiled kernel library for code that would run at load time, and for calls to other libraries.

A kernel library must not run anything before it is dispatched, nor call anything but mathematical functions. The front
end refuses sources that would do so; this is a second check, of the compiled library.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

# Entries of the dynamic section that name functions to run on loading or unloading.
# Each with the section they point into.
_ELF_INITIALISERS = {
    12: ("DT_INIT", ".init"),
    25: ("DT_INIT_ARRAY", ".init_array"),
    32: ("DT_PREINIT_ARRAY", ".preinit_array"),
    13: ("DT_FINI", ".fini"),
    26: ("DT_FINI_ARRAY", ".fini_array"),
}
_ELF_SECTIONS = (".init_array", ".preinit_array", ".fini_array", ".ctors", ".dtors", ".init", ".fini")
_MACHO_SECTIONS = (b"__mod_init_func", b"__mod_term_func", b"__init_offsets", b"__StaticInit")
# Relocations that call a resolver function while the library is loaded, by machine.
_ELF_RESOLVERS = {62: 37, 183: 1032}

_SYMBOLS, _RELA, _DYNAMIC, _DYNAMIC_SYMBOLS = 2, 4, 6, 11
_UNDEFINED = 0
_INDIRECT_SYMBOL = 10
_INDIRECT = "an indirect function (ifunc)"

_KNOWN_FUNCTIONS = re.compile(
    # What compilers turn loops into that copy, compare or search.
    r"mem(cpy|move|set|cmp)|bcmp|strlen|wcslen|rawmemchr|abort|"
    # The mathematical library, and its functions on vectors.
    r"(a?(cos|sin|tan)h?|atan2|sincos|(cos|sin|tan)pi|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|hypot|"
    r"floor|ceil|trunc|l?l?round|roundeven|l?l?rint|nearbyint|fmod|remainder|remquo|modf|frexp|ldexp|scalbl?n|ilogb|logb|"
    r"nextafter|nexttoward|copysign|fabs|fma|fmin|fmax|fdim|erf|erfc|[tl]gamma)(f|l|f16|f32|f64|f128)?|_ZGV\w+|"
    # What compilers and linkers add by themselves.
    r"__[a-z]+?(qi|hi|si|di|ti|bf|hf|sf|df|xf|tf){1,2}\d?|__gnu_(f2h|h2f)_\w+|__(atomic|sync|aarch64|aeabi)_\w+|"
    r"__stack_chk_(fail|guard)|__tls_get_addr|__cxa_finalize|__gmon_start__|_ITM_\w+",
    re.ASCII,
)


def startup_sections(image: bytes) -> dict[str, int]:
    """The sections of an ELF library that hold load-time code, with their sizes.

    Some linkers add start-up code to every library; that of an empty library shows which sections to allow.
    """
    if image[:4] != b"\x7fELF":
        return {}
    return {name: size for name, _kind, _offset, size, _link in _sections(image) if size and _runs_at_load(name)}


def load_time_code(image: bytes, allowed: Mapping[str, int] | None = None) -> str | None:
    """The section or entry of a library that would run at load time, or None. Raises ValueError for other files.

    ``allowed`` sections (see `startup_sections`) are accepted if they are no larger than in an empty library.
    """
    try:
        if image[:4] == b"\x7fELF":
            return _elf(image, allowed or {})
        if image[:4] == b"\xcf\xfa\xed\xfe":
            return next((name.decode() for name in _MACHO_SECTIONS if name in image), None)
    except (struct.error, IndexError, ValueError):
        raise ValueError("the library is damaged") from None
    raise ValueError("not a 64-bit ELF or Mach-O library")


def _runs_at_load(name: str) -> bool:
    return any(name == known or name.startswith(known + ".") for known in _ELF_SECTIONS)


def _sections(image: bytes) -> list[tuple[str, int, int, int, int]]:
    """Name, kind, offset, size and linked section of every section."""
    table, entry_bytes, count, names_index = (
        struct.unpack_from("<Q", image, 40)[0],
        *struct.unpack_from("<HHH", image, 58),
    )
    rows = [struct.unpack_from("<IIQQQQIIQQ", image, table + index * entry_bytes) for index in range(count)]
    names_at = rows[names_index][4]
    sections = []
    for name_offset, kind, _flags, _address, offset, size, link, *_ in rows:
        sections.append((_text(image, names_at + name_offset), kind, offset, size, link))
    return sections


def _text(image: bytes, start: int) -> str:
    return image[start : image.index(b"\0", start)].decode("latin-1")


def foreign_functions(image: bytes) -> list[str]:
    """Functions that an ELF library calls in others and no kernel needs. Raises ValueError for a damaged one."""
    if image[:4] != b"\x7fELF":
        return []
    undefined = []
    try:
        sections = _sections(image)
        for _name, kind, offset, size, link in sections:
            if kind != _DYNAMIC_SYMBOLS:
                continue
            for name_offset, _info, _other, defined_in, _value, _size in struct.iter_unpack(
                "<IBBHQQ", image[offset : offset + size]
            ):
                if name_offset and defined_in == _UNDEFINED:
                    undefined.append(_text(image, sections[link][2] + name_offset))
    except (struct.error, IndexError, ValueError):
        raise ValueError("the library is damaged") from None
    return sorted(name for name in undefined if not _KNOWN_FUNCTIONS.fullmatch(name))


def _elf(image: bytes, allowed: Mapping[str, int]) -> str | None:
    machine = struct.unpack_from("<H", image, 18)[0]
    sections = _sections(image)
    if not any(kind == _DYNAMIC for _, kind, *_ in sections):
        raise ValueError("not a shared library")
    for name, kind, offset, size, _link in sections:
        if size and _runs_at_load(name) and allowed.get(name) != size:
            return name
        if kind == _DYNAMIC:
            for tag, value in struct.iter_unpack("<qQ", image[offset : offset + size]):
                if tag in _ELF_INITIALISERS and value and _ELF_INITIALISERS[tag][1] not in allowed:
                    return _ELF_INITIALISERS[tag][0]
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
