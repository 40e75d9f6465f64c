"""The local arrays of a thread, of which every lane has one.

An array that is only ever read and written in elements of one size lies element by element, the lanes' elements next to
each other: an index that is the same for all lanes then makes one access to neighbours. Others lie lane by lane.
"""

from __future__ import annotations

from dataclasses import dataclass

from .code import LANES, Function, Instruction, Operand, Types, integer, parts_of

_LARGEST_COPY = 2048


@dataclass(frozen=True, slots=True)
class _Layout:
    bytes: int
    """Of one lane's array."""
    element: int
    """Bytes of the elements that lie lane next to lane; 0 if the arrays lie one after the other."""


class Private:
    """Where the lanes' copies of local arrays lie."""

    def __init__(self, function: Function, types: Types) -> None:
        self._layouts: dict[str, _Layout] = {}
        self._elements: dict[str, int] = {}
        """Bytes of the elements, for all addresses in arrays whose lanes' elements lie next to each other."""
        self._arrays: dict[str, str] = {}
        """The arrays that these addresses are in."""
        self.arrays: list[Instruction] = []
        users: dict[str, list[Instruction]] = {}
        for block in function.blocks.values():
            for instruction in (*block.phis, *block.body):
                for operand in instruction.operands:
                    if operand.is_local and operand.type == "ptr":
                        users.setdefault(operand.value, []).append(instruction)
                if instruction.op == "alloca":
                    self.arrays.append(instruction)
        for array in self.arrays:
            self._lay_out(array, users, types)
        self._leave_whole(function)
        if self._elements:
            self._expand_copies(function)

    def offsets(self, array: str) -> tuple[int, ...]:
        """The bytes from the start of all lanes' arrays to each lane's own."""
        layout = self._layouts[array]
        return tuple(lane * (layout.element or layout.bytes) for lane in range(LANES))

    def bytes(self, array: str) -> int:
        """Of all lanes' arrays together."""
        return self._layouts[array].bytes * LANES

    def scale(self, address: str) -> int:
        """How many times farther elements are apart than in one lane's array."""
        return LANES if address in self._elements else 1

    def _lay_out(self, array: Instruction, users: dict[str, list[Instruction]], types: Types) -> None:
        align = max(array.align, types.layout(array.element)[1])
        size = -(-types.size(array.element) // align) * align
        addresses = {array.result}
        queue = [array.result]
        elements: set[int] = set()
        steps: set[int] = set()
        copies: list[Instruction] = []
        simple = True
        while queue:
            address = queue.pop()
            for user in users.get(address, []):
                if user.op == "load" and not user.ordered:
                    elements |= {types.size(part) for part in parts_of(user.type)}
                elif user.op == "store" and not user.ordered and user.operands[0].value != address:
                    elements |= {types.size(part) for part in parts_of(user.operands[0].type)}
                elif user.op == "getelementptr" and user.operands[0].value == address:
                    constant, variable = types.strides(user.element, user.operands[1:])
                    steps |= {constant, *(step for step, _ in variable)}
                    if user.result not in addresses:
                        addresses.add(user.result)
                        queue.append(user.result)
                elif _is_copy(user):
                    copies.append(user)
                else:
                    simple = False
        element = next(iter(elements)) if len(elements) == 1 else 0
        whole = simple and element > 0 and all(step % element == 0 for step in (*steps, size))
        if whole and all(_copied_bytes(copy) % element == 0 for copy in copies):
            self._layouts[array.result] = _Layout(size, element)
            self._elements |= dict.fromkeys(addresses, element)
            self._arrays |= dict.fromkeys(addresses, array.result)
        else:
            self._layouts[array.result] = _Layout(size, 0)

    def _leave_whole(self, function: Function) -> None:
        """Arrays of elements of different size that are copied to each other lie lane by lane."""
        whole: set[str] = set()
        for block in function.blocks.values():
            for instruction in filter(_is_copy, block.body):
                touched = [o.value for o in instruction.operands[:2] if o.value in self._elements]
                if len({self._elements[address] for address in touched}) > 1:
                    whole |= {self._arrays[address] for address in touched}
        for array in whole:
            self._layouts[array] = _Layout(self._layouts[array].bytes, 0)
        self._elements = {address: e for address, e in self._elements.items() if self._arrays[address] not in whole}

    def _expand_copies(self, function: Function) -> None:
        """Copies from and to arrays that do not lie in one piece become reads and writes of their elements."""
        count = 0
        for block in function.blocks.values():
            body: list[Instruction] = []
            for instruction in block.body:
                touched = [o.value for o in instruction.operands[:2] if o.value in self._elements]
                if not (_is_copy(instruction) and touched):
                    body.append(instruction)
                    continue
                element = self._elements[touched[0]]
                type_ = f"i{8 * element}"
                target, source = instruction.operands[:2]
                writes: list[Instruction] = []
                for at in range(0, _copied_bytes(instruction), element):
                    value = Operand(type_, "0")
                    if "memset" not in instruction.callee:
                        count += 1
                        read = f"%ost.read{count}"
                        body.append(self._moved(source, at, count))
                        body.append(Instruction("load", read, type_, [Operand("ptr", f"%ost.from{count}")], align=1))
                        value = Operand(type_, read)
                    count += 1
                    write = [self._moved(target, at, count)]
                    write.append(
                        Instruction("store", "", "void", [value, Operand("ptr", f"%ost.from{count}")], align=1)
                    )
                    # What is moved may overlap: all of it is read before any is written.
                    (writes if "memmove" in instruction.callee else body).extend(write)
                body += writes
            block.body = body

    def _moved(self, address: Operand, by: int, number: int) -> Instruction:
        name = f"%ost.from{number}"
        if address.value in self._elements:
            self._elements[name] = self._elements[address.value]
        step = Operand("i64", str(by))
        text = f"getelementptr i8, ptr {address.value}, i64 {by}"
        return Instruction("getelementptr", name, "ptr", [address, step], element="i8", text=text)


def _is_copy(user: Instruction) -> bool:
    if user.op != "call" or not user.callee.startswith(("llvm.memcpy", "llvm.memset", "llvm.memmove")):
        return False
    if "memset" in user.callee and integer(user.operands[1].value) != 0:
        return False
    length = integer(user.operands[2].value)
    return length is not None and length <= _LARGEST_COPY


def _copied_bytes(copy: Instruction) -> int:
    return int(copy.operands[2].value)
