"""The preprocessor against what the C standard says, its trust boundary, and its limits."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato import KernelCompileError, UnsupportedFeature
from ostinato.msl.preprocess import preprocess


def words(source: str | Path, **options: object) -> str:
    return " ".join(token.text for token in preprocess(source, **options).tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#define N 4\nint a[N];", "int a [ 4 ] ;"),
        ("#define F(x, y) x + y\nF(1, (2, 3))", "1 + ( 2 , 3 )"),
        ('#define F(x) #x\nF(a  "b" )', '"a \\"b\\""'),
        ("#define CAT(a, b) a##b\nCAT(foo, bar) CAT(, x) CAT(1, u)", "foobar x 1u"),
        ("#define F(x, ...) f(x, ##__VA_ARGS__)\nF(1) F(1, 2, 3)", "f ( 1 ) f ( 1 , 2 , 3 )"),
        ("#define F(x, ...) f(x __VA_OPT__(,) __VA_ARGS__)\nF(1) F(1, 2, 3)", "f ( 1 ) f ( 1 , 2 , 3 )"),
        ("#define N\n#define F(...) [__VA_OPT__((a), b##__VA_ARGS__, #__VA_ARGS__)]\nF() F(N) F(1)",
         '[ ] [ ] [ ( a ) , b1 , "1" ]'),
        ("#define A B\n#define B A\nA B", "A B"),
        ("#define F(x) x F\nF(1)(2)", "1 F ( 2 )"),
        ("#define EMPTY\n#define F(x) [x]\nF(EMPTY) F (1) F", "[ ] [ 1 ] F"),
        ("#if defined(X) || __METAL_VERSION__ >= 300\nyes\n#else\nno\n#endif", "yes"),
        ("#ifdef X\n#error no\n#elif 1 ? 0 : 1\na\n#else\nb\n#endif", "b"),
        ("a /* one\n two */ b // three\nc", "a b c"),
        ("#define LONG a \\\n  b\nLONG", "a b"),
        ("__LINE__\n__LINE__", "1 2"),
        ("#define INNER(x) x*2\n#define OUTER(y) INNER(y+1)\nOUTER(INNER(3))", "3 * 2 + 1 * 2"),
        ('_Pragma("unroll") for', "for"),
        ("#pragma unroll(4)\nfor", "for"),
    ],
)  # fmt: skip
def test_macros_expand_as_in_c(source: str, expected: str) -> None:
    assert words(source) == expected


@pytest.mark.skipif(shutil.which("cpp") is None, reason="no C preprocessor to compare with")
@given(
    st.lists(
        st.sampled_from(
            ["#define A 1", "#define B A A", "#define F(x) x", "#define F(x) G(x, x)", "#define G(x, y) y F(x)", "#undef A",
             "#define B", "A", "B", "F(A)", "F((A, B))", "G(F(1), B)", "#ifdef A", "#ifndef B", "#else", "#endif", "#if A + 1 > 1", "x"]
        ),
        max_size=14,
    )
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_c_preprocessor(lines: list[str]) -> None:
    source = "\n".join(lines) + "\n"
    run = subprocess.run(["cpp", "-P", "-undef", "-w"], input=source, capture_output=True, text=True, check=False)
    try:
        ours: str | None = words(source)
    except KernelCompileError:
        ours = None
    if run.returncode:
        return  # the C preprocessor rejects more (for instance a redefinition inside #if)
    theirs = " ".join(token.text for token in preprocess(run.stdout).tokens)
    assert ours == theirs


def test_defines_are_macros() -> None:
    assert words("N FLAG", defines={"N": 3, "FLAG": True}) == "3 1"


def test_the_order_of_bytes_is_known_as_to_apples_compiler() -> None:
    assert words("#ifdef __LITTLE_ENDIAN__\n1\n#endif\n#ifdef __BIG_ENDIAN__\n2\n#endif") == "1"


def test_includes_are_found_beside_the_file_and_read_once(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "b.h").write_text("#pragma once\nb\n")
    (tmp_path / "a.metal").write_text('#include "inner/b.h"\n#include "inner/b.h"\na\n')
    assert words(tmp_path / "a.metal") == "b a"


def test_every_metal_header_may_be_included() -> None:
    headers = [
        "metal_stdlib",
        "metal_atomic",
        "metal_simdgroup",
        "metal_simdgroup_matrix",
        "metal_math",
        "metal_integer",
    ]
    assert words("".join(f"#include <{name}>\n" for name in headers) + "x") == "x"


def test_conditions_know_which_files_there_are(tmp_path: Path) -> None:
    (tmp_path / "here.h").touch()
    (tmp_path / "inside").mkdir()
    source = """
    #ifdef __has_include
    #if __has_include("here.h") && __has_include(<metal_stdlib>) && !__has_include("gone.h")
    #define THERE <here.h>
    #if __has_include(THERE) && defined(__has_include) && !__has_include(<metal_nothing>)
    yes
    #endif
    #endif
    #endif"""
    assert words(source, include_dirs=[tmp_path]) == "yes"
    with pytest.raises(KernelCompileError, match="leaves the allowed folders"):
        words('#if __has_include("../here.h")\n#endif', include_dirs=[tmp_path / "inside"])


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("__has_attribute(always_inline) && __has_attribute(__always_inline__)", True),
        ("__has_attribute(constructor) || __has_attribute(objc_bridge)", False),
        ("__has_builtin(__builtin_clz) && __has_builtin(__builtin_expect)", True),
        ("__has_builtin(__builtin_alloca)", False),
        ("__has_feature(cxx_constexpr) && __has_extension(cxx_strong_enums)", True),
        ("__has_feature(objc_arc) || __has_feature(cxx_exceptions) || __has_extension(blocks)", False),
        ("__has_cpp_attribute(fallthrough) >= 201603 && __has_cpp_attribute(clang::always_inline)", True),
        ("__has_cpp_attribute(carries_dependency) || __has_cpp_attribute(clang::annotate)", False),
    ],
)
def test_conditions_know_what_the_front_end_accepts(condition: str, holds: bool) -> None:
    assert words(f"#if {condition}\nyes\n#else\nno\n#endif") == ("yes" if holds else "no")


