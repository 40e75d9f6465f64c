"""Simdgroup matrices in threadgroup memory, fetched by whole rows where their alignment is known.

The shim reads a matrix of 16-bit elements by two loads for each lane (msl/include/ostinato/simdgroup_matrix_cuda.h).
The hardware has an instruction for the whole warp, `ldmatrix`, if every row begins at a multiple of 16 bytes, and one
that transposes on the way, which saves the exchange that a right operand needs. All lanes must take part, so only
matrices that a product takes in the same stretch without branches are fetched so.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .addresses import APART, address, apart_of
from .alignment import TrailingZeros
from .assignments import Assignments
from .lane_values import THREADS, LaneValues
from .registers import FreshRegisters

_TILE = re.compile(
    r"\s*\{ \.reg \.b16 x, y; ld\.shared\.b16 x, \[(?P<first>%r\d+)\];.* mov\.b32 (?P<to>%r\d+), \{x, y\}; \}"
    r" // (?P<kind>turned|straight) tile (?P<row>%r\d+), (?P<bits>%r\d+)\s*"
)
_TURN = re.compile(r"\s*movmatrix\.sync\.aligned\.m8n8\.trans\.b16\s+(?P<to>%r\d+), (?P<of>%r\d+);\s*")
_FETCH = re.compile(
    r"\s*ldmatrix\.sync\.aligned\.m8n8\.x1(?P<trans>\.trans)?\.shared\.b16 \{(?P<to>%r\d+)\},"
    rf" \[(?P<base>%r\d+){APART}\];"
)
_READ = re.compile(
    rf"\s*ld\.shared\.(?:v2\.)?u16\s+(?P<to>%rs?\d+|\{{%rs\d+, %rs\d+\}}), \[(?P<base>%rd?\d+){APART}\];\s*"
)
_SHIFT = re.compile(r"\s*shl\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+), 16;\s*")
_LOWER = re.compile(r"\s*mov\.b32\s+(?P<to>%r\d+), \{(?P<x>%rs\d+), (?P<y>%rs\d+)\};\s*")
_UPPER = re.compile(r"\s*prmt\.b32\s+(?P<to>%r\d+), (?P<x>%r\d+), (?P<y>%r\d+), 0x7632;\s*")
_ORDERS = re.compile(
    r"\s*(?:@!?%p\d+\s+)?(?:st|red|atom|bar|barrier|membar|fence|cp|mbarrier|call)\b|\s*\{.*\b(?:st|red|atom|bar|fence|cp)\."
)
"""Stores, and what orders loads."""
_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Sum:
    """Multiples of registers, and a number; of 32 bits."""

    terms: frozenset[tuple[str, int]]
    number: int

    def plus(self, other: _Sum) -> _Sum:
        terms = Counter(dict(self.terms))
        for register, factor in other.terms:
            terms[register] = (terms[register] + factor) & _WORD
        return _Sum(frozenset(term for term in terms.items() if term[1]), (self.number + other.number) & _WORD)

    def times(self, factor: int) -> _Sum:
        terms = ((register, factor * before & _WORD) for register, before in self.terms)
        return _Sum(frozenset(term for term in terms if term[1]), self.number * factor & _WORD)


class _Sums:
    """Addresses of a stretch as sums of what they are computed from, so that those a constant apart are seen."""

    def __init__(self, lines: Sequence[str], given: Mapping[str, int], moving: Collection[str]) -> None:
        self._assignments = Assignments(lines, given)
        self._moving = moving
        self._known: dict[str, _Sum] = {}

    def of(self, register: str) -> _Sum:
        for each in self._assignments.up_to(register, self._known):
            found = self._computed(each)
            is_moving = any(term in self._moving for term, _ in found.terms)
            self._known[each] = _itself(each) if is_moving else found
        return self._known[register]

    def _computed(self, register: str) -> _Sum:
        found = self._assignments.of(register)
        if found is not None:
            operands = found.operands
            numbers = [operand.lstrip("-").isdigit() for operand in operands]
            simple = all(number or operand.startswith("%") for number, operand in zip(numbers, operands, strict=True))
            match found.operation, found.kind:
                case "add", ".s32" | ".s64" if simple:
                    return self._operand(operands[0]).plus(self._operand(operands[1]))
                case "cvt", ".u32.u64" if simple:
                    return self._operand(operands[0])
                case "mul", ".lo.s32" if simple and numbers[1]:
                    return self._operand(operands[0]).times(int(operands[1]))
                case "mad", ".lo.s32" if simple and numbers[1]:
                    return self._operand(operands[0]).times(int(operands[1])).plus(self._operand(operands[2]))
                case "shl", ".b32" if simple and numbers[1]:
                    return self._operand(operands[0]).times(1 << int(operands[1]))
        return _itself(register)

    def _operand(self, operand: str) -> _Sum:
        if not operand.startswith("%"):
            return _Sum(frozenset(), int(operand) & _WORD)
        return self._known.get(operand) or _itself(operand)


def _itself(register: str) -> _Sum:
    return _Sum(frozenset({(register, 1)}), 0)


def tile_result(line: str) -> str | None:
    """The register that a line reads a matrix into, if it is one of the shim's."""
    tile = _TILE.fullmatch(line)
    return None if tile is None else tile["to"]


