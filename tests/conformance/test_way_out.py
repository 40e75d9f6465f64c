"""Mistakes that everybody makes once: each is a typed error that names the call to make instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ostinato as ost


class ForeignTensor:
    """What torch, CuPy and others look like from here: an array with DLPack that is not NumPy's."""

    __module__ = "torch"
    shape = (3,)

    def __dlpack__(self, **options: Any) -> object:
        return np.zeros(3, np.float32).__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __float__(self) -> float:
        raise ValueError("only one element tensors can be converted to Python scalars")


def test_a_tensor_of_another_library_is_told_to_be_shared(dev: ost.Device, kernels: ost.Library) -> None:
    enc = dev.command_encoder()
    with pytest.raises(
        ost.ArgumentError, match=r"argument 0 .*got a torch.ForeignTensor of shape \(3,\); .*from_dlpack"
    ):
        enc.dispatch(kernels["bump"], ForeignTensor(), threads=3)
    enc.dispatch(kernels["bump"], dev.from_dlpack(ForeignTensor()), threads=3)
    enc.commit_and_wait()


def test_a_torch_tensor_is_told_to_be_shared(dev: ost.Device, kernels: ost.Library) -> None:
    torch = pytest.importorskip("torch")
    enc = dev.command_encoder()
    with pytest.raises(ost.ArgumentError, match=r"got a torch.Tensor of shape \(2, 3\).*device.from_dlpack"):
        enc.dispatch(kernels["bump"], torch.zeros(2, 3), threads=3)


def test_an_array_for_an_argument_that_is_written_is_told_to_be_a_buffer(dev: ost.Device, kernels: ost.Library) -> None:
    with pytest.raises(ost.ArgumentError, match=r"must be a Buffer, not an array of float32.*device\.array"):
        dev.command_encoder().dispatch(kernels["bump"], np.zeros(3, np.float32), threads=3)


@pytest.mark.parametrize(
    ("values", "way_out"),
    [
        (["a", "bc"], r"dtype str64: kernels have no text type; np.frombuffer\(text.encode\(\), np.uint8\)"),
        ([b"abc"], "dtype bytes24: kernels have no text type"),
        (np.array(["2024-01-01"], "M8[s]"), r"kernels have no date type; array.view\(np.int64\)"),
        (np.zeros(2, [("name", "U4"), ("n", "i4")]), "kernels have no text type"),
    ],
    ids=["str", "bytes", "dates", "struct"],
)
def test_text_and_dates_make_no_buffer(dev: ost.Device, values: Any, way_out: str) -> None:
    with pytest.raises(ost.ArgumentError, match=way_out):
        dev.array(values)


def test_a_buffer_is_written_by_write(dev: ost.Device) -> None:
    buffer = dev.zeros(4, np.float32)
    with pytest.raises(ost.UsageError, match=r"buffer\[a:b\]\.write\(values\)") as caught:
        buffer[0:2] = [1, 2]  # type: ignore[index]
    assert isinstance(caught.value, TypeError)
    buffer[0:2].write([1, 2])
    assert list(buffer.numpy()) == [1, 2, 0, 0]


def test_a_kernel_is_dispatched_not_called(dev: ost.Device, kernels: ost.Library) -> None:
    with pytest.raises(ost.UsageError, match=r"'bump' cannot be called: encoder\.dispatch\(kernel") as caught:
        kernels["bump"](dev.zeros(4, np.float32), threads=4)  # type: ignore[operator]
    assert isinstance(caught.value, TypeError)


def test_a_kernel_is_looked_up_by_its_name_in_brackets(kernels: ost.Library) -> None:
    with pytest.raises(ost.UnknownAttribute, match=r'the kernel is library\["bump"\]') as caught:
        kernels.bump  # type: ignore[attr-defined]  # noqa: B018
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(kernels, "nonsense")


def test_a_graph_is_instantiated_before_it_is_replayed(dev: ost.Device) -> None:
    graph = dev.capture(lambda enc: enc.fill(dev.zeros(4, np.float32), 1))
    with pytest.raises(ost.UnknownAttribute, match=r"graph\.instantiate\(\) returns an object that has it") as caught:
        graph.replay()  # type: ignore[attr-defined]
    assert isinstance(caught.value, AttributeError)
    assert not hasattr(graph, "nonsense")


@pytest.mark.parametrize("source", ["", "// nothing yet", "inline float twice(float x) { return 2 * x; }"])
def test_a_source_without_kernels_is_refused(dev: ost.Device, source: str) -> None:
    with pytest.raises(ost.KernelCompileError, match="no kernels in this source; a kernel is a function that begins"):
        dev.library(source)


def test_a_source_of_templates_alone_is_told_how_to_make_an_instance(dev: ost.Device) -> None:
    with pytest.raises(ost.KernelCompileError, match=r'scaled are templates .* add template \[\[host_name\("scaled_'):
        dev.library("template <typename T> kernel void scaled(device T *x) { x[0] *= 2; }")


def test_two_devices_of_one_name_are_told_apart(dev: ost.Device, own_dev: ost.Device, kernels: ost.Library) -> None:
    with pytest.raises(ost.WrongDevice) as caught:
        own_dev.command_encoder().dispatch(kernels["bump"], own_dev.zeros(4, np.float32), threads=4)
    mine, theirs = (repr(device).removeprefix("<Device ").partition(": ")[0] for device in (own_dev, dev))
    assert mine != theirs
    assert f"compiled for another device, {theirs}, and this encoder is on {mine};" in str(caught.value)
