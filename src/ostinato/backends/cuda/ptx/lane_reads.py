"""Matrices in threadgroup memory that lanes read element by element, at places that they compute from their numbers.

Each lane reads two elements by itself, packs them and has them transposed, for a right operand. Where the addresses
follow from the thread's number alone (`lane_values.py`), they are computed for all threads of a block: if in every warp
the elements are those of one matrix whose rows begin at multiples of 16 bytes, `ldmatrix` reads it, and transposes on
the way. There must be no store or barrier between the reads of the two elements.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .accesses import APART, address, apart_of, orders
from .alignment import TrailingZeros
from .lane_values import THREADS, LaneValues
from .mma_lines import PACK, PACK_UPPER, TURN, fetch
from .registers import FreshRegisters

_READ = re.compile(
    rf"\s*ld\.shared\.(?:v2\.)?u16\s+(?P<to>%rs?\d+|\{{%rs\d+, %rs\d+\}}), \[(?P<base>%rd?\d+){APART}\];\s*"
)
_SHIFT = re.compile(r"\s*shl\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+), 16;\s*")


@dataclass(frozen=True, slots=True)
class _Read:
    """An element that each lane reads by itself: the line, a register with an address, and the distance to that."""

    line: int
    base: str
    apart: int


class _Pairs:
    """Registers of a stretch that are two elements of 16 bits which each lane reads by itself."""

    def __init__(self, lines: Sequence[str], given: Mapping[str, int]) -> None:
        self._reads: dict[str, _Read] = {}
        self._pairs: dict[str, tuple[str, str]] = {}
        shifted: dict[str, str] = {}
        for at, line in enumerate(lines):
            if read := _READ.fullmatch(line):
                for place, register in enumerate(read["to"].strip("{}").split(", ")):
                    if given[register] == given[read["base"]] == 1:
                        self._reads[register] = _Read(at, read["base"], apart_of(read) + 2 * place)
            elif (shift := _SHIFT.fullmatch(line)) and given[shift["to"]] == 1:
                shifted[shift["to"]] = shift["of"]
            elif (pair := PACK.fullmatch(line)) and given[pair["to"]] == 1:
                self._pairs[pair["to"]] = pair["x"], pair["y"]
            elif (pair := PACK_UPPER.fullmatch(line)) and given[pair["to"]] == 1:
                self._pairs[pair["to"]] = shifted.get(pair["x"], ""), shifted.get(pair["y"], "")

    def reads(self, register: str) -> tuple[_Read, _Read] | None:
        x, y = (self._reads.get(part) for part in self._pairs.get(register, ("", "")))
        return (x, y) if x is not None and y is not None and x.base == y.base else None


def recognised(
    lines: Sequence[str], zeros: TrailingZeros, values: LaneValues, given: Counter[str], fresh: FreshRegisters
) -> list[str]:
    """A stretch of code without branches in which such matrices are fetched by rows.

    `given` counts how often each register of the function is given a value.
    """
    pairs = _Pairs(lines, given)
    ordered = orders(lines)
    result = list(lines)
    found = []
    for at, turn in enumerate(map(TURN.fullmatch, lines)):
        reads = pairs.reads(turn["of"]) if turn is not None and given[turn["to"]] == 1 else None
        if turn is None or reads is None or bisect(ordered, reads[0].line) != bisect(ordered, reads[1].line):
            continue
        rows = _rows(*reads, zeros, values)
        if rows is not None:
            found.append((max(read.line for read in reads), reads[0], rows, turn["to"]))
            result[at] = ""
    bases: dict[tuple[str, _Rows], str] = {}
    for at, first, rows, to in sorted(found, key=lambda each: each[0]):
        added: list[str] = []
        key = first.base, rows
        if key not in bases:
            bases[key] = fresh.take()
            given[bases[key]] = 1
            low = first.base
            if low.startswith("%rd"):
                low = fresh.take()
                added = [f"\tcvt.u32.u64 {low}, {first.base};"]
            added.append(f"\tadd.s32 {bases[key]}, {low}, {rows.offset(fresh)};")
        result[at] = "\n".join([result[at], *added, fetch(to, address(bases[key], first.apart), rows.along)])
    return [line for text in result for line in text.split("\n")]


@dataclass(frozen=True, slots=True)
class _Rows:
    """How far apart the rows of a matrix are; whether the two elements of a lane lie in one row, `along` it."""

    pitch: int
    along: bool

    def offset(self, fresh: FreshRegisters) -> str:
        """From a lane's first element to the row that the lane hands out."""
        row, quarter = (-self.pitch, -4) if self.along else (-2, -2 * self.pitch)

        def code(thread: str, to: str) -> list[str]:
            bits, sums = [fresh.take() for _ in range(3)], [fresh.take() for _ in range(2)]
            return [
                f"\tand.b32 {bits[0]}, {thread}, 7;",
                f"\tbfe.u32 {bits[1]}, {thread}, 2, 3;",
                f"\tand.b32 {bits[2]}, {thread}, 3;",
                f"\tmul.lo.s32 {sums[0]}, {bits[0]}, {self.pitch};",
                f"\tmad.lo.s32 {sums[1]}, {bits[1]}, {row}, {sums[0]};",
                f"\tmad.lo.s32 {to}, {bits[2]}, {quarter}, {sums[1]};",
            ]

        return fresh.once(f"{self}", code)


def _rows(x: _Read, y: _Read, zeros: TrailingZeros, values: LaneValues) -> _Rows | None:
    """What all warps read, if it is a matrix whose rows are aligned to 16 bytes."""
    base = values.of(x.base)
    if base is None or zeros.of_variable(base.variable) < 4:
        return None
    lane = np.arange(THREADS) % 32
    row, quarter, first = lane // 4, lane % 4, base.numbers + x.apart
    along = y.apart - x.apart == 2
    pitch = int(first[4] - first[0]) if along else y.apart - x.apart
    starts = first - (row * pitch + 4 * quarter if along else row * 2 + 2 * quarter * pitch)
    starts = starts.reshape(-1, 32)
    aligned = pitch % 16 == 0 and not (starts % 16).any()
    return _Rows(pitch, along) if aligned and (starts == starts[:, :1]).all() else None
