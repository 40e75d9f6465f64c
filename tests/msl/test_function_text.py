"""The text of a kernel's function, for people: as it was written, wherever that can be known."""

from __future__ import annotations

from pathlib import Path

import pytest

import ostinato as ost
from ostinato import msl

PLAIN = """
#include <metal_stdlib>
using namespace metal;

kernel void first(device float *x [[buffer(0)]]) { x[0] = 1.0f; }

    // Above the function.
    kernel void second(device float *x [[buffer(0)]],
                       uint id [[thread_position_in_grid]]) {
        x[id] = 2.0f;  // a remark

        x[id] += 1.0f;
    }
kernel void third(device float *x [[buffer(0)]]) { x[0] = 3.0f; }
"""

SECOND = """kernel void second(device float *x [[buffer(0)]],
                   uint id [[thread_position_in_grid]]) {
    x[id] = 2.0f;  // a remark

    x[id] += 1.0f;
}"""


def test_lines_are_as_they_were_written() -> None:
    assert msl.parse(PLAIN).function_text("second") == SECOND


def test_a_function_of_one_line_stands_alone() -> None:
    text = msl.parse("kernel void a(device float *x) { x[0] = 1; } kernel void b(device float *x) { x[0] = 2; }")
    assert text.function_text("b") == "kernel void b(device float *x) { x[0] = 2; }"


def test_a_file_with_includes_and_macros_keeps_its_lines(tmp_path: Path) -> None:
    (tmp_path / "shared.h").write_text("inline float twice(float x) { return 2 * x; }\n")
    source = tmp_path / "kernels.metal"
    source.write_text(
        '#include "shared.h"\n#define LENGTH 4\nkernel void k(device float *x) {\n    x[0] = twice(LENGTH);\n}\n'
    )
    module = msl.parse(source, defines={"OTHER": 1})
    source.unlink()  # what was compiled is shown, whatever became of the file
    assert module.function_text("k") == "kernel void k(device float *x) {\n    x[0] = twice(LENGTH);\n}"


def test_included_files_keep_their_lines_and_macros_are_expanded(tmp_path: Path) -> None:
    inner = "kernel void inner(device float *x) {\n    x[0] = 1;  // a remark\n}"
    (tmp_path / "inner.h").write_text(f"#line 900\n{inner}\n")
    made = "#define MADE(name) kernel void name(device float *x) { x[0] = 2; }\nMADE(made)\n"
    module = msl.parse(made + '#include "inner.h"\n', include_dirs=[tmp_path])
    assert module.function_text("inner") == inner
    assert module.function_text("made") == "kernel void made(device float *x) { x[0] = 2; }"


def test_an_instance_shows_its_template() -> None:
    text = "template <typename T>\nkernel void fill(device T *x) {\n    x[0] = T(1);\n}\n"
    instance = 'template [[host_name("fill_half")]] kernel void fill<half>(device half *x);\n'
    assert msl.parse(text + instance).function_text("fill_half") == text.rstrip("\n")


def test_an_unknown_kernel_is_an_error() -> None:
    with pytest.raises(ost.KernelNotFound, match="it has first, second, third"):
        msl.parse(PLAIN).function_text("fourth")
