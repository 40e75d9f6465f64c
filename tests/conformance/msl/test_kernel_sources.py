"""Where kernel text comes from: defines, include folders, Metal's headers, files; and what its errors say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch

HEADERS = """metal_stdlib metal_atomic metal_common metal_compute metal_geometric metal_graphics metal_integer metal_math
metal_matrix metal_pack metal_relational metal_simdgroup metal_simdgroup_matrix metal_quadgroup metal_types metal_type_traits
metal_limits metal_array metal_numeric""".split()


def test_metals_headers_and_macros_are_there(dev: ost.Device) -> None:
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    library = dev.library(
        includes
        + """using namespace metal;
        #if !defined(__METAL_VERSION__) || __METAL_VERSION__ < 310
        #error the version of Metal is missing
        #endif
        #if defined(__HAVE_BFLOAT__) && defined(__METAL__) && defined(__METAL_MACOS__) + defined(__METAL_IOS__) < 2
        kernel void k(device bfloat *x) { x[0] = bfloat(3.0f); }
        #endif"""
    )
    assert "k" in library


NAMES = "a a0 args body d end first g group head i lane n row run sample setup t w x x_end y z".split()


@pytest.mark.parametrize(
    "meet",
    ["", "threadgroup_barrier(mem_flags::mem_none);", "simd_sum(out[i]);"],
    ids=["plain", "barrier", "simdgroup"],
)
def test_a_kernel_may_have_any_name(dev: ost.Device, meet: str) -> None:
    text = "kernel void {}(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ {} out[i] = {}; }}\n"
    library = dev.library(HEAD + "".join(text.format(name, meet, at + 1) for at, name in enumerate(NAMES)))
    for at, name in enumerate(NAMES):
        assert launch(dev, library[name], np.zeros(4, np.float32), threads=4).tolist() == [at + 1] * 4


def test_a_source_without_using_namespace_names_metal(dev: ost.Device) -> None:
    library = dev.library(
        "#include <metal_stdlib>\nkernel void k(device float *x, metal::uint2 i [[thread_position_in_grid]]) "
        "{ x[i.x] = metal::max(x[i.x], 2.0f) + metal::simd_sum(1.0f); threadgroup_barrier(metal::mem_flags::mem_none); }".replace(
            "threadgroup_barrier", "metal::threadgroup_barrier"
        )
    )
    got = launch(dev, library["k"], np.array([1, 5], np.float32), threads=2, group_size=2)
    np.testing.assert_array_equal(got, [4, 7])


SPELLINGS = [
    "static inline METAL_FUNC float f(float x) { return x + 1; }",
    "METAL_FUNC static float f(float x) { return x + 1; }",
    "inline METAL_FUNC constexpr float f(float x) { return x + 1; }",
    "template <typename T> METAL_FUNC T f(T x) { return x + 1; }",
    "[[gnu::always_inline]] static float f(float x) { return x + 1; }",
    "float f(float x) __attribute__((noinline)); float f(float x) { return x + 1; }",
    "static const constant float one = 1; float f(float x) { return x + one; }",
    "float f(const float x) { float y(x); y += float{1}; return (float)y; }",
    'extern "C" struct S { float one; }; extern "C" { float f(float x) { S s = {1}; return x + s.one; } }',
    "typedef half V __attribute__((ext_vector_type(3))); float f(float x) { V v = half3(1); v.yz += half(x); return v.z; }",
    "using V = __attribute__((ext_vector_type(2))) float; float f(float x) { return dot(V(x, 1), V(1)); }",
    "typedef half V __attribute__((__ext_vector_type__(8))); typedef float __attribute__((ext_vector_type(8))) W; "
    "float f(float x) { V v(1.0h); v[7] = half(x); W w = W(v) * 3; w -= W(2 * v); return sizeof(V) == 16 ? w[7] + w[6] : 0; }",
]


@pytest.fixture(scope="module")
def spelled(dev: ost.Device) -> ost.Library:
    spaces = "".join(f"namespace s{k} {{ {function} }}\n" for k, function in enumerate(SPELLINGS))
    kernels = "".join(f"kernel void k{k}(device float *x) {{ x[0] = s{k}::f(x[0]); }}\n" for k in range(len(SPELLINGS)))
    return dev.library(HEAD + spaces + kernels)


@pytest.mark.parametrize("function", SPELLINGS)
def test_the_spellings_of_real_shaders_compile(dev: ost.Device, spelled: ost.Library, function: str) -> None:
    kernel = spelled[f"k{SPELLINGS.index(function)}"]
    assert launch(dev, kernel, np.array([2], np.float32))[0] == 3


def test_defines_are_seen_by_the_source(dev: ost.Device) -> None:
    source = f"""{HEAD}
    #ifndef SCALE
    #error SCALE is missing
    #endif
    #define TWICE(x) ((x) * 2)
    kernel void k(device T *x) {{ x[0] = T(TWICE(SCALE) + FLAG); }}"""
    got = launch(dev, dev.library(source, defines={"SCALE": 21, "T": "half", "FLAG": 1})["k"], np.zeros(1, np.float16))
    assert got[0] == 43
    got = launch(
        dev, dev.library(source, defines={"SCALE": "(1 + 2)", "T": "int", "FLAG": 0})["k"], np.zeros(1, np.int32)
    )
    assert got[0] == 6


