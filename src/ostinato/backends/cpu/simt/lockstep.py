"""Lockstep, while the code of one thread is optimised.

A compiler that sees one thread takes a value that the thread has read or written for the value of that memory until the
thread itself may change it. In a simdgroup another lane may have written there in the meantime. So behind everything
that writes to memory beyond the function's own variables stands an empty piece of assembly that "may change memory"
until the lane pass takes over. After it, one thread writes what all lanes write, and nothing has to be hidden. It is
convergent: a write that all lanes make together is not duplicated into the branches that they took before it.

The end of an iteration (`__ost_turn`) is such a piece of assembly, too, so that no way past it is made.

Nor does a read move down past a branch, behind which other lanes write: behind it stands assembly that "may write",
though to no memory that the thread knows, so that what has been read stays known.
"""

from __future__ import annotations

import re

MEANTIME = '  call void asm sideeffect "", "~{memory}"() convergent'
TURN = '  call void asm sideeffect "", "r"(ptr null) memory(argmem: readwrite) convergent nounwind willreturn'
READ = '  call void asm sideeffect "", "r"(ptr null) memory(argmem: readwrite) nounwind willreturn'

STEPPING = (
    *("-mllvm", "-enable-load-pre=0", "-mllvm", "-jump-threading-threshold=0"),
    *("-mllvm", "-simplifycfg-max-small-block-size=0"),
)
"""Flags for the optimiser: no load is carried around a branch that other lanes take, and flow is not duplicated so that
lanes which took different branches run on apart."""

_NAME = r'[%@](?:"[^"]*"|[-\w$.]+)'
_DECLARED = re.compile(rf"\s*({_NAME}) = (?:alloca |(?:getelementptr|addrspacecast)[^%@]*({_NAME}))")
"""A variable, or an address in one."""
_WRITE = re.compile(
    rf"\s*(?:store .*, ptr ({_NAME})(?:,|$)|(?:{_NAME} = )?(?:atomicrmw|cmpxchg) |"
    rf"(?:tail )?call void @llvm\.mem(?:cpy|move|set)[^(]*\([^%@]*({_NAME}))"
)
_TURN = re.compile(r"\s*(?:tail )?call void @__ost_turn\(\)")
_READ = re.compile(rf"\s*{_NAME} = load [^,]*, ptr ({_NAME})(?:,|$)")
_ASSEMBLY = re.compile(r'^\s*(?:tail )?call void asm sideeffect "", "(?:~\{memory\}|r)"\(.*\n', re.M)


def shared_memory_changes(module: str) -> str:
    """LLVM code that is not optimised yet, with the assembly behind each access to memory that lanes may share."""
    lines: list[str] = []
    own: set[str] = set()
    for line in module.split("\n"):
        if _TURN.match(line):
            line = TURN
        lines.append(line)
        if line.startswith("define"):
            own = set()
        elif (found := _DECLARED.match(line)) and (found[2] is None or found[2] in own):
            own.add(found[1])
        elif (found := _WRITE.match(line)) and (found[1] or found[2]) not in own:
            lines.append(MEANTIME)
        elif (found := _READ.match(line)) and found[1] not in own:
            lines.append(READ)
    return "\n".join(lines)


def steps_done(module: str) -> str:
    """The code without the assembly."""
    return _ASSEMBLY.sub("", module)
