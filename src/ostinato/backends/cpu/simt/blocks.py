"""Writes the flow of a function: its blocks, once for all lanes that the simdgroup has and once under masks.

Blocks outside of regions, and the first copy of those inside, run with all lanes that the simdgroup has. Where lanes
part, the second copy of the region's blocks runs under masks, in an order that is right for all lanes; each block is
skipped if no lane is in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import instructions
from .code import EVERYONE, MASK, Block, Instruction, wide
from .emission import Emitter, plain
from .flow import Region
from .shapes import Spread, Uniform

_LARGEST_COPIED_REGION = 3000
"""Instructions of a region up to which it gets a copy without masks."""


def write_function(emitter: Emitter, name: str, attributes: str) -> str:
    """The text of the function for all lanes."""
    _Blocks(emitter).write()
    parameters = ", ".join(f"{p.type} {emitter.parameters[p.value]}" for p in emitter.function.parameters)
    blocks = [block for region in emitter.regions for block in region.blocks]
    zero = [f"store {MASK} zeroinitializer, ptr {emitter.mask_slot(block)}" for block in blocks]
    entry = [f"  %lanes = bitcast i32 {emitter.parameters[emitter.function.parameters[1].value]} to {MASK}"]
    entry += [f"  {line}" for line in (*emitter.slots, *zero)]
    entry.append(f"  br label %{_label(emitter.flow.entry)}")
    body = "\n".join((*entry, *emitter.lines))
    return f"define internal void @{name}({parameters}) noinline {attributes} {{\n{body}\n}}\n"


class _Blocks:
    """All blocks of a function."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self._region_of = {name: region for region in emitter.regions for name in (*region.blocks, region.head)}
        self._next: dict[str, str] = {}
        """The label to go on at in the masked copy, behind each block."""
        self._native = set(emitter.flow.order)
        """The blocks that have a copy without masks."""
        for region in emitter.regions:
            size = sum(len(emitter.function.blocks[block].body) for block in region.blocks)
            if size > _LARGEST_COPIED_REGION:
                self._native -= region.blocks
            self._number_items(region.items, _label(region.end))
            self._next[region.head] = self._first_label(region.items)

    def write(self) -> None:
        """Writes them."""
        emitter = self.emitter
        for block in emitter.flow.order:
            if block in self._native:
                self._write_native(emitter.function.blocks[block])
        for region in emitter.regions:
            self._write_items(region, region.items, _label(region.end))

    def _write_body(self, block: Block) -> None:
        self.emitter.keep_phis(block)
        for instruction in block.body:
            instructions.write(self.emitter, instruction)

    def _write_native(self, block: Block) -> None:
        emitter = self.emitter
        emitter.label(_label(block.name))
        emitter.begin(block.name, emitter.all_lanes)
        self._write_body(block)
        if not block.successors:
            emitter.line("ret void")
        elif block.name in emitter.shapes.divergent or not self._native.issuperset(block.successors):
            self._part(block)
        elif block.condition is None:
            emitter.copy_phis(block.name, block.successors[0], None)
            emitter.line(f"br label %{_label(block.successors[0])}")
        else:
            self._branch(block)

    def _branch(self, block: Block) -> None:
        emitter = self.emitter
        assert block.condition is not None
        condition = emitter.scalar(block.condition)
        edges = [emitter.fresh("e") for _ in block.successors]
        if block.cases:
            cases = " ".join(
                f"{block.condition.type} {case}, label %{edge}"
                for case, edge in zip(block.cases, edges[1:], strict=True)
            )
            emitter.line(f"switch {block.condition.type} {condition}, label %{edges[0]} [ {cases} ]")
        else:
            emitter.line(f"br i1 {condition}, label %{edges[0]}, label %{edges[1]}")
        for edge, successor in zip(edges, block.successors, strict=True):
            self._edge_block(edge, block.name, successor)

    def _edge_block(self, edge: str, source: str, target: str) -> None:
        emitter = self.emitter
        emitter.label(edge)
        with emitter.aside():
            emitter.copy_phis(source, target, None)
        emitter.line(f"br label %{_label(target)}")

    def _part(self, block: Block) -> None:
        """Lanes part; if all go the same way they go on together, without masks, where there is a copy without."""
        emitter = self.emitter
        region = self._region_of[block.name]
        together = not block.cases and (region.blocks <= self._native or not region.blocks)
        if together:
            everyone, nobody = self._all_and_none(block)
            names = [emitter.fresh("e") for _ in range(4)]
            emitter.line(f"br i1 {everyone}, label %{names[0]}, label %{names[1]}")
            self._edge_block(names[0], block.name, block.successors[0])
            emitter.label(names[1])
            emitter.line(f"br i1 {nobody}, label %{names[2]}, label %{names[3]}")
            self._edge_block(names[2], block.name, block.successors[1])
            emitter.label(names[3])
        self._leave_masked(block, region)
        emitter.line(f"br label %{self._next[block.name]}")

    def _all_and_none(self, block: Block) -> tuple[str, str]:
        """Whether the condition at the end of a block holds for all active lanes, and whether for none."""
        emitter = self.emitter
        condition = block.condition
        assert condition is not None
        # What another block compared need not be at hand here, unlike the outcome.
        compared = self._by_ends(next((made for made in block.body if made.result == condition.value), None))
        if compared is not None:
            return compared
        true = emitter.bits(emitter.within(emitter.mask, emitter.vector(condition)[0]))
        everyone = emitter.new(f"icmp eq i32 {true}, {emitter.bits(emitter.mask)}")
        return everyone, emitter.new(f"icmp eq i32 {true}, 0")

    def _by_ends(self, made: Instruction | None) -> tuple[str, str] | None:
        """The same for the comparison of a spread number with a uniform one, from its smallest and largest value."""
        emitter = self.emitter
        if made is None or made.op != "icmp" or made.operands[0].type == "ptr":
            return None
        predicate = made.flags.split()[-1]
        first, second = made.operands
        shapes = [emitter.shape(first), emitter.shape(second)]
        if isinstance(shapes[0], Uniform) and isinstance(shapes[1], Spread):
            first, second, shapes = second, first, shapes[::-1]
            predicate = predicate[0] + {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(predicate[1:], "")
        spread, limit = shapes
        if not (isinstance(spread, Spread) and spread.exact and isinstance(limit, Uniform)) or len(predicate) != 3:
            return None
        if max(spread.offsets) - min(spread.offsets) >= 1 << int(first.type[1:]):
            return None  # between the ends it may have wrapped more than once
        type_, bound, base = first.type, emitter.scalar(second), emitter.base_or_zero(first)
        low, high = (emitter.once(f"add {type_} {base}, {end(spread.offsets)}") for end in (min, max))
        order = emitter.once(f"icmp {predicate[0]}le {type_} {low}, {high}")
        near, far = (low, high) if predicate[1] == "l" else (high, low)
        everyone = emitter.once(f"icmp {predicate} {type_} {far}, {bound}")
        somebody = emitter.once(f"icmp {predicate} {type_} {near}, {bound}")
        nobody = emitter.once(f"xor i1 {somebody}, true")
        return emitter.once(f"and i1 {order}, {everyone}"), emitter.once(f"and i1 {order}, {nobody}")

    def _number_items(self, items: Sequence[object], after: str) -> None:
        for item, following in zip(items, (*items[1:], None), strict=True):
            label = after if following is None else self._first_label([following])
            if isinstance(item, str):
                self._next[item] = label
            else:
                assert isinstance(item, list)
                self._number_items(item, f"x.{plain(_header(item))}")

    def _first_label(self, items: Sequence[object]) -> str:
        return _masked_label(_header(items))

    def _write_items(self, region: Region, items: Sequence[object], after: str) -> None:
        emitter = self.emitter
        for item, following in zip(items, (*items[1:], None), strict=True):
            label = after if following is None else self._first_label([following])
            if isinstance(item, str):
                self._write_masked(emitter.function.blocks[item], region)
                continue
            assert isinstance(item, list)
            again = f"x.{plain(_header(item))}"
            self._write_items(region, item, again)
            emitter.label(again)
            emitter.forget()
            waiting = emitter.bits(emitter.new(f"load {MASK}, ptr {emitter.mask_slot(_header(item))}"))
            any_left = emitter.new(f"icmp ne i32 {waiting}, 0")
            emitter.line(f"br i1 {any_left}, label %{self._first_label(item)}, label %{label}")

    def _write_masked(self, block: Block, region: Region) -> None:
        emitter = self.emitter
        emitter.label(_masked_label(block.name))
        emitter.begin(block.name, None)
        slot = emitter.mask_slot(block.name)
        mask = emitter.new(f"load {MASK}, ptr {slot}")
        inside = emitter.fresh("b")
        anybody = emitter.new(f"icmp ne i32 {emitter.bits(mask)}, 0")
        emitter.line(f"br i1 {anybody}, label %{inside}, label %{self._next[block.name]}")
        emitter.label(inside)
        emitter.line(f"store {MASK} zeroinitializer, ptr {slot}")
        emitter.mask = mask
        self._write_body(block)
        self._leave_masked(block, region)
        emitter.line(f"br label %{self._next[block.name]}")

    def _leave_masked(self, block: Block, region: Region) -> None:
        """Passes the active lanes on to the blocks that they go to."""
        emitter = self.emitter
        if block.condition is None:
            self._masked_edge(block.name, block.successors[0], emitter.mask, region, certain=True)
            return
        if not block.cases:
            condition = emitter.vector(block.condition)[0]
            opposite = emitter.new(f"xor {MASK} {condition}, {EVERYONE}")
            ways = [(block.successors[0], condition), (block.successors[1], opposite)]
        else:
            value = emitter.vector(block.condition)[0]
            ways = []
            matched = "zeroinitializer"
            for case, successor in zip(block.cases, block.successors[1:], strict=True):
                same = emitter.new(
                    f"icmp eq {wide(block.condition.type)} {value}, {emitter.splat(block.condition.type, case)}"
                )
                matched = emitter.new(f"or {MASK} {matched}, {same}")
                ways.append((successor, same))
            rest = emitter.new(f"xor {MASK} {matched}, {EVERYONE}")
            ways.append((block.successors[0], rest))
        # An edge changes the phis of its target, which the next edge may pass on.
        for successor in dict.fromkeys(block.successors):
            emitter.read_phis(block.name, successor)
        for successor, condition in ways:
            self._masked_edge(block.name, successor, emitter.within(emitter.mask, condition), region, certain=False)

    def _masked_edge(self, source: str, target: str, mask: str | None, region: Region, certain: bool) -> None:
        emitter = self.emitter
        taken = mask if mask is not None else EVERYONE
        emitter.copy_phis(source, target, taken, certain)
        if target != region.end:
            slot = emitter.mask_slot(target)
            there = emitter.new(f"load {MASK}, ptr {slot}")
            emitter.line(f"store {MASK} {emitter.new(f'or {MASK} {there}, {taken}')}, ptr {slot}")


def _label(block: str) -> str:
    return "n." + plain(block)


def _masked_label(block: str) -> str:
    return "m." + plain(block)


def _header(items: Sequence[object]) -> str:
    first = items[0]
    while not isinstance(first, str):
        assert isinstance(first, list)
        first = first[0]
    return first
