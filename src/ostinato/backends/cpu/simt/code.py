"""The part of LLVM's assembly language that clang writes for a kernel: types, values, instructions, functions.

`parse_function` reads one function; what it does not know is refused with a reason (`Refused`), and the kernel then
runs another way. Metadata and attributes are dropped: nothing here depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

NAME = re.compile(r'%(?:"[^"]*"|[-\w$.]+)')
_LABEL = re.compile(r'^(?:"([^"]*)"|([-\w$.]+)):')
_METADATA = re.compile(r"(, ![\w.]+ ![0-9]+)+$")
_ATTRIBUTES = re.compile(r" #[0-9]+$")
_OPENING, _CLOSING = "<[{(", ">]})"
_BINARY = frozenset("add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem".split())
_CASTS = frozenset("trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint inttoptr bitcast".split())
_FLAGS = frozenset(
    """nuw nsw nusw exact disjoint nneg samesign inbounds fast nnan ninf nsz arcp contract afn reassoc""".split()
)
_ARGUMENT_WORDS = frozenset(
    """noundef nonnull signext zeroext noalias nocapture readonly readnone writeonly returned immarg nofree
    dead_on_unwind inreg align captures dereferenceable dereferenceable_or_null range nofpclass byval sret memory
    initializes elementtype""".split()
)


LANES = 32
"""Of a simdgroup."""


class Refused(Exception):
    """The function has something that the lane pass does not know."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and its type, both as text."""

    type: str
    value: str

    @property
    def is_local(self) -> bool:
        """Whether it is the result of an instruction or a parameter."""
        return self.value.startswith("%")


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction; which fields it has depends on the operation."""

    op: str
    result: str
    """Its name, with %, or nothing."""
    type: str
    """Of the result."""
    operands: list[Operand]
    flags: str = ""
    """Flags of arithmetic, as text; the predicate of a comparison comes first."""
    callee: str = ""
    element: str = ""
    """The type that an address is computed in, or that is allocated."""
    align: int = 1
    indices: tuple[int, ...] = ()
    """Constant positions: of fields, or of a shuffle."""
    sources: tuple[str, ...] = ()
    """The blocks that the values of a phi come from."""
    ordered: bool = False
    """Whether it is atomic or volatile."""
    text: str = ""
    """As it was written, without its result."""


def scalar_text(made: Instruction, value: Callable[[Operand], str]) -> str:
    """An instruction as it was written, with other operands."""
    operands = {operand.value: operand for operand in made.operands if operand.is_local}
    return NAME.sub(
        lambda found: value(operands[found.group()]) if found.group() in operands else found.group(), made.text
    )


@dataclass(slots=True, eq=False)
class Block:
    """Instructions without branches in between; it ends with a branch to `successors`."""

    name: str
    phis: list[Instruction] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    condition: Operand | None = None
    successors: list[str] = field(default_factory=list)
    """Of a condition: if true, if false; of a switch: the default, then one for each of `cases`."""
    cases: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class Function:
    """A function of one thread: `blocks` in their order, the entry first; only the exit has no successors."""

    name: str
    parameters: list[Operand]
    blocks: dict[str, Block]
    exit: str


EXIT = "%exit.all"


def close(text: str, start: int) -> int:
    """The position behind the bracket that closes the one at `start`."""
    depth = 0
    index = start
    while index < len(text):
        letter = text[index]
        if letter == '"':
            index = text.index('"', index + 1)
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING and not (letter == ">" and text[index - 1] == "-"):
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    raise Refused(f"unbalanced {text[start : start + 40]!r}")


def split(text: str) -> list[str]:
    """Parts between commas outside brackets."""
    parts: list[str] = []
    begin = index = 0
    while index < len(text):
        letter = text[index]
        if letter in _OPENING:
            index = close(text, index)
            continue
        if letter == '"':
            index = text.index('"', index + 1)
        elif letter == ",":
            parts.append(text[begin:index].strip())
            begin = index + 1
        index += 1
    rest = text[begin:].strip()
    return [*parts, rest] if rest else parts


def take_type(text: str) -> tuple[str, str]:
    """A type at the start of a text, and the rest."""
    text = text.lstrip()
    if text[:1] in ("<", "[", "{"):
        end = close(text, 0)
    elif text.startswith('%"'):
        end = text.index('"', 2) + 1
    else:
        found = re.match(r"[%\w.$-]+", text)
        if found is None:
            raise Refused(f"a type was expected: {text[:40]!r}")
        end = found.end()
    return text[:end], text[end:].lstrip()


def _without_words(text: str) -> str:
    """A text without the attributes at its start."""
    while True:
        found = re.match(r"[a-z_]\w*", text)
        if found is None or found.group() not in _ARGUMENT_WORDS:
            return text
        end = found.end()
        if text[end : end + 1] == "(":
            end = close(text, end)
        elif found.group() == "align":
            end = re.compile(r" \d+").match(text, end).end()  # type: ignore[union-attr]
        text = text[end:].lstrip()


def typed(text: str) -> Operand:
    """A type, attributes and a value."""
    type_, rest = take_type(text)
    return Operand(type_, _without_words(rest))


def _flags(text: str) -> tuple[str, str]:
    words: list[str] = []
    while True:
        found = re.match(r"(\w+)(\([^)]*\))?\s+", text)
        if found is None or (found[1] not in _FLAGS and found[1] != "inrange"):
            return "".join(f"{word} " for word in words), text
        words.append(found.group().strip())
        text = text[found.end() :]


def _instruction(line: str) -> Instruction:
    text = _ATTRIBUTES.sub("", _METADATA.sub("", line))
    result = ""
    found = re.match(rf"({NAME.pattern}) = ", text)
    if found:
        result, text = found[1], text[found.end() :]
    op, _, rest = text.partition(" ")
    if op in ("tail", "notail", "musttail"):
        text = rest
        op, _, rest = rest.partition(" ")
    made = Instruction(op, result, "void", [], text=text)
    _READERS.get(op, _unknown)(made, rest)
    return made


def _unknown(made: Instruction, rest: str) -> None:
    raise Refused(f"the instruction {made.op!r}")


def _binary(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    made.type, rest = take_type(rest)
    made.operands = [Operand(made.type, value) for value in split(rest)]


def _unary(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    made.operands = [typed(rest)]
    made.type = made.operands[0].type


def _compare(made: Instruction, rest: str) -> None:
    flags, rest = _flags(rest)
    predicate, _, rest = rest.partition(" ")
    type_, rest = take_type(rest)
    made.flags = f"{flags}{predicate} "
    made.operands = [Operand(type_, value) for value in split(rest)]
    made.type = _boolean_like(type_)


def _boolean_like(type_: str) -> str:
    count = vector_count(type_)
    return f"<{count} x i1>" if count else "i1"


def _cast(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    value, _, made.type = rest.rpartition(" to ")
    made.operands = [typed(value)]


def _select(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    made.operands = [typed(part) for part in split(rest)]
    made.type = made.operands[1].type


def _phi(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    made.type, rest = take_type(rest)
    pairs = [split(part[1:-1]) for part in split(rest)]
    made.operands = [Operand(made.type, value) for value, _ in pairs]
    made.sources = tuple(source for _, source in pairs)


def _alignment(parts: list[str]) -> int:
    return next((int(part[6:]) for part in parts if part.startswith("align ")), 1)


def _load(made: Instruction, rest: str) -> None:
    made.ordered = rest.startswith(("volatile ", "atomic "))
    rest = re.sub(r"^(volatile |atomic )+", "", rest)
    parts = split(rest)
    made.type = parts[0]
    made.operands = [Operand("ptr", parts[1].split()[1])]
    made.align = _alignment(parts)


def _store(made: Instruction, rest: str) -> None:
    made.ordered = rest.startswith(("volatile ", "atomic "))
    rest = re.sub(r"^(volatile |atomic )+", "", rest)
    parts = split(rest)
    made.operands = [typed(parts[0]), Operand("ptr", parts[1].split()[1])]
    made.align = _alignment(parts)


def _address(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    parts = split(rest)
    made.element = parts[0]
    made.operands = [typed(part) for part in parts[1:]]
    made.type = "ptr"


def _alloca(made: Instruction, rest: str) -> None:
    parts = split(rest)
    made.element = parts[0]
    made.align = _alignment(parts)
    made.type = "ptr"
    if len(parts) > 1 and not parts[1].startswith("align"):
        raise Refused("a local array of variable size")


def _call(made: Instruction, rest: str) -> None:
    made.flags, rest = _flags(rest)
    rest = re.sub(r"^(fastcc|ccc|coldcc) ", "", rest)
    rest = _without_words(rest)
    made.type, rest = take_type(rest)
    if rest.startswith("("):
        rest = rest[close(rest, 0) :].lstrip()
    if not rest.startswith("@"):
        raise Refused("a call through a pointer, or assembly")
    opening = rest.index("(")
    made.callee = rest[1:opening]
    made.operands = [typed(part) for part in split(rest[opening + 1 : close(rest, opening) - 1])]


def _fields(made: Instruction, rest: str) -> None:
    parts = split(rest)
    count = 1 if made.op == "extractvalue" else 2
    made.operands = [typed(part) for part in parts[:count]]
    made.indices = tuple(int(part) for part in parts[count:])
    if len(made.indices) != 1:
        raise Refused("nested aggregates")
    made.type = made.operands[0].type
    if made.op == "extractvalue":
        made.type = fields_of(made.type)[made.indices[0]]


def _elements(made: Instruction, rest: str) -> None:
    made.operands = [typed(part) for part in split(rest)]
    if made.op == "shufflevector":
        mask = made.operands.pop()
        made.indices = shuffle_indices(mask)
        made.type = f"<{len(made.indices)} x {vector_element(made.operands[0].type)}>"
    elif made.op == "extractelement":
        made.type = vector_element(made.operands[0].type)
    else:
        made.type = made.operands[0].type


def shuffle_indices(mask: Operand) -> tuple[int, ...]:
    """The positions that a constant mask names; -1 where any will do."""
    count = vector_count(mask.type)
    if mask.value == "zeroinitializer":
        return (0,) * count
    if mask.value in ("poison", "undef"):
        return (-1,) * count
    numbers = [part.split()[-1] for part in split(mask.value[1:-1])]
    return tuple(int(number) if number.isdigit() else -1 for number in numbers)


def _atomic(made: Instruction, rest: str) -> None:
    made.ordered = True
    parts = split(re.sub(r"^(weak |volatile )+", "", rest))
    if made.op == "cmpxchg":
        value = re.match(r"(.*?) (?:syncscope\S+ )?[a-z_]+ [a-z_]+$", parts[2])
        if value is None:
            raise Refused("the form of an atomic exchange")
        made.operands = [typed(parts[0]), typed(parts[1]), typed(value[1])]
        made.type = f"{{ {made.operands[1].type}, i1 }}"
    else:
        operation, _, pointer = parts[0].partition(" ")
        value = re.match(r"(.*?) (?:syncscope\S+ )?[a-z_]+$", parts[1])
        if value is None:
            raise Refused("the form of an atomic operation")
        made.flags = operation
        made.operands = [typed(pointer), typed(value[1])]
        made.type = made.operands[1].type


def _fence(made: Instruction, rest: str) -> None:
    made.ordered = True


_READERS = {
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_CASTS, _cast),
    **dict.fromkeys(("fneg", "freeze"), _unary),
    **dict.fromkeys(("icmp", "fcmp"), _compare),
    "select": _select, "phi": _phi, "load": _load, "store": _store, "getelementptr": _address, "alloca": _alloca,
    "call": _call, "extractvalue": _fields, "insertvalue": _fields, "extractelement": _elements,
    "insertelement": _elements, "shufflevector": _elements, "atomicrmw": _atomic, "cmpxchg": _atomic, "fence": _fence,
}  # fmt: skip

_IGNORED_CALLS = ("llvm.lifetime.", "llvm.assume", "llvm.dbg.", "llvm.experimental.noalias", "llvm.donothing")


def _lines(text: str) -> Iterator[str]:
    """Lines without comments and indentation, a switch on one line."""
    pending = ""
    for line in text.splitlines():
        bare = re.sub(r'("[^"]*")|;.*$', lambda found: found[1] or "", line).strip()
        if not bare or bare.startswith("#dbg"):
            continue
        if pending:
            pending = f"{pending} {bare}"
            if bare.startswith("]"):
                yield pending
                pending = ""
        elif bare.startswith("switch ") and not bare.rstrip().endswith("]"):
            pending = bare
        else:
            yield bare


def parse_function(text: str) -> Function:
    """A function, from its ``define`` to its closing brace."""
    lines = _lines(text)
    heading = next(lines)
    at = heading.index("@")
    opening = heading.index("(", at)
    parameters = []
    for number, part in enumerate(split(heading[opening + 1 : close(heading, opening) - 1])):
        parameter = typed(part)
        parameters.append(Operand(parameter.type, parameter.value or f"%{number}"))
    function = Function(heading[at + 1 : opening], parameters, {}, EXIT)
    block = Block(f"%{len(parameters)}")
    function.blocks[block.name] = block
    for line in lines:
        label = _LABEL.match(line)
        if label:
            block = Block(f'%"{label[1]}"' if label[1] is not None else f"%{label[2]}")
            if not any(function.blocks.values()):
                function.blocks.clear()
            function.blocks[block.name] = block
        elif line == "}":
            break
        else:
            _add(block, line)
    function.blocks = {name: block for name, block in function.blocks.items() if block.successors}
    function.blocks[EXIT] = Block(EXIT)
    return function


def _add(block: Block, line: str) -> None:
    text = _METADATA.sub("", line)
    if text.startswith("br label "):
        block.successors = [text[9:]]
    elif text.startswith("br i1 "):
        condition, first, second = split(text[6:])
        block.condition = Operand("i1", condition)
        block.successors = [first[6:], second[6:]]
        if first == second:
            block.condition, block.successors = None, [first[6:]]
    elif text.startswith("switch "):
        bracket = text.index("[")
        value, default = split(text[7:bracket])
        pairs = re.findall(rf"(\S+ \S+), label ({NAME.pattern})", text[bracket:])
        block.condition = typed(value)
        block.successors = [default[6:], *(label for _, label in pairs)]
        block.cases = tuple(case.split()[1] for case, _ in pairs)
    elif text in ("ret void", "unreachable"):
        block.successors = [EXIT]
    else:
        made = _instruction(line)
        if made.op == "call" and made.callee.startswith(_IGNORED_CALLS):
            return
        (block.phis if made.op == "phi" else block.body).append(made)


# -- types -------------------------------------------------------------------------------------------------------------


def vector_count(type_: str) -> int:
    """The elements of a vector type; 0 for others."""
    found = re.match(r"<(\d+) x ", type_)
    return int(found[1]) if found else 0


def vector_element(type_: str) -> str:
    """The type of the elements of a vector type."""
    return type_[type_.index(" x ") + 3 : -1]


def wide(type_: str) -> str:
    """The vector of all lanes' values of a scalar type."""
    return f"<{LANES} x {type_}>"


