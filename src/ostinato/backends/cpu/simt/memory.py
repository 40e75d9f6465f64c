"""Reads and writes of all lanes: one of neighbours where the addresses allow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .code import EVERYONE, LANES, MASK, Instruction, Operand, parts_of, scalar_text, suffix, wide
from .records import WORD, Field, Record
from .shapes import Spread, Uniform
from .turning import turned
from .vectors import one_by_one

if TYPE_CHECKING:
    from .emission import Emitter

_WIDEST_WINDOW = 8 * LANES
"""Elements that are read to pick those of 32 lanes out of them."""
_MASKED_BYTES = 4
"""Elements from this size on can be read and written under a mask by one instruction."""


def write_load(emitter: Emitter, made: Instruction) -> None:
    """A load; atomic and volatile ones go lane by lane."""
    pointer = made.operands[0]
    shape = emitter.shape(pointer)
    if made.ordered:
        one_by_one(emitter, made)
        return
    if isinstance(shape, Uniform):
        text = scalar_text(made, emitter.scalar)
        if not made.text:
            text = f"load {made.type}, ptr {emitter.scalar(pointer)}, align {made.align}"
        emitter.keep_scalar(made.result, made.type, emitter.new(text))
        return
    record = emitter.records.get(made.result)
    if record is not None:
        if made is record.loads[0]:
            _write_record(emitter, record)
        return
    parts = parts_of(made.type)
    step = emitter.types.size(parts[0])
    distance = step * emitter.private.scale(pointer.value)
    values = []
    for place, type_ in enumerate(parts):
        align = min(made.align, step)
        values.append(_read(emitter, type_, pointer, place * distance, align))
    emitter.keep_vector(made.result, made.type, _as_stored(emitter, made.result, made.type, values))


def _as_stored(emitter: Emitter, name: str, type_: str, values: list[str]) -> list[str]:
    from .exchanges import tiled

    return [tiled(emitter, values, type_)] if name in emitter.tiles else values


def _read(emitter: Emitter, type_: str, pointer: Operand, extra: int, align: int) -> str:
    shape = emitter.shape(pointer)
    stored = "i8" if type_ == "i1" else type_
    if isinstance(shape, Spread) and _fills(emitter, stored):
        offsets = [offset + extra for offset in shape.offsets]
        value = _read_spread(emitter, stored, emitter.base(pointer), offsets, align)
        if value is not None:
            return _from_stored(emitter, type_, value)
    addresses = _moved(emitter, emitter.vector(pointer)[0], extra)
    return _from_stored(emitter, type_, gather(emitter, stored, addresses))


def _read_spread(emitter: Emitter, type_: str, base: str, offsets: list[int], align: int) -> str | None:
    """What lanes read at known distances; None under a mask, unless neighbours of four bytes or more are read."""
    size, start = emitter.types.size(type_), min(offsets)
    neighbours = offsets == [start + size * lane for lane in range(LANES)]
    if emitter.mask is not None and not (neighbours and size >= _MASKED_BYTES):
        return None
    address = emitter.once(f"getelementptr i8, ptr {base}, i64 {start}")
    if emitter.mask is not None:
        return _masked_load(emitter, type_, address, align)
    if neighbours:
        return emitter.new(f"load {wide(type_)}, ptr {address}, align {align}")
    # Halves are moved as integers: of halves the compiler makes moves of single elements.
    moved = f"i{8 * size}" if type_ in ("half", "bfloat") else type_
    count = (max(offsets) - start) // size + 1
    if count <= _WIDEST_WINDOW and all((offset - start) % size == 0 for offset in offsets):
        places = [(offset - start) // size for offset in offsets]
        read = emitter.new(f"load <{count} x {moved}>, ptr {address}, align {align}")
    else:
        distinct = sorted(set(offsets))
        count, places = len(distinct), [distinct.index(offset) for offset in offsets]
        read = "poison"
        for place, offset in enumerate(distinct):
            one = emitter.once(f"getelementptr i8, ptr {base}, i64 {offset}")
            one = emitter.new(f"load {moved}, ptr {one}, align {align}")
            read = emitter.new(f"insertelement <{count} x {moved}> {read}, {moved} {one}, i32 {place}")
    kind = f"<{count} x {moved}>"
    indices = ", ".join(f"i32 {place}" for place in places)
    picked = emitter.new(f"shufflevector {kind} {read}, {kind} poison, <{LANES} x i32> <{indices}>")
    return picked if moved == type_ else emitter.new(f"bitcast {wide(moved)} {picked} to {wide(type_)}")


def _write_record(emitter: Emitter, record: Record) -> None:
    """All loads of a record."""
    words: dict[int, str] = {}
    for place, count in record.chunks:
        vectors = _read_words(emitter, record.loads[0].operands[0], place - record.start, count)
        words |= {place + WORD * word: vector for word, vector in enumerate(vectors)}
    for load, fields in zip(record.loads, record.fields, strict=True):
        values = [_field(emitter, one, words) for one in fields]
        emitter.keep_vector(load.result, load.type, _as_stored(emitter, load.result, load.type, values))


def _read_words(emitter: Emitter, pointer: Operand, by: int, count: int) -> list[str]:
    """So many words that follow each other in each lane, `by` bytes from where an address points."""
    if count == 1:
        return [_read(emitter, "i32", pointer, by, 1)]
    shape = emitter.shape(pointer)
    if isinstance(shape, Spread) and emitter.mask is None:
        base, places = emitter.base(pointer), [offset + by for offset in shape.offsets]
        adjoining = all(after - before == count * WORD for before, after in zip(places[::2], places[1::2], strict=True))
        return turned(
            emitter, count, lambda lane: emitter.once(f"getelementptr i8, ptr {base}, i64 {places[lane]}"), adjoining
        )
    addresses = _active(emitter, _moved(emitter, emitter.vector(pointer)[0], by))
    if emitter.mask is None:
        return _turned_at(emitter, addresses, count)
    # As a function, as in `gather_all`.
    function, kind = f"__ost_words_{count}", f"[{count} x {wide('i32')}]"
    with emitter.helper(f"void @{function}(ptr %from, ptr %result)"):
        read = _turned_at(emitter, emitter.new(f"load {wide('ptr')}, ptr %from"), count)
        for word, vector in enumerate(read):
            emitter.line(f"store {wide('i32')} {vector}, ptr {_word_of(emitter, '%result', word)}")
        emitter.line("ret void")
    result = emitter.slot(f"%words.{count}", kind)
    emitter.line(f"call void @{function}(ptr {_in_memory(emitter, 'places', 'ptr', addresses)}, ptr {result})")
    return [emitter.new(f"load {wide('i32')}, ptr {_word_of(emitter, result, word)}") for word in range(count)]


def _word_of(emitter: Emitter, words: str, number: int) -> str:
    return emitter.once(f"getelementptr {wide('i32')}, ptr {words}, i64 {number}")


def _turned_at(emitter: Emitter, addresses: str, count: int) -> list[str]:
    kind = wide("ptr")
    return turned(emitter, count, lambda lane: emitter.once(f"extractelement {kind} {addresses}, i32 {lane}"), False)


def _field(emitter: Emitter, one: Field, words: Mapping[int, str]) -> str:
    """The part of a record that lies in one of these words."""
    at = next(at for at in words if at <= one.at and one.end <= at + WORD)
    value, kind, bits = words[at], wide("i32"), 8 * one.size
    if one.at > at:
        value = emitter.once(f"lshr {kind} {value}, {emitter.splat('i32', str(8 * (one.at - at)))}")
    if one.size < WORD:
        value = emitter.once(f"trunc {kind} {value} to {wide(f'i{bits}')}")
    if one.type[0] != "i":
        value = emitter.once(f"bitcast {wide(f'i{bits}')} {value} to {wide(one.type)}")
    return _from_stored(emitter, one.type, value)


def _fills(emitter: Emitter, type_: str) -> bool:
    """Whether elements fill their places in an array; a vector of `i48`, say, lies in memory without gaps."""
    return emitter.types.bits(type_) == 8 * emitter.types.size(type_)


def gather(emitter: Emitter, type_: str, addresses: str) -> str:
    """What active lanes read at addresses of their own.

    The others read a spare place: under a mask the compiler would make a branch for each lane.
    """
    return gather_all(emitter, type_, _active(emitter, addresses))


def gather_all(emitter: Emitter, type_: str, addresses: str) -> str:
    """What all lanes read at addresses of their own.

    Where lanes have parted that is done by a function: the reads, one by one, are most of what the compiler has to do.
    """
    kind, pointers = wide(type_), wide("ptr")
    name = f"llvm.masked.gather.{suffix(type_)}.v{LANES}p0"
    emitter.intrinsic(name, kind, [pointers, "i32", MASK, kind])
    read = f"call {kind} @{name}({pointers} %at, i32 1, {MASK} {EVERYONE}, {kind} poison)"
    if emitter.mask is None:
        return emitter.new(read.replace("%at", addresses))
    function, result = f"__ost_gather_{type_}", emitter.slot(f"%gathered.{type_}", kind)
    emitter.helpers[f"void @{function}(ptr %from, ptr %result)"] = (
        *(f"%at = load {pointers}, ptr %from", f"%read = {read}"),
        *(f"store {kind} %read, ptr %result", "ret void"),
    )
    emitter.line(f"call void @{function}(ptr {_in_memory(emitter, 'places', 'ptr', addresses)}, ptr {result})")
    return emitter.new(f"load {kind}, ptr {result}")


def scatter(emitter: Emitter, type_: str, value: str, addresses: str) -> None:
    """Writes of active lanes to addresses of their own, in the order of lanes."""
    kind, pointers = wide(type_), wide("ptr")
    name = f"llvm.masked.scatter.{suffix(type_)}.v{LANES}p0"
    emitter.intrinsic(name, "void", [kind, pointers, "i32", MASK])
    write = f"call void @{name}({kind} %values, {pointers} %at, i32 1, {MASK} {EVERYONE})"
    if emitter.mask is None:
        emitter.line(write.replace("%values", value).replace("%at", addresses))
        return
    function = f"__ost_scatter_{type_}"
    emitter.helpers[f"void @{function}(ptr %from, ptr %to)"] = (
        *(f"%values = load {kind}, ptr %from", f"%at = load {pointers}, ptr %to"),
        *(write, "ret void"),
    )
    places = _in_memory(emitter, "places", "ptr", _active(emitter, addresses))
    emitter.line(f"call void @{function}(ptr {_in_memory(emitter, f'given.{type_}', type_, value)}, ptr {places})")


def _active(emitter: Emitter, addresses: str) -> str:
    """The addresses of active lanes, and for the others that of a spare place."""
    if emitter.mask is None:
        return addresses
    spare = emitter.splat("ptr", emitter.slot("%spare", "[32 x i8], align 32"))
    return emitter.chosen(emitter.mask, wide("ptr"), addresses, spare)


def _in_memory(emitter: Emitter, name: str, type_: str, values: str) -> str:
    """Where the values of lanes lie for a function, in a slot of this name.

    A function takes and returns vectors in memory only: the registers for them depend on attributes, which inlining
    changes.
    """
    slot = emitter.slot(f"%{name}", wide(type_))
    emitter.line(f"store {wide(type_)} {values}, ptr {slot}")
    return slot


def _masked_load(emitter: Emitter, type_: str, address: str, align: int) -> str:
    return emitter.call(
        f"llvm.masked.load.{suffix(type_)}.p0",
        wide(type_),
        [("ptr", address), ("i32", str(align)), (MASK, emitter.mask_text()), (wide(type_), "poison")],
    )


def _from_stored(emitter: Emitter, type_: str, value: str) -> str:
    return value if type_ != "i1" else emitter.new(f"trunc {wide('i8')} {value} to {MASK}")


def _moved(emitter: Emitter, addresses: str, by: int) -> str:
    return addresses if by == 0 else emitter.new(f"getelementptr i8, {wide('ptr')} {addresses}, i64 {by}")


def write_store(emitter: Emitter, made: Instruction) -> None:
    """A store; where lanes write to one place, the last one's value stays."""
    value, pointer = made.operands
    if made.ordered:
        one_by_one(emitter, made)
        return
    shape = emitter.shape(pointer)
    if isinstance(shape, Uniform):
        _store_one(emitter, made, value, pointer)
        return
    parts = parts_of(value.type)
    values = emitter.vector(value)
    step = emitter.types.size(parts[0])
    distance = step * emitter.private.scale(pointer.value)
    for place, (type_, part) in enumerate(zip(parts, values, strict=True)):
        align = min(made.align, step)
        _store_lanes(emitter, type_, part, pointer, place * distance, align)