def test_the_target_is_a_mac_behind_its_header() -> None:
    condition = (
        "#if TARGET_OS_OSX && TARGET_OS_MAC && defined(TARGET_OS_IPHONE) && !TARGET_OS_IPHONE && !TARGET_OS_SIMULATOR"
    )
    assert words(f"#include <TargetConditionals.h>\n{condition}\nyes\n#endif") == "yes"
    assert words(f"{condition}\nyes\n#endif") == ""


def test_names_of_the_simd_headers_are_those_of_metal() -> None:
    source = "using namespace simd; simd::float3 a; vector_float4 b; matrix_float3x2 c; simd_half2x2 d; ushort simd = e.simd;"
    meant = "using namespace metal ; metal :: float3 a ; metal :: float4 b ; metal :: float3x2 c ; metal :: half2x2 d ;"
    assert words(f"#include <simd/simd.h>\n{source}") == f"{meant} ushort simd = e . simd ;"
    assert words("vector_float4 simd::x") == "vector_float4 simd :: x"


def test_assertions_are_dropped_unless_the_source_defines_its_own() -> None:
    asserting = "#include <metal_stdlib>\nassert(is_same_v<int, T> && n > 0);"
    assert words(asserting) == "( ( void ) 0 ) ;"
    assert words(f"#define assert(...) check(__VA_ARGS__)\n{asserting}") == "check ( is_same_v < int , T > && n > 0 ) ;"


def test_an_include_may_not_leave_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("secret")
    folder = tmp_path / "shaders"
    folder.mkdir()
    (folder / "a.metal").write_text('#include "../secret.h"\n')
    with pytest.raises(KernelCompileError, match=r"a\.metal:1:1: .*leaves the allowed folders"):
        words(folder / "a.metal")
    assert words(folder / "a.metal", include_dirs=[tmp_path]) == "secret"


def test_a_link_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("secret")
    folder = tmp_path / "shaders"
    folder.mkdir()
    (folder / "link.h").symlink_to(tmp_path / "secret.h")
    (folder / "a.metal").write_text('#include "link.h"\n')
    with pytest.raises(KernelCompileError, match="leaves the allowed folders"):
        words(folder / "a.metal")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("#include <vector>\n", "'vector' was not found"),
        ("#if 1\nx", "never closed"),
        ("#endif\n", "without #if"),
        ("x\n#error too old\n", ":2:1: #error too old"),
        ("#define F(x) x\nF(1", "never closed"),
        ("#define F(x) x\nF(1, 2)", "takes 1 arguments, not 2"),
        ("/* open", "never closed"),
        ("a ` b", "unexpected character"),
        ("#if 1 +\n#endif", "ends too early"),
        ("#if 1 / 0\n#endif", "division by zero"),
        ("#nonsense\n", "unknown directive"),
    ],
)
def test_bad_source_gets_a_clear_message(source: str, message: str) -> None:
    with pytest.raises(KernelCompileError, match=message):
        words(source)


def test_the_header_of_tensor_products_is_known_and_those_of_others_are_unsupported() -> None:
    assert words("#include <metal_tensor>\n#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n") == ""
    with pytest.raises(UnsupportedFeature, match=":1:"):
        words("#include <MetalPerformancePrimitives/MPPTensorOpsConvolution2d.h>\n")


def test_an_include_cycle_ends(tmp_path: Path) -> None:
    (tmp_path / "a.metal").write_text('#include "a.metal"\n')
    with pytest.raises(KernelCompileError, match="nested more than"):
        words(tmp_path / "a.metal")


def test_exponential_macros_end() -> None:
    doubling = "\n".join(f"#define X{n + 1} X{n} X{n}" for n in range(60))
    with pytest.raises(KernelCompileError, match="expands to more than"):
        words(f"#define X0 x x\n{doubling}\nX60")


def test_exponential_pasting_ends() -> None:
    doubling = "\n".join(f"#define X{n + 1}(a) X{n}(a##a)" for n in range(60))
    with pytest.raises(KernelCompileError, match="expands to more than"):
        words(f"#define X0(a) a\n{doubling}\nX60(abcdefgh)")


@given(st.text(alphabet="#define()\\\n\"'ABx, .+-*/<>[]{}0123 \t", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(KernelCompileError):
        preprocess(text)
