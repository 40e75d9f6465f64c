"""Kernels as trees, to be printed as Metal (here) and interpreted (`simt_lockstep.py`).

Types are Metal's names ("int", "float4"). Every name of a kernel is unique in it, so scopes need no care. A field of a
struct is a variable called `pair.first`. Memory is what can be indexed: arrays of a thread, buffers, threadgroup
arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

STRUCTS = {"Pair": (("first", "uint"), ("second", "int"), ("third", "uint4"))}

HEAD = """#include <metal_stdlib>
using namespace metal;
struct Pair { uint first; int second; uint4 third; };
void add_by_exchange(device atomic_uint *cell, uint value) {
  uint old = atomic_load_explicit(cell, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(cell, &old, old + value, memory_order_relaxed, memory_order_relaxed)) {
  }
}
"""

BUFFERS = {
    "ints": "int",
    "uints": "uint",
    "floats": "float",
    "halves": "half",
    "shorts": "short",
    "bytes": "uchar",
}
"""Buffers that are only read, of `ELEMENTS` each."""
ELEMENTS = 256
FOURS = {"uint_fours": ("uints", "uint4"), "float_fours": ("floats", "float4"), "out_fours": ("out", "uint4")}
"""Buffers seen as vectors, by their names as such."""

OUTPUTS = {
    "out": "uint",
    "int_out": "int",
    "float_out": "float",
    "half_out": "half",
    "byte_out": "uchar",
    "scratch": "uint",
}
"""Buffers that are written: a thread has `SLOTS` elements of each for itself."""
SLOTS = 4
CELLS = "and or xor add min max exchange".split()
"""Atomic operations, the last an addition by compare-and-exchange; each has 8 elements of the buffer `cells`."""
WINDOW = 64
"""Elements that the lanes of a simdgroup share in each of `near` (threadgroup memory) and `far` (a buffer)."""
SPREAD = 2654435761
"""Element k of both begins as k times this."""
MAX_SIMDGROUPS = 5
THREADGROUP = {"tile": "uint", "float_tile": "float"}
"""Threadgroup arrays with an element for each thread."""
MAX_THREADS = 32 * MAX_SIMDGROUPS


@dataclass(frozen=True, slots=True)
class Literal:
    type: str
    value: float


@dataclass(frozen=True, slots=True)
class Read:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation that each lane does by itself; `simt_lockstep.OPERATIONS` has its meaning."""

    operation: str
    arguments: tuple[Expression, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Meet:
    """A simdgroup or quad function."""

    function: str
    arguments: tuple[Expression, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Choose:
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression
    type: str


@dataclass(frozen=True, slots=True)
class ShortCircuit:
    """`left && right` or `left || right`."""

    operator: str
    left: Expression
    right: Expression
    type: str = "bool"


@dataclass(frozen=True, slots=True)
class Load:
    memory: str
    index: Expression
    type: str


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]
    type: str


Expression: TypeAlias = "Literal | Read | Apply | Meet | Choose | ShortCircuit | Load | Call"


@dataclass(frozen=True, slots=True)
class Declare:
    name: str
    type: str
    value: Expression


@dataclass(frozen=True, slots=True)
class DeclareArray:
    name: str
    type: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class DeclareStruct:
    name: str
    type: str
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CopyStruct:
    to: str
    type: str
    source: str


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    type: str
    value: Expression


@dataclass(frozen=True, slots=True)
class AssignElement:
    """`vector[at] = value`, with `at` a constant."""

    name: str
    at: int
    value: Expression


@dataclass(frozen=True, slots=True)
class Store:
    memory: str
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class Atomic:
    """An operation on an element of `cells`; its result is not used."""

    operation: str
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class If:
    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """`for`, `while` or `do`. In the last two the counter grows first in the body, so `continue` cannot skip it."""

    keyword: str
    counter: str
    start: Expression
    condition: Expression
    step: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Case:
    label: int | None
    body: tuple[Statement, ...]
    falls_through: bool


@dataclass(frozen=True, slots=True)
class Switch:
    selector: Expression
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue` of the innermost loop; never directly inside a `switch`."""

    keyword: str


@dataclass(frozen=True, slots=True)
class Return:
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class SimdgroupBarrier:
    pass


@dataclass(frozen=True, slots=True)
class Exchange:
    """Each thread writes its element of a threadgroup array; between two barriers all may read all elements."""

    memory: str
    value: Expression
    body: tuple[Statement, ...]


Statement: TypeAlias = (
    "Declare | DeclareArray | DeclareStruct | CopyStruct | Assign | AssignElement | Store | Atomic | If | Loop "
    "| Switch | Jump | Return | SimdgroupBarrier | Exchange"
)


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    type: str
    parameters: tuple[tuple[str, str], ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel with its functions, and the grid that it runs on."""

    seed: int
    functions: tuple[Function, ...]
    body: tuple[Statement, ...]
    threads: tuple[int, ...]
    group: tuple[int, ...]
    shares: bool
    """Whether lanes of a simdgroup share `near` and `far` and rely on lockstep."""

    @property
    def thread_count(self) -> int:
        return self.threads[0] * (self.threads[1] if len(self.threads) > 1 else 1)


def element(type_: str) -> str:
    """The type of a vector's elements, or the scalar type itself."""
    return type_.rstrip("234")


def width(type_: str) -> int:
    """Elements of a vector; 1 for a scalar."""
    return int(type_[-1]) if type_[-1] in "234" else 1


# ---- printing

_INFIX = frozenset("+ - * / % & | ^ << >> < > <= >= == !=".split())


def source(programs: Sequence[Program]) -> str:
    """One source with all of these kernels, called k0, k1, …"""
    return HEAD + "\n".join(_program(program, number) for number, program in enumerate(programs))


def _program(program: Program, number: int) -> str:
    text = "\n".join([*map(_function, program.functions), _kernel(program)])
    return re.sub(r"\b(kernel_|function_)", rf"\g<1>{number}_", text).replace(f"kernel_{number}_", f"k{number}")


def _function(function: Function) -> str:
    parameters = ", ".join(f"{type_} {name}" for name, type_ in function.parameters)
    return f"{function.type} {function.name}({parameters}) {{\n{_block(function.body, 1)}}}"


def _kernel(program: Program) -> str:
    flat = len(program.threads) == 1
    position = "uint" if flat else "uint2"
    parameters = [
        *(f"device const {type_} *{name}" for name, type_ in BUFFERS.items()),
        *(f"device {type_} *{name}" for name, type_ in OUTPUTS.items()),
        "device atomic_uint *cells",
        "device uint *windows",
        "constant uint &three",
        f"{position} place [[thread_position_in_grid]]",
        f"{position} size [[threads_per_grid]]",
        f"{position} group_place [[threadgroup_position_in_grid]]",
        f"{position} group_size [[threads_per_threadgroup]]",
        f"{position} groups [[threadgroups_per_grid]]",
        "uint local [[thread_index_in_threadgroup]]",
        "uint lane [[thread_index_in_simdgroup]]",
        "uint simdgroup [[simdgroup_index_in_threadgroup]]",
    ]
    opening = [
        f"uint id = {'place' if flat else 'place.y * size.x + place.x'};",
        f"uint all = {'size' if flat else 'size.x * size.y'};",
        f"uint team = {'group_place' if flat else 'group_place.y * groups.x + group_place.x'};",
        f"uint team_size = {'group_size' if flat else 'group_size.x * group_size.y'};",
    ]
    names = names_in(program.body)
    for name, (memory, type_) in FOURS.items():
        if name in names:
            space = "device const" if memory in BUFFERS else "device"
            opening += [f"{space} {type_} *{name} = ({space} {type_} *){memory};"]
    opening += [f"threadgroup {type_} {name}[{MAX_THREADS}];" for name, type_ in THREADGROUP.items() if name in names]
    if "near" in names:
        opening += [f"threadgroup uint near_windows[{WINDOW * MAX_SIMDGROUPS}];"]
        opening += [f"threadgroup uint *near = near_windows + simdgroup * {WINDOW};"]
        opening += [f"for (uint k = 0; k < {WINDOW}; ++k) near[k] = k * {SPREAD}u;"]
    if "far" in names:
        opening += [f"device uint *far = windows + (team * {MAX_SIMDGROUPS} + simdgroup) * {WINDOW};"]
    head = "".join(f"  {line}\n" for line in opening)
    return f"kernel void kernel_({', '.join(parameters)}) {{\n{head}{_block(program.body, 1)}}}"


def names_in(tree: object) -> set[str]:
    """All names that a tree uses."""
    return {text for node in walk(tree) for text in _names(node)}


def _names(node: Any) -> list[str]:
    return [getattr(node, name) for name in ("name", "memory", "counter", "to", "source") if hasattr(node, name)]


def walk(tree: object) -> Iterator[Any]:
    """All nodes of a tree, in source order."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from walk(part)
    elif is_dataclass(tree) and not isinstance(tree, type):
        yield tree
        for field in fields(tree):
            yield from walk(getattr(tree, field.name))


def _block(statements: tuple[Statement, ...], depth: int) -> str:
    return "".join(_statement(statement, depth) for statement in statements)


def _statement(node: Statement, depth: int) -> str:
    indent = "  " * depth
    match node:
        case If(condition, then, otherwise):
            text = f"if ({show(condition)}) {{\n{_block(then, depth + 1)}{indent}}}"
            if otherwise:
                text += f" else {{\n{_block(otherwise, depth + 1)}{indent}}}"
        case Loop():
            text = _loop(node, depth)
        case Exchange(memory, value, body):
            barrier = f"{indent}threadgroup_barrier(mem_flags::mem_threadgroup);"
            inner = f"{{\n{_block(body, depth + 1)}{indent}}}"
            text = f"{memory}[local] = {show(value)};\n{barrier}\n{indent}{inner}\n{barrier}"
        case Switch(selector, cases):
            text = f"switch ({show(selector)}) {{\n{''.join(_case(case, depth) for case in cases)}{indent}}}"
        case _:
            text = f"{_simple(node)};"
    return f"{indent}{text}\n"


def _loop(node: Loop, depth: int) -> str:
    indent = "  " * depth
    start, step = f"uint {node.counter} = {show(node.start)};", f"{node.counter} += {show(node.step)}"
    body = _block(node.body, depth + 1)
    condition = show(node.condition)
    if node.keyword == "for":
        return f"for ({start} {condition}; {step}) {{\n{body}{indent}}}"
    body = f"{indent}  {step};\n{body}{indent}"
    if node.keyword == "while":
        return f"{start}\n{indent}while ({condition}) {{\n{body}}}"
    return f"{start}\n{indent}do {{\n{body}}} while ({condition});"


def _case(case: Case, depth: int) -> str:
    indent = "  " * depth
    label = "default" if case.label is None else f"case {case.label}"
    return f"{indent}{label}: {{\n{_block(case.body, depth + 1)}{indent}}} {'' if case.falls_through else 'break;'}\n"


def _simple(node: Statement) -> str:
    match node:
        case Declare(name, type_, value):
            return f"{type_} {name} = {show(value)}"
        case DeclareArray(name, type_, values):
            return f"{type_} {name}[{len(values)}] = {{{', '.join(map(show, values))}}}"
        case DeclareStruct(name, type_, values):
            return f"{type_} {name} = {{{', '.join(map(show, values))}}}"
        case CopyStruct(to, _, origin):
            return f"{to} = {origin}"
        case Assign(name, _, value):
            return f"{name} = {show(value)}"
        case AssignElement(name, at, value):
            return f"{name}.{'xyzw'[at]} = {show(value)}"
        case Store(memory, index, value):
            return f"{memory}[{show(index)}] = {show(value)}"
        case Atomic("exchange", index, value):
            return f"add_by_exchange(&cells[{show(index)}], {show(value)})"
        case Atomic(operation, index, value):
            return f"atomic_fetch_{operation}_explicit(&cells[{show(index)}], {show(value)}, memory_order_relaxed)"
        case Jump(keyword):
            return keyword
        case Return(value):
            return "return" if value is None else f"return {show(value)}"
        case SimdgroupBarrier():
            return "simdgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device)"
    raise AssertionError(node)


def show(node: Expression) -> str:
    """An expression as Metal."""
    match node:
        case Literal(type_, value):
            return _literal(type_, value)
        case Read(name, _):
            return name
        case Apply(operation, arguments, type_):
            return _application(operation, list(map(show, arguments)), type_)
        case Meet(function, arguments, _):
            text = f"{function}({', '.join(map(show, arguments))})"
            vote = function.partition("_")[0] + "_vote::vote_t"
            return f"uint({vote}({text}))" if function.endswith(("ballot", "mask")) else text
        case Choose(condition, yes, no, _):
            return f"({show(condition)} ? {show(yes)} : {show(no)})"
        case ShortCircuit(operator, left, right):
            return f"({show(left)} {operator} {show(right)})"
        case Load(memory, index, _):
            return f"{memory}[{show(index)}]"
        case Call(function, arguments, _):
            return f"{function}({', '.join(map(show, arguments))})"


def _literal(type_: str, value: float) -> str:
    match type_:
        case "uint":
            return f"{int(value)}u"
        case "float":
            return f"{float(value)}f"
        case "half":
            return f"half({float(value)}f)"
        case "bool":
            return "true" if value else "false"
    return str(int(value)) if value >= 0 else f"({int(value)})"


def _application(operation: str, shown: list[str], type_: str) -> str:
    if operation in _INFIX:
        return f"({shown[0]} {operation} {shown[1]})"
    if operation in ("!", "~"):
        return f"{operation}{shown[0]}"
    if operation.startswith("."):
        return f"{shown[0]}{operation}"
    if operation == "promote":  # by the language, without a cast
        return shown[0]
    if operation == "bits":
        return f"as_type<{type_}>({shown[0]})"
    if operation == "at":
        return f"{shown[0]}[{shown[1]}]"
    if operation == "make":  # conversions and vectors from elements
        return f"{type_}({', '.join(shown)})"
    return f"{operation}({', '.join(shown)})"


# ---- smaller programs


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one statement less or a simpler value, larger steps first; all of them still compile."""
    for body in _smaller_blocks(program.body):
        candidate = replace(program, body=body)
        used = {node.function for node in walk((body, program.functions)) if isinstance(node, Call)}
        candidate = replace(candidate, functions=tuple(f for f in program.functions if f.name in used))
        if _is_closed(candidate):
            yield candidate
    for at, function in enumerate(program.functions):
        for body in _smaller_blocks(function.body):
            if body and isinstance(body[-1], Return):
                functions = (*program.functions[:at], replace(function, body=body), *program.functions[at + 1 :])
                candidate = replace(program, functions=functions)
                if _is_closed(candidate):
                    yield candidate


def _smaller_blocks(block: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    if len(block) > 3:
        half = len(block) // 2
        yield block[:half]
        yield block[half:]
    for at, statement in enumerate(block):
        before, after = block[:at], block[at + 1 :]
        yield before + after
        match statement:
            case If(condition, then, otherwise):
                yield before + then + after
                if otherwise:
                    yield before + otherwise + after
                    yield (*before, If(condition, then), *after)
                for inner in _smaller_blocks(then):
                    yield (*before, If(condition, inner, otherwise), *after)
                for inner in _smaller_blocks(otherwise):
                    yield (*before, If(condition, then, inner), *after)
            case Loop():
                for inner in _smaller_blocks(statement.body):
                    yield (*before, replace(statement, body=inner), *after)
            case Exchange():
                for inner in _smaller_blocks(statement.body):
                    yield (*before, replace(statement, body=inner), *after)
            case Switch(selector, cases):
                for which, case in enumerate(cases):
                    yield before + case.body + after
                    for inner in _smaller_blocks(case.body):
                        changed = (*cases[:which], replace(case, body=inner), *cases[which + 1 :])
                        yield (*before, Switch(selector, changed), *after)
            case Declare() | Assign() | Store() | Atomic():
                for value in _smaller_values(statement.value):
                    yield (*before, replace(statement, value=value), *after)
            case _:
                pass


def _smaller_values(value: Expression) -> Iterator[Expression]:
    if not isinstance(value, Literal | Read) and width(value.type) == 1:
        yield Literal(value.type, 1)
    for part in walk(value):
        if part is not value and getattr(part, "type", None) == value.type:
            yield part


def _is_closed(program: Program) -> bool:
    """Whether everything that a program uses is declared before, and jumps are in loops."""
    known = {"three", "id", "all", "team", "team_size", "local", "lane", "simdgroup", "near", "far", "cells"}
    known |= BUFFERS.keys() | OUTPUTS.keys() | THREADGROUP.keys() | FOURS.keys()
    return _closed(program.body, known, False) and all(
        _closed(function.body, {name for name, _ in function.parameters} | BUFFERS.keys(), False)
        for function in program.functions
    )


def _closed(block: tuple[Statement, ...], known: set[str], in_loop: bool) -> bool:
    known = set(known)
    for statement in block:
        match statement:
            case If(condition, then, otherwise):
                good = _uses(condition) <= known and all(_closed(inner, known, in_loop) for inner in (then, otherwise))
            case Loop():
                inner = known | {statement.counter}
                good = _uses((statement.condition, statement.start, statement.step)) <= inner
                good = good and _closed(statement.body, inner, True)
            case Exchange(_, value, body):
                good = _uses(value) <= known and _closed(body, known, in_loop)
            case Switch(selector, cases):
                good = _uses(selector) <= known and all(_closed(case.body, known, in_loop) for case in cases)
            case Jump():
                good = in_loop
            case Declare(name) | DeclareArray(name) | DeclareStruct(name):
                good = _uses(statement) - {name} <= known
                known.add(name)
            case _:
                good = _uses(statement) <= known
        if not good:
            return False
    return True


def _uses(tree: object) -> set[str]:
    return {name.partition(".")[0] for name in names_in(tree)}
