"""Reflection: the signatures of kernels and the function constants of a library, as data.

Reflection comes from the source, so it is the same on every backend and needs no compiler. What only a compiler knows
(the size of a struct, the memory that a kernel declares in its body) comes with the compiled kernel.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .tokens import Token

if TYPE_CHECKING:
    from .layouts import StructLayout

SCALARS = {
    "bool": "bool", "char": "int8", "int8_t": "int8", "uchar": "uint8", "uint8_t": "uint8",
    "short": "int16", "int16_t": "int16", "ushort": "uint16", "uint16_t": "uint16",
    "int": "int32", "int32_t": "int32", "uint": "uint32", "uint32_t": "uint32", "unsigned": "uint32",
    "long": "int64", "int64_t": "int64", "ulong": "uint64", "uint64_t": "uint64",
    "size_t": "uint64", "ptrdiff_t": "int64", "signed": "int32", "signed int": "int32",
    "half": "float16", "bfloat": "bfloat16", "float": "float32",
    "unsigned int": "uint32", "unsigned char": "uint8", "unsigned short": "uint16", "unsigned long": "uint64",
    "signed char": "int8", "long long": "int64", "unsigned long long": "uint64",
}  # fmt: skip
"""MSL's scalar types and the NumPy dtype (ml_dtypes for bfloat16) of each."""
INTEGERS = {name: dtype for name, dtype in SCALARS.items() if "int" in dtype}
SCALAR_BYTES = {"bool": 1, "bfloat16": 2} | {
    dtype: int(re.sub(r"\D", "", dtype)) // 8 for dtype in set(SCALARS.values()) - {"bool", "bfloat16"}
}

_VECTOR = re.compile(r"(?:packed_)?(bool|u?char|u?short|u?int|u?long|half|bfloat|float)([234])")
_VECTOR_TEMPLATE = re.compile(r"(?:packed_)?vec<(.+),([234])>")
_MATRIX = re.compile(r"(?:packed_)?(half|float)[234]x[234]|matrix<(.+),[234],[234]>")
_ATOMIC = re.compile(r"_?atomic_(bool|int|uint|float|ulong)|_?atomic<(.+)>")
_SIMD = re.compile(r"(?:simd|vector|matrix)_((?:u?char|u?short|u?int|u?long|half|float)[234](?:x[234])?)")
"""The names of ``<simd/simd.h>``: what is behind the prefix is Metal's own."""
_QUALIFIERS = frozenset(
    """const volatile device constant threadgroup thread typename struct metal simd :: __restrict__ restrict coherent
    static constexpr inline""".split()
)


@dataclass(frozen=True, slots=True)
class ElementType:
    """The element type of an argument: its spelling, and what NumPy calls its scalars when it has them."""

    name: str
    scalar: str | None
    lanes: int = 1
    atomic: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """A buffer argument: ``kind`` is "buffer" for a pointer, "value" for a reference."""

    name: str
    index: int
    kind: str
    type: str
    scalar: str | None
    lanes: int
    access: str
    space: str
    atomic: bool = False
    layout: StructLayout | None = None
    """The fields of a struct; None for other types, and where only the compiler knows them."""
    used: bool = True
    """False if the kernel surely never uses it, with its function constants; then it may stay unbound."""
    early: bool = False
    """Whether the kernel may read it before it waits for other dispatches (`early_reads`)."""

    def __str__(self) -> str:
        pointer = "*" if self.kind == "buffer" else ""
        unused = "" if self.used else ", unused"
        return f"{self.index}: {self.name} {pointer}{self.type} ({self.access.replace('_', '-')}{unused})"


@dataclass(frozen=True, slots=True)
class SharedArgument:
    """A ``[[threadgroup(index)]]`` argument; its size is set at each dispatch."""

    name: str
    index: int
    type: str
    used: bool = True
    """False if the kernel surely never uses it; then it needs no size."""

    def __str__(self) -> str:
        return f"shared {self.index}: {self.name} *{self.type}{'' if self.used else ' (unused)'}"


@dataclass(frozen=True, slots=True)
class FunctionConstant:
    """A ``[[function_constant(index)]]``; ``optional`` when the source asks whether it is defined."""

    name: str
    index: int
    scalar: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """One kernel as the host sees it; ``meets`` if its threads may meet at barriers or in simdgroup functions."""

    name: str
    arguments: tuple[Argument, ...]
    shared: tuple[SharedArgument, ...]
    attributes: tuple[str, ...]
    constants: tuple[str, ...]
    meets: bool
    file: str
    line: int

    def __str__(self) -> str:
        inside = ", ".join(map(str, (*self.arguments, *self.shared)))
        return f"{self.name}({inside})"


def element_type(
    tokens: Sequence[Token], aliases: Mapping[str, Sequence[Token]], substitution: Mapping[str, Sequence[Token]]
) -> ElementType:
    """Resolves the pointee of an argument through template arguments and aliases."""
    words = [token.text for token in tokens]
    for _ in range(32):
        words = [word for word in words if word not in _QUALIFIERS]
        if any(word in substitution for word in words):
            replaced = [[t.text for t in substitution[word]] if word in substitution else [word] for word in words]
            words, substitution = [text for part in replaced for text in part], {}
        elif len(words) == 1 and words[0] in aliases and words[0] not in SCALARS and _is_short(aliases[words[0]]):
            meant = [token.text for token in aliases[words[0]]]
            if "{" in meant:  # `typedef struct {…} name;`: the name is the only one that it has
                break
            words = meant
        else:
            break
    name = " ".join(words) if len(words) > 1 and all(word.isalpha() for word in words) else "".join(words)
    if match := _SIMD.fullmatch(name):
        name = match[1]
    if name in SCALARS:
        return ElementType(name, SCALARS[name])
    if match := _VECTOR.fullmatch(name):
        return ElementType(name, SCALARS[match[1]], int(match[2]))
    if match := _VECTOR_TEMPLATE.fullmatch(name):
        inner = _alias_scalar(match[1], aliases)
        return ElementType(name, inner, int(match[2]))
    if match := _ATOMIC.fullmatch(name):
        inner = SCALARS[match[1]] if match[1] else _alias_scalar(match[2], aliases)
        return ElementType(name, inner, 1, True)
    if match := _MATRIX.fullmatch(name):
        return ElementType(name, SCALARS.get(match[1] or match[2]))
    return ElementType(name or "void", None)


def _is_short(tokens: Sequence[Token]) -> bool:
    """Whether an alias may stand for a scalar or a vector; long ones are not resolved again for each use."""
    return len(tokens) <= 64


def _alias_scalar(name: str, aliases: Mapping[str, Sequence[Token]]) -> str | None:
    for _ in range(32):
        if name in SCALARS:
            return SCALARS[name]
        if name not in aliases or not _is_short(aliases[name]):
            return None
        name = "".join(token.text for token in aliases[name] if token.text not in _QUALIFIERS)
    return None