CONDITIONS = [
    "defined(N) && 8 / N > 1 || true",
    "N != 0 && 8 / N ? 0 : 1",
    "1 || 1 / 0",
    "N ? 8 / N : 1",
    "!(0 && 1 % 0)",
]


@pytest.fixture(scope="module")
def conditional(dev: ost.Device) -> ost.Library:
    blocks = (
        f"#if {condition}\nkernel void k{k}(device float *x) {{ x[0] = 1; }}\n#endif\n"
        for k, condition in enumerate(CONDITIONS)
    )
    return dev.library(HEAD + "".join(blocks))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_do_not_evaluate_what_they_skip(conditional: ost.Library, condition: str) -> None:
    assert f"k{CONDITIONS.index(condition)}" in conditional


def test_files_include_their_neighbours_and_the_given_folders(dev: ost.Device, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "deep").mkdir(parents=True)
    (tmp_path / "main").mkdir()
    (shared / "deep" / "scale.h").write_text("#pragma once\nconstant float scale_by = 4;\n")
    (shared / "common.h").write_text(
        '#ifndef COMMON\n#define COMMON\n#include "deep/scale.h"\n#include "deep/scale.h"\n#endif\n'
    )
    (tmp_path / "main" / "near.h").write_text("inline float shift(float x) { return x + 1; }\n")
    path = tmp_path / "main" / "k.metal"
    path.write_text(
        f'{HEAD}#include "near.h"\n#include <common.h>\n#include "common.h"\nkernel void k(device float *x) {{ x[0] = shift(x[0]) * scale_by; }}\n'
    )
    library = dev.library(path, include_dirs=[shared])
    assert launch(dev, library["k"], np.array([2], np.float32))[0] == 12


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("kernel void k(device float *x) {\n  x[0] = undeclared;\n}", 4, "undeclared"),
        ("kernel void k(device float *x) {\n\n  float y = 1 x[0] = y;\n}", 5, "expected"),
        ("float f(float x) { return x; }\nkernel void k(device float *x) { x[0] = f(float2(1), 2); }", 4, "f"),
        ("#define BAD(x) missing_##x\n\nkernel void k(device float *x) { x[0] = BAD(name); }", 5, "missing_name"),
        ("static_assert(sizeof(float3) == 12, \"three floats\");\nkernel void k(device float *x) {}", 3, "three floats"),
        ("kernel void k(device const float *x) { x[0] = 1; }", 3, "read-only|const|modifiable"),
        ("kernel void k(constant float &x) { x = 1; }", 3, "read-only|const|modifiable"),
        ("#if 1\n#error stop here\n#endif", 4, "stop here"),
        ("template <typename T> kernel void k(device T *x) { x[0] = T::nothing; }\n\n"
         'template [[host_name("a")]] kernel void k<float>(device float *);', 3, "nothing|prior|class or namespace"),
        ("/* a comment\n   of lines */ kernel void k(device float *x) { x[0] = nowhere; } // end", 4, "nowhere"),
        ("kernel void k(device float *x) { threadgroup float t[4]; simd_sum(t, 1, 2); x[0] = wrong_one; }", 3, "simd_sum|wrong_one"),
        ("kernel void k(device float *x) { double y = 1; x[0] = y; }", 3, "double"),
    ],
)  # fmt: skip
def test_an_error_names_the_line_and_what_is_wrong(dev: ost.Device, text: str, line: int, message: str) -> None:
    with pytest.raises(ost.KernelCompileError, match=message) as caught:
        dev.library(HEAD + text)
    assert caught.value.line == line


def test_an_error_in_an_included_file_names_that_file(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "broken.h").write_text("\n\ninline float f() { return not_there; }\n")
    (tmp_path / "k.metal").write_text(f'{HEAD}#include "broken.h"\nkernel void k(device float *x) {{ x[0] = f(); }}\n')
    with pytest.raises(ost.KernelCompileError, match="not_there") as caught:
        dev.library(tmp_path / "k.metal")
    assert (Path(str(caught.value.file)).name, caught.value.line) == ("broken.h", 3)


def test_an_error_after_an_include_still_has_the_users_line(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "long.h").write_text("// nothing\n" * 40)
    (tmp_path / "k.metal").write_text(f'{HEAD}#include "long.h"\nkernel void k(device float *x) {{ x[0] = oops; }}\n')
    with pytest.raises(ost.KernelCompileError, match="oops") as caught:
        dev.library(tmp_path / "k.metal")
    assert (Path(str(caught.value.file)).name, caught.value.line) == ("k.metal", 4)


def test_a_failed_compilation_leaves_the_device_usable(dev: ost.Device) -> None:
    with pytest.raises(ost.KernelCompileError):
        dev.library(f"{HEAD}kernel void k(device float *x) {{ x[0] = ; }}")
    library = dev.library(f"{HEAD}kernel void k(device float *x) {{ x[0] = 1; }}")
    assert launch(dev, library["k"], np.zeros(1, np.float32))[0] == 1
