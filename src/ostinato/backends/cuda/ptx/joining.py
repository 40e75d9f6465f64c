"""Products of simdgroup matrices, joined into the shapes that the tensor cores have.

A simdgroup matrix is 8 × 8, so the shim multiplies two of them by an instruction that is half empty
(msl/include/ostinato/mma_cuda.h). The compiler has unrolled the loops by then, so the products that belong together
stand near each other in its PTX: two with the same right operand become one product of 16 rows, and two of which the
second adds to the first become one of twice the depth. Everything else stays as it was. Only products in a stretch
without branches are joined. The earlier one moves to the place of the later one, if nothing in between has to do with
its registers. Before that, floats that were 16-bit numbers become these again (narrowing.py), and matrices in
threadgroup memory are fetched by whole rows (tile_loads.py, lane_reads.py).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .alignment import TrailingZeros, without_known_bits
from .lane_reads import recognised
from .lane_values import LaneValues
from .mma_lines import PRODUCT, PRODUCT_BEGINS, REPEATABLE, WIDE_TURN
from .narrowing import narrowed
from .registers import FreshRegisters
from .tile_loads import fetched, gathered, tile_result
from .wide_loads import widened

_LEAVES = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:bra|brx|ret|exit|call|trap)\b|^\s*\$\w+:|^\s*[{}]\s*$|^\s*\.")
_BODY = re.compile(r"^\{.*?^\}", re.MULTILINE | re.DOTALL)
_REGISTER = re.compile(r"%[a-z]+\d+")
_ZERO = "none"


@dataclass(frozen=True, slots=True)
class _Product:
    """Up to 16 rows and a depth of up to 16. Sums are pairs of registers, one for each eight rows."""

    places: tuple[int, ...]
    """The lines of the tiles that it is made of; it stands at the last."""
    type: str
    left: tuple[tuple[str, ...], ...]
    """For each eight of the depth, the register of each eight rows."""
    right: tuple[str, ...]
    before: tuple[tuple[str, str], ...]
    after: tuple[tuple[str, str], ...]

    @property
    def at(self) -> int:
        return self.places[-1]

    @property
    def reads(self) -> Iterable[str]:
        yield from (register for part in self.left for register in part)
        yield from self.right
        yield from (register for pair in self.before for register in pair)

    @property
    def writes(self) -> Iterable[str]:
        return (register for pair in self.after for register in pair)


class _Mentions:
    """Where the registers of a stretch are mentioned, and where they may be given a value."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._all: Mapping[str, list[int]] = defaultdict(list)
        self._given: Mapping[str, list[int]] = defaultdict(list)
        for at, line in enumerate(lines):
            for register in dict.fromkeys(_REGISTER.findall(line)):
                self._all[register].append(at)
            for register in _given(line):
                self._given[register].append(at)

    def is_free(self, product: _Product, later: int, own: Sequence[int]) -> bool:
        """Whether a product can move to a later line; `own` are the lines that move with it."""
        read = [self._given.get(register, ()) for register in product.reads]
        written = [self._all.get(register, ()) for register in product.writes]
        return not any(_between(places, product.at, later, own) for places in read + written)


def _between(places: Sequence[int], first: int, last: int, own: Sequence[int]) -> bool:
    return any(place < last and place not in own for place in places[bisect_right(places, first) :])


def _given(line: str) -> list[str]:
    """The registers that a line may give a value: its first operand, or all of several instructions'."""
    tile = PRODUCT.fullmatch(line)
    if tile is not None:
        return tile["d"].split(", ")
    read = tile_result(line)
    if read is not None:
        return [read]
    turned = WIDE_TURN.fullmatch(line)
    if turned is not None:
        return [turned["to"], turned["second"]]
    if line.count(";") > 1:
        return _REGISTER.findall(line)
    operands = line.split(None, 1)[1] if " " in line.strip() or "\t" in line.strip() else ""
    if line.lstrip().startswith("@"):
        operands = operands.split(None, 1)[1] if len(operands.split(None, 1)) > 1 else ""
    if operands.lstrip().startswith("["):
        return []
    first = operands[: operands.index("}") + 1] if operands.lstrip().startswith("{") else operands.split(",", 1)[0]
    return _REGISTER.findall(first)


def has_tiles(ptx: str) -> bool:
    """Whether there is anything to join."""
    return PRODUCT_BEGINS in ptx


def joined(ptx: str) -> str:
    """The same program with fewer and larger products."""
    return _BODY.sub(lambda body: _joined_body(ptx, body[0]), ptx)


def _joined_body(ptx: str, body: str) -> str:
    """One function: its registers have nothing to do with those of others that have the same names."""
    lines = body.split("\n")
    given = Counter(register for line in lines for register in _given(line))
    zeros = TrailingZeros(ptx, lines, given)
    lines = [without_known_bits(line, zeros) for line in lines]
    fresh = FreshRegisters(lines)
    lines = narrowed(widened(lines), zeros, given, fresh)
    given = Counter(register for line in lines for register in _given(line))
    values = LaneValues(lines, given)
    uses = Counter(register for line in lines for register in _REGISTER.findall(line))
    result: list[str] = []
    stretch: list[str] = []
    for line in [*lines, None]:
        if line is None or _LEAVES.match(line):
            result += _joined_stretch(stretch, uses, given, zeros, values, fresh)
            result += [] if line is None else [line]
            stretch = []
        else:
            stretch.append(line)
    return "\n".join(fresh.declared(result))


