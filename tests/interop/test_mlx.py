"""`metal_kernel` on arrays of MLX: its meaning, MLX's transformations, and standing in MLX's place."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ostinato as ost
from ostinato.interop import arrays
from ostinato.interop import mlx as interop
from ostinato.interop.mlx import MetalKernel, metal_kernel

mx = pytest.importorskip("mlx.core", reason="mlx is not installed; `pip install '.[oracle]'`")

SCALED = """
    uint i = thread_position_in_grid.x;
    out[i] = T(inp[i]) * T(by);
"""


@pytest.fixture(scope="module")
def scaled() -> MetalKernel:
    return metal_kernel(name="scaled", input_names=["inp", "by"], output_names=["out"], source=SCALED)


def scale(kernel: MetalKernel, values: Any, by: Any = 2.0, **options: Any) -> Any:
    size = int(np.prod(values.shape))
    asked: dict[str, Any] = {
        "inputs": [values, by],
        "template": [("T", values.dtype)],
        "grid": (size, 1, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [values.shape],
        "output_dtypes": [values.dtype],
    }
    return kernel(**(asked | options))[0]


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    interop.uninstall()


# --- MLX's own ---------------------------------------------------------------------------------------------


def declared(text: str) -> list[str]:
    """The names of the arguments in the first line of a docstring of MLX, in order."""
    inside = text.splitlines()[0].partition("(")[2].removesuffix(" -> object").removesuffix(")")
    depth, names, word = 0, [], ""
    for letter in inside + ",":
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            names.append(word.partition(":")[0].partition("=")[0].strip())
            word = ""
        else:
            word += letter
    return [name for name in names if name not in ("self", "*", "")]


def test_our_arguments_are_those_of_the_installed_mlx() -> None:
    assert list(inspect.signature(metal_kernel).parameters) == declared(mx.fast.metal_kernel.__doc__)
    made = mx.fast.metal_kernel(name="a", input_names=["x"], output_names=["y"], source="")
    given = inspect.signature(MetalKernel.__call__).parameters
    assert [name for name in given if name != "self"] == declared(made.__doc__)
    assert all(given[name].kind is inspect.Parameter.KEYWORD_ONLY for name in given if name != "self")


# --- arrays in and out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("float32", 7), ("float32", 100_000), ("float16", 1000), ("bfloat16", 1000), ("bfloat16", 100_000)],
)
def test_results_are_arrays_of_mlx(scaled: MetalKernel, dtype: str, size: int) -> None:
    values = mx.random.normal(shape=(size,)).astype(getattr(mx, dtype))
    result = scale(scaled, values)
    assert isinstance(result, mx.array)
    assert result.dtype == values.dtype
    assert mx.array_equal(result, values * 2)
    assert mx.array_equal(scale(scaled, values, 3.0), values * 3), "a second call, with another number"


def test_results_are_of_the_kind_of_the_inputs(scaled: MetalKernel) -> None:
    for shape in ((3, 5), (300, 500)):
        values = np.random.default_rng(0).random(shape, np.float32)
        result = scale(scaled, values)
        assert type(result) is np.ndarray
        assert np.array_equal(result, values * 2)
        torch = pytest.importorskip("torch", reason="torch is not installed")
        for tensor in (torch.from_numpy(values), torch.from_numpy(values).bfloat16()):
            got = scale(scaled, tensor)
            assert isinstance(got, torch.Tensor)
            assert got.dtype == tensor.dtype
            assert torch.equal(got, tensor * 2)


def test_without_arrays_the_dtypes_say_which_library_it_is() -> None:
    kernel = metal_kernel(name="count", input_names=[], output_names=["out"], source="out[thread_position_in_grid.x] = thread_position_in_grid.x;")  # fmt: skip # noqa: E501
    asked: dict[str, Any] = {"inputs": [], "grid": (5, 1, 1), "threadgroup": (8, 1, 1), "output_shapes": [(5,)]}
    assert mx.array_equal(kernel(**asked, output_dtypes=[mx.int32])[0], mx.arange(5))
    result = kernel(**asked, output_dtypes=[np.int32])[0]
    assert type(result) is np.ndarray
    assert result.tolist() == [0, 1, 2, 3, 4]


def test_a_result_is_not_overwritten_by_the_next_call(scaled: MetalKernel) -> None:
    for values in (mx.ones(16), mx.ones(50_000), np.ones(16, np.float32), np.ones(50_000, np.float32)):
        first = scale(scaled, values)
        second = scale(scaled, values, 5.0)
        assert np.all(np.asarray(first) == 2)
        assert np.all(np.asarray(second) == 5)


def test_lazy_and_strided_arrays_are_computed_and_made_contiguous(scaled: MetalKernel) -> None:
    for shape in ((6, 4), (600, 400)):
        values = mx.arange(shape[0] * shape[1], dtype=mx.float32).reshape(shape)
        for view in (values.T, values[::-2], values[:, 1::2] + 1, mx.broadcast_to(values[:1], shape)):
            assert mx.array_equal(scale(scaled, view), view * 2)


def test_numbers_have_the_dtypes_that_mlx_gives_them(capsys: pytest.CaptureFixture[str]) -> None:
    source = "out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e[1];"
    kernel = metal_kernel(name="numbers", input_names=list("abcde"), output_names=["out"], source=source)
    (result,) = kernel(
        inputs=[True, 3, 2**40, 1.5, np.arange(3.0)],
        output_shapes=[(5,)],
        output_dtypes=[mx.float32],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
        verbose=True,
    )
    assert result.tolist() == [1, 3, 2**40, 1.5, 1]
    printed = capsys.readouterr().out
    assert printed.startswith("Generated source code for `numbers`:\n```\n")
    for parameter in ("bool& a", "int32_t& b", "int64_t& c", "float& d", "float* e"):
        assert f"const constant {parameter} [[buffer(" in printed
    assert source in printed
    assert "#line" not in printed


def test_complex_numbers_and_bools() -> None:
    source = "uint i = thread_position_in_grid.x; z[i] = w[i] * w[i] + 1.0f / w[i]; b[i] = w[i].real > 1;"
    kernel = metal_kernel(name="squared", input_names=["w"], output_names=["z", "b"], source=source)
    values = mx.array([1 + 2j, 3 - 1j, 0.5j + 2])
    squared, large = kernel(
        inputs=[values],
        output_shapes=[(3,), (3,)],
        output_dtypes=[mx.complex64, mx.bool_],
        grid=(3, 1, 1),
        threadgroup=(3, 1, 1),
    )
    assert mx.allclose(squared, values * values + 1 / values).item()
    assert large.tolist() == [False, True, True]


def test_template_arguments_are_types_numbers_and_bools() -> None:
    source = "uint i = thread_position_in_grid.x; out[i] = twice ? T(2 * add + inp[i]) : T(add + inp[i]);"
    kernel = metal_kernel(name="chosen", input_names=["inp"], output_names=["out"], source=source)

    def called(twice: Any, add: Any, dtype: Any) -> list[float]:
        (result,) = kernel(
            inputs=[mx.array([0.5] * 8)],
            template=[("twice", twice), ("add", add), ("T", dtype)],
            output_shapes=[(8,)],
            output_dtypes=[mx.float32],
            grid=(8, 1, 1),
            threadgroup=(8, 1, 1),
        )
        return [result[0].item(), result[7].item()]

    assert called(True, -3, mx.float32) == [-5.5, -5.5]
    assert called(False, 1, mx.int32) == [1, 1]
    assert called(False, 1, np.int32) == [1, 1]
    for wrong in (1.5, "float", np.int64(3), 2**31):
        with pytest.raises(ost.ArgumentError, match=r"^template: add="):
            called(True, wrong, mx.float32)


def test_outputs_start_as_the_init_value_or_zero() -> None:
    kernel = metal_kernel(
        name="added",
        input_names=["inp"],
        output_names=["sum", "same"],
        source="atomic_fetch_add_explicit(&sum[0], inp[thread_position_in_grid.x], memory_order_relaxed);",
        atomic_outputs=True,
    )
    for size in (10, 10_000):
        asked: dict[str, Any] = {
            "inputs": [mx.ones(size)],
            "grid": (size, 1, 1),
            "threadgroup": (64, 1, 1),
            "output_shapes": [(1,), (size,)],
            "output_dtypes": [mx.float32, mx.int32],
            "template": [],
        }
        for init, first in ((None, 0), (0, 0), (3, 3), (-1.5, -1.5)):
            for _ in range(2):
                total, same = kernel(**asked, init_value=init)
                assert total.item() == size + first
                assert mx.all(same == int(first)).item()


def test_an_empty_grid_runs_nothing(scaled: MetalKernel) -> None:
    result = scale(scaled, mx.zeros((0, 3)))
    assert result.shape == (0, 3)
    assert scale(scaled, mx.ones(4), grid=(0, 1, 1)).tolist() == [0] * 4


def test_threads_know_where_they_are() -> None:
    kernel = metal_kernel(
        name="places",
        input_names=[],
        output_names=["out"],
        source="""
        uint at = thread_position_in_grid.x + threads_per_grid.x * thread_position_in_grid.y;
        uint group = threadgroup_position_in_grid.x;
        out[at] = thread_index_in_threadgroup + 100 * group + 10000 * threads_per_threadgroup.y;
        """,
    )
    (result,) = kernel(
        inputs=[], grid=(5, 3, 1), threadgroup=(2, 8, 1), output_shapes=[(3, 5)], output_dtypes=[mx.int32]
    )
    expected = [[(x % 2) + (1 if x == 4 else 2) * y + 100 * (x // 2) + 30000 for x in range(5)] for y in range(3)]
    assert result.tolist() == expected, "a group is no larger than the grid, and the last one is cut"


STRIDED = """
    uint i = thread_position_in_grid.x;
    out[i] = inp[elem_to_loc(int64_t(i), inp_shape, inp_strides, inp_ndim)];
