"""The compiler: finding it, running it under limits, placing its errors, looking into its product."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ostinato as ost
from ostinato.native import building, toolchain
from ostinato.native.binary import load_time_code, startup_sections
from scripting import Script


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers are remembered per process."""
    monkeypatch.setattr(toolchain, "_found", {})


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler of one's own making, chosen by $CXX."""
    path = tmp_path / "own-c++"
    monkeypatch.setenv("CXX", str(path))
    return path


def make(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_cxx_decides(compiler: Path, tmp_path: Path) -> None:
    make(compiler, f'echo "$@" >> {tmp_path}/log; exec {shutil.which("c++")} "$@"')
    assert toolchain.find().command == (str(compiler),)
    assert (tmp_path / "log").read_text()


def test_cxx_may_carry_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{shutil.which('c++')} -DSOME='a b'")
    assert toolchain.find().command[1:] == ("-DSOME=a b",)


def test_without_any_compiler_both_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ost.ToolchainError, match=r"Install one.*pip install 'ziglang>="):
        toolchain.find()
    with pytest.raises(ost.DeviceUnavailable, match=r"pip install 'ziglang>="):
        ost.open_device("auto")
    (cpu,) = (info for info in ost.devices() if info.name == "cpu")
    assert "pip install 'ziglang" in cpu.reason


def test_a_cxx_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(ost.ToolchainError, match=r"\$CXX.*/no/such/compiler"):
        ost.open_device("cpu")


def test_a_compiler_without_float16_is_refused_with_the_reason(compiler: Path) -> None:
    make(
        compiler, f'case "$*" in *float16.cpp*) echo "no such type" >&2; exit 1;; esac\nexec {shutil.which("c++")} "$@"'
    )
    with pytest.raises(ost.ToolchainError, match=r"_Float16.*no such type"):
        toolchain.find()


