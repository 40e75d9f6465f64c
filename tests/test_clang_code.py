"""Kernels that clang compiles for x86: vectors at any address, halves that wait for nothing; which kernels it gets."""

from __future__ import annotations

import ctypes
import platform
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from launching import HEAD, launch
from ostinato.backends.cpu import kernels
from ostinato.backends.cpu.building import kernel_library
from ostinato.backends.cpu.clang_code import loosened
from ostinato.msl import Module
from ostinato.native import toolchain

X86 = 'target triple = "x86_64-unknown-linux-gnu"\n'
FUNCTION = """define void @f(ptr %0, ptr %1) {
  %3 = alloca [4 x float], align 16
  %4 = load <4 x float>, ptr %0, align 16, !tbaa !1
  store <4 x float> %4, ptr %3, align 32
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %1, ptr align 4 %0, i64 16, i1 false)
  %5 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %0, i32 16, <8 x i1> %m, <8 x float> poison)
  %6 = load atomic i64, ptr %0 seq_cst, align 8
  ret void
}
"""
HALVES = """define float @f(ptr %0, half %1) {
  %3 = load half, ptr %0, align 2
  %4 = fpext contract half %3 to float
  %5 = fpext half %1 to float
  %6 = fadd float %4, %5
  ret float %6
}
define float @g(half %3) {
  %5 = fpext half %3 to float
  ret float %5
}
"""


def test_accesses_take_any_address_and_local_memory_stays_aligned() -> None:
    got = loosened(X86 + FUNCTION)
    assert got.count("align 16") == 1
    assert "alloca [4 x float], align 16" in got
    assert "load <4 x float>, ptr %0, align 8, !tbaa !1" in got
    assert "store <4 x float> %4, ptr %3, align 8" in got
    assert "ptr align 8 %1, ptr align 4 %0" in got
    assert "(ptr %0, i32 8, <8 x i1>" in got


def test_only_a_half_that_was_loaded_in_the_same_function_is_converted_otherwise() -> None:
    got = loosened(X86 + HALVES)
    assert got.count("fpext <4 x half>") == 1
    assert "%4 = extractelement <4 x float>" in got
    assert "%5 = fpext half %1 to float" in got
    assert "%5 = fpext half %3 to float" in got


def test_the_code_of_other_processors_stays_as_it_is() -> None:
    text = 'target triple = "aarch64-unknown-linux-gnu"\n' + FUNCTION + HALVES
    assert loosened(text) == text


SOURCE = f"""{HEAD}
kernel void through(device const half *x, device half *y, device float *z, uint i [[thread_position_in_grid]]) {{
  z[i] = float(x[i]); y[i] = half(z[i]);
}}
kernel void rounded(device const float *x, device half *y, uint i [[thread_position_in_grid]]) {{ y[i] = half(x[i]); }}
kernel void sums(device const half *x, device float *y, uint i [[thread_position_in_grid]]) {{
  float sum = 0; for (uint k = 0; k < 100; ++k) sum += float(x[100 * i + k]) * 2.0f; y[i] = sum;
}}
kernel void met(device half *x, uint i [[thread_index_in_threadgroup]]) {{
  threadgroup half t[64]; t[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = t[63 - i];
}}
kernel void vectors(device float *x, uint i [[thread_position_in_grid]]) {{
  *(device float4 *)(x + 5 * i + 1) = *(device float4 *)(x + 5 * i) + 1.0f;
}}
"""


@pytest.fixture
def clang() -> toolchain.Toolchain:
    found = toolchain.find_clang()
    if found is None:
        pytest.skip(f"there is no clang {toolchain.OLDEST_CLANG}, nor the ziglang wheel")
    return found


@pytest.fixture(params=["chosen", "clang"])
def library(request: pytest.FixtureRequest, clang: toolchain.Toolchain, own_dev: ost.Device) -> ost.Library:
    if request.param == "clang":
        request.getfixturevalue("monkeypatch").setenv("CXX", shlex.join(clang.command))
    return own_dev.library(SOURCE)


