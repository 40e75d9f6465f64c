"""Metal kernels as operators of torch: seen by torch.compile and torch.export, differentiated by another kernel."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest

import ostinato as ost

torch = pytest.importorskip("torch", reason="torch is not installed; `pip install '.[oracle]'`")

from torch import Tensor  # noqa: E402  if there is one

from ostinato.interop.torch import compile_shader, custom_op  # noqa: E402  it needs torch

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void silu(device const float *x, device float *out, constant float &scale, uint i [[thread_position_in_grid]]) {
    out[i] = scale * x[i] / (1 + exp(-x[i]));
}
kernel void silu_backward(device const float *grad, device const float *x, device float *out, constant float &scale,
                          uint i [[thread_position_in_grid]]) {
    float s = 1 / (1 + exp(-x[i]));
    out[i] = scale * grad[i] * s * (1 + x[i] * (1 - s));
}
kernel void sum_and_product(device const float *a, device const float *b, device float *sum, device float *product,
                            uint i [[thread_position_in_grid]]) {
    sum[i] = a[i] + b[i]; product[i] = a[i] * b[i];
}
kernel void exponential(device const float *x, device float *out, uint i [[thread_position_in_grid]]) {
    out[i] = exp(x[i]);
}
kernel void times(device const float *a, device const float *b, device float *out,
                  uint i [[thread_position_in_grid]]) { out[i] = a[i] * b[i]; }
kernel void increment(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
"""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def lib(private_environment: None) -> Any:
    return compile_shader(SOURCE)


def new_name(name: str) -> str:
    """A name for an operator: torch keeps those of earlier tests."""
    return f"ostinato_test::{name}_{next(_numbers)}"


@pytest.fixture(scope="module")
def silu(lib: Any) -> Any:
    @custom_op(new_name("silu_backward"))
    def silu_backward(grad: Tensor, x: Tensor, scale: float) -> Tensor:
        out = torch.empty_like(grad)
        lib.silu_backward(grad, x.contiguous(), out, scale)
        return out

    @custom_op(new_name("silu"), backward=silu_backward)
    def silu(x: Tensor, scale: float = 1.0) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        lib.silu(x, out, scale)
        return out

    return silu


def test_the_operator_computes_and_differentiates(silu: Any) -> None:
    x = torch.randn(3, 5, requires_grad=True)
    own = x.detach().clone().requires_grad_()
    silu(x.t(), 2.0).sum().backward()  # its gradient is one number, expanded
    (2 * torch.nn.functional.silu(own.t())).sum().backward()
    torch.testing.assert_close(x.grad, own.grad)


def test_torch_finds_nothing_wrong_with_the_operator(silu: Any) -> None:
    results = torch.library.opcheck(silu, (torch.randn(8, requires_grad=True), 0.5))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("ignore:Input #0 requires gradient and is not a double")
def test_gradcheck_agrees_in_single_precision(silu: Any) -> None:
    x = torch.linspace(-2, 2, 6, requires_grad=True)
    assert torch.autograd.gradcheck(silu, (x,), eps=1e-2, atol=1e-2, rtol=1e-2)


def test_torch_compile_sees_one_graph_with_its_backward(silu: Any) -> None:
    layer = torch.compile(lambda x: silu(x * 2) + 1, fullgraph=True, backend="aot_eager", dynamic=True)
    for elements in (4, 9):
        x = torch.randn(elements, requires_grad=True)
        own = x.detach().clone().requires_grad_()
        y, expected = layer(x), torch.nn.functional.silu(own * 2) + 1
        torch.testing.assert_close(y, expected)
        y.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, own.grad)


