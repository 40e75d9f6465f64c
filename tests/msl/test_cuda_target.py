"""The CUDA target as far as no GPU is needed: NVRTC accepts every kernel, parameters lie where the driver puts them,
errors name the user's lines, half behaves as a built-in type, and lanes meet by the right instructions."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ostinato
from launching import HEAD
from nvrtc import Nvrtc
from ostinato.backends.cuda.compiling import cubin
from ostinato.msl import Translation, cuda_options, parameter_layout, parse
from scripting import Script

OPS = sorted((Path(ostinato.__file__).parent / "ops" / "kernels").glob("*.metal"))
CONFORMANCE = Path(__file__).parents[1] / "conformance" / "msl"
MODULES = """address_spaces atomics divergence dot_add geometry_and_packing integers internals math matrices null_pointers own_names scalars
simdgroup_matrix spellings structs templates tensors thread_positions threadgroup_barriers threadgroup_memory unaligned
vectors waiting""".split()


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


# -- everything compiles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OPS, ids=lambda path: path.stem)
def test_the_packages_own_kernels_compile(nvrtc: Nvrtc, path: Path) -> None:
    compiled = nvrtc.compile(translated(path))
    assert compiled.ptx, compiled.log
    assert not compiled.log


@pytest.mark.usefixtures("nvrtc")
def test_the_packages_own_kernels_compile_for_older_gpus(tmp_path: Path, script: Script) -> None:
    compile_all({path.stem: translated(path) for path in OPS}, "compute_80", tmp_path, script)


def translated(path: Path) -> Translation:
    """A source for CUDA; of one with hundreds of instances every thirteenth."""
    module = parse(path)
    names = list(module.kernels)
    some = names if len(names) <= 64 else names[::13]
    return module.translate("cuda", {constant.name: 4 for constant in module.constants}, some)


def compile_all(translations: Mapping[str, Translation], architecture: str, folder: Path, script: Script) -> None:
    """Translations are accepted without a word."""
    files = []
    for name, translation in translations.items():
        files.append(folder / f"{name}.cu")
        files[-1].write_text(translation.text, encoding="utf-8")
    text = f"from nvrtc import compile_quickly; compile_quickly({architecture!r}, sys.argv[1:])"
    result = script(text, *map(str, files))
    assert (result.stdout, result.returncode) == ("", 0), result.stderr


def conformance_test(name: str) -> Any:
    """A module of the conformance suite, which runs these kernels where there is a device."""
    spec = importlib.util.spec_from_file_location(f"conformance_{name}", CONFORMANCE / f"test_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("nvrtc")
def test_the_kernels_of_the_conformance_suite_compile(tmp_path: Path, script: Script) -> None:
    translations = {module: parse(conformance_test(module).SOURCE).translate("cuda") for module in MODULES}
    compile_all(translations, "compute_90", tmp_path, script)


@pytest.mark.usefixtures("nvrtc")
def test_members_and_constructors_that_differ_in_address_space_compile(tmp_path: Path, script: Script) -> None:
    module = conformance_test("address_spaces")
    sources = {name: getattr(module, name.upper()) for name in ("hidden", "members", "different", "constructors")}
    compile_all({name: parse(text).translate("cuda") for name, text in sources.items()}, "compute_90", tmp_path, script)


DESIGNATED = """
struct Point { int x; float y = 2; };
struct Line { Point from, to; int tags[2]; };
constant Point origin = {.x = 1};
Point moved(Point p) { return {.x = p.x + 1, .y = p.y}; }
kernel void designated(device float *out [[buffer(0)]]) {
  Line line{.to = {.x = 3}, .tags = {4, 5}};
  Point made = (Point){.x = moved({.y = 1}).x};
  out[0] = line.to.x + line.from.y + made.x + origin.x;
}
"""


def test_ranges_of_cases_and_elements_by_index_compile(nvrtc: Nvrtc) -> None:
    compiled = nvrtc.compile(parse(conformance_test("spellings").CLANGS).translate("cuda"))
    assert compiled.ptx, compiled.log


def test_initialisers_may_name_members(nvrtc: Nvrtc) -> None:
    compiled = nvrtc.compile(parse(HEAD + DESIGNATED).translate("cuda"))
    assert compiled.ptx
    assert not compiled.log
    assert parse(HEAD + "kernel void k(device float *x) { x[0] = .5f; }").translate("cuda").standard == "c++17"


LAMBDAS = """
template <int N> struct number {
  static constexpr constant int value = N;
  constexpr operator int() const { return N; }
};
template <typename F> void both(F f) { f(number<1>{}); f(number<2>{}); }
template <int A, int B> float product() { return A * B; }
kernel void nested(device float *out) {
  both([&](auto n) {
    both([&](auto m) {
      out[0] += product<n.value, m.value>();
      if constexpr (n < m) out[1] += 1;
    });
  });
}
"""


def test_a_parameter_of_an_outer_lambda_is_constant_in_an_inner_one(nvrtc: Nvrtc) -> None:
    compiled = nvrtc.compile(parse(HEAD + LAMBDAS).translate("cuda"))
    assert compiled.ptx, compiled.log


def test_a_value_of_a_lambda_is_no_constant(nvrtc: Nvrtc) -> None:
    stateful = LAMBDAS.replace("struct number {", "struct number { int state;")
    compiled = nvrtc.compile(parse(HEAD + stateful).translate("cuda"))
    assert "the value of a lambda's parameter is not constant" in compiled.log


def test_votes_and_some_simdgroup_functions_of_every_kind_compile(nvrtc: Nvrtc) -> None:
    votes = conformance_test("simdgroup").VOTES
    assert nvrtc.compile(parse(votes).translate("cuda")).ptx
    calls = "".join(
        f"x += {name}(x{more}); " for name, more in
        [("simd_sum", ""), ("simd_prefix_exclusive_sum", ""), ("simd_prefix_inclusive_product", ""), ("quad_max", ""),
         ("simd_shuffle_xor", ", 1"), ("simd_shuffle_and_fill_up", ", T(3), 2"), ("simd_broadcast_first", "")]
    )  # fmt: skip
    kernel = f"template <class T> kernel void k(device T *d [[buffer(0)]]) {{ T x = d[0]; {calls} d[0] = x; }}\n"
    for type_ in ("float", "half", "int", "uchar", "float3"):
        kernel += f'template [[host_name("{type_}")]] kernel void k<{type_}>(device {type_} *);\n'
    compiled = nvrtc.compile(parse(HEAD + kernel).translate("cuda"))
    assert compiled.ptx, compiled.log


def test_function_constants_of_every_type_and_the_smallest_floats_compile(nvrtc: Nvrtc) -> None:
    constants = conformance_test("function_constants")
    typed = parse(constants.SOURCE).translate("cuda", dict(enumerate(constants.TYPES.values())))
    assert nvrtc.compile(typed).ptx
    small = "constant float v [[function_constant(0)]];\nkernel void k(device float *x) { x[0] = v + 1e-40f + 1e-45; }"
    compiled = nvrtc.compile(parse(HEAD + small).translate("cuda", {0: 1e-40}))
    assert compiled.ptx, compiled.log


def test_names_that_cuda_has_of_its_own_belong_to_the_source(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}
    inline float erf(float x) {{ return x; }}
    struct dim3 {{ uint x; }};
    inline float norm(float2 x) {{ return ::metal::dot(x, x); }}
    kernel void k(device float4 *out [[buffer(0)]]) {{
        dim3 d = {{1}};
        out[0] = float4(erf(sin(out[1].x)), norm(out[1].xy), min(out[1].z, 2.0f), d.x);
    }}"""
    compiled = nvrtc.compile(parse(source).translate("cuda"))
    assert compiled.ptx, compiled.log


