"""Outputs of checked kernels: the operation that made one NaN or infinite, and elements that no thread wrote."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from checked_kernels import Kernels, line_of
from ostinato.audit.findings import Finding

BODIES = {
    "logarithm": "float y = x[i];\n  o[i] = 1.0f\n    + log(y);",
    "root": "o[i] = sqrt(x[i]);",
    "difference of infinities": "o[i] = (x[i] * 3e38f) - (x[i] * 3e38f);",
    "quotient": "o[i] = 1.0f / x[i];",
    "overflow": "o[i] = x[i] * 3e38f;",
    "half": "half h = half(x[i] * 60000.0f);\n  o[i] = float(h * half(2.0f));",
    "sum of a group": "threadgroup float t[4];\n  t[i] = sqrt(x[i]);\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n  if (i == 0) o[0] = t[0] + t[1] + t[2] + t[3];",
    "largest": "float m = -INFINITY;\n  for (int j = 0; j < int(x[0]); j++) m = max(m, x[j]);\n  o[i] = m;",
    "sigmoid": "o[i] = 1.0f / (1.0f + exp(-x[i]));",
    "copy": "o[i] = x[i];",
    "guarded": "float r = 1.0f / x[i];\n  o[i] = isinf(r) ? 0.0f : r;",
}
KERNELS = Kernels(BODIES, "device float *o, device const float *x")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="signals of floating-point operations: x86-64"
)


def audited(name: str, numbers: Sequence[float], threads: int = 4, **options: Any) -> list[Finding]:
    with ost.open_device("cpu") as dev:
        kernel = dev.library(KERNELS.source)[KERNELS.name(name)]
        x, o = dev.array(np.array(numbers, np.float32)), dev.zeros(4, np.float32)
        graph = dev.capture(lambda encoder: encoder.dispatch(kernel, o, x, threads=threads, group_size=4))
        findings = graph.audit(run=True, repeats=1, **options).findings
        return [finding for finding in findings if finding.kind in ("not a number", "not written")]


MADE = {
    "logarithm": ([1, 2, -3, 4], "log", 2),
    "root": ([1, -1, 1, 1], "sqrt", 1),
    "difference of infinities": ([1, 1, 1, 2], "- (", 3),
    "quotient": ([1, 2, 3, 0], "1.0f /", 3),
    "overflow": ([1, 2, 1, 1], "x[i] * 3e38f", 1),
    "half": ([1, 0, 0, 0], "h * half", 0),
    "sum of a group": ([1, 1, -1, 1], "sqrt", 2),
}


@pytest.mark.parametrize("name", MADE)
def test_the_operation_that_made_an_output_nan_or_infinite_is_named(name: str) -> None:
    numbers, text, thread = MADE[name]
    (finding,) = audited(name, numbers, nan=True)
    assert (finding.kind, finding.severity) == ("not a number", "error")
    assert line_of(finding) == KERNELS.place(name, text)[0]
    assert finding.accesses[-1].thread[0] == thread
    assert "; o[" in finding.why


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("largest", [4, 1, 2, 3]),
        ("sigmoid", [-1000, 0, 1, 1000]),
        ("copy", [float("nan"), float("inf"), 1, 2]),
        ("guarded", [0, 1, 2, 3]),
    ],
)
def test_infinities_on_purpose_and_nans_of_the_input_are_no_finding(name: str, numbers: Sequence[float]) -> None:
    assert audited(name, numbers, nan=True) == []


def test_a_stored_infinity_is_a_note() -> None:
    (finding,) = audited("largest", [0, 1, 2, 3], nan=True)
    assert (finding.kind, finding.severity) == ("not a number", "note")
    assert "o[0] is -inf, and no operation of the kernel made it" in finding.why


def test_nothing_is_said_of_nans_unless_it_is_asked_for() -> None:
    assert audited("root", [-1, 1, 1, 1]) == []


def test_a_device_reports_each_operation_that_makes_a_nan() -> None:
    finding = KERNELS.finding("root", np.zeros(4, np.float32), np.array([1, 1, -1, 1], np.float32), threads=4, nan=True)
    assert finding.kind == "not a number"
    assert finding.accesses[-1].thread == (2, 0, 0)


def test_a_local_scalar_that_may_be_unset_is_a_note_of_the_compiler() -> None:
    with ost.open_device("cpu") as dev:
        source = KERNELS.source.replace("float y = x[i];", "float y;  if (x[0] > 2.0f) y = x[i];")
        x, o = dev.array(np.ones(4, np.float32)), dev.zeros(4, np.float32)
        kernel = dev.library(source)[KERNELS.name("logarithm")]
        graph = dev.capture(lambda encoder: encoder.dispatch(kernel, o, x, threads=4))
        notes = [finding for finding in graph.audit(run=True, repeats=1).findings if finding.kind == "uninitialised"]
    assert [note.severity for note in notes] == ["note"]
    assert "uninitialized" in notes[0].why
    assert f"<source>:{KERNELS.place('logarithm', 'float y')[0]}" in notes[0].why


def test_elements_that_no_thread_wrote_are_a_note_on_request() -> None:
    assert audited("copy", [1, 2, 3, 4], threads=3) == []
    assert audited("copy", [1, 2, 3, 4], threads=4, unwritten=True) == []
    (finding,) = audited("copy", [1, 2, 3, 4], threads=3, unwritten=True)
    assert (finding.kind, finding.severity) == ("not written", "note")
    assert "no thread writes o[3]; 4 bytes" in finding.why
