"""What is known of the registers of each thread, against what the instructions do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ostinato.backends.cuda.ptx.lane_values import THREADS, LaneValues
from ostinato.backends.cuda.ptx.tile_loads import _Sums

THREAD = np.arange(THREADS)


def values(*lines: str) -> LaneValues:
    text = [f"\t{line};" for line in ("mov.u32 %r1, %tid.x", *lines)]
    given = dict.fromkeys(re.findall(r"%(?:r|rd|rs)\d+", "\n".join(text)), 1)
    return LaneValues(text, given)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["mad.lo.s32 %r2, %r1, -3, 5"], (5 - 3 * THREAD) % 2**32),
        (["mul.wide.u32 %rd2, %r1, 2147483648"], THREAD * 2**31),
        (["mov.u64 %rd1, 4294967297", "mad.wide.u32 %rd2, %r1, 8, %rd1"], THREAD * 8 + 2**32 + 1),
        (["mov.u64 %rd1, -4294967297", "mad.wide.s32 %rd2, %r1, 8, %rd1"], THREAD * 8 - 2**32 - 1),
        (["sub.s32 %r2, 5, %r1", "shr.s32 %r3, %r2, 1"], ((5 - THREAD) >> 1) % 2**32),
        (["sub.s32 %r2, 5, %r1", "shr.u32 %r3, %r2, 1"], ((5 - THREAD) % 2**32) >> 1),
        (["sub.s32 %r2, 5, %r1", "cvt.s64.s32 %rd1, %r2", "shr.s64 %rd2, %rd1, 1"], (5 - THREAD) >> 1),
        (["and.b64 %rd1, 18446744073709551615, 6", "cvt.u32.u64 %r2, %rd1"], np.full(THREADS, 6)),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_register_holds_what_its_instructions_compute(lines: list[str], expected: np.ndarray) -> None:
    last = lines[-1].split(" ", 1)[1].split(",")[0]
    found = values(*lines).of(last)
    assert found is not None
    np.testing.assert_array_equal(found.numbers, expected)


@pytest.mark.parametrize(
    "lines",
    [
        ["sub.s32 %r2, 5, %r1", "cvt.s64.s32 %rd1, %r2", "shr.u64 %rd9, %rd1, 1"],
        ["@%p1 add.s32 %r9, %r1, 1"],
        ["@!%p1 mov.u32 %r2, 5", "add.s32 %r9, %r1, %r2"],
        ["add.s32 %r9, %r9, 1"],
        ["add.s32 %r9, %r2, 1", "add.s32 %r2, %r9, 1"],
        ["ld.shared.u32 %r9, [%r1]"],
    ],
    ids=lambda lines: lines[-1],
)
def test_nothing_is_said_of_a_register_that_is_not_computed_from_the_threads_number_alone(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert values(*lines).of("%rd9" if "%rd9" in text else "%r9") is None


def test_the_longest_chains_of_sums_are_followed() -> None:
    lines = [f"\tadd.s32 %r{at + 1}, %r{at}, 4;" for at in range(1, 5000)]
    found = values(*(line.strip("\t;") for line in lines)).of("%r5000")
    assert found is not None
    np.testing.assert_array_equal(found.numbers, THREAD + 4 * 4999)
    sums = _Sums(lines, {f"%r{at}": 1 for at in range(1, 5001)}, ())
    assert sums.of("%r5000").terms == {("%r1", 1)}
    assert sums.of("%r5000").number == 4 * 4999


def test_a_sum_that_is_not_always_computed_is_no_known_distance() -> None:
    sums = _Sums(["\t@%p1 add.s32 %r2, %r1, 16;"], {"%r2": 1}, ())
    assert sums.of("%r2").terms == {("%r2", 1)}