def _shared(lines: list[str], uses: Mapping[str, int], given: Mapping[str, int]) -> list[str]:
    """A stretch in which what is transposed or packed twice is so once: the compiler leaves that to its assembler."""
    known: dict[str, list[str]] = {}
    same: dict[str, str] = {}
    here = Counter(_REGISTER.findall("\n".join(lines)))
    kept = []
    for line in lines:
        if same:
            line = _REGISTER.sub(lambda found: same.get(found[0], found[0]), line)
        repeatable = REPEATABLE.fullmatch(line) or WIDE_TURN.fullmatch(line)
        if repeatable is not None and all(given[register] == 1 for register in _REGISTER.findall(line)):
            registers, value = _given(line), repeatable["operation"] + repeatable["of"]
            if value not in known:
                known[value] = registers
            elif all(here[register] == uses[register] for register in registers):
                same.update(zip(registers, known[value], strict=True))
                line = ""
        kept.append(line)
    return kept


def _joined_stretch(
    lines: list[str],
    uses: Mapping[str, int],
    given: Counter[str],
    zeros: TrailingZeros,
    values: LaneValues,
    fresh: FreshRegisters,
) -> list[str]:
    if not any(map(PRODUCT.fullmatch, lines)):
        return lines
    lines = _shared(lines, uses, given)
    operands = {register for tile in _tiles(lines) for register in tile.reads}
    moving = {register for line in lines for register in _given(line) if given[register] > 1}
    lines = recognised(fetched(lines, operands, zeros, given, moving), zeros, values, given, fresh)
    singles = _tiles(lines)
    mentions = _Mentions(lines)
    products = _deepened(_paired(singles, mentions), mentions, uses)
    for product in singles:
        lines[product.at] = ""
    for product in products:
        lines[product.at] = _text(product)
    return gathered(lines, [group for product in products for group in _neighbours(product)], given, fresh)


def _neighbours(product: _Product) -> Iterable[tuple[str, ...]]:
    """The operands that the hardware takes from registers next to each other."""
    left = tuple(register for part in product.left for register in part)
    return (group for group in (left, product.right) if len(group) in (2, 4) and product.type != "tf32")


def _tiles(lines: Sequence[str]) -> list[_Product]:
    return [_tile(at, line) for at, line in enumerate(lines) if PRODUCT.fullmatch(line)]


def _tile(at: int, line: str) -> _Product:
    tile = PRODUCT.fullmatch(line)
    assert tile is not None
    before, after = tile["c"].split(", "), tile["d"].split(", ")
    pair = ((before[0], before[1]),), ((after[0], after[1]),)
    left = tuple((register,) for register in tile["a"].split(", none, "))
    return _Product((at,), tile["type"], left, tuple(tile["b"].split(", ")), *pair)


def _paired(products: Sequence[_Product], mentions: _Mentions) -> list[_Product]:
    """Two that share the right operand as one of 16 rows."""
    waiting: dict[tuple[str, ...], _Product] = {}
    done: list[_Product] = []
    for product in products:
        key = (product.type, *product.right)
        first = waiting.pop(key, None)
        if first is not None and mentions.is_free(first, product.at, ()) and not _follows(product, first):
            left = tuple(upper + lower for upper, lower in zip(first.left, product.left, strict=True))
            sums = first.before + product.before, first.after + product.after
            done.append(_Product(first.places + product.places, product.type, left, product.right, *sums))
            continue
        if first is not None:
            done.append(first)
        waiting[key] = product
    return sorted([*done, *waiting.values()], key=lambda product: product.at)


def _follows(second: _Product, first: _Product) -> bool:
    return not set(first.writes).isdisjoint(second.reads) or not set(first.reads).isdisjoint(second.writes)


def _deepened(products: Sequence[_Product], mentions: _Mentions, uses: Mapping[str, int]) -> list[_Product]:
    """Two of which the second adds to the first's sums, which nobody else reads, as one of a depth of 16."""
    ending: dict[tuple[tuple[str, str], ...], _Product] = {}
    done: dict[int, _Product] = {}
    for product in products:
        first = ending.pop(product.before, None)
        if (
            first is not None
            and first.type == product.type
            and len(first.right) == len(product.right) == 1
            and all(uses[register] == 2 for register in first.writes)
            and mentions.is_free(first, product.at, product.places)
        ):
            del done[id(first)]
            left, right = first.left + product.left, first.right + product.right
            places = tuple(sorted(first.places + product.places))
            deep = _Product(places, product.type, left, right, first.before, product.after)
            done[id(deep)] = deep
        else:
            done[id(product)] = product
            ending[product.after] = product
    return list(done.values())


def _text(product: _Product) -> str:
    rows, depth = len(product.before), 8 if product.type == "tf32" else 8 * len(product.right)
    left = [part[row] if row < rows else _ZERO for part in product.left for row in range(2)]
    sums = [", ".join(pair) for pair in product.after] + (["unused0, unused1"] if rows == 1 else [])
    before = [", ".join(pair) for pair in product.before] + (["nil, nil"] if rows == 1 else [])
    shape = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{product.type}.{product.type}.f32"
    operands = "}, {".join([", ".join(sums), ", ".join(left), ", ".join(product.right), ", ".join(before)])
    declared = (
        f"{PRODUCT_BEGINS} .reg .f32 nil, unused0, unused1; mov.b32 none, 0; mov.f32 nil, 0f00000000;"
        if rows == 1
        else "{"
    )
    return f"\t{declared} {shape} {{{operands}}}; }}"
