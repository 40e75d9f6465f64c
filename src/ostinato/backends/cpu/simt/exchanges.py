"""What lanes do together: the functions that lanes_vector.h declares.

A matrix of a simdgroup is two values in each lane, the first two of a short vector. Here it is one vector of its 64
elements, row by row (a tile), so that loads, stores and products work on rows. Where a lane asks for its own two
elements they are picked out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from . import memory
from .code import (
    LANES,
    MASK,
    Function,
    Instruction,
    Operand,
    Refused,
    constant_vector,
    integer,
    vector_count,
    vector_element,
    wide,
)
from .shapes import Spread, Uniform
from .turning import joined

if TYPE_CHECKING:
    from .emission import Emitter

_SIDE = 8
_PRODUCT = "__ost_tile_multiply"
_ROW, _FMA = f"<{_SIDE} x float>", f"llvm.fma.v{_SIDE}f32"
DIVIDED_BY_ZERO = "__ubsan_handle_divrem_overflow_abort"
"""What is called before a division by zero, by whichever lane."""
_LOAD, _STORE = "__ost_tile_load", "__ost_tile_store"


def _row(lane: int) -> int:
    return ((lane >> 2) & 4) + ((lane >> 1) & 3)


def _column(lane: int) -> int:
    return ((lane >> 2) & 2) * 2 + (lane & 1) * 2


_PLACES = [[_row(lane) * _SIDE + _column(lane) + part for lane in range(LANES)] for part in range(2)]
"""Where the two elements of each lane lie in a tile."""
_HOLDERS = [0] * (2 * LANES)
for _part in range(2):
    for _lane in range(LANES):
        _HOLDERS[_PLACES[_part][_lane]] = _part * LANES + _lane
_TRANSPOSED = [column * _SIDE + row for row in range(_SIDE) for column in range(_SIDE)]
_ELEMENTWISE = frozenset(
    """add sub mul shl lshr ashr and or xor fadd fsub fmul fdiv fneg freeze trunc zext sext fptrunc fpext fptoui fptosi
    uitofp sitofp bitcast icmp fcmp""".split()
)


def _indices(places: list[int]) -> str:
    return f"<{len(places)} x i32> <{', '.join(f'i32 {place}' for place in places)}>"


def tile_type(type_: str) -> str:
    """The type of a tile, from that of one lane's elements."""
    return f"<{2 * LANES} x {vector_element(type_)}>"


def tile_values(function: Function) -> frozenset[str]:
    """The values that are kept as tiles: the results of operations on matrices, and what is computed from them.

    A tile has the first two elements of each lane, so values whose other elements are read are none.
    """
    instructions = [made for block in function.blocks.values() for made in (*block.phis, *block.body)]
    matrices = {made.result for made in instructions if made.callee.startswith("__ost_tile") and made.result}
    tiles = set(matrices)
    changed = True
    while changed:
        changed = False
        for made in instructions:
            if made.result in tiles or not vector_count(made.type):
                continue
            follows = _by_elements(made) or made.indices[:2] == (0, 1)
            if follows and any(operand.value in tiles for operand in made.operands):
                tiles.add(made.result)
                changed = True
    changed = True
    while changed:
        beyond = {operand.value for made in instructions for operand in _read_beyond(made, tiles)} & tiles - matrices
        tiles -= beyond
        changed = bool(beyond)
    return frozenset(tiles)


def _by_elements(made: Instruction) -> bool:
    """Whether each element of a result is computed from those at its place; a bitcast may change their number."""
    if made.op in ("phi", "select"):
        return True
    return made.op in _ELEMENTWISE and vector_count(made.type) == vector_count(made.operands[0].type)


def _read_beyond(made: Instruction, tiles: Collection[str]) -> Iterator[Operand]:
    """The operands of which an instruction needs more than the first two elements."""
    for position, operand in enumerate(made.operands):
        count = vector_count(operand.type)
        if count <= 2 or made.callee.startswith("__ost_tile"):
            continue
        if made.op == "shufflevector":
            needed = made.indices[:2] if made.result in tiles else made.indices
            places = [index - position * count for index in needed]
            if any(2 <= place < count for place in places):
                yield operand
        elif made.op == "extractelement":
            if made.operands[1].value not in ("0", "1"):
                yield operand
        elif not (_by_elements(made) and made.result in tiles):
            yield operand


