"""The text around the body of a kernel, held against MLX's rules, as far as text can tell."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ostinato as ost
from ostinato.interop.metal_signature import (
    ATTRIBUTES,
    TYPES,
    Generated,
    Input,
    Source,
    TemplateArgument,
    generated,
    metal_type,
)

DTYPES = st.sampled_from([np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in TYPES])
NAMES = st.text("abcxyz_", min_size=1, max_size=6)


@st.composite
def inputs(draw: st.DrawFn) -> Input:
    is_scalar = draw(st.booleans())
    return Input(draw(DTYPES), is_scalar, is_scalar or draw(st.booleans()))


@st.composite
def kernels(draw: st.DrawFn) -> tuple[Source, list[Input], list[np.dtype[Any]], list[TemplateArgument]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    split = draw(st.integers(0, len(names) - 1))
    mentioned = [f"{name}_{part}" for name in names[:split] for part in ("shape", "strides", "ndim")]
    words = draw(st.lists(st.sampled_from([*mentioned, *ATTRIBUTES, "other"]), max_size=8))
    template = draw(st.lists(st.tuples(NAMES.map(str.upper), st.one_of(st.booleans(), st.integers(-9, 9), DTYPES))))
    source = Source(
        "k", tuple(names[:split]), tuple(names[split:]), f"// {' '.join(words)}", "// header\n", draw(st.booleans())
    )
    return source, [draw(inputs()) for _ in names[:split]], [draw(DTYPES) for _ in names[split:]], template


def parameters(made: Generated) -> list[str]:
    return made.printed.partition("(\n")[2].partition(") {\n")[0].split(",\n")


@given(kernels())
def test_a_signature_has_what_the_arrays_and_the_body_ask_for(
    kernel: tuple[Source, list[Input], list[np.dtype[Any]], list[TemplateArgument]],
) -> None:
    source, arrays, outputs, template = kernel
    made = generated(source, arrays, outputs, template)
    listed = [parameter.strip() for parameter in parameters(made)]
    buffers = [parameter for parameter in listed if "[[buffer(" in parameter]
    assert [f"[[buffer({index})]]" in parameter for index, parameter in enumerate(buffers)] == [True] * len(buffers)
    assert len(buffers) == len(made.buffers)
    expected = []
    for name, array in zip(source.input_names, arrays, strict=True):
        space, kind = "constant" if array.is_small else "device", TYPES[array.dtype.name]
        expected.append(f"const {space} {kind}{'&' if array.is_scalar else '*'} {name}")
        for part, type_ in (("shape", "int*"), ("strides", "int64_t*"), ("ndim", "int&")):
            if f"{name}_{part}" in source.source and not array.is_scalar:
                expected.append(f"const constant {type_} {name}_{part}")
    for name, dtype in zip(source.output_names, outputs, strict=True):
        kind = f"atomic<{TYPES[dtype.name]}>" if source.atomic_outputs else TYPES[dtype.name]
        expected.append(f"device {kind}* {name}")
    assert [buffer.partition(" [[")[0] for buffer in buffers] == expected
    attributes = [parameter for parameter in listed if "[[buffer(" not in parameter]
    assert attributes == [f"{ATTRIBUTES[name]} {name} [[{name}]]" for name in ATTRIBUTES if name in source.source]
    assert ("\ntemplate [[host_name(" in made.printed) == bool(template)
    assert made.printed.startswith(source.header)
    assert source.source in made.printed
    assert re.fullmatch(r"\w+", made.name)


def test_lines_of_the_texts_are_their_own() -> None:
    source = Source('a"b', (), ("y",), "first\nsecond", "one\ntwo", False)
    lines = generated(source, [], [np.dtype(np.float32)], []).compiled.splitlines()
    for file, line, text in (
        ("header", 1, "one"),
        ("header", 2, "two"),
        ("source", 1, "first"),
        ("source", 2, "second"),
    ):
        at = lines.index(f'#line 1 "{file} of \'a\\"b\'"')
        assert lines[at + line] == text


def test_a_dtype_without_a_type_is_named() -> None:
    with pytest.raises(ost.ArgumentError, match=r"^inputs\[2\]: .*no type for float64; Metal has no 64-bit"):
        metal_type(np.dtype(np.float64), "inputs[2]")
