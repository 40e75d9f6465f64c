"""Simdgroup matrices in threadgroup memory, fetched by whole rows where their alignment is known.

The shim reads a matrix of 16-bit elements by two loads for each lane (msl/include/ostinato/simdgroup_matrix_cuda.h).
The hardware has an instruction for the whole warp, `ldmatrix`, if every row begins at a multiple of 16 bytes, and one
that transposes on the way, which saves the exchange that a right operand needs. All lanes must take part, so only
matrices that a product takes in the same stretch without branches are fetched so.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .accesses import address, apart_of, orders
from .alignment import TrailingZeros
from .assignments import Assignments
from .mma_lines import FETCH, TILE_READ, TURN, fetch, fetch_four
from .registers import FreshRegisters

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
    tile = TILE_READ.fullmatch(line)
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
    turns = {turn["of"]: turn["to"] for turn in map(TURN.fullmatch, lines) if turn is not None}
    sums = _Sums(lines, given, moving)
    rows: dict[frozenset[tuple[str, int]], tuple[str, int]] = {}
    fetches: dict[str, str] = {}
    result = []
    for line in lines:
        tile, turn = TILE_READ.fullmatch(line), TURN.fullmatch(line)
        if tile is not None and (tile["to"] in products or tile["to"] in turns):
            known = zeros.of(tile["bits"])
            if known >= 4:
                trans = tile["kind"] == "turned"
                row = sums.of(tile["row"])
                first, number = rows.setdefault(row.terms, (tile["row"], row.number))
                apart = (row.number - number + (1 << 31) & _WORD) - (1 << 31)
                place = address(first, apart)
                line = fetch(tile["to"], place, trans)
                turned = turns.get(tile["to"])
                if turned is not None and given[tile["to"]] == given[turned] == 1:
                    result.append(fetch(turned, place, not trans))
                    fetches[turned] = tile["to"]
            elif known >= 2 and tile["kind"] == "straight":
                line = f"\tld.shared.b32 {tile['to']}, [{tile['first']}];"
        elif turn is not None and fetches.get(turn["to"]) == turn["of"]:
            line = ""
        result.append(line)
    return result


@dataclass(frozen=True, slots=True)
class _Fetched:
    """One matrix: the line that fetches it, and where its rows are."""

    line: int
    is_turned: bool
    base: str
    apart: int


def _fours(groups: Sequence[Sequence[str]], known: Mapping[str, _Fetched]) -> list[tuple[str, ...]]:
    """Those of which the four rows that the lanes hand out are a sum of two distances apart."""
    fours: list[tuple[str, ...]] = []
    taken: set[str] = set()
    waiting: dict[tuple[bool, str, int], tuple[str, ...]] = {}
    for group in groups:
        parts = [known[register] for register in group if register in known]
        if (
            len(parts) != len(group)
            or len(set(group)) < len(group)
            or len({(part.is_turned, part.base) for part in parts}) > 1
            or not taken.isdisjoint(group)
        ):
            continue
        apart = parts[1].apart - parts[0].apart
        if len(group) == 4:
            if parts[3].apart - parts[2].apart != apart:
                continue
            fours.append(tuple(group))
        else:
            key = (parts[0].is_turned, parts[0].base, apart)
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
    ordered = orders(lines)
    known = {}
    for at, line in enumerate(lines):
        found = FETCH.fullmatch(line)
        if found is not None and given[found["to"]] == given[found["base"]] == 1:
            known[found["to"]] = _Fetched(at, found["trans"] is not None, found["base"], apart_of(found))
    result = list(lines)
    bases: dict[tuple[str, int, int, int], str] = {}
    for first, group in sorted(
        (min(known[register].line for register in four), four) for four in _fours(groups, known)
    ):
        parts = [known[register] for register in group]
        last = max(part.line for part in parts)
        if bisect(ordered, first) != bisect(ordered, last):
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
        result[first] = "\n".join([*added, fetch_four(group, place, parts[0].is_turned)])
    return [line for text in result for line in text.split("\n")]


def _lane_bit(fresh: FreshRegisters, bit: int) -> str:
    return fresh.once(f"bit {bit}", lambda thread, to: [f"\tbfe.u32 {to}, {thread}, {bit}, 1;"])
