"""Compile errors: all of them, each in the user's file, with its line and a caret where the column is certain."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato import msl
from ostinato.backends.cpu import building
from ostinato.errors import Diagnostic
from ostinato.msl.columns import SourceTexts, find_places, near_token
from ostinato.native import toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SOURCE = (
    HEAD
    + """#define CALL(x) in_a_macro(x)
kernel void k(device float *x [[buffer(0)]], device const float *y [[buffer(1)]], uint id [[thread_position_in_grid]]) {
    float a = missing(x[id]) + y[id]; // missing
\tx[id] = a + nothing; /* nothing */ y[id] = 3;
    CALL(a);
    threadgroup_barrier(mem_flags::mem_device); x[id] = late;
    x[id] = as_type<float4>(1.0f).x;
}
"""
)
ZIG = (
    [f"{Path(spec.origin).parent / 'zig'} c++"] if (spec := importlib.util.find_spec("ziglang")) and spec.origin else []
)


def refused(dev: ost.Device, source: str | Path, **options: object) -> ost.KernelCompileError:
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(source, **options)  # type: ignore[arg-type]
    return caught.value


def pointed(error: ost.KernelCompileError) -> list[tuple[int | None, str]]:
    """Line, and the source from the column on; nothing where there is no column."""
    return [
        (one.line, one.source_line[one.column - 1 :] if one.source_line and one.column else "")
        for one in error.diagnostics
    ]


def check_all(error: ost.KernelCompileError) -> None:
    found = pointed(error)
    assert found[0] == (5, "missing(x[id]) + y[id]; // missing")
    assert (6, "nothing; /* nothing */ y[id] = 3;") in found
    assert (7, "") in found  # what a macro became stands nowhere in the source
    assert (8, "late;") in found
    assert 9 in [line for line, _ in found]  # inside a header of ours: the line that leads there
    assert all(one.file == "<source>" for one in error.diagnostics)
    assert (error.line, error.column) == (5, 15)


def test_all_errors_of_the_machines_compiler_are_shown(dev: ost.Device) -> None:
    error = refused(dev, SOURCE)
    check_all(error)
    text = str(error)
    assert "    5 |     float a = missing(x[id]) + y[id]; // missing\n      |               ^\n" in text
    assert "    6 | \tx[id] = a + nothing; /* nothing */ y[id] = 3;\n      | \t            ^\n" in text


@pytest.mark.parametrize("command", ZIG)
def test_all_errors_of_clang_are_shown(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(ost.KernelCompileError) as caught:
        building.kernel_library(toolchain.find(), msl.parse(SOURCE).translate("cpu"), checked=False)
    find_places(caught.value, SourceTexts(SOURCE))
    check_all(caught.value)


def test_all_errors_of_nvrtc_are_shown() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    from ostinato.backends.cuda import compiling

    with pytest.raises(ost.KernelCompileError) as caught:
        compiling._compile(msl.parse(SOURCE).translate("cuda").text, msl.cuda_options("sm_90"))
    find_places(caught.value, SourceTexts(SOURCE))
    check_all(caught.value)


def test_errors_are_bounded_and_the_rest_is_counted(dev: ost.Device) -> None:
    body = "".join(f"  x[0] = unknown_{number};\n" for number in range(30))
    error = refused(dev, HEAD + f"kernel void k(device float *x [[buffer(0)]]) {{\n{body}}}\n")
    assert len(error.diagnostics) == error.MOST_SHOWN
    assert error.left_out == 30 - error.MOST_SHOWN or toolchain.find().is_zig  # clang stops at 20
    assert str(error).endswith(f"… and {error.left_out} more errors")


def test_an_error_of_the_front_end_has_line_and_caret(dev: ost.Device) -> None:
    error = refused(dev, HEAD + "kernel void k(device float *x [[buffer(0)]], int y) {}\n")
    assert pointed(error) == [(3, "int y) {}")]
    error = refused(dev, HEAD + "kernel void k(device float *x [[buffer(0)]]) { x[0] = (1 + 2]; }\n")
    assert (error.line, error.column) == (3, None)  # there are two
    assert "    3 | kernel void k(" in str(error)


def test_an_error_in_an_included_file_shows_that_file(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("inline float twice(float x) {\n  return x * undefined_name;\n}\n")
    file = tmp_path / "mine.metal"
    file.write_text('#include "part.h"\nkernel void k(device float *x [[buffer(0)]]) { x[0] = twice(1.0f); }\n')
    assert pointed(refused(dev, file)) == [(2, "undefined_name;")]
    error = refused(dev, file.read_text(), include_dirs=[tmp_path])
    assert pointed(error) == [(2, "undefined_name;")]


def test_a_line_directive_opens_no_file(dev: ost.Device, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret\n")
    source = f'{HEAD}#line 1 "{secret}"\nkernel void k(device float *x [[buffer(0)]]) {{ x[0] = unknown; }}\n'
    error = refused(dev, source)
    assert "a secret" not in str(error)
    assert (error.file, pointed(error)) == (str(secret), [(1, "unknown; }")])
    assert "a secret" not in str(refused(dev, f'{HEAD}kernel void k(device float *x) {{\n#line 1 "{secret}"\n}} @\n'))


def test_control_characters_of_a_source_are_not_printed(dev: ost.Device) -> None:
    error = refused(dev, HEAD + "kernel void k(device float *x [[buffer(0)]]) { x[0] = nope; } // \x1b[2J\n")
    assert "\x1b" not in str(error)


def test_an_error_of_a_kernel_that_is_compiled_when_asked_for_is_placed_too(dev: ost.Device) -> None:
    kernels = "".join(f"kernel void k{number}(device float *x) {{ x[0] = {number}; }}\n" for number in range(70))
    library = dev.library(HEAD + kernels + "kernel void bad(device float *x) { x[0] = nope; }\n")
    with pytest.raises(ost.KernelCompileError) as caught:
        library["bad"]
    assert (73, "nope; }") in pointed(caught.value)


WORDS = st.lists(st.sampled_from(["a", "b", "(", ")", "+", "c1", "::"]), min_size=1, max_size=12)


@given(words=WORDS, data=st.data())
def test_a_caret_never_points_at_another_token(words: list[str], data: st.DataObject) -> None:
    """Tokens are put in and taken out, as the translation does; what stays is found at its own place or at none."""
    kept = [data.draw(st.booleans()) or data.draw(st.booleans()) for _ in words]
    translated: list[tuple[str, int | None]] = []
    for at, word in enumerate(words):
        if data.draw(st.booleans()):
            translated.append((data.draw(st.sampled_from(["__ost", "__x"])), None))
        if kept[at]:
            translated.append((word, at))
    line, starts = " ".join(word for word, _ in translated), []
    for at in range(len(translated)):
        starts.append(len(" ".join(word for word, _ in translated[:at])) + (at > 0) + 1)
    source_starts = [len(" ".join(words[:at])) + (at > 0) + 1 for at in range(len(words))]
    for (_, origin), start in zip(translated, starts, strict=True):
        error = ost.KernelCompileError.of([Diagnostic("wrong", "<source>", 1, near=near_token(line, start))])
        find_places(error, SourceTexts(" ".join(words)))
        assert error.column in (None, None if origin is None else source_starts[origin])
        if all(kept) and len(set(words)) == len(words) and origin is not None:
            assert error.column == source_starts[origin]
