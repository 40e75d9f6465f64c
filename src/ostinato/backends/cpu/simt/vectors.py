"""Writes instructions as operations on vectors of all lanes, or for one lane after the other."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

from . import exchanges
from .code import (
    LANES,
    MASK,
    Instruction,
    Operand,
    Refused,
    integer,
    part_range,
    parts_of,
    scalar_text,
    suffix,
    vector_count,
    wide,
)
from .shapes import Uniform

if TYPE_CHECKING:
    from .emission import Emitter

_CONVERSIONS = frozenset("trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint inttoptr bitcast".split())
_ONE_TYPE = frozenset(
    """fma fmuladd sqrt fabs minnum maxnum minimum maximum minimumnum maximumnum floor ceil trunc rint nearbyint round
    roundeven copysign umin umax smin smax ctpop bswap bitreverse fshl fshr uadd.sat usub.sat sadd.sat ssub.sat
    exp exp2 log log2 log10 sin cos pow canonicalize ldexp exp10 tan""".split()
)
"""Intrinsics that work on vectors as they do on scalars, their name followed by one type."""
_WITH_FLAG = frozenset({"ctlz", "cttz", "abs"})
"""The same, with a constant behind."""


def write_vector(emitter: Emitter, made: Instruction) -> None:
    """An instruction whose result differs between lanes."""
    if made.result in emitter.tiles:
        _vectors_of_tile(emitter, made)
        return
    parts = _vector_parts(emitter, made)
    if made.result:
        emitter.keep_vector(made.result, made.type, parts)


def _vectors_of_tile(emitter: Emitter, made: Instruction) -> None:
    """Elementwise operations on matrices work on them as they lie."""
    operands = []
    for operand in made.operands:
        if vector_count(operand.type):
            operands.append((exchanges.tile_type(operand.type), emitter.tile(operand)))
        elif made.op == "select" and isinstance(emitter.shape(operand), Uniform):
            operands.append((operand.type, emitter.scalar(operand)))
        else:
            operands.append((f"<{2 * LANES} x i1>", exchanges.mask_of_tile(emitter, emitter.vector(operand)[0])))
    type_ = exchanges.tile_type(made.type)
    if made.op == "shufflevector":
        value = operands[0][1]
    elif made.op == "select":
        text = ", ".join(f"{t} {v}" for t, v in operands)
        value = emitter.new(f"select {made.flags}{text}")
    elif len(operands) == 1 and operands[0][0] != type_:
        value = emitter.new(f"{made.op} {made.flags}{operands[0][0]} {operands[0][1]} to {type_}")
    else:
        value = emitter.new(f"{made.op} {made.flags}{operands[0][0]} {', '.join(v for _, v in operands)}")
    emitter.keep_vector(made.result, made.type, [value])


def _vector_parts(emitter: Emitter, made: Instruction) -> list[str]:
    op = made.op
    if op == "getelementptr":
        return [_vector_address(emitter, made)]
    if op == "call":
        return _vector_call(emitter, made)
    if op in ("extractvalue", "insertvalue", "extractelement", "insertelement", "shufflevector"):
        return _moved_parts(emitter, made)
    if op == "select":
        return _selected(emitter, made)
    operands = [emitter.vector(operand) for operand in made.operands]
    if op == "bitcast" and len(operands[0]) != len(parts_of(made.type)):
        return _recast(emitter, made, operands[0])
    if op in ("udiv", "sdiv", "urem", "srem") and emitter.mask is not None:
        type_ = wide(parts_of(made.type)[0])
        one = emitter.splat(parts_of(made.type)[0], "1")
        operands[1] = [emitter.chosen(emitter.mask, type_, value, one) for value in operands[1]]
    source = wide(parts_of(made.operands[0].type)[0])
    results = []
    for values in zip(*operands, strict=True):
        text = f"{op} {made.flags}{source} {', '.join(values)}"
        if op in _CONVERSIONS:
            text += f" to {wide(parts_of(made.type)[0])}"
        results.append(emitter.new(text))
    return results


def _selected(emitter: Emitter, made: Instruction) -> list[str]:
    condition, first, second = made.operands
    values = zip(emitter.vector(first), emitter.vector(second), strict=True)
    types = [wide(part) for part in parts_of(made.type)]
    if isinstance(emitter.shape(condition), Uniform) and not vector_count(condition.type):
        text = f"i1 {emitter.scalar(condition)}"
        return [
            emitter.new(f"select {made.flags}{text}, {type_} {a}, {type_} {b}")
            for type_, (a, b) in zip(types, values, strict=True)
        ]
    conditions = emitter.vector(condition)
    if len(conditions) == 1:
        conditions *= len(types)
    return [
        emitter.new(f"select {made.flags}{MASK} {c}, {type_} {a}, {type_} {b}")
        for c, type_, (a, b) in zip(conditions, types, values, strict=True)
    ]


def _recast(emitter: Emitter, made: Instruction, values: list[str]) -> list[str]:
    """The bits of numbers as numbers of another width, in the smallest groups that both fill."""
    sources, targets = parts_of(made.operands[0].type), parts_of(made.type)
    source, target = (emitter.types.bits(types[0]) for types in (sources, targets))
    together = lcm(source, target)
    each = together // source
    numbers = []
    for first in range(0, len(values), each):
        group = [_cast(emitter, value, sources[0], f"i{source}") for value in values[first : first + each]]
        joined = _joined(emitter, group, source, together)
        numbers += _pieces(emitter, joined, together, target)
    return [_cast(emitter, number, f"i{target}", targets[0]) for number in numbers]


def _cast(emitter: Emitter, value: str, source: str, target: str) -> str:
    return value if source == target else emitter.new(f"bitcast {wide(source)} {value} to {wide(target)}")


def _joined(emitter: Emitter, numbers: list[str], bits: int, together: int) -> str:
    """Integers as one, the first in its lowest bits."""
    if len(numbers) == 1:
        return numbers[0]
    whole = wide(f"i{together}")
    joined = "zeroinitializer"
    for place, number in enumerate(numbers):
        extended = emitter.new(f"zext {wide(f'i{bits}')} {number} to {whole}")
        if place:
            extended = emitter.new(f"shl {whole} {extended}, {emitter.splat(f'i{together}', str(place * bits))}")
        joined = emitter.new(f"or {whole} {joined}, {extended}")
    return joined


def _pieces(emitter: Emitter, number: str, bits: int, each: int) -> list[str]:
    """The integers of `each` bits that an integer consists of."""
    if bits == each:
        return [number]
    whole = wide(f"i{bits}")
    pieces = []
    for place in range(0, bits, each):
        moved = number
        if place:
            moved = emitter.new(f"lshr {whole} {number}, {emitter.splat(f'i{bits}', str(place))}")
        pieces.append(emitter.new(f"trunc {whole} {moved} to {wide(f'i{each}')}"))
    return pieces


def _moved_parts(emitter: Emitter, made: Instruction) -> list[str]:
    op = made.op
    parts = list(emitter.vector(made.operands[0]))
    if op == "extractvalue":
        return parts[part_range(made.operands[0].type, made.indices[0])]
    if op == "insertvalue":
        parts[part_range(made.type, made.indices[0])] = emitter.vector(made.operands[1])
        return parts
    if op == "shufflevector":
        both = parts + emitter.vector(made.operands[1])
        return [both[index] if index >= 0 else "poison" for index in made.indices]
    index = made.operands[-1]
    number = integer(index.value)
    element = parts_of(made.operands[0].type)[0]
    if op == "extractelement":
        if number is not None:
            return [parts[number]]
        places = emitter.vector(index)[0]
        result = parts[0]
        for place in range(1, len(parts)):
            here = emitter.new(f"icmp eq {wide(index.type)} {places}, {emitter.splat(index.type, str(place))}")
            result = emitter.new(f"select {MASK} {here}, {wide(element)} {parts[place]}, {wide(element)} {result}")
        return [result]
    value = emitter.vector(made.operands[1])[0]
    if number is not None:
        parts[number] = value
        return parts
    places = emitter.vector(index)[0]
    for place in range(len(parts)):
        here = emitter.new(f"icmp eq {wide(index.type)} {places}, {emitter.splat(index.type, str(place))}")
        parts[place] = emitter.new(f"select {MASK} {here}, {wide(element)} {value}, {wide(element)} {parts[place]}")
    return parts


def _vector_address(emitter: Emitter, made: Instruction) -> str:
    constant, variable = emitter.types.strides(made.element, made.operands[1:])
    scale = emitter.private.scale(made.result)
    base = made.operands[0]
    uniform = isinstance(emitter.shape(base), Uniform)
    address = f"ptr {emitter.scalar(base)}" if uniform else f"{wide('ptr')} {emitter.vector(base)[0]}"
    for step, operand in variable:
        if isinstance(emitter.shape(operand), Uniform):
            index = emitter.scalar(operand)
            if operand.type != "i64":
                index = emitter.once(f"sext {operand.type} {index} to i64")
            index = emitter.once(f"mul i64 {index}, {step * scale}")
            moved = emitter.new(f"getelementptr i8, {address}, i64 {index}")
            address = f"ptr {moved}" if uniform else f"{wide('ptr')} {moved}"
            continue
        index = emitter.vector(operand)[0]
        if operand.type != "i64":
            index = emitter.new(f"sext {wide(operand.type)} {index} to {wide('i64')}")
        wide_index = wide("i64")
        element = f"[{step * scale} x i8]" if step * scale != 1 else "i8"
        address = f"{wide('ptr')} {emitter.new(f'getelementptr {element}, {address}, {wide_index} {index}')}"
        uniform = False
    if constant:
        moved = emitter.new(f"getelementptr i8, {address}, i64 {constant * scale}")
        address = f"ptr {moved}" if uniform else f"{wide('ptr')} {moved}"
    if uniform:
        return emitter.splat("ptr", address.split(" ", 1)[1])
    return address[len(wide("ptr")) + 1 :]


def _vector_call(emitter: Emitter, made: Instruction) -> list[str]:
    name = made.callee
    words = name.split(".")
    if words[0] != "llvm":
        return one_by_one(emitter, made, keep=False)
    stem = ".".join(words[1:-1])
    types = [operand.type for operand in made.operands]
    if any(vector_count(type_) for type_ in (*types, made.type)):
        raise Refused(f"{name} of a vector")
    if stem in _ONE_TYPE and all(type_ == made.type for type_ in types):
        arguments = [(wide(o.type), emitter.vector(o)[0]) for o in made.operands]
        full = f"llvm.{stem}.{suffix(made.type)}"
        emitter.intrinsic(full, wide(made.type), [type_ for type_, _ in arguments])
        text = ", ".join(f"{type_} {value}" for type_, value in arguments)
        return [emitter.new(f"call {made.flags}{wide(made.type)} @{full}({text})")]
    if stem in _WITH_FLAG:
        arguments = [(wide(types[0]), emitter.vector(made.operands[0])[0]), ("i1", made.operands[1].value)]
        return [emitter.call(f"llvm.{stem}.{suffix(made.type)}", wide(made.type), arguments)]
    return one_by_one(emitter, made, keep=False)


# -- one lane after the other -----------------------------------------------------------------------------------


def one_by_one(emitter: Emitter, made: Instruction, keep: bool = True) -> list[str]:
    """An instruction for each active lane, in their order; what has no form for vectors."""
    if any(vector_count(operand.type) for operand in made.operands):
        raise Refused(f"{made.callee or made.op} of a vector")
    values = {
        o.value: (o.type, emitter.scalar(o) if isinstance(emitter.shape(o), Uniform) else emitter.vector(o)[0])
        for o in made.operands
        if o.is_local
    }
    uniform = {o.value: isinstance(emitter.shape(o), Uniform) for o in made.operands if o.is_local}
    parts = [] if made.type == "void" else parts_of(made.type)
    slots = [emitter.slot(f"%{emitter.fresh('r')}", wide(part)) for part in parts]
    left = emitter.slot(f"%{emitter.fresh('r')}", "i32")
    loop, done = emitter.fresh("o"), emitter.fresh("o")
    for part, slot in zip(parts, slots, strict=True):
        emitter.line(f"store {wide(part)} zeroinitializer, ptr {slot}")
    emitter.line(f"store i32 {emitter.bits(emitter.mask)}, ptr {left}")
    emitter.line(f"br label %{loop}")
    emitter.label(loop)
    rest = emitter.new(f"load i32, ptr {left}")
    lane = emitter.call("llvm.cttz.i32", "i32", [("i32", rest), ("i1", "true")])

    def value(operand: Operand) -> str:
        type_, text = values[operand.value]
        return text if uniform[operand.value] else emitter.new(f"extractelement {wide(type_)} {text}, i32 {lane}")

    own = {operand.value: value(operand) for operand in made.operands if operand.is_local}
    text = scalar_text(made, lambda operand: own[operand.value])
    if made.type == "void":
        emitter.line(text)
    else:
        result = emitter.new(text)
        for k, (part, slot) in enumerate(zip(parts, slots, strict=True)):
            piece = result if len(parts) == 1 else emitter.new(f"extractvalue {made.type} {result}, {k}")
            old = emitter.new(f"load {wide(part)}, ptr {slot}")
            changed = emitter.new(f"insertelement {wide(part)} {old}, {part} {piece}, i32 {lane}")
            emitter.line(f"store {wide(part)} {changed}, ptr {slot}")
    fewer = emitter.new(f"and i32 {rest}, {emitter.new(f'add i32 {rest}, -1')}")
    emitter.line(f"store i32 {fewer}, ptr {left}")
    emitter.line(f"br i1 {emitter.new(f'icmp ne i32 {fewer}, 0')}, label %{loop}, label %{done}")
    emitter.label(done)
    results = [emitter.new(f"load {wide(part)}, ptr {slot}") for part, slot in zip(parts, slots, strict=True)]
    if keep and made.result:
        emitter.keep_vector(made.result, made.type, results)
    return results
