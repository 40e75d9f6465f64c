"""Which lines of the kernels ran, as a tracefile of lcov: what `ostinato check --coverage` and OSTINATO_COVERAGE write.

A library that counts has a table of counts for each of its kernels. The file has a section (`TN:`) for each kernel that
ran, with every line that it could run, and one without a name with all kernels and lines of the sources, so that those
that never ran are there too.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ... import settings
from ...base.files import write_whole

if TYPE_CHECKING:
    from ...msl import Translation

_NO_WORD = re.compile(r"\W", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f]")
_ENDS_NAME = re.compile(r"[\x00-\x1f,]")

Lines = dict[str, dict[int, int]]
"""How often each line of each file ran."""
Functions = dict[str, dict[str, tuple[int, int]]]
"""The kernels of each file: their lines, and how many threads ran them."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """A library that counts, what it was compiled from, and where the files of its source are."""

    library: ctypes.CDLL
    translation: Translation
    files: Mapping[str, str]


_counted: dict[str, _Counted] = {}
"""The libraries of this process that count, by their paths. Libraries are never unloaded."""


def remember(library: ctypes.CDLL, translation: Translation, files: Mapping[str, str]) -> None:
    """A library that counts; its lines are written at the exit of the process if OSTINATO_COVERAGE names a file."""
    if not _counted:
        atexit.register(_write_at_exit, os.getpid())
    _counted[library._name] = _Counted(library, translation, files)


def write(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Write what ran so far; returns the number of lines that ran, and that could have."""
    kernels: dict[str, tuple[Lines, Functions]] = {}
    everything: Lines = {}
    every_kernel: Functions = {}
    for counted in _counted.values():
        for name, threads, lines in _ran(counted):
            total, functions = kernels.setdefault(name, ({}, {}))
            _add(total, lines)
            kernel = counted.translation.kernels[name]
            known = functions.setdefault(counted.files.get(kernel.file, kernel.file), {})
            known[name] = (kernel.line, threads + known.get(name, (0, 0))[1])
            _add(everything, lines)
        _add(everything, _all_lines(counted))
        for name, kernel in counted.translation.kernels.items():
            every_kernel.setdefault(counted.files.get(kernel.file, kernel.file), {})[name] = (kernel.line, 0)
    sections = [_section("", {file: dict.fromkeys(lines, 0) for file, lines in everything.items()}, every_kernel)]
    sections += [_section(name, *kernels[name]) for name in sorted(kernels)]
    write_whole(path, "".join(sections).encode("utf-8", "surrogateescape"))
    counts = [count for lines in everything.values() for count in lines.values()]
    return sum(count > 0 for count in counts), len(counts)


def _ran(counted: _Counted) -> Iterator[tuple[str, int, Lines]]:
    """The kernels of a library that ran: name, threads, and how often each line ran that it may reach."""
    translation = counted.translation
    table = ctypes.c_uint64.in_dll(counted.library, "__ost_counts")
    width = 1 + translation.counters
    counts = np.ctypeslib.as_array(
        ctypes.cast(ctypes.addressof(table), ctypes.POINTER(ctypes.c_uint64)), (len(translation.kernels), width)
    )
    for name, row in zip(translation.kernels, counts, strict=True):
        if not row[0]:
            continue
        lines: Lines = {}
        for line in translation.counted:
            if line.function in translation.reached[name]:
                _count(lines, counted.files.get(line.file, line.file), line.line, int(row[line.counter]))
        yield name, int(row[0]), lines


def _all_lines(counted: _Counted) -> Lines:
    lines: Lines = {}
    for line in counted.translation.counted:
        _count(lines, counted.files.get(line.file, line.file), line.line, 0)
    return lines


def _count(lines: Lines, file: str, line: int, count: int) -> None:
    """A line ran as often as that of its statements that ran most often."""
    numbers = lines.setdefault(file, {})
    numbers[line] = max(count, numbers.get(line, 0))


def _add(total: Lines, lines: Lines) -> None:
    for file, numbers in lines.items():
        sums = total.setdefault(file, {})
        for line, count in numbers.items():
            sums[line] = sums.get(line, 0) + count


def _section(name: str, lines: Lines, functions: Functions) -> str:
    """The records of one kernel, in the format that geninfo(1) describes."""
    records = []
    for file, numbers in sorted(lines.items()):
        records += [f"TN:{_NO_WORD.sub('_', name)}", f"SF:{_CONTROL.sub('?', file)}"]
        known = {_ENDS_NAME.sub(";", kernel): counts for kernel, counts in functions.get(file, {}).items()}
        records += [f"FN:{line},{kernel}" for kernel, (line, _) in known.items()]
        records += [f"FNDA:{threads},{kernel}" for kernel, (_, threads) in known.items()]
        records += [f"FNF:{len(known)}", f"FNH:{sum(threads > 0 for _, threads in known.values())}"]
        records += [f"DA:{line},{count}" for line, count in sorted(numbers.items())]
        records += [f"LF:{len(numbers)}", f"LH:{sum(count > 0 for count in numbers.values())}", "end_of_record"]
    return "".join(f"{record}\n" for record in records)


def _write_at_exit(process: int) -> None:
    path = settings.text("coverage")
    if path is not None and os.getpid() == process:
        write(path.replace("{pid}", str(process)))
