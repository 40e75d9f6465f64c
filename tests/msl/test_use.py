"""What a kernel uses: its arguments and the function constants, through the functions that it calls."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato import ConstantError
from ostinato.msl import parse

HELPERS = """
constant bool on [[function_constant(0)]];
constant bool off [[function_constant(1)]];
constant int count [[function_constant(2)]];
constant bool both = on && off;
constant bool hidden = false;
void reads(device float *p) { p[0] = 1; }
void ignores(device float *p) {}
void unnamed(device float *) {}
void guarded(device float *p, bool off) { if (off) p[0] = 1; }
template <bool B> void chosen(device float *p) { if (B) p[0] = 1; }
template <typename T, bool B> struct Tool {
  static constant constexpr bool hidden = true;
  static void run(device T *p) { if (B) p[0] = 1; }
  static void inner(device T *p) { run(p); }
  static void member(device T *p) { if (hidden) p[0] = 1; }
};
template <typename T, bool B> struct Special {
  static void run(device T *p) { if (B) p[0] = 1; }
};
template <typename T> struct Special<T, true> {
  static void run(device T *p) { p[0] = 1; }
};
struct Other { static void run(device float *p) { p[0] = 1; } };
void overloaded(device float *p) {}
void overloaded(device float *p, int n) { p[n] = 1; }
void with_default(device float *p, int n = 1) { p[n] = 1; }
void with_default(device float *p, bool b, bool c) {}
void turns(device float *p, int n) { if (n > 0) turns(p, n - 1); }
"""

UNUSED = {
    "nothing": "",
    "a cast to void": "(void)x; (void)(x);",
    "a branch on a constant": "if (off) { x[0] = 1; }",
    "a branch without braces": "if (off) x[0] = 1; else y[0] = 1;",
    "the other branch": "if (on) { y[0] = 1; } else { x[0] = 1; }",
    "else if": "if (on) y[0] = 1; else if (off) x[0] = 1; else x[1] = 1;",
    "if constexpr": "if constexpr (B) { x[0] = 1; }",
    "a template argument": "if (B) x[0] = 1;",
    "a number as template argument": "if (N > 4) x[0] = 1;",
    "a derived constant": "if (both) x[0] = 1;",
    "one of several conditions": "if (y[0] > 0 && off) x[0] = 1;",
    "a comparison": "if (count != 3) x[0] = 1;",
    "a function that ignores it": "ignores(x);",
    "a parameter without a name": "unnamed(x);",
    "a template function": "chosen<B>(x);",
    "a class template": "Tool<float, false>::run(x);",
    "a function of the same class": "Tool<float, B>::inner(x);",
    "an alias of a class": "using tool = Tool<float, B>; tool::run(x);",
    "a member of that name": "Held h; h.x = 1; y[0] = h.x;",
    "the overload that is called": "overloaded(x);",
}

USED = {
    "a write": "x[0] = 1;",
    "a copy of the pointer": "device float *z = x; (void)z;",
    "a branch that is taken": "if (on) x[0] = 1;",
    "a branch on memory": "if (y[0] > 0) x[0] = 1;",
    "an unknown condition with or": "if (y[0] > 0 || off) x[0] = 1;",
    "a constant that a local variable hides": "bool off = y[0] > 0; if (off) x[0] = 1;",
    "a constant that a second declarator hides": "bool a = true, off = y[0] > 0; if (off) x[0] = 1; (void)a;",
    "a constant that a parameter hides": "guarded(x, true);",
    "a constant that a member hides": "Tool<float, B>::member(x);",
    "a branch with an attribute": "if (off) [[unlikely]] { y[0] = 1; } x[0] = 1;",
    "after a branch that ends": "if (off) { y[0] = 1; } x[0] = 1;",
    "a function that reads it": "reads(x);",
    "an expression as argument": "ignores(x + 1);",
    "a function that is not known": "metal::prefetch(x);",
    "a template argument that is true": "chosen<(N > 2)>(x);",
    "a template argument that is not known": "chosen<sizeof(y) == 8>(x);",
    "another class": "Other::run(x);",
    "a class with a specialisation": "Special<float, B>::run(x);",
    "a class that an alias names twice": "{ using t = Other; t::run(x); } using t = Tool<float, B>; t::run(x);",
    "an alias of another class": "using tool = Other; tool::run(x);",
    "a class that a template parameter names": "C::run(x);",
    "an object that is called": "auto ignores = Caller(); ignores(x);",
    "an overload with a default": "with_default(x);",
    "the other overload": "overloaded(x, 2);",
    "a function that calls itself": "turns(x, 3);",
    "a negative number": "if (count - 4 > 0) x[0] = 1;",
    "a capture": "auto f = [x](int i) { return x[i]; }; y[0] = f(0);",
    "a conditional operator": "y[0] = off ? x[0] : 1;",
    "a loop": "while (off) x[0] = 1;",
    "sizeof": "y[0] = sizeof(x);",
}


def unused(body: str) -> list[str]:
    source = (
        f"#include <metal_stdlib>\n{HELPERS}\nstruct Held {{ int x; }};\n"
        "struct Caller { void operator()(device float *p) const { p[0] = 1; } };\n"
        "template <bool B, int N, typename C> kernel void k(device float *x, device float *y) { y[1] = 0; "
        + body
        + " }\n"
        'template [[host_name("k")]] kernel void k<false, 3, Other>(device float *, device float *);\n'
    )
    signature = parse(source).signature("k", {"on": True, "off": False, "count": 3})
    return [argument.name for argument in signature.arguments if not argument.used]


@pytest.mark.parametrize("body", UNUSED.values(), ids=UNUSED)
def test_an_argument_is_unused_in(body: str) -> None:
    assert unused(body) == ["x"]


@pytest.mark.parametrize("body", USED.values(), ids=USED)
def test_an_argument_is_used_in(body: str) -> None:
    assert unused(body) == []


def test_threadgroup_memory_may_be_unused_too() -> None:
    signature = parse("kernel void k(device float *x, threadgroup float *t) { x[0] = 1; }").signature("k", {})
    assert [argument.used for argument in signature.shared] == [False]


def test_without_values_of_constants_every_argument_counts_as_used() -> None:
    assert parse("kernel void k(device float *x) {}").kernels["k"].arguments[0].used


def test_a_kernel_in_cuda_uses_all_of_its_arguments() -> None:
    native = {"cuda": "__global__ void k(float *x) { x[0] = 1; }"}
    assert parse("kernel void k(device float *x) {}", native=native).signature("k", {}).arguments[0].used


# --- any program ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Statements of a function: their text, and the pointers that they use."""

    text: str
    used: frozenset[str]


