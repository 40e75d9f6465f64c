"""What the lanes' values of an instruction have to do with each other.

`Uniform`: the same in all active lanes; computed once. `Spread`: a uniform base plus an offset that is known for each
lane when the kernel is compiled; computed once, as its base. `VARYING`: anything; computed as a vector.

The analysis starts from the assumption that everything is uniform and gives up what contradicts it, until nothing
changes. Lanes that part (a branch on a varying condition) make values varying where they meet again, and values of
loops that they leave at different times varying outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .code import LANES, Function, Instruction, Operand, Types, integer
from .flow import Flow, Loop
from .private import Private

_MOST_ALIGNED = 1 << 20
_FARTHEST = 1 << 28
"""Offsets of an index of 32 bits that are farther apart may differ by more than it has."""


@dataclass(frozen=True, slots=True)
class Uniform:
    """The same in all lanes; a multiple of `align`. `constant` if its value is known."""

    align: int = 1
    constant: int | None = None
    shift: int | None = None
    """Computed from the bases of spread values, plus this."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Lane `l` has ``base + offsets[l]``.

    Not `exact`: only if no lane that matters wraps around between its 32 and its 64 bits, which holds for addresses; as
    a number it is computed as a vector as well.
    """

    offsets: tuple[int, ...]
    exact: bool = True
    align: int = 1
    """What the base is a multiple of."""
    zero: bool = False
    """Whether the base is zero, so that each lane's value is known."""


class Varying:
    """Anything."""

    def __repr__(self) -> str:
        return "VARYING"


VARYING = Varying()
Shape = Uniform | Spread | Varying
_LANE = Spread(tuple(range(LANES)), align=_MOST_ALIGNED, zero=True)

UNIFORM_RESULTS = frozenset({"__ost_pick32", "__ost_pick64", "__ost_ballot", "__ost_worker"})


def _power(number: int) -> int:
    return min(number & -number, _MOST_ALIGNED) if number else _MOST_ALIGNED


def _bits(type_: str) -> int:
    return int(type_[1:]) if type_[0] == "i" and type_[1:].isdigit() else 64


