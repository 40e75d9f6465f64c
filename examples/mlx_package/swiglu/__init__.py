"""silu(gate) * up in one pass over memory, with its gradient."""

from typing import Any

import mlx.core as mx

_forward = mx.fast.metal_kernel(
    name="swiglu",
    input_names=["gate", "up"],
    output_names=["out"],
    source="""
        uint i = thread_position_in_grid.x;
        float g = gate[i];
        out[i] = static_cast<T>(g / (1.0f + metal::exp(-g)) * static_cast<float>(up[i]));
    """,
)

_backward = mx.fast.metal_kernel(
    name="swiglu_gradient",
    input_names=["gate", "up", "cotangent"],
    output_names=["of_gate", "of_up"],
    source="""
        uint i = thread_position_in_grid.x;
        float g = gate[i], c = cotangent[i];
        float s = 1.0f / (1.0f + metal::exp(-g));
        of_gate[i] = static_cast<T>(c * static_cast<float>(up[i]) * s * (1.0f + g * (1.0f - s)));
        of_up[i] = static_cast<T>(c * g * s);
    """,
)


def _run(kernel: Any, outputs: int, *inputs: mx.array) -> list[mx.array]:
    gate = inputs[0]
    results: list[mx.array] = kernel(
        inputs=list(inputs),
        template=[("T", gate.dtype)],
        grid=(gate.size, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[gate.shape] * outputs,
        output_dtypes=[gate.dtype] * outputs,
    )
    return results


@mx.custom_function  # type: ignore[untyped-decorator, unused-ignore]
def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up, for two arrays of one shape and dtype."""
    return _run(_forward, 1, gate, up)[0]


@swiglu.vjp  # type: ignore[untyped-decorator, unused-ignore]
def _swiglu_vjp(primals: tuple[mx.array, mx.array], cotangent: mx.array, _output: mx.array) -> list[mx.array]:
    return _run(_backward, 2, *primals, cotangent)
