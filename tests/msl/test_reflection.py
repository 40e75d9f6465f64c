"""Signatures, constants and refusals: everything the front end says before a compiler is involved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato import ConstantError, KernelCompileError, KernelNotFound, UnsupportedFeature
from ostinato.msl import Module, parse

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def arguments(module: Module, name: str) -> list[tuple[int, str, str, str | None, int, str]]:
    return [(a.index, a.name, a.kind, a.scalar, a.lanes, a.access) for a in module.kernels[name].arguments]


def test_the_seed_kernel_reads_one_buffer_and_writes_another() -> None:
    module = parse(
        HEAD
        + """kernel void inc_one(
            device const float *in   [[buffer(0)]],
            device       float *out  [[buffer(1)]],
            uint id [[thread_position_in_grid]]
        ) { out[id] = in[id] + 1.0f; }"""
    )
    assert arguments(module, "inc_one") == [
        (0, "in", "buffer", "float32", 1, "read"),
        (1, "out", "buffer", "float32", 1, "read_write"),
    ]
    assert module.kernels["inc_one"].attributes == ("thread_position_in_grid",)
    assert not module.kernels["inc_one"].meets


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("device half4 *p [[buffer(3)]]", (3, "p", "buffer", "float16", 4, "read_write")),
        ("const device bfloat *p", (0, "p", "buffer", "bfloat16", 1, "read")),
        ("constant uint &p [[buffer(2)]]", (2, "p", "value", "uint32", 1, "read")),
        ("device packed_float3 *p", (0, "p", "buffer", "float32", 3, "read_write")),
        ("device const vec<ushort, 2> *p", (0, "p", "buffer", "uint16", 2, "read")),
        ("device atomic_uint *p", (0, "p", "buffer", "uint32", 1, "read_write")),
        ("device metal::atomic<float> *p", (0, "p", "buffer", "float32", 1, "read_write")),
        ("constant Params &p", (0, "p", "value", None, 1, "read")),
        ("device void *p", (0, "p", "buffer", None, 1, "read_write")),
        ("device alias_t *p", (0, "p", "buffer", "int64", 1, "read_write")),
        ("device float *const p", (0, "p", "buffer", "float32", 1, "read_write")),
        ("device float const *p", (0, "p", "buffer", "float32", 1, "read")),
        ("volatile device int8_t *p", (0, "p", "buffer", "int8", 1, "read_write")),
        ("constant ulong *p [[buffer(1 + 2 * 3)]]", (7, "p", "buffer", "uint64", 1, "read")),
        ("device const float4x4 &p", (0, "p", "value", "float32", 1, "read")),
        ("uint const device p[]", (0, "p", "buffer", "uint32", 1, "read")),
        ("constant unsigned p[4]", (0, "p", "buffer", "uint32", 1, "read")),
        ("device uint4 const *__restrict__ const p", (0, "p", "buffer", "uint32", 4, "read")),
        ("pointer_t p", (0, "p", "buffer", "float32", 1, "read_write")),
        ("const pointer_t p [[buffer(1)]]", (1, "p", "buffer", "float32", 1, "read_write")),
        ("words_t const p", (0, "p", "buffer", "uint32", 1, "read")),
        ("value_t p", (0, "p", "value", None, 1, "read")),
    ],
)
def test_an_argument_is_read_off_its_declaration(declaration: str, expected: tuple[object, ...]) -> None:
    aliases = """typedef long alias_t; typedef device float *pointer_t;
    using words_t = device const uint *; using value_t = constant Params &;"""
    module = parse(f"{HEAD}struct Params {{ int n; }};\n{aliases}\nkernel void k({declaration}) {{}}")
    assert arguments(module, "k") == [expected]


@pytest.mark.parametrize(
    ("declared", "index"),
    [
        ("enum { IN, OUT = 3 };", "OUT"),
        ("enum Index : uint { IN = 2, OUT };", "OUT"),
        ("typedef enum Index { IN = 1 << 1, OUT = IN + 1 } Index;", "OUT"),
        ("typedef enum { FIRST, IN, LAST, OUT, } Index;", "int(OUT)"),
        ("enum class Index { IN = 1, OUT = IN + 2 }; enum class Other { OUT };", "int(Index::OUT)"),
        ("enum class Index : int { IN = 2, OUT };", "static_cast<uint32_t>(Index::OUT)"),
        ("namespace indices { enum { IN = 2, OUT }; }", "indices::OUT"),
        ("struct Indices { enum { IN = 2, OUT }; };", "Indices::OUT"),
        ("struct Indices { static constexpr constant int OUT = 3; };", "Indices::OUT"),
        ("namespace indices { constant constexpr int IN = 2; }", "indices::IN + 1"),
    ],
)
def test_an_index_may_be_an_enumerator_or_a_constant_inside_something(declared: str, index: str) -> None:
    module = parse(
        f"{HEAD}{declared}\nconstant bool guarded [[function_constant({index})]];\n"
        f"kernel void k(device float *p [[buffer({index})]]) {{ if (guarded) p[0] = 1; }}"
    )
    assert arguments(module, "k") == [(3, "p", "buffer", "float32", 1, "read_write")]
    assert [constant.index for constant in module.constants] == [3]


def test_an_enumerator_of_a_class_is_not_known_outside_of_it() -> None:
    source = f"{HEAD}struct Indices {{ enum {{ OUT }}; }}; kernel void k(device float *p [[buffer(OUT)]]) {{}}"
    with pytest.raises(KernelCompileError, match="'OUT' has no constant value"):
        parse(source)


def test_buffers_without_an_index_get_the_lowest_free_one() -> None:
    module = parse(
        f"{HEAD}kernel void k(device int *a, device int *b [[buffer(0)]], constant int &c, device int *d) {{}}"
    )
    assert [(a.index, a.name) for a in module.kernels["k"].arguments] == [(0, "b"), (1, "a"), (2, "c"), (3, "d")]


@pytest.mark.parametrize(
    ("declared", "index", "expected"),
    [
        ("enum Slot { first, second, third = 7, fourth };", "second", 1),
        ("enum Slot { first, second, third = 7, fourth, };", "fourth", 8),
        ("enum Slot : int { first = 1 << 2, second };", "Slot::second", 5),
        ("typedef enum { first = 3, second = first + 6 } Slot;", "second", 9),
        ("typedef enum { first, second } Slot;", "Slot::second", 1),
        ("typedef enum Name { first, second } Slot;", "Name::second", 1),
        ("namespace n { struct S { enum { first = 2, second }; }; }", "n::S::second", 3),
        ("enum A : uint { first }; enum B { zero, first_of_b }; enum class C { first = 5 };", "A::first", 0),
        ("enum { first = 4 }; constant int next = first + 1;", "next", 5),
    ],
)
def test_an_index_may_be_a_constant_of_an_enumeration(declared: str, index: str, expected: int) -> None:
    module = parse(f"{HEAD}{declared}\nkernel void k(device float *x [[buffer({index})]]) {{ x[0] = 1; }}")
    assert [argument.index for argument in module.kernels["k"].arguments] == [expected]


def test_a_name_of_several_enumerations_is_no_index() -> None:
    source = "enum class A { first }; enum class B { zero, first }; kernel void k(device int *a [[buffer(first)]]) {}"
    with pytest.raises(KernelCompileError, match="'first' has no constant value"):
        parse(HEAD + source)


@pytest.mark.parametrize("attributes", ["[[buffer(2), access(read)]]", "[[access(read)]] [[buffer(2)]]"])
def test_an_attribute_that_metal_does_not_have_is_dropped_beside_an_index(attributes: str) -> None:
    module = parse(f"{HEAD}kernel void k(device const float *x {attributes}) {{}}")
    assert [argument.index for argument in module.kernels["k"].arguments] == [2]


def test_threadgroup_arguments_stand_apart() -> None:
    module = parse(
        f"{HEAD}kernel void k(threadgroup float *b [[threadgroup(1)]], threadgroup int4 *a [[threadgroup(0)]]) {{}}"
    )
    assert [(s.index, s.name, s.type) for s in module.kernels["k"].shared] == [(0, "a", "int4"), (1, "b", "float")]
    assert module.kernels["k"].arguments == ()


TEMPLATE = (
    HEAD
    + "template <typename T, int N = 4> kernel void scale(device T *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {}\n"
)


def test_instantiations_have_host_names() -> None:
    module = parse(
        TEMPLATE
        + 'template [[host_name("scale_f32")]] kernel void scale<float, 2>(device float *, uint);\n'
        + 'template [[host_name("scale_f16")]] [[kernel]] decltype(scale<half>) scale<half>;\n'
        + "typedef decltype(scale<float, 8>) scale_t;\n"
        + 'template [[host_name("scale_" "i8")]] kernel scale_t scale<float, 8>;\n'
        + "template kernel void scale<uint>(device uint *x [[buffer(0)]], uint i [[thread_position_in_grid]]);\n"
    )
    assert {name: signature.arguments[0].scalar for name, signature in module.kernels.items()} == {
        "scale_f32": "float32",
        "scale_f16": "float16",
        "scale_i8": "float32",
        "scale<uint>": "uint32",
    }


def test_an_instantiation_may_leave_its_arguments_to_deduction() -> None:
    module = parse(
        HEAD
        + "template <typename T> kernel void f(device T *x, uint i [[thread_position_in_grid]]) {}\n"
        + 'template [[host_name("f_half")]] kernel void f(device half *x, uint i);\n'
    )
    assert module.kernels["f_half"].arguments[0].scalar == "float16"


def test_macros_may_write_the_instantiations() -> None:
    module = parse(
        TEMPLATE
        + '#define instantiate(name, type) template [[host_name(#name "_" #type)]] [[kernel]] decltype(scale<type>) scale<type>;\n'
        + "instantiate(s, float) instantiate(s, half)\n"
    )
    assert list(module.kernels) == ["s_float", "s_half"]


def test_kernels_in_a_namespace_carry_it() -> None:
    assert list(parse(f"{HEAD}namespace a {{ namespace b {{ kernel void k() {{}} }} }}").kernels) == ["a::b::k"]


@pytest.mark.parametrize(
    ("body", "fibers"),
    [
        ("x[0] = 1;", False),
        ("threadgroup_barrier(mem_flags::mem_threadgroup);", True),
        ("x[0] = simd_sum(x[1]);", True),
        ("x[0] = through(x[1]);", True),
        ("x[0] = harmless(x[1]);", False),
    ],
)
def test_threads_become_fibers_when_they_may_meet(body: str, fibers: bool) -> None:
    helpers = (
        "float inner(float x) { return simd_max(x); } float through(float x) { return inner(x); } "
        "float harmless(float x) { return x; }"
    )
    assert parse(f"{HEAD}{helpers} kernel void k(device float *x) {{ {body} }}").kernels["k"].meets is fibers


CONSTANTS = (
    HEAD
    + """constant bool use_scale [[function_constant(0)]];