"""


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
def test_a_kernel_may_take_arrays_as_they_lie_in_memory(dtype: str) -> None:
    kernel = metal_kernel(
        name="gathered", input_names=["inp"], output_names=["out"], source=STRIDED, ensure_row_contiguous=False
    )
    for shape in ((5, 6, 4), (50, 60, 4)):
        values = mx.arange(int(np.prod(shape))).reshape(shape).astype(getattr(mx, dtype))
        for view in (values, values.T, values[1::2, ::-1], mx.broadcast_to(values[:, :1], shape)):
            (result,) = kernel(
                inputs=[view],
                grid=(view.size, 1, 1),
                threadgroup=(32, 1, 1),
                output_shapes=[view.shape],
                output_dtypes=[view.dtype],
            )
            assert mx.array_equal(result, view)


def test_the_memory_of_a_strided_array_is_what_the_kernel_sees() -> None:
    """Without strides in its body, a kernel sees the elements in the order of memory."""
    kernel = metal_kernel(
        name="raw",
        input_names=["inp"],
        output_names=["out"],
        source="out[thread_position_in_grid.x] = inp[thread_position_in_grid.x];",
        ensure_row_contiguous=False,
    )
    values = mx.arange(12).reshape(3, 4)
    (result,) = kernel(
        inputs=[values.T], grid=(12, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(12,)], output_dtypes=[mx.int32]
    )
    assert result.tolist() == list(range(12))


def test_a_body_may_use_what_mlx_includes_for_it() -> None:
    kernel = metal_kernel(
        name="utilities",
        input_names=["x"],
        output_names=["f", "n"],
        source="""
            f[0] = Limits<float>::max;
            f[1] = Limits<bfloat16_t>::min;
            f[2] = log1p(1e-7f);
            f[3] = hypot(3e30f, 4e30f);
            f[4] = float(float16_t(1) / float16_t(4)) + float(Limits<half>::finite_max);
            n[0] = Limits<int>::min;
            n[1] = ceildiv(7, 2);
            n[2] = elem_to_loc<int>(uint3(1, 1, 0), x_shape, x_strides, x_ndim);
            LoopedElemToLoc<2> loop(x_ndim);
            loop.next(x_shape, x_strides);
            loop.next(3, x_shape, x_strides);
            n[3] = loop.location();
            n[4] = cast_to<bool>(complex64_t(0, 1)) + 10 * cast_to<bool>(0.0f) + 100 * WorkPerThread<half>::n;
            n[5] = sizeof(ConditionalType<true, char, int>::type);
        """,
        ensure_row_contiguous=False,
    )
    floats, integers = kernel(
        inputs=[mx.zeros((4, 3)).T],
        output_shapes=[(5,), (6,)],
        output_dtypes=[mx.float32, mx.int32],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
    )
    assert floats.tolist() == pytest.approx([np.inf, -np.inf, 1e-7, 5e30, 65504.25], rel=1e-6)
    # Of shape (3, 4) and strides (1, 3): (1, 1) is at 4, the fifth element in row-major order, (1, 0), at 1.
    assert integers.tolist() == [-(2**31), 4, 4, 1, 401, 1]


def test_many_threads_may_call_one_kernel(scaled: MetalKernel) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        values = np.full(100, number, np.float32)
        wrong.extend(number for _ in range(50) if not np.all(scale(scaled, values) == 2 * number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- transformations -----------------------------------------------------------------------------------------


def test_a_gradient_raises_and_is_never_zero(scaled: MetalKernel) -> None:
    values = mx.arange(9, dtype=mx.float32)

    def loss(inp: Any) -> Any:
        return (scale(scaled, inp * 1) * inp).sum()

    for _ in range(2):
        with pytest.raises(ost.UsageError, match=r"'scaled': mx.grad or mx.vjp needs the derivative.*custom_function"):
            mx.grad(loss)(values)
        with pytest.raises(ost.UsageError, match=r"mx.jvp needs the derivative"):
            mx.jvp(loss, [values], [values])
        with pytest.raises(ost.UsageError, match=r"mx.grad or mx.vjp"):
            mx.value_and_grad(mx.checkpoint(loss))(values)
    assert loss(values).item() == 2 * sum(i * i for i in range(9)), "and outside it still works"


def test_what_a_gradient_does_not_pass_through_works(scaled: MetalKernel) -> None:
    values, other = mx.arange(9, dtype=mx.float32), mx.ones(9)

    def loss(inp: Any) -> Any:
        return (scale(scaled, other) * inp + scale(scaled, mx.stop_gradient(inp))).sum()

    assert mx.array_equal(mx.grad(loss)(values), 2 * mx.ones(9))


def test_a_custom_function_around_the_call_has_its_own_gradient(scaled: MetalKernel) -> None:
    @mx.custom_function  # type: ignore[untyped-decorator]
    def double(inp: Any) -> Any:
        return scale(scaled, inp)

    @double.vjp  # type: ignore[untyped-decorator]
    def _backward(primals: Any, cotangent: Any, _output: Any) -> Any:
        return scale(scaled, cotangent)

    values = mx.arange(9, dtype=mx.float32)
    value, gradient = mx.value_and_grad(lambda inp: (double(inp) ** 2).sum())(values)
    assert value.item() == 4 * sum(i * i for i in range(9))
    assert mx.array_equal(gradient, 8 * values)


def test_vmap_raises(scaled: MetalKernel) -> None:
    with pytest.raises(ost.UsageError, match=r"'scaled': mx.compile and mx.vmap give arrays without values"):
        mx.vmap(lambda inp: scale(scaled, inp))(mx.ones((2, 9)))


def test_compile_raises_unless_it_is_disabled(scaled: MetalKernel) -> None:
    def function(inp: Any) -> Any:
        return scale(scaled, inp + 1) + 1

    with pytest.raises(ost.UsageError, match=r"mx.disable_compile\(\)"):
        mx.compile(function)(mx.ones(9))
    mx.disable_compile()
    try:
        assert mx.array_equal(mx.compile(function)(mx.ones(9)), mx.full((9,), 5.0))
    finally:
        mx.enable_compile()


def test_a_tensor_that_needs_a_gradient_is_refused(scaled: MetalKernel) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.ones(9, requires_grad=True)
    with pytest.raises(ost.UsageError, match=r"a tensor requires a gradient.*torch.no_grad"):
        scale(scaled, tensor)
    with torch.no_grad():
        assert torch.equal(scale(scaled, tensor), torch.full((9,), 2.0))


# --- errors --------------------------------------------------------------------------------------------------


def test_a_compile_error_points_into_the_source_of_the_caller() -> None:
    kernel = metal_kernel(
        name="broken",
        input_names=["inp"],
        output_names=["out"],
        source="\n    uint i = thread_position_in_grid.x;\n    out[i] = inp[i] + unknown;\n",
        header="inline float helper(float x) { return x; }",
    )
    asked: dict[str, Any] = {
        "grid": (9, 1, 1),
        "threadgroup": (9, 1, 1),
        "output_shapes": [(9,)],
        "output_dtypes": [mx.float32],
    }
    with pytest.raises(ost.KernelCompileError, match="unknown") as caught:
        kernel(inputs=[mx.ones(9)], **asked)
    assert (caught.value.file, caught.value.line) == ("source of 'broken'", 3)
    assert caught.value.diagnostics[0].source_line == "    out[i] = inp[i] + unknown;"
    kernel = metal_kernel(name="bad_header", input_names=[], output_names=["out"], source="", header="\nfloat f() {")
    with pytest.raises(ost.KernelCompileError) as caught:
        kernel(inputs=[], **asked)
    assert "of 'bad_header'" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"inputs": [1.0]}, "^inputs: expected 2, got 1"),
        ({"inputs": 3}, "^inputs: expected a list"),
        ({"inputs": [[1, 2], 2.0]}, r"^inputs\[0\]: expected an array .* got \[1, 2\]"),
        ({"inputs": [np.array(["a"]), 2.0]}, r"^inputs\[0\]: a Metal kernel has no type for"),
        ({"output_shapes": []}, "^output_shapes: expected a list of 1, one for each of out"),
        ({"output_shapes": [(-3,)]}, r"^output_shapes\[0\]: \(-3,\) has a negative extent"),
        ({"output_shapes": [([3],)]}, r"^output_shapes\[0\]: expected a sequence of integers, got \(\[3\],\)"),
        ({"output_shapes": [3.5]}, r"^output_shapes\[0\]: expected a sequence of integers"),
        ({"output_dtypes": ["nonsense"]}, r"^output_dtypes\[0\]: nonsense is not a dtype"),
        ({"output_dtypes": [np.float64]}, r"^output_dtypes\[0\]: a Metal kernel has no type for float64"),
        ({"grid": (9, 1)}, "^grid: expected three integers of at least 0"),
        ({"grid": (9.5, 1, 1)}, "^grid: expected a sequence of integers"),
        ({"threadgroup": (0, 1, 1)}, "^threadgroup: expected three integers of at least 1"),
        ({"grid": (4096, 1, 1), "threadgroup": (4096, 1, 1)}, r"'scaled', grid=\(4096, 1, 1\), threadgroup=.*1024"),
        ({"init_value": "zero"}, "^init_value: expected a number"),
        ({"template": [3]}, "^template: expected pairs"),
        ({"template": [("a b", 3)]}, "^template: 'a b' is not the name"),
        ({"stream": mx.cpu}, "^stream: Only supports the GPU"),
        ({"stream": mx.gpu}, r"^stream: there is no GPU.*install\(pretend_metal=True\)"),
    ],
)
def test_errors_name_the_argument(scaled: MetalKernel, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        scale(scaled, mx.ones(9), **options)
    assert isinstance(caught.value, ost.OstinatoError)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"name": 3}, "^name: expected a str"),
        ({"source": None}, "^source: expected a str"),
        ({"input_names": "x"}, "^input_names: expected a list of names"),
        ({"input_names": ["1x"]}, "^input_names: '1x' is not a name"),
        ({"output_names": []}, "^output_names: a kernel needs at least one"),
        ({"compile_options": 3}, "^compile_options: expected a dict"),
        ({"compile_options": {"math_mode": "precise"}}, "^compile_options: math_mode='precise'; expected one of safe"),
        ({"compile_options": {"unknown": 1}}, "^compile_options: 'unknown' is unknown"),
    ],
)
def test_errors_of_making_a_kernel_name_the_argument(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ost.ArgumentError, match=match):
        metal_kernel(**({"name": "a", "input_names": ["x"], "output_names": ["y"], "source": ""} | options))


def test_a_name_that_metal_does_not_take_is_warned_of() -> None:
    with pytest.warns(ost.OstinatoWarning, match=r"^name: 'eps1e-06' cannot be part.*on a Mac"):
        kernel = metal_kernel(name="eps1e-06", input_names=["x"], output_names=["y"], source="y[0] = x[0] + 1;")
    asked: dict[str, Any] = {"grid": (1, 1, 1), "threadgroup": (1, 1, 1), "output_shapes": [(1,)]}
    assert kernel(inputs=[mx.ones(1)], output_dtypes=[mx.float32], **asked)[0].item() == 2


def test_float64_of_mlx_is_refused(scaled: MetalKernel) -> None:
    with pytest.raises(ost.ArgumentError, match=r"^inputs\[0\]: .*no 64-bit floating point"):
        scale(scaled, mx.array([1.0], mx.float64), output_dtypes=[mx.float32], template=[("T", mx.float32)])


# --- in MLX's place ------------------------------------------------------------------------------------------


def test_install_stands_in_for_mlx_and_uninstall_gives_it_back() -> None:
    original = mx.fast.metal_kernel
    interop.install()
    kernel = mx.fast.metal_kernel(name="scaled", input_names=["inp", "by"], output_names=["out"], source=SCALED)
    assert mx.array_equal(scale(kernel, mx.ones(9)), mx.full((9,), 2.0))
    result = scale(kernel, np.ones(9, np.float32), output_dtypes=[mx.float32])
    assert isinstance(result, mx.array), "MLX's own function takes NumPy arrays and returns its own"
    from mlx.core.fast import metal_kernel as imported

    assert imported is mx.fast.metal_kernel
    interop.install()
    interop.uninstall()
    assert mx.fast.metal_kernel is original
    assert not mx.metal.is_available()
    with interop.install():
        assert mx.fast.metal_kernel is not original
    assert mx.fast.metal_kernel is original


def test_install_warns_of_modules_that_hold_the_old_function(monkeypatch: pytest.MonkeyPatch) -> None:
    early = types.ModuleType("an_early_package")
    early.kernel_maker = mx.fast.metal_kernel  # type: ignore[attr-defined]
    early.kernel = mx.fast.metal_kernel(  # type: ignore[attr-defined]
        name="a", input_names=[], output_names=["y"], source=""
    )
    monkeypatch.setitem(sys.modules, "an_early_package", early)
    with pytest.warns(ost.OstinatoWarning, match=r"an_early_package.kernel, an_early_package.kernel_maker"):
        interop.install()


def test_pretended_metal_answers_what_packages_ask(scaled: MetalKernel) -> None:
    with interop.install(pretend_metal=True):
        assert mx.metal.is_available()
        assert mx.is_available(mx.gpu)
        assert mx.default_device() == mx.gpu
        assert isinstance(mx.device_info()["architecture"], str)
        assert mx.array_equal(scale(scaled, mx.ones(9), stream=mx.gpu), mx.full((9,), 2.0))
        mx.set_default_device(mx.cpu)
        assert mx.default_device() == mx.cpu
        mx.set_default_device(mx.gpu)
        stream = mx.new_stream(mx.gpu)
        for where in (mx.gpu, mx.Device(mx.gpu), stream, mx.default_stream(mx.default_device())):
            with mx.stream(where):
                assert mx.default_device() == mx.gpu
                assert (mx.ones(3) + 1).tolist() == [2, 2, 2]
            assert mx.array_equal(scale(scaled, mx.ones(9), stream=where), mx.full((9,), 2.0))
        with mx.stream(mx.cpu):
            assert mx.default_device() == mx.cpu
        assert mx.default_device() == mx.gpu
    assert mx.default_device() == mx.cpu
    assert not mx.is_available(mx.gpu)


def test_pretended_metal_runs_compiled_functions_that_call_a_kernel(scaled: MetalKernel) -> None:
    state = [mx.array(1.0)]

    def function(inp: Any) -> Any:
        state[0] = state[0] + 1
        return scale(scaled, inp + 1) + 1

    with interop.install(pretend_metal=True):
        compiled = mx.compile(function, inputs=state, outputs=state)
        nested = mx.compile(lambda inp: compiled(inp) * 2)
        plain = mx.compile(lambda inp: inp * 3)
        for turn in range(3):
            assert compiled(mx.ones(9)).tolist() == [5] * 9
            assert state[0].item() == 2 + turn
        assert nested(mx.ones(9)).tolist() == [10] * 9
        assert plain(mx.ones(2)).tolist() == [3, 3]


def test_without_mlx_numpy_arrays_work_and_install_says_what_is_missing() -> None:
    program = """
