"""Local memory of checked kernels: elements that are read before they are written, and pointers that leave an array."""

from __future__ import annotations

import numpy as np
import pytest

from checked_kernels import Kernels, line_of
from compilers import ZIG

DECLARATIONS = """
struct Pair { float first; int counts[3]; };
struct Padded { char tag; int number; };
static float sum(thread const float *x, int n) { float s = 0; for (int j = 0; j < n; j++) s += x[j]; return s; }
static void fill(thread float *x, int n) { for (int j = 0; j < n; j++) x[j] = j; }
template <typename T, int N> struct Tile { T v[N]; T at(int j) thread { return v[j]; } };
static float first(Pair p) { return p.first; }
"""


def arguments(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(4, np.float32), np.array([number], np.int32)


UNWRITTEN = {
    "an element of an array": ("float t[4];\n  t[0] = 1;\n  o[i] = t[n[0]];", "t[n[0]]"),
    "an element of an array of arrays": ("float t[2][2];\n  t[0][1] = 1;\n  o[i] = t[n[0]][1];", "t[n[0]][1]"),
    "a member of a struct": ("Pair p;\n  p.first = 1;\n  o[i] = p.counts[n[0]];", "p.counts[n[0]]"),
    "a component of a vector": ("float4 v;\n  v.x = 1;\n  o[i] = v[n[0]];", "v[n[0]]"),
    "an element through a pointer": ("float t[4];\n  t[0] = 1;\n  o[i] = sum(t, n[0] + 1);", "x[j]"),
    "a member of a template": ("Tile<float, 4> t;\n  t.v[0] = 1;\n  o[i] = t.at(n[0]);", "v[j]"),
    "an array of a loop, again": (
        "for (int j = 0; j < 2; j++) {\n    float t[2];\n    if (j == 0) t[1] = 5;\n    o[i] += t[n[0]];\n  }",
        "t[n[0]]",
    ),
    "an array of a lambda": ("auto f = [&](int j) { float t[4]; t[0] = 1; return t[j]; };\n  o[i] = f(n[0]);", "t[j]"),
}
CLEAN = {
    "all elements are written": "float t[4];\n  fill(t, 4);\n  o[i] = sum(t, 4);",
    "a loop fills a large array": "float t[32];\n  for (int j = 0; j < 32; j++) t[j] = -INFINITY;\n"
    "  for (int j = 0; j < n[0]; j++) t[j] = 1;\n  o[i] = t[n[0]] + sum(t, 32);",
    "an initialiser writes all": "float t[4] = {};\n  o[i] = t[n[0]];",
    "a struct is copied with its padding": "Padded a;\n  a.tag = 1;\n  a.number = 2;\n  Padded b = a;\n"
    "  o[i] = b.number;",
    "a struct is copied half written": "Pair p;\n  p.first = 2;\n  Pair q = p;\n  o[i] = q.first;",
    "a struct is passed half written": "Pair p;\n  p.first = 2;\n  o[i] = first(p);",
    "a vector is copied half written": "float4 v;\n  v.xy = float2(1, 2);\n  float4 w = v;\n  o[i] = w.x + w.y;",
    "a variable stands in a switch": (
        "switch (n[0]) {\n    case 1: float t[2]; t[0] = 3; t[1] = 4; o[i] = t[0]; break;\n    default: o[i] = 0;\n  }"
    ),
    "a function leaves its stack to the next": "float a[4];\n  fill(a, 4);\n  o[i] = sum(a, 4);\n"
    "  { float b[8]; b[0] = 1; o[i] += b[0]; }\n  float c[8] = {1};\n  o[i] += sum(c, 8);",
    "a constant array is read": "const float t[3] = {1, 2, 3};\n  o[i] = t[n[0]] + sum(t, 3);",
    "arrays and scalars are declared together": "float a[2], s, b[2];\n  fill(a, 2);\n  fill(b, 2);\n  s = a[1];\n"
    "  o[i] = s + b[1];",
}  # fmt: skip
LEAVING = {
    "past the end": ("float t[4];\n  fill(t, 4);\n  o[i] = sum(t, n[0]);", "x[j]; return", "read"),
    "past the end, written": ("float t[4];\n  fill(t, n[0]);\n  o[i] = t[0];", "x[j] = j", "write"),
    "before the start": (
        "float t[4] = {1};\n  thread float *p = t;\n  p -= n[0] - 4;\n  *p = 2;\n  o[i] = t[0];",
        "*p = 2",
        "write",
    ),
}
KERNELS = Kernels(
    {**{what: case[0] for what, case in (UNWRITTEN | LEAVING).items()}, **CLEAN},
    "device float *o, device const int *n",
    DECLARATIONS,
)


@pytest.mark.parametrize("what", UNWRITTEN)
def test_an_element_that_is_read_before_it_is_written_is_named(what: str) -> None:
    finding = KERNELS.finding(what, *arguments(1))
    assert (finding.kind, finding.severity, finding.access) == ("uninitialised", "error", "read")
    assert "thread memory '" in finding.why
    assert line_of(finding) == KERNELS.place(what, UNWRITTEN[what][1])[0]


@pytest.mark.parametrize("compiler", ["", *ZIG])
@pytest.mark.parametrize("what", CLEAN)
def test_no_alarm_where(what: str, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiler:
        monkeypatch.setenv("CXX", compiler)
    assert KERNELS.findings(what, *arguments(1), threads=4) == ()


@pytest.mark.parametrize("what", LEAVING)
def test_a_pointer_that_leaves_a_local_array_is_out_of_bounds(what: str) -> None:
    _, text, access = LEAVING[what]
    finding = KERNELS.finding(what, *arguments(5))
    assert (finding.kind, finding.severity, finding.access) == ("out of bounds", "error", access)
    assert line_of(finding) == KERNELS.place(what, text)[0]