constant float scale [[function_constant(1)]];
constant int extra [[function_constant(7)]];
constant bool has_extra = is_function_constant_defined(extra);
kernel void k(device float *x [[buffer(0)]],
              device float *y [[buffer(1), function_constant(use_scale)]],
              device int *z [[buffer(2)]] [[function_constant(has_extra)]]) {}
"""
)


def test_function_constants_are_listed() -> None:
    module = parse(CONSTANTS)
    assert [(c.name, c.index, c.scalar, c.optional) for c in module.constants] == [
        ("use_scale", 0, "bool", False),
        ("scale", 1, "float32", False),
        ("extra", 7, "int32", True),
    ]


@pytest.mark.parametrize(
    ("constants", "names"),
    [
        ({0: True, 1: 2.0}, ["x", "y"]),
        ({"use_scale": False, "scale": 1}, ["x"]),
        ({0: False, 1: 2.0, 7: 3}, ["x", "z"]),
    ],
)
def test_guarded_arguments_come_and_go_with_their_constant(
    constants: dict[int | str, object], names: list[str]
) -> None:
    translation = parse(CONSTANTS).translate(constants=constants)
    assert [argument.name for argument in translation.kernels["k"].arguments] == names


EXCLUSIVE = (
    HEAD
    + """constant bool wide [[function_constant(0)]];
