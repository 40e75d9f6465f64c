"""Products of four bytes in every lane, `ostinato::dot_add`, by the processor's instructions.

dot_vector.h chooses the function by what the processor has: `vnni512` and `vnni256` multiply and add in one
instruction, `avx2` in pairs of 16 bits, `plain` is what any compiler makes of it. All are exact. The instructions are
written as assembly, because their names as intrinsics differ between versions of clang.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .code import LANES, Instruction, Refused, wide
from .turning import joined

if TYPE_CHECKING:
    from .emission import Emitter

PREFIX = "__ost_dot_"
_WORDS = wide("i32")
_WIDTHS = {"vnni512": 16, "vnni256": 8, "avx2": 8}
_VNNI = {
    "vnni512": 'asm "vpdpbusd $3, $2, $0", "=v,0,v,v"',
    "vnni256": 'asm "{{vex}} vpdpbusd $3, $2, $0", "=x,0,x,x"',
}
_SIGN_BITS = "-2139062144"
"""A word of four times 128: bytes with it added count from −128."""


def write_dot(emitter: Emitter, made: Instruction) -> None:
    """A call of one of the functions of dot_vector.h."""
    kind, _, way = made.callee.removeprefix(PREFIX).partition("_")
    a, b, total = (emitter.vector(operand)[0] for operand in made.operands)
    if way in _VNNI:
        result = _by_vnni(emitter, way, kind == "signed", a, b, total)
    elif way in ("avx2", "plain"):
        result = _by_pairs(emitter, way, kind == "signed", a, b, total)
    else:
        raise Refused(f"the product {made.callee}")
    emitter.keep_vector(made.result, made.type, [result])


def _by_vnni(emitter: Emitter, way: str, signed: bool, a: str, b: str, total: str) -> str:
    """The instruction takes bytes without a sign times bytes with one; a · b is (a + 128) · b − 128 · b."""
    if not signed:
        return _in_parts(emitter, _WIDTHS[way], _VNNI[way], [total, a, b])
    moved = emitter.new(f"xor {_WORDS} {a}, {emitter.splat('i32', _SIGN_BITS)}")
    above = _in_parts(emitter, _WIDTHS[way], _VNNI[way], [total, moved, b])
    extra = _in_parts(emitter, _WIDTHS[way], _VNNI[way], ["zeroinitializer", emitter.splat("i32", _SIGN_BITS), b])
    return emitter.new(f"sub {_WORDS} {above}, {extra}")


def _by_pairs(emitter: Emitter, way: str, signed: bool, a: str, b: str, total: str) -> str:
    """Bytes as halves of words: the even ones, then the odd ones."""
    for odd in (False, True):
        left, right = _halves(emitter, a, odd, signed), _halves(emitter, b, odd, True)
        if way == "avx2":
            product = _in_parts(emitter, _WIDTHS[way], 'asm "vpmaddwd $2, $1, $0", "=x,x,x"', [left, right])
        else:
            product = _plain_pairs(emitter, left, right)
        total = emitter.new(f"add {_WORDS} {total}, {product}")
    return total


def _halves(emitter: Emitter, words: str, odd: bool, signed: bool) -> str:
    """Every second byte of words as 16 bits."""
    kind = f"<{2 * LANES} x i16>"
    eight = f"<{', '.join(['i16 8'] * (2 * LANES))}>"
    halves = emitter.new(f"bitcast {_WORDS} {words} to {kind}")
    if not odd:
        halves = emitter.new(f"shl {kind} {halves}, {eight}")
    halves = emitter.new(f"{'ashr' if signed else 'lshr'} {kind} {halves}, {eight}")
    return emitter.new(f"bitcast {kind} {halves} to {_WORDS}")


def _plain_pairs(emitter: Emitter, left: str, right: str) -> str:
    sixteen, products = emitter.splat("i32", "16"), []
    for high in (False, True):
        factors = []
        for words in (left, right):
            if not high:
                words = emitter.new(f"shl {_WORDS} {words}, {sixteen}")
            factors.append(emitter.new(f"ashr {_WORDS} {words}, {sixteen}"))
        products.append(emitter.new(f"mul {_WORDS} {factors[0]}, {factors[1]}"))
    return emitter.new(f"add {_WORDS} {products[0]}, {products[1]}")


def _in_parts(emitter: Emitter, width: int, assembly: str, operands: list[str]) -> str:
    """One instruction for each part of so many lanes."""
    kind = f"<{width} x i32>"
    parts = []
    for begin in range(0, LANES, width):
        places = ", ".join(f"i32 {lane}" for lane in range(begin, begin + width))
        taken = [
            emitter.once(f"shufflevector {_WORDS} {value}, {_WORDS} poison, {kind} <{places}>") for value in operands
        ]
        parts.append(emitter.new(f"call {kind} {assembly}({', '.join(f'{kind} {value}' for value in taken)})"))
    return joined(emitter, parts, "i32", width)