# -- parameters ---------------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "": [],
    "device float *a [[buffer(2)]]": [4],
    "constant uint &n [[buffer(0)]]": [4],
    "device float *a [[buffer(3)]], constant float4x4 &m [[buffer(1)]], constant uchar &c [[buffer(0)]]": [1, 64, 4],
    "threadgroup float *t [[threadgroup(0)]], constant ulong4 &w [[buffer(0)]]": [32],
    "threadgroup int *s [[threadgroup(1)]], threadgroup float *t [[threadgroup(0)]], device half3 &x [[buffer(0)]]": [
        8
    ],
    "constant Big &b [[buffer(0)]], device const Big *c [[buffer(1)]], threadgroup int *s [[threadgroup(0)]]": [20, 20],
}


def test_template_arguments_may_be_named_from_the_root(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}
    namespace own {{ struct wide {{ typedef float type; }}; }}
    template <class T, class W> kernel void k(device T *out [[buffer(0)]]) {{ out[0] = T(typename W::type(1)); }}
    template [[host_name("k")]] kernel void k<half, ::own::wide>(device half *);
    """
    compiled = nvrtc.compile(parse(source).translate("cuda"))
    assert compiled.ptx, compiled.log


def test_types_of_arguments_may_be_named_from_the_root(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}
    namespace own {{ template <class T, int n> struct list {{ T values[n]; }}; }}
    kernel void k(constant ::own::list<float, 2> &x [[buffer(0)]], device ::own::list<float, 2> *out [[buffer(1)]]) {{ out[0] = x; }}
    """
    compiled = nvrtc.compile(parse(source).translate("cuda"))
    assert compiled.ptx, compiled.log


