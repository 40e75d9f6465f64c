"""`compile_shader` on CUDA tensors: in their memory, in the order of torch's streams."""

from __future__ import annotations

from typing import Any

import pytest

import ostinato as ost
from availability import unavailable

torch = pytest.importorskip("torch", reason="torch is not installed; `pip install '.[oracle]'`")

from torch import Tensor  # noqa: E402  if there is one

from ostinato.interop.torch import compile_shader, custom_op, synchronize  # noqa: E402  it needs torch

if not torch.cuda.is_available():
    pytest.skip("torch has no CUDA device here", allow_module_level=True)
if reason := unavailable("cuda"):
    pytest.skip(reason, allow_module_level=True)

SOURCE = """
#include <metal_stdlib>
#include <c10/metal/error.h>
using namespace metal;

kernel void twice(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
kernel void full(device float *out, constant float &val, uint i [[thread_position_in_grid]]) { out[i] = val; }
kernel void add(device const float *a, device const float *b, device float *out,
                uint i [[thread_position_in_grid]]) { out[i] = a[i] + b[i]; }
kernel void slow_add(device float *x, constant int &steps, uint i [[thread_position_in_grid]]) {
    float sum = x[i];
    for (int step = 0; step < steps; ++step) sum = sum * 0.999f + 0.001f * x[i];
    x[i] = x[i] + 1 + 0 * sum;
}
kernel void add_all(constant device float **inputs, device float *out, uint i [[thread_position_in_grid]]) {
    out[i] = inputs[0][i] + inputs[1][i];
}
kernel void checked(device float *x, device c10::metal::ErrorMessages *errors, uint i [[thread_position_in_grid]]) {
    if (x[i] > 4) TORCH_REPORT_ERROR(errors, "element ", i, " is above the limit");
}
kernel void silu(device const float *x, device float *out, uint i [[thread_position_in_grid]]) {
    out[i] = x[i] / (1 + exp(-x[i]));
}
kernel void silu_backward(device const float *grad, device const float *x, device float *out,
                          uint i [[thread_position_in_grid]]) {
    float s = 1 / (1 + exp(-x[i]));
    out[i] = grad[i] * s * (1 + x[i] * (1 - s));
}
"""
STEPS = 200_000


@pytest.fixture(scope="module")
def lib(private_environment: None) -> Any:
    return compile_shader(SOURCE)


def test_a_kernel_works_in_the_memory_of_a_cuda_tensor(lib: Any) -> None:
    x = torch.arange(1000.0, device="cuda")
    lib.twice(x)
    lib.twice(x[500:])
    expected = 2 * torch.arange(1000.0)
    expected[500:] *= 2
    assert torch.equal(x.cpu(), expected)


def test_one_library_works_on_cpu_and_cuda_tensors(lib: Any) -> None:
    on_host, on_device = torch.ones(4), torch.ones(4, device="cuda")
    lib.twice(on_host)
    lib.twice(on_device)
    assert torch.equal(on_host, on_device.cpu())


def test_tensors_of_one_call_are_on_one_device_but_for_numbers(lib: Any) -> None:
    a, b = torch.ones(4, device="cuda"), torch.ones(4)
    with pytest.raises(ost.WrongDevice, match=r"argument 1 'b'.*it is on cpu, and other tensors are not"):
        lib.add(a, b, a)
    lib.full(a, torch.tensor(3.0))
    assert a.tolist() == [3] * 4


def test_a_list_of_tensors_is_passed_as_addresses(lib: Any) -> None:
    a, b, out = (torch.full((4,), value, device="cuda") for value in (1.0, 2.0, 0.0))
    lib.add_all([a, b], out)
    assert out.tolist() == [3] * 4


def test_work_on_the_default_stream_comes_before_and_after(lib: Any) -> None:
    x = torch.zeros(1, device="cuda")
    for _ in range(10):
        lib.slow_add(x, STEPS)
        x.mul_(3)  # must see 1
        lib.slow_add(x, STEPS)  # must see 3
        x.sub_(4)
        assert x.item() == 0


def test_work_on_another_stream_comes_before_and_after(lib: Any) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.zeros(1, device="cuda")
        for _ in range(10):
            torch.cuda._sleep(1_000_000)
            x.add_(1)
            lib.slow_add(x, STEPS)  # must see 1
            x.mul_(3)  # must see 2
            lib.slow_add(x, 1)  # must see 6
            x.sub_(7)
            assert x.item() == 0


def test_two_streams_keep_their_own_order(lib: Any) -> None:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    tensors = []
    for stream in streams:
        with torch.cuda.stream(stream):
            tensors.append(torch.zeros(256, device="cuda"))
    for _ in range(20):
        for stream, x in zip(streams, tensors, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000)
                x.add_(1)
                lib.twice(x)
                x.add_(1)
    torch.cuda.synchronize()
    expected = 0.0
    for _ in range(20):
        expected = 2 * (expected + 1) + 1
    for x in tensors:
        assert torch.equal(x.cpu(), torch.full((256,), expected))


def test_memory_that_torch_reuses_after_a_kernel_is_not_overwritten_early(lib: Any) -> None:
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            total = torch.zeros(1 << 16, device="cuda")
            for value in range(50):
                x = torch.full((1 << 16,), float(value), device="cuda")
                out = torch.empty_like(x)
                lib.add(x, total, out)
                total = out
                del x, out
            assert torch.equal(total.cpu(), torch.full((1 << 16,), float(sum(range(50)))))


def test_a_reported_error_is_raised_by_the_call(lib: Any) -> None:
    with pytest.raises(torch.AcceleratorError, match="element 2 is above the limit"):
        lib.checked(torch.tensor([1.0, 2.0, 9.0], device="cuda"), error_buf_idx=1)


def test_a_graph_of_torch_cannot_capture_a_kernel(lib: Any) -> None:
    x = torch.ones(4, device="cuda")
    lib.twice(x)
    torch.cuda.synchronize()
    with pytest.raises(ost.UsageError, match=r"torch\.cuda\.graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        lib.twice(x)


def test_synchronize_waits(lib: Any) -> None:
    x = torch.zeros(1, device="cuda")
    lib.slow_add(x, 50 * STEPS)
    synchronize()
    assert torch.cuda.current_stream().query()
    assert x.item() == 1


def test_an_operator_is_compiled_and_differentiated_on_cuda(lib: Any) -> None:
    @custom_op("ostinato_test_cuda::silu_backward")
    def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        lib.silu_backward(grad, x, out)
        return out

    @custom_op("ostinato_test_cuda::silu", backward=silu_backward)
    def silu(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        lib.silu(x, out)
        return out

    x = torch.randn(64, device="cuda", requires_grad=True)
    own = x.detach().clone().requires_grad_()
    torch.compile(lambda x: silu(x * 2) + 1, fullgraph=True, backend="aot_eager")(x).sum().backward()
    (torch.nn.functional.silu(own * 2) + 1).sum().backward()
    torch.testing.assert_close(x.grad, own.grad)
    assert set(torch.library.opcheck(silu, (x,)).values()) == {"SUCCESS"}