POINTERS = ("p", "q", "r")
CONSTANTS = {"a": True, "b": False, "c": True}
conditions = st.recursive(
    st.sampled_from([*CONSTANTS.items(), ("true", True), ("false", False)]),
    lambda inner: st.one_of(
        inner.map(lambda each: (f"!({each[0]})", not each[1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]} && {two[1][0]})", two[0][1] and two[1][1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]} || {two[1][0]})", two[0][1] or two[1][1])),
    ),
    max_leaves=4,
)
touches = st.sampled_from(POINTERS).map(lambda name: Program(f"{name}[0] = 1;", frozenset({name})))
calls = st.permutations(POINTERS).map(
    lambda order: Program(f"call({', '.join(order)});", frozenset({order[0], order[2]}))
)


def branches(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
    def branch(condition: tuple[str, bool], yes: Program, no: Program | None) -> Program:
        otherwise = "" if no is None else f" else {no.text}"
        taken = yes if condition[1] else no
        return Program(f"{{ if ({condition[0]}) {yes.text}{otherwise} }}", frozenset() if taken is None else taken.used)

    def sequence(first: Program, second: Program) -> Program:
        return Program(f"{{ {first.text} {second.text} }}", first.used | second.used)

    return st.builds(branch, conditions, inner, st.none() | inner) | st.builds(sequence, inner, inner)


@settings(max_examples=100, deadline=None)
@given(st.recursive(touches | calls, branches, max_leaves=8))
def test_an_argument_is_used_exactly_where_a_branch_that_is_taken_uses_it(program: Program) -> None:
    declared = "".join(f"constant bool {name} [[function_constant({at})]];\n" for at, name in enumerate(CONSTANTS))
    arguments = ", ".join(f"device float *{name}" for name in POINTERS)
    module = parse(
        f"{declared}void call({arguments}) {{ if (b) q[0] = 1; p[0] = r[0]; }}\n"
        f"kernel void k({arguments}) {{ {program.text} }}"
    )
    signature = module.signature("k", dict(enumerate(CONSTANTS.values())))
    assert {argument.name for argument in signature.arguments if argument.used} == program.used


# --- constants ------------------------------------------------------------------------------------------------------

SEVERAL = """
constant int direct [[function_constant(0)]];
constant int called [[function_constant(1)]];
constant int derived [[function_constant(2)]];
constant int member [[function_constant(3)]];
constant int guard [[function_constant(4)]];
constant int passed [[function_constant(5)]];
constant int asked [[function_constant(6)]];
constant int nobodys [[function_constant(7)]];
constant int part = 12 / derived;
int helper() { return called; }
struct Held { int value() const { return member; } };
using Alias = Held;
int given() { return passed; }
template <int (*F)()> kernel void pass(device int *x) { x[0] = F(); }
template [[host_name("six")]] kernel void pass<given>(device int *);
kernel void one(device int *x) { x[0] = direct; }
kernel void two(device int *x) { x[0] = helper(); }
kernel void three(device int *x) { x[0] = part; }
kernel void four(device int *x) { Alias held; x[0] = held.value(); }
kernel void five(device int *x [[function_constant(guard)]]) { }
kernel void seven(device int *x) { x[0] = is_function_constant_defined(asked) ? asked : 1; }
"""
NEEDED = {"one": ["direct"], "two": ["called"], "three": ["derived"], "four": ["member"], "five": ["guard"],
          "six": ["passed"], "seven": []}  # fmt: skip


@pytest.mark.parametrize("kernel", NEEDED)
def test_a_kernel_needs_the_constants_that_it_reaches(kernel: str) -> None:
    assert [each.name for each in parse(SEVERAL).missing_constants(kernel, {})] == NEEDED[kernel]


def test_an_operator_is_called_without_its_name_so_its_constants_count_for_all() -> None:
    source = SEVERAL + "struct Sum { int n; };\nint operator+(Sum a, Sum b) { return nobodys; }\n"
    assert [each.name for each in parse(source).missing_constants("seven", {})] == ["nobodys"]


def test_a_function_of_the_same_name_in_a_class_that_is_not_reached_does_not_count() -> None:
    source = (
        SEVERAL
        + """
    struct Left { static int run() { return nobodys; } };
    struct Right { static int run() { return 1; } };
    Held made() { return Held(); }
    kernel void eight(device int *x) { x[0] = Right::run(); }
    kernel void nine(device int *x) { auto held = made(); x[0] = held.value(); }
    """
    )
    module = parse(source)
    assert module.missing_constants("eight", {}) == ()
    assert [each.name for each in module.missing_constants("nine", {})] == ["member"]


HIDDEN = """
int of_parameter(int direct) { return direct; }
kernel void parameter(device int *x, constant int &nobodys [[buffer(1)]]) { x[0] = nobodys + of_parameter(1); }
kernel void variable(device int *x) { const int direct = 3; { x[0] = direct; } }
kernel void array(device int *x) { int direct[2]; direct[0] = x[0]; x[1] = direct[0]; }
kernel void inner(device int *x) { { int direct = 3; x[0] = direct; } x[1] = direct; }
kernel void later(device int *x) { x[0] = direct; int direct = 3; x[1] = direct; }
kernel void qualified(device int *x) { int direct = 3; x[0] = direct + ::direct; }
kernel void guarded(device int *guard [[function_constant(guard)]]) { guard[0] = 1; }
"""


@pytest.mark.parametrize("kernel", ["parameter", "variable", "array"])
def test_a_constant_that_a_kernel_hides_by_a_name_of_its_own_is_not_needed(kernel: str) -> None:
    assert parse(SEVERAL + HIDDEN).missing_constants(kernel, {}) == ()


@pytest.mark.parametrize("kernel", ["inner", "later", "qualified", "guarded"])
def test_a_constant_that_a_name_of_a_kernels_own_does_not_hide_everywhere_is_needed(kernel: str) -> None:
    needed = [each.name for each in parse(SEVERAL + HIDDEN).missing_constants(kernel, {})]
    assert needed == ["guard" if kernel == "guarded" else "direct"]


def test_a_missing_constant_is_named_with_the_kernel_that_uses_it() -> None:
    with pytest.raises(ConstantError, match=r"'two' .*called \(index 1, int32\)"):
        parse(SEVERAL).translate(constants={"direct": 1}, only=["one", "two"])


def test_a_constant_that_is_left_out_does_not_break_what_is_computed_from_it() -> None:
    module = parse(SEVERAL)
    assert "derived = 1 ;" in module.translate(only=["seven"]).text
    assert "derived = 4 ;" in module.translate(constants={2: 4}, only=["three"]).text
