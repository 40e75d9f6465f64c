"""Calls inside MLX's function transformations.

MLX traces a function for `mx.grad`, `mx.vjp`, `mx.jvp`, `mx.vmap` and `mx.compile`, and gives it arrays that look like
any other. A kernel that runs on their values is no part of the trace: its result would be a constant, whose gradient is
zero. So a call asks whether an array is traced, and if so makes the kernel a part of the trace by `mx.custom_function`,
whose rules say that the kernel has no derivative. A `mx.custom_function` of the caller around the call never asks them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import UsageError


class NoDerivative(UsageError, ValueError):
    """A transformation asked for the derivative of a kernel, or mapped over one."""


class KernelWhileTracing(UsageError, ValueError):
    """A kernel was called by `mx.compile` or `mx.vmap`, whose arrays have no values."""


class _Probe(threading.local):
    """Whether arrays are traced, by what `mx.compile` does with them.

    A compiled function runs its Python body when it is called with traced arrays, and when it is compiled for new
    dtypes; otherwise it takes about a microsecond. Being compiled makes one call slower, not wrong.
    """

    def __init__(self) -> None:
        self._ran = False
        self._compiled = sys.modules["mlx.core"].compile(self._body, shapeless=True)

    def _body(self, *arrays: Any) -> Any:
        self._ran = True
        return arrays[0]

    def __call__(self, given: Sequence[Any]) -> bool:
        self._ran = False
        self._compiled(*given)
        return self._ran


_probes: list[_Probe] = []


def is_traced(given: Sequence[Any]) -> bool:
    """Whether one of these MLX arrays is traced by a transformation; sometimes yes where none is."""
    if not _probes:
        _probes.append(_Probe())
    return _probes[0](given)


def traced_call(name: str, given: Sequence[Any], run: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """`run(given)` as a part of the trace. Raises in `mx.compile` and `mx.vmap`, where arrays have no values."""
    mlx = sys.modules["mlx.core"]
    try:
        mlx.eval(*given)
    except ValueError:
        raise KernelWhileTracing(
            f"metal_kernel {name!r}: mx.compile and mx.vmap give arrays without values, and this kernel runs on values"
            " at once. Call mx.disable_compile() before, or install(pretend_metal=True) before it is made, and the"
            " function runs uncompiled; instead of mx.vmap, call the kernel for the whole batch"
        ) from None
    function = mlx.custom_function(lambda *arrays: run(arrays))
    function.vjp(_refusal(name, "mx.grad or mx.vjp", "vjp"))
    function.jvp(_refusal(name, "mx.jvp", "jvp"))
    function.vmap(_refusal(name, "mx.vmap", "vmap"))
    return list(function(*given))


def _refusal(name: str, transformation: str, rule: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object) -> NoReturn:
        raise NoDerivative(
            f"metal_kernel {name!r}: {transformation} needs the derivative of the kernel, which nobody gave. Put the"
            f" call into a function with @mx.custom_function and give it one with its .{rule}"
            if rule != "vmap"
            else f"metal_kernel {name!r}: mx.vmap cannot map over a kernel; call it for the whole batch, or put the"
            " call into a function with @mx.custom_function and give it a .vmap"
        )

    return refuse
