"""Writes the code of a simdgroup's 32 lanes.

Values that cross blocks live in stack slots, which the compiler turns into registers; so a block may be written twice
and entered from anywhere. Blocks outside of regions, and the first copy of those inside, run with all lanes that the
simdgroup has. Where lanes part, the second copy of the region's blocks runs under masks, in an order that is right for
all lanes; each block is skipped if no lane is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from . import exchanges, memory
from .code import (
    EVERYONE,
    LANES,
    MASK,
    NAME,
    Block,
    Function,
    Instruction,
    Operand,
    Refused,
    Types,
    constant_vector,
    fields_of,
    integer,
    part_range,
    parts_of,
    split,
    suffix,
    typed,
    vector_count,
    wide,
)
from .flow import Flow, Region
from .private import Private
from .shapes import VARYING, Shape, Shapes, Spread, Uniform

_LARGEST_COPIED_REGION = 3000
"""Instructions of a region up to which it gets a copy without masks."""
_ONE_TYPE = frozenset(
    """fma fmuladd sqrt fabs minnum maxnum minimum maximum minimumnum maximumnum floor ceil trunc rint nearbyint round
    roundeven copysign umin umax smin smax ctpop bswap bitreverse fshl fshr uadd.sat usub.sat sadd.sat ssub.sat
    exp exp2 log log2 log10 sin cos pow canonicalize ldexp exp10 tan""".split()
)
"""Intrinsics that work on vectors as they do on scalars, their name followed by one type."""
_WITH_FLAG = frozenset({"ctlz", "cttz", "abs"})
"""The same, with a constant behind."""


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
        self.multiplies = False
        """Whether it calls the product of matrices."""
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
        self._parameters = {p.value: f"%a{number}" for number, p in enumerate(function.parameters)}
        self._crossing, self._leaving = self._find_uses()
        self.tiles = exchanges.tile_values(function)
        self.regions = flow.regions(sorted(shapes.divergent, key=flow.order.index))
        masked = {name for region in self.regions for name in region.blocks}
        self._factors, self._sums = exchanges.products(function, masked)
        self._region_of = {name: region for region in self.regions for name in (*region.blocks, region.head)}
        self._next: dict[str, str] = {}
        """The label to go on at in the masked copy, behind each block."""

    # -- the whole --------------------------------------------------------------------------------------------------

    def write(self, name: str, attributes: str) -> str:
        """The function's text."""
        native = set(self.flow.order)
        for region in self.regions:
            size = sum(len(self.function.blocks[block].body) for block in region.blocks)
            if size > _LARGEST_COPIED_REGION:
                native -= region.blocks
        self._native = native
        for region in self.regions:
            self._number_items(region.items, self._label(region.end))
            self._next[region.head] = self._first_label(region.items)
        for block in self.flow.order:
            if block in native:
                self._write_native(self.function.blocks[block])
        for region in self.regions:
            self._write_items(region, region.items, self._label(region.end))
        parameters = ", ".join(f"{p.type} {self._parameters[p.value]}" for p in self.function.parameters)
        zero = [f"store {MASK} zeroinitializer, ptr {self._mask_slot(b)}" for r in self.regions for b in r.blocks]
        entry = [f"  %lanes = bitcast i32 {self._parameters[self.function.parameters[1].value]} to {MASK}"]
        entry += [f"  {line}" for line in (*self.slots, *zero)]
        entry.append(f"  br label %{self._label(self.flow.entry)}")
        body = "\n".join((*entry, *self.lines))
        return f"define hidden void @{name}({parameters}) {attributes} {{\n{body}\n}}\n"

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

    def _label(self, block: str) -> str:
        return "n." + _plain(block)

    def _masked_label(self, block: str) -> str:
        return "m." + _plain(block)

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

    def _scalar(self, name: str, type_: str) -> str:
        if name in self._parameters:
            return self._parameters[name]
        known = self._scalars.get(name)
        if known is None:
            shape = self.shapes.result(name)
            if isinstance(shape, Spread) and shape.zero:
                return "0"
            known = self._scalars[name] = self.new(f"load {type_}, ptr {self._scalar_slot(name, type_)}")
        return known

    def _scalar_slot(self, name: str, type_: str) -> str:
        return self.slot(f"%s.{_plain(name)}", type_)

    def _vector_slot(self, name: str, part: int, type_: str, leaving: bool = False) -> str:
        name = name if leaving else self._sums.get(name, name)
        return self.slot(f"%{'o' if leaving else 'v'}.{_plain(name)}.{part}", type_)

    def _mask_slot(self, block: str) -> str:
        return self.slot(f"%k.{_plain(block)}", MASK)

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
        shape = self.shapes.result(name) if name not in self._parameters else Uniform()
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
        if scalar in ("poison", "undef"):
            return "poison"
        if integer(scalar) == 0 or scalar == "0.000000e+00":
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
            return ["poison" if value == "undef" else value] * len(parts)
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

    def _begin(self, block: str, mask: str | None) -> None:
        self.block, self.mask = block, mask
        self._forget()

    def _forget(self) -> None:
        self._scalars, self._vectors, self._written, self._places = {}, {}, {}, {}

    def _write_native(self, block: Block) -> None:
        self.label(self._label(block.name))
        self._begin(block.name, self.all_lanes)
        self._write_body(block)
        if not block.successors:
            self.line("ret void")
            return
        if block.condition is None:
            self._copy_phis(block.name, block.successors[0], None)
            self.line(f"br label %{self._label(block.successors[0])}")
        elif block.name in self.shapes.divergent:
            self._part(block)
        else:
            self._branch(block)

    def _branch(self, block: Block) -> None:
        assert block.condition is not None
        condition = self.scalar(block.condition)
        edges = [self.fresh("e") for _ in block.successors]
        if block.cases:
            cases = " ".join(
                f"{block.condition.type} {case}, label %{edge}"
                for case, edge in zip(block.cases, edges[1:], strict=True)
            )
            self.line(f"switch {block.condition.type} {condition}, label %{edges[0]} [ {cases} ]")
        else:
            self.line(f"br i1 {condition}, label %{edges[0]}, label %{edges[1]}")
        for edge, successor in zip(edges, block.successors, strict=True):
            self._edge_block(edge, block.name, successor)

    def _edge_block(self, edge: str, source: str, target: str) -> None:
        kept = dict(self._scalars), dict(self._vectors), dict(self._written)
        self.label(edge)
        self._copy_phis(source, target, None)
        self.line(f"br label %{self._label(target)}")
        self._scalars, self._vectors, self._written = kept

    def _part(self, block: Block) -> None:
        """Lanes part; if all go the same way they go on together, without masks."""
        assert block.condition is not None
        region = self._region_of[block.name]
        together = not block.cases and (region.blocks <= self._native or not region.blocks)
        if together:
            everyone, nobody = self._all_and_none(block)
            names = [self.fresh("e") for _ in range(4)]
            self.line(f"br i1 {everyone}, label %{names[0]}, label %{names[1]}")
            self._edge_block(names[0], block.name, block.successors[0])
            self.label(names[1])
            self.line(f"br i1 {nobody}, label %{names[2]}, label %{names[3]}")
            self._edge_block(names[2], block.name, block.successors[1])
            self.label(names[3])
        self._leave_masked(block, region)
        self.line(f"br label %{self._next[block.name]}")

    def _all_and_none(self, block: Block) -> tuple[str, str]:
        """Whether the condition at the end of a block holds for all active lanes, and whether for none."""
        condition = block.condition
        assert condition is not None
        # What another block compared need not be at hand here, unlike the outcome.
        compared = self._by_ends(next((made for made in block.body if made.result == condition.value), None))
        if compared is not None:
            return compared
        true = self.bits(self.within(self.mask, self.vector(condition)[0]))
        everyone = self.new(f"icmp eq i32 {true}, {self.bits(self.mask)}")
        return everyone, self.new(f"icmp eq i32 {true}, 0")

    def _by_ends(self, made: Instruction | None) -> tuple[str, str] | None:
        """The same for the comparison of a spread number with a uniform one, from its smallest and largest value."""
        if made is None or made.op != "icmp" or made.operands[0].type == "ptr":
            return None
        predicate = made.flags.split()[-1]
        first, second = made.operands
        shapes = [self.shape(first), self.shape(second)]
        if isinstance(shapes[0], Uniform) and isinstance(shapes[1], Spread):
            first, second, shapes = second, first, shapes[::-1]
            predicate = predicate[0] + {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(predicate[1:], "")
        spread, limit = shapes
        if not (isinstance(spread, Spread) and spread.exact and isinstance(limit, Uniform)) or len(predicate) != 3:
            return None
        type_, bound, base = first.type, self.scalar(second), self._base_or_zero(first)
        low, high = (self.once(f"add {type_} {base}, {end(spread.offsets)}") for end in (min, max))
        order = self.once(f"icmp {predicate[0]}le {type_} {low}, {high}")
        near, far = (low, high) if predicate[1] == "l" else (high, low)
        everyone = self.once(f"icmp {predicate} {type_} {far}, {bound}")
        somebody = self.once(f"icmp {predicate} {type_} {near}, {bound}")
        nobody = self.once(f"xor i1 {somebody}, true")
        return self.once(f"and i1 {order}, {everyone}"), self.once(f"and i1 {order}, {nobody}")

    def _number_items(self, items: Sequence[object], after: str) -> None:
        for item, following in zip(items, (*items[1:], None), strict=True):
            label = after if following is None else self._first_label([following])
            if isinstance(item, str):
                self._next[item] = label
            else:
                assert isinstance(item, list)
                self._number_items(item, f"x.{_plain(_header(item))}")

    def _first_label(self, items: Sequence[object]) -> str:
        return self._masked_label(_header(items))

    def _write_items(self, region: Region, items: Sequence[object], after: str) -> None:
        for item, following in zip(items, (*items[1:], None), strict=True):
            label = after if following is None else self._first_label([following])
            if isinstance(item, str):
                self._write_masked(self.function.blocks[item], region)
                continue
            assert isinstance(item, list)
            again = f"x.{_plain(_header(item))}"
            self._write_items(region, item, again)
            self.label(again)
            self._forget()
            waiting = self.bits(self.new(f"load {MASK}, ptr {self._mask_slot(_header(item))}"))
            any_left = self.new(f"icmp ne i32 {waiting}, 0")
            self.line(f"br i1 {any_left}, label %{self._first_label(item)}, label %{label}")

    def _write_masked(self, block: Block, region: Region) -> None:
        self.label(self._masked_label(block.name))
        self._begin(block.name, None)
        slot = self._mask_slot(block.name)
        mask = self.new(f"load {MASK}, ptr {slot}")
        inside = self.fresh("b")
        self.line(
            f"br i1 {self.new(f'icmp ne i32 {self.bits(mask)}, 0')}, label %{inside}, label %{self._next[block.name]}"
        )
        self.label(inside)
        self.line(f"store {MASK} zeroinitializer, ptr {slot}")
        self.mask = mask
        self._write_body(block)
        self._leave_masked(block, region)
        self.line(f"br label %{self._next[block.name]}")

    def _leave_masked(self, block: Block, region: Region) -> None:
        """Passes the active lanes on to the blocks that they go to."""
        if block.condition is None:
            self._masked_edge(block.name, block.successors[0], self.mask, region, certain=True)
            return
        if not block.cases:
            condition = self.vector(block.condition)[0]
            opposite = self.new(f"xor {MASK} {condition}, {EVERYONE}")
            ways = [(block.successors[0], condition), (block.successors[1], opposite)]
        else:
            value = self.vector(block.condition)[0]
            ways = []
            matched = "zeroinitializer"
            for case, successor in zip(block.cases, block.successors[1:], strict=True):
                same = self.new(
                    f"icmp eq {wide(block.condition.type)} {value}, {self.splat(block.condition.type, case)}"
                )
                matched = self.new(f"or {MASK} {matched}, {same}")
                ways.append((successor, same))
            rest = self.new(f"xor {MASK} {matched}, {EVERYONE}")
            ways.append((block.successors[0], rest))
        for successor, condition in ways:
            self._masked_edge(block.name, successor, self.within(self.mask, condition), region, certain=False)

    def _masked_edge(self, source: str, target: str, mask: str | None, region: Region, certain: bool) -> None:
        taken = mask if mask is not None else EVERYONE
        self._copy_phis(source, target, taken, certain)
        if target != region.end:
            slot = self._mask_slot(target)
            there = self.new(f"load {MASK}, ptr {slot}")
            self.line(f"store {MASK} {self.new(f'or {MASK} {there}, {taken}')}, ptr {slot}")

    def _copy_phis(self, source: str, target: str, mask: str | None, certain: bool = True) -> None:
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

    # -- instructions -----------------------------------------------------------------------------------------------

    def _write_body(self, block: Block) -> None:
        for phi in block.phis:
            if phi.result in self._leaving:
                self._keep_leaving(phi.result, phi.type)
        for instruction in block.body:
            self._write(instruction)

    def _write(self, made: Instruction) -> None:
        if made.op == "alloca":
            name = f"%p.{_plain(made.result)}"
            if name not in self._kept:
                self._kept.add(name)
                self.slots.append(f"{name} = alloca [{self.private.bytes(made.result)} x i8], align 64")
            self.keep_scalar(made.result, "ptr", name)
        elif made.op == "load":
            memory.write_load(self, made)
        elif made.op == "store":
            memory.write_store(self, made)
        elif made.op in ("atomicrmw", "cmpxchg"):
            self.one_by_one(made)
        elif made.op == "fence":
            self.line(made.text)
        elif made.callee == exchanges.DIVIDED_BY_ZERO:
            self.line(f"call void @{made.callee}(ptr null, ptr null, ptr null)")
        elif made.op == "call" and made.callee.startswith("__ost_"):
            exchanges.write_exchange(self, made)
        else:
            shape = self.shapes.result(made.result) if made.result else self._effect_shape(made)
            if isinstance(shape, Uniform) and shape.shift is not None:
                self._write_shifted(made, shape)
            elif isinstance(shape, Uniform):
                self._write_scalar(made)
            elif isinstance(shape, Spread):
                self._write_spread(made, shape)
                if not shape.exact:
                    self._write_vector(made)
            else:
                self._write_vector(made)

    def _effect_shape(self, made: Instruction) -> Shape:
        """Of a call without a result: uniform if one call does it for all lanes."""
        return Uniform() if all(isinstance(self.shape(o), Uniform) for o in made.operands) else VARYING

    def scalar_text(self, made: Instruction, value: Callable[[Operand], str]) -> str:
        """An instruction with other operands."""
        operands = {operand.value: operand for operand in made.operands if operand.is_local}
        return NAME.sub(
            lambda found: value(operands[found.group()]) if found.group() in operands else found.group(), made.text
        )

    def _write_scalar(self, made: Instruction) -> None:
        text = self.scalar_text(made, self.scalar)
        if made.result:
            self.keep_scalar(made.result, made.type, self.new(text))
        else:
            self.line(text)

    def _write_shifted(self, made: Instruction, shape: Uniform) -> None:
        """A value that is uniform although it is computed from spread ones."""
        if shape.constant is not None:
            self.keep_scalar(made.result, made.type, str(shape.constant))
            return
        value = self._base_of(made)
        if shape.shift and made.type == "ptr":
            value = self.once(f"getelementptr i8, ptr {value}, i64 {shape.shift}")
        elif shape.shift:
            value = self.once(f"add {made.type} {value}, {shape.shift}")
        self.keep_scalar(made.result, made.type, value)

    def _write_spread(self, made: Instruction, shape: Spread) -> None:
        """The base of a spread value; constants that are in the offsets are left out."""
        if shape.zero:
            return
        self.keep_scalar(made.result, made.type, self._base_of(made))

    def _base_of(self, made: Instruction) -> str:
        op, type_ = made.op, made.type
        if op == "getelementptr":
            return self._base_address(made)
        first = made.operands[0]
        if op in ("zext", "sext"):
            offsets = self.shapes.result(made.result)
            assert isinstance(offsets, Spread)
            anchor = max(offsets.offsets)
            anchor -= anchor % 4
            moved = self.once(f"add {first.type} {self.base(first)}, {anchor}") if anchor else self.base(first)
            widened = self.once(f"{op} {first.type} {moved} to {type_}")
            return self.once(f"sub {type_} {widened}, {anchor}") if anchor else widened
        if op == "trunc":
            return self.once(f"trunc {first.type} {self.base(first)} to {type_}")
        if op == "freeze":
            return self.base(first)
        second = made.operands[1]
        shapes = [self.shape(first), self.shape(second)]
        if op in ("add", "sub", "or"):
            operation = "sub" if op == "sub" else "add"
            spread = [isinstance(shape, Spread) for shape in shapes]
            constants = [isinstance(shape, Uniform) and shape.constant is not None for shape in shapes]
            if spread[0] and constants[1]:
                return self.base(first)
            if spread[1] and constants[0] and operation == "add":
                return self.base(second)
            return self.once(f"{operation} {type_} {self._base_or_zero(first)}, {self._base_or_zero(second)}")
        if op in ("mul", "shl"):
            if isinstance(shapes[0], Uniform):
                first, second = second, first
            return self.once(f"{op} {type_} {self.base(first)}, {self.scalar(second)}")
        if op in ("and", "lshr", "udiv"):
            return self.once(f"{op} {type_} {self.base(first)}, {self.scalar(second)}")
        raise Refused(f"the base of {op}")

    def _base_or_zero(self, operand: Operand) -> str:
        shape = self.shape(operand)
        return "0" if isinstance(shape, Spread) and shape.zero else self.scalar(operand)

    def _base_address(self, made: Instruction) -> str:
        _, variable = self.types.strides(made.element, made.operands[1:])
        scale = self.private.scale(made.result)
        base = self.base(made.operands[0])
        for step, operand in variable:
            shape = self.shape(operand)
            if isinstance(shape, Spread) and shape.zero:
                continue
            index = self.scalar(operand)
            if operand.type != "i64":
                index = self.once(f"sext {operand.type} {index} to i64")
            by = self.once(f"mul i64 {index}, {step * scale}") if step * scale != 1 else index
            base = self.once(f"getelementptr i8, ptr {base}, i64 {by}")
        return base

    # -- vectors ----------------------------------------------------------------------------------------------------

    def _write_vector(self, made: Instruction) -> None:
        if made.result in self.tiles:
            self._vectors_of_tile(made)
            return
        parts = self._vector_parts(made)
        if made.result:
            self.keep_vector(made.result, made.type, parts)

    def _vectors_of_tile(self, made: Instruction) -> None:
        """Elementwise operations on matrices work on them as they lie."""
        operands = []
        for operand in made.operands:
            if vector_count(operand.type):
                operands.append((exchanges.tile_type(operand.type), self.tile(operand)))
            elif made.op == "select" and isinstance(self.shape(operand), Uniform):
                operands.append((operand.type, self.scalar(operand)))
            else:
                operands.append((f"<{2 * LANES} x i1>", exchanges.mask_of_tile(self, self.vector(operand)[0])))
        type_ = exchanges.tile_type(made.type)
        if made.op == "shufflevector":
            value = operands[0][1]
        elif made.op == "select":
            text = ", ".join(f"{t} {v}" for t, v in operands)
            value = self.new(f"select {made.flags}{text}")
        elif len(operands) == 1 and operands[0][0] != type_:
            value = self.new(f"{made.op} {made.flags}{operands[0][0]} {operands[0][1]} to {type_}")
        else:
            value = self.new(f"{made.op} {made.flags}{operands[0][0]} {', '.join(v for _, v in operands)}")
        self.keep_vector(made.result, made.type, [value])

    def _vector_parts(self, made: Instruction) -> list[str]:
        op = made.op
        if op == "getelementptr":
            return [self._vector_address(made)]
        if op == "call":
            return self._vector_call(made)
        if op in ("extractvalue", "insertvalue", "extractelement", "insertelement", "shufflevector"):
            return self._moved_parts(made)
        if op == "select":
            return self._selected(made)
        operands = [self.vector(operand) for operand in made.operands]
        if op == "bitcast" and len(operands[0]) != len(parts_of(made.type)):
            return self._recast(made, operands[0])
        if op in ("udiv", "sdiv", "urem", "srem") and self.mask is not None:
            type_ = wide(parts_of(made.type)[0])
            one = self.splat(parts_of(made.type)[0], "1")
            operands[1] = [self.chosen(self.mask, type_, value, one) for value in operands[1]]
        source = wide(parts_of(made.operands[0].type)[0])
        results = []
        for values in zip(*operands, strict=True):
            text = f"{op} {made.flags}{source} {', '.join(values)}"
            if op in _CONVERSIONS:
                text += f" to {wide(parts_of(made.type)[0])}"
            results.append(self.new(text))
        return results

    def _selected(self, made: Instruction) -> list[str]:
        condition, first, second = made.operands
        values = zip(self.vector(first), self.vector(second), strict=True)
        types = [wide(part) for part in parts_of(made.type)]
        if isinstance(self.shape(condition), Uniform) and not vector_count(condition.type):
            text = f"i1 {self.scalar(condition)}"
            return [
                self.new(f"select {made.flags}{text}, {type_} {a}, {type_} {b}")
                for type_, (a, b) in zip(types, values, strict=True)
            ]
        conditions = self.vector(condition)
        if len(conditions) == 1:
            conditions *= len(types)
        return [
            self.new(f"select {made.flags}{MASK} {c}, {type_} {a}, {type_} {b}")
            for c, type_, (a, b) in zip(conditions, types, values, strict=True)
        ]

    def _recast(self, made: Instruction, values: list[str]) -> list[str]:
        """The bits of one number as several smaller ones, or the reverse."""
        sources, targets = parts_of(made.operands[0].type), parts_of(made.type)
        widths = [8 * self.types.size(sources[0]), 8 * self.types.size(targets[0])]
        numbers = [
            value if type_ == f"i{widths[0]}" else self.new(f"bitcast {wide(type_)} {value} to {wide(f'i{widths[0]}')}")
            for value, type_ in zip(values, sources, strict=True)
        ]
        total = widths[0] * len(values)
        if total > 64:
            raise Refused("a cast of more than 64 bits")
        whole = wide(f"i{total}")
        joined = "zeroinitializer"
        for place, number in enumerate(numbers):
            extended = number if total == widths[0] else self.new(f"zext {wide(f'i{widths[0]}')} {number} to {whole}")
            if place:
                extended = self.new(f"shl {whole} {extended}, {self.splat(f'i{total}', str(place * widths[0]))}")
            joined = self.new(f"or {whole} {joined}, {extended}")
        results = []
        for place, type_ in enumerate(targets):
            piece = joined
            if place:
                piece = self.new(f"lshr {whole} {joined}, {self.splat(f'i{total}', str(place * widths[1]))}")
            if widths[1] < total:
                piece = self.new(f"trunc {whole} {piece} to {wide(f'i{widths[1]}')}")
            if type_ != f"i{widths[1]}":
                piece = self.new(f"bitcast {wide(f'i{widths[1]}')} {piece} to {wide(type_)}")
            results.append(piece)
        return results

    def _moved_parts(self, made: Instruction) -> list[str]:
        op = made.op
        parts = list(self.vector(made.operands[0]))
        if op == "extractvalue":
            return parts[part_range(made.operands[0].type, made.indices[0])]
        if op == "insertvalue":
            parts[part_range(made.type, made.indices[0])] = self.vector(made.operands[1])
            return parts
        if op == "shufflevector":
            both = parts + self.vector(made.operands[1])
            return [both[index] if index >= 0 else "poison" for index in made.indices]
        index = made.operands[-1]
        number = integer(index.value)
        element = parts_of(made.operands[0].type)[0]
        if op == "extractelement":
            if number is not None:
                return [parts[number]]
            places = self.vector(index)[0]
            result = parts[0]
            for place in range(1, len(parts)):
                here = self.new(f"icmp eq {wide(index.type)} {places}, {self.splat(index.type, str(place))}")
                result = self.new(f"select {MASK} {here}, {wide(element)} {parts[place]}, {wide(element)} {result}")
            return [result]
        value = self.vector(made.operands[1])[0]
        if number is not None:
            parts[number] = value
            return parts
        places = self.vector(index)[0]
        for place in range(len(parts)):
            here = self.new(f"icmp eq {wide(index.type)} {places}, {self.splat(index.type, str(place))}")
            parts[place] = self.new(f"select {MASK} {here}, {wide(element)} {value}, {wide(element)} {parts[place]}")
        return parts

    def _vector_address(self, made: Instruction) -> str:
        constant, variable = self.types.strides(made.element, made.operands[1:])
        scale = self.private.scale(made.result)
        base = made.operands[0]
        uniform = isinstance(self.shape(base), Uniform)
        address = f"ptr {self.scalar(base)}" if uniform else f"{wide('ptr')} {self.vector(base)[0]}"
        for step, operand in variable:
            if isinstance(self.shape(operand), Uniform):
                index = self.scalar(operand)
                if operand.type != "i64":
                    index = self.once(f"sext {operand.type} {index} to i64")
                index = self.once(f"mul i64 {index}, {step * scale}")
                moved = self.new(f"getelementptr i8, {address}, i64 {index}")
                address = f"ptr {moved}" if uniform else f"{wide('ptr')} {moved}"
                continue
            index = self.vector(operand)[0]
            if operand.type != "i64":
                index = self.new(f"sext {wide(operand.type)} {index} to {wide('i64')}")
            wide_index = wide("i64")
            element = f"[{step * scale} x i8]" if step * scale != 1 else "i8"
            address = f"{wide('ptr')} {self.new(f'getelementptr {element}, {address}, {wide_index} {index}')}"
            uniform = False
        if constant:
            moved = self.new(f"getelementptr i8, {address}, i64 {constant * scale}")
            address = f"ptr {moved}" if uniform else f"{wide('ptr')} {moved}"
        if uniform:
            return self.splat("ptr", address.split(" ", 1)[1])
        return address[len(wide("ptr")) + 1 :]

    def _vector_call(self, made: Instruction) -> list[str]:
        name = made.callee
        words = name.split(".")
        if words[0] != "llvm":
            return self.one_by_one(made, keep=False)
        stem = ".".join(words[1:-1])
        types = [operand.type for operand in made.operands]
        if any(vector_count(type_) for type_ in (*types, made.type)):
            raise Refused(f"{name} of a vector")
        if stem in _ONE_TYPE and all(type_ == made.type for type_ in types):
            arguments = [(wide(o.type), self.vector(o)[0]) for o in made.operands]
            full = f"llvm.{stem}.{suffix(made.type)}"
            self.intrinsic(full, wide(made.type), [type_ for type_, _ in arguments])
            text = ", ".join(f"{type_} {value}" for type_, value in arguments)
            return [self.new(f"call {made.flags}{wide(made.type)} @{full}({text})")]
        if stem in _WITH_FLAG:
            arguments = [(wide(types[0]), self.vector(made.operands[0])[0]), ("i1", made.operands[1].value)]
            return [self.call(f"llvm.{stem}.{suffix(made.type)}", wide(made.type), arguments)]
        return self.one_by_one(made, keep=False)

    # -- one lane after the other -----------------------------------------------------------------------------------

    def one_by_one(self, made: Instruction, keep: bool = True) -> list[str]:
        """An instruction for each active lane, in their order; what has no form for vectors."""
        if any(vector_count(operand.type) for operand in made.operands):
            raise Refused(f"{made.callee or made.op} of a vector")
        values = {
            o.value: (o.type, self.scalar(o) if isinstance(self.shape(o), Uniform) else self.vector(o)[0])
            for o in made.operands
            if o.is_local
        }
        uniform = {o.value: isinstance(self.shape(o), Uniform) for o in made.operands if o.is_local}
        parts = [] if made.type == "void" else parts_of(made.type)
        slots = [self.slot(f"%{self.fresh('r')}", wide(part)) for part in parts]
        left = self.slot(f"%{self.fresh('r')}", "i32")
        loop, done = self.fresh("o"), self.fresh("o")
        for part, slot in zip(parts, slots, strict=True):
            self.line(f"store {wide(part)} zeroinitializer, ptr {slot}")
        self.line(f"store i32 {self.bits(self.mask)}, ptr {left}")
        self.line(f"br label %{loop}")
        self.label(loop)
        rest = self.new(f"load i32, ptr {left}")
        lane = self.call("llvm.cttz.i32", "i32", [("i32", rest), ("i1", "true")])

        def value(operand: Operand) -> str:
            type_, text = values[operand.value]
            return text if uniform[operand.value] else self.new(f"extractelement {wide(type_)} {text}, i32 {lane}")

        own = {operand.value: value(operand) for operand in made.operands if operand.is_local}
        text = self.scalar_text(made, lambda operand: own[operand.value])
        if made.type == "void":
            self.line(text)
        else:
            result = self.new(text)
            for k, (part, slot) in enumerate(zip(parts, slots, strict=True)):
                piece = result if len(parts) == 1 else self.new(f"extractvalue {made.type} {result}, {k}")
                old = self.new(f"load {wide(part)}, ptr {slot}")
                changed = self.new(f"insertelement {wide(part)} {old}, {part} {piece}, i32 {lane}")
                self.line(f"store {wide(part)} {changed}, ptr {slot}")
        fewer = self.new(f"and i32 {rest}, {self.new(f'add i32 {rest}, -1')}")
        self.line(f"store i32 {fewer}, ptr {left}")
        self.line(f"br i1 {self.new(f'icmp ne i32 {fewer}, 0')}, label %{loop}, label %{done}")
        self.label(done)
        results = [self.new(f"load {wide(part)}, ptr {slot}") for part, slot in zip(parts, slots, strict=True)]
        if keep and made.result:
            self.keep_vector(made.result, made.type, results)
        return results


_CONVERSIONS = frozenset("trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint inttoptr bitcast".split())


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in name[1:])


def _header(items: Sequence[object]) -> str:
    first = items[0]
    while not isinstance(first, str):
        assert isinstance(first, list)
        first = first[0]
    return first
