"""A function that launches Metal kernels as an operator of torch: `torch.compile` and `torch.export` see one node.

`custom_op` is `torch.library.custom_op` with two things filled in. Kernels do nothing on tensors without memory, so the
function is its own fake implementation. And the gradient is a function whose parameters say what it needs by name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import torch
from torch.library import CustomOpDef

from ..errors import ArgumentError

_Function = TypeVar("_Function", bound=Callable[..., Any])
_GRADIENT_OR_OUTPUT = re.compile(r"(grad|out)(?:_(\d+))?")


def opaque(function: _Function) -> _Function:
    """Keep `torch.compile` out of a function and all that it calls, as `torch.compiler.disable` does.

    Without loading the compiler where that can be done: it takes seconds, and most programs never use it.
    """
    reason = "a Metal kernel is no operator of torch; ostinato.interop.torch.custom_op makes one of it"
    try:
        from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

        set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))
    except (ImportError, AttributeError, TypeError):  # names that torch keeps to itself
        return torch.compiler.disable(function, reason=reason)  # type: ignore[no-any-return]
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return function


@overload
def custom_op(
    name: str,
    /,
    *,
    mutates_args: str | Iterable[str] = ...,
    backward: Callable[..., Any] | None = ...,
    schema: str | None = ...,
) -> Callable[[Callable[..., Any]], CustomOpDef]: ...


@overload
def custom_op(
    name: str,
    fn: Callable[..., Any],
    /,
    *,
    mutates_args: str | Iterable[str] = ...,
    backward: Callable[..., Any] | None = ...,
    schema: str | None = ...,
) -> CustomOpDef: ...


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    backward: Callable[..., Any] | None = None,
    schema: str | None = None,
) -> Any:
    """Register a function that launches kernels of `compile_shader` as the operator `name` ("namespace::name").

    Its parameters and result are annotated as `torch.library.custom_op` needs it, and the result is what that returns:
    call it, or set more with its `register_…` methods. The function must not read contents of tensors on the host, for
    torch also runs it on tensors without memory, to know shapes and dtypes.

    `backward` computes the gradient. Its parameters are any of: names of parameters of the function, `grad` (the
    gradient of the result, contiguous) and `out` (the result), or `grad_0`, `out_0`, … for a function with several
    results. It returns the gradients of the tensors among the parameters in their order; of one tensor the gradient
    itself. To be compiled it must be made of operators, so a kernel in it is a `custom_op` too.
    """

    def register(function: Callable[..., Any]) -> CustomOpDef:
        op = torch.library.custom_op(name, function, mutates_args=mutates_args, schema=schema)
        op.register_fake(function)
        op.__wrapped__ = function  # for inspect.signature
        if backward is not None:
            _register_backward(op, name, backward)
        return op

    return register if fn is None else register(fn)


def _register_backward(op: CustomOpDef, name: str, backward: Callable[..., Any]) -> None:
    parameters = inspect.signature(op).parameters.values()
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in parameters):
        raise ArgumentError(f"custom_op {name!r}: backward= and keyword-only parameters; use register_autograd instead")
    names = [parameter.name for parameter in parameters]
    wanted = list(inspect.signature(backward).parameters)
    for parameter in wanted:
        if parameter not in names and not _GRADIENT_OR_OUTPUT.fullmatch(parameter):
            raise ArgumentError(
                f"custom_op {name!r}: backward takes {parameter!r}, which is no parameter of the function"
                f" ({', '.join(names)}), nor grad or out, nor grad_0, out_0, …"
            )

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        given = dict(zip(names, inputs, strict=True))
        for parameter, value in given.items():
            if isinstance(value, list | tuple) and any(_needs_gradient(element) for element in value):
                raise ArgumentError(
                    f"custom_op {name!r}: {parameter!r} is a list of tensors, whose gradients backward= cannot return;"
                    " use register_autograd"
                )
        values = {
            parameter: given[parameter] if parameter in given else _result(name, parameter, output)
            for parameter in wanted
            if parameter in given or not parameter.startswith("grad")
        }
        tensors = [parameter for parameter, value in values.items() if isinstance(value, torch.Tensor)]
        ctx.save_for_backward(*(values[parameter] for parameter in tensors))
        ctx.saved_names = tensors
        ctx.plain_values = {parameter: value for parameter, value in values.items() if parameter not in tensors}
        ctx.is_tensor = [isinstance(value, torch.Tensor) for value in inputs]

    def gradients(ctx: Any, *grads: Any) -> tuple[torch.Tensor | None, ...]:
        given = dict(zip(ctx.saved_names, ctx.saved_tensors, strict=True)) | ctx.plain_values
        # A gradient may be expanded from one number, and kernels see memory, not strides.
        of_results = grads[0] if len(grads) == 1 and isinstance(grads[0], list | tuple) else grads
        contiguous = tuple(grad if grad is None else grad.contiguous() for grad in of_results)
        for parameter in wanted:
            if parameter not in given:
                given[parameter] = _result(name, parameter, contiguous)
        computed = backward(**given)
        returned = tuple(computed) if isinstance(computed, Sequence) else (computed,)
        if len(returned) != sum(ctx.is_tensor):
            raise ArgumentError(
                f"custom_op {name!r}: backward returned {len(returned)} gradients for {sum(ctx.is_tensor)} tensors;"
                " None stands for a tensor without one"
            )
        rest = iter(returned)
        return tuple(next(rest) if is_tensor else None for is_tensor in ctx.is_tensor)

    op.register_autograd(gradients, setup_context=keep)


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _result(name: str, parameter: str, results: Any) -> torch.Tensor:
    """The result, or gradient of a result, that a parameter such as `out` or `grad_1` names."""
    several: Sequence[torch.Tensor] = results if isinstance(results, tuple | list) else (results,)
    matched = _GRADIENT_OR_OUTPUT.fullmatch(parameter)
    assert matched is not None
    number = matched[2]
    if (number is None) != (len(several) == 1) or (number is not None and int(number) >= len(several)):
        expected = matched[1] if len(several) == 1 else f"{matched[1]}_0 to {matched[1]}_{len(several) - 1}"
        raise ArgumentError(f"custom_op {name!r}: backward takes {parameter!r}; with these results it is {expected}")
    return several[0 if number is None else int(number)]