def fetched(
    lines: Sequence[str],
    products: Collection[str],
    zeros: TrailingZeros,
    given: Mapping[str, int],
    moving: Collection[str],
) -> list[str]:
    """A stretch of code in which matrices that are `products`' operands, or are transposed, are fetched by rows.

    `given` counts how often each register of the function is given a value. The `moving` ones are given one in the
    stretch, and not only there.
    """
    turns = {turn["of"]: turn["to"] for turn in map(_TURN.fullmatch, lines) if turn is not None}
    sums = _Sums(lines, given, moving)
    rows: dict[frozenset[tuple[str, int]], tuple[str, int]] = {}
    fetches: dict[str, str] = {}
    result = []
    for line in lines:
        tile, turn = _TILE.fullmatch(line), _TURN.fullmatch(line)
        if tile is not None and (tile["to"] in products or tile["to"] in turns):
            known = zeros.of(tile["bits"])
            if known >= 4:
                trans = tile["kind"] == "turned"
                row = sums.of(tile["row"])
                first, number = rows.setdefault(row.terms, (tile["row"], row.number))
                apart = (row.number - number + (1 << 31) & _WORD) - (1 << 31)
                place = address(first, apart)
                line = _fetch(tile["to"], place, trans)
                turned = turns.get(tile["to"])
                if turned is not None and given[tile["to"]] == given[turned] == 1:
                    result.append(_fetch(turned, place, not trans))
                    fetches[turned] = tile["to"]
            elif known >= 2 and tile["kind"] == "straight":
                line = f"\tld.shared.b32 {tile['to']}, [{tile['first']}];"
        elif turn is not None and fetches.get(turn["to"]) == turn["of"]:
            line = ""
        result.append(line)
    return result


def _fetch(to: str, place: str, turned: bool) -> str:
    return f"\tldmatrix.sync.aligned.m8n8.x1{'.trans' if turned else ''}.shared.b16 {{{to}}}, {place};"


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
            elif (pair := _LOWER.fullmatch(line)) and given[pair["to"]] == 1:
                self._pairs[pair["to"]] = pair["x"], pair["y"]
            elif (pair := _UPPER.fullmatch(line)) and given[pair["to"]] == 1:
                self._pairs[pair["to"]] = shifted.get(pair["x"], ""), shifted.get(pair["y"], "")

    def reads(self, register: str) -> tuple[_Read, _Read] | None:
        x, y = (self._reads.get(part) for part in self._pairs.get(register, ("", "")))
        return (x, y) if x is not None and y is not None and x.base == y.base else None


