"""`metal_kernel` on torch and CuPy arrays in the memory of a CUDA device: no copies, in the order of their streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost
from availability import unavailable
from ostinato.interop import arrays
from ostinato.interop.mlx import MetalKernel, metal_kernel

REASON = unavailable("cuda")
pytestmark = pytest.mark.skipif(bool(REASON), reason=str(REASON))


def module(name: str) -> Any:
    """torch or CuPy, with a CUDA device."""
    found = pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "torch" and not found.cuda.is_available():
        pytest.skip("this torch is built without CUDA")
    return found


def ones(library: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    made = module(library)
    if library == "torch":
        return made.ones(shape, dtype=getattr(made, dtype), device="cuda")
    return made.ones(shape, dtype)


@pytest.fixture(scope="module")
def added() -> MetalKernel:
    return metal_kernel(
        name="added",
        input_names=["a", "by"],
        output_names=["out", "count"],
        source="""
            uint i = thread_position_in_grid.x;
            out[i] = a[i] + static_cast<T>(by);
            count[i] += 1;
        """,
    )


def call(kernel: MetalKernel, values: Any, by: Any = 2.0, **options: Any) -> list[Any]:
    size = int(np.prod(tuple(values.shape)))
    asked: dict[str, Any] = {
        "inputs": [values, by],
        "template": [("T", values.dtype)],
        "grid": (size, 1, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [tuple(values.shape)] * 2,
        "output_dtypes": [values.dtype, np.int32],
        "init_value": 4,
    }
    return kernel(**(asked | options))


@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("shape", [(5,), (300, 400)])
def test_results_stay_on_the_device(added: MetalKernel, library: str, shape: tuple[int, ...]) -> None:
    values = ones(library, shape)
    assert arrays.place(values)[0] == 2
    for by in (2.0, 3, np.float32(4)):
        out, count = call(added, values, by)
        assert arrays.library(out) == library
        assert arrays.place(out) == arrays.place(values)
        assert out.shape == values.shape
        assert bool((out == 1 + by).all())
        assert bool((count == 5).all())
    assert bool((values == 1).all())


def test_bfloat16_of_torch(added: MetalKernel) -> None:
    out, _ = call(added, ones("torch", (1000,), "bfloat16"))
    assert out.dtype == module("torch").bfloat16
    assert bool((out == 3).all())


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_strided_array_is_made_contiguous(added: MetalKernel, library: str) -> None:
    values = ones(library, (6, 4))
    values[2] = 7
    out, _ = call(added, values.T)
    assert bool((out == values.T + 2).all())


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_strides_are_those_of_the_array(library: str) -> None:
    kernel = metal_kernel(
        name="gathered",
        input_names=["inp"],
        output_names=["out"],
        source="""
            uint i = thread_position_in_grid.x;
            out[i] = inp[elem_to_loc(int64_t(i), inp_shape, inp_strides, inp_ndim)];
        """,
        ensure_row_contiguous=False,
    )
    values = ones(library, (6, 4, 2))
    for row in range(6):
        values[row, row % 4] = row
    for view in (values, values.T, values[1::2, ::2]):
        (out,) = kernel(
            inputs=[view],
            grid=(int(np.prod(tuple(view.shape))), 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[tuple(view.shape)],
            output_dtypes=[view.dtype],
        )
        assert bool((out == view).all())


def test_the_order_of_the_current_stream_of_torch_is_kept(added: MetalKernel) -> None:
    torch = module("torch")
    stream = torch.cuda.Stream()
    matrix = torch.rand(2000, 2000, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        values = matrix
        for _ in range(20):
            values = (matrix @ values).clamp(0, 1)  # work that is still running when the kernel is called
        values = torch.ones_like(values) * (values >= 0)
        out, _ = call(added, values)
        total = (out * 2).sum()
    assert total.item() == 2 * 3 * 2000 * 2000


def test_memory_of_the_host_and_of_a_device_do_not_mix(added: MetalKernel) -> None:
    values = ones("torch", (9,))
    with pytest.raises(ost.WrongDevice, match=r"cuda:0.*the host"):
        call(added, values, values.cpu())


def test_host_arrays_run_on_a_cuda_device_if_the_setting_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSTINATO_DEVICE", "cuda:0")
    monkeypatch.setattr(arrays, "_devices", {})
    kernel = metal_kernel(name="tripled", input_names=["a"], output_names=["out"], source="""
        out[thread_position_in_grid.x] = a[thread_position_in_grid.x] * 3;
    """)  # fmt: skip
    for size in (5, 50_000):
        values = np.arange(size, dtype=np.float32)
        (out,) = kernel(
            inputs=[values],
            grid=(size, 1, 1),
            threadgroup=(64, 1, 1),
            output_shapes=[(size,)],
            output_dtypes=[np.float32],
        )
        assert type(out) is np.ndarray
        assert np.array_equal(out, values * 3)
