"""Compile errors: each in the user's file, with its line and a caret, whichever compiler reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

import ostinato as ost
from compilers import ZIG
from ostinato import msl
from ostinato.backends.cpu import building
from ostinato.errors import Diagnostic
from ostinato.native import toolchain

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
SOURCE = (
    HEAD
    + """#define CALL(x) in_a_macro(x)
#define OUTER(x) CALL(x) + \\
    in_another_line
#define PASTE(a, b) a##b
template <typename T> T field_of(T x) { return x.nope; }
kernel void k(device float *x [[buffer(0)]], device const float *y [[buffer(1)]], uint id [[thread_position_in_grid]]) {
    float a = missing(x[id]) + y[id]; // missing
\tx[id] = a + nothing; /* nothing */ y[id] = 3;
    CALL(a);
    threadgroup_barrier(mem_flags::mem_device); x[id] = late;
    x[id] = as_type<float4>(1.0f).x;
    /* äöü */ x[id] = field_of(a) + CALL(1 + an_argument);
    x[id] = 1 + OUTER(2);
    x[id] = PASTE(gl, ued);
    float filled[4] = {[0 ... 3] = a_value};
}
"""
)


def refused(dev: ost.Device, source: str | Path, **options: object) -> ost.KernelCompileError:
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(source, **options)  # type: ignore[arg-type]
    return caught.value


def after_caret(diagnostic: Diagnostic) -> tuple[int | None, str]:
    """Line, and the source from the column on; nothing where there is no column."""
    line, column = diagnostic.source_line, diagnostic.column
    return diagnostic.line, line[column - 1 :] if line and column else ""


def pointed(error: ost.KernelCompileError) -> list[tuple[int | None, str]]:
    return [after_caret(diagnostic) for diagnostic in error.diagnostics]


def check_all(error: ost.KernelCompileError) -> None:
    places = pointed(error)
    assert all(diagnostic.file == "<source>" for diagnostic in error.diagnostics)
    assert (error.line, error.column) == (9, 15)
    assert places[0] == (9, "missing(x[id]) + y[id]; // missing")
    assert (10, "nothing; /* nothing */ y[id] = 3;") in places
    assert (12, "late;") in places
    assert (14, "an_argument);") in places  # the argument of a macro has its own place
    assert (17, "a_value};") in places  # the translator moved it
    notes = {diagnostic.line: list(map(after_caret, diagnostic.notes)) for diagnostic in error.diagnostics}
    in_macros = {
        (11, "CALL(a);"): (3, "in_a_macro(x)"),
        (15, "OUTER(2);"): (5, "in_another_line"),
        (16, "PASTE(gl, ued);"): (6, "##b"),
    }
    for use, definition in in_macros.items():
        assert use in places
        assert definition in notes[use[0]]
    (header,) = [diagnostic for diagnostic in error.diagnostics if "as_type needs types" in diagnostic.message]
    assert header.line == 13  # inside a header of ours: the line that leads there
    assert header.column is not None
    assert 14 in [line for line, _ in notes[7]]  # what instantiated the template


def test_all_errors_of_the_machines_compiler_are_shown(dev: ost.Device) -> None:
    error = refused(dev, SOURCE)
    check_all(error)
    text = str(error)
    assert "    9 |     float a = missing(x[id]) + y[id]; // missing\n      |               ^\n" in text
    assert "   10 | \tx[id] = a + nothing; /* nothing */ y[id] = 3;\n      | \t            ^\n" in text
    assert "<source>:3:17: note: in the definition of this macro\n    3 | #define CALL(x) in_a_macro(x)\n" in text


@pytest.mark.parametrize("command", ZIG)
def test_all_errors_of_clang_are_shown(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    module = msl.parse(SOURCE)
    with pytest.raises(ost.KernelCompileError) as caught:
        building.kernel_library(toolchain.find(), module.translate("cpu"))
    module.show_lines(caught.value)
    check_all(caught.value)


def refused_by_nvrtc(source: str, **native: str) -> ost.KernelCompileError:
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    from ostinato.backends.cuda import compiling

    module = msl.parse(source, native=native)
    translation = module.translate("cuda")
    with pytest.raises(ost.KernelCompileError) as caught:
        compiling._compile(translation.text, msl.cuda_options("sm_90"))
    error = translation.placed(caught.value)
    module.show_lines(error)
    return error


def test_all_errors_of_nvrtc_are_shown() -> None:
    check_all(refused_by_nvrtc(SOURCE))


def test_messages_of_nvrtc_do_not_show_the_namespace_around_the_source() -> None:
    error = refused_by_nvrtc("struct S {};\nkernel void k(device float *x) { x[0] = 1.0f + S(); }")
    assert pointed(error)[0] == (2, "+ S(); }")
    assert "float + S" in error.message
    assert "__ost" not in str(error)


def test_an_error_in_cuda_source_shows_its_line() -> None:
    kernel = "kernel void k(device uint *x [[buffer(0)]]) { x[0] = 1; }"
    error = refused_by_nvrtc(kernel, cuda='extern "C" __global__ void k(unsigned *x) {\n  x[0] = nothing;\n}')
    (diagnostic,) = error.diagnostics
    assert (diagnostic.file, diagnostic.line, diagnostic.source_line) == ("<cuda>", 2, "  x[0] = nothing;")


def test_a_compiler_of_the_source_as_one_text_names_the_same_places(tmp_path: Path) -> None:
    """Metal's compiler reads one text, in which macros and includes are resolved."""
    (tmp_path / "k.h").write_text(SOURCE)
    (tmp_path / "k.metal").write_text('#include "k.h"\n')
    module = msl.parse(tmp_path / "k.metal")
    lines = module.source.split("\n")
    number = next(n for n, line in enumerate(lines) if "missing" in line)
    marker = next(n for n in range(number, -1, -1) if lines[n].startswith("#line"))
    line = int(lines[marker].split()[1]) + number - marker - 1
    messages = [
        Diagnostic("wrong", "k.h", line, lines[number].index("missing") + 1),
        Diagnostic("wrong", "k.h", line + 2, lines[number + 2].index("in_a_macro") + 1),
        Diagnostic("wrong", "k.h", line),
        Diagnostic("wrong", "elsewhere.h", line, 1),
    ]
    error = module.placed(ost.KernelCompileError.of(messages))
    module.show_lines(error)
    assert pointed(error) == [(9, "missing(x[id]) + y[id]; // missing"), (11, "CALL(a);"), (9, ""), (9, "")]
    assert [len(diagnostic.notes) for diagnostic in error.diagnostics] == [0, 1, 0, 0]
    assert error.file == str(tmp_path / "k.h")