@pytest.mark.parametrize("inline_bytes", [0, 48])
def test_parameters_lie_where_the_layout_says(nvrtc: Nvrtc, inline_bytes: int) -> None:
    kernels = "".join(f"kernel void k{i}({arguments}) {{}}\n" for i, arguments in enumerate(ARGUMENTS))
    translation = parse(f"{HEAD}struct Big {{ uint a[5]; }};\n{kernels}").translate("cuda")
    compiled = nvrtc.compile(translation, inline_bytes=inline_bytes)
    assert compiled.ptx, compiled.log
    for number, (signature, sizes) in enumerate(zip(translation.kernels.values(), ARGUMENTS.values(), strict=True)):
        info = compiled.info(number)
        assert info[:4] == [0, 0, len(sizes), len(signature.shared)]
        assert info[4::2] == sizes
        layout = parameter_layout(signature, sizes, inline_bytes)
        assert compiled.parameter_bytes(number) == layout.total_bytes
        assert all(at % 16 == 0 for at in layout.values.values())
        by_value = [a for a in signature.arguments if a.kind == "value" and a.space == "constant"]
        assert len(layout.values) == len(by_value)


def test_the_description_has_memory_and_threads(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}
    template <int N> [[max_total_threads_per_threadgroup(N * 32)]] kernel void k(device float *out [[buffer(0)]]) {{
        threadgroup float all[N]; threadgroup uchar small[3]; all[0] = 1; small[0] = 2; out[0] = all[0] + small[0];
    }}
    template [[host_name("k4")]] kernel void k<4>(device float *);
    kernel void plain(device float *out [[buffer(0)]]) {{ out[0] = 1; }}"""
    translation = parse(source).translate("cuda")
    compiled = nvrtc.compile(translation)
    by_name = {name: compiled.info(number) for number, name in enumerate(translation.kernels)}
    bounds = {name: ".maxntid" in compiled.body(number) for number, name in enumerate(translation.kernels)}
    assert by_name["k4"][:4] == [19, 128, 1, 0]
    assert by_name["plain"][:4] == [0, 0, 1, 0]
    assert bounds == {"k4": True, "plain": False}


def test_arguments_left_out_by_their_constant_take_no_room(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}
    constant bool wide [[function_constant(0)]];
    kernel void k(device float *out [[buffer(0)]], device float *more [[buffer(1), function_constant(wide)]],
                  constant uint &n [[buffer(2), function_constant(wide)]]) {{ out[0] = wide ? more[n] : 1.0f; }}"""
    for wide, expected in ((True, [4, 4, 4, 4, 4, 4]), (False, [4, 4])):
        compiled = nvrtc.compile(parse(source).translate("cuda", {0: wide}))
        assert compiled.info(0)[4:] == expected, compiled.log