def products(function: Function, masked: Collection[str]) -> tuple[frozenset[str], dict[str, str]]:
    """What products of matrices take, and the sums that can be kept where the matrix lay that they were added to.

    That is so if nothing else reads that matrix: a phi or another product of the same block, which is not among the
    `masked` ones, where lanes that do not take part keep the old matrix.
    """
    uses: Counter[str] = Counter()
    factors: set[str] = set()
    for block in function.blocks.values():
        for made in (*block.phis, *block.body):
            names = [operand.value for operand in made.operands if operand.is_local]
            uses.update(names)
            if made.callee.startswith(_PRODUCT):
                factors.update(names)
    sums: dict[str, str] = {}
    for name, block in function.blocks.items():
        if name in masked:
            continue
        summands = {phi.result for phi in block.phis}
        for made in block.body:
            if made.callee.startswith(_PRODUCT):
                added = made.operands[2].value
                if added in summands and uses[added] == 1:
                    sums[made.result] = sums.get(added, added)
                summands.add(made.result)
    return frozenset(factors), sums


def untiled(emitter: Emitter, tile: str, type_: str) -> list[str]:
    """The two elements of each lane."""
    kind = tile_type(type_)
    parts = [emitter.once(f"shufflevector {kind} {tile}, {kind} poison, {_indices(places)}") for places in _PLACES]
    return parts + ["poison"] * (vector_count(type_) - 2)


def tiled(emitter: Emitter, parts: list[str], type_: str) -> str:
    """The tile of the lanes' elements."""
    kind = wide(vector_element(type_))
    return emitter.once(f"shufflevector {kind} {parts[0]}, {kind} {parts[1]}, {_indices(_HOLDERS)}")


def mask_of_tile(emitter: Emitter, mask: str) -> str:
    """For each element of a tile whether its lane is in a mask."""
    kind = MASK
    places = [holder % LANES for holder in _HOLDERS]
    return emitter.once(f"shufflevector {kind} {mask}, {kind} poison, {_indices(places)}")


def write_exchange(emitter: Emitter, made: Instruction) -> None:
    """A call of one of the functions of lanes_vector.h."""
    name = made.callee
    if name == "__ost_lane":
        return
    if name == "__ost_worker":
        emitter.keep_scalar(made.result, "ptr", "%a0")
    elif name == "__ost_meet":
        emitter.line("call void @__ost_meet_simdgroups(ptr %a0)")
    elif name == "__ost_settle":
        return
    elif name == "__ost_ballot":
        votes = emitter.within(emitter.mask, emitter.vector(made.operands[0])[0])
        emitter.keep_scalar(made.result, "i32", emitter.new(f"bitcast {MASK} {votes} to i32"))
    elif name.startswith("__ost_tile"):
        _write_tile(emitter, made)
    else:
        _write_move(emitter, made, name[len("__ost_") : -2])


def _write_move(emitter: Emitter, made: Instruction, name: str) -> None:
    value, other = made.operands
    kind = wide(made.type)
    if name == "fill":
        own = emitter.vector(value)[0]
        if emitter.mask is not None:
            own = emitter.chosen(emitter.mask, kind, own, emitter.vector(other)[0])
        emitter.keep_vector(made.result, made.type, [own])
        return
    shape = emitter.shape(other)
    if name == "pick" or (name == "filled" and isinstance(shape, Uniform)):
        if isinstance(emitter.shape(value), Uniform):
            emitter.keep_scalar(made.result, made.type, emitter.scalar(value))
            return
        if not isinstance(shape, Uniform):
            raise Refused("a lane that is not the same for all")
        own = emitter.vector(value)[0]
        picked = emitter.new(f"extractelement {kind} {own}, i32 {emitter.scalar(other)}")
        emitter.keep_scalar(made.result, made.type, picked)
        return
    own = emitter.vector(value)[0]
    moved = _permuted(emitter, made.type, own, other)
    if name == "shuffle" and emitter.mask is not None:
        sources = emitter.vector(other)[0]
        active = emitter.splat("i32", emitter.bits(emitter.mask))
        shifted = emitter.new(f"lshr {wide('i32')} {active}, {sources}")
        there = emitter.new(f"trunc {wide('i32')} {shifted} to {MASK}")
        moved = emitter.chosen(there, kind, moved, own)
    emitter.keep_vector(made.result, made.type, [moved])


