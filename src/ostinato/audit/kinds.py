"""The kinds of findings: what each means, and what to do about it. For SARIF's rules; docs/checking.md has the same."""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of finding."""

    meaning: str
    cure: str


KINDS = {
    "race": Kind(
        "Two threads access the same memory, at least one of them writes, and nothing orders them.",
        "Put a barrier between them whose flags cover the memory, use atomics, or give each thread its own memory."
        " Across threadgroups only the end of the dispatch, or fences with atomics, order accesses.",
    ),
    "relies on lockstep": Kind(
        "Two lanes of a simdgroup access the same memory, ordered only if the lanes run in lockstep. Metal does not"
        " promise that.",
        "Put a simdgroup_barrier between the accesses.",
    ),
    "uninitialised": Kind(
        "A thread reads memory that nothing has written.",
        "Write it first, or do not read it; check which threads fill the memory, and whether all of it is filled.",
    ),
    "out of bounds": Kind(
        "A thread accesses memory outside of the buffer, array or threadgroup memory that it was given.",
        "Check the index against the size, or dispatch fewer threads.",
    ),
    "misaligned": Kind(
        "A thread accesses a value at an address that is not a multiple of its alignment.",
        "Align the offset of the view, or use a packed type.",
    ),
    "divergent barrier": Kind(
        "Some threads of a group reach a barrier that others do not.",
        "Move the barrier to where all threads of the group pass, outside of branches that depend on the thread.",
    ),
    "divergent simdgroup function": Kind(
        "A simdgroup function runs where some lanes are inactive, and its result depends on them.",
        "Call it where all lanes are active, or read only from lanes that are.",
    ),
    "not a number": Kind(
        "A thread made NaN or infinity from finite numbers.",
        "Check for division by zero, overflow, and logarithms or roots of negative numbers.",
    ),
    "division by zero": Kind("A thread divides an integer by zero.", "Check the divisor."),
    "shift out of range": Kind(
        "A shift by a negative number, or by as many bits as the type has or more.", "Mask or check the shift."
    ),
    "signed overflow": Kind(
        "The result of a signed operation does not fit its type.", "Use an unsigned or wider type."
    ),
    "conversion out of range": Kind(
        "A floating-point number is converted to an integer type that cannot hold it.", "Clamp it first."
    ),
    "device limit": Kind(
        "The chosen GPU family would not run the dispatch: a size, an argument, or a feature of the kernel.",
        "Use smaller groups or tiles, or a kernel for that family.",
    ),
    "not written": Kind("No thread wrote a part of an output.", "Dispatch enough threads to cover the data."),
    "missing barrier": Kind(
        "A command uses memory that an earlier one writes, and no barrier orders them.",
        "Put a memory_barrier between them, or let barriers be inferred.",
    ),
    "redundant barrier": Kind("A barrier orders nothing.", "Remove it."),
    "undeclared write": Kind(
        "A dispatch writes memory that it does not declare as written.", "Name the memory in writes=, or drop const."
    ),
    "undeclared read": Kind("A dispatch reads memory that it does not declare as read.", "Name it in reads=."),
    "declared but not written": Kind(
        "A dispatch declares memory as written and changes nothing of it.", "Leave it out of writes=, or make it const."
    ),
    "not deterministic": Kind(
        "Two runs from the same memory gave different results.", "Nothing, if that is intended, as with atomics."
    ),
    "fault": Kind("A kernel crashed when it ran alone.", "Correct the kernel."),
    "took too long": Kind(
        "A command did not end within its time limit.", "Look for an endless loop, or raise the limit."
    ),
}