def suffix(type_: str) -> str:
    """What stands for that vector in the names of intrinsic functions."""
    short = {"float": "f32", "half": "f16", "double": "f64", "bfloat": "bf16", "ptr": "p0"}.get(type_, type_)
    return f"v{LANES}{short}"


def constant_vector(type_: str, values: Sequence[object]) -> str:
    """A constant with a value for each lane."""
    if all(value in (0, "0", "false") for value in values):
        return "zeroinitializer"
    return "<" + ", ".join(f"{type_} {value}" for value in values) + ">"


MASK = wide("i1")
EVERYONE = constant_vector("i1", ["true"] * LANES)


def fields_of(type_: str) -> list[str]:
    """The types of the fields of a literal struct."""
    return split(type_[type_.index("{") + 1 : type_.rindex("}")])


def parts_of(type_: str) -> list[str]:
    """The scalar types that a value consists of."""
    count = vector_count(type_)
    if count:
        return [vector_element(type_)] * count
    if type_.startswith("{"):
        return [part for field_ in fields_of(type_) for part in parts_of(field_)]
    return [type_]


def part_range(type_: str, index: int) -> slice:
    """Where the parts of a field are among those of its struct."""
    counts = [len(parts_of(field_)) for field_ in fields_of(type_)]
    return slice(sum(counts[:index]), sum(counts[: index + 1]))


_SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8, "i1": 1}


class Types:
    """Sizes and offsets of the types of a module, by the rules of x86-64 and arm64."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self.named = named
        self.layout = lru_cache(maxsize=None)(self._layout)

    def size(self, type_: str) -> int:
        """Bytes from one element of an array to the next."""
        return self.layout(type_)[0]

    def bits(self, type_: str) -> int:
        """Of a number."""
        return int(type_[1:]) if re.fullmatch(r"i\d+", type_) else 8 * self.size(type_)

    def _layout(self, type_: str) -> tuple[int, int]:
        if type_ in _SIZES:
            return _SIZES[type_], _SIZES[type_]
        if type_ in self.named:
            return self.layout(self.named[type_])
        if type_.startswith("["):
            length, element = type_[1:-1].split(" x ", 1)
            size, align = self.layout(element)
            return int(length) * size, align
        if type_.startswith(("{", "<{")):
            _offsets, size, align = self._fields(type_)
            return size, align
        count = vector_count(type_)
        if count:
            bits = count * (1 if vector_element(type_) == "i1" else 8 * self.size(vector_element(type_)))
            size = 1
            while size * 8 < bits:
                size *= 2
            return size, size
        if re.fullmatch(r"i\d+", type_):
            size = 1
            while size * 8 < int(type_[1:]):
                size *= 2
            return size, min(size, 16)
        raise Refused(f"the type {type_}")

    def _fields(self, type_: str) -> tuple[list[int], int, int]:
        packed = type_.startswith("<")
        offsets, at, widest = [], 0, 1
        for part in fields_of(type_):
            size, align = self.layout(part)
            align = 1 if packed else align
            at = -(-at // align) * align
            offsets.append(at)
            at += size
            widest = max(widest, align)
        return offsets, -(-at // widest) * widest, widest

    def strides(self, element: str, indices: Sequence[Operand]) -> tuple[int, list[tuple[int, Operand]]]:
        """The constant bytes of an address, and the bytes per unit of each index that is no constant."""
        constant, variable = 0, []
        type_ = element
        for position, index in enumerate(indices):
            if position == 0:
                step = self.size(type_)
            else:
                type_ = self.named.get(type_, type_)
                if type_.startswith(("{", "<{")):
                    offsets, _, _ = self._fields(type_)
                    constant += offsets[int(index.value)]
                    type_ = fields_of(type_)[int(index.value)]
                    continue
                type_ = type_[1:-1].split(" x ", 1)[1]
                step = self.size(type_)
            number = integer(index.value)
            if number is None:
                variable.append((step, index))
            else:
                constant += step * number
        return constant, variable


def integer(value: str) -> int | None:
    """The number that a constant is; None if it is none."""
    if value in ("true", "false"):
        return int(value == "true")
    if value in ("null", "zeroinitializer"):
        return 0
    return int(value) if re.fullmatch(r"-?\d+", value) else None
