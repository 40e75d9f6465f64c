"""Products of TF32 whose factors are values of 16 bits, as products of these.

Many kernels convert bfloat or half elements to float before they multiply them. On a device with `tf32=True` such
products would be those of TF32. Where the code shows that both factors of a product have been bfloat, or both half, it
becomes the product of these: the same number, exact in either, in a quarter of the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .alignment import TrailingZeros
from .mma_lines import PRODUCT, WIDE_TURN, pack, turn
from .registers import FreshRegisters

_SINGLE = re.compile(
    r"\s*(?P<operation>cvt\.rna\.tf32\.f32|cvt\.f32\.f16|mov\.b32|shl\.b32|cvt\.u32\.u16)"
    r"\s+(?P<to>%\w+), (?P<of>%\w+)(?:, 16)?;\s*"
)


@dataclass(frozen=True, slots=True)
class _Factor:
    """What an element of an operand was before it was float."""

    type: str
    register: str
    """It is given a value once: others may hold the next round's by the time the product is reached."""
    wide: bool
    """Whether it is the upper half of a register of 32 bits."""


class _Sources:
    def __init__(self, lines: Sequence[str], zeros: TrailingZeros, given: Mapping[str, int]) -> None:
        singles = (found for found in map(_SINGLE.fullmatch, lines) if found and given[found["to"]] == 1)
        self._singles = {found["to"]: found for found in singles}
        turned = (found for found in map(WIDE_TURN.fullmatch, lines) if found)
        self._turned = {
            (found["to"], found["second"]): (found["x"], found["y"])
            for found in turned
            if given[found["to"]] == given[found["second"]] == 1
        }
        self._zeros = zeros
        self._given = given

    def left(self, first: str, second: str) -> tuple[_Factor, _Factor] | None:
        """The two neighbours of a row that a lane gives."""
        x, y = self._factor(first), self._factor(second)
        return (x, y) if x is not None and y is not None and (x.type, x.wide) == (y.type, y.wide) else None

    def right(self, first: str, second: str) -> tuple[_Factor, _Factor] | None:
        """The same of the right operand, before the lanes exchanged rows and columns."""
        before = self._turned.get((first, second))
        return None if before is None else self.left(*before)

    def _factor(self, register: str) -> _Factor | None:
        value = self._before(register, "cvt.rna.tf32.f32")
        half = self._before(value, "cvt.f32.f16")
        if half is not None:
            return _Factor("f16", half, False) if self._given[half] == 1 else None
        bits = self._before(value, "mov.b32")
        if bits is None or self._zeros.of(bits) < 16:
            return None
        short = self._before(self._before(bits, "shl.b32"), "cvt.u32.u16")
        if short is not None and self._given[short] == 1:
            return _Factor("bf16", short, False)
        return _Factor("bf16", bits, True) if self._given[bits] == 1 else None

    def _before(self, register: str | None, operation: str) -> str | None:
        found = self._singles.get(register) if register is not None else None
        return found["of"] if found is not None and found["operation"] == operation else None


def narrowed(lines: Sequence[str], zeros: TrailingZeros, given: Mapping[str, int], fresh: FreshRegisters) -> list[str]:
    """The lines of a function, of which `given` counts how often each register is given a value."""
    sources = _Sources(lines, zeros, given)
    result = []
    for line in lines:
        product = PRODUCT.fullmatch(line)
        left = right = None
        if product is not None and product["type"] == "tf32":
            left = sources.left(*product["a"].split(", none, "))
            right = sources.right(*product["b"].split(", "))
        if product is None or left is None or right is None or left[0].type != right[0].type:
            result.append(line)
            continue
        rows, columns, turned = fresh.take(), fresh.take(), fresh.take()
        kind = left[0].type
        result += [
            _packed(rows, *left),
            _packed(columns, *right),
            turn(turned, columns),
            f"{product['head']}{kind}.{kind}{product['sums']}, {{{rows}, none}}, {{{turned}}}{product['rest']}",
        ]
    return result


def _packed(to: str, x: _Factor, y: _Factor) -> str:
    return pack(to, x.register, y.register, x.wide)
