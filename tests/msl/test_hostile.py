"""Nobody gets out of the language: no files, no assembler, no foreign functions; and whatever comes in, errors are ours."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fuzzing import KERNELS, run, with_source
from hostile_sources import HEAD, OUTSIDE_FUNCTIONS, SOURCES

import ostinato as ost
from ostinato.graph.file import load_graph
from ostinato.msl import parse
from ostinato.msl.safety import check_text
from ostinato.native.binary import foreign_functions


@pytest.mark.parametrize("what", SOURCES)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_no_trick_gets_a_translation(what: str, target: str) -> None:
    with pytest.raises(ost.KernelCompileError):
        parse(SOURCES[what]).translate(target)


@pytest.mark.parametrize("what", SOURCES)
def test_no_trick_gets_into_a_graph(what: str, tmp_path: Path) -> None:
    path = tmp_path / "graph"
    path.write_bytes(with_source(SOURCES[what].encode("utf-8", "surrogatepass")))
    with pytest.raises(ost.GraphFileError):
        load_graph(path)


@pytest.mark.parametrize("what", OUTSIDE_FUNCTIONS)
def test_a_kernel_calls_nothing_outside(dev: ost.Device, what: str) -> None:
    with pytest.raises(ost.KernelCompileError):
        dev.library(HEAD + OUTSIDE_FUNCTIONS[what])


def test_an_error_does_not_show_what_is_in_a_file(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct horse\n")
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(f'#define E\nE #include "{tmp_path / "secret"}"\nkernel void k() {{}}')
    assert "horse" not in f"{caught.value} {caught.value.details}"


@pytest.mark.parametrize(
    "text",
    [
        'asm("nop");', '__asm__("nop");', 'extern "C" int system();', "int f() { throw 1; }", '#include "x"', " #include <x>",
        '#line 1 "x" 3', "#pragma GCC x", '%:include "x"', "%: include", "??=include", 'R"(" asm', "a \\ b", "'", '"', '"a\n"',
        "a // b", "a /* b", "x <: 1 :> ", "<% %>", "int a = new int;", "__builtin_alloca(4);", "thread_local int x;", "a\0b",
        "a\rb", '"a??/"', "__DATE__", ' extern "C" __global__ void f()', '#line 1 "a"\r"', "#if 1", "@", "`",
    ],
)  # fmt: skip
def test_the_finished_text_is_checked_by_itself(text: str) -> None:
    with pytest.raises(ost.KernelCompileError, match="not allowed"):
        check_text(f"int a = 1;\n{text}\n")


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.metal")), ids=lambda path: path.stem)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_our_own_kernels_pass(path: Path, target: str) -> None:
    module = parse(path)
    assert module.translate(target, constants={constant.name: 1 for constant in module.constants}).text


def test_names_that_are_macros_of_the_system_are_only_names() -> None:
    source = HEAD + "int __REDIRECT(int a) { return a; }\nkernel void k(device int *x) { x[0] = __REDIRECT(1); }"
    assert "#undef __REDIRECT\n" in parse(source).translate().text


def test_names_with_underscores_still_work(dev: ost.Device) -> None:
    source = HEAD + "struct _Pair { int __a; };\nkernel void k(device int *x) { _Pair p{7}; x[0] = p.__a; }"
    x = dev.zeros(1, "int32")
    enc = dev.command_encoder()
    enc.dispatch(dev.library(source)["k"], x, threads=1)
    enc.commit_and_wait()
    assert x.numpy()[0] == 7


@pytest.mark.skipif(sys.platform == "darwin", reason="looks into ELF libraries")
def test_calls_that_lead_out_are_found_in_the_library(tmp_path: Path) -> None:
    from ostinato.native import toolchain

    source = tmp_path / "a.cpp"
    source.write_text(
        'extern "C" int system(const char *); extern "C" float sinf(float);\n'
        "float f(float x) { return sinf(x) + system(0); }"
    )
    product = toolchain.compile_library(
        toolchain.find(), [str(source)], ["-fPIC", "-O2"], ("-shared", "-nostartfiles", "-lm"), tmp_path
    )
    assert foreign_functions(product.read_bytes()) == ["system"]


def test_a_source_that_another_compiler_would_read_otherwise_is_passed_on_as_it_was_read(tmp_path: Path) -> None:
    """Metal's own compiler gets one text; macros that only it knows must not lead it to files."""
    source = f'#ifdef __clang__\n#include "{tmp_path}"\n#endif\nkernel void k() {{}}\n'
    assert str(tmp_path) not in parse(source).source