def test_buffers_are_known_to_lie_in_device_memory_and_values_in_the_parameters(nvrtc: Nvrtc) -> None:
    source = f"""{HEAD}kernel void k(device float4 *out [[buffer(0)]], device const float4 *in [[buffer(1)]],
    constant float &scale [[buffer(2)]], uint i [[thread_position_in_grid]]) {{ out[i] = in[i] * scale; }}"""
    body = nvrtc.compile(parse(source).translate("cuda")).body(0)
    assert re.search(r"ld\.global\S*\.v4", body)
    assert re.search(r"st\.global\S*\.v4", body)
    assert not re.search(r"\b(ld|st)\.[fub]\d+", body)  # of an unknown space
    assert body.index("griddepcontrol.wait") < body.index("ld.global")


@pytest.mark.usefixtures("nvrtc")
def test_the_compilers_errors_name_the_users_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "inner.h").write_text("\n\ninline float f() { return nowhere; }\n")
    (tmp_path / "outer.metal").write_text(
        f'{HEAD}#include "inner.h"\n\nkernel void k(device float *x) {{\n  x[0] = wrong;\n}}\n'
    )
    translation = parse(tmp_path / "outer.metal").translate("cuda")
    with pytest.raises(ostinato.KernelCompileError) as caught:
        cubin(translation.text, cuda_options("sm_90"))
    places = [(Path(d.file or "").name, d.line, d.message) for d in translation.placed(caught.value).diagnostics]
    assert places == [
        ("inner.h", 3, 'identifier "nowhere" is undefined'),
        ("outer.metal", 6, 'identifier "wrong" is undefined'),
    ]


# -- half ---------------------------------------------------------------------------------------------------------------


def accepted(nvrtc: Nvrtc, statements: str) -> None:
    compiled = nvrtc.compile(parse(f"{HEAD}{statements}\nkernel void k() {{}}").translate("cuda"))
    assert compiled.ptx, compiled.log


def test_constant_halves_are_rounded_as_numpy_rounds_them(nvrtc: Nvrtc) -> None:
    rng = np.random.default_rng(7)
    bits = np.concatenate([
        rng.integers(0, 2**32, 100, np.uint32),
        (rng.integers(95, 150, 300).astype(np.uint32) << 23) | (rng.integers(0, 1 << 10, 300).astype(np.uint32) << 13)
        | rng.choice(np.array([0, 0xFFF, 0x1000, 0x1001, 0x1FFF], np.uint32), 300),
        np.array([0x33000000, 0x33000001, 0x387FF000, 0x387FFFFF, 0x477FEFFF, 0x477FF000, 0x7F800000, 0], np.uint32),
    ])  # fmt: skip
    values = bits.view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        halves = values.astype(np.float16)
    asserts = ""
    for pattern, value, half in zip(bits.tolist(), values, halves, strict=True):
        given = f"half(__builtin_bit_cast(float, {pattern}u))"
        if np.isnan(value):
            asserts += f'static_assert({given} != {given}, "");\n'
            continue
        asserts += f'static_assert(__builtin_bit_cast(ushort, {given}) == {half.view(np.uint16)}, "");\n'
        back = np.float32(half).view(np.uint32)
        asserts += f'static_assert(__builtin_bit_cast(uint, float({given})) == {back}u, "");\n'
    accepted(nvrtc, asserts)


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("h + h", "half"), ("h + 1", "half"), ("2u * h", "half"), ("h / 2.0f", "float"), ("1.0f - h", "float"),
        ("h * b", "float"), ("-h", "half"), ("true ? h : h", "half"), ("true ? h : 1.0f", "float"),
        ("false ? 1.0f : h", "float"), ("true ? h : 0", "half"), ("true ? 0u : h", "half"),
        ("true ? h : false ? h : 1.0f", "float"), ("true ? b : 1.0f", "float"), ("true ? 1 : 2u", "uint"),
        ("max(h, h)", "half"), ("max(h, 1.0f)", "float"), ("exp(h)", "half"), ("h < f", "bool"), ("v * h", "half4"),
        ("metal::select(h, h, true)", "half"), ("true ? v : half4(h)", "half4"),
    ],
)  # fmt: skip
def test_expressions_with_half_have_the_types_of_a_built_in_half(nvrtc: Nvrtc, expression: str, type_: str) -> None:
    names = "inline void f(half h, bfloat b, float f, half4 v)"
    accepted(nvrtc, f'{names} {{ static_assert(is_same_v<decltype({expression}), {type_}>, ""); }}')


