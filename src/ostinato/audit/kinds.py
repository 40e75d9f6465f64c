"""The kinds of findings: what each means, and what to do about it. For terminals, SARIF's rules and docs/checking.md.

Both are clauses, to be shown after others or as sentences. A finding that knows more has advice of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of finding."""

    meaning: str
    advice: str


KINDS = {
    "race": Kind(
        "two threads access the same memory, at least one of them writes, and nothing orders them: across threadgroups"
        " only the end of the dispatch, or fences with atomics, do",
        "put a barrier between the accesses whose flags cover this memory, make both atomic, or give each thread its"
        " own element",
    ),
    "relies on lockstep": Kind(
        "two lanes of a simdgroup access the same memory, ordered only if the lanes run in lockstep",
        "put a simdgroup_barrier between the accesses; Metal does not promise lockstep",
    ),
    "uninitialised": Kind(
        "a thread reads memory that nothing has written",
        "write the memory before it is read; see which threads fill it, and whether all of it is filled",
    ),
    "out of bounds": Kind(
        "a thread accesses memory outside of the buffer, array or threadgroup memory that it was given",
        "check the index against the size, or dispatch fewer threads",
    ),
    "misaligned": Kind(
        "a thread accesses a value at an address that is not a multiple of its alignment",
        "access a vector at a multiple of its size, align the view, or use a packed type",
    ),
    "divergent barrier": Kind(
        "some threads of a group reach a barrier that others do not",
        "let all threads of the group reach the same barrier, outside of branches that depend on the thread",
    ),
    "divergent simdgroup function": Kind(
        "a function that all lanes of a simdgroup must reach is reached by some of them",
        "call it where all lanes of the simdgroup arrive",
    ),
    "inactive lane": Kind(
        "a simdgroup function reads the value of a lane that is absent or takes no part in the call",
        "read only lanes that take part in the call; the value of any other is undefined",
    ),
    "not a number": Kind(
        "a thread made NaN or infinity from finite numbers",
        "look at the operands of this line: division by zero, overflow, logarithms or roots of negative numbers",
    ),
    "division by zero": Kind("a thread divides an integer by zero", "check the divisor first"),
    "shift out of range": Kind(
        "a shift by a negative number, or by as many bits as the type has or more",
        "shift by less than the number of bits",
    ),
    "signed overflow": Kind(
        "the result of a signed operation does not fit its type", "compute with unsigned integers or in a wider type"
    ),
    "conversion out of range": Kind(
        "a floating-point number is converted to an integer type that cannot hold it",
        "clamp the value before it is converted",
    ),
    "device limit": Kind(
        "the chosen GPU family would not run the dispatch: a size, an argument, or a feature of the kernel",
        "use smaller groups or tiles, or a kernel for that family",
    ),
    "not written": Kind("no thread wrote a part of an output", "dispatch enough threads to cover the data"),
    "missing barrier": Kind(
        "a command uses memory that an earlier one writes, and no barrier orders them",
        "put a memory_barrier between them, or let barriers be inferred",
    ),
    "redundant barrier": Kind("a barrier orders nothing", "remove it"),
    "undeclared write": Kind(
        "a dispatch writes memory that it does not declare as written", "name the memory in writes=, or drop const"
    ),
    "undeclared read": Kind("a dispatch reads memory that it does not declare as read", "name it in reads="),
    "declared but not written": Kind(
        "a dispatch declares memory as written and changes nothing of it", "leave it out of writes=, or make it const"
    ),
    "not deterministic": Kind(
        "two runs from the same memory gave different results", "nothing, if that is intended, as with atomics"
    ),
    "fault": Kind("a kernel crashed when it ran alone", "correct the kernel"),
    "took too long": Kind(
        "a command did not end within its time limit", "look for an endless loop, or raise the limit"
    ),
}