class Shapes:
    """The shapes of all values of a function, and the blocks whose branches part lanes."""

    def __init__(
        self, function: Function, flow: Flow, types: Types, private: Private, aligned: Mapping[str, int]
    ) -> None:
        self.flow = flow
        self.types = types
        self.private = private
        self._of: dict[str, Shape | None] = {p.value: Uniform(aligned.get(p.value, 1)) for p in function.parameters}
        self.divergent: set[str] = set()
        self.torn: set[Loop] = set()
        """Loops that lanes leave at different times."""
        self._joins: set[tuple[str, bool]] = set()
        """Blocks where lanes that had parted meet; True: on edges that close a loop."""
        self.block_of = {
            instruction.result: block.name
            for block in function.blocks.values()
            for instruction in (*block.phis, *block.body)
            if instruction.result
        }
        self._settle(function)

    def of(self, operand: Operand, block: str) -> Shape:
        """The shape of an operand of an instruction in a block."""
        shape = self._at(operand, block)
        return Uniform() if shape is None else shape

    def result(self, name: str) -> Shape:
        """The shape of a result, inside the loops it is computed in."""
        return self._of.get(name) or Uniform()

    def leaves_torn_loop(self, name: str, block: str) -> bool:
        """Whether a use in a block sees values from different iterations in different lanes."""
        shape = self._of.get(name)
        if isinstance(shape, Spread) and shape.zero:
            return False  # the same in every iteration
        source = self.block_of.get(name)
        return source is not None and any(source in loop.blocks and block not in loop.blocks for loop in self.torn)

    def _at(self, operand: Operand, block: str) -> Shape | None:
        if not operand.is_local:
            number = integer(operand.value)
            return Uniform(1 if number is None else _power(number), number)
        if self.leaves_torn_loop(operand.value, block):
            return VARYING
        return self._of.get(operand.value)

    # -- the analysis -----------------------------------------------------------------------------------------------

    def _settle(self, function: Function) -> None:
        changed = True
        while changed:
            changed = False
            for name in self.flow.order:
                block = function.blocks[name]
                for phi in block.phis:
                    changed |= self._weaken(phi.result, self._phi(phi, name))
                for instruction in block.body:
                    if instruction.result:
                        changed |= self._set(instruction.result, self._shape(instruction, name))
                condition = block.condition
                if condition is not None and name not in self.divergent:
                    shape = self._at(condition, name)
                    if shape is VARYING or isinstance(shape, Spread):
                        self._part(name)
                        changed = True

    def _weaken(self, name: str, shape: Shape | None) -> bool:
        """Gives a phi a shape; every cycle has one, and theirs only get weaker, so that the analysis ends."""
        old = self._of.get(name)
        return self._set(name, shape if shape is None or old is None else _met(old, shape))

    def _set(self, name: str, shape: Shape | None) -> bool:
        if shape is None or shape == self._of.get(name):
            return False
        self._of[name] = shape
        return True

    def _part(self, block: str) -> None:
        self.divergent.add(block)
        end, between = self.flow.influence(block)
        around = between | {block}
        for loop in self.flow.loops_of[block]:
            if end not in loop.blocks:
                self.torn.add(loop)
        for name in between | {end}:
            header = next((loop for loop in self.flow.loops if loop.header == name), None)
            sources = [source for source in self.flow.predecessors[name] if source in around]
            if header is None:
                if len(sources) > 1:
                    self._joins.add((name, False))
                continue
            closing = [source for source in sources if source in header.blocks]
            if block not in header.blocks and len(sources) - len(closing) > 1:
                self._joins.add((name, False))
            if block in header.blocks and len(closing) > 1:
                self._joins.add((name, True))

    def _phi(self, phi: Instruction, block: str) -> Shape | None:
        merged: Shape | None = None
        values = {operand.value for operand in phi.operands}
        for operand, source in zip(phi.operands, phi.sources, strict=True):
            if operand.value in ("poison", "undef") or operand.value == phi.result:
                continue
            shape = self._at(operand, block if self._leaves(operand, block) else source)
            if shape is not None:
                merged = shape if merged is None else _met(merged, shape)
        if merged is None and values & {"poison", "undef"}:
            merged = Uniform()
        if len(values - {"poison", "undef"}) > 1 and self._is_join(phi, block):
            return None if merged is None else VARYING
        if isinstance(merged, Uniform):
            merged = Uniform(merged.align, merged.constant if len(values) == 1 else None)
        return merged

    def _leaves(self, operand: Operand, block: str) -> bool:
        return operand.is_local and self.leaves_torn_loop(operand.value, block)

    def _is_join(self, phi: Instruction, block: str) -> bool:
        if (block, False) in self._joins and not self._is_header(block):
            return True
        outer = [s for s in phi.sources if not self.flow.is_back_edge(s, block)]
        closing = [s for s in phi.sources if self.flow.is_back_edge(s, block)]
        return ((block, False) in self._joins and len(outer) > 1) or ((block, True) in self._joins and len(closing) > 1)

    def _is_header(self, block: str) -> bool:
        return any(loop.header == block for loop in self.flow.loops)

    def _shape(self, instruction: Instruction, block: str) -> Shape | None:
        if instruction.op == "alloca":
            return Spread(self.private.offsets(instruction.result), align=1)
        shapes = [self._at(operand, block) for operand in instruction.operands]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            return None
        if instruction.op == "call":
            return self._call(instruction, known)
        if instruction.op in ("atomicrmw", "cmpxchg"):
            return VARYING
        if instruction.op == "load":
            return self._load(instruction, known[0])
        rule = _RULES.get(instruction.op)
        if rule is not None:
            return rule(self, instruction, known)
        return Uniform() if all(isinstance(shape, Uniform) for shape in known) else VARYING

    def _load(self, instruction: Instruction, address: Shape) -> Shape:
        return Uniform() if isinstance(address, Uniform) and not instruction.ordered else VARYING

    def _call(self, instruction: Instruction, shapes: list[Shape]) -> Shape:
        callee = instruction.callee
        if callee == "__ost_lane":
            return _LANE
        if callee in UNIFORM_RESULTS:
            return Uniform()
        if callee in ("__ost_filled32", "__ost_filled64") and isinstance(shapes[1], Uniform):
            return Uniform()
        if callee.startswith("__ost_"):
            return VARYING
        return Uniform() if all(isinstance(shape, Uniform) for shape in shapes) else VARYING


def _met(first: Shape, second: Shape) -> Shape:
    """The strongest shape that both have."""
    if isinstance(first, Uniform) and isinstance(second, Uniform):
        same = first.constant is not None and first.constant == second.constant
        shift = first.shift if first.shift == second.shift else None
        return Uniform(min(first.align, second.align), first.constant if same else None, shift)
    if isinstance(first, Spread) and isinstance(second, Spread):
        exact, align = first.exact and second.exact, min(first.align, second.align)
        if first.offsets == second.offsets:
            return Spread(first.offsets, exact, align, first.zero and second.zero)
        # The same apart from a constant, which can be part of the base.
        relative = [tuple(offset - shape.offsets[0] for offset in shape.offsets) for shape in (first, second)]
        if relative[0] == relative[1]:
            shifts = min(_power(first.offsets[0]), _power(second.offsets[0]))
            return Spread(relative[0], exact, min(align, shifts))
    if first == second:
        return first
    return VARYING