@pytest.mark.parametrize(
    "statement",
    [
        "half x = 1.0f; half y = 2; half z = f; x = f; x += f; x *= 2; f += x; int i = x; if (x) i = 1;",
        "half a[2] = {1.0f, f}; float s = a[0] * f; uint u = a[1]; bool b = a[0];",
        "half x = f > 1 ? h : f; x = f > 1 ? h : 0.0h; x = f > 1 ? f : h; device float *p = f > 1 ? out : nullptr;",
        "half x = h; x++; --x; x = -x; x = !x ? h : x; float4 w = float4(h, h, x, 1); w *= h;",
        "Fp8 e = {1}; half x = e; x = half(e); bfloat y = bfloat(h); y = h; y = e; x = half(y);",
        "float w = one(h); w = two(h);",
        "uint n = 3; (f > 1 ? n : n) = 4; const thread float &r = f > 1 ? f : float(h); w(r);",
        "simdgroup_half8x8 m = make_filled_simdgroup_matrix<half, 8, 8>(f > 1 ? h : 0);",
    ],
)
def test_half_converts_as_a_built_in_half(nvrtc: Nvrtc, statement: str) -> None:
    accepted(
        nvrtc,
        f"""struct Fp8 {{ uchar bits; operator float() const {{ return float(bits); }} }};
        struct Complex {{ float re; template <class T> Complex(T x) : re(float(x)) {{}} }};
        inline float one(float x) {{ return x; }}
        inline float one(Complex x) {{ return x.re; }}
        inline float two(float x) {{ return x; }}
        inline int two(int x) {{ return x; }}
        inline void w(float) {{}}
        inline void f(half h, float f, device float *out) {{ {statement} }}""",
    )


# -- alignment ----------------------------------------------------------------------------------------------------------

UNALIGNED = f"""{HEAD}
struct Block {{ half scale; uchar high[4]; uchar low[16]; }};
struct Aligned {{ uint count; uchar bytes[8]; half2 scales; }};
#define KERNEL(name, type, statement) \
  kernel void name(device uint *out, device const type *p, uint i [[thread_position_in_grid]]) {{ statement }}
KERNEL(packed, Block, out[i] = *(device const uint *)p[i].low;)
KERNEL(plain, uint, out[i] = p[i];)
KERNEL(same, uint, out[i] = *(device const int *)(p + i);)
KERNEL(member, Aligned, out[i] = *(device const uint *)&p[i].scales;)
KERNEL(bytes, Aligned, out[i] = ((device const uint *)p[i].bytes)[1];)
KERNEL(variable, Aligned, device const uint *words = (device const uint *)p[i].bytes; out[i] = words[1];)
KERNEL(untyped, uchar, device const uint *words = (device const uint *)p; out[i] = words[i];)
KERNEL(reference, ushort, device const uint &word = *(device const uint *)(p + 2 * i); out[i] = word;)
"""


def test_an_access_costs_nothing_where_its_alignment_is_known(nvrtc: Nvrtc) -> None:
    translation = parse(UNALIGNED).translate("cuda")
    compiled = nvrtc.compile(translation)
    assert compiled.ptx, compiled.log
    bodies = {name: compiled.body(number) for number, name in enumerate(translation.kernels)}
    loads = {name: re.findall(r"\bld\.global\S*", body) for name, body in bodies.items()}
    branches = {name: len(re.findall(r"\bbra\b", body)) for name, body in bodies.items()}
    assert {"ld.global.u32", "ld.global.u16"} == set(loads.pop("packed"))
    assert branches.pop("packed") > branches["plain"]
    assert set(map(tuple, loads.values())) == {("ld.global.u32",)}
    assert set(branches.values()) == {branches["plain"]}


