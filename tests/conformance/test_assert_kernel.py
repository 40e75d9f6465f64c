"""`assert_kernel` on every kind of device: what it accepts, what it says, and that it survives any kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ostinato as ost
from ostinato.testing import assert_kernel

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant uint plus [[function_constant(0)]];
struct Pair { float first; uint second; };

kernel void scaled(device const float *x, device float *y, constant float &factor, uint i [[thread_position_in_grid]]) {
    y[i] = x[i] * factor;
}
kernel void both(device uint *up, device uint *down, uint i [[thread_position_in_grid]]) {
    up[i] += plus;
    down[i] -= plus;
}
kernel void halves(device const half *x, device half *y, device bfloat *z, uint i [[thread_position_in_grid]]) {
    y[i] = x[i] + 1.0h;
    z[i] = bfloat(float(x[i]));
}
kernel void pairs(device Pair *pairs, constant Pair &add, uint i [[thread_position_in_grid]]) {
    pairs[i].first += add.first;
    pairs[i].second += add.second;
}
kernel void reversed(device const float *x, device float *y, threadgroup float *room [[threadgroup(0)]],
                     uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    room[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = room[n - 1 - i];
}
kernel void faulting(device float *y, uint i [[thread_position_in_grid]]) { (y + (1ul << 44))[i] = 1.0f; }
kernel void endless(device uint *y, uint i [[thread_position_in_grid]]) {
    device volatile uint *flag = y;
    while (flag[0] == 0u) {}
}
kernel void reader(device const float *x) {}
"""


@pytest.fixture(scope="module")
def library(dev: ost.Device) -> ost.Library:
    return dev.library(SOURCE, {"plus": np.uint32(3)})


X = np.linspace(-2, 2, 100, dtype=np.float32)


@pytest.mark.parametrize("isolated", [None, True])
def test_right_results_pass_and_arguments_stay_as_they_are(library: ost.Library, isolated: bool | None) -> None:
    y = np.zeros_like(X)
    assert_kernel(library["scaled"], [X, y, 2.5], 100, X * np.float32(2.5), isolated=isolated)
    assert not y.any()


@pytest.mark.parametrize("isolated", [None, True])
def test_outputs_are_named_and_function_constants_count(library: ost.Library, isolated: bool | None) -> None:
    values = np.arange(10, dtype=np.uint32)
    expected = {"up": values + 3, 1: values - 3}
    assert_kernel(library["both"], {"up": values, "down": values}, 10, expected, isolated=isolated)
    with pytest.raises(AssertionError, match=r"argument 1 'down': 10 of 10 values are wrong"):
        assert_kernel(library["both"], [values, values], 10, {"down": values}, isolated=isolated)


@pytest.mark.parametrize("isolated", [None, True])
def test_half_precision(library: ost.Library, isolated: bool | None) -> None:
    x = np.linspace(0, 9, 50).astype(np.float16)
    arguments = [x, np.zeros_like(x), np.zeros(50, ml_dtypes.bfloat16)]
    expected: dict[str | int, Any] = {"y": x + np.float16(1), "z": x.astype(ml_dtypes.bfloat16)}
    assert_kernel(library["halves"], arguments, 50, expected, isolated=isolated)
    wrong = np.nextafter(expected["z"], ml_dtypes.bfloat16(100))
    with pytest.raises(AssertionError, match=r"bfloat16.*\n.*1 ulp apart"):
        assert_kernel(library["halves"], arguments, 50, {"z": wrong}, isolated=isolated)


@pytest.mark.parametrize("isolated", [None, True])
def test_structs_and_threadgroup_memory(library: ost.Library, isolated: bool | None) -> None:
    pairs = np.zeros(4, library["pairs"].dtype("pairs"))
    expected = np.full(4, np.array((1.5, 2), pairs.dtype))
    assert_kernel(library["pairs"], [pairs, {"first": 1.5, "second": 2}], 4, expected, isolated=isolated)
    x = np.arange(32, dtype=np.float32)
    assert_kernel(library["reversed"], [x, x], 32, x[::-1], group_size=32, shared={0: 128}, isolated=isolated)