def test_every_half_becomes_the_float_it_is_and_back(own_dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    y, z = launch(own_dev, library["through"], x, np.zeros_like(x), np.zeros(x.size, np.float32), threads=x.size)
    np.testing.assert_array_equal(z, x.astype(np.float32))
    np.testing.assert_array_equal(y, x)


def test_floats_are_rounded_to_the_nearest_half(own_dev: ost.Device, library: ost.Library) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(np.float16)
    got = launch(own_dev, library["rounded"], x, np.zeros(x.size, np.float16), threads=x.size)
    np.testing.assert_array_equal(got, expected)


def test_halves_are_summed_one_by_one(own_dev: ost.Device, library: ost.Library) -> None:
    x = np.random.default_rng(1).integers(-50, 50, (40, 100)).astype(np.float16)
    got = launch(own_dev, library["sums"], x, np.zeros(40, np.float32), threads=40)
    np.testing.assert_array_equal(got, 2 * x.astype(np.float32).sum(1))


def test_vectors_lie_at_any_address(own_dev: ost.Device, library: ost.Library) -> None:
    x = np.arange(64, dtype=np.float32)
    got = launch(own_dev, library["vectors"], x, threads=12)
    expected = x.copy()
    expected[:60].reshape(12, 5)[:, 1:] = x[:60].reshape(12, 5)[:, :4] + 1
    np.testing.assert_array_equal(got, expected)


@pytest.fixture
def compiled_by(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, list[str]]]:
    """Whether clang compiled a library, and its kernels, in turn."""
    libraries: list[tuple[bool, list[str]]] = []

    def spy(compiler: toolchain.Toolchain, translation: Any) -> ctypes.CDLL:
        libraries.append((compiler.clang_version > 0, sorted(translation.kernels)))
        return kernel_library(compiler, translation)

    monkeypatch.setattr(kernels, "kernel_library", spy)
    return libraries


def test_clang_gets_the_loops_of_a_source_with_halves(
    clang: toolchain.Toolchain, own_dev: ost.Device, compiled_by: list[tuple[bool, list[str]]]
) -> None:
    if toolchain.find().clang_version:
        pytest.skip("clang compiles everything here")
    own_dev.library(SOURCE)
    assert compiled_by == [(True, ["rounded", "sums", "through", "vectors"])]  # the other one runs as vectors
    compiled_by.clear()
    own_dev.library(f"{HEAD}kernel void k(device float *x, uint i [[thread_position_in_grid]]) {{ x[i] = 1; }}")
    assert compiled_by == [(False, ["k"])]


def test_the_compiler_that_a_user_names_gets_them_too(
    own_dev: ost.Device, compiled_by: list[tuple[bool, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = toolchain.find()
    monkeypatch.setenv("CXX", shlex.join(compiler.command))
    own_dev.library(SOURCE)
    split = ["met"] * (toolchain.find_clang() is None)
    assert compiled_by == [(compiler.clang_version > 0, [*split, "rounded", "sums", "through", "vectors"])]


def test_what_clang_refuses_the_other_compiler_gets(
    clang: toolchain.Toolchain, own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if toolchain.find().clang_version:
        pytest.skip("clang compiles everything here")
    monkeypatch.setattr(
        toolchain, "find_clang", lambda: replace(clang, semantics=("-unknown-flag",), identity="refuses")
    )
    assert own_dev.library(SOURCE)["through"].execution.way == "loop"


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="this processor takes any alignment")
def test_a_misaligned_vector_is_called_that_where_the_assembler_is_old(
    own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = toolchain.find()
    if compiler.clang_version:
        pytest.skip("clang takes any alignment")
    old = tuple(flag for flag in compiler.semantics if "unaligned" not in flag)
    monkeypatch.setattr(toolchain, "find", lambda: replace(compiler, semantics=old))
    library, x = own_dev.library(SOURCE.replace("half", "float")), own_dev.zeros(16, np.float32)
    address = x._allocation().backing.address + 4
    encoder = own_dev.command_encoder()
    encoder.dispatch(library["vectors"], x, threads=1)
    with pytest.raises(ost.KernelFault, match=f"misaligned access to {address:#x}"):
        encoder.commit_and_wait()


def test_a_kernel_that_runs_as_vectors_is_translated_as_loops_only_once(
    clang: toolchain.Toolchain, own_dev: ost.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[tuple[str, list[str]]] = []
    translate = Module.translate

    def spy(module: Module, target: str = "cpu", *arguments: Any, **options: Any) -> Any:
        made = translate(module, target, *arguments, **options)
        translated.append((target, sorted(made.kernels)))
        return made

    monkeypatch.setattr(Module, "translate", spy)
    library = own_dev.library(
        f"""{HEAD}constant uint times [[function_constant(0)]];
        kernel void a(device uint *x, uint i [[thread_position_in_grid]]) {{ x[i] = simd_sum(x[i]) * times; }}
        kernel void b(device uint *x, uint i [[thread_position_in_grid]]) {{ x[i] = simd_max(x[i]) * times; }}""",
        constants={0: 2},
    )
    assert library["a"].execution.way == library["b"].execution.way == "vector"
    assert translated == [("cpu", ["a", "b"]), ("cpu-vector", ["a", "b"]), ("cpu-vector", ["a"]), ("cpu-vector", ["b"])]
    assert launch(own_dev, library["b"], np.arange(32, dtype=np.uint32), threads=32)[0] == 62