def _permuted(emitter: Emitter, type_: str, value: str, places: Operand) -> str:
    """The values of other lanes; all places are below 32."""
    kind = wide(type_)
    shape = emitter.shape(places)
    if isinstance(shape, Spread) and shape.zero:
        offsets = [offset & 31 for offset in shape.offsets]
        return emitter.new(f"shufflevector {kind} {value}, {kind} poison, {_indices(offsets)}")
    number = integer(places.value)
    if isinstance(shape, Uniform):
        lane = str(number) if number is not None else emitter.once(f"and i32 {emitter.scalar(places)}, 31")
        return emitter.splat(type_, emitter.new(f"extractelement {kind} {value}, i32 {lane}"))
    slot = emitter.slot(f"%{emitter.fresh('x')}", kind)
    emitter.line(f"store {kind} {value}, ptr {slot}")
    # Of lanes that are not active it may be poison, of which the compiler would know that it is below 32.
    lanes = emitter.new(f"freeze {wide('i32')} {emitter.vector(places)[0]}")
    lanes = emitter.new(f"and {wide('i32')} {lanes}, {emitter.splat('i32', '31')}")
    addresses = emitter.new(f"getelementptr {type_}, ptr {slot}, {wide('i32')} {lanes}")
    return memory.gather_all(emitter, type_, addresses)


# -- matrices ----------------------------------------------------------------------------------------------------------


def _write_tile(emitter: Emitter, made: Instruction) -> None:
    if made.callee.startswith(_PRODUCT):
        _write_product(emitter, made)
    elif made.callee.startswith(_LOAD):
        _write_tile_load(emitter, made)
    elif made.callee.startswith(_STORE):
        _write_tile_store(emitter, made)
    else:
        raise Refused(f"the operation {made.callee}")


def _place(emitter: Emitter, operand: Operand) -> str:
    """Where a matrix lies in memory, in which lanes that do not take part count as zero."""
    known = emitter.tile_place(operand) if emitter.mask is None else None
    return known or emitter.place(_active_tile(emitter, operand), tile_type(operand.type))


def _active_tile(emitter: Emitter, operand: Operand) -> str:
    """A matrix in which lanes that do not take part count as zero."""
    tile = emitter.tile(operand)
    if emitter.mask is None:
        return tile
    return emitter.chosen(emitter.mask, tile_type(operand.type), tile, "zeroinitializer")


def _write_product(emitter: Emitter, made: Instruction) -> None:
    """``a * b + c`` in float, by a function: inlined, products of many tiles take the compiler long."""
    tile = f"<{2 * LANES} x float>"
    factors = [_place(emitter, operand) for operand in made.operands]
    emitter.helpers[_PRODUCT_HEADING] = _product()
    emitter.intrinsic(_FMA, _ROW, [_ROW] * 3)
    total = emitter.result_place(made.result, tile)
    emitter.line(f"call void @__ost_product(ptr {total}, {', '.join(f'ptr {place}' for place in factors)})")
    emitter.keep_placed(made.result, made.type)


_PRODUCT_HEADING = "void @__ost_product(ptr %out, ptr readonly %a, ptr readonly %b, ptr readonly %c)"


@lru_cache(maxsize=1)
def _product() -> tuple[str, ...]:
    """The product of tiles in memory, each element summed up in the order of the columns of `a`."""
    row_bytes = 4 * _SIDE
    lines = []

    def address(name: str, tile: str, offset: int) -> str:
        lines.append(f"%{name}.at = getelementptr i8, ptr %{tile}, i64 {offset}")
        return f"%{name}.at"

    for k in range(_SIDE):
        lines.append(f"%b{k} = load {_ROW}, ptr {address(f'b{k}', 'b', k * row_bytes)}, align {row_bytes}")
    for row in range(_SIDE):
        total = f"%c{row}"
        lines.append(f"{total} = load {_ROW}, ptr {address(f'c{row}', 'c', row * row_bytes)}, align {row_bytes}")
        for k in range(_SIDE):
            name = f"a{row}{k}"
            lines.append(f"%{name} = load float, ptr {address(name, 'a', row * row_bytes + 4 * k)}, align 4")
            lines.append(f"%{name}.0 = insertelement {_ROW} poison, float %{name}, i64 0")
            zeros = f"<{_SIDE} x i32> zeroinitializer"
            lines.append(f"%{name}.s = shufflevector {_ROW} %{name}.0, {_ROW} poison, {zeros}")
            arguments = f"{_ROW} %{name}.s, {_ROW} %b{k}, {_ROW} {total}"
            total = f"%t{row}{k}"
            lines.append(f"{total} = call {_ROW} @{_FMA}({arguments})")
        lines.append(f"store {_ROW} {total}, ptr {address(f'o{row}', 'out', row * row_bytes)}, align {row_bytes}")
    return (*lines, "ret void")