@pytest.mark.parametrize(
    ("memory", "access", "loads"),
    [
        ("device const float *p", "*(v + i)", {"global.v4", "global"}),
        ("device const uchar *p", "v[i]", {"global.v4", "global"}),
        ("device const float4 *p", "v[i]", {"global.v4"}),
        ("threadgroup const float *p", "v[i]", {"shared.v4"}),
    ],
)
def test_a_vectors_address_decides_in_device_memory_alone(
    nvrtc: Nvrtc, memory: str, access: str, loads: set[str]
) -> None:
    space = memory.split()[0]
    source = f"""{HEAD}kernel void k(device float4 *out, {memory} [[{"threadgroup" if space == "threadgroup" else "buffer"}(1)]],
    uint i [[thread_position_in_grid]]) {{
      {space} const float4 *v = ({space} const float4 *)(p + 2 * i); out[i] = {access};
    }}"""
    compiled = nvrtc.compile(parse(source).translate("cuda"))
    assert compiled.ptx, compiled.log
    assert set(re.findall(r"\bld\.((?:global|shared)(?:\.v4)?)", compiled.body(0))) == loads


@pytest.mark.parametrize(
    "statement", ["out[0] = !nullptr;", "if (nullptr) out[0] = 1;", "auto p = nullptr; out[0] = p ? 1 : 2;"]
)
def test_a_null_pointer_is_a_condition(nvrtc: Nvrtc, statement: str) -> None:
    compiled = nvrtc.compile(parse(f"kernel void k(device float *out) {{ {statement} }}").translate("cuda"))
    assert compiled.ptx, compiled.log


def test_code_that_reads_through_a_null_pointer_is_not_taken_for_code_that_never_runs(nvrtc: Nvrtc) -> None:
    module = parse(conformance_test("null_pointers").SOURCE)
    assert "trap" not in nvrtc.compile(module.translate("cuda", only=["unnumbered"])).body(0)


# -- lanes --------------------------------------------------------------------------------------------------------------


def body_of(nvrtc: Nvrtc, statements: str, architecture: str = "compute_90") -> str:
    source = f"""{HEAD}kernel void k(device float *out [[buffer(0)]], device uint *in [[buffer(1)]],
    constant uint &n [[buffer(2)]], uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {{
        {statements} }}"""
    compiled = nvrtc.compile(parse(source).translate("cuda"), architecture)
    assert compiled.ptx, compiled.log
    return compiled.body(0)


@pytest.mark.parametrize("function", ["sum", "min", "max", "and", "or", "xor"])
def test_integers_are_reduced_by_one_instruction(nvrtc: Nvrtc, function: str) -> None:
    body = body_of(nvrtc, f"in[i] = simd_{function}(in[i]);")
    assert "redux.sync" in body
    assert "shfl" not in body


def test_fast_functions_are_few_instructions(nvrtc: Nvrtc) -> None:
    instructions = {
        "fast::exp(x)": ["mul", "ex2.approx.ftz"],
        "fast::exp2(x)": ["ex2.approx.ftz"],
        "fast::log(x)": ["lg2.approx.ftz", "mul"],
        "fast::divide(2.0f, x)": ["rcp.approx.ftz", "add"],
        "fast::tanh(x)": ["ex2.approx.ftz", "rcp.approx.ftz"],
        "fast::sin(x)": ["fma", "fma", "sin.approx.ftz"],
        "fast::cos(half(x))": ["cos.approx.ftz"],
    }
    kernels = "".join(
        f"kernel void k{number}(device float *y [[buffer(0)]]) {{ const float x = y[0]; y[0] = {call}; }}\n"
        for number, call in enumerate(instructions)
    )
    compiled = nvrtc.compile(parse(f"{HEAD}{kernels}").translate("cuda"))
    assert compiled.ptx, compiled.log
    for number, expected in enumerate(instructions.values()):
        body = compiled.body(number).split("ld.global", 1)[1]
        assert all(name in body for name in expected)
        assert "bra" not in body
        assert body.count(";") < 24


