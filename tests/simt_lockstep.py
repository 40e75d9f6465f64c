"""What a program of `simt_tree.py` computes if the lanes of each simdgroup step together.

A statement is run for all active lanes before the next begins. Its reads come before its writes; lanes write in order,
so the last of several that write one element wins. In a condition the lanes that take the first branch go first. A loop
goes on until its last lane has left. Simdgroups of a group meet at barriers only. Written from Metal's specification
and docs/how-kernels-run.md, not from the way kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from simt_tree import (
    FOURS,
    MAX_SIMDGROUPS,
    MAX_THREADS,
    SPREAD,
    STRUCTS,
    THREADGROUP,
    WINDOW,
    Apply,
    Assign,
    AssignElement,
    Atomic,
    Call,
    Choose,
    CopyStruct,
    Declare,
    DeclareArray,
    DeclareStruct,
    Exchange,
    Expression,
    If,
    Jump,
    Literal,
    Load,
    Loop,
    Meet,
    Program,
    Read,
    Return,
    ShortCircuit,
    SimdgroupBarrier,
    Statement,
    Store,
    Switch,
    element,
    width,
)

DTYPES: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "int": np.int32,
    "uint": np.uint32,
    "short": np.int16,
    "ushort": np.uint16,
    "uchar": np.uint8,
    "float": np.float32,
    "half": np.float16,
}
Array: TypeAlias = np.ndarray[Any, Any]

LANES = np.arange(32)
Steps = Generator[None, None, Array]
"""Runs statements, pausing at barriers; returns the lanes that come out at the end."""


def run(program: Program, buffers: Mapping[str, Array]) -> None:
    """Runs a program on these buffers (those of `simt_tree`, `cells` and `windows`, and `three`), changing them."""
    width_, height = program.threads[0], program.threads[1] if len(program.threads) > 1 else 1
    group_width, group_height = program.group[0], program.group[1] if len(program.group) > 1 else 1
    across = -(-width_ // group_width)
    with np.errstate(all="ignore"):  # inactive lanes compute as well
        for team in range(across * -(-height // group_height)):
            left, top = team % across * group_width, team // across * group_height
            wide, high = min(group_width, width_ - left), min(group_height, height - top)
            tiles = {name: np.zeros(MAX_THREADS, DTYPES[type_]) for name, type_ in THREADGROUP.items()}
            paused = []
            for simdgroup in range(-(-wide * high // 32)):
                local = simdgroup * 32 + LANES
                start = (team * MAX_SIMDGROUPS + simdgroup) * WINDOW
                values = {
                    "id": (top + local // wide) * width_ + left + local % wide,
                    "all": width_ * height,
                    "team": team,
                    "team_size": wide * high,
                    "local": local,
                    "lane": LANES,
                    "simdgroup": simdgroup,
                    "three": int(buffers["three"]),
                }
                near = np.arange(WINDOW, dtype=np.uint32) * np.uint32(SPREAD)
                windows = {"near": near, "far": buffers["windows"][start : start + WINDOW]}
                frame = _Frame({name: np.full(32, value).astype(np.uint32) for name, value in values.items()})
                fours = {name: buffers[memory].reshape(-1, 4) for name, (memory, _) in FOURS.items()}
                runner = _Simdgroup(program, {**buffers, **fours, **tiles, **windows})
                paused.append(runner.block(program.body, local < wide * high, frame, None))
            while paused:
                still = [steps for steps in paused if next(steps, "returned") is None]
                assert len(still) in (0, len(paused)), "a barrier that only some of the simdgroups come to"
                paused = still


@dataclass(slots=True)
class _Frame:
    """The variables and arrays of a function's lanes, and which of them have returned what."""

    values: dict[str, Array]
    result: Array | None = None


@dataclass(slots=True)
class _Left:
    """Lanes that left an iteration of a loop."""

    broken: Array = field(default_factory=lambda: np.zeros(32, bool))
    continued: Array = field(default_factory=lambda: np.zeros(32, bool))


