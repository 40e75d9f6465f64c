"""Arrays of other libraries as buffers and back: the same memory where it can be, the same values always."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.lib.stride_tricks import as_strided

import ostinato as ost
from ostinato.interop import arrays

DTYPES = ("bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "complex64")


@pytest.fixture(scope="module")
def device() -> ost.Device:
    return arrays.device_at(arrays.HOST)


def imported(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed; `pip install '.[oracle]'`")


def made(library: str, values: np.ndarray) -> Any:
    if library == "mlx":
        return imported("mlx.core").array(values)
    if library == "torch":
        torch = imported("torch")
        if values.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(values.copy())
    return values


@pytest.mark.parametrize("library", ["numpy", "mlx", "torch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_shares_the_memory_of_an_array_and_comes_back_as_one(
    device: ost.Device, library: str, dtype: str
) -> None:
    values = np.arange(12).reshape(3, 4).astype(dtype)
    given = made(library, values)
    assert arrays.library(given) == library
    assert arrays.dtype(given) == values.dtype
    buffer = arrays.buffer(device, given)
    window = buffer.as_numpy()
    assert np.array_equal(window, values)
    window[1, 2] = 0
    assert arrays.host_array(given)[1, 2] == 0, "the same memory"
    back = arrays.array(library, buffer)
    assert arrays.library(back) == library
    assert back.dtype == given.dtype
    assert np.array_equal(arrays.host_array(back), window)


@given(
    npst.arrays(np.int32, npst.array_shapes(max_dims=4, max_side=5)),
    st.data(),
)
def test_the_memory_of_a_strided_array_is_a_buffer(values: np.ndarray, data: st.DataObject) -> None:
    cut = tuple(data.draw(st.slices(extent)) for extent in values.shape)
    assume(all(len(range(*part.indices(extent))) for part, extent in zip(cut, values.shape, strict=True)))
    view = values[cut].transpose(data.draw(st.permutations(range(values.ndim))))
    device = arrays.device_at(arrays.HOST)
    buffer, offset, strides = arrays.strided_buffer(device, view)
    memory = buffer.as_numpy()[offset // 4 :]
    assert np.array_equal(as_strided(memory, view.shape, [4 * stride for stride in strides]), view)
    assert buffer.nbytes <= values.nbytes


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_strides_of_mlx_arrays_are_theirs(device: ost.Device, dtype: str) -> None:
    given = made("mlx", np.arange(12).reshape(3, 4).astype(dtype)).T[::-1]
    buffer, offset, strides = arrays.strided_buffer(device, given)
    assert (buffer.size, offset // buffer.dtype.itemsize, strides) == (12, 3, (-1, 4))
    assert np.array_equal(as_strided(buffer.as_numpy()[3:], (4, 3), [s * buffer.dtype.itemsize for s in strides]),
                          arrays.host_array(given))  # fmt: skip


def test_memory_that_is_read_only_is_copied(device: ost.Device) -> None:
    values = np.arange(4, dtype=np.float32)
    values.flags.writeable = False
    buffer = arrays.buffer(device, values)
    buffer.as_numpy()[0] = 7
    assert values[0] == 0


def test_a_tensor_that_needs_a_gradient_is_still_memory(device: ost.Device) -> None:
    torch = imported("torch")
    parameter = torch.nn.Parameter(torch.arange(4, dtype=torch.float32))
    assert arrays.library(parameter) == "torch"
    assert arrays.buffer(device, parameter).as_numpy().tolist() == [0, 1, 2, 3]


def test_other_values_are_of_no_library() -> None:
    for value in (3, 2.5, True, [1, 2], "text", None):
        assert arrays.library(value) is None
    assert arrays.library(np.float32(3)) == "numpy"


def test_memory_elsewhere_is_refused_by_its_kind() -> None:
    class Elsewhere:
        shape, dtype = (3,), "float32"

        def __dlpack_device__(self) -> tuple[int, int]:
            return 10, 0

    with pytest.raises(ost.ArgumentError, match="neither the host's nor CUDA's"):
        arrays.place(Elsewhere())
    with pytest.raises(ost.ArgumentError, match="no memory that can be shared"):
        arrays.place(imported("torch").empty(3, device="meta"))


def test_arrays_of_one_call_are_on_one_device() -> None:
    class OnDevice(np.ndarray):
        def __dlpack_device__(self) -> tuple[Any, int]:  # type: ignore[override]
            return 2, 1

    host, cuda = np.zeros(2), np.zeros(2).view(OnDevice)
    assert arrays.common_place([]) == arrays.common_place([host, host]) == arrays.HOST
    assert arrays.common_place([cuda]) == (2, 1)
    with pytest.raises(ost.WrongDevice, match=r"the host.*cuda:1"):
        arrays.common_place([host, cuda])