def test_mutated_sources_and_graph_files_raise_our_errors_only(tmp_path: Path) -> None:
    """`make fuzz SECONDS=600` goes on from here."""
    assert run(range(1000), tmp_path) == []


def test_a_line_directive_shows_no_file(dev: ost.Device, tmp_path: Path) -> None:
    """A compiler that draws the line of an error opens the file that it is told the line is from."""
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret\n")
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(f'#line 1 "{secret}"\nkernel void k(device float *x [[buffer(0)]]) {{ x[0] = nothing; }}')
    assert "the secret" not in f"{caught.value} {caught.value.details}"


def test_a_link_out_of_the_folder_shows_no_file(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("first\nthe secret\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "link.h").symlink_to(tmp_path / "secret.txt")
    source = project / "k.metal"
    source.write_text(
        f'# /**/ line 2 "{project}/link.h"\nkernel void k(device float *x [[buffer(0)]]) {{ x[0] = nothing; }}'
    )
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(source)
    assert "the secret" not in f"{caught.value} {caught.value.details} {caught.value.diagnostics}"


def test_files_that_include_each_other_without_end_are_refused(tmp_path: Path) -> None:
    """Two includes a level, and no token in any of them."""
    levels = "".join(
        f'#ifndef A{n}\n#define A{n}\n#include "bomb.metal"\n#include "bomb.metal"\n#undef A{n}\n#else\n'
        for n in range(40)
    )
    (tmp_path / "bomb.metal").write_text(levels + "#endif\n" * 40)
    with pytest.raises(ost.KernelCompileError, match="more than 1,000,000 tokens"):
        parse(tmp_path / "bomb.metal")


@pytest.mark.parametrize("name", ["a" * 5000, "loop"])
def test_names_that_no_file_has_are_not_found(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "k.metal").write_text(f'#include "{name}"\n')
    with pytest.raises(ost.KernelCompileError, match="was not found"):
        parse(tmp_path / "k.metal")


def test_an_error_after_an_endless_line_number_is_ours(dev: ost.Device) -> None:
    with pytest.raises(ost.KernelCompileError):
        dev.library(
            "#if 0\n#line " + "9" * 5000 + "\n#endif\nkernel void k(device float *x [[buffer(0)]]) { nothing; }"
        )


def test_structs_around_one_that_is_not_known_are_looked_at_once() -> None:
    big = "struct Big { " + " ".join(f"int f{n};" for n in range(400)) + " foreign_t last; };"
    rest = "".join(
        f"struct S{n} {{ Big b; }}; kernel void k{n}(device S{n} *s [[buffer(0)]]) {{}}\n" for n in range(400)
    )
    syntax_steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal syntax_steps
        syntax_steps += event == "call"

    sys.setprofile(count)
    try:
        parse(f"struct foreign_t;\n{big}\n{rest}")
    finally:
        sys.setprofile(None)
    assert syntax_steps < 3_000_000


def test_a_loop_that_compilers_turn_into_a_call_is_no_foreign_function(dev: ost.Device) -> None:
    source = """kernel void length(device const char *s [[buffer(0)]], device int *n [[buffer(1)]]) {
        int count = 0;
        while (s[count] != 0) ++count;
        n[0] = count;
    }"""
    text, found = dev.array(np.frombuffer(b"twelve chars\0", np.int8)), dev.zeros(1, np.int32)
    encoder = dev.command_encoder()
    encoder.dispatch(dev.library(source)["length"], text, found, threads=1)
    encoder.commit_and_wait()
    assert found.numpy().tolist() == [12]