@dataclass(frozen=True, slots=True)
class _Simdgroup:
    program: Program
    memory: Mapping[str, Array]

    def block(self, block: tuple[Statement, ...], mask: Array, frame: _Frame, left: _Left | None) -> Steps:
        for statement in block:
            if not mask.any():
                break
            mask = yield from self.statement(statement, mask, frame, left)
        return mask

    def statement(self, node: Statement, mask: Array, frame: _Frame, left: _Left | None) -> Steps:
        match node:
            case Declare(name, type_, value) | Assign(name, type_, value):
                self.set(name, type_, self.value(value, mask, frame), mask, frame)
            case DeclareArray(name, type_, values):
                columns = [self.value(value, mask, frame) for value in values]
                frame.values[name] = np.stack(columns, 1).astype(DTYPES[element(type_)])
            case DeclareStruct(name, type_, values):
                for (field_, field_type), value in zip(STRUCTS[type_], values, strict=True):
                    self.set(f"{name}.{field_}", field_type, self.value(value, mask, frame), mask, frame)
            case CopyStruct(to, type_, source):
                for field_, field_type in STRUCTS[type_]:
                    self.set(f"{to}.{field_}", field_type, frame.values[f"{source}.{field_}"], mask, frame)
            case AssignElement(name, at, value):
                vector = frame.values[name].copy()
                vector[mask, at] = self.value(value, mask, frame)[mask]
                frame.values[name] = vector
            case Store(memory, index, value):
                self.store(memory, self.value(index, mask, frame), self.value(value, mask, frame), mask, frame)
            case Atomic(operation, index, value):
                places, operands = self.value(index, mask, frame), self.value(value, mask, frame)
                _ATOMIC[operation].at(self.memory["cells"], places[mask], operands[mask])
            case If(condition, then, otherwise):
                taken = self.value(condition, mask, frame)
                first = yield from self.block(then, mask & taken, frame, left)
                second = yield from self.block(otherwise, mask & ~taken, frame, left)
                return first | second
            case Loop():
                return (yield from self.loop(node, mask, frame))
            case Switch(selector, cases):
                chosen = self.value(selector, mask, frame)
                labels = [case.label for case in cases if case.label is not None]
                inside, out = np.zeros(32, bool), np.zeros(32, bool)
                for case in cases:
                    entering = ~np.isin(chosen, labels) if case.label is None else chosen == case.label
                    inside = yield from self.block(case.body, inside | (mask & entering), frame, left)
                    if not case.falls_through:
                        out, inside = out | inside, np.zeros(32, bool)
                has_default = any(case.label is None for case in cases)
                return out | inside | (mask & ~np.isin(chosen, labels) & (not has_default))
            case Jump(keyword):
                assert left is not None
                if keyword == "break":
                    left.broken |= mask
                else:
                    left.continued |= mask
                return np.zeros(32, bool)
            case Return(value):
                if value is not None:
                    result = self.value(value, mask, frame)
                    frame.result = result if frame.result is None else _where(mask, result, frame.result)
                return np.zeros(32, bool)
            case Exchange(memory, value, body):
                self.memory[memory][frame.values["local"][mask]] = self.value(value, mask, frame)[mask]
                yield
                mask = yield from self.block(body, mask, frame, left)
                yield
            case SimdgroupBarrier():
                pass
        return mask

    def loop(self, node: Loop, mask: Array, frame: _Frame) -> Steps:
        self.set(node.counter, "uint", self.value(node.start, mask, frame), mask, frame)
        out, first = np.zeros(32, bool), node.keyword == "do"
        while mask.any():
            if not first:
                goes_on = self.value(node.condition, mask, frame)
                out, mask = out | (mask & ~goes_on), mask & goes_on
                if not mask.any():
                    break
            first = False
            left = _Left()
            if node.keyword != "for":
                self.step(node, mask, frame)
            mask = yield from self.block(node.body, mask, frame, left)
            mask, out = mask | left.continued, out | left.broken
            if node.keyword == "for" and mask.any():
                self.step(node, mask, frame)
        return out

    def step(self, node: Loop, mask: Array, frame: _Frame) -> None:
        grown = frame.values[node.counter] + self.value(node.step, mask, frame)
        self.set(node.counter, "uint", grown, mask, frame)

    def set(self, name: str, type_: str, value: Array, mask: Array, frame: _Frame) -> None:
        value = value.astype(DTYPES[element(type_)])
        old = frame.values.get(name)
        frame.values[name] = value if old is None else _where(mask, value, old)

    def store(self, memory: str, index: Array, value: Array, mask: Array, frame: _Frame) -> None:
        if memory in frame.values:
            array = frame.values[memory].copy()
            array[LANES[mask], index[mask]] = value[mask]
            frame.values[memory] = array
        else:
            target = self.memory[memory]
            for lane in LANES[mask]:
                target[index[lane]] = value[lane]

    def value(self, node: Expression, mask: Array, frame: _Frame) -> Array:
        """An expression in all lanes; what it is in those outside the mask does not matter."""
        match node:
            case Literal(type_, value):
                return np.full(32, value).astype(DTYPES[type_])
            case Read(name, _):
                return frame.values[name]
            case Apply(operation, arguments, type_):
                values = [self.value(argument, mask, frame) for argument in arguments]
                return _apply(operation, values, type_)
            case Meet(function, arguments, type_):
                values = [self.value(argument, mask, frame) for argument in arguments]
                return _meet(function, values, mask).astype(DTYPES[element(type_)])
            case Choose(condition, yes, no, _):
                taken = self.value(condition, mask, frame)
                if not (mask & taken).any():
                    return self.value(no, mask, frame)
                first = self.value(yes, mask & taken, frame)
                if not (mask & ~taken).any():
                    return first
                return _where(taken, first, self.value(no, mask & ~taken, frame))
            case ShortCircuit(operator, left, right):
                first = self.value(left, mask, frame)
                asking = mask & (first if operator == "&&" else ~first)
                if not asking.any():
                    return first
                second = self.value(right, asking, frame)
                return np.where(asking, second, first)
            case Load(memory, index, _):
                places = np.where(mask, self.value(index, mask, frame), 0)
                if memory in frame.values:
                    return frame.values[memory][LANES, places]
                return self.memory[memory][places]
            case Call(function, arguments, type_):
                return self.call(function, [self.value(argument, mask, frame) for argument in arguments], type_, mask)

    def call(self, name: str, arguments: list[Array], type_: str, mask: Array) -> Array:
        function = next(function for function in self.program.functions if function.name == name)
        frame = _Frame({})
        for (parameter, parameter_type), argument in zip(function.parameters, arguments, strict=True):
            self.set(parameter, parameter_type, argument, mask, frame)
        for _ in self.block(function.body, mask, frame, None):
            raise AssertionError("a function has no barrier")
        assert frame.result is not None
        return frame.result.astype(DTYPES[element(type_)])


