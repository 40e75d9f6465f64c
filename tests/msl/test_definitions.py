"""The place of a kernel's function in the text as it was written, whatever its `#line` directives claim."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato import msl

PLAIN = "#include <metal_stdlib>\n\nkernel void one(device float *x) { x[0] = 1; }\n"


def test_a_text_has_its_line_and_digest() -> None:
    definition = msl.parse(PLAIN).definition("one")
    assert definition is not None
    assert (definition.file, definition.line, definition.text) == ("", 3, PLAIN.encode())
    assert definition.digest == hashlib.sha256(PLAIN.encode()).hexdigest()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_digest_is_that_of_the_bytes_of_the_file(tmp_path: Path, newline: str, mark: str) -> None:
    path = tmp_path / "one.metal"
    path.write_bytes((mark + PLAIN.replace("\n", newline)).encode())
    definition = msl.parse(path).definition("one")
    assert definition is not None
    assert (definition.file, definition.line) == (str(path), 3)
    assert definition.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_template_stands_in_the_file_that_was_included(tmp_path: Path) -> None:
    header, path = tmp_path / "parts" / "scale.h", tmp_path / "scale.metal"
    header.parent.mkdir()
    header.write_text("#pragma once\ntemplate <typename T>\nkernel void scale(device T *x) { x[0] = x[0] * 2; }\n")
    path.write_text(
        '#include "parts/scale.h"\n'
        'template [[host_name("scale_float")]] kernel void scale<float>(device float *x);\n'
        "kernel void own(device float *x) { x[0] = 1; }\n"
    )
    module = msl.parse(path)
    definitions = {name: module.definition(name) for name in ("scale_float", "own")}
    assert {name: (each.file, each.line, each.text) for name, each in definitions.items() if each is not None} == {
        "scale_float": (str(header), 3, header.read_bytes()),
        "own": (str(path), 3, path.read_bytes()),
    }
    assert module.definition("none") is None


def test_a_kernel_out_of_a_macro_stands_where_the_macro_is_used() -> None:
    definition = msl.parse(
        "#define MAKE(name) \\\n  kernel void name(device float *x) { x[0] = 1; }\n\nMAKE(first)\nMAKE(second)\n"
    ).definition("second")
    assert definition is not None
    assert definition.line == 5


directives = st.sampled_from(["", "#line 1", '#line 1 "other.metal"', '#line 70 "other.metal"', "#line 9999"])


@given(st.lists(st.tuples(directives, st.integers(0, 3)), min_size=1, max_size=8))
def test_line_directives_are_undone(parts: list[tuple[str, int]]) -> None:
    """As long as no two lines claim the same place, which these do at most in different stretches of one name."""
    lines, expected, claimed = [], {}, set()
    file, number = "", 1
    for index, (directive, blank) in enumerate(parts):
        if directive:
            words = directive.split()
            number, file = int(words[1]) + 100 * index, words[2] if len(words) > 2 else file
            lines.append(" ".join(["#line", str(number), *words[2:]]))
        lines += [""] * blank
        number += blank
        assert (file, number) not in claimed
        claimed.add((file, number))
        lines.append(f"kernel void k{index}(device float *x) {{ x[0] = {index}; }}")
        expected[f"k{index}"] = len(lines)
        number += 1
    module = msl.parse("\n".join(lines))
    for name, line in expected.items():
        definition = module.definition(name)
        assert definition is not None
        assert definition.line == line


def test_a_source_that_was_exported_still_knows_where_its_kernels_are(tmp_path: Path) -> None:
    (tmp_path / "twice.h").write_text("\n\nkernel void twice(device float *x) { x[0] *= 2; }\n")
    (tmp_path / "all.metal").write_text('\n#include "twice.h"\nkernel void once(device float *x) { x[0] += 1; }\n')
    exported = msl.parse(msl.parse(tmp_path / "all.metal").source)
    for name in ("once", "twice"):
        definition = exported.definition(name)
        assert definition is not None
        assert f"kernel void {name}" in definition.text.decode().split("\n")[definition.line - 1]