def _add(self: Shapes, made: Instruction, shapes: list[Shape], sign: int = 1) -> Shape:
    first, second = shapes
    if isinstance(first, Uniform) and isinstance(second, Uniform):
        known = first.constant is not None and second.constant is not None
        total = first.constant + sign * second.constant if known else None  # type: ignore[operator]
        return Uniform(min(first.align, second.align), total)
    if made.type not in ("i32", "i64", "i16", "i8"):
        return VARYING
    if isinstance(first, Spread) and isinstance(second, Uniform):
        if second.constant is not None:
            by = sign * _signed(second.constant, _bits(made.type))
            return Spread(tuple(o + by for o in first.offsets), first.exact, first.align, first.zero)
        return Spread(first.offsets, first.exact, min(first.align, second.align))
    if isinstance(first, Uniform) and isinstance(second, Spread):
        if sign > 0:
            return _add(self, made, [second, first])
        align = min(first.align, second.align)
        return Spread(tuple(-o for o in second.offsets), second.exact, align)
    if isinstance(first, Spread) and isinstance(second, Spread):
        offsets = tuple(a + sign * b for a, b in zip(first.offsets, second.offsets, strict=True))
        zero = first.zero and second.zero
        return _spread(offsets, first.exact and second.exact, min(first.align, second.align), zero)
    return VARYING


