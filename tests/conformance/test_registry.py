"""Libraries and the registry: names, constants, includes, re-registration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ostinato as ost

SPECIAL = """
constant uint width [[function_constant(0)]];
constant bool doubled [[function_constant(3)]];
constant float bias [[function_constant(5)]];
kernel void fill_width(device float *out [[buffer(0)]], uint id [[thread_position_in_grid]]) {
    out[id] = float(width) * (doubled ? 2.0f : 1.0f) + (is_function_constant_defined(bias) ? bias : 0.0f);
}
"""


def constant_kernel(value: int) -> str:
    return f"kernel void answer(device float *out [[buffer(0)]]) {{ out[0] = {value}.0f; }}"


def value_of(dev: ost.Device, kernel: ost.Kernel) -> float:
    out = dev.zeros(1, np.float32)
    encoder = dev.command_encoder()
    encoder.dispatch(kernel, out, threads=1)
    encoder.commit_and_wait()
    return float(out.numpy()[0])


def test_a_library_lists_its_kernels(kernels: ost.Library) -> None:
    assert list(kernels)[:2] == ["inc_one", "bump"]
    assert "inc_one" in kernels
    assert len(kernels) == len(list(kernels))
    assert "out" in repr(kernels["inc_one"])
    with pytest.raises(ost.KernelNotFound, match=r"'inc_two'.*inc_one"):
        kernels["inc_two"]
    with pytest.raises(KeyError):
        kernels["inc_two"]


def test_sources_come_from_files_with_includes_and_defines(dev: ost.Device, tmp_path: Path) -> None:
    (tmp_path / "near.h").write_text("#define NEAR 30.0f\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "far.h").write_text("#define FAR 4.0f\n")
    file = tmp_path / "sum.metal"
    file.write_text(
        '#include "near.h"\n#include "far.h"\nkernel void k(device float *o [[buffer(0)]]) { o[0] = NEAR + FAR + ADD; }'
    )
    library = dev.library(file, include_dirs=[tmp_path / "lib"], defines={"ADD": "0.5f"})
    assert value_of(dev, library["k"]) == 34.5


def test_constants_by_index_and_name(dev: ost.Device) -> None:
    first = dev.library(SPECIAL, constants={0: 4, "doubled": False})
    second = dev.library(SPECIAL, constants={"width": np.uint32(4), 3: True, 5: 0.5})
    assert value_of(dev, first["fill_width"]) == 4
    assert value_of(dev, second["fill_width"]) == 8.5


@pytest.mark.parametrize(
    ("constants", "text"),
    [
        ({"doubled": True}, "width"),
        ({}, "width"),
        ({0: 1, 3: True, 9: 1}, "9"),
        ({"wide": 1, 3: True}, "wide"),
        ({0: -1, 3: True}, "width"),
        ({0: 1.5, 3: True}, "width"),
        ({0: "4", 3: True}, "width"),
        ({0: 1, 3: 2}, "doubled"),
    ],
)
def test_missing_unknown_and_unfit_constants_are_named(
    dev: ost.Device, constants: dict[int | str, object], text: str
) -> None:
    with pytest.raises(ost.ConstantError, match=text):
        dev.library(SPECIAL, constants=constants)


def test_the_registry_compiles_on_demand_and_once(dev: ost.Device) -> None:
    registry = ost.KernelRegistry(dev)
    registry.register_source("broken", "kernel void broken( {")
    registry.register_source("answer", constant_kernel(41))
    assert value_of(dev, registry.get_pipeline("answer")) == 41
    assert registry.get_pipeline("answer") is registry.get_pipeline("answer")
    with pytest.raises(ost.KernelCompileError):
        registry.get_pipeline("broken")


def test_specialisations_are_kept_apart(dev: ost.Device) -> None:
    registry = ost.KernelRegistry(dev)
    registry.register_source("fill_width", SPECIAL)
    one = registry.get_pipeline("fill_width", {"width": 1, "doubled": False})
    two = registry.get_pipeline("fill_width", {"width": 1, "doubled": True})
    assert (value_of(dev, one), value_of(dev, two)) == (1, 2)
    assert registry.get_pipeline("fill_width", {"doubled": True, "width": 1}) is two


def test_registering_again_invalidates_every_specialisation(dev: ost.Device) -> None:
    registry = ost.KernelRegistry(dev)
    registry.register_source("fill_width", SPECIAL)
    choices: list[dict[int | str, int]] = [{"width": width, "doubled": False} for width in (1, 2)]
    old = [registry.get_pipeline("fill_width", choice) for choice in choices]
    registry.register_source("fill_width", SPECIAL.replace("float(width)", "float(width + 10)"))
    new = [registry.get_pipeline("fill_width", choice) for choice in choices]
    assert [value_of(dev, kernel) for kernel in new] == [11, 12]
    assert [value_of(dev, kernel) for kernel in old] == [1, 2], "kernels in use must not change under their users"


def test_a_file_that_changed_is_read_again_when_registered_again(dev: ost.Device, tmp_path: Path) -> None:
    file, registry = tmp_path / "answer.metal", ost.KernelRegistry(dev)
    for value in (1, 2):
        file.write_text(constant_kernel(value))
        registry.register_source("answer", file)
        assert value_of(dev, registry.get_pipeline("answer")) == value


def test_names_without_a_source_or_a_kernel_are_errors(dev: ost.Device) -> None:
    registry = ost.KernelRegistry(dev)
    with pytest.raises(ost.KernelNotFound, match="answer"):
        registry.get_pipeline("answer")
    registry.register_source("question", constant_kernel(1))
    with pytest.raises(ost.KernelNotFound, match=r"'question'.*answer"):
        registry.get_pipeline("question")


def test_a_library_of_very_many_kernels_compiles_them_one_by_one(dev: ost.Device) -> None:
    count = ost.Library.COMPILED_WHOLE + 1
    source = "\n".join(f"kernel void k{n}(device int *x) {{ x[0] = {n}; }}" for n in range(count))
    library = dev.library(source)
    assert len(library) == count
    assert not library._kernels
    x = dev.zeros(1, np.int32)
    encoder = dev.command_encoder()
    encoder.dispatch(library["k7"], x, threads=1)
    encoder.commit_and_wait()
    assert x.numpy()[0] == 7
    assert list(library._kernels) == ["k7"]
