"""Checked devices find the races of kernels that are wrong in one line, and nothing in the same kernels when right.

`CHECKED_MUTANTS=all` in the environment tries every mutant of `checked_mutants.py` in two group sizes; without it a
part of them is tried in one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import ostinato as ost
from checked_launches import GROUP_SIZES, IN_LOCKSTEP, LAUNCHES, Launch
from checked_mutants import LOCKSTEP, RACE, Mutant, Pair, by_hand, clean_kernels, library_text, mutants
from ostinato import models
from ostinato.audit.findings import Finding

ALL = os.environ.get("CHECKED_MUTANTS") == "all"
PER_LIBRARY = 50
MUTANT_SIZES = (128, 256) if ALL else (128,)
"""Groups with so many simdgroups that each pair of lines has threads in two of them."""

HEAD, KERNELS = clean_kernels()
GENERATED = [mutant for kernel in KERNELS.values() for mutant in mutants(kernel)]
BY_HAND = list(by_hand(KERNELS))
TRIED = [*BY_HAND, *(GENERATED if ALL else GENERATED[::3])]


@pytest.fixture(scope="module")
def checked(private_environment: None) -> Iterator[ost.Device]:
    """One worker, so that groups run in the order of their positions."""
    with ost.open_device("cpu", checked=True, workers=1) as device:
        yield device


@pytest.fixture(scope="module")
def clean(checked: ost.Device) -> tuple[ost.Library, dict[str, int]]:
    """The clean kernels in one library, and the line at which each begins."""
    text, lines = library_text(HEAD, [kernel.text for kernel in KERNELS.values()])
    return checked.library(text), dict(zip(KERNELS, lines, strict=True))


def _run(device: ost.Device, kernel: ost.Kernel, launch: Launch) -> tuple[list[Finding], list[np.ndarray]]:
    """What is found in one dispatch, and the buffers after it."""
    arguments = [
        device.array(value) if isinstance(value, np.ndarray) and value.ndim else value for value in launch.arguments
    ]
    encoder = device.command_encoder()
    encoder.dispatch(
        kernel,
        *arguments,
        threads=launch.threads,
        groups=launch.groups,
        group_size=launch.group_size,
        shared=launch.shared or None,
    )
    submission = encoder.commit()
    try:
        submission.wait()
    except ost.KernelCheckError as error:
        return list(error.findings), []
    buffers = [argument.numpy() if isinstance(argument, ost.Buffer) else argument for argument in arguments]
    return list(submission.findings), buffers


def _pairs(findings: Sequence[Finding], first_line: int, kinds: Sequence[str] = (RACE, LOCKSTEP)) -> set[Pair]:
    """The lines of the kernel that findings of these kinds are about."""
    pairs = set()
    for finding in findings:
        if finding.kind in kinds:
            lines = sorted(access.place.line - first_line if access.place else -1 for access in finding.accesses)
            pairs.add((lines[0], lines[-1]))
    return pairs


def _objection(mutant: Mutant, findings: Sequence[Finding], first_line: int) -> str:
    """What is wrong with the findings about a mutant; "" if they are as expected."""
    pairs = _pairs(findings, first_line)
    expected = mutant.pairs | mutant.kernel.relies
    if pairs - expected:
        return f"{mutant}: lines {sorted(pairs - expected)} do not race, only {sorted(expected)}"
    # An index moved by one leaves an array that the group fills, and the kernel is stopped there.
    if (mutant.line, mutant.line) in _pairs(findings, first_line, ["out of bounds"]):
        return ""
    if mutant.kind and not _pairs(findings, first_line, [mutant.kind]) & mutant.pairs:
        return f"{mutant}: expected a {mutant.kind} of the lines {sorted(mutant.pairs)}, not {list(map(str, findings))}"
    return ""


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_found_in_clean_kernels(
    checked: ost.Device, clean: tuple[ost.Library, dict[str, int]], name: str
) -> None:
    library, lines = clean
    for group_size in GROUP_SIZES:
        launch = LAUNCHES[name](group_size)
        findings, buffers = _run(checked, library[name], launch)
        assert not [str(finding) for finding in findings if finding.kind != LOCKSTEP], f"group size {group_size}"
        assert _pairs(findings, lines[name]) <= KERNELS[name].relies
        if name not in IN_LOCKSTEP:
            launch.check(buffers)


@pytest.mark.parametrize("name", sorted(IN_LOCKSTEP))
def test_kernels_that_rely_on_lockstep_get_notes(
    checked: ost.Device, clean: tuple[ost.Library, dict[str, int]], name: str
) -> None:
    library, lines = clean
    findings, _ = _run(checked, library[name], LAUNCHES[name](64))
    assert _pairs(findings, lines[name], [LOCKSTEP]) & KERNELS[name].relies


@pytest.mark.parametrize("first", range(0, len(TRIED), PER_LIBRARY))
def test_the_lines_that_race_are_found(checked: ost.Device, first: int) -> None:
    batch = TRIED[first : first + PER_LIBRARY]
    names = [f"{mutant.kernel.name}_{number}" for number, mutant in enumerate(batch)]
    text, lines = library_text(HEAD, [mutant.text(name) for mutant, name in zip(batch, names, strict=True)])
    library = checked.library(text)
    objections = []
    for mutant, name, first_line in zip(batch, names, lines, strict=True):
        for group_size in MUTANT_SIZES:
            findings, _ = _run(checked, library[name], LAUNCHES[mutant.kernel.name](group_size))
            objections.append(_objection(mutant, findings, first_line))
    assert not [objection for objection in objections if objection]


def test_equivalent_mutants_are_explained() -> None:
    assert all(bool(mutant.kind) != bool(mutant.why) for mutant in [*GENERATED, *BY_HAND])


def test_every_barrier_fence_and_atomic_function_has_a_note() -> None:
    unnoted = [
        f"{kernel.name}: {line}"
        for kernel in KERNELS.values()
        for number, line in enumerate(kernel.lines)
        if any(word in line for word in ("_barrier(", "_fence(", "_explicit(")) and number not in kernel.notes
    ]
    assert not unnoted


def test_there_are_as_many_pairs_as_promised() -> None:
    assert len(KERNELS) >= 25
    assert KERNELS.keys() == LAUNCHES.keys()
    assert sum(bool(mutant.kind) for mutant in BY_HAND) >= 20
    assert sum(bool(mutant.kind) for mutant in TRIED) >= 60


@pytest.mark.parametrize("preset", ["tiny", "tiny-moe"])
def test_nothing_is_found_in_a_token_of_a_decoder(checked: ost.Device, preset: str) -> None:
    decoder = models.Decoder(checked, models.random_weights(models.preset(preset)), capacity=16)
    decoder.prefill([72, 101, 108])
    decoder.step()
