"""A source is parsed once, whatever its function constants, and again when one of its files has changed."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import ostinato as ost
from ostinato import msl

SOURCE = "constant int n [[function_constant(0)]];\nkernel void k(device int *x) { x[0] = n; }\n"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The sources that are parsed."""
    sources: list[Any] = []
    parse = msl.parse

    def counting(source: Any, **options: Any) -> msl.Module:
        sources.append(source)
        return parse(source, **options)

    monkeypatch.setattr(msl, "parse", counting)
    return sources


def test_another_set_of_constants_does_not_parse_again(dev: ost.Device, parsed: list[Any]) -> None:
    source = SOURCE + "// compiled three times\n"
    kernels = [dev.library(source, constants={0: value})["k"] for value in (1, 2, 3)]
    assert len(parsed) == 1
    assert len({kernel.digest for kernel in kernels}) == 3


def test_a_registry_parses_a_source_once(dev: ost.Device, parsed: list[Any]) -> None:
    registry = ost.KernelRegistry(dev)
    registry.register_source("k", SOURCE + "// of the registry\n")
    assert registry.get_pipeline("k", {0: 1}) is not registry.get_pipeline("k", {0: 2})
    assert len(parsed) == 1


def test_other_macros_and_folders_parse_again(dev: ost.Device, parsed: list[Any], tmp_path: Path) -> None:
    source = "kernel void k(device int *x) { x[0] = 5; }"
    kept = [dev.library(source), dev.library(source, defines={"A": 1}), dev.library(source, include_dirs=[tmp_path])]
    assert len(parsed) == len(kept)


def test_a_source_that_nobody_uses_any_more_is_forgotten(dev: ost.Device, parsed: list[Any]) -> None:
    source = "kernel void forgotten(device int *x) { x[0] = 1; }"
    for _ in range(2):
        dev.library(source)
        gc.collect()
    assert len(parsed) == 2


def test_a_file_that_changed_is_parsed_again(dev: ost.Device, parsed: list[Any], tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    source = tmp_path / "k.metal"
    source.write_text('#include "value.h"\nkernel void k(device int *x) { x[0] = VALUE; }\n')
    (far / "value.h").write_text("#define VALUE 1\n")

    def library() -> ost.Library:
        return dev.library(source, include_dirs=[near, far])

    kept = [library(), library()]
    assert len(parsed) == 1
    (far / "value.h").write_text("#define VALUE 2\n")  # of the same size
    kept.append(library())
    assert len(parsed) == 2
    (near / "value.h").write_text("#define VALUE 3\n")  # found before the other
    kept.append(library())
    assert len(parsed) == 3
    (near / "value.h").unlink()
    kept.append(library())
    assert len(parsed) == 4
    assert len({each["k"].digest for each in kept}) == 3


def test_parsing_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    msl.parse(SOURCE)
    with pytest.raises(ost.KernelCompileError):
        msl.parse("kernel void k(")
    assert gc.isenabled()
