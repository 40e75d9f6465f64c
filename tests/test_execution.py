"""Which way a kernel runs, and why, is told."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ostinato as ost
from ostinato import msl
from ostinato.backends.cpu import building
from ostinato.backends.cuda import compiling
from ostinato.native import toolchain

SOURCE = """#include <metal_stdlib>
using namespace metal;
float total(float x) { return simd_sum(x); }
kernel void plain(device float *x, uint id [[thread_position_in_grid]]) { x[id] = 1; }
kernel void mirrored(device float *x, uint id [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {
    threadgroup float t[64];
    t[l] = x[id];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[id] = t[63 - l];
}
kernel void lanes(device float *x, uint id [[thread_position_in_grid]]) {
    x[id] = simd_sum(float(id));
}
kernel void through(device float *x, uint id [[thread_position_in_grid]]) {
    x[id] = total(id);
}
kernel void early(device float *x, uint id [[thread_position_in_grid]]) {
    if (id > 3) return;
    threadgroup_barrier(mem_flags::mem_device);
    x[id] = 1;
}
kernel void diverging(device float *x, uint id [[thread_position_in_grid]]) {
    if (id > 3) { threadgroup_barrier(mem_flags::mem_device); }
    x[id] = 1;
}
"""

EXPECTED = {
    "plain": "loop: its threads never meet",
    "mirrored": "vector: its threads meet at barriers only, line 8",
    "lanes": "vector: calls simd_sum at line 12",
    "through": "vector: calls total, in which threads may meet, at line 15",
    "early": "vector: a thread may return before a barrier at line 18",
    "diverging": "vector: a barrier inside a condition or loop that may differ between threads at line 23",
}


NO_LOCKSTEP = "; results may differ if lanes share memory without a simdgroup_barrier between"

SHARING = {
    "threadgroup memory of its own": ("threadgroup float t[32]; t[l] = l; x[id] = simd_sum(t[31 - l]);", True),
    "threadgroup memory of an argument": ("s[l] = l; x[id] = simd_sum(s[31 - l]);", True),
    "a buffer read and written": ("x[id] = id; y[id] = simd_sum(x[id ^ 1]);", True),
    "a buffer read behind a pointer": ("device float *p = x; p[id] = simd_sum(1.0f);", True),
    "through a function": ("x[id] = total(x[id ^ 1]);", True),
    "buffers that are only written": ("x += 1; x[id] = simd_sum(float(l)); y[id] = 1;", False),
    "a buffer that is only read": ("x[id] = simd_sum(in[id ^ 1]);", False),
    "no simdgroup function": (
        "threadgroup float t[32]; t[l] = l; if (l > 3) threadgroup_barrier(mem_flags::mem_none);",
        True,
    ),
    "split at a barrier": ("threadgroup float t[32]; t[l] = l; threadgroup_barrier(mem_flags::mem_none);", True),
    "a loop that reads what another thread writes": ("y[id] = x[id ^ 1]; x[id] = 1;", True),
    "a loop with threadgroup memory": ("threadgroup float t[32]; t[l] = l; y[id] = t[l ^ 1];", True),
    "a loop over elements": ("x[id] += y[id]; y[id + 1] = in[id ^ 1];", True),
    "a loop over elements of its own": ("x[id] += y[id]; if (x[id] > 3) y[id] = in[id ^ 1];", False),
}


@pytest.mark.parametrize("name", SHARING)
def test_kernels_are_named_where_only_lockstep_orders_the_memory_of_lanes(name: str) -> None:
    body, shares = SHARING[name]
    shared = ", threadgroup float *s [[threadgroup(0)]]" if "s[l]" in body else ""
    text = (
        "float total(float x) { return metal::simd_sum(x); }\n"
        "kernel void k(device float *x, device float *y, device const float *in, uint id [[thread_position_in_grid]], "
        f"uint l [[thread_index_in_simdgroup]]{shared}) {{ {body} }}"
    )
    module = msl.parse(f"#include <metal_stdlib>\nusing namespace metal;\n{text}")
    assert module.translate("cpu").executions["k"].explanation.endswith(NO_LOCKSTEP) is shares
    checked = module.translate("cpu", fibers=True).executions["k"].explanation
    assert checked == "the device is opened with checked=True" + NO_LOCKSTEP * shares


@pytest.mark.parametrize("name", EXPECTED)
def test_a_kernel_says_how_it_runs_and_why(dev: ost.Device, name: str) -> None:
    kernel = dev.library(SOURCE)[name]
    assert str(kernel.execution) == EXPECTED[name]
    assert kernel.execution.way == EXPECTED[name].partition(":")[0]
    assert repr(kernel).endswith(f"{EXPECTED[name]}>")


def test_without_clang_the_same_kernels_run_split_or_as_fibers(
    dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_clang", lambda: None)
    library = dev.library(SOURCE.replace("float(id)", "float(id + 1)"))
    no_clang = "vectors need clang 18 or the ziglang wheel"
    assert str(library["lanes"].execution) == f"fibers: calls simd_sum at line 12; {no_clang}"
    split = f"split: its threads meet at barriers only, line 8{NO_LOCKSTEP}; {no_clang}"
    assert str(library["mirrored"].execution) == split
    values = dev.zeros(64, "float32")
    encoder = dev.command_encoder()
    encoder.dispatch(library["lanes"], values, threads=32)
    encoder.dispatch(library["mirrored"], values, threads=64, group_size=64)
    encoder.commit_and_wait()
    assert (values.numpy() == [0] * 32 + [sum(range(1, 33))] * 32).all()


def test_lanes_that_share_threadgroup_memory_step_together(dev: ost.Device) -> None:
    library = dev.library("""#include <metal_stdlib>
        using namespace metal;
        kernel void tail(device uint *x, uint l [[thread_index_in_threadgroup]]) {
            threadgroup uint t[64];
            t[l] = l;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (l < 32) { t[l] += t[l + 32]; t[l] += t[l + 16]; t[l] += t[l + 8]; t[l] += t[l + 4]; t[l] += t[l + 2]; }
            if (l == 0) x[0] = t[0] + t[1];
        }
        kernel void turned(device uint *x, uint l [[thread_index_in_threadgroup]]) {
            threadgroup uint t[32];
            t[l] = l;
            x[l] = t[31 - l];
        }""")
    assert str(library["turned"].execution) == "vector: its lanes share threadgroup memory"
    x = dev.zeros(64, "uint32")
    encoder = dev.command_encoder()
    encoder.dispatch(library["turned"], x, threads=32, group_size=32)
    encoder.dispatch(library["tail"], x[32:], threads=64, group_size=64)
    encoder.commit_and_wait()
    assert x.numpy().tolist() == [*range(31, -1, -1), sum(range(64)), *[0] * 31]


def test_a_checked_device_runs_everything_as_fibers() -> None:
    with ost.open_device("cpu", checked=True) as device:
        kernel = device.library(SOURCE)["plain"]
        assert str(kernel.execution) == "fibers: the device is opened with checked=True"


def test_a_device_with_threads_of_its_own_has_no_choice() -> None:
    assert msl.parse(SOURCE).translate("cuda").executions == {}
    assert str(msl.NATIVE) == "native"


def test_compile_prints_the_way_of_each_kernel(tmp_path: Path) -> None:
    file = tmp_path / "ways.metal"
    file.write_text(SOURCE)
    command = [sys.executable, "-m", "ostinato", "compile", str(file), "--device", "cpu"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
    for name, execution in EXPECTED.items():
        assert f"{name}(0: x *float (read-write))\n  {execution}\n" in printed


@pytest.mark.skipif(toolchain.find_clang() is None, reason="no clang for kernels as vectors")
@pytest.mark.parametrize(
    ("longest", "stopped", "texts"),
    [(1_000_000, False, [True]), (1, False, [True, False]), (1_000_000, True, [True, False])],
)
def test_a_thread_that_unrolling_makes_too_long_is_compiled_without_it(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch, longest: int, stopped: bool, texts: list[bool]
) -> None:
    unrolled: list[bool] = []
    compile_threads = building._unoptimised

    def seen(compiler: toolchain.Toolchain, flags: Sequence[str], head: str, program: str, work: Path) -> Path:
        unrolled.append("unroll(full)" in program)
        return compile_threads(compiler, flags, head, program, work)

    def emit(compiler: toolchain.Toolchain, arguments: Sequence[str], work: Path, cpu_seconds: int = 60) -> None:
        if stopped and cpu_seconds == building._LONGEST_UNROLLING_S:
            raise building._OutOfTimeError("the compiler was stopped")
        write(compiler, arguments, work, cpu_seconds)

    write = building._emit
    monkeypatch.setattr(building, "_emit", emit)
    monkeypatch.setattr(building, "_unoptimised", seen)
    monkeypatch.setattr(building, "_LONGEST_UNROLLED", longest)
    library = own_dev.library(f"""#include <metal_stdlib>
using namespace metal;
kernel void k(device float *x, uint id [[thread_position_in_grid]]) {{
    float sum = {longest + stopped};
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += simd_sum(x[id] + i);
    x[id] = sum;
}}""")
    assert library["k"].execution.way == "vector"
    assert unrolled == texts


def test_unrolling_may_take_as_long_as_is_documented() -> None:
    text = (Path(__file__).parents[1] / "docs" / "kernels.md").read_text(encoding="utf-8")
    documented = re.search(
        r"unless that takes the compiler over (\d+) s for a kernel, where it runs as vectors and", text
    )
    assert documented is not None
    assert building._LONGEST_UNROLLING_S == compiling.UNROLLING_S == int(documented[1])


@pytest.mark.skipif(toolchain.find_clang() is None, reason="no clang for kernels as vectors")
def test_functions_that_are_not_to_be_inlined_run_as_vectors_too(dev: ost.Device) -> None:
    spellings = (
        "__attribute__((noinline))",
        "__attribute((unused, __noinline__)) static",
        "[[clang::noinline]]",
        "__attribute__((optnone, noinline))",
        "__attribute__((noduplicate))",
    )
    helpers = [
        f"{spelling} float total_{at}(float x) {{ return simd_sum(x); }}" for at, spelling in enumerate(spellings)
    ]
    calls = " + ".join(f"total_{at}(total_{at}(1))" for at in range(len(spellings)))
    library = dev.library(f"""#include <metal_stdlib>
using namespace metal;
{chr(10).join(helpers)}
kernel void k(device float *x, uint id [[thread_position_in_grid]]) {{ x[id] = {calls}; }}
""")
    assert library["k"].execution.way == "vector"
    x = dev.zeros(32, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["k"], x, threads=32, group_size=32)
    encoder.commit_and_wait()
    assert (x.numpy() == 1024 * len(spellings)).all()


@pytest.mark.skipif(toolchain.find_clang() is None, reason="no clang for kernels as vectors")
def test_another_stop_of_the_compiler_does_not_decide_for_good(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(compiler: toolchain.Toolchain, arguments: Sequence[str], work: Path, cpu_seconds: int = 60) -> None:
        if cpu_seconds == building._LONGEST_UNROLLING_S:
            raise ost.KernelCompileError("the compiler was stopped")
        write(compiler, arguments, work, cpu_seconds)

    write = building._emit
    source = """#include <metal_stdlib>
using namespace metal;
kernel void k(device float *x, uint id [[thread_position_in_grid]]) {
    float sum = 0.25;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += simd_sum(x[id] + i);
    x[id] = sum;
}"""
    with monkeypatch.context() as patched:
        patched.setattr(building, "_emit", stop)
        stopped = own_dev.library(source)["k"].execution
    assert stopped.way == "fibers"
    assert "the compiler was stopped" in str(stopped)
    with ost.open_device("cpu") as later:
        assert later.library(source)["k"].execution.way == "vector"


@pytest.mark.parametrize(("script", "out_of_time"), [("while :; do :; done", True), ("kill -9 $$", False)])
def test_only_the_limit_on_processor_time_is_one(tmp_path: Path, script: str, out_of_time: bool) -> None:
    shell = replace(toolchain.find(), command=("sh", "-c", script))
    with pytest.raises(ost.KernelCompileError) as stopped:
        building._emit(shell, [], tmp_path, 2)
    assert isinstance(stopped.value, building._OutOfTimeError) is out_of_time
