"""Running programs of `simt_tree.py` on devices and in lockstep, and finding the smallest that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

import ostinato as ost
import simt_lockstep
from ostinato import msl
from simt_tree import BUFFERS, CELLS, ELEMENTS, MAX_SIMDGROUPS, OUTPUTS, SLOTS, SPREAD, WINDOW, Program, smaller, source

Buffers = dict[str, np.ndarray]
Results = dict[str, np.ndarray]

PER_LIBRARY = 25
_MAX_GROUPS = 16
_MOST_ROUNDS = 40
"""Of making a program smaller."""


def buffers(program: Program) -> Buffers:
    """The memory of a program before it runs."""
    random = np.random.default_rng(program.seed)
    made: Buffers = {
        "ints": random.integers(-1000, 1000, ELEMENTS).astype(np.int32),
        "uints": random.integers(0, 1 << 32, ELEMENTS).astype(np.uint32),
        "floats": (random.integers(-4000, 4000, ELEMENTS) / 64).astype(np.float32),
        "halves": (random.integers(-400, 400, ELEMENTS) / 16).astype(np.float16),
        "shorts": random.integers(-32768, 32768, ELEMENTS).astype(np.int16),
        "bytes": random.integers(0, 256, ELEMENTS).astype(np.uint8),
    }
    assert made.keys() == BUFFERS.keys()
    for name, type_ in OUTPUTS.items():
        made[name] = np.full(program.thread_count * SLOTS, 77, simt_lockstep.DTYPES[type_])
    made["cells"] = np.full(8 * len(CELLS), 0x5A5A5A5A, np.uint32)
    windows = np.arange(WINDOW, dtype=np.uint32) * np.uint32(SPREAD)
    made["windows"] = np.tile(windows, _MAX_GROUPS * MAX_SIMDGROUPS)
    made["three"] = np.array(3, np.uint32)
    return made


def in_lockstep(program: Program) -> Results:
    """What the interpreter makes of a program."""
    memory = buffers(program)
    simt_lockstep.run(program, memory)
    return _results(memory)


def on_device(device: ost.Device, programs: Sequence[Program]) -> list[Results]:
    """What a device makes of each program; they are compiled as one source."""
    library = device.library(source(programs))
    return [_run(device, library[f"k{number}"], program) for number, program in enumerate(programs)]


def executions(device: ost.Device, programs: Sequence[Program]) -> list[msl.Execution]:
    """How a device runs each program."""
    library = device.library(source(programs))
    return [library[f"k{number}"].execution for number in range(len(programs))]


def _run(device: ost.Device, kernel: ost.Kernel, program: Program) -> Results:
    memory = buffers(program)
    three = memory.pop("three")
    arrays = {name: device.array(value) for name, value in memory.items()}
    encoder = device.command_encoder()
    encoder.dispatch(kernel, *arrays.values(), np.uint32(three), threads=program.threads, group_size=program.group)
    encoder.commit_and_wait()
    return _results({name: array.numpy() for name, array in arrays.items()})


def _results(memory: Buffers) -> Results:
    return {name: memory[name].copy() for name in (*OUTPUTS, "cells", "windows")}


def differences(expected: Results, got: Results) -> list[str]:
    """A line for each buffer that is not the same to the last bit."""
    lines = []
    for name, values in expected.items():
        bits = f"u{values.itemsize}"
        wrong = np.flatnonzero(values.view(bits) != got[name].view(bits))
        if wrong.size:
            at = int(wrong[0])
            thread = f" (thread {at // SLOTS})" if name in OUTPUTS else ""
            lines.append(f"{name}[{at}]{thread}: {got[name][at]} instead of {values[at]}; {wrong.size} differ")
    return lines


def explained(program: Program, device: ost.Device) -> str:
    """The seed, what differs from lockstep, and the smallest program that does."""

    def wrong(programs: Sequence[Program]) -> list[list[str]]:
        """Only of programs that run the same way: what went wrong is to stay the same."""
        results = zip(programs, on_device(device, programs), executions(device, programs), strict=True)
        return [differences(in_lockstep(p), got) if how.way == way else [] for p, got, how in results]

    way = executions(device, [program])[0].way
    small = smallest(program, wrong)
    shares = ", sharing" if program.shares else ""
    lines = [
        f"seed {program.seed}{shares}, threads {small.threads} in groups of {small.group}",
        *(wrong([small])[0] or ["the same as in lockstep"]),
        source([small]),
    ]
    return "\n".join(lines)


def smallest(program: Program, wrong: Callable[[Sequence[Program]], list[list[str]]]) -> Program:
    """A program that is still wrong and that no single step makes smaller, or the last of some rounds."""
    for _ in range(_MOST_ROUNDS):
        steps = smaller(program)
        while candidates := list(islice(steps, PER_LIBRARY)):
            still = [candidate for candidate, lines in zip(candidates, wrong(candidates), strict=True) if lines]
            if still:
                program = min(still, key=lambda candidate: len(source([candidate])))
                break
        else:
            return program
    return program