def _rows_at(emitter: Emitter, pointer: Operand, stride: Operand, size: int) -> list[str] | None:
    """The addresses of the eight rows; None unless they are the same for all lanes."""
    if not (isinstance(emitter.shape(pointer), Uniform) and isinstance(emitter.shape(stride), Uniform)):
        return None
    address, step = emitter.scalar(pointer), emitter.once(f"mul i64 {emitter.scalar(stride)}, {size}")
    rows = [address]
    for _ in range(_SIDE - 1):
        rows.append(emitter.once(f"getelementptr i8, ptr {rows[-1]}, i64 {step}"))
    return rows


def _lane_addresses(emitter: Emitter, pointer: Operand, stride: Operand, size: int, turn: Operand) -> list[str]:
    """The addresses of each lane's two elements, where rows do not lie at the same place for all."""
    base, step, kind = emitter.vector(pointer)[0], emitter.vector(stride)[0], wide("i64")
    addresses = []
    for part in range(2):
        rows = constant_vector("i64", [_row(lane) for lane in range(LANES)])
        columns = constant_vector("i64", [_column(lane) + part for lane in range(LANES)])
        row = _one_of(emitter, turn, kind, columns, rows)
        column = _one_of(emitter, turn, kind, rows, columns)
        place = emitter.new(f"add {kind} {emitter.new(f'mul {kind} {step}, {row}')}, {column}")
        addresses.append(emitter.new(f"getelementptr [{size} x i8], {wide('ptr')} {base}, {kind} {place}"))
    return addresses


def _one_of(emitter: Emitter, turn: Operand, kind: str, turned: str, plain: str) -> str:
    """The one if a matrix is read or written transposed, the other if not."""
    if not turn.is_local:
        return turned if integer(turn.value) else plain
    if not isinstance(emitter.shape(turn), Uniform):
        raise Refused("a matrix that only some lanes transpose")
    return emitter.new(f"select i1 {emitter.scalar(turn)}, {kind} {turned}, {kind} {plain}")


def _turned(emitter: Emitter, turn: Operand, kind: str, tile: str) -> str:
    """A tile, transposed if it is to be."""
    if not turn.is_local and not integer(turn.value):
        return tile
    turned = emitter.new(f"shufflevector {kind} {tile}, {kind} poison, {_indices(_TRANSPOSED)}")
    return _one_of(emitter, turn, kind, turned, tile)


def _write_tile_load(emitter: Emitter, made: Instruction) -> None:
    """``__ost_tile_load(pointer, elements from row to row, transposed)``."""
    pointer, stride, turn = made.operands
    type_ = vector_element(made.type)
    size = emitter.types.size(type_)
    rows = _rows_at(emitter, pointer, stride, size) if emitter.mask is None else None
    if rows is not None:
        loaded = [emitter.new(f"load <{_SIDE} x {type_}>, ptr {row}, align {size}") for row in rows]
        tile = joined(emitter, loaded, type_, _SIDE)
        emitter.keep_vector(made.result, made.type, [_turned(emitter, turn, tile_type(made.type), tile)])
        return
    places = _lane_addresses(emitter, pointer, stride, size, turn)
    parts = [memory.gather(emitter, type_, addresses) for addresses in places]
    emitter.keep_vector(made.result, made.type, [tiled(emitter, parts, made.type)])


def _write_tile_store(emitter: Emitter, made: Instruction) -> None:
    """``__ost_tile_store(matrix, pointer, elements from row to row, transposed)``."""
    matrix, pointer, stride, turn = made.operands
    type_ = vector_element(matrix.type)
    size = emitter.types.size(type_)
    rows = _rows_at(emitter, pointer, stride, size) if emitter.mask is None else None
    kind = tile_type(matrix.type)
    if rows is not None:
        tile = _turned(emitter, turn, kind, emitter.tile(matrix))
        for number, row in enumerate(rows):
            places = list(range(number * _SIDE, number * _SIDE + _SIDE))
            value = emitter.new(f"shufflevector {kind} {tile}, {kind} poison, {_indices(places)}")
            emitter.line(f"store <{_SIDE} x {type_}> {value}, ptr {row}, align {size}")
        return
    addresses = _lane_addresses(emitter, pointer, stride, size, turn)
    for value, place in zip(emitter.vector(matrix)[:2], addresses, strict=True):
        memory.scatter(emitter, type_, value, place)