def test_floats_are_reduced_in_five_steps_where_all_lanes_are_there(nvrtc: Nvrtc) -> None:
    body = body_of(nvrtc, "out[i] = simd_sum(out[i]);")
    assert body.count("shfl.sync") == 6  # and one in the loop for a partial simdgroup
    assert "activemask" not in body


def test_lanes_that_may_be_apart_ask_who_is_there(nvrtc: Nvrtc) -> None:
    assert "activemask" in body_of(nvrtc, "if (in[i] > 2) out[i] = simd_sum(out[i]);")
    assert "activemask" not in body_of(nvrtc, "if (n > 2) out[i] = simd_sum(out[i]);")


def test_a_barrier_in_uniform_flow_is_the_blocks_own(nvrtc: Nvrtc) -> None:
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    assert "barrier.sync" not in body_of(nvrtc, f"{barrier} out[i] = 1;")
    assert "barrier.sync" in body_of(nvrtc, f"if (in[i] > 2) return; {barrier} out[i] = 1;")


@pytest.mark.parametrize(
    ("loop", "waits"),
    [
        ("for (uint k = 0; k < n; ++k) { BARRIER auto x = float(in[k]); own[k & 3] += x; v.x += k; }", False),
        ("do { BARRIER own[0] = max(own[0], float(in[i])); } while (own[0] < n);", False),
        ("for (uint k = 0; k < n; ++k) { BARRIER t[i & 3] += 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER out[k] = 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER p[k] = 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER *p = 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER words w = in; w[k] = 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER holder.to[k] = 1; }", True),
        ("for (uint k = 0; k < n; ++k) { BARRIER change(out); }", True),
        ("for (uint k = 0; k < n; ++k) { threadgroup_barrier(mem_flags::mem_threadgroup); own[0] += k; }", True),
        ("BARRIER", True),
    ],
)
def test_a_barrier_that_orders_nothing_is_not_waited_at_in_divergent_flow(nvrtc: Nvrtc, loop: str, waits: bool) -> None:
    loop = loop.replace("BARRIER", "threadgroup_barrier(mem_flags::mem_none);")
    source = f"""{HEAD} typedef device uint *words; struct Holder {{ device uint *to; }};
    inline void change(device float *x) {{ x[0] = 1; }}
    kernel void k(device float *out, device uint *in, constant uint &n, uint i [[thread_position_in_grid]]) {{
      threadgroup float t[4]; float own[4] = {{1}}; float4 v = 0; device uint *p = in + i; Holder holder; holder.to = in;
      if (in[i] > 2) {{ {loop} }}
      out[i] = t[i & 3] + own[i & 3] + v.x;
    }}"""
    compiled = nvrtc.compile(parse(source).translate("cuda"))
    assert compiled.ptx, compiled.log
    assert ("barrier.sync" in compiled.body(0)) == waits


def test_a_lane_that_leaves_before_a_barrier_ends(nvrtc: Nvrtc) -> None:
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup); out[i] = 1;"
    outside_the_grid = 1
    assert body_of(nvrtc, f"if (i >= n) return; {barrier}").count("exit;") == outside_the_grid + 1
    assert body_of(nvrtc, f"if (n == 0) return; {barrier}").count("exit;") == outside_the_grid
    assert body_of(nvrtc, "if (i >= n) return; out[i] = 1;").count("exit;") == outside_the_grid


def test_what_a_lane_wrote_before_it_left_is_kept(nvrtc: Nvrtc) -> None:
    body = body_of(nvrtc, "if (i >= n) { out[i] = 3; return; } threadgroup_barrier(mem_flags::mem_none); in[i] = 1;")
    assert re.search(r"st\.global[^;]*;(?:(?!\bret\b).)*?exit;", body, re.S)


def test_a_translation_for_an_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError, match="opencl"):
        parse(f"{HEAD}kernel void k() {{}}").translate("opencl")