def _store_one(emitter: Emitter, made: Instruction, value: Operand, pointer: Operand) -> None:
    address = emitter.scalar(pointer)
    if isinstance(emitter.shape(value), Uniform):
        emitter.line(f"store {value.type} {emitter.scalar(value)}, ptr {address}, align {made.align}")
        return
    last = "31"
    if emitter.mask is not None:
        zeros = emitter.call("llvm.ctlz.i32", "i32", [("i32", emitter.bits(emitter.mask)), ("i1", "true")])
        last = emitter.new(f"sub i32 31, {zeros}")
    size = emitter.types.size(parts_of(value.type)[0])
    for place, (type_, part) in enumerate(zip(parts_of(value.type), emitter.vector(value), strict=True)):
        own = emitter.new(f"extractelement {wide(type_)} {part}, i32 {last}")
        at = address if place == 0 else emitter.new(f"getelementptr i8, ptr {address}, i64 {place * size}")
        align = made.align if place == 0 else min(made.align, size)
        emitter.line(f"store {type_} {own}, ptr {at}, align {align}")


def _store_lanes(emitter: Emitter, type_: str, value: str, pointer: Operand, extra: int, align: int) -> None:
    shape = emitter.shape(pointer)
    size = emitter.types.size(type_)
    if type_ == "i1":
        value, type_ = emitter.new(f"zext {MASK} {value} to {wide('i8')}"), "i8"
    if isinstance(shape, Spread) and _fills(emitter, type_):
        offsets = [offset + extra for offset in shape.offsets]
        if [offset - offsets[0] for offset in offsets] == [size * lane for lane in range(LANES)]:
            address = emitter.once(f"getelementptr i8, ptr {emitter.base(pointer)}, i64 {offsets[0]}")
            if emitter.mask is None:
                emitter.line(f"store {wide(type_)} {value}, ptr {address}, align {align}")
                return
            if size >= _MASKED_BYTES:
                emitter.call(
                    f"llvm.masked.store.{suffix(type_)}.p0",
                    "void",
                    [(wide(type_), value), ("ptr", address), ("i32", str(align)), (MASK, emitter.mask_text())],
                )
                return
    scatter(emitter, type_, value, _moved(emitter, emitter.vector(pointer)[0], extra))
