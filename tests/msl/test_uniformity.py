"""Where all lanes come by together: what the analysis may claim, and that it never claims too much."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launching import HEAD
from ostinato.msl import parse
from ostinato.msl.uniformity import analyse

KERNEL = """kernel void k(device uint *out [[buffer(0)]], device const uint *in [[buffer(1)]],
    constant uint &n [[buffer(2)]], constant uint *table [[buffer(3)]], constant Params &params [[buffer(4)]],
    uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint tg [[threadgroup_position_in_grid]],
    uint members [[threads_per_threadgroup]]) {{
    uint x = 0, y = 1;
    threadgroup uint stored[32];
    {body}
}}
"""
STRUCTS = "struct Params { uint count; uint shape[4]; device uint *data; };\n"
LANES = 32


def uniform_calls(source: str) -> set[int]:
    """The convergent calls, told by the number each has as an argument, that all lanes are said to reach together."""
    module = parse(HEAD + STRUCTS + source)
    syntax = module._syntax
    found = analyse(syntax, module._declarations, module._convergence).uniform_calls
    return {int(syntax.texts[at + 2].rstrip("u")) for at in found if syntax.texts[at + 2].rstrip("u").isdigit()}


def together(body: str, before: str = "") -> bool:
    """Whether all lanes reach ``simd_sum(1)`` in a kernel with this body together."""
    return 1 in uniform_calls(before + KERNEL.format(body=body))


UNIFORM = [
    "x = simd_sum(1u);",
    "if (n > 3) x = simd_sum(1u);",
    "if (tg == 0 && sg < members) { x = simd_sum(1u); }",
    "if (table[tg] > 3) x = simd_sum(1u);",
    "if (params.shape[sg] != params.count) x = simd_sum(1u);",
    "for (uint j = 0; j < n; ++j) x += simd_sum(1u);",
    "for (uint j = sg; j < n * 2; j += members) { y += in[j]; x += simd_sum(1u); }",
    "if (lane == 0) x = in[0]; x = simd_sum(1u);",
    "for (uint j = lane; j < n; ++j) y += in[j]; x = simd_sum(1u);",
    "while (simd_any(in[i] > y)) { ++y; x = simd_sum(1u); }",
    "const float limit = float(n) * 2.0f; if (limit > 4.0f) x = simd_sum(1u);",
    "const uint most = max(n, 4u); if (most > 7) x = simd_sum(1u);",
    "uint z = n; z += 3; if (z > 7) x = simd_sum(1u);",
    "if (n == 0) return; x = simd_sum(1u);",
    "for (uint j = 0; j < n; ++j) { if (j == 3) continue; if (j == 5) break; x = simd_sum(1u); }",
    "switch (n) { case 1: x = simd_sum(1u); break; default: { y = 2; } break; }",
    "do { x = simd_sum(1u); } while (++y < n);",
    "for (uint j = 0; j < 4; ++j) { if (in[j] > lane) continue; y = 3; } x = simd_sum(1u);",
    "for (uint j = 0; j < 4; ++j) { if (in[j] > lane) break; } x = simd_sum(1u);",
    "x = n > 3 ? simd_sum(1u) : 0u;",
    "if constexpr (sizeof(uint) == 4) x = simd_sum(1u);",
    "uint all[2] = {n, 4u}; if (all[0] > all[1]) x = simd_sum(1u);",
    "uint most = simd_max(in[i]); if (most > 4) x = simd_sum(1u);",
    "if (lane > 3) { for (uint j = 0; j < 4; ++j) y += j; } for (uint j = 0; j < 4; ++j) x = simd_sum(1u);",
    "{ uint z = lane; y += z; } uint z = n; if (z > 3) x = simd_sum(1u);",
]
VARYING = [
    "if (lane == 0) x = simd_sum(1u);",
    "if (n > 3) { if (in[0] > 3) x = simd_sum(1u); }",
    "if (stored[0] > 3) x = simd_sum(1u);",
    "if (params.data[0] > 3) x = simd_sum(1u);",
    "if (lane == 0) { } else x = simd_sum(1u);",
    "if (n > 1) { } else if (lane > 1) { } else x = simd_sum(1u);",
    "for (uint j = lane; j < n; ++j) x += simd_sum(1u);",
    "for (uint j = 0; j < in[0]; ++j) x += simd_sum(1u);",
    "for (uint j = 0; j < n; ++j) { x += simd_sum(1u); if (in[j] > 3) break; }",
    "for (uint j = 0; j < n; ++j) { if (lane > j) continue; x += simd_sum(1u); }",
    "for (uint j = 0; j < n; ++j) { switch (n) { case 2: if (lane > j) continue; } x += simd_sum(1u); }",
    "for (uint j = 0; j < n; ++j) { x += simd_sum(1u); if (lane > j) return; }",
    "if (i >= n) return; x = simd_sum(1u);",
    "switch (lane) { case 1: x = simd_sum(1u); break; }",
    "switch (n) { case 1: { y = 3; } if (lane == 2) break; x = simd_sum(1u); }",
    "do { x = simd_sum(1u); } while (++y < lane);",
    "while (true) { if (in[i] == ++y) break; x = simd_sum(1u); }",
    "if (lane > 3) y = 2; if (y == 2) x = simd_sum(1u);",
    "uint z = n; if (n > 1) { z = lane; } if (z > 3) x = simd_sum(1u);",
    "uint z = lane; if (n > 1) { uint z = n; y += z; } if (z > 3) x = simd_sum(1u);",
    "uint z = lane; if (uint z = n) y = z; if (z > 3) x = simd_sum(1u);",
    "uint z = lane; for (uint z = 0; z < n; ++z) y++; if (n * z > 3) x = simd_sum(1u);",
    "uint z = n; if (lane == 1) z++; if (z > 7) x = simd_sum(1u);",
    "uint z = n; z += in[z]; if (z > 7) x = simd_sum(1u);",
    "uint z = n; uint w = z; z = lane; w = z; if (w > 7) x = simd_sum(1u);",
    "uint z = n; thread uint *p = &z; *p = lane; if (z > 7) x = simd_sum(1u);",
    "uint z = n; thread uint &r = z; r = lane; if (z > 7) x = simd_sum(1u);",
    "uint z[2] = {n, n}; z[lane & 1] = 4; if (z[0] > 7) x = simd_sum(1u);",
    "uint z[2] = {n, n}; thread uint *p; p = z; p[0] = lane; if (z[0] > 7) x = simd_sum(1u);",
    "float z = 1.0f, w; w = modf(float(lane), z); if (z > 0.0f) x = simd_sum(1u);",
    "x = lane > 3 ? simd_sum(1u) : 0u;",
    "x = lane > 3 ? 0u : simd_sum(1u);",
    "if (lane > 3 && simd_sum(1u) > 2) x = 3;",
    "if (lane > 3 || simd_sum(1u) > 2) x = 3;",
    "auto f = [&](uint z) { x = simd_sum(1u); }; if (lane > 3) f(1);",
    "uint z = n; auto f = [&]() { z = lane; }; f(); if (z > 3) x = simd_sum(1u);",
    "if (quad_sum(in[i]) > 3) x = simd_sum(1u);",
    "if (lane > 3) y = simd_max(in[i]); uint z = y; if (z > 3) x = simd_sum(1u);",
    "if (simd_shuffle(n, lane) > 3) x = simd_sum(1u);",
]


@pytest.mark.parametrize("body", UNIFORM)
def test_flow_that_depends_on_the_group_alone_is_uniform(body: str) -> None:
    assert together(body)


@pytest.mark.parametrize("body", VARYING)
def test_flow_that_may_depend_on_the_lane_is_not(body: str) -> None:
    assert not together(body)


HELPER = "uint helper(uint a, uint b) {{ {body} return a; }}\n"


@pytest.mark.parametrize(
    ("body", "call", "expected"),
    [
        ("a = simd_sum(1u);", "x = helper(lane, n);", True),
        ("a = simd_sum(1u);", "if (lane > 2) x = helper(lane, n);", False),
        ("a = simd_sum(1u);", "x = helper(1, 2); if (lane > 2) x = helper(lane, n);", False),
        ("if (b > 2) a = simd_sum(1u);", "x = helper(lane, n);", True),
        ("if (b > 2) a = simd_sum(1u);", "x = helper(lane, n); x = helper(n, lane);", False),
        ("if (a > 2) a = simd_sum(1u);", "x = helper(lane, n);", False),
        ("if (a > 2) return 3; a = simd_sum(1u);", "x = helper(lane, n);", False),
        ("for (uint j = 0; j < b; ++j) a = simd_sum(1u);", "x = helper(lane, n + tg);", True),
    ],
)
def test_a_helper_is_as_uniform_as_its_calls(body: str, call: str, expected: bool) -> None:
    assert together(call, before=HELPER.format(body=body)) is expected


def test_a_helper_may_return_early_without_harm_to_its_caller() -> None:
    helper = "uint helper(uint a) { if (a > 2) return 3; return 4; }\n"
    assert together("x = helper(lane); x = simd_sum(1u);", before=helper)


def test_arithmetic_of_the_users_own_keeps_values_uniform() -> None:
    helper = "uint twice(uint a) { return max(a, 2u) * 2; }\nuint load(device const uint *p) { return p[0]; }\n"
    assert together("if (twice(n) > 3) x = simd_sum(1u);", before=helper)
    assert not together("if (twice(lane) > 3) x = simd_sum(1u);", before=helper)
    assert not together("if (load(in) > 3) x = simd_sum(1u);", before=helper)


def test_what_a_helper_may_change_is_not_trusted() -> None:
    helper = "void change(thread uint &a, uint b) { a = b; }\nvoid fill(thread uint *a, uint b) { a[0] = b; }\n"
    assert not together("uint z = n; change(z, lane); if (z > 3) x = simd_sum(1u);", before=helper)
    assert together("uint z = n; change(y, z); if (z > 3) x = simd_sum(1u);", before=helper)
    assert not together("uint z[1] = {n}; fill(z, lane); if (z[0] > 3) x = simd_sum(1u);", before=helper)


def test_constants_of_a_class_are_uniform_and_its_members_are_not() -> None:
    tile = """template <int N> struct Tile {
        static constexpr constant int twice = N * 2;
        void run(thread uint &x) { for (int k = 0; k < N && k < twice; ++k) x += simd_sum(1u); }
    };\n"""
    holder = "struct Holder { uint limit; uint run(uint x) { if (x > limit) return x; return x + simd_sum(1u); } };\n"
    assert together("Tile<4> t; t.run(x);", before=tile)
    assert not together("if (lane > 2) { Tile<4> t; t.run(x); }", before=tile)
    assert not together("Holder h = {lane}; x = h.run(n);", before=holder)


def test_a_function_passed_around_may_run_anywhere() -> None:
    helper = (
        "uint one(uint a) { return simd_sum(1u); }\ntemplate <uint (*F)(uint)> uint apply(uint a) { return F(a); }\n"
    )
    assert together("x = one(3);", before=helper)
    assert not together("x = one(3); if (lane > 2) x = apply<one>(4);", before=helper)


def test_a_namesake_does_not_vouch_for_those_who_call_it_apart() -> None:
    helper = "struct S { uint a; };\nuint inner(uint a) { return simd_sum(1u); }\n"
    namesake = "uint simd_sum(S s) { return inner(s.a) + simd_max(2u); }\n"
    apart = uniform_calls(helper + namesake + KERNEL.format(body="S s = {1}; if (lane > 2) x = simd_sum(s);"))
    assert apart == {2}  # it is told its lanes; the helper it calls is not
    assert uniform_calls(helper + namesake + KERNEL.format(body="S s = {1}; x = simd_sum(s);")) == {1, 2}


def test_returns_of_some_lanes_are_named() -> None:
    body = "if (n > 3) return; if (i > n) return; threadgroup_barrier(mem_flags::mem_none); out[i] = 1;"
    module = parse(HEAD + STRUCTS + KERNEL.format(body=body))
    found = analyse(module._syntax, module._declarations, module._convergence).varying_returns
    assert [module._syntax.texts[at - 4 : at] for at in found] == [["i", ">", "n", ")"]]


# -- against an interpreter of 32 lanes ---------------------------------------------------------------------------------


@dataclass
class Program:
    """A random kernel as text, and as steps that one lane can run."""

    body: list[Any]
    helper: list[Any]


class Left(Exception):
    """return, break or continue on its way out."""


@dataclass
class Lane:
    """Runs a program as one lane and notes the convergent calls it comes by."""

    lane: int
    uniform: set[int]
    variables: dict[str, int] = field(default_factory=lambda: {"u": 0, "v": 1, "w": 2, "n": 3, "tg": 2})
    events: list[int] = field(default_factory=list)
    helper: list[Any] = field(default_factory=list)
    depth: int = 0

    def value(self, e: Any) -> int:
        kind = e[0]
        if kind == "number":
            return int(e[1])
        if kind == "name":
            return self.lane if e[1] == "lane" else self.variables[e[1]]
        if kind == "load":
            return (self.lane * 7 + self.value(e[1])) % 5
        if kind == "call":
            self.events.append(e[1])
            count = self.events.count(e[1])
            return (e[1] + count) % 4 if e[1] in self.uniform else (self.lane * 3 + count) % 4
        if kind == "helper":
            argument = self.value(e[1])
            outer, self.variables = self.variables, {**self.variables, "p": argument, "q": 0}
            with suppress(Left):
                self.run(self.helper)
            result = self.variables["q"]
            self.variables = outer
            return result
        if kind == "?":
            return self.value(e[2]) if self.value(e[1]) % 2 else self.value(e[3])
        if kind == "&&":
            return int(self.value(e[1]) % 2 == 1 and self.value(e[2]) % 2 == 1)
        return (self.value(e[1]) + self.value(e[2])) % 16

    def run(self, statements: list[Any]) -> None:
        for s in statements:
            kind = s[0]
            if kind == "set":
                self.variables[s[1]] = self.value(s[2])
            elif kind == "if":
                self.run(s[2] if self.value(s[1]) % 2 else s[3])
            elif kind == "for":
                self.variables[s[1]] = self.value(s[2]) % 4
                while self.variables[s[1]] < self.value(s[3]) % 4:
                    try:
                        self.run(s[4])
                    except Left as left:
                        if left.args[0] == "return":
                            raise
                        if left.args[0] == "break":
                            break
                    self.variables[s[1]] += 1
            else:
                raise Left(kind)


def text_of_expression(e: Any) -> str:
    kind = e[0]
    if kind in ("number", "name"):
        return f"{e[1]}u" if kind == "number" else str(e[1])
    if kind == "load":
        return f"in[{text_of_expression(e[1])}]"
    if kind == "call":
        return f"simd_sum({e[1]}u)"
    if kind == "helper":
        return f"helper(in, {text_of_expression(e[1])})"
    if kind == "?":
        return f"({text_of_expression(e[1])} % 2 ? {text_of_expression(e[2])} : {text_of_expression(e[3])})"
    if kind == "&&":
        return f"uint({text_of_expression(e[1])} % 2 == 1 && {text_of_expression(e[2])} % 2 == 1)"
    return f"(({text_of_expression(e[1])} + {text_of_expression(e[2])}) % 16)"


def text_of(statements: list[Any]) -> str:
    parts = []
    for s in statements:
        if s[0] == "set":
            parts.append(f"{s[1]} = {text_of_expression(s[2])};")
        elif s[0] == "if":
            parts.append(f"if ({text_of_expression(s[1])} % 2) {{ {text_of(s[2])} }} else {{ {text_of(s[3])} }}")
        elif s[0] == "for":
            first, last = f"{text_of_expression(s[2])} % 4", f"{text_of_expression(s[3])} % 4"
            parts.append(f"for (uint {s[1]} = {first}; {s[1]} < {last}; ++{s[1]}) {{ {text_of(s[4])} }}")
        else:
            parts.append("return q;" if s[0] == "return" and "p" in s[1:] else f"{s[0]};")
    return " ".join(parts)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    numbers: Iterator[int] = iter(range(100, 10_000))

    def expression(names: list[str], depth: int, calls: bool = True) -> Any:
        kinds = ["number", "name", "name"] + (["load", "+", "?", "&&"] if depth else [])
        kinds += (["call"] if calls else []) + (["helper"] if calls and depth and "p" not in names else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "number":
            return (kind, draw(st.integers(0, 3)))
        if kind == "name":
            return (kind, draw(st.sampled_from([*names, "lane", "n", "tg"] if "p" not in names else names)))
        if kind == "call":
            return (kind, next(numbers))
        parts = [expression(names, depth - 1, calls) for _ in range({"load": 1, "helper": 1, "?": 3}.get(kind, 2))]
        return (kind, *parts)

    def statements(names: list[str], depth: int, loops: int) -> list[Any]:
        made: list[Any] = []
        for _ in range(draw(st.integers(1, 3))):
            kinds = ["set", "set"] + (["if", "for"] if depth else [])
            kinds += (["break", "continue"] if loops else []) + (["return"] if depth < 2 else [])
            kind = draw(st.sampled_from(kinds))
            if kind == "set":
                targets = [name for name in names if not name.startswith("j")]
                made.append((kind, draw(st.sampled_from(targets)), expression(names, 2)))
            elif kind == "if":
                inner = [statements(names, depth - 1, loops) for _ in range(2)]
                made.append((kind, expression(names, 1), *inner))
            elif kind == "for":
                name = f"j{next(numbers)}"
                limits = expression(names, 1, calls=False), expression(names, 1)
                made.append((kind, name, *limits, statements([*names, name], depth - 1, loops + 1)))
            else:
                made.append((kind, "p") if "p" in names else (kind,))
                break
        return made

    return Program(statements(["u", "v", "w"], 2, 0), statements(["p", "q"], 1, 0))


@settings(max_examples=200, deadline=None)
@given(programs())
def test_what_is_called_uniform_is_reached_by_all_lanes_alike(program: Program) -> None:
    steps = text_of(program.helper)
    helper = f"uint helper(device const uint *in, uint p) {{ uint q = 0; {steps} return q; }}\n"
    body = f"uint u = 0; uint v = 1; uint w = 2; {text_of(program.body)}"
    uniform = uniform_calls(helper + KERNEL.format(body=body))
    seen = []
    for lane in range(LANES):
        one = Lane(lane, uniform, helper=program.helper)
        with suppress(Left):
            one.run(program.body)
        seen.append([event for event in one.events if event in uniform])
    assert all(events == seen[0] for events in seen)


def test_a_function_that_an_instantiation_passes_to_a_template_may_be_called_from_anywhere() -> None:
    source = (
        "float total(float v) { return simd_sum(v); }\n"
        "template <float (*F)(float)> kernel void k(device float *x, uint i [[thread_position_in_grid]]) {"
        " if (i < 3) x[i] = F(x[i]); }\n"
        'template [[host_name("k")]] kernel void k<total>(device float *, uint);\n'
    )
    assert "simd_sum ( __ost::active_lanes()" in parse(source).translate("cuda").text