def test_a_difference_names_kernel_device_argument_and_place(library: ost.Library, dev: ost.Device) -> None:
    expected = X.astype(np.float64) * 2  # of another precision: rounded to the buffer's
    expected[7] = 99
    with pytest.raises(AssertionError) as caught:
        assert_kernel(library["scaled"], [X, np.zeros_like(X), 2.0], 100, expected)
    first, place = str(caught.value).splitlines()
    assert first == (
        f"kernel 'scaled' on {dev.capabilities.name!r}, argument 1 'y':"
        " 1 of 100 values are wrong (float32, compared bit for bit)"
    )
    assert place.startswith(f"  first wrong value  [7]: expected 99.0, got {X[7] * 2!s},")


def test_a_tolerance_is_relative_and_absolute(library: ost.Library) -> None:
    arguments = [X, np.zeros_like(X), 1000.0]
    assert_kernel(library["scaled"], arguments, 100, X * np.float32(1000.9), 1e-3)
    with pytest.raises(AssertionError, match=r"tolerance 0\.0001"):
        assert_kernel(library["scaled"], arguments, 100, X * np.float32(1000.9), {"float32": 1e-4})


# --- kernels that misbehave -------------------------------------------------------------------------------------------


def test_tests_go_on_after_a_kernel_that_faults(library: ost.Library) -> None:
    with pytest.raises(ost.KernelFault, match="faulting"):
        assert_kernel(library["faulting"], [X], 1, X)
    assert_kernel(library["scaled"], [X, np.zeros_like(X), 2.0], 100, X * 2)


def test_tests_go_on_after_a_kernel_that_never_ends(library: ost.Library) -> None:
    zeros = np.zeros(4, np.uint32)
    with pytest.raises(AssertionError, match=r"kernel 'endless' on .* still ran after 0\.5 s"):
        assert_kernel(library["endless"], [zeros], 1, zeros, timeout=0.5, isolated=True)
    assert_kernel(library["scaled"], [X, np.zeros_like(X), 2.0], 100, X * 2, isolated=True)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "arguments", "expected", "message"),
    [
        ("scaled", [X, X], X, "takes 3 arguments, 2 were given"),
        ("scaled", [X, X, 1.0], {"z": X}, "no argument 'z'"),
        ("scaled", [X, X, 1.0], {"x": X}, "only reads it"),
        ("scaled", [X, X, 1.0], {}, "nothing would be compared"),
        ("scaled", [X, X, 1.0], X[:5], r"shape \(5,\), the buffer has \(100,\)"),
        ("scaled", [X, 1.0, 1.0], X, "pass a NumPy array"),
        ("scaled", [X, X.astype(np.float64), 1.0], X, "expected float32, got float64"),
        ("both", [np.zeros(4, np.uint32)] * 2, np.zeros(4, np.uint32), "writes to 'up', 'down'; pass expected"),
        ("both", [np.zeros(4, np.uint32)] * 2, {"up": np.full(4, 1 << 40)}, "do not fit the uint32"),
        ("reader", [X], X, "writes to no buffer"),
    ],
)
def test_bad_input_is_refused(
    library: ost.Library, kernel: str, arguments: list[Any], expected: Any, message: str
) -> None:
    with pytest.raises(ost.ArgumentError, match=message):
        assert_kernel(library[kernel], arguments, 4, expected)
    with pytest.raises(ost.ArgumentError, match="a tolerance is a non-negative number"):
        assert_kernel(library[kernel], arguments, 4, expected, -1.0)
    with pytest.raises(ost.ArgumentError, match="expected a Kernel"):
        assert_kernel(kernel, arguments, 4, expected)  # type: ignore[arg-type]
