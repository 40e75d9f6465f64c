"""Writes single instructions: those with one value for all lanes as scalars, spread ones as their base.

What differs between lanes, reads and writes, and what lanes do together are written by `vectors`, `memory` and
`exchanges`.
"""

from __future__ import annotations

from . import dots, exchanges, memory
from .code import Instruction, Refused, scalar_text
from .emission import Emitter, plain
from .shapes import VARYING, Shape, Spread, Uniform
from .vectors import one_by_one, write_vector


def write(emitter: Emitter, made: Instruction) -> None:
    """One instruction of a thread, for all active lanes."""
    if made.op == "alloca":
        array = f"[{emitter.private.bytes(made.result)} x i8], align 64"
        emitter.keep_scalar(made.result, "ptr", emitter.slot(f"%p.{plain(made.result)}", array))
    elif made.op == "load":
        memory.write_load(emitter, made)
    elif made.op == "store":
        memory.write_store(emitter, made)
    elif made.op in ("atomicrmw", "cmpxchg"):
        one_by_one(emitter, made)
    elif made.op == "fence":
        emitter.line(made.text)
    elif made.callee == exchanges.DIVIDED_BY_ZERO:
        emitter.line(f"call void @{made.callee}(ptr null, ptr null, ptr null)")
    elif made.op == "call" and made.callee.startswith(dots.PREFIX):
        dots.write_dot(emitter, made)
    elif made.op == "call" and made.callee.startswith("__ost_"):
        exchanges.write_exchange(emitter, made)
    else:
        shape = emitter.shapes.result(made.result) if made.result else _effect_shape(emitter, made)
        if isinstance(shape, Uniform) and shape.shift is not None:
            _write_shifted(emitter, made, shape)
        elif isinstance(shape, Uniform):
            _write_scalar(emitter, made)
        elif isinstance(shape, Spread):
            _write_spread(emitter, made, shape)
            if not shape.exact:
                write_vector(emitter, made)
        else:
            write_vector(emitter, made)


def _effect_shape(emitter: Emitter, made: Instruction) -> Shape:
    """Of a call without a result: uniform if one call does it for all lanes."""
    return Uniform() if all(isinstance(emitter.shape(o), Uniform) for o in made.operands) else VARYING


def _write_scalar(emitter: Emitter, made: Instruction) -> None:
    text = scalar_text(made, emitter.scalar)
    if made.result:
        emitter.keep_scalar(made.result, made.type, emitter.new(text))
    else:
        emitter.line(text)


def _write_shifted(emitter: Emitter, made: Instruction, shape: Uniform) -> None:
    """A value that is uniform although it is computed from spread ones."""
    if shape.constant is not None:
        emitter.keep_scalar(made.result, made.type, str(shape.constant))
        return
    value = _base_of(emitter, made)
    if shape.shift and made.type == "ptr":
        value = emitter.once(f"getelementptr i8, ptr {value}, i64 {shape.shift}")
    elif shape.shift:
        value = emitter.once(f"add {made.type} {value}, {shape.shift}")
    emitter.keep_scalar(made.result, made.type, value)


def _write_spread(emitter: Emitter, made: Instruction, shape: Spread) -> None:
    """The base of a spread value; constants that are in the offsets are left out."""
    if shape.zero:
        return
    emitter.keep_scalar(made.result, made.type, _base_of(emitter, made))


def _base_of(emitter: Emitter, made: Instruction) -> str:
    op, type_ = made.op, made.type
    if op == "getelementptr":
        return _base_address(emitter, made)
    first = made.operands[0]
    if op in ("zext", "sext"):
        offsets = emitter.shapes.result(made.result)
        assert isinstance(offsets, Spread)
        anchor = max(offsets.offsets)  # lower lanes may have wrapped below zero, where they do not matter
        moved = emitter.once(f"add {first.type} {emitter.base(first)}, {anchor}") if anchor else emitter.base(first)
        widened = emitter.once(f"{op} {first.type} {moved} to {type_}")
        return emitter.once(f"sub {type_} {widened}, {anchor}") if anchor else widened
    if op == "trunc":
        return emitter.once(f"trunc {first.type} {emitter.base(first)} to {type_}")
    if op == "freeze":
        return emitter.base(first)
    second = made.operands[1]
    shapes = [emitter.shape(first), emitter.shape(second)]
    if op in ("add", "sub", "or"):
        operation = "sub" if op == "sub" else "add"
        spread = [isinstance(shape, Spread) for shape in shapes]
        constants = [isinstance(shape, Uniform) and shape.constant is not None for shape in shapes]
        if spread[0] and constants[1]:
            return emitter.base(first)
        if spread[1] and constants[0] and operation == "add":
            return emitter.base(second)
        return emitter.once(f"{operation} {type_} {emitter.base_or_zero(first)}, {emitter.base_or_zero(second)}")
    if op in ("mul", "shl"):
        if isinstance(shapes[0], Uniform):
            first, second = second, first
        return emitter.once(f"{op} {type_} {emitter.base(first)}, {emitter.scalar(second)}")
    if op in ("and", "lshr", "udiv"):
        return emitter.once(f"{op} {type_} {emitter.base(first)}, {emitter.scalar(second)}")
    raise Refused(f"the base of {op}")


def _base_address(emitter: Emitter, made: Instruction) -> str:
    _, variable = emitter.types.strides(made.element, made.operands[1:])
    scale = emitter.private.scale(made.result)
    base = emitter.base(made.operands[0])
    for step, operand in variable:
        shape = emitter.shape(operand)
        if isinstance(shape, Spread) and shape.zero:
            continue
        index = emitter.scalar(operand)
        if operand.type != "i64":
            index = emitter.once(f"sext {operand.type} {index} to i64")
        by = emitter.once(f"mul i64 {index}, {step * scale}") if step * scale != 1 else index
        base = emitter.once(f"getelementptr i8, ptr {base}, i64 {by}")
    return base
