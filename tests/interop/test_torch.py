"""`torch.mps.compile_shader` on CPU tensors: called as torch's own is, and with its meaning."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from scripting import Script

torch = pytest.importorskip("torch", reason="torch is not installed; `pip install '.[oracle]'`")

from ostinato.interop import arrays  # noqa: E402
from ostinato.interop import torch as interop  # noqa: E402  it needs torch

# The first has neither metal_stdlib nor a namespace, as the example of torch's documentation.
SOURCE = """
kernel void full(device float *out, constant float &val, uint idx [[thread_position_in_grid]]) { out[idx] = val; }

#include <metal_stdlib>
#include <c10/metal/error.h>
#include <ATen/native/mps/kernels/Activation.h>
using namespace metal;

kernel void strided(device float *x, constant long2 &strides, uint2 at [[thread_position_in_grid]]) {
    x[at.x * strides.x + at.y * strides.y] = at.x + 10 * at.y;
}

kernel void numbers(device float *out, constant int &i, constant uchar &b, constant bool &flag, constant half &h,
                    constant long3 &three, constant short *two) {
    out[0] = i; out[1] = b; out[2] = flag; out[3] = h;
    out[4] = three.x; out[5] = three.y; out[6] = three.z; out[7] = two[0]; out[8] = two[1];
}

kernel void sizes(device uint *out, uint3 grid [[threads_per_grid]], uint3 group [[threads_per_threadgroup]],
                  uint3 at [[thread_position_in_grid]]) {
    if (any(at != 0)) return;
    for (int axis = 0; axis < 3; ++axis) { out[axis] = grid[axis]; out[3 + axis] = group[axis]; }
}

kernel void checked(device float *x, constant float &limit, device c10::metal::ErrorMessages *errors,
                    uint i [[thread_position_in_grid]]) {
    if (x[i] > limit) { TORCH_REPORT_ERROR(errors, "element ", i, " is above the limit"); return; }
    x[i] = -x[i];
}

kernel void gapped(device float *out [[buffer(2)]], constant float &val [[buffer(0)]],
                   uint i [[thread_position_in_grid]]) { out[i] = val; }

kernel void add_all(constant device float **inputs, device float *out, uint i [[thread_position_in_grid]]) {
    out[i] = inputs[0][i] + inputs[1][i];
}

kernel void grouped(device float *out, uint i [[thread_position_in_grid]],
                    uint lane [[thread_position_in_threadgroup]]) {
    threadgroup float shared[64];
    shared[lane] = i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = shared[lane ^ 1];
}

kernel void wants_shared(device float *out, threadgroup float *shared [[threadgroup(0)]],
                         uint i [[thread_index_in_threadgroup]]) {
    shared[i] = i; out[i] = shared[i];
}

template <typename T> kernel void twice(device T *x, uint i [[thread_position_in_grid]]) { x[i] = x[i] + x[i]; }
#define TWICE(T) template [[host_name("twice_" #T)]] kernel void twice<T>(device T *, uint);
TWICE(half) TWICE(bfloat) TWICE(float) TWICE(float2) TWICE(long) TWICE(int) TWICE(short) TWICE(char) TWICE(uchar)

