"""Twice the source is at most twice the work, counted in lines of Python that the front end runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from growing_sources import SOURCES, Make

import ostinato as ost
from ostinato import msl
from ostinato.msl.preprocess import preprocess

FRONT_END = str(Path(msl.__file__).parent)
BYTES = 1500


@contextlib.contextmanager
def _counted() -> Iterator[list[int]]:
    steps = [0]

    def line(_: FrameType, event: str, __: Any) -> Any:
        steps[0] += event == "line"
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(FRONT_END) else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield steps
    finally:
        sys.settrace(before)


def _steps(source: str) -> int:
    with _counted() as steps, contextlib.suppress(ost.OstinatoError):
        module = msl.parse(source)
        for target in ("cpu", "cuda"):
            module.translate(target, constants={constant.name: 1 for constant in module.constants})
    return steps[0]


@pytest.mark.parametrize("what", SOURCES)
def test_twice_the_source_is_at_most_twice_the_work(what: str) -> None:
    make: Make = SOURCES[what]
    once, twice = _steps(make(BYTES)), _steps(make(2 * BYTES))
    assert twice <= 2.1 * once + 1000


@pytest.mark.parametrize("depth", [1000, 10_000])
def test_calls_in_arguments_of_calls_cost_no_more_than_the_tokens_that_are_allowed(depth: int) -> None:
    """A call is read once for each call around it; what that costs counts against the limit on tokens."""
    with contextlib.suppress(ost.KernelCompileError):
        assert [token.text for token in preprocess("#define A(x) x\n" + "A(" * depth + "1" + ")" * depth).tokens] == [
            "1"
        ]
        assert depth == 1000
        return
    assert depth > 1000


@pytest.mark.parametrize(
    "source",
    [
        "#if " + "(" * 1000 + "1" + ")" * 1000 + "\n#endif",
        "#if " + "!" * 2000 + "1\n#endif",
        "namespace a {" * 1000 + "}" * 1000,
        "kernel void k(device int *x) { " + "if (x[0]) {" * 900 + "x[0] = simd_sum(1);" + "}" * 900 + " }",
        "kernel void k(device int *x) { " + "if (x[0]) " * 3000 + "x[0] = simd_sum(1); }",
        "kernel void k(device int *x) { " + "while (x[0]) " * 3000 + "threadgroup_barrier(mem_flags::mem_none); }",
        "kernel void k(device int *x) { x[0] = " + "(" * 998 + "1" + ")" * 998 + "; }",
    ],
    ids=["condition", "signs", "namespaces", "blocks", "ifs", "loops", "expression"],
)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_thousand_levels_are_not_too_deep(source: str, target: str) -> None:
    assert msl.parse(source).translate(target).text


@pytest.mark.parametrize(
    "source",
    [
        "#define F(x) " + "x " * 10_000 + "\n" + "F() " * 10_000,
        "#define F(...) " + "a,##__VA_ARGS__ " * 5_000 + "\nF(" + "1," * 5_000 + "1)",
        "#define A(x) x\n" + "A(" * 10_000 + ")" * 10_000,
    ],
    ids=["empty arguments", "swallowed commas", "calls"],
)
def test_macros_that_would_take_for_ever_are_refused(source: str) -> None:
    with pytest.raises(ost.KernelCompileError, match="expands to more than"):
        msl.parse(source)