def test_each_probe_is_made_once_per_compiler(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(compiler, f'echo "$@" >> {tmp_path}/log; exec {shutil.which("c++")} "$@"')
    for _ in range(3):
        monkeypatch.setattr(toolchain, "_found", {})
        toolchain.find()
    probes = [line for line in (tmp_path / "log").read_text().splitlines() if "float16.cpp" in line]
    assert len(set(probes)) == len(probes) > 1


def test_the_wheel_is_found_when_the_path_has_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.find().is_zig


def test_zig_is_known_by_what_it_defines(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setenv("CXX", f"{sys.executable} -m ziglang c++ -DSOME")
    assert toolchain.find().is_zig
    assert toolchain.find().linker == (sys.executable, "-m", "ziglang", "cc", "-DSOME")


@pytest.mark.parametrize("cxx", ["", f"{sys.executable} -m ziglang c++"])
def test_kernels_run_with_the_wheel_alone(script: Script, tmp_path: Path, cxx: str) -> None:
    pytest.importorskip("ziglang")
    result = script(
        """
        dev = ost.open_device("cpu")
        from ostinato.native import toolchain
        assert toolchain.find().is_zig
        x, y = dev.array(np.arange(100, dtype=np.float32)), dev.zeros(100, np.float32)
        encoder = dev.command_encoder()
        encoder.dispatch(dev.library(KERNELS)["inc_one"], x, y, threads=100)
        encoder.commit_and_wait()
        np.testing.assert_array_equal(y.numpy(), np.arange(100) + 1)
        """,
        timeout=300,
        PATH=str(tmp_path),
        CXX=cxx,
    )
    assert result.returncode == 0, result.stderr


def test_a_compiler_that_never_ends_is_stopped(compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(compiler, "while :; do :; done")
    monkeypatch.setattr(toolchain, "CPU_SECONDS", 1)
    found = toolchain.Toolchain((str(compiler),), "", (), "")
    with pytest.raises(ost.KernelCompileError, match="stopped"):
        toolchain.compile_library(found, [], [], [], tmp_path)


def test_a_compiler_that_sleeps_for_ever_is_stopped(
    compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make(compiler, "exec sleep 1000")
    monkeypatch.setattr(toolchain, "WALL_SECONDS", 1)
    found = toolchain.Toolchain((str(compiler),), "", (), "")
    with pytest.raises(ost.KernelCompileError, match="stopped"):
        toolchain.compile_library(found, [], [], [], tmp_path)


def test_what_a_compiler_started_ends_with_it(compiler: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(compiler, f"(sleep 3; touch {tmp_path}/still-here) &\nsleep 1000")
    monkeypatch.setattr(toolchain, "WALL_SECONDS", 0.5)
    toolchain.Toolchain((str(compiler),), "", (), "").run([], tmp_path)
    time.sleep(3.5)
    assert not (tmp_path / "still-here").exists()


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not limit address space")
def test_a_compiler_that_eats_memory_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "MEMORY_BYTES", 256 << 20)
    eater = toolchain.Toolchain((sys.executable, "-c", "x = bytearray(1 << 30); print('ate it')"), "", (), "")
    result = eater.run([], tmp_path)
    assert result.returncode != 0
    assert "ate it" not in result.stdout


def test_a_compiler_that_fills_the_disk_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "FILE_BYTES", 1 << 20)
    text = "import sys; file = open('output', 'wb', 0); file.write(bytes(1 << 20)); print('fits'); file.write(b'1')"
    result = toolchain.Toolchain((sys.executable, "-uc", text), "", (), "").run([], tmp_path)
    assert result.returncode != 0
    assert result.stdout == "fits\n"
    assert (tmp_path / "output").stat().st_size == 1 << 20


def test_the_compiler_sees_a_small_environment(compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(compiler, "env")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/somewhere")
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    seen = toolchain.Toolchain((str(compiler),), "", (), "").run([], tmp_path).stdout
    assert "SECRET_TOKEN" not in seen
    assert "CPLUS_INCLUDE_PATH" not in seen
    assert f"TMPDIR={tmp_path}" in seen


def test_arguments_are_never_read_by_a_shell(compiler: Path, tmp_path: Path) -> None:
    make(compiler, 'printf "%s\\n" "$@"')
    nasty = ["$(touch pwned)", "a b;c", "`id`"]
    assert toolchain.Toolchain((str(compiler),), "", (), "").run(nasty, tmp_path).stdout.splitlines() == nasty
    assert not (tmp_path / "pwned").exists()


# --- errors --------------------------------------------------------------------------------------------------


def test_an_error_of_the_compiler_has_the_users_file_and_line(dev: ost.Device, tmp_path: Path) -> None:
    file = tmp_path / "mine.metal"
    file.write_text(
        "#include <metal_stdlib>\nusing namespace metal;\n\n"
        "kernel void k(device float *x [[buffer(0)]]) {\n  x[0] = nosuch(1);\n}\n"
    )
    with pytest.raises(ost.KernelCompileError, match="nosuch") as caught:
        dev.library(file)
    assert (caught.value.file, caught.value.line) == (str(file), 5)


def test_an_error_in_an_included_file_names_that_file(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("inline float twice(float x) {\n  return x * undefined_name;\n}\n")
    file = tmp_path / "mine.metal"
    file.write_text('#include "part.h"\nkernel void k(device float *x [[buffer(0)]]) { x[0] = twice(1.0f); }\n')
    with pytest.raises(ost.KernelCompileError, match="undefined_name") as caught:
        dev.library(file)
    assert caught.value.file is not None
    assert (Path(caught.value.file).name, caught.value.line) == ("part.h", 2)


def test_an_error_inside_our_headers_points_at_the_line_that_caused_it(dev: ost.Device, tmp_path: Path) -> None:
    file = tmp_path / "mine.metal"
    file.write_text(
        "#include <metal_stdlib>\nusing namespace metal;\nstruct S { float x; };\n"
        "kernel void k(device float *x [[buffer(0)]]) {\n  array<S, 2> s;\n  x[0] = float(simd_sum(s[0]).x);\n}\n"
    )
    with pytest.raises(ost.KernelCompileError) as caught:
        dev.library(file)
    assert (caught.value.file, caught.value.line) == (str(file), 6)


GCC = """In file included from /opt/ost/include/vector.h:9,
                 from /tmp/work/kernels.cpp:1:
/opt/ost/include/math.h: In instantiation of 'T twice(T) [with T = S]':
<translation>:12:9:   required from 'T four(T) [with T = S]'
<translation>:14:9:   required from here
/opt/ost/include/math.h:40:14: error: no match for 'operator+'
/opt/ost/include/math.h:7:1: note: candidate: 'operator+(int)'
/opt/ost/include/math.h:7:1: note:   template argument deduction/substitution failed:
/opt/ost/include/math.h:8:1: note: in expansion of macro 'M'
/opt/ost/include/math.h:7:1: error: no type named 'type'
<translation>: In function 'f':
<translation>:20:3: error: another
"""
CLANG = """/opt/ost/include/math.h:40:14: error: invalid operands
<translation>:12:9: note: in instantiation of function template specialization
   12 | a ? b:12:  d
<translation>:3: fatal error: another
1 error generated.
"""


@pytest.mark.parametrize(
    ("text", "errors", "notes"),
    [
        (GCC, [("no match for 'operator+'", 40, 14), ("another", 20, 3)], [12, 14, 7, 7, 8, 7]),
        (CLANG, [("invalid operands", 40, 14), ("another", 3, None)], [12]),
    ],
)
def test_both_families_of_messages_are_read(text: str, errors: list[tuple[object, ...]], notes: list[int]) -> None:
    error = toolchain.compile_error(text, 1, Path("/tmp/work"))
    assert [(each.message, each.line, each.column) for each in error.diagnostics] == errors
    assert [note.line for note in error.diagnostics[0].notes] == notes
    assert error.diagnostics[1].notes == ()
    assert error.details == text


# --- the product ---------------------------------------------------------------------------------------------


def _library(tmp_path: Path, source: str, *flags: str) -> bytes:
    (tmp_path / "x.cpp").write_text(source)
    command = [
        *toolchain.find().command,
        "-shared",
        "-fPIC",
        "-o",
        str(tmp_path / "x.so"),
        str(tmp_path / "x.cpp"),
        *flags,
    ]
    subprocess.run(command, check=True)
    return (tmp_path / "x.so").read_bytes()


def test_code_that_runs_at_load_time_is_found(tmp_path: Path) -> None:
    plain = 'extern "C" int f(int x) { return x + 1; }\n'
    empty = startup_sections(_library(tmp_path, plain, "-nostartfiles"))  # zig adds a start-up to every library
    assert load_time_code(_library(tmp_path, plain, "-nostartfiles"), empty) is None
    for extra in (
        "int g(); int value = f(*(volatile int *)&value);",
        "__attribute__((constructor)) void start() {}",
        "__attribute__((destructor)) void stop() {}",
    ):
        assert load_time_code(_library(tmp_path, plain + extra, "-nostartfiles"), empty) is not None, extra


@pytest.mark.skipif(sys.platform != "linux", reason="ifunc is an ELF thing")
def test_indirect_functions_are_found(tmp_path: Path) -> None:
    source = 'extern "C" { static int a() { return 1; } static void *pick() { return (void *)a; }\n'
    source += 'int f() __attribute__((ifunc("pick"))); int g() { return f(); } }'
    try:
        image = _library(tmp_path, source, "-nostartfiles")
    except subprocess.CalledProcessError:
        pytest.skip("this compiler cannot build the sample")
    assert "ifunc" in (load_time_code(image) or "")


@pytest.mark.parametrize("image", [b"", b"#!/bin/sh", b"\x7fELF", b"\x7fELF" + struct.pack("<60x")])
def test_what_is_no_library_is_refused(image: bytes) -> None:
    with pytest.raises(ValueError):
        load_time_code(image)


def test_kernels_with_load_time_code_are_never_loaded(dev: ost.Device, compiler: Path, script: Script) -> None:
    smuggled = "volatile int z; __attribute__((constructor)) void s() { z = 1; }"
    loop = f'for a in "$@"; do case "$a" in *kernels.cpp) echo "{smuggled}" >> "$a";; esac; done'
    make(compiler, f'{loop}\nexec {shutil.which("c++")} "$@"')
    result = script(
        """
        dev = ost.open_device("cpu")
        try:
            dev.library("kernel void k(device float *x [[buffer(0)]]) { x[0] = 1; }")
        except ost.KernelCompileError as error:
            print(error)
        """,
        CXX=os.environ["CXX"],
    )
    assert "run when they are loaded" in result.stdout, result.stderr


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="shadow stacks of x86")
def test_code_that_changes_stacks_asks_for_no_shadow_stack(dev: ost.Device) -> None:
    found = toolchain.find()
    assert found.stacks == ("-fcf-protection=none",)
    assert "-fcf-protection=none" in building.compile_flags(found, building.BASE_FLAGS)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="shadow stacks of x86")
def test_a_compiler_that_knows_no_shadow_stacks_is_not_asked(dev: ost.Device, compiler: Path) -> None:
    refuse = 'for a in "$@"; do case "$a" in -fcf-protection*) exit 1;; esac; done'
    make(compiler, f'{refuse}\nexec {shutil.which("c++")} "$@"')
    assert toolchain.find().stacks == ()
