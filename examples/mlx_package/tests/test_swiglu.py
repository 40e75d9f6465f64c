"""The kernels agree with MLX's own operations, forward and backward."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from swiglu import swiglu  # type: ignore[import-not-found]


def plain(gate: mx.array, up: mx.array) -> mx.array:
    result: mx.array = nn.silu(gate) * up
    return result


@pytest.fixture(params=[(4, 33), (128, 512)], ids=str)
def arrays(request: pytest.FixtureRequest) -> list[mx.array]:
    mx.random.seed(1)
    return [mx.random.normal(request.param), mx.random.normal(request.param)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(mx.float32, 1e-6), (mx.bfloat16, 1e-2)])
def test_forward(arrays: list[mx.array], dtype: mx.Dtype, tolerance: float) -> None:
    gate, up = (array.astype(dtype) for array in arrays)
    assert mx.allclose(swiglu(gate, up), plain(gate, up), rtol=tolerance, atol=tolerance)


def test_a_gradient(arrays: list[mx.array]) -> None:
    gradients = (mx.grad(lambda g, u, f=f: (f(g, u) ** 2).sum(), argnums=(0, 1))(*arrays) for f in (swiglu, plain))
    for ours, theirs in zip(*gradients, strict=True):
        assert mx.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_transposed_array(arrays: list[mx.array]) -> None:
    gate, up = (array.T for array in arrays)
    assert mx.allclose(swiglu(gate, up), plain(gate, up), rtol=1e-6, atol=1e-6)
