"""The text of a simdgroup's function as it grows, and where the values of its 32 lanes are.

Values that cross blocks live in stack slots, which the compiler turns into registers; so a block may be written twice
and entered from anywhere. `blocks` writes the flow, `instructions` what is in the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from . import exchanges
from .code import (
    EVERYONE,
    LANES,
    MASK,
    Block,
    Function,
    Operand,
    Types,
    constant_vector,
    fields_of,
    integer,
    parts_of,
    split,
    typed,
    vector_count,
    wide,
)
from .flow import Flow
from .private import Private
from .records import find_records
from .shapes import VARYING, Shape, Shapes, Spread, Uniform


class Emitter:
    """One function for all lanes of a simdgroup."""

    def __init__(
        self, function: Function, flow: Flow, shapes: Shapes, types: Types, private: Private, whole: bool
    ) -> None:
        self.function, self.flow, self.shapes, self.types, self.private = function, flow, shapes, types, private
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.declared: dict[str, str] = {}
        """Declarations of the intrinsics that are called."""
        self.helpers: dict[str, Sequence[str]] = {}
        """The lines of functions that are called, by their headings."""
        self._numbers = count()
        self._kept: set[str] = set()
        """Names of slots that exist."""
        self.all_lanes = None if whole else "%lanes"
        self.mask: str | None = self.all_lanes
        """The active lanes; None if all are."""
        self.block = ""
        self._scalars: dict[str, str] = {}
        self._vectors: dict[str, list[str]] = {}
        self._written: dict[str, str] = {}
        self._places: dict[str, str] = {}
        """Where values lie in memory as well."""
        self.parameters = {p.value: f"%a{number}" for number, p in enumerate(function.parameters)}
        self._crossing, self._leaving = self._find_uses()
        self.tiles = exchanges.tile_values(function)
        self.regions = flow.regions(sorted(shapes.divergent, key=flow.order.index))
        masked = {name for region in self.regions for name in region.blocks}
        self._factors, self._sums = exchanges.products(function, masked)
        self.records = find_records(function, shapes, types, private)

    def _find_uses(self) -> tuple[set[str], set[str]]:
        """The values that are used in other blocks than their own, and those used behind loops that lanes leave."""
        crossing: set[str] = set()
        leaving: set[str] = set()

        def use(operand: Operand, block: str) -> None:
            if operand.is_local and operand.value in self.shapes.block_of:
                if self.shapes.block_of[operand.value] != block:
                    crossing.add(operand.value)
                if self.shapes.leaves_torn_loop(operand.value, block):
                    leaving.add(operand.value)

        for name, block in self.function.blocks.items():
            for phi in block.phis:
                crossing.add(phi.result)
                for operand, source in zip(phi.operands, phi.sources, strict=True):
                    use(operand, source)
            for instruction in block.body:
                for operand in instruction.operands:
                    use(operand, name)
            if block.condition is not None:
                use(block.condition, name)
        return crossing, leaving

    # -- pieces of text ---------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """A line of the function."""
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        """The start of a block of the output."""
        self.lines.append(f"{name}:")

    def fresh(self, kind: str = "t") -> str:
        """A name, without %."""
        return f"{kind}{next(self._numbers)}"

    def new(self, expression: str) -> str:
        """The name of a new value."""
        name = f"%{self.fresh()}"
        self.line(f"{name} = {expression}")
        return name

    def once(self, expression: str) -> str:
        """The name of a value that need not be computed twice in a block."""
        name = self._written.get(expression)
        if name is None:
            name = self._written[expression] = self.new(expression)
        return name

    def slot(self, name: str, type_: str) -> str:
        """A slot on the stack."""
        if name not in self._kept:
            self._kept.add(name)
            self.slots.append(f"{name} = alloca {type_}")
        return name

    def intrinsic(self, name: str, result: str, parameters: Sequence[str]) -> str:
        """The name of an intrinsic function, which is declared."""
        self.declared[name] = f"declare {result} @{name}({', '.join(parameters)})"
        return name

    def call(self, name: str, result: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of an intrinsic."""
        self.intrinsic(name, result, [type_ for type_, _ in arguments])
        text = ", ".join(f"{type_} {value}" for type_, value in arguments)
        if result == "void":
            self.line(f"call void @{name}({text})")
            return ""
        return self.new(f"call {result} @{name}({text})")

    # -- values -----------------------------------------------------------------------------------------------------

    def shape(self, operand: Operand) -> Shape:
        """The shape of an operand in the current block."""
        return self.shapes.of(operand, self.block)

    def scalar(self, operand: Operand) -> str:
        """A uniform value."""
        if not operand.is_local:
            return operand.value
        return self._scalar(operand.value, operand.type)

    base = scalar
    """The base of a spread value: kept like a uniform one."""

    def base_or_zero(self, operand: Operand) -> str:
        """The same; a constant if the base is zero."""
        shape = self.shape(operand)
        return "0" if isinstance(shape, Spread) and shape.zero else self.scalar(operand)

    def _scalar(self, name: str, type_: str) -> str:
        if name in self.parameters:
            return self.parameters[name]
        known = self._scalars.get(name)
        if known is None:
            shape = self.shapes.result(name)
            if isinstance(shape, Spread) and shape.zero:
                return "0"
            known = self._scalars[name] = self.new(f"load {type_}, ptr {self._scalar_slot(name, type_)}")
        return known

    def _scalar_slot(self, name: str, type_: str) -> str:
        return self.slot(f"%s.{plain(name)}", type_)

    def _vector_slot(self, name: str, part: int, type_: str, leaving: bool = False) -> str:
        name = name if leaving else self._sums.get(name, name)
        return self.slot(f"%{'o' if leaving else 'v'}.{plain(name)}.{part}", type_)

    def mask_slot(self, block: str) -> str:
        """Where the lanes that wait for a block's masked copy are kept."""
        return self.slot(f"%k.{plain(block)}", MASK)

    def _stored_types(self, name: str, type_: str) -> list[str]:
        if name in self.tiles:
            return [exchanges.tile_type(type_)]
        return [wide(part) for part in parts_of(type_)]

    def vector(self, operand: Operand) -> list[str]:
        """A value as vectors over the lanes, one for each of its parts."""
        if not operand.is_local:
            return self._constant(operand)
        name = operand.value
        if self.shapes.leaves_torn_loop(name, self.block):
            key = f"out {name}"
            if key not in self._vectors:
                self._vectors[key] = [
                    self.new(f"load {type_}, ptr {self._vector_slot(name, part, type_, leaving=True)}")
                    for part, type_ in enumerate(self._stored_types(name, operand.type))
                ]
            stored = self._vectors[key]
        else:
            stored = self._stored(operand)
        if name in self.tiles:
            return exchanges.untiled(self, stored[0], operand.type)
        return stored

    def tile(self, operand: Operand) -> str:
        """A value of two parts as a matrix."""
        if operand.value in self.tiles and not self.shapes.leaves_torn_loop(operand.value, self.block):
            return self._stored(operand)[0]
        return exchanges.tiled(self, self.vector(operand), operand.type)

    def tile_place(self, operand: Operand) -> str | None:
        """The address of a matrix, if it lies in memory."""
        name = operand.value
        if name not in self.tiles or self.shapes.leaves_torn_loop(name, self.block):
            return None
        if not self._has_slot(name) or self.shapes.result(name) is not VARYING:
            return None
        return self._vector_slot(name, 0, exchanges.tile_type(operand.type))

    def place(self, value: str, type_: str) -> str:
        """The address of a copy of a value in memory, for functions that take it from there."""
        known = self._places.get(value)
        if known is None:
            known = self._places[value] = self.slot(f"%{self.fresh('m')}", type_)
            self.line(f"store {type_} {value}, ptr {known}")
        return known

    def result_place(self, name: str, type_: str) -> str:
        """Where a function writes a result of one part."""
        return self._vector_slot(name, 0, type_)

    def keep_placed(self, name: str, type_: str) -> None:
        """A result that a function has written to its place, from where it is read."""
        self._vectors.pop(name, None)
        if name in self._leaving:
            self._keep_leaving(name, type_)

    def _stored(self, operand: Operand) -> list[str]:
        name = operand.value
        known = self._vectors.get(name)
        if known is not None:
            return known
        shape = self.shapes.result(name) if name not in self.parameters else Uniform()
        if isinstance(shape, Uniform):
            known = self._splat_parts(operand)
        elif isinstance(shape, Spread) and shape.exact:
            known = [self._spread_vector(operand, shape)]
        else:
            known = []
            for part, type_ in enumerate(self._stored_types(name, operand.type)):
                slot = self._vector_slot(name, part, type_)
                known.append(self.new(f"load {type_}, ptr {slot}"))
                self._places[known[-1]] = slot
        self._vectors[name] = known
        return known

    def _splat_parts(self, operand: Operand) -> list[str]:
        return [self.splat(type_, piece) for type_, piece in self._pieces(operand.type, self.scalar(operand))]

    def _pieces(self, type_: str, scalar: str) -> list[tuple[str, str]]:
        """The parts of a uniform value, with their types."""
        if vector_count(type_):
            return [
                (part, self.once(f"extractelement {type_} {scalar}, i32 {k}")) for k, part in enumerate(parts_of(type_))
            ]
        if not type_.startswith("{"):
            return [(type_, scalar)]
        fields = [(field, self.once(f"extractvalue {type_} {scalar}, {k}")) for k, field in enumerate(fields_of(type_))]
        return [piece for field, value in fields for piece in self._pieces(field, value)]

    def splat(self, type_: str, scalar: str) -> str:
        """The same in all lanes."""
        if scalar == "poison":
            return "poison"
        if integer(scalar) == 0 or scalar in ("undef", "0.000000e+00"):
            return "zeroinitializer"
        if not scalar.startswith(("%", "@")) and "(" not in scalar:
            return constant_vector(type_, [scalar] * LANES)
        one = self.once(f"insertelement {wide(type_)} poison, {type_} {scalar}, i64 0")
        return self.once(f"shufflevector {wide(type_)} {one}, {wide(type_)} poison, <{LANES} x i32> zeroinitializer")

    def _spread_vector(self, operand: Operand, shape: Spread) -> str:
        offsets = constant_vector("i64" if operand.type == "ptr" else operand.type, shape.offsets)
        if shape.zero:
            return offsets
        base = self.scalar(operand)
        if operand.type == "ptr":
            return self.once(f"getelementptr i8, ptr {base}, {wide('i64')} {offsets}")
        return self.once(f"add {wide(operand.type)} {self.splat(operand.type, base)}, {offsets}")

    def _constant(self, operand: Operand) -> list[str]:
        type_, value = operand.type, operand.value
        parts = parts_of(type_)
        if value in ("poison", "undef", "zeroinitializer"):
            # What is undefined may be a part of a number of which other parts are not.
            return ["poison" if value == "poison" else "zeroinitializer"] * len(parts)
        if type_.startswith("{"):
            fields = [typed(text) for text in split(value[1:-1])]
            return [part for field in fields for part in self._constant(field)]
        if not vector_count(type_):
            return [self.splat(type_, value)]
        if value.startswith("splat"):
            return [self.splat(part, typed(value[value.index("(") + 1 : -1]).value) for part in parts]
        elements = [typed(text) for text in split(value[1:-1])]
        return [self.splat(element.type, element.value) for element in elements]

    # -- results ----------------------------------------------------------------------------------------------------

    def keep_scalar(self, name: str, type_: str, value: str) -> None:
        """A result that is uniform, or the base of a spread one."""
        self._scalars[name] = value
        if name in self._crossing:
            self.line(f"store {type_} {value}, ptr {self._scalar_slot(name, type_)}")
        if name in self._leaving and self._is_scalar(name):
            self._keep_leaving(name, type_)

    def keep_vector(self, name: str, type_: str, parts: Sequence[str]) -> None:
        """A result as vectors."""
        self._vectors[name] = list(parts)
        if self._has_slot(name):
            for part, (stored, value) in enumerate(zip(self._stored_types(name, type_), parts, strict=True)):
                slot = self._vector_slot(name, part, stored)
                self.line(f"store {stored} {value}, ptr {slot}")
                self._places[value] = slot
        if name in self._leaving:
            self._keep_leaving(name, type_)

    def _has_slot(self, name: str) -> bool:
        """Whether a result is stored: other blocks, or the function that multiplies matrices, read it from memory."""
        return name in self._crossing or name in self._factors

    def _is_scalar(self, name: str) -> bool:
        """Whether a scalar is all that is kept of a result."""
        shape = self.shapes.result(name)
        return isinstance(shape, Uniform) or (isinstance(shape, Spread) and shape.exact)

    def _keep_leaving(self, name: str, type_: str) -> None:
        """Each lane keeps the value of its last iteration."""
        operand = Operand(type_, name)
        for part, (stored, value) in enumerate(
            zip(self._stored_types(name, type_), self._stored(operand), strict=True)
        ):
            slot = self._vector_slot(name, part, stored, leaving=True)
            if self.mask is not None:
                old = self.new(f"load {stored}, ptr {slot}")
                value = self.chosen(self.mask, stored, value, old)
            self.line(f"store {stored} {value}, ptr {slot}")

    def chosen(self, mask: str, type_: str, value: str, other: str) -> str:
        """Lane by lane the one or the other."""
        if vector_count(type_) == 2 * LANES:
            mask = exchanges.mask_of_tile(self, mask)
            return self.new(f"select <{2 * LANES} x i1> {mask}, {type_} {value}, {type_} {other}")
        return self.new(f"select {MASK} {mask}, {type_} {value}, {type_} {other}")

    # -- masks ------------------------------------------------------------------------------------------------------

    def bits(self, mask: str | None) -> str:
        """A mask as a number."""
        return "-1" if mask is None else self.once(f"bitcast {MASK} {mask} to i32")

    def mask_text(self) -> str:
        """The active lanes as a vector."""
        return self.mask if self.mask is not None else EVERYONE

    def within(self, mask: str | None, condition: str) -> str:
        """The lanes of a mask for which a condition holds."""
        if mask is None:
            return condition
        return self.new(f"select {MASK} {mask}, {MASK} {condition}, {MASK} zeroinitializer")

    # -- flow -------------------------------------------------------------------------------------------------------

    def begin(self, block: str, mask: str | None) -> None:
        """The start of a block of the thread, of which these lanes are in it."""
        self.block, self.mask = block, mask
        self.forget()

    def forget(self) -> None:
        """From here on values are only known from their slots: what follows is entered from elsewhere too."""
        self._scalars, self._vectors, self._written, self._places = {}, {}, {}, {}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is written inside this context is known only there."""
        known = dict(self._scalars), dict(self._vectors), dict(self._written), dict(self._places)
        yield
        self._scalars, self._vectors, self._written, self._places = known

    @contextmanager
    def helper(self, heading: str) -> Iterator[None]:
        """What is written inside this context is the body of a function."""
        lines, self.lines = self.lines, []
        with self.aside():
            self.forget()
            yield
        self.helpers[heading] = tuple(line.strip() for line in self.lines)
        self.lines = lines

    def keep_phis(self, block: Block) -> None:
        """The values of the phis of a block that has begun."""
        for phi in block.phis:
            if phi.result in self._leaving:
                self._keep_leaving(phi.result, phi.type)

    def read_phis(self, source: str, target: str) -> None:
        """Makes known what the phis of a block get on an edge to it, as long as no other edge has changed it."""
        for phi in self.function.blocks[target].phis:
            operand = phi.operands[phi.sources.index(source)]
            if not operand.is_local or operand.value in self.parameters:
                continue
            shape = self.shapes.result(phi.result)
            if isinstance(shape, Uniform | Spread) and not (isinstance(shape, Spread) and shape.zero):
                self.scalar(operand)
            if not self._is_scalar(phi.result):
                self.tile(operand) if phi.result in self.tiles else self.vector(operand)

    def copy_phis(self, source: str, target: str, mask: str | None, certain: bool = True) -> None:
        """The values that the phis of a block get on an edge to it, in the lanes of `mask`; None: in all."""
        writes: list[tuple[str, str, str]] = []
        for phi in self.function.blocks[target].phis:
            operand = phi.operands[phi.sources.index(source)]
            if operand.value in ("poison", "undef"):
                continue
            shape = self.shapes.result(phi.result)
            if isinstance(shape, Uniform | Spread) and not (isinstance(shape, Spread) and shape.zero):
                value = self._phi_base(operand, shape)
                slot = self._scalar_slot(phi.result, phi.type)
                if mask is not None and not certain:
                    some = self.once(f"icmp ne i32 {self.bits(mask)}, 0")
                    old = self.new(f"load {phi.type}, ptr {slot}")
                    value = self.new(f"select i1 {some}, {phi.type} {value}, {phi.type} {old}")
                writes.append((phi.type, value, slot))
            if self._is_scalar(phi.result):
                continue
            if operand.value in self._sums and self._sums[operand.value] == self._sums.get(phi.result, phi.result):
                continue  # it lies there
            parts = [self.tile(operand)] if phi.result in self.tiles else self.vector(operand)
            for part, (type_, value) in enumerate(zip(self._stored_types(phi.result, phi.type), parts, strict=True)):
                slot = self._vector_slot(phi.result, part, type_)
                if mask is not None:
                    value = self.chosen(mask, type_, value, self.new(f"load {type_}, ptr {slot}"))
                writes.append((type_, value, slot))
        for type_, value, slot in writes:
            self.line(f"store {type_} {value}, ptr {slot}")

    def _phi_base(self, operand: Operand, shape: Shape) -> str:
        value = self.scalar(operand)
        if not isinstance(shape, Spread):
            return value
        incoming = self.shape(operand)
        assert isinstance(incoming, Spread)
        by = incoming.offsets[0] - shape.offsets[0]
        if by == 0:
            return value
        if operand.type == "ptr":
            return self.new(f"getelementptr i8, ptr {value}, i64 {by}")
        return self.new(f"add {operand.type} {value}, {by}")


def plain(name: str) -> str:
    """A name for labels and slots."""
    return "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in name[1:])