def recognised(
    lines: Sequence[str], zeros: TrailingZeros, values: LaneValues, given: Counter[str], fresh: FreshRegisters
) -> list[str]:
    """A stretch of code in which matrices that lanes read element by element, and then transpose, are fetched by rows.

    Kernels that do without `simdgroup_load` compute from the number of the lane where its elements are.
    """
    pairs = _Pairs(lines, given)
    orders = [at for at, line in enumerate(lines) if _ORDERS.match(line)]
    result = list(lines)
    found = []
    for at, turn in enumerate(map(_TURN.fullmatch, lines)):
        reads = pairs.reads(turn["of"]) if turn is not None and given[turn["to"]] == 1 else None
        if turn is None or reads is None or bisect(orders, reads[0].line) != bisect(orders, reads[1].line):
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
        result[at] = "\n".join([result[at], *added, _fetch(to, address(bases[key], first.apart), rows.along)])
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


@dataclass(frozen=True, slots=True)
class _Fetched:
    """One matrix: the line that fetches it, and where its rows are."""

    line: int
    trans: str
    base: str
    apart: int


def _fours(groups: Sequence[Sequence[str]], known: Mapping[str, _Fetched]) -> list[tuple[str, ...]]:
    """Those of which the four rows that the lanes hand out are a sum of two distances apart."""
    fours: list[tuple[str, ...]] = []
    taken: set[str] = set()
    waiting: dict[tuple[str, str, int], tuple[str, ...]] = {}
    for group in groups:
        parts = [known[register] for register in group if register in known]
        if (
            len(parts) != len(group)
            or len(set(group)) < len(group)
            or len({(part.trans, part.base) for part in parts}) > 1
            or not taken.isdisjoint(group)
        ):
            continue
        apart = parts[1].apart - parts[0].apart
        if len(group) == 4:
            if parts[3].apart - parts[2].apart != apart:
                continue
            fours.append(tuple(group))
        else:
            key = (parts[0].trans, parts[0].base, apart)
            first = waiting.pop(key, None)
            if first is None:
                waiting[key] = tuple(group)
            else:
                fours.append((*first, *group))
        taken.update(group)
    return fours


def gathered(
    lines: Sequence[str], groups: Sequence[Sequence[str]], given: Mapping[str, int], fresh: FreshRegisters
) -> list[str]:
    """A stretch of code in which up to four matrices are fetched at once.

    Each of `groups` are registers that a product wants next to each other: four, or two, of which two make four.
    """
    orders = [at for at, line in enumerate(lines) if _ORDERS.match(line)]
    known = {}
    for at, line in enumerate(lines):
        found = _FETCH.fullmatch(line)
        if found is not None and given[found["to"]] == given[found["base"]] == 1:
            known[found["to"]] = _Fetched(at, found["trans"] or "", found["base"], apart_of(found))
    result = list(lines)
    bases: dict[tuple[str, int, int, int], str] = {}
    for first, group in sorted(
        (min(known[register].line for register in four), four) for four in _fours(groups, known)
    ):
        parts = [known[register] for register in group]
        last = max(part.line for part in parts)
        if bisect(orders, first) != bisect(orders, last):
            continue
        by_8, by_16 = (parts[i].apart - parts[0].apart for i in (1, 2))
        # A base must not lie before the memory, which it does not where the other matrices follow the first.
        start = parts[0].apart if min(by_8, by_16) < 0 else 0
        key = (parts[0].base, start, by_8, by_16)
        added = []
        if key not in bases:
            bases[key] = fresh.take()
            moved, half = fresh.take(), fresh.take()
            added = [
                f"\tadd.s32 {moved}, {parts[0].base}, {start};",
                f"\tmad.lo.s32 {half}, {_lane_bit(fresh, 3)}, {by_8}, {moved};",
                f"\tmad.lo.s32 {bases[key]}, {_lane_bit(fresh, 4)}, {by_16}, {half};",
            ]
        for part in parts:
            result[part.line] = ""
        place = address(bases[key], parts[0].apart - start)
        fetch = f"\tldmatrix.sync.aligned.m8n8.x4{parts[0].trans}.shared.b16 {{{', '.join(group)}}}, {place};"
        result[first] = "\n".join([*added, fetch])
    return [line for text in result for line in text.split("\n")]


def _lane_bit(fresh: FreshRegisters, bit: int) -> str:
    return fresh.once(f"bit {bit}", lambda thread, to: [f"\tbfe.u32 {to}, {thread}, {bit}, 1;"])
