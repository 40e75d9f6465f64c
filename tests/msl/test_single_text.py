"""`#line` directives, and a source written as one text that parses to the same module."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato import msl


@pytest.mark.parametrize(
    "text",
    [
        "kernel void k(device float *x) { x[0] = 1.0; }\n",
        "#define F(x) x\nkernel void k(device float *x) { x[F(0)] = __LINE__ >> 1; }",
        "#undef NDEBUG\nconstant int NDEBUG = 3;\nkernel void k(device int *x) { x[0] = NDEBUG; x[0] >>= 1; }",
        "constant float M_PI_F = 3.0f;\nkernel void k(device float *x) { x[0] = M_PI_F - -1.0f; }",
        "#define NEG -1.0f\n#define DIV /x[0]\nkernel void k(device float *x) { x[0] = 2.0f-NEG DIV; x[0] = x[0]/(NEG-1); }",
        '#line 40 "gen.metal"\nkernel void k(device float *x) { x[0] = 1.0; }\n',
        'template <typename T> void put(device T *x) {}\ntemplate <typename T> kernel void g(device T *x) { put<T>(x); }\n'
        'template [[host_name("g_f")]] kernel void g<float>(device float *);\n#pragma unroll\n',
        "",
    ],
)  # fmt: skip
@pytest.mark.parametrize("defines", [None, {"UNUSED": 1}])
def test_the_one_text_of_a_source_parses_to_the_same_module(text: str, defines: dict[str, str | int] | None) -> None:
    module = msl.parse(text, defines=defines)
    again = msl.parse(module.source)
    assert (defines is None) == (module.source == text)
    assert again.text_key == module.text_key
    assert again.kernels == module.kernels
    assert again.source == module.source


def test_errors_in_the_one_text_name_the_line_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("\n\ninline float f() { return 1; }\n")
    source = tmp_path / "whole.metal"
    source.write_text('#include "part.h"\n\n\n\nkernel void k(device float *x [[buffer(0)]]) { x[0] = f(); }\n')
    text = msl.parse(source).source
    assert str(tmp_path) not in text
    with pytest.raises(ost.KernelCompileError) as raised:
        msl.parse(text.replace("[[buffer(0)]]", "[[buffer(nobody)]]"))
    assert (raised.value.file, raised.value.line) == ("whole.metal", 5)
    with pytest.raises(ost.KernelCompileError) as raised:
        msl.parse(text.replace("return 1", "return @"))
    assert (raised.value.file, raised.value.line) == ("part.h", 3)


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ('#line 10 "other.metal"\n@', "other.metal", 10),
        ("\n#line 10\n\n@", "<source>", 11),
        ('#define HERE 7 "x"\n#line HERE\n@', "x", 7),
        ("#if 0\n#line 50\n#endif\n@", "<source>", 4),
        ('#line 5 "a"\n#line 9\n@', "a", 9),
        ('#line 5 "a"\n#if 1', "a", 5),
        ('#line 7 "C:\\\\x.metal"\n@', "C:\\x.metal", 7),
        ("#line\n", "<source>", 1),
        ("#line x\n", "<source>", 1),
        ("#line 99999999999\n", "<source>", 1),
        ('#line 1 "\x1b"\n', "<source>", 1),
    ],
)
def test_line_directives_say_where_an_error_is(text: str, file: str, line: int) -> None:
    with pytest.raises(ost.KernelCompileError) as raised:
        msl.parse(text)
    assert (raised.value.file, raised.value.line) == (file, line)


@example(number=1)
@given(st.integers(1, 1 << 30))
@settings(max_examples=20, deadline=None)
def test_line_directives_number_the_lines_after_them(number: int) -> None:
    module = msl.parse(f'#line {number} "f"\nkernel void a(device int *x) {{}}\n\nkernel void b(device int *x) {{}}\n')
    assert [(one.file, one.line) for one in module.kernels.values()] == [("f", number), ("f", number + 2)]
