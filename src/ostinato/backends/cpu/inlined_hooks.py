"""How instrumented LLVM assembly calls the hooks of `runtime/inline_hooks.h`, where bounds alone are looked for.

What the hooks look at is the same in all of a function, and is read where it begins: the optimiser would not move it
out of loops. Accesses of a block at constant distances, such as those of a loop that was unrolled, are looked at
together, once for the range that they span. Where that is not known to be within bounds, each is looked at alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .clang_code import INSTRUMENTED, VARIABLE, in_instrumented_functions

_HOOK = re.compile(
    r"^  (?:tail )?call void @__tsan_(?:unaligned_)?(?P<how>read|write)(?P<bytes>16|[1248])"
    r"\(ptr (?P<address>.*)\)(?P<place>[^()\n]*)$"
)
_PLAIN = re.compile(
    r"^  (?:(?P<read>%[\w.]+ = load )|store )(?:volatile )?(?:<(?P<count>\d+) x )?(?P<type>\w+).*?,"
    r" ptr (?P<address>[%@][\w.$]+), align \d+(?:, !(?!dbg)\w+ !\d+)*(?P<place>(?:, !dbg !\d+)?)"
)
_ELEMENT = re.compile(
    r"^  (?P<name>%[\w.]+) = getelementptr (?:inbounds )?(?:nusw )?(?:nuw )?(?P<type>\w+),"
    r" ptr (?P<from>%[\w.]+), i64 (?P<index>%[\w.]+|-?\d+)(?:,|$)"
)
_SUM = re.compile(
    r"^  (?P<name>%[\w.]+) = (?:or disjoint|add(?: nuw)?(?: nsw)?) i64 (?P<index>%[\w.]+), (?P<more>-?\d+)(?:,|$)"
)
_PART = re.compile(r"^  (%[\w.]+) = getelementptr .*?, ptr (%[\w.]+)", re.M)
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_INTEGER = re.compile(r"i\d+")
_INSTRUMENTED_BYTES = (0, 1, 2, 4, 8, 16)
"""Sizes of accesses that have hooks; 0: of a type that is no scalar and no vector, which is not accessed whole."""
_RANGES = ("__tsan_read_range", "__tsan_write_range")
_LABEL = re.compile(r"[-\w$.]+:")
_ARENA = "ptr %ost.seen, i64 %ost.arena, i64 %ost.bytes"
_LOOKED_AT = f"{_ARENA}, ptr %ost.states"
_LOOKING = """  %ost.seen = call ptr @__ost_glance()
  %ost.arena = call i64 @__ost_arena(ptr %ost.seen)
  %ost.bytes = call i64 @__ost_arena_bytes(ptr %ost.seen)
  %ost.states = call ptr @__ost_arena_states(ptr %ost.seen)
