"""Nobody gets out of the language: no files, no assembler, no foreign functions; and whatever comes in, errors are ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fuzzing import KERNELS, run, with_source
from hostile_sources import HEAD, OUTSIDE_FUNCTIONS, SOURCES

import ostinato as ost
from ostinato.backends.cpu.binary import foreign_functions
from ostinato.graph_file import load_graph
from ostinato.msl import parse
from ostinato.msl.safety import check_text


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
        check_text(f'#line 3 "<source>"\nint a = 1;\n{text}\n')


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
    from ostinato.backends.cpu import toolchain

    source = tmp_path / "a.cpp"
    source.write_text(
        'extern "C" int system(const char *); extern "C" float sinf(float);\n'
        "float f(float x) { return sinf(x) + system(0); }"
    )
    product = toolchain.compile_library(
        toolchain.find(), [source], ["-fPIC", "-O2"], ("-shared", "-nostartfiles", "-lm"), tmp_path
    )
    assert foreign_functions(product.read_bytes()) == ["system"]


def test_a_source_that_another_compiler_would_read_otherwise_is_passed_on_as_it_was_read(tmp_path: Path) -> None:
    """Metal's own compiler gets one text; macros that only it knows must not lead it to files."""
    source = f'#ifdef __clang__\n#include "{tmp_path}"\n#endif\nkernel void k() {{}}\n'
    assert str(tmp_path) not in parse(source).source


def test_mutated_sources_and_graph_files_raise_our_errors_only(tmp_path: Path) -> None:
    """`make fuzz SECONDS=600` goes on from here."""
    assert run(range(1000), tmp_path) == []
