"""Which reads of a block are of fields that lie next to each other, for each lane in a record of its own.

Lanes read several neighbouring fields each, such as the floats of a row or the bytes of a packed block, far from what
the other lanes read. Field by field each takes a gather. Instead the words of a lane are read by few loads, up to eight
words at once, and `turning` makes vectors over the lanes of them. Only bytes that the lane reads anyway are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .code import LANES, Block, Function, Instruction, Types, parts_of
from .private import Private
from .shapes import Shapes, Spread, Uniform

WORD = 4
"""Bytes of a word."""
_MOST_WORDS = 8
"""Of a load: one vector of 256 bits."""


@dataclass(frozen=True, slots=True)
class Field:
    """A part of what a load reads; `at` counts bytes from a place that is the same for all loads of a record."""

    type: str
    at: int
    size: int

    @property
    def end(self) -> int:
        return self.at + self.size


@dataclass(slots=True)
class Record:
    """Loads of one block that read neighbouring fields, in the order of the block."""

    loads: list[Instruction] = field(default_factory=list)
    fields: list[list[Field]] = field(default_factory=list)
    """Of each load."""
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """What is read at once: the place of its first word, and how many words."""

    @property
    def start(self) -> int:
        """The place that the address of the first load points to."""
        return self.fields[0][0].at


def find_records(function: Function, shapes: Shapes, types: Types, private: Private) -> Mapping[str, Record]:
    """The records of a function, by the results of their loads."""
    made_by = {made.result: made for block in function.blocks.values() for made in block.body if made.result}
    found: dict[str, Record] = {}
    for block in function.blocks.values():
        for record in _of_block(block, shapes, types, private, made_by):
            _choose(record)
            found |= {load.result: record for load in record.loads}
    return found


def _of_block(
    block: Block, shapes: Shapes, types: Types, private: Private, made_by: Mapping[str, Instruction]
) -> list[Record]:
    """Reads between which nothing is written, by what their addresses have in common."""
    records: list[Record] = []
    current: dict[object, Record] = {}
    for made in block.body:
        if _may_write(made):
            current = {}
        if made.op != "load" or made.ordered:
            continue
        pointer = made.operands[0]
        shape = shapes.of(pointer, block.name)
        if isinstance(shape, Uniform) or private.scale(pointer.value) != 1 or not _fill(made.type, types):
            continue
        root, by = _root(pointer.value, block.name, shapes, types, made_by)
        pattern: object = None
        if isinstance(shape, Spread):
            by += shape.offsets[0]
            pattern = tuple(offset - shape.offsets[0] for offset in shape.offsets)
            if pattern == tuple(lane * types.size(made.type) for lane in range(LANES)):
                continue
        record = current.get((root, pattern))
        if record is None:
            record = current[root, pattern] = Record()
            records.append(record)
        record.loads.append(made)
        record.fields.append(_fields(made.type, by, types))
    return records


def _fill(type_: str, types: Types) -> bool:
    """Whether all bytes of the fields are read; of an `i24`, say, not the last one."""
    return all(part == "i1" or types.bits(part) == 8 * types.size(part) for part in parts_of(type_))


def _may_write(made: Instruction) -> bool:
    if made.op == "call":
        return not made.callee.startswith("llvm.") or made.callee.startswith("llvm.mem")
    return made.op in ("store", "atomicrmw", "cmpxchg", "fence") or made.ordered


def _root(name: str, at: str, shapes: Shapes, types: Types, made_by: Mapping[str, Instruction]) -> tuple[str, int]:
    """The address that another is computed from by constants, and the sum of those that are not in its offsets.

    Of an address from a loop that lanes have left at different times before the block `at`, the shape is not known.
    """
    total = 0
    while (made := made_by.get(name)) is not None and made.op == "getelementptr":
        if shapes.leaves_torn_loop(name, at):
            break
        block = shapes.block_of[name]
        shape = shapes.result(name)
        constant, variable = types.strides(made.element, made.operands[1:])
        if isinstance(shape, Spread):
            indices = (shapes.of(operand, block) for _, operand in variable)
            if not all(isinstance(index, Spread) and index.zero for index in indices):
                break
        elif variable or (isinstance(shape, Uniform) and shape.shift is not None):
            break
        else:
            total += constant
        name = made.operands[0].value
    return name, total


def _fields(type_: str, at: int, types: Types) -> list[Field]:
    parts = parts_of(type_)
    size = types.size(parts[0])
    return [Field(part, at + place * size, size) for place, part in enumerate(parts)]


def _choose(record: Record) -> None:
    """Decides what is read at once, and leaves out the loads that this does not cover."""
    every = [one for fields in record.fields for one in fields]
    record.chunks = _chunks(_words(every), every)
    covered = {place + WORD * word for place, words in record.chunks for word in range(words)}
    kept = [
        (load, fields)
        for load, fields in zip(record.loads, record.fields, strict=True)
        if all(any(word <= one.at and one.end <= word + WORD for word in covered) for one in fields)
    ]
    record.loads = [load for load, _ in kept]
    record.fields = [fields for _, fields in kept]
    needed = {one.at for fields in record.fields for one in fields}
    record.chunks = [
        (place, words) for place, words in record.chunks if any(place <= at < place + WORD * words for at in needed)
    ]


def _words(fields: Sequence[Field]) -> list[int]:
    """The places of words that are read whole, and that no field reaches beyond."""
    read = {byte for one in fields for byte in range(one.at, one.end)}
    words: list[int] = []
    for at in sorted({one.at for one in fields}):
        if words and at < words[-1] + WORD:
            continue
        inside = all(at <= one.at and one.end <= at + WORD for one in fields if one.at < at + WORD and at < one.end)
        if inside and read.issuperset(range(at, at + WORD)):
            words.append(at)
    return words


def _chunks(words: Sequence[int], fields: Sequence[Field]) -> list[tuple[int, int]]:
    """Words in a row, as loads of a power of two of them; a single word only if several fields are in it."""
    chunks: list[tuple[int, int]] = []
    left = list(words)
    while left:
        row = next((n for n, at in enumerate(left) if at != left[0] + WORD * n), len(left))
        count = min(1 << (row.bit_length() - 1), _MOST_WORDS)
        if count > 1 or len({one.at for one in fields if left[0] <= one.at < left[0] + WORD}) > 1:
            chunks.append((left[0], count))
        del left[:count]
    return chunks