constant bool narrow = !wide;
constant bool always = wide || narrow;
kernel void k(device float *x [[buffer(0), function_constant(wide)]], device half *y [[buffer(0), function_constant(GUARD)]]) {}
"""
)


def test_arguments_that_exclude_each_other_may_share_an_index() -> None:
    module = parse(EXCLUSIVE, defines={"GUARD": "narrow"})
    assert [a.name for a in module.translate(constants={0: True}).kernels["k"].arguments] == ["x"]
    assert [a.name for a in module.translate(constants={0: False}).kernels["k"].arguments] == ["y"]
    with pytest.raises(KernelCompileError, match="share buffer index 0"):
        parse(EXCLUSIVE, defines={"GUARD": "always"}).translate(constants={0: True})


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({1: 1.0}, r"'k' uses .* without a value: use_scale \(index 0"),
        ({0: True, 1: 1.0, "nothing": 1}, "no function constant 'nothing'"),
        ({0: 2, 1: 1.0}, "pass True or False"),
        ({0: True, 1: 1.0, 7: 2**31}, "outside"),
        ({0: True, 1: 1.0, 7: 1.5}, "not a whole number"),
        ({0: True, 1: "1.0"}, "cannot take"),
        ({0: True, 1: 1e300}, "too large"),
        ({0: True, 1: 1.0, "scale": 2.0}, "set twice"),
    ],
)
def test_a_wrong_constant_is_named(constants: dict[int | str, object], message: str) -> None:
    with pytest.raises(ConstantError, match=message):
        parse(CONSTANTS).translate(constants=constants)


def test_translating_an_unknown_kernel_says_which_there_are() -> None:
    with pytest.raises(KernelNotFound, match="it has k"):
        parse(CONSTANTS).translate(constants={0: True, 1: 1.0}, only=["other"])


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("kernel void k(texture2d<float> t [[texture(0)]]) {}", 3, "texture"),
        ("using namespace raytracing;", 3, "ray tracing"),
        ("\n\nkernel void k(tensor<device float, dextents<int, 2>> t) {}", 5, "tensor_handle"),
        ("using t = tensor<device float, extents<int, 2>, tensor_handle>;", 3, "make a tensor_inline"),
        ("fragment float4 f() { return 0; }", 3, "fragment"),
        ("kernel void k(device float *x, sampler s) {}", 3, "sampler"),
    ],
)
def test_what_is_not_supported_is_named_with_its_line(source: str, line: int, what: str) -> None:
    with pytest.raises(UnsupportedFeature, match=what) as caught:
        parse(HEAD + source)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("source", "line", "what"),
    [
        ("kernel void k(float *x) {}", 3, "pointer .* before 'float \\*'"),
        ("\nfloat f(const float4 &v) { return v.x; }", 4, "reference .* before 'const float4 &'"),
        ("kernel void k(device float *x) {\n  float *p = x; }", 4, "pointer"),
        ("kernel void k(device float *x) { *(uint *)x = 1; }", 3, "'uint \\*'"),
        ("kernel void k(device float *x) { auto p = static_cast<void *>(x); }", 3, "'void \\*'"),
        ("struct S { int a; };\nint f(thread S &s, const S *t) { return s.a; }", 4, "'const S \\*'"),
        ("struct S { metal::float2 *at; };", 3, "float2"),
        ("using pointer = unsigned int *;", 3, "unsigned int"),
        ("struct S { int a; };\nint f(const struct S *t) { return t->a; }", 4, "'const struct S \\*'"),
        ("union U { int a; };\nint f(U &u, device U *v) { return u.a; }", 4, "'U &'"),
    ],
)
def test_a_pointer_that_names_no_address_space_is_refused_as_on_apples_compiler(
    source: str, line: int, what: str
) -> None:
    with pytest.raises(KernelCompileError, match=what) as caught:
        parse(HEAD + source)
    assert caught.value.line == line


def test_address_spaces_are_found_wherever_metal_lets_them_stand() -> None:
    parse(
        HEAD
        + """