kernel void invert(device bool *x, uint i [[thread_position_in_grid]]) { x[i] = !x[i]; }
"""


@pytest.fixture(scope="module")
def lib(private_environment: None) -> Any:
    return interop.compile_shader(SOURCE)


def test_the_example_of_torchs_documentation(lib: Any) -> None:
    x = torch.zeros(16)
    assert lib.full(x, 3.14) is None
    assert torch.equal(x, torch.full((16,), 3.14))


def test_kernels_are_attributes_and_dir_lists_them(lib: Any) -> None:
    assert {"full", "strided", "twice_half"} <= set(dir(lib))
    assert "full" in repr(lib)
    assert "out *float" in repr(lib.full)
    assert not hasattr(lib, "nope")
    with pytest.raises(ost.OstinatoError, match=r"no kernel named 'nope'.*full") as raised:
        _ = lib.nope
    assert isinstance(raised.value, RuntimeError), "as in torch"


def test_a_kernel_tells_its_limits(lib: Any) -> None:
    assert lib.grouped.max_threads_per_threadgroup == 1024
    assert lib.grouped.thread_execution_width == 32
    assert lib.grouped.static_thread_group_memory_length == 256
    assert lib.full.static_thread_group_memory_length == 0


@pytest.mark.parametrize(
    ("dtype", "kernel"),
    [
        ("float16", "twice_half"),
        ("bfloat16", "twice_bfloat"),
        ("float32", "twice_float"),
        ("complex64", "twice_float2"),
        ("int64", "twice_long"),
        ("int32", "twice_int"),
        ("int16", "twice_short"),
        ("int8", "twice_char"),
        ("uint8", "twice_uchar"),
    ],
)
def test_results_are_written_in_place_for_each_dtype(lib: Any, dtype: str, kernel: str) -> None:
    x = torch.arange(1, 9).to(getattr(torch, dtype))
    expected = x + x
    getattr(lib, kernel)(x)
    assert torch.equal(x, expected)


def test_bool_tensors_are_bool(lib: Any) -> None:
    x = torch.tensor([True, False, True])
    lib.invert(x)
    assert x.tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_doubles_are_refused(lib: Any, dtype: str) -> None:
    with pytest.raises(ost.ArgumentError, match=f"'twice_float', argument 0 'x'.*torch.{dtype}: Metal has no double"):
        lib.twice_float(torch.ones(2, dtype=getattr(torch, dtype)))


def test_a_view_begins_at_its_first_element_and_reaches_to_the_end_of_its_storage(lib: Any) -> None:
    x = torch.zeros(8)
    lib.full(x[2:4], 1.0)
    assert x.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    lib.full(x[6:7], 2.0, threads=2)
    assert x.tolist() == [0, 0, 1, 1, 0, 0, 2, 2]


@given(shape=st.tuples(st.integers(1, 5), st.integers(1, 5)), first=st.integers(0, 7), transpose=st.booleans())
def test_a_strided_tensor_is_passed_as_its_storage(
    lib: Any, shape: tuple[int, int], first: int, transpose: bool
) -> None:
    storage = torch.full((first + shape[0] * shape[1] + 3,), -1.0)
    view = storage[first : first + shape[0] * shape[1]].view(shape)
    view = view.t() if transpose else view
    untouched = storage.clone()
    lib.strided(view, view.stride(), threads=tuple(view.shape))
    expected = torch.arange(view.shape[0])[:, None] + 10.0 * torch.arange(view.shape[1])
    assert torch.equal(view, expected)
    assert torch.equal(storage[:first], untouched[:first])
    assert torch.equal(storage[first + view.numel() :], untouched[first + view.numel() :])


def test_memory_that_torch_frees_and_reuses_is_used_as_it_is_then(lib: Any) -> None:
    for value in range(200):
        x = torch.zeros(512)
        lib.full(x, float(value))
        assert torch.equal(x, torch.full((512,), float(value)))


def test_numbers_are_passed_as_torch_passes_them(lib: Any) -> None:
    out = torch.zeros(9)
    lib.numbers(out, -5, 200, True, 1.5, (1, -2, 3), [4, 5], threads=1, arg_casts={4: "fp16", 6: "int16"})
    assert out.tolist() == [-5, 200, 1, 1.5, 1, -2, 3, 4, 5]
    lib.numbers(out, 2**32 + 7, 0, False, 0, (0, 0, 0), [0, 0], threads=1)
    assert out.tolist() == [7, 0, 0, 0, 0, 0, 0, 0, 0], "the low bytes of an int, and zero in every type"


def test_a_cast_is_for_all_numbers_or_for_one_position(lib: Any) -> None:
    x = torch.zeros(3, 2)
    with pytest.raises(ost.ArgumentError, match=r"'strides' \(long2 &\): a long2 takes 16 bytes, got 8|torch passes"):
        lib.strided(x, x.stride(), threads=(3, 2), arg_casts="int32")
    out = torch.zeros(9)
    lib.numbers(
        out, 1, 2, 1, 0, (0, 0, 0), [3, 4], threads=1, arg_casts={1: "int32", 2: "uint8", 3: "int8", 6: "int16"}
    )
    assert out.tolist() == [1, 2, 1, 0, 0, 0, 0, 3, 4]
    lib.full(x, 7.9, arg_casts={5: "int8"})
    assert x.tolist() == [[7.9000000953674316] * 2] * 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda lib, x: lib.full(x, 3), r"argument 1 'val' \(float &\): torch passes 3 as int64.*pass floats"),
        (lambda lib, x: lib.full(x, 1e40, arg_casts="fp16"), "torch passes 1e.40 as float16"),
        (lambda lib, x: lib.numbers(x, 1.5, 0, 0, 0, (0, 0, 0), (0, 0)), 'int32 from it.*arg_casts={1: "int32"}'),
        (lambda lib, x: lib.numbers(x, 1, 0, 0, 1.5, (0, 0, 0), (0, 0)), 'float16 from it.*arg_casts={4: "fp16"}'),
        (lambda lib, x: lib.numbers(x, 1, 0, 0, 0, (0, 0, 0), (1, 2)), 'int16 from it.*arg_casts={6: "int16"}'),
        (lambda lib, x: lib.numbers(x, 2**63), "does not fit an int64"),
        (lambda lib, x: lib.full(x, ()), "an empty tuple"),
        (lambda lib, x: lib.full(x, "1"), "expected a tensor, an int, a float"),
        (lambda lib, x: lib.full(x, np.float32(1)), "expected a tensor, an int, a float.*got float32"),
        (lambda lib, x: lib.full(x, (1, 2.5)), "begins with an int, so all of it must be ints"),
        (lambda lib, x: lib.full(x, 1.0, arg_casts="int7"), "arg_casts='int7': expected one of fp16, bf16, int32"),
        (lambda lib, x: lib.full(x, 1.0, arg_casts=3), "arg_casts=3: expected one of"),
        (lambda lib, x: lib.full(x), "argument 1 'val'.*nothing was given for it; position n is buffer n"),
        (
            lambda lib, x: lib.full(2.0, x),
            "'out'.*the kernel writes to it, so it must be a tensor, not float",
        ),
        (
            lambda lib, x: lib.full(x, 1.0, threads=(1, 2, 3, 4)),
            "threads is an int, or a tuple or list of one",
        ),
        (lambda lib, x: lib.full(x, 1.0, threads=-1), "threads is an int"),
        (lambda lib, x: lib.full(x, 1.0, threads=(4, 1), group_size=4), "differ in their number of extents"),
        (lambda lib, x: lib.full(x, 1.0, group_size=2048), "2048 threads; the kernel allows 1024"),
        (lambda lib, x: lib.wants_shared(x), r"torch gives no memory to \[\[threadgroup\(0\)\]\] 'shared'"),
        (lambda lib, x: lib.full(x.to_sparse(), 1.0), "has no memory that a kernel can use"),
        (lambda lib, x: lib.twice_float2(x.to(torch.complex64).conj()), "not yet conjugated"),
        (lambda lib, x: torch.func.vmap(lambda row: lib.full(row, 1.0))(x.view(2, 2)), "no memory that a kernel can"),
    ],
)
def test_what_torch_would_misread_or_refuse_is_an_error_in_its_words(
    lib: Any, call: Callable[[Any, Any], Any], message: str
) -> None:
    with pytest.raises((RuntimeError, ValueError), match=message) as raised:  # which of them as in torch
        call(lib, torch.zeros(4))
    assert isinstance(raised.value, ost.OstinatoError)


def test_without_a_tensor_the_number_of_threads_is_asked_for(lib: Any) -> None:
    with pytest.raises(RuntimeError, match="without a tensor in its arguments it needs threads="):
        lib.full(1.0)


def test_the_default_group_is_that_of_torch(lib: Any) -> None:
    out = torch.zeros(6, dtype=torch.int32)
    lib.sizes(out)
    assert out.tolist() == [6, 1, 1, 6, 1, 1]
    lib.sizes(out, threads=3000)
    assert out.tolist() == [3000, 1, 1, 1024, 1, 1]
    lib.sizes(out, threads=(4, 3))
    assert out.tolist()[:3] == [4, 3, 1]
    lib.sizes(out, threads=[8, 4, 2], group_size=(4, 2, 1))
    assert out.tolist() == [8, 4, 2, 4, 2, 1]


def test_a_group_shares_memory(lib: Any) -> None:
    out = torch.zeros(128)
    lib.grouped(out, group_size=64)
    assert torch.equal(out, torch.arange(128.0).view(-1, 2).flip(1).reshape(-1))


def test_empty_tensors_are_no_work(lib: Any) -> None:
    lib.full(torch.zeros(0), 1.0)
    lib.full(torch.zeros(4), 1.0, threads=0)


def test_the_position_is_the_index_of_the_buffer_and_what_the_kernel_lacks_is_ignored(lib: Any) -> None:
    out = torch.zeros(3)
    lib.gapped(2.0, 99, out, "ignored", threads=3)
    assert out.tolist() == [2, 2, 2]


def test_a_list_of_tensors_is_passed_as_addresses(lib: Any) -> None:
    out = torch.zeros(4)
    lib.add_all([torch.ones(4), torch.full((4,), 2.0)], out)
    assert out.tolist() == [3, 3, 3, 3]
    with pytest.raises(ost.ArgumentError, match=r"argument 0 'inputs'.*Metal has no double"):
        lib.add_all([torch.ones(4), torch.ones(4, dtype=torch.float64)], out)


def test_a_double_without_axes_is_a_number(lib: Any) -> None:
    x = torch.zeros(3)
    lib.full(x, torch.tensor(0.5, dtype=torch.float64))
    lib.full(x, torch.tensor(0.5))
    assert x.tolist() == [0.5] * 3


def test_gradients_are_not_recorded_and_parameters_are_tensors(lib: Any) -> None:
    weight = torch.nn.Parameter(torch.zeros(4))
    lib.full(weight, 5.0)
    assert weight.detach().tolist() == [5] * 4
    assert weight.grad_fn is None


def test_a_reported_error_is_torchs_and_ours(lib: Any) -> None:
    x = torch.tensor([1.0, 2.0, 9.0])
    with pytest.raises(torch.AcceleratorError, match="element 2 is above the limit") as raised:
        lib.checked(x, 4.0, error_buf_idx=2)
    assert isinstance(raised.value, ost.OstinatoError)
    assert x.tolist() == [-1, -2, 9]
    lib.checked(x, 10.0, error_buf_idx=2)
    assert x.tolist() == [1, 2, -9], "the next call begins without errors"
    with pytest.raises(RuntimeError, match="3 more were reported"):
        lib.checked(torch.full((4,), 9.0), 4.0, error_buf_idx=2)


def test_a_source_that_does_not_compile_is_a_syntax_error_by_line() -> None:
    with pytest.raises(SyntaxError, match=r"<source>:2:\d+: .*wrong") as raised:
        interop.compile_shader("kernel void f(device float *x) {\n    x[0] = wrong;\n}\n")
    assert isinstance(raised.value, ost.KernelCompileError)
    with pytest.raises(ost.ArgumentError, match="source is Metal source as a str, not bytes"):
        interop.compile_shader(b"")  # type: ignore[arg-type]


def test_a_source_of_headers_is_an_empty_library() -> None:
    assert dir(interop.compile_shader("#include <c10/metal/special_math.h>")) == []


def test_a_metallib_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ost.OstinatoError, match=r"code for Apple's GPUs.*compile_shader"):
        interop.load_metallib(tmp_path / "kernels.metallib")


@pytest.fixture
def left_alone() -> Iterator[None]:
    own = torch.mps.compile_shader
    yield
    interop.uninstall()
    assert torch.mps.compile_shader is own


def test_install_replaces_what_raises_and_uninstall_restores_it(left_alone: None) -> None:
    interop.install()
    interop.install()
    x = torch.zeros(2)
    torch.mps.compile_shader("kernel void one(device float *x) { x[0] = 1; }").one(x)
    torch.mps.synchronize()
    assert x.tolist() == [1, 0]
    if hasattr(torch.mps, "load_metallib"):
        with pytest.raises(ost.OstinatoError):
            torch.mps.load_metallib(b"MTLB")
    interop.uninstall()
    with pytest.raises(RuntimeError, match="MPS is not available"):
        torch.mps.compile_shader("")


def test_install_for_a_block(left_alone: None) -> None:
    with interop.install():
        assert torch.mps.compile_shader is interop.compile_shader
    assert torch.mps.compile_shader is not interop.compile_shader


def test_install_warns_of_a_module_that_took_the_function_before(left_alone: None) -> None:
    package = ModuleType("package")
    package.compile = torch.mps.compile_shader  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "package", package)
        with pytest.warns(ost.OstinatoWarning, match=r"package\.compile.*before these modules are imported"):
            interop.install()


def test_the_signatures_are_those_of_torch() -> None:
    for name in {"compile_shader", "load_metallib", "synchronize"} & set(dir(torch.mps)):
        own, ours = inspect.signature(getattr(torch.mps, name)), inspect.signature(getattr(interop, name))
        assert list(own.parameters) == list(ours.parameters)


def test_after_a_fault_memory_is_usable_and_a_forked_child_has_a_device_of_its_own(script: Script) -> None:
    done = script(
        """
        import os, torch
        from ostinato.interop.torch import compile_shader
        lib = compile_shader('kernel void crash(device int *x, constant int &by) { x[0] = x[0] / by; }'
                             'kernel void one(device int *x) { x[0] = 1; }')
        x = torch.ones(1, dtype=torch.int32)
        try:
            lib.crash(x, 0)
        except ost.KernelFault as fault:
            print(type(fault).__name__)
        x.zero_()
        child = os.fork()
        lib.one(x)
        if child == 0:
            os._exit(x.item())
        print(x.item(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.stdout.split() == ["KernelFault", "1", "1"], done.stderr


def test_without_torch_the_import_says_what_to_install(script: Script) -> None:
    done = script(
        """
        import sys
        sys.modules["torch"] = None
        try:
            import ostinato.interop.torch
        except ImportError as error:
            print(type(error).__name__, error)
        """
    )
    assert done.stdout.strip() == "MissingPackage ostinato.interop.torch needs torch: pip install torch"


def test_memory_of_an_interrupted_call_stays(script: Script) -> None:
    done = script(
        """
        import signal, torch
        from ostinato.interop.torch import compile_shader

        lib = compile_shader('kernel void slow(device float *x, constant int &steps) {'
                             ' float s = x[0]; for (int k = 0; k < steps; ++k) s = s * 0.999f + 0.001f;'
                             ' x[0] = s > 9 ? s : 7; }')
        lib.slow(torch.zeros(4), 1, threads=1)

        def interrupt(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        x = torch.zeros(1000)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            lib.slow(x, 1 << 29, threads=1)
        except KeyboardInterrupt:
            print("interrupted")
        address = x.data_ptr()
        del x
        others = [torch.zeros(1000) for _ in range(20)]
        print(any(other.data_ptr() == address for other in others))
        """
    )
    assert done.stdout.split() == ["interrupted", "False"], done.stderr


def test_a_backward_that_needs_overwritten_contents_raises(lib: Any) -> None:
    x, weight = torch.ones(2), torch.ones(2, requires_grad=True)
    total = (x * weight).sum()
    lib.full(x, 5.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_empty_slices_are_arguments(lib: Any) -> None:
    x = torch.zeros(10)
    lib.full(x[5:5], 1.0)
    lib.full(x[5:5], 1.0, threads=0)
    assert not x.any()


def test_a_group_that_is_too_large_is_an_error_of_torch_too(lib: Any) -> None:
    with pytest.raises(RuntimeError) as raised:
        lib.full(torch.zeros(4), 1.0, group_size=1 << 20)
    assert isinstance(raised.value, ost.GeometryError)


def test_installations_are_undone_in_any_order(left_alone: None) -> None:
    own = torch.mps.compile_shader
    first, second = interop.install(), interop.install()
    first.undo()
    assert torch.mps.compile_shader is interop.compile_shader
    second.undo()
    assert torch.mps.compile_shader is own


def test_a_device_that_cannot_reach_the_tensors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_DEVICE", "cpu")
    monkeypatch.setattr(arrays, "_devices", {})
    with pytest.raises(ost.WrongDevice, match=r"cuda:0.*OSTINATO_DEVICE"):
        arrays.device_at((2, 0))