def test_errors_are_bounded_and_the_rest_is_counted(dev: ost.Device) -> None:
    body = "".join(f"  x[0] = unknown_{number};\n" for number in range(30))
    error = refused(dev, HEAD + f"kernel void k(device float *x [[buffer(0)]]) {{\n{body}}}\n")
    assert [diagnostic.line for diagnostic in error.diagnostics] == list(range(4, 34))
    text = str(error)
    assert text.count(" | ") == 2 * error.MOST_SHOWN == 20
    assert text.endswith("\n… and 20 more errors")


def test_an_error_that_instances_share_is_shown_once(dev: ost.Device) -> None:
    kernels = "".join(
        f'template [[host_name("{type_}")]] kernel void k<{type_}>(device {type_} *x);\n' for type_ in ("int", "uint")
    )
    error = refused(dev, HEAD + "template <typename T>\nkernel void k(device T *x) { x[0] = missing; }\n" + kernels)
    assert pointed(error) == [(4, "missing; }")]


def test_an_instance_that_does_not_fit_is_an_error_at_its_instantiation(dev: ost.Device) -> None:
    source = "template <typename T>\nkernel void k(device T *x) { x[0] = typename T::thing(1); }\n"
    instance = 'template [[host_name("k_int")]] kernel void k<int>(device int *x);\n'
    error = refused(dev, HEAD + source + instance)
    assert error.line == 4
    assert (5, instance.strip()) in [after_caret(note) for each in error.diagnostics for note in each.notes]


MISSPELT = (
    HEAD
    + """#define INSTANCE(name, type) template [[host_name(name)]] kernel void k<type>(device type *x);
template <typename T>
kernel void k(device T *x) { threadgroup T shared[4]; x[0] = T(1); }
INSTANCE("k_float", flaot)
INSTANCE("k_int", int)
"""
)


def test_a_misspelt_type_of_an_instantiation_is_shown_where_it_is_written(dev: ost.Device) -> None:
    for error in (refused(dev, MISSPELT), refused_by_nvrtc(MISSPELT)):
        assert pointed(error)[0] == (6, "flaot)")
        assert {each.line for each in error.diagnostics} == {6}
        assert not [each for each in error.diagnostics if "__a0" in each.message or "__ost_layout" in each.message]


def test_of_a_long_line_the_part_around_the_column_is_shown(dev: ost.Device) -> None:
    body = " ".join(f"x[{n}] = {n};" for n in range(500))
    error = refused(dev, HEAD + f"kernel void k(device float *x [[buffer(0)]]) {{ {body} x[0] = missing; {body} }}")
    (place,) = pointed(error)
    assert place[1].startswith("missing;")
    shown, caret = str(error).split("\n")[1:]
    assert len(shown) < 200
    assert shown[caret.index("^") :].startswith("missing;")


def test_an_error_of_the_front_end_has_line_and_caret(dev: ost.Device) -> None:
    error = refused(dev, HEAD + "kernel void k(device float *x [[buffer(0)]], int y) {}\n")
    assert pointed(error) == [(3, "int y) {}")]
    error = refused(dev, HEAD + "kernel void k(device float *x [[buffer(0)]]) { x[0] = (1 + 2]; }\n")
    assert pointed(error) == [(3, "]; }")]
    error = refused(dev, HEAD + "#define WRONG asm\nkernel void k(device float *x [[buffer(0)]]) { WRONG }\n")
    assert pointed(error) == [(4, "WRONG }")]
    assert [after_caret(note) for note in error.diagnostics[0].notes] == [(3, "asm")]
    error = refused(dev, HEAD + "  #if 1\n")
    assert pointed(error) == [(3, "if 1")]


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


@pytest.mark.parametrize("log", ["ptxas fatal   : Unresolved extern function '_Z6insidej'", ""])
def test_words_of_nvrtc_that_name_no_place_are_an_error_too(log: str) -> None:
    from ostinato.backends.cuda import compiling

    error = compiling._failure(log)
    assert str(error).startswith("the kernels could not be compiled for this device")
    assert log in str(error)
    assert error.details == log