def _where(mask: Array, yes: Array, no: Array) -> Array:
    return np.where(mask[:, None] if yes.ndim == 2 else mask, yes, no)


# ---- what a lane does by itself


def _bits(function: Callable[[int], int]) -> Callable[..., Array]:
    return lambda x: np.array([function(int(v)) for v in x], np.uint32)


def _divided(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return x / y
    y = np.where(y == 0, 1, y).astype(y.dtype)
    quotient = np.abs(x.astype(np.int64)) // np.abs(y.astype(np.int64))
    return (quotient * np.sign(x.astype(np.int64)) * np.sign(y.astype(np.int64))).astype(x.dtype)


def _remainder(x: Array, y: Array) -> Array:
    return np.asarray(x - _divided(x, y) * y, x.dtype)


def _rotated(x: Array, y: Array) -> Array:
    wide = x.astype(np.uint64)
    by = y.astype(np.uint64) & np.uint64(31)
    return ((wide << by) | (wide >> (np.uint64(32) - by))).astype(np.uint32)


def _fused(x: Array, y: Array, z: Array) -> Array:
    # The product is exact; that the sum is rounded twice has not mattered in any program here.
    return (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float32)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": _divided,
    "%": _remainder,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": lambda x, y: np.right_shift(x, y.astype(x.dtype)),
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "!": np.logical_not,
    "~": np.invert,
    "min": np.minimum,
    "max": np.maximum,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "abs": np.abs,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "fma": _fused,
    "popcount": _bits(int.bit_count),
    "clz": _bits(lambda v: 32 - v.bit_length()),
    "reverse_bits": _bits(lambda v: int(f"{v:032b}"[::-1], 2)),
    "rotate": _rotated,
    "mulhi": lambda x, y: ((x.astype(np.uint64) * y.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32),
}


def _apply(operation: str, values: list[Array], type_: str) -> Array:
    dtype = DTYPES[element(type_)]
    if operation == "promote" or (operation == "make" and width(type_) == 1):
        return values[0].astype(dtype)
    if operation == "make":
        columns = values * width(type_) if len(values) == 1 else values
        return np.stack(columns, 1).astype(dtype) if values[0].ndim == 1 else values[0].astype(dtype)
    if operation == "bits":
        return np.ascontiguousarray(values[0]).view(dtype)
    if operation == "at":
        return np.asarray(values[0][LANES, values[1] % values[0].shape[1]])
    if operation.startswith("."):
        places = ["xyzw".index(letter) for letter in operation[1:]]
        return values[0][:, places[0] if len(places) == 1 else places]
    if any(value.ndim == 2 for value in values):
        values = [value if value.ndim == 2 else value[:, None] for value in values]
    return OPERATIONS[operation](*values).astype(dtype)


_ATOMIC: dict[str, np.ufunc] = {
    "add": np.add,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
    "exchange": np.add,
}


# ---- what lanes do together

_REDUCTIONS: dict[str, tuple[np.ufunc, int | None]] = {
    "sum": (np.add, 0),
    "product": (np.multiply, 1),
    "min": (np.minimum, None),
    "max": (np.maximum, None),
    "and": (np.bitwise_and, None),
    "or": (np.bitwise_or, None),
    "xor": (np.bitwise_xor, 0),
}
"""The operation, and what absent lanes contribute: nothing where a value counts no more if it comes twice."""


def _meet(function: str, values: list[Array], active: Array) -> Array:
    family, _, name = function.partition("_")
    size = 32 if family == "simd" else 4
    own = LANES % size
    first = np.array([next((at for at in group if active[at]), group[0]) for group in LANES.reshape(-1, size)])
    first = np.repeat(first, size)
    if name in _REDUCTIONS:
        return _reduced(name, values[0], active, first, size)
    if name.startswith("prefix_"):
        _, kind, operation = name.split("_")
        return _prefix(operation, kind == "inclusive", values[0], active, size)
    match name:
        case "is_first":
            return np.asarray(first == LANES)
        case "broadcast_first":
            return np.asarray(values[0][first])
        case "any":
            return np.repeat((values[0] & active).reshape(-1, size).any(1), size)
        case "all":
            return np.repeat((values[0] | ~active).reshape(-1, size).all(1), size)
        case "ballot" | "active_threads_mask":
            votes = (values[0] if values else np.ones(32, bool)) & active
            numbers = (votes.reshape(-1, size) << np.arange(size)).sum(1)
            return np.repeat(numbers, size).astype(np.uint32)
        case "shuffle_and_fill_up" | "shuffle_and_fill_down":
            return _filled(values, active, size, name.endswith("up"))
    by = values[1].astype(np.int64)
    target = {
        "shuffle": by,
        "broadcast": by,
        "shuffle_up": own - by,
        "shuffle_down": own + by,
        "shuffle_xor": own ^ by,
        "shuffle_rotate_up": (own - by) % size,
        "shuffle_rotate_down": (own + by) % size,
    }[name]
    lane = np.where((target >= 0) & (target < size), LANES - own + target, LANES)
    return values[0][np.where(active[lane], lane, LANES)]


def _reduced(name: str, value: Array, active: Array, first: Array, size: int) -> Array:
    operation, identity = _REDUCTIONS[name]
    wide = value.astype(np.float32) if value.dtype == np.float16 else value
    absent = wide[first] if identity is None else np.full_like(wide, identity)
    parts = _where(active, wide, absent).reshape(-1, size, *wide.shape[1:])
    while parts.shape[1] > 1:
        half = parts.shape[1] // 2
        parts = operation(parts[:, :half], parts[:, half:])
    return np.repeat(parts[:, 0], size, axis=0).astype(value.dtype)


def _prefix(name: str, inclusive: bool, value: Array, active: Array, size: int) -> Array:
    operation, identity = _REDUCTIONS[name]
    wide = value.astype(np.float32) if value.dtype == np.float16 else value
    result = np.empty_like(wide)
    start = after = np.full_like(wide[0], identity)
    for lane in LANES:
        before = start if lane % size == 0 else after
        after = operation(before, wide[lane]) if active[lane] else before
        result[lane] = after if inclusive else before
    return result.astype(value.dtype)


def _filled(values: list[Array], active: Array, size: int, up: bool) -> Array:
    value, filling, delta = values[0], values[1], values[2].astype(np.int64)
    modulo = values[3].astype(np.int64) if len(values) > 3 else np.full(32, size)
    own = LANES % size
    at, base = own % modulo, LANES - own % modulo
    target = at - delta if up else at + delta
    outside = (target < 0) | (target >= modulo)
    lane = base + target % modulo
    lane = np.where(active[lane], lane, LANES)
    return _where(outside, filling[lane], value[lane])