def _spread(offsets: tuple[int, ...], exact: bool, align: int, zero: bool) -> Shape:
    if len(set(offsets)) == 1 and exact:
        if zero:
            return Uniform(_power(offsets[0]), offsets[0], 0)
        return Uniform(min(align, _power(offsets[0])), None, offsets[0])
    return Spread(offsets, exact, align, zero)


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _subtract(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    return _add(self, made, shapes, -1)


def _or(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    return _add(self, made, shapes) if "disjoint" in made.flags else _bitwise(self, made, shapes)


def _multiply(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    first, second = shapes
    if isinstance(first, Uniform) and isinstance(second, Uniform):
        return Uniform(min(first.align * second.align, _MOST_ALIGNED))
    if isinstance(first, Uniform):
        first, second = second, first
    if isinstance(first, Spread) and isinstance(second, Uniform) and second.constant is not None:
        return _scaled(first, _signed(second.constant, _bits(made.type)))
    return VARYING


def _scaled(shape: Spread, by: int) -> Shape:
    return _spread(
        tuple(o * by for o in shape.offsets), shape.exact, min(shape.align * _power(by), _MOST_ALIGNED), shape.zero
    )


def _shift_left(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    first, second = shapes
    if isinstance(second, Uniform) and second.constant is not None and 0 <= second.constant < _bits(made.type):
        if isinstance(first, Uniform):
            return Uniform(min(first.align << second.constant, _MOST_ALIGNED))
        if isinstance(first, Spread):
            return _scaled(first, 1 << second.constant)
    return Uniform() if isinstance(first, Uniform) and isinstance(second, Uniform) else VARYING


_FOLDS: Mapping[str, Callable[[int, int, int], int]] = {
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "lshr": lambda a, b, bits: (a & ((1 << bits) - 1)) >> b,
    "ashr": lambda a, b, bits: a >> b,
    "udiv": lambda a, b, bits: (a & ((1 << bits) - 1)) // b,
    "urem": lambda a, b, bits: (a & ((1 << bits) - 1)) % b,
    "sdiv": lambda a, b, bits: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "srem": lambda a, b, bits: abs(a) % abs(b) * (1 if a >= 0 else -1),
}


def _bitwise(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    """Operations on bits whose result is known for each lane, or for which the base and the offsets do not touch."""
    first, second = shapes
    if isinstance(first, Uniform) and isinstance(second, Uniform):
        if made.op == "and":
            return Uniform(max(first.align, second.align))
        return Uniform(min(first.align, second.align)) if made.op in ("or", "xor") else Uniform()
    if not (isinstance(first, Spread) and first.exact and isinstance(second, Uniform) and second.constant is not None):
        return VARYING
    bits = _bits(made.type)
    by = _signed(second.constant, bits)
    if made.op in ("udiv", "urem", "sdiv", "srem") and by <= 0:
        return VARYING
    if made.op in ("lshr", "ashr") and not 0 <= by < bits:
        return VARYING
    if first.zero:
        fold = _FOLDS[made.op]
        folded = tuple(_signed(fold(_signed(offset, bits), by, bits), bits) for offset in first.offsets)
        return _spread(folded, True, _MOST_ALIGNED, True)
    # The base has no bit below `align`, the offsets none from it on.
    if not 0 <= min(first.offsets) <= max(first.offsets) < min(first.align, 1 << bits):
        return VARYING
    low = first.align - 1
    if made.op == "and":
        offsets = tuple(offset & by for offset in first.offsets)
        if by & ~low == 0:
            return _spread(offsets, True, _MOST_ALIGNED, True)
        return _spread(offsets, True, max(first.align, _power(by & ~low)), False)
    if made.op == "lshr" and (1 << by) <= first.align:
        return _spread(tuple(offset >> by for offset in first.offsets), True, first.align >> by, False)
    if made.op == "udiv" and by & (by - 1) == 0 and by <= first.align:
        return _spread(tuple(offset // by for offset in first.offsets), True, first.align // by, False)
    if made.op == "urem" and by & (by - 1) == 0 and by <= first.align:
        return _spread(tuple(offset % by for offset in first.offsets), True, _MOST_ALIGNED, True)
    return VARYING


def _widened(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    shape = shapes[0]
    if isinstance(shape, Uniform):
        constant = shape.constant
        if constant is not None and made.op == "zext":
            constant &= (1 << _bits(made.operands[0].type)) - 1
        return Uniform(shape.align, constant)
    if not isinstance(shape, Spread) or made.type != "i64" or made.operands[0].type != "i32":
        if isinstance(shape, Spread) and shape.zero and made.operands[0].type != "i1":
            bits = _bits(made.operands[0].type)
            signed = [_signed(o, bits) for o in shape.offsets]
            if made.op == "sext" or min(signed) >= 0:
                return _spread(tuple(signed), True, _MOST_ALIGNED, True)
        return VARYING
    if shape.zero:
        offsets = tuple(o & 0xFFFFFFFF if made.op == "zext" else _signed(o, 32) for o in shape.offsets)
        return _spread(offsets, True, _MOST_ALIGNED, True)
    if max(shape.offsets) - min(shape.offsets) >= _FARTHEST:
        return VARYING
    return Spread(shape.offsets, False, 1)


def _narrowed(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    shape = shapes[0]
    if isinstance(shape, Spread) and made.type in ("i32", "i16", "i8"):
        return (
            Spread(shape.offsets, shape.exact, min(shape.align, 1 << (_bits(made.type) - 1)), shape.zero)
            if shape.exact
            else VARYING
        )
    return Uniform(shape.align) if isinstance(shape, Uniform) else VARYING


def _address(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    constant, variable = self.types.strides(made.element, made.operands[1:])
    scale = self.private.scale(made.result)
    offsets = [constant * scale] * LANES
    exact, uniform = True, True
    base = shapes[0]
    if isinstance(base, Spread):
        offsets = [a + b for a, b in zip(offsets, base.offsets, strict=True)]
        uniform = False
    elif base is VARYING:
        return VARYING
    by_operand = {id(operand): shape for operand, shape in zip(made.operands, shapes, strict=True)}
    for step, operand in variable:
        shape = by_operand[id(operand)]
        if shape is VARYING or (isinstance(shape, Spread) and operand.type != "i64" and not shape.zero):
            return VARYING
        if isinstance(shape, Spread):
            offsets = [a + step * scale * b for a, b in zip(offsets, shape.offsets, strict=True)]
            uniform = False
    if uniform:
        return Uniform()
    if len(set(offsets)) == 1:
        return Uniform(shift=offsets[0])
    return Spread(tuple(offsets), exact, 1)


def _copied(self: Shapes, made: Instruction, shapes: list[Shape]) -> Shape:
    shape = shapes[0]
    return Uniform(shape.align, shape.constant) if isinstance(shape, Uniform) else shape


_RULES: Mapping[str, Callable[[Shapes, Instruction, list[Shape]], Shape]] = {
    "add": _add, "sub": _subtract, "mul": _multiply, "shl": _shift_left, "or": _or, "getelementptr": _address,
    **dict.fromkeys(("and", "xor", "lshr", "ashr", "udiv", "urem", "sdiv", "srem"), _bitwise),
    **dict.fromkeys(("zext", "sext"), _widened), "trunc": _narrowed, "freeze": _copied,
}  # fmt: skip