using cell = device float;
struct S { int a; thread S &itself() thread { return *this; } };
namespace outer { namespace inner { struct S { int a; }; } }
template <typename T> struct Of { struct S { T a; }; };
int g(device ::outer::inner::S *x, device Of<int>::S *y) { return x->a + y->a; }
template <typename T> T first(T *at) { return *at; }
float f(float device *x, const constant float &y, threadgroup const float4 *const z, cell *c) {
  thread auto &again = z[0].x;
  const device uchar *bytes = (const device uchar *)x;
  auto *same = bytes;
  return x[0] * y * float(*same) * again * sizeof(float) * c[0];
}
kernel void k(device float *x [[buffer(0)]], threadgroup float4 *z) { x[0] = f(x, 1.0f, z, x); }
"""
    )


def test_an_address_space_may_stand_around_words_of_the_type() -> None:
    parse(
        HEAD
        + """
struct P { float a; device struct P *next; };
union U { float a; uint b; };
enum E : int { one };
constant static const float *nowhere = nullptr;
float f(device struct P *p, const thread struct P &s, constant union U *u, device enum E *e, device typename metal::float2 *v) {
  return p->a + s.a + u->a + float(*e) + v->x;
}
kernel void k(constant struct P &p [[buffer(0)]], device float *out) { out[0] = p.a; }
"""
    )


def test_a_product_of_what_is_called_like_a_struct_is_no_pointer() -> None:
    parse(
        HEAD
        + """