def test_torch_export_has_it_as_a_node(silu: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Tensor) -> Tensor:
            return silu(x) + 1

    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(Model(), (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert any("ostinato_test.silu" in target for target in targets)
    x = torch.randn(7, 3)
    torch.testing.assert_close(program.module()(x), torch.nn.functional.silu(x) + 1)


def test_a_kernel_that_is_no_operator_breaks_the_graph_and_the_error_names_the_way_out(lib: Any) -> None:
    def raw(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        lib.silu(x * 2, out, 1.0)
        return out + 1

    x = torch.randn(4)
    torch.testing.assert_close(torch.compile(raw, backend="eager")(x), torch.nn.functional.silu(2 * x) + 1)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"ostinato\.interop\.torch\.custom_op"):
        torch.compile(raw, backend="eager", fullgraph=True)(x)


def test_kernels_leave_tensors_without_memory_alone(silu: Any) -> None:
    assert silu(torch.empty(3, device="meta")).shape == (3,)


def test_several_results_have_numbered_gradients(lib: Any) -> None:
    def backward(grad_0: Tensor, grad_1: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return grad_0 + grad_1 * b, grad_0 + grad_1 * a

    @custom_op(new_name("sum_and_product"), backward=backward)
    def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        total, product = torch.empty_like(a), torch.empty_like(a)
        lib.sum_and_product(a, b, total, product)
        return total, product

    a, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    total, product = both(a, b)
    (2 * total + 3 * product).sum().backward()
    torch.testing.assert_close(a.grad, 2 + 3 * b.detach())
    torch.testing.assert_close(b.grad, 2 + 3 * a.detach())


def test_backward_may_take_the_result_itself(lib: Any) -> None:
    @custom_op(new_name("times"))
    def times(grad: Tensor, out: Tensor) -> Tensor:
        product = torch.empty_like(out)
        lib.times(grad, out, product)
        return product

    exponential = custom_op(new_name("exp"), lambda_exp(lib), backward=times)
    x = torch.randn(4, requires_grad=True)
    exponential(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp())


def lambda_exp(lib: Any) -> Any:
    def exponential(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        lib.exponential(x, out)
        return out

    return exponential


def test_an_operator_may_change_its_argument(lib: Any) -> None:
    @custom_op(new_name("increment"), mutates_args=("x",))
    def increment(x: Tensor) -> None:
        lib.increment(x)

    x = torch.zeros(3)
    torch.compile(increment, fullgraph=True, backend="aot_eager")(x)
    assert x.tolist() == [1, 1, 1]


def test_a_gradient_without_backward_is_an_error_and_never_zero(lib: Any) -> None:
    exponential = custom_op(new_name("exp"), lambda_exp(lib))
    with pytest.raises(RuntimeError, match="no autograd formula"):
        exponential(torch.ones(2, requires_grad=True)).sum().backward()


def test_a_backward_with_wrong_parameters_or_results_is_an_error(lib: Any) -> None:
    with pytest.raises(ost.ArgumentError, match="backward takes 'y', which is no parameter of the function"):
        custom_op(new_name("exp"), lambda_exp(lib), backward=lambda grad, y: grad)
    numbered = custom_op(new_name("exp"), lambda_exp(lib), backward=lambda grad_0: grad_0)
    with pytest.raises(ost.ArgumentError, match="backward takes 'grad_0'; with these results it is grad"):
        numbered(torch.ones(2, requires_grad=True)).sum().backward()
    two = custom_op(new_name("exp"), lambda_exp(lib), backward=lambda grad: (grad, grad))
    with pytest.raises(ost.ArgumentError, match="backward returned 2 gradients for 1 tensors"):
        two(torch.ones(2, requires_grad=True)).sum().backward()


def test_lists_of_tensors_and_keywords_are_left_to_register_autograd(lib: Any) -> None:
    def total(tensors: list[Tensor]) -> Tensor:
        return torch.stack(tensors).sum(0)

    def scaled(x: Tensor, *, scale: float) -> Tensor:
        return x * scale

    of_list = custom_op(new_name("total"), total, backward=lambda grad: grad)
    with pytest.raises(ost.ArgumentError, match="'tensors' is a list of tensors"):
        of_list([torch.ones(2, requires_grad=True)])
    with pytest.raises(ost.ArgumentError, match="keyword-only parameters; use register_autograd"):
        custom_op(new_name("scaled"), scaled, backward=lambda grad: grad)


def test_the_signature_is_that_of_the_function(silu: Any) -> None:
    assert list(inspect.signature(silu).parameters) == ["x", "scale"]


@pytest.mark.parametrize("constant_first", [True, False])
def test_a_constant_beside_tensors_without_memory(lib: Any, constant_first: bool) -> None:
    table = torch.tensor([2.0, 3.0])

    @custom_op(new_name("looked_up"))
    def looked_up(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        lib.times(*((table, x) if constant_first else (x, table)), out)
        return out

    x = torch.ones(2)
    assert torch.compile(looked_up, fullgraph=True, backend="eager")(x).tolist() == [2, 3]


def test_the_gradients_of_a_list_of_results(lib: Any) -> None:
    def backward(grad_0: Tensor, grad_1: Tensor) -> Tensor:
        return grad_0 + 2 * grad_1

    @custom_op(new_name("twice"), backward=backward)
    def twice(x: Tensor) -> list[Tensor]:
        return [x + 0, x * 2]

    x = torch.ones(2, requires_grad=True)
    first, second = twice(x)
    (first + second).sum().backward()
    assert x.grad.tolist() == [3, 3]
