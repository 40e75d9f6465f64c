"""Lines of PTX about simdgroup matrices, as patterns and as text.

Most are what the shim writes (msl/include/ostinato/mma_cuda.h and simdgroup_matrix_cuda.h). Lanes that pack elements by
themselves, and the passes over the code, write the others. Registers that a line gives values are `to` and `second`.
"""

from __future__ import annotations

import re

from .accesses import APART

PRODUCT_BEGINS = "{ .reg .b32 none;"
_TURN = r"movmatrix.sync.aligned.m8n8.trans.b16"
_FETCH = "ldmatrix.sync.aligned.m8n8"

PRODUCT = re.compile(
    rf"(?P<head>\s*{re.escape(PRODUCT_BEGINS)}.* mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.)(?P<type>\w+)\.\w+"
    r"(?P<sums>\.f32 \{(?P<d>%f\d+, %f\d+), [^}]*\}), \{(?P<a>%r\d+(?:, none, %r\d+)?), none\},"
    r" \{(?P<b>%r\d+(?:, %r\d+)?)\}(?P<rest>, \{(?P<c>%f\d+, %f\d+), [^}]*\}; \}\s*)"
)
"""Of two matrices of 8 × 8: the sums `d` are those in `c` and the products of `a` and `b`."""
TILE_READ = re.compile(
    r"\s*\{ \.reg \.b16 x, y; ld\.shared\.b16 x, \[(?P<first>%r\d+)\];.* mov\.b32 (?P<to>%r\d+), \{x, y\}; \}"
    r" // (?P<kind>turned|straight) tile (?P<row>%r\d+), (?P<bits>%r\d+)\s*"
)
"""A matrix in threadgroup memory, by two loads of each lane."""
TURN = re.compile(rf"\s*{re.escape(_TURN)}\s+(?P<to>%r\d+), (?P<of>%r\d+);\s*")
"""A matrix of 16-bit elements, transposed."""
WIDE_TURN = re.compile(
    r"\s*(?P<operation>\{ \.reg \.pred odd;) .* odd, (?P<of>%r\d+, 0; selp\.b32 a, (?P<y>%r\d+), (?P<x>%r\d+), odd;.*)"
    r" selp\.b32 (?P<to>%r\d+), b, a, odd; selp\.b32 (?P<second>%r\d+), a, b, odd; \}\s*"
)
"""A matrix of 32-bit elements, of which a lane holds x and y, transposed."""
PACK = re.compile(r"\s*mov\.b32\s+(?P<to>%r\d+), \{(?P<x>%rs\d+), (?P<y>%rs\d+)\};\s*")
"""Two elements of 16 bits as one register."""
PACK_UPPER = re.compile(r"\s*prmt\.b32\s+(?P<to>%r\d+), (?P<x>%r\d+), (?P<y>%r\d+), 0x7632;\s*")
"""The upper halves of two registers as one."""
REPEATABLE = re.compile(
    rf"\s*(?P<operation>{re.escape(_TURN)}|mov\.b32|cvt\.rna\.tf32\.f32|prmt\.b32)"
    r"\s+(?P<to>%r\d+), (?P<of>%[rf]\d+|\{%rs\d+, %rs\d+\}|%r\d+, %r\d+, 0x7632);\s*"
)
"""`TURN`, `PACK`, `PACK_UPPER`, and what becomes an operand of TF32: the same of the same registers."""
FETCH = re.compile(
    rf"\s*{re.escape(_FETCH)}\.x1(?P<trans>\.trans)?\.shared\.b16 \{{(?P<to>%r\d+)\}}, \[(?P<base>%r\d+){APART}\];"
)
"""A matrix in threadgroup memory by its rows."""


def turn(to: str, of: str) -> str:
    return f"\t{_TURN} {to}, {of};"


def pack(to: str, x: str, y: str, upper: bool) -> str:
    return f"\tprmt.b32 {to}, {x}, {y}, 0x7632;" if upper else f"\tmov.b32 {to}, {{{x}, {y}}};"


def fetch(to: str, place: str, turned: bool) -> str:
    return f"\t{_FETCH}.x1{'.trans' if turned else ''}.shared.b16 {{{to}}}, {place};"


def fetch_four(to: tuple[str, ...], place: str, turned: bool) -> str:
    return f"\t{_FETCH}.x4{'.trans' if turned else ''}.shared.b16 {{{', '.join(to)}}}, {place};"