import sys
sys.modules["mlx"] = sys.modules["mlx.core"] = None
import numpy as np
from ostinato.interop import mlx
import ostinato as ost
kernel = mlx.metal_kernel(name="one", input_names=["x"], output_names=["y"], source="y[0] = x[0] + 1;")
print(kernel(inputs=[np.ones(1, np.float32)], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)],
             output_dtypes=[np.float32])[0])
try:
    mlx.install()
except ost.MissingPackage as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[2.]\ninstall: MLX is not there")
    assert "pip install 'mlx[cpu]'" in done.stdout


def test_importing_loads_neither_library() -> None:
    program = "import ostinato.interop.mlx, sys; print([name for name in ('mlx.core', 'torch') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[]\n"


def test_a_child_of_a_fork_opens_its_own_device() -> None:
    assert arrays.device_at(arrays.HOST) is arrays.device_at(arrays.HOST)
    program = """
import os, sys, numpy as np
from ostinato.interop.mlx import metal_kernel
kernel = metal_kernel(name="one", input_names=["x"], output_names=["y"], source="y[0] = x[0] + 1;")
def call(value):
    return kernel(inputs=[np.array([value], np.float32)], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)],
                  output_dtypes=[np.float32])[0][0]
assert call(1) == 2
child = os.fork()
if not child:
    os._exit(0 if call(2) == 3 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), call(3))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 4.0\n", done.stderr


def test_a_tangent_of_torch_is_refused(scaled: MetalKernel) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(torch.ones(4), torch.ones(4))
        with pytest.raises(ost.UsageError, match="requires a gradient"):
            scale(scaled, dual)


def test_a_template_is_a_list(scaled: MetalKernel) -> None:
    with pytest.raises(ost.ArgumentError, match="template: expected a list"):
        scale(scaled, mx.ones(4), template=zip(["T"], [mx.float32], strict=True))


def test_refusals_of_transformations_are_errors_of_mlx_too(scaled: MetalKernel) -> None:
    with pytest.raises(ValueError, match="derivative"):
        mx.grad(lambda x: scale(scaled, x).sum())(mx.ones(4))


def test_install_leaves_a_machine_with_metal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    own = mx.fast.metal_kernel
    interop.install()
    assert mx.fast.metal_kernel is own