"""


@dataclass(frozen=True, slots=True)
class _Access:
    name: str
    """What hooks of such accesses are called, such as "read4"."""
    bytes: int
    address: str
    base: str
    """The address from which accesses that are looked at together are counted."""
    offset: int


def with_inlined_hooks(assembly: str) -> str:
    """LLVM assembly instrumented for bounds alone, whose functions call hooks that clang can inline.

    Accesses of other sizes than 1, 2, 4, 8 and 16 bytes, which clang does not instrument, call the hook of a range.
    """
    text = in_instrumented_functions(assembly, _calling_inlined_hooks)
    # Functions that are not instrumented can be inlined into others from here on.
    text = INSTRUMENTED.sub(r"attributes #\1 = {\2", text)
    return text + "".join(f"declare void @{name}(ptr, i64)\n" for name in _RANGES)


def _calling_inlined_hooks(function: str) -> str:
    heading, *lines = function.split("\n")
    blocks: list[list[str]] = [[]]
    for line in lines:
        if _LABEL.match(line) and blocks[-1]:
            blocks.append([])
        blocks[-1].append(line)
    if _LABEL.match(blocks[0][0]):
        heading += "\n" + blocks[0].pop(0)
    distances, variables = _distances(blocks), _in_variables(function)
    changed = [
        line for number, block in enumerate(blocks) for line in _changed_block(block, number, distances, variables)
    ]
    return "\n".join((heading, _LOOKING + changed[0], *changed[1:]))


def _changed_block(
    block: Sequence[str], number: int, distances: Mapping[str, tuple[str, int]], variables: Collection[str]
) -> list[str]:
    accesses: dict[int, _Access] = {}
    groups: defaultdict[str, list[_Access]] = defaultdict(list)
    for at, line in enumerate(block):
        if hook := _HOOK.match(line):
            base, offset = distances.get(hook["address"], (hook["address"], 0))
            access = _Access(f"{hook['how']}{hook['bytes']}", int(hook["bytes"]), hook["address"], base, offset)
            accesses[at] = access
            groups[base].append(access)
    known: dict[str, str] = {}
    lines: list[str] = []
    for at, line in enumerate(block):
        if at not in accesses:
            lines += _ranged(line)
            continue
        access = accesses[at]
        group = groups[access.base]
        if access.base in variables:
            call = f"@__ost_local_{access.name}(ptr {access.address}, ptr %ost.seen)"
        elif len(group) == 1:
            call = f"@__ost_{access.name}(ptr {access.address}, {_LOOKED_AT})"
        else:
            if access.base not in known:
                known[access.base] = f"%ost.known.{number}.{len(known)}"
                ends = min(each.offset for each in group), max(each.offset + each.bytes for each in group)
                inside = f"@__ost_are_inside(ptr {access.base}, i64 {ends[0]}, i64 {ends[1]}, {_ARENA})"
                lines.append(f"  {known[access.base]} = call zeroext i1 {inside}")
            call = f"@__ost_grouped_{access.name}(ptr {access.base}, i64 {access.offset}, i1 {known[access.base]})"
        lines.append(_HOOK.sub(rf"  call void {call}\g<place>", line))
    return lines


def _distances(blocks: Sequence[Sequence[str]]) -> dict[str, tuple[str, int]]:
    """The addresses that lie a constant number of bytes from another, which has no such."""
    steps: dict[str, tuple[str, int]] = {}
    sums: dict[str, tuple[str, int]] = {}
    for block in blocks:
        # By what an element is counted from: the first address of the block, which comes before the others.
        firsts: dict[tuple[str, str, str], tuple[str, int]] = {}
        for line in block:
            if total := _SUM.match(line):
                sums[total["name"]] = (total["index"], int(total["more"]))
            element = _ELEMENT.match(line)
            size = _bits(element["type"]) // 8 if element is not None else 0
            if element is None or not size:
                continue
            name, index = element["name"], element["index"]
            if not index.startswith("%"):
                steps[name] = (element["from"], int(index) * size)
                continue
            index, more = sums.get(index, (index, 0))
            first, least = firsts.setdefault((element["from"], element["type"], index), (name, more))
            if first != name:
                steps[name] = (first, (more - least) * size)
    found: dict[str, tuple[str, int]] = {}
    for name in steps:
        base, offset = name, 0
        while base in steps:
            base, more = steps[base]
            offset += more
        found[name] = (base, offset)
    return found


def _in_variables(function: str) -> set[str]:
    """The addresses of local variables, and of their elements and members."""
    variables = set(VARIABLE.findall(function))
    parts = dict(_PART.findall(function))

    def is_in_variable(name: str) -> bool:
        while name in parts:
            name = parts[name]
        return name in variables

    return variables | {name for name in parts if is_in_variable(name)}


def _bits(type_name: str) -> int:
    """Of a scalar; 0 for others."""
    return _BITS.get(type_name) or (int(type_name[1:]) if _INTEGER.fullmatch(type_name) else 0)


def _ranged(line: str) -> list[str]:
    """A line, and before it the hook of a range for an access of a size that clang does not instrument."""
    access = _PLAIN.match(line)
    if access is None:
        return [line]
    size = (int(access["count"] or 1) * _bits(access["type"]) + 7) // 8
    if size in _INSTRUMENTED_BYTES:
        return [line]
    hook = _RANGES[access["read"] is None]
    return [f"  call void @{hook}(ptr {access['address']}, i64 {size}){access['place']}", line]