struct stride { uint a; };
struct offset { uint a; };
struct Op { uint a; };
struct width { uint a; };
struct Shape { uint stride; float at; };
template <int Op> int by(int x) { return Op * x; }
template <typename width> width first(width *at) { return at[0]; }
kernel void k(constant Shape &p [[buffer(0)]], device uint *o [[buffer(1)]], uint n [[thread_position_in_grid]]) {
  device const Shape *q = nullptr;
  float Shape::*m = &Shape::at;
  int a = 1, offset = n;
  o[p.stride * 2] = o[offset * 2] + uint(p.*m) + o[q->stride & 3];
}
"""
    )


@pytest.mark.parametrize(
    "source",
    [
        'kernel void k() { asm("nop"); }',
        'kernel void k() { __asm__ volatile ("nop"); }',
        "extern int puts(const char *);",
        'extern "C" { int puts(const char *); }',
        "__attribute__((constructor)) void run() {}",
        '__attribute__((section("x"))) constant int a = 1;',
        '__attribute__((alias("system"))) void run();',
        "float counter;",
        "static int state = 0;",
        "struct S { static int state; };",
        "kernel void k() { __builtin_malloc(4); }",
        'kernel void k() { __builtin_printf("x"); }',
        "thread_local int x = 1;",
        "kernel void k() { auto p = new int; }",
        "kernel void k() { throw 1; }",
        "namespace __ost { }",
        "kernel void k() { __ost_w = 0; }",
    ],
)
def test_what_reaches_outside_a_kernel_is_refused(source: str) -> None:
    with pytest.raises(KernelCompileError, match=r"not allowed|reserved|outside all functions") as caught:
        parse(HEAD + source)
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "source",
    [
        "METAL_FUNC float f(float x) { return x; }",
        "__attribute__((always_inline)) inline float f(float x) { return x; }",
        "[[clang::always_inline]] inline float f(float x) { return x; }",
        '#pragma METAL fp math_mode(safe)\nkernel void k() { _Pragma("clang loop unroll(full)") for (int i = 0; i < 2; ++i) {} }',
        "struct S { static constant constexpr int n = 3; };",
        "constant float table[2] = {1.0, 2.0};",
        "constexpr constant int n = 3;",
        "kernel void k [[max_total_threads_per_threadgroup(128)]] () { if (__builtin_expect(1, 1)) {} }",
    ],
)
def test_harmless_attributes_and_pragmas_pass(source: str) -> None:
    parse(HEAD + source)


@pytest.mark.parametrize(
    ("declaration", "index", "expected"),
    [
        ("enum Index { first, second };", "second", 1),
        ("enum Index : metal::uint { first = 3, second, };", "Index::second + 1", 5),
        ("typedef enum { first = 1 << 2, second } Index;", "second", 5),
        ("typedef enum Index : int Index; enum Index : int { first = -1, second, third = second + 7 };", "third", 7),
        ("enum class Index : ushort { first = 2 };", "int(Index::first)", 2),
        ("enum struct Index { first [[maybe_unused]] = 2 };", "static_cast<uint>(Index::first) - 1", 1),
        ("enum class A { x = 5 }; enum class B { x = 6 }; constant int x = 7;", "(int)A::x + int(B::x) - x", 4),
        ("constant constexpr int base = 3; enum { first = base };", "first", 3),
        ("namespace n { constant int first = 4; }", "n::first", 4),
        ("namespace n { enum Index { first = 4 }; }", "n::Index::first + n::first", 8),
    ],
)
def test_enumerators_and_qualified_constants_are_indices(declaration: str, index: str, expected: int) -> None:
    source = f"{declaration} kernel void k(device float *x [[buffer({index})]]) {{ x[0] = 1; }}"
    assert parse(HEAD + source).kernels["k"].arguments[0].index == expected


def test_an_index_with_two_meanings_is_not_guessed() -> None:
    source = "namespace a { enum { first }; } namespace b { enum { first = 2 }; } using namespace b;"
    with pytest.raises(KernelCompileError, match="'first' has no constant value"):
        parse(HEAD + source + "kernel void k(device float *x [[buffer(first)]]) {}")


GRID_ATTRIBUTES = """thread_position_in_grid thread_position_in_threadgroup threadgroup_position_in_grid
    threads_per_threadgroup threads_per_grid threadgroups_per_grid dispatch_threads_per_threadgroup""".split()


@pytest.mark.parametrize("attribute", GRID_ATTRIBUTES[1:])
@pytest.mark.parametrize(("one", "other"), [("uint2", "uint"), ("ushort", "uint3"), ("uint3", "vec<ushort, 2>")])
def test_positions_in_the_grid_are_all_scalars_or_all_vectors_of_one_size(attribute: str, one: str, other: str) -> None:
    given = f"{one} at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]], TYPE size [[{attribute}]]"
    plain = f"kernel void k({given}) {{}}"
    template = f"template <typename TYPE> {plain} template kernel void k<CHOSEN>({one}, uint, CHOSEN);"
    for source, chosen in ((plain, "TYPE"), (template, "CHOSEN")):
        parse(HEAD + source.replace(chosen, one))
        with pytest.raises(KernelCompileError, match=rf"'at' \({one} .*'size' \({other} .*all be vectors"):
            parse(HEAD + source.replace(chosen, other))


def test_sizes_that_are_alike_may_be_of_different_widths() -> None:
    parse(HEAD + "kernel void k(uint3 a [[threadgroup_position_in_grid]], ushort3 b [[threads_per_threadgroup]]) {}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("kernel void k(device float *x { }", "unmatched|never closed"),
        ("kernel void k(float x) {}", "neither a buffer"),
        ("kernel void k(device int *a [[buffer(0)]], device int *b [[buffer(0)]]) {}", "share buffer index 0"),
        ("kernel void k(device int *a [[buffer(31)]]) {}", "over 30"),
        ("kernel void k(device int *a [[buffer(-1)]]) {}", "cannot be negative"),
        ("kernel void k(device int *a [[bufer(3)]]) {}", r"unknown attribute \[\[bufer\]\]"),
        ("kernel void k(device int *a [[buffer]]) {}", "needs an index"),
        ("kernel void k(device int *a [[buffer(1.5)]]) {}", "not a whole number"),
        ("kernel void k(device int *a [[buffer(1e999)]]) {}", "the index"),
        ("kernel void k(device int *a [[thread_position_in_grid]]) {}", "must be a uint or ushort"),
        ("kernel void k(float i [[thread_position_in_grid]]) {}", "must be a uint or ushort"),
        ("kernel void k(uint4 i [[thread_position_in_grid]]) {}", "must be a uint or ushort"),
        ("kernel int k() { return 1; }", "must return void"),
        ("[[max_total_threads_per_threadgroup(0)]] kernel void k() {}", "between 1 and 1024"),
        ("constant int c [[function_constant(-3)]];", "not between"),
        ("struct S { int a; } shared_state;", "outside all functions"),
        ("enum E { A } state;", "outside all functions"),
        ("kernel void k() {} kernel void k() {}", "two kernels are named 'k'"),
        ("constant float4 c [[function_constant(0)]];", "only scalars"),
        ("constant uint a [[function_constant(0)]], b [[function_constant(1)]];", "b in a statement of its own"),
        ("void helper() { threadgroup float t[4]; }", "not a kernel"),
        ("struct S {", "never closed"),
        ("template <typename T kernel void k() {}", "never closed"),
    ],
)
def test_broken_declarations_get_a_clear_message(source: str, message: str) -> None:
    with pytest.raises(KernelCompileError, match=message) as caught:
        parse(HEAD + source).translate()
    assert caught.value.line == 3


@pytest.mark.parametrize("after", ["", "constant int last = 1;"])
@pytest.mark.parametrize(
    ("declaration", "line"),
    [
        ("struct S { int a; }", 4),
        ("enum E { a }", None),
        ("typedef struct { int a; } S", None),
        ("using A = int", None),
        ("constant int n = 1", None),
        ("float f(float x)", 4),
        ("namespace n { struct S { int a; } }", 3),
    ],
)
def test_a_missing_semicolon_is_placed_where_it_is_missing(declaration: str, line: int | None, after: str) -> None:
    with pytest.raises(KernelCompileError, match="';'") as caught:
        parse(f"{HEAD}{declaration}\nkernel void k(device float *x) {{ x[0] = 1; }}\n{after}")
    assert caught.value.line == (line or (4 if after else 3))


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.metal"
    path.write_text("\nkernel void k(float x) {}")
    with pytest.raises(KernelCompileError, match=r"bad\.metal:2:15: "):
        parse(path)


FRAGMENTS = st.sampled_from(
    "template < > typename T , kernel void k f ( ) { } ; device constant threadgroup float int4 * & [[ ]] buffer(0) [ ] = 1.0 "
    "struct S : operator + namespace using typedef enum static constexpr if else for while do return simd_sum x :: . -> <<".split()
)


@given(st.lists(FRAGMENTS, max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_sequence_of_tokens_is_parsed_or_refused(parts: list[str]) -> None:
    with contextlib.suppress(KernelCompileError, ConstantError):
        parse(" ".join(parts)).translate()


@given(depth=st.integers(1, 30_000), bracket=st.sampled_from(["()", "{}", "[]"]))
@settings(max_examples=10, deadline=None)
def test_deep_nesting_never_hangs(depth: int, bracket: str) -> None:
    with contextlib.suppress(KernelCompileError):
        parse("kernel void k() { int x = " + bracket[0] * depth + "1" + bracket[1] * depth + "; }").translate()


@pytest.mark.parametrize(
    "source",
    [
        "constant int a0 = 1;"
        + "".join(f"constant int a{n + 1} = a{n} + a{n};" for n in range(60))
        + "kernel void k(device int *x [[buffer(a60)]]) {}",
        "constant int a0 = 3;"
        + "".join(f"constant int a{n + 1} = a{n} * a{n};" for n in range(40))
        + "kernel void k(device int *x [[buffer(a40)]]) {}",
        f"kernel void k(device int *x [[buffer({'9' * 5000})]]) {{}}",
        "#if (int)1e999\n#endif",
        "#if ~1e999\n#endif",
    ],
    ids=["sums", "products", "digits", "cast", "complement"],
)
def test_hostile_constants_are_refused_quickly(source: str) -> None:
    with pytest.raises(KernelCompileError):
        parse(source).translate()


@pytest.mark.parametrize(
    "make",
    [
        lambda n: "/* c */ " * n,
        lambda n: "".join(f"#define X{k + 1} X{k}\n" for k in range(n // 8)) + f"X{n // 8}",
        lambda n: "kernel void k(device int *x) { x[0] = 1" + " + (x[0] >> 1)" * (n // 4) + "; }",
        lambda n: "kernel void k(device int *x) { x[0] = x[0] >> x[1]" + " >> x[1]" * (n // 4) + "; }",
        lambda n: "kernel void k() { " + "for (;;) " * (n // 10) + "simd_sum(1); }",
        lambda n: "kernel void k() { " + "if (1) simd_sum(1); else " * (n // 10) + "; }",
    ],
    ids=["comments", "macro chain", "bracketed shifts", "shifts", "nested loops", "else if"],
)
def test_work_grows_with_the_source_not_with_its_square(make: Callable[[int], str]) -> None:
    """A guard against quadratic work: 30,000 elements would take minutes."""
    started = time.monotonic()
    with contextlib.suppress(KernelCompileError):
        parse(make(30_000)).translate()
    assert time.monotonic() - started < 30


def test_a_byte_order_mark_and_letters_of_all_languages_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mark.metal"
    path.write_text("\ufeffkernel void größe(device int *ß) { ß[0] = 1; }", encoding="utf-8")
    assert list(parse(path).kernels) == ["größe"]


def test_a_name_with_a_null_byte_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KernelCompileError, match='needs "file"'):
        parse('#include "a\0b"\n', include_dirs=[tmp_path])
    with pytest.raises(KernelCompileError, match="not a valid file name"):
        parse(Path("a\0b"))


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("struct S { uchar a; float b; };", [("a", 0), ("b", 4)]),
        ("typedef struct { uchar a; half3 b; packed_float3 c; } S;", [("a", 0), ("b", 8), ("c", 16)]),
        ("constant int N = 2; struct S { uchar a[N + 1], b; long c = 3; };", [("a", 0), ("b", 3), ("c", 8)]),
        ("struct S { S() : a(1), b{2} {} int a; int get() const { return a; } static int f(); int b; };",
         [("a", 0), ("b", 4)]),
        ('extern "C" struct S { uchar a; float b; };', [("a", 0), ("b", 4)]),
        ("struct I { uchar x; }; struct S { I i[3]; enum E { one }; float2x3 m; };", [("i", 0), ("m", 16)]),
        ("struct S { thread S &operator=(thread const S &s) thread { a = s.a; return *this; } int a; };", [("a", 0)]),
        ("enum { Two = 2, Three }; struct S { uchar a[Three]; int b; };", [("a", 0), ("b", 4)]),
        ("struct S { uint a : 3; };", None),
        ("struct S { union { int a; float b; }; };", None),
        ("struct S { device float *p; };", None),
        ("struct alignas(32) S { float x; };", None),
        ("struct B { int x; }; struct S : B { int y; };", None),
        ("struct S { struct { int x; } inner; };", None),
        ("struct S { int x[-1]; };", None),
        ("struct S { S inside; };", None),
        ("struct S { unsigned long a; unsigned char b; const float c; metal::float2 d; };",
         [("a", 0), ("b", 8), ("c", 12), ("d", 16)]),
    ],
)  # fmt: skip
def test_the_fields_of_structs_have_the_offsets_of_cpp(
    declaration: str, expected: list[tuple[str, int]] | None
) -> None:
    source = HEAD + declaration + " kernel void k(constant S &s [[buffer(0)]], device float *x [[buffer(1)]]) {}"
    layout = parse(source).kernels["k"].arguments[0].layout
    assert (layout and [(field.name, field.offset) for field in layout.fields]) == expected


def test_a_typedef_of_a_struct_is_named_by_its_name() -> None:
    module = parse(HEAD + "typedef struct { int n; } Args; kernel void k(constant Args &a [[buffer(0)]]) {}")
    assert module.kernels["k"].arguments[0].type == "Args"


def test_structs_that_double_at_every_level_are_not_followed_for_ever() -> None:
    structs = "struct S0 { int x; };" + "".join(f" struct S{n} {{ S{n - 1} a, b; }};" for n in range(1, 30))
    module = parse(HEAD + structs + " kernel void k(constant S29 &s [[buffer(0)]], constant S5 &t [[buffer(1)]]) {}")
    large, small = (argument.layout for argument in module.kernels["k"].arguments)
    assert large is None
    assert small is not None
    assert small.nbytes == 4 * 2**5
