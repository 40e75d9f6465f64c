"""Racy kernels, each a clean kernel of `checked_kernels/` with one line changed, and the lines that race then.

The clean kernels say beside each line what it is for, in comments that begin with `//:`. A comment that stands alone
is about the line below it.

- `put` names the line.
- `orders put>take` is what a barrier or fence orders: without it these lines race, these pairs and no others.
  `device put>take` is ordered by the flag `mem_device` of a barrier that has both flags. `orders nothing` is explained
  by the comment above.
- `lockstep orders put>take`: the two threads are always in one simdgroup, so that the pair then relies on lockstep.
- `count, plain count>count` is what races if the line's atomic function becomes a plain access.
- `relies put>take`: the clean kernel itself relies on lockstep there.

`mutants` weakens each barrier, fence and atomic function in every way; `BY_HAND` has changes of indices and conditions.
A mutant has as many lines as its kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

Pair = tuple[int, int]
"""Two lines of a kernel, counted from 0 at the line with its name; the lower first."""

RACE, LOCKSTEP = "race", "relies on lockstep"

_FOLDER = Path(__file__).parent / "checked_kernels"
_KERNEL = re.compile(r"^kernel void (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"//: (.*)$")
_BARRIER = re.compile(r"(threadgroup|simdgroup)_barrier\((.*?)\);")
_FENCE = re.compile(r"atomic_thread_fence\(.*?\);")
_ATOMIC = re.compile(
    r"atomic_(load|store|fetch_add|fetch_max)_explicit\((&?)(\w+)((?:\[.*?\])?)(?:, (.*?))?, memory_order_relaxed\)"
)
_BOTH = "mem_flags::mem_threadgroup | mem_flags::mem_device"
_OTHER = {"mem_flags::mem_threadgroup": "mem_flags::mem_device", "mem_flags::mem_device": "mem_flags::mem_threadgroup"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A clean kernel with what its comments say."""

    name: str
    lines: tuple[str, ...]
    labels: dict[str, int]
    notes: dict[int, str]
    """What the comments say about each line, less the name of the line."""
    relies: frozenset[Pair]
    """The pairs for which the clean kernel relies on lockstep."""

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def pairs(self, text: str) -> frozenset[Pair]:
        """The lines meant by a text such as "put>take, take>put"."""
        named = (pair.split(">") for pair in text.split(", "))
        return frozenset(_pair(self.labels[first], self.labels[second]) for first, second in named)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel with one line changed."""

    kernel: Kernel
    line: int
    change: str
    """What was changed, in words."""
    changed: str
    """The line as it is now."""
    kind: str
    """The kind of finding that is expected; "" if the mutant is equivalent, as far as races go."""
    pairs: frozenset[Pair]
    """The lines that race; at least one of these pairs is found, and no other."""
    why: str = ""
    """Why an equivalent mutant is equivalent."""

    def text(self, name: str) -> str:
        """The mutant as a kernel of this name."""
        lines = [*self.kernel.lines[: self.line], self.changed, *self.kernel.lines[self.line + 1 :]]
        return "\n".join(lines).replace(f"kernel void {self.kernel.name}(", f"kernel void {name}(", 1) + "\n"

    def __str__(self) -> str:
        return f"{self.kernel.name}:{self.line}: {self.change}"


def _pair(first: int, second: int) -> Pair:
    return (min(first, second), max(first, second))


def _read(name: str, text: str) -> Kernel:
    lines = text.splitlines()
    labels: dict[str, int] = {}
    notes: dict[int, str] = {}
    relies: list[str] = []
    for number, line in enumerate(lines):
        note = _NOTE.search(line)
        if note is None:
            continue
        if note[1].startswith("relies "):
            relies.append(note[1].removeprefix("relies "))
            continue
        about = number + 1 if line.lstrip().startswith("//:") else number
        if note[1].startswith(("orders ", "lockstep ")):
            notes[about] = note[1]
        else:
            label, _, rest = note[1].partition(", ")
            assert label not in labels, f"{name}: two lines are called {label}"
            labels[label] = about
            notes[about] = rest
    kernel = Kernel(name, tuple(lines), labels, notes, frozenset())
    return replace(kernel, relies=kernel.pairs(", ".join(relies))) if relies else kernel


def clean_kernels() -> tuple[str, dict[str, Kernel]]:
    """What all kernels need before them, and the kernels by name."""
    heads: list[str] = []
    kernels: dict[str, Kernel] = {}
    for path in sorted(_FOLDER.glob("*.metal")):
        source = path.read_text()
        kernels |= {match[1]: _read(match[1], match[0]) for match in _KERNEL.finditer(source)}
        head = re.sub(r"^//.*\n", "", _KERNEL.sub("", source), flags=re.MULTILINE)
        heads += [part for part in re.split(r"\n{2,}", head.strip()) if part not in heads]
    return "\n".join(heads) + "\n", kernels


def library_text(head: str, kernels: Sequence[str]) -> tuple[str, list[int]]:
    """One source of several kernels, and the line at which each begins, counted from 1."""
    lines, first = [], head.count("\n") + 1
    for text in kernels:
        lines.append(first)
        first += text.count("\n")
    return head + "".join(kernels), lines


def mutants(kernel: Kernel) -> Iterator[Mutant]:
    """Every barrier, fence and atomic function of a kernel that has a note, weakened in every way."""
    for number, note in kernel.notes.items():
        line = kernel.lines[number]
        if barrier := _BARRIER.search(line):
            for change, weaker, memory in _weaker_barriers(barrier):
                yield _unordered(kernel, number, change, line.replace(barrier[0], weaker), note, memory)
        elif fence := _FENCE.search(line):
            for change, weaker in _weaker_fences(fence[0]):
                yield _unordered(kernel, number, change, line.replace(fence[0], weaker), note, "")
        elif note.startswith("plain ") and (atomic := _ATOMIC.search(line)):
            plain = line.replace(atomic[0], _plain(kernel, atomic))
            change = f"atomic_{atomic[1]} made plain"
            yield _mutant(kernel, number, change, plain, RACE, note.removeprefix("plain "))


def _weaker_barriers(barrier: re.Match[str]) -> Iterator[tuple[str, str, str]]:
    """The change, the weaker barrier, and the memory that it leaves in order."""
    scope, flags = barrier[1], barrier[2]
    yield "barrier removed", ";", ""
    yield "flag weakened to mem_none", f"{scope}_barrier(mem_flags::mem_none);", ""
    if flags == _BOTH:
        yield "flag weakened to mem_threadgroup", f"{scope}_barrier(mem_flags::mem_threadgroup);", "threadgroup"
        yield "flag weakened to mem_device", f"{scope}_barrier(mem_flags::mem_device);", "device"
    else:
        yield "flag of the wrong memory", f"{scope}_barrier({_OTHER[flags]});", ""
    if scope == "threadgroup":
        yield "scope weakened to simdgroup_barrier", f"simdgroup_barrier({flags});", "simdgroup"


def _weaker_fences(fence: str) -> Iterator[tuple[str, str]]:
    yield "fence removed", ";"
    yield "fence relaxed", re.sub(r"memory_order_\w+", "memory_order_relaxed", fence)
    yield "fence of the wrong memory", fence.replace("mem_device", "mem_threadgroup")
    yield "fence inside the threadgroup only", fence.replace("thread_scope_device", "thread_scope_threadgroup")


def _unordered(kernel: Kernel, number: int, change: str, changed: str, note: str, still: str) -> Mutant:
    """The mutant whose barrier or fence leaves in order only what `still` names."""
    kind = LOCKSTEP if note.startswith("lockstep ") else RACE
    ordered = note.removeprefix("lockstep ").removeprefix("orders ").split(", ")
    if still == "device":
        ordered = [pair for pair in ordered if not pair.startswith("device ")]
    elif still == "threadgroup":
        ordered = [pair for pair in ordered if pair.startswith("device ")]
    if still == "simdgroup" and kind == LOCKSTEP:
        why = "its pairs are always in one simdgroup, which simdgroup_barrier orders"
        return Mutant(kernel, number, change, changed, "", frozenset(), why)
    return _mutant(kernel, number, change, changed, kind, ", ".join(pair.removeprefix("device ") for pair in ordered))


def _mutant(kernel: Kernel, number: int, change: str, changed: str, kind: str, pairs: str) -> Mutant:
    if pairs == "nothing":
        why = kernel.lines[number - 1].strip().removeprefix("// ")
        return Mutant(kernel, number, change, changed, "", frozenset(), why)
    return Mutant(kernel, number, change, changed, kind, kernel.pairs(pairs))


def _plain(kernel: Kernel, atomic: re.Match[str]) -> str:
    """A plain access in place of an atomic function."""
    function, address, name, index, operand = atomic.groups()
    declared = re.search(rf"(device|threadgroup) atomic_(\w+) \*?{name}\b", kernel.text)
    assert declared is not None, f"{kernel.name}: {name} is not declared"
    place = f"*({declared[1]} {declared[2]} *){address}{name}{index}"
    return {
        "load": place,
        "store": f"{place} = {operand}",
        "fetch_add": f"(({place} += {operand}) - {operand})",
        "fetch_max": f"({place} = max({place}, {operand}))",
    }[function]


# Kernel, name of the line, what it says, what it says instead, what is found, the lines that race (or why none do).
_CHANGES: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("sum_tree", "add", "sums[t + rest];", "sums[t + rest - 1];", RACE, "add>add"),
    ("arg_max", "look", "values[t + rest]", "values[t + rest / 2]", RACE, "look>keep"),
    ("arg_max", "move", "places[t + rest]", "places[t + rest / 2]", RACE, "move>move"),
    ("dot_rows", "store", "out[row] = total;", "out[row / 2] = total;", RACE, "store>store"),
    ("sum_last_group", "publish", "partial[g]", "partial[g / 2]", RACE, "publish>publish"),
    ("scan_hillis_steele", "look", "sums[t - step]", "sums[t - step + 1]", "", "a barrier stands on both sides"),
    ("scan_ping_pong", "add", "sums[from][t - step]", "sums[1 - from][t - step]", RACE, "add>add"),
    ("scan_simd", "spread", "totals[lane] = offset", "totals[lane / 2] = offset", RACE, "spread>spread, scan>spread"),
    ("scan_quads", "put", "totals[t / 4]", "totals[t / 8]", RACE, "put>put"),
    ("scan_look_back", "wait", "&ready[k]", "&ready[part]", RACE, "total>collect"),
    ("histogram_private", "count", "bins[t][in[k] % 16]", "bins[t + 1][in[k] % 16]", RACE, "clear>count"),
    ("transpose", "put", "tile[p.y][p.x]", "tile[p.y / 2][p.x]", RACE, "put>put"),
    ("matmul_tiles", "store", "c[i.y * size.n + i.x]", "c[i.y / 2 * size.n + i.x]", RACE, "store>store"),
    ("matmul_simdgroups", "store", "&result[s * 8][0]", "&result[s * 4][0]", RACE, "store>store, store>take"),
    ("convolve", "low", "tile[t] =", "tile[t + 1] =", LOCKSTEP, "body>low"),
    ("convolve", "high", "tile[t + 6]", "tile[t + 5]", LOCKSTEP, "body>high"),
    ("smooth", "set", "cells[t + 1] = next;", "cells[t + 2] = next;", RACE, "set>take"),
    ("pipeline", "load", "tiles[(part + 1) % 2]", "tiles[part % 2]", RACE, "load>use"),
    ("pipeline", "use", "tiles[part % 2]", "tiles[(part + 1) % 2]", RACE, "load>use"),
    ("n_body", "load", "tile[t] =", "tile[t / 2] =", RACE, "load>load"),
    ("pack_bytes", "put", "bytes[t] =", "words[t / 4] =", RACE, "put>put"),
    ("softmax", "put_sum", "parts[s] = sum", "parts[s / 2] = sum", RACE, "put_sum>put_sum"),
    ("layer_norm", "fold_square", "t + rest < size", "t + rest <= size", RACE, "fold_square>fold_square"),
    ("rms_norm", "put", "lane == 0", "lane <= 1", "", "both lanes write the same value"),
    ("sort_bitonic", "look", "keys[low + step];", "keys[low + step - 1];", RACE, "look>swap"),
    ("sort_radix_step", "put", "totals[d * simdgroups + s]", "totals[d + s]", RACE, "put>put, scatter>scatter"),
    ("sort_radix_step", "scatter", "sorted[place & 255]", "sorted[(place + 1) & 255]", "", "no two share a place"),
    ("top_k", "put", "bests[s]", "bests[s / 2]", RACE, "put>put"),
    ("reverse_in_device", "put", "work[i] =", "work[i + 1] =", RACE, "put>take"),
    ("reverse_in_both", "put_far", "work[i] =", "work[i + 1] =", RACE, "put_far>take_far"),
    ("chain", "read", "work[(mine - 1) * n + n - 1 - t]", "work[mine * n + n - 1 - t]", RACE, "read>write"),
    ("message", "receive", "&sent[g - 1]", "&sent[g]", RACE, "write>read"),
    ("append", "store", "list[place]", "list[place / 2]", RACE, "store>store"),
    ("swap_neighbours", "take", "t ^ 1", "t + 1", RACE, "put>take"),
)  # fmt: skip


def by_hand(kernels: dict[str, Kernel]) -> Iterator[Mutant]:
    """The changes of indices and conditions."""
    for name, label, old, new, kind, pairs in _CHANGES:
        kernel = kernels[name]
        number = kernel.labels[label]
        line = kernel.lines[number]
        assert line.count(old) == 1, f"{name}: {label} does not say {old!r} once"
        change, changed = f"{old} -> {new}", line.replace(old, new)
        if kind:
            yield Mutant(kernel, number, change, changed, kind, kernel.pairs(pairs))
        else:
            yield Mutant(kernel, number, change, changed, "", frozenset(), pairs)
